"""The staging folders that the page shows, and their status files. An unchanged file is read only once."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Final, NamedTuple

from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.ledger.layout import STATUS_FOLDER
from airflow_provider_fds.stream.monitoring.all_statuses import stream_names
from airflow_provider_fds.stream.monitoring.status_row import parse_row

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from airflow_provider_fds.delta.storage.storage import ObjectMeta, Storage
    from airflow_provider_fds.stream.monitoring.status_row import StatusRow

#: Files that are read at the same time; on an object store the time is spent waiting.
_THREADS: Final = 32
#: How long a listing is used again: many browsers ask at the same time.
_FRESH_SECONDS: Final = 1.0
#: Largest file that is read. One with all samples and texts has about 30 kB.
_MOST_BYTES: Final = 2**20
#: Streams that a message names.
_NAMED: Final = 5
_SUFFIX: Final = ".json"


class Unlisted(NamedTuple):
    """What a person should know about some streams without a row.

    Attributes:
        names: The streams.
        text: What they have, as the end of a sentence.
    """

    names: Sequence[str]
    text: str

    def describe(self, may_see: Callable[[str], bool] = lambda _name: True) -> str | None:
        """Return it in words, with the streams that a person may see; ``None`` if there is no such stream."""
        names = [name for name in self.names if may_see(name)]
        return f"{_describe_names(names)} {self.text}" if names else None


class FolderStatus(NamedTuple):
    """The contents of a staging folder's status files.

    Attributes:
        rows: By name of the stream.
        problems: The streams without a row.
    """

    rows: Mapping[str, StatusRow]
    problems: Sequence[Unlisted]


class StatusFolder:
    """The status files of one staging folder. Safe for use by several threads.

    Args:
        uri: URI of the staging folder.
        options: Returns its storage options; called whenever the folder is read.
    """

    def __init__(self, uri: str, options: Callable[[], Mapping[str, Any]]) -> None:
        self.uri = uri
        self._options = options
        self._lock = Lock()
        self._files: dict[str, tuple[object, StatusRow | None]] = {}
        self._found: FolderStatus | None = None
        self._read_at = 0.0

    def open(self) -> Storage:
        """Return the folder's storage.

        Raises:
            FdsError: The connection is missing, or the URI cannot be opened.
        """
        return open_storage(self.uri, self._options())

    def read(self) -> FolderStatus:
        """Return the status of each stream: two listings, and one GET for each file that is new or has changed.

        Raises:
            FdsError: Staging cannot be read.
        """
        with self._lock:
            if self._found is None or time.monotonic() - self._read_at >= _FRESH_SECONDS:
                self._found = self._read()
                self._read_at = time.monotonic()
            return self._found

    def forget(self) -> None:
        """Read the folder again at the next call of :meth:`read`."""
        with self._lock:
            self._found = None

    def _read(self) -> FolderStatus:
        staging = self.open()
        names = stream_names(staging)
        metas = {
            meta.key.rsplit("/", 1)[-1].removesuffix(_SUFFIX): meta
            for meta in staging.list_after(STATUS_FOLDER)
            if meta.key.endswith(_SUFFIX)
        }
        wanted = [name for name in names if name in metas]
        changed = [name for name in wanted if self._files.get(name, (None, None))[0] != _identity(metas[name])]

        def read_one(name: str) -> tuple[str, tuple[object, StatusRow | None]]:
            if metas[name].size_bytes > _MOST_BYTES:
                return name, (_identity(metas[name]), None)
            try:
                data, meta = staging.get(metas[name].key)
            except FileNotFoundError:
                return name, (None, None)
            return name, (_identity(meta), parse_row(data))

        with ThreadPoolExecutor(_THREADS) as threads:
            new = dict(threads.map(read_one, changed))
        self._files = {name: new.get(name) or self._files[name] for name in wanted}
        rows = {name: row for name, (_, row) in self._files.items() if row is not None and row.name == name}
        problems = []
        if missing := [name for name in names if name not in metas]:
            who = "The next run or a monitor writes it: see the example DAG fds_monitor."
            problems.append(Unlisted(missing, f"no status file yet. {who}"))
        if damaged := [name for name in wanted if name not in rows]:
            problems.append(Unlisted(damaged, "a status file that this version of FDS cannot read."))
        return FolderStatus(rows, problems)


def _identity(meta: ObjectMeta) -> object:
    return meta.etag, meta.size_bytes, meta.modified_ms


def _describe_names(names: list[str]) -> str:
    shown = ", ".join(names[:_NAMED])
    if len(names) == 1:
        return f"Stream {shown} has"
    more = len(names) - _NAMED
    return f"Streams {shown} have" if more <= 0 else f"Streams {shown} and {more:,} more have"
