"""The folder of a catalog-managed table as its catalog shows it: the newest commits are known to the catalog only.

Rules of the Delta protocol, "Catalog-managed tables": a commit that the catalog names is read from
``_delta_log/_staged_commits``, even if a published file exists; others there never count; nothing after the latest
version counts. A ratified version is never taken back.
"""

from __future__ import annotations

import asyncio
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeVar

import msgspec

from airflow_provider_fds.delta.damage import DAMAGE
from airflow_provider_fds.delta.names import LAST_CHECKPOINT, LOG_FOLDER, commit_key, commit_name, parse_commit_name
from airflow_provider_fds.delta.storage.folder_view import FolderView
from airflow_provider_fds.delta.storage.storage import ObjectMeta
from airflow_provider_fds.errors import FdsError, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from airflow_provider_fds.delta.storage.storage import Storage

_IN_LOG: Final = f"{LOG_FOLDER}/"
#: Where the name of a file of the log begins in its key.
_NAME_AT: Final = len(_IN_LOG)
_STAGED_FOLDER: Final = f"{LOG_FOLDER}/_staged_commits"
#: Commits, checkpoints, checksums; a compacted file counts by its last version.
_VERSIONED: Final = re.compile(r"(\d{20})\.(?:(\d{20})\.compacted\.)?")
_Read = TypeVar("_Read")


@dataclass(frozen=True)
class StagedCommit:
    """A commit that the catalog names: its file in ``_staged_commits``."""

    version: int
    name: str
    size_bytes: int
    modified_ms: int


@dataclass(frozen=True)
class LogTip:
    """One answer of the catalog.

    Attributes:
        latest: The latest version.
        staged: The commits that it names, by version. All others up to the latest are published.
    """

    latest: int
    staged: Mapping[int, StagedCommit]

    def is_published(self, key: str) -> bool:
        """Return whether a key, if it is that of a commit, is one that counts and that the catalog does not name."""
        # without taking it apart: planning asks it of ten thousand of them
        return len(key) == len(self._last_key) and key <= self._last_key and key not in self._staged_keys

    @cached_property
    def _last_key(self) -> str:
        return commit_key(self.latest)

    @cached_property
    def _staged_keys(self) -> frozenset[str]:
        return frozenset(map(commit_key, self.staged))


class CatalogLogView(FolderView):
    """A folder with the log that the catalog shows.

    A look at a version after the latest known one asks the catalog, and sends nothing to storage: that is a poll. Every
    listing of the log asks too. The answer of the resolve, or of a look that found a new version, serves the question
    that comes next; :meth:`one_answer` lets one serve a whole plan. Callers that wait at the same time share one
    answer, or one error.

    An answer with an older latest version is stale, as a version is never taken back: the catalog is asked once more,
    then the newer answer stays in force. A view is made for each resolve, so a catalog that was restored from a backup
    is noticed by the next one.

    Args:
        folder: The folder of the table.
        tip: What the catalog said.
        ask: Asks it again.
        table_id: The catalog's id of the table, which its log must have.
    """

    def __init__(self, folder: Storage, tip: LogTip, ask: Callable[[], LogTip], *, table_id: str) -> None:
        super().__init__(folder)
        self.catalog_table_id = table_id
        self._tip = tip
        self._ask = ask
        self._lock = threading.Lock()
        self._begun = 0
        self._failure: FdsError | None = None
        #: Whether the answer may serve the next question on the newest version.
        self._is_new = True
        #: By thread, whether :meth:`one_answer` is in force (``is_on``), and its answer (``tip``).
        self._scope = threading.local()

    def __repr__(self) -> str:
        return f"CatalogLogView({self.uri!r}, latest={self._tip.latest})"

    @contextmanager
    def one_answer(self) -> Iterator[None]:
        """In the body, ask the catalog at most once for the newest version, in this thread.

        The answer is one snapshot for a poll or a plan, and ends with the body. The catalog is asked again all the same
        if a commit is missing: the answer, or a listing, is then stale.
        """
        if getattr(self._scope, "is_on", False):
            yield
            return
        self._scope.is_on, self._scope.tip = True, None
        try:
            yield
        finally:
            self._scope.is_on = False
            self.renew()

    def renew(self) -> None:
        """Let the next question on the newest version be a request, whatever is known."""
        self._is_new, self._scope.tip = False, None

    def head(self, key: str) -> ObjectMeta | None:
        """Return the metadata of an object; a commit that the catalog names has the size and time that it says."""
        version = _version(key)
        if key.startswith(f"{_STAGED_FOLDER}/"):
            return None
        if version is not None and version > self._tip.latest:
            if version > self._current().latest:
                return None
            # the listing that follows belongs to the same poll
            self._is_new = True
        commit = _commit(key)
        if commit is None:
            return self._folder.head(key)
        if (staged := self._tip.staged.get(commit)) is not None:
            return _meta(staged)
        if (found := self._folder.head(key)) is not None:
            return found
        staged = self._asked().staged.get(commit)
        return self._folder.head(key) if staged is None else _meta(staged)

    async def head_async(self, key: str) -> ObjectMeta | None:
        """Like :meth:`head`, without blocking the event loop."""
        return await asyncio.to_thread(self.head, key)

    def list_after(self, folder: str, after: str | None = None) -> Iterator[ObjectMeta]:
        """Yield the children of ``folder``; of the log those that count as the catalog says now.

        Raises:
            StorageError: Also a second listing ends before the latest version.
        """
        if folder == _STAGED_FOLDER:
            return
        if folder != LOG_FOLDER:
            yield from self._folder.list_after(folder, after)
            return
        newest: int | None = None
        for _ in range(2):
            tip = self._current()
            has_ended = True
            for item, commit in self._listed(tip, after):
                if commit is not None:
                    if newest is not None and commit > newest + 1:
                        self.renew()
                    newest = commit
                elif item.key[_NAME_AT:] > ":" and self._lacks(tip, newest, after):
                    has_ended = False
                    break
                after = item.key[_NAME_AT:]
                yield item
            if has_ended and not self._lacks(tip, newest, after):
                return
            self.renew()
        raise StorageError(
            f"the log of {self.uri} ends at version {newest}, but the catalog says that the latest version is "
            f"{self._tip.latest}. Storage or the catalog gives inconsistent answers; try again",
            table=self.uri,
            version=self._tip.latest,
        )

    def get(self, key: str) -> tuple[bytes, ObjectMeta]:
        """Return the whole object. Raises ``FileNotFoundError``."""
        if self._tip.is_published(key):
            try:
                return self._folder.get(key)
            except FileNotFoundError:
                # the catalog may name it now
                pass
        content, meta = self._read(key, self._folder.get)
        if key == LAST_CHECKPOINT and _hinted(content) > self._tip.latest:
            raise FileNotFoundError(key)
        if meta.key.startswith(f"{_STAGED_FOLDER}/"):
            # as in listings: what was read is recognised by its ETag
            meta = meta._replace(etag=meta.key.rpartition("/")[2])
        return content, meta._replace(key=key)

    def stream(self, key: str, chunk_bytes: int = 4 << 20) -> Iterator[bytes]:
        """Yield the object in chunks. Raises ``FileNotFoundError`` at the first one."""

        def begin(real: str) -> tuple[bytes, Iterator[bytes]]:
            chunks = self._folder.stream(real, chunk_bytes)
            return next(chunks, b""), chunks

        first, rest = self._read(key, begin)
        yield first
        yield from rest

    def open(self, key: str) -> BinaryIO:
        """Open the object for reading with seek. Raises ``FileNotFoundError``."""
        return self._read(key, self._folder.open)

    def _current(self) -> LogTip:
        """Return what the catalog says now, or in the scope of :meth:`one_answer`."""
        known: LogTip | None = getattr(self._scope, "tip", None)
        if known is not None:
            return known
        is_new, self._is_new = self._is_new, False
        tip = self._tip if is_new else self._asked()
        if getattr(self._scope, "is_on", False):
            self._scope.tip = tip
        return tip

    def _asked(self) -> LogTip:
        """Return an answer to a request that began after this call."""
        arrived = self._begun
        with self._lock:
            if self._begun == arrived:
                self._begun += 1
                self._failure = None
                try:
                    tip = self._ask()
                    if tip.latest < self._tip.latest:
                        tip = self._ask()
                except FdsError as error:
                    self._failure = error
                else:
                    self._tip = self._tip if tip.latest < self._tip.latest else tip
            if self._failure is not None:
                raise self._failure
            return self._tip

    def _listed(self, tip: LogTip, after: str | None) -> Iterator[tuple[ObjectMeta, int | None]]:
        """Yield what counts, each with its version if it is a commit."""
        waiting = [_meta(tip.staged[v]) for v in sorted(tip.staged) if after is None or commit_name(v) > after]
        for item in self._folder.list_after(LOG_FOLDER, after):
            commit = _commit(item.key)
            version = _version(item.key) if commit is None else commit
            if (version is not None and version > tip.latest) or commit in tip.staged:
                continue
            while waiting and waiting[0].key < item.key:
                first = waiting.pop(0)
                yield first, _commit(first.key)
            yield item, commit
        yield from ((item, _commit(item.key)) for item in waiting)

    def _lacks(self, tip: LogTip, newest: int | None, after: str | None) -> bool:
        """Return whether commits up to the latest are missing at the end; a log without any is no table."""
        if newest is None:
            return after is not None and after < commit_name(tip.latest) and bool(_VERSIONED.match(after))
        return newest < tip.latest

    def _read(self, key: str, read: Callable[[str], _Read]) -> _Read:
        for real in self._keys(key):
            try:
                return read(real)
            except FileNotFoundError:
                continue
        raise FileNotFoundError(key)

    def _keys(self, key: str) -> Iterator[str]:
        """Yield where to look for ``key``, one after the other as long as nothing is there."""
        version, commit = _version(key), _commit(key)
        if key.startswith(f"{_STAGED_FOLDER}/"):
            return
        if version is not None and version > self._tip.latest and version > self._current().latest:
            return
        if commit is None:
            yield key
            return
        staged = self._tip.staged.get(commit)
        yield key if staged is None else f"{_STAGED_FOLDER}/{staged.name}"
        # cleaned up or published meanwhile; the published copy has the same content
        now = self._asked().staged.get(commit)
        if now is not None and now != staged:
            yield f"{_STAGED_FOLDER}/{now.name}"
        yield key


def _version(key: str) -> int | None:
    folder, _, name = key.rpartition("/")
    match = _VERSIONED.match(name) if folder == LOG_FOLDER else None
    return None if match is None else int(match[2] or match[1])


def _commit(key: str) -> int | None:
    return parse_commit_name(key[_NAME_AT:]) if key.startswith(_IN_LOG) else None


def _meta(commit: StagedCommit) -> ObjectMeta:
    return ObjectMeta(commit_key(commit.version), commit.size_bytes, commit.modified_ms, commit.name)


def _hinted(content: bytes) -> int:
    try:
        found: Any = msgspec.json.decode(content)
    except DAMAGE:
        return -1
    version = found.get("version") if isinstance(found, dict) else None
    return version if isinstance(version, int) else -1
