"""One commit: its actions, and whether the file is complete (Delta protocol, "Delta Log Entries")."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Final, overload

import msgspec

from airflow_provider_fds.delta.actions import Action, CommitInfo, decode_actions
from airflow_provider_fds.delta.damage import DAMAGE, describe
from airflow_provider_fds.delta.listing import missing
from airflow_provider_fds.delta.names import LOG_FOLDER, commit_name
from airflow_provider_fds.delta.statistics import num_records_fast
from airflow_provider_fds.errors import TornFileError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from airflow_provider_fds.delta.storage.storage import ObjectMeta, Storage

#: A commit larger than this is streamed, never held in memory: 377 MB of JSON would become 800 MB of objects.
STREAMED_ABOVE_BYTES: Final = 16 << 20

_CHUNK_BYTES: Final = 1 << 20

#: Maximum length of a line of a streamed commit; a line, which is one action, is held whole.
MAX_LINE_BYTES: Final = 64 << 20


class Commit(msgspec.Struct, frozen=True, dict=True, eq=False):
    """A commit of the table. A struct, not a dataclass: planning creates one for every commit.

    Attributes:
        version: Its version.
        actions: Its actions in line order, which only numbers them. Can be iterated repeatedly; for a commit above 16
            MiB each iteration reads storage and holds a few MiB.
        size_bytes: Size of the commit file.
        modified_ms: Modification time of the commit file, milliseconds since the epoch. Not the commit's time: see
            :class:`~airflow_provider_fds.delta.reader.timestamps.CommitTimestamps`.
        etag: ETag of the commit file's content, or ``None`` if the storage has no ETags.
        crc32: CRC-32 of the commit file, or ``None`` if it was not read whole; see :attr:`checksum`.
        content: Returns the bytes of the commit file, in pieces.
    """

    version: int
    actions: Sequence[Action]
    size_bytes: int
    modified_ms: int
    etag: object = None
    crc32: int | None = None
    content: Callable[[], Iterable[bytes]] = tuple

    @cached_property
    def sha256(self) -> str:
        """Hex SHA-256 of the commit file, computed on first use."""
        digest = hashlib.sha256()
        for chunk in self.content():
            digest.update(chunk)
        return digest.hexdigest()

    @property
    def checksum(self) -> int:
        """CRC-32 of the commit file; costs a fraction of the SHA-256, so it is affordable for every commit."""
        if self.crc32 is not None:
            return self.crc32
        if isinstance(self.actions, StreamedActions) and self.actions.crc32 is not None:
            return self.actions.crc32
        value = 0
        for chunk in self.content():
            value = zlib.crc32(chunk, value)
        return value

    @property
    def info(self) -> CommitInfo | None:
        """The ``commitInfo`` of the commit, or ``None`` if it lacks one."""
        return next((action.commitInfo for action in self.actions if action.commitInfo is not None), None)


def commit_of(storage: Storage, version: int, data: bytes, meta: ObjectMeta, *, check_rows: bool) -> Commit:
    """Decode a commit file that was read whole.

    Args:
        storage: The storage it was read from, for messages.
        version: Its version.
        data: Its content.
        meta: Its metadata from the listing.
        check_rows: Also compare the rows it lists with the rows its ``commitInfo`` says were written; for file systems,
            where a file may be visible before all of it is written.

    Raises:
        TornFileError: The file is empty, truncated, or not the commit that was listed.
    """
    if len(data) != meta.size_bytes:
        raise _torn(storage, version, f"has {len(data)} bytes, but the listing says {meta.size_bytes}")
    actions = _decode(storage, version, data)
    if not actions:
        raise _torn(storage, version, "is empty")
    if check_rows:
        rows = _AppendedRows()
        rows.see(actions)
        rows.check(storage, version)
    return Commit(version, actions, meta.size_bytes, meta.modified_ms, meta.etag, zlib.crc32(data), lambda: (data,))


def streamed_commit(storage: Storage, version: int, meta: ObjectMeta, *, check_rows: bool) -> Commit:
    """Return a commit whose actions stream from storage. Errors in its content are raised during iteration."""
    return Commit(
        version,
        StreamedActions(storage, version, meta, check_rows=check_rows),
        meta.size_bytes,
        meta.modified_ms,
        meta.etag,
        None,
        lambda: storage.stream(meta.key),
    )


class StreamedActions(Sequence[Action]):
    """The actions of a huge commit: iterating reads and decodes its file in pieces; ``len`` counts by iterating.

    Attributes:
        crc32: CRC-32 of the file, ``None`` until it was read to its end. A later read of other content fails.
    """

    def __init__(self, storage: Storage, version: int, meta: ObjectMeta, *, check_rows: bool) -> None:
        self._storage = storage
        self._version = version
        self._meta = meta
        self._check_rows = check_rows
        self._length: int | None = None
        self.crc32: int | None = None

    def __iter__(self) -> Iterator[Action]:
        rows = _AppendedRows()
        rest = b""
        size_bytes = 0
        crc32 = 0
        for chunk in self._chunks():
            size_bytes += len(chunk)
            crc32 = zlib.crc32(chunk, crc32)
            end = chunk.rfind(b"\n")
            if end < 0:
                rest += chunk
                if len(rest) > MAX_LINE_BYTES:
                    raise _torn(self._storage, self._version, f"has a line of more than {MAX_LINE_BYTES} bytes")
                continue
            # copies the piece once, not twice
            actions = _decode(self._storage, self._version, b"".join((rest, memoryview(chunk)[:end])))
            rest = chunk[end + 1 :]
            rows.see(actions)
            yield from actions
        actions = _decode(self._storage, self._version, rest)
        rows.see(actions)
        yield from actions
        if size_bytes != self._meta.size_bytes:
            raise _torn(
                self._storage,
                self._version,
                f"has {size_bytes} bytes, but an earlier listing says {self._meta.size_bytes}",
            )
        if self._check_rows:
            rows.check(self._storage, self._version)
        if self.crc32 not in (None, crc32):
            raise _torn(self._storage, self._version, "has changed since it was last read")
        self.crc32 = crc32

    def _chunks(self) -> Iterator[bytes]:
        try:
            yield from self._storage.stream(self._meta.key, _CHUNK_BYTES)
        except FileNotFoundError:
            raise missing(self._storage, self._version) from None

    def __len__(self) -> int:
        if self._length is None:
            self._length = sum(1 for _ in self)
        return self._length

    @overload
    def __getitem__(self, index: int) -> Action: ...
    @overload
    def __getitem__(self, index: slice) -> list[Action]: ...
    def __getitem__(self, index: int | slice) -> Action | list[Action]:
        if isinstance(index, slice):
            return list(islice(self, *index.indices(len(self))))
        wanted = index if index >= 0 else len(self) + index
        found = next(islice(self, wanted, None), None) if wanted >= 0 else None
        if found is None:
            raise IndexError(f"version {self._version} has no action {index}")
        return found


class _AppendedRows:
    """Compares the rows that an append lists with the rows it says it wrote.

    A file truncated at the end of a line is valid JSON with too few adds, and the protocol has no check for that.
    Spark's appends record in ``commitInfo.operationMetrics.numOutputRows`` how many rows they wrote. Without statistics
    on every file, and for all other operations, the question stays open. ``numFiles`` is no substitute: Delta drops
    files without rows from the commit after counting them.
    """

    def __init__(self) -> None:
        self._written: int | None = None
        self._listed = 0
        self._is_open = True

    def see(self, actions: list[Action]) -> None:
        for action in actions:
            if action.commitInfo is not None:
                self._written = _rows_appended(action.commitInfo)
                self._is_open = self._is_open and self._written is not None
                break
        if not self._is_open:
            return
        for action in actions:
            if action.add is not None:
                rows = num_records_fast(action.add.stats)
                if rows is None:
                    self._is_open = False
                    return
                self._listed += rows

    def check(self, storage: Storage, version: int) -> None:
        if self._is_open and self._written is not None and self._listed < self._written:
            raise _torn(storage, version, f"lists {self._listed} rows, but its commitInfo says {self._written}")


#: The parameter with which an operation declares that it appends.
_MODES: Final = {"WRITE": "mode", "STREAMING UPDATE": "outputMode"}

#: A metric as Spark writes it.
_NUMBER: Final = re.compile(r"[0-9]{1,18}", re.ASCII)


def _rows_appended(info: CommitInfo) -> int | None:
    parameters = info.operationParameters or {}
    mode = parameters.get(_MODES.get(info.operation or "", ""))
    rows = (info.operationMetrics or {}).get("numOutputRows")
    if mode != "Append" or not (isinstance(rows, int) or (isinstance(rows, str) and _NUMBER.fullmatch(rows))):
        return None
    return int(rows)


def _decode(storage: Storage, version: int, lines: bytes) -> list[Action]:
    try:
        return decode_actions(lines)
    except msgspec.ValidationError as error:
        raise _torn(storage, version, f"contains an action that violates the protocol ({error})") from error
    except DAMAGE as error:
        raise _torn(storage, version, f"is cut off or damaged ({describe(error)})") from error


def _torn(storage: Storage, version: int, what: str) -> TornFileError:
    return TornFileError(
        f"version {version} of {storage.uri} cannot be read: {LOG_FOLDER}/{commit_name(version)} {what}. Either "
        "its writer has not finished and a later attempt will succeed, or the file is damaged and must be restored",
        table=storage.uri,
        version=version,
    )
