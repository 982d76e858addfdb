"""The transaction log of one table: which versions exist, and what they contain."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_fds.delta import tail as tails
from airflow_provider_fds.delta.commits import STREAMED_ABOVE_BYTES, Commit, commit_of, streamed_commit
from airflow_provider_fds.delta.listing import hinted_version, list_tail, listed, missing, not_found
from airflow_provider_fds.delta.names import LOG_FOLDER, commit_key
from airflow_provider_fds.delta.protocol import check_readable
from airflow_provider_fds.delta.reader.known_states import NEAR
from airflow_provider_fds.delta.storage.prefetch import read_ahead
from airflow_provider_fds.delta.tail import LogTail
from airflow_provider_fds.errors import LogGapError, LostPositionError, TornFileError, UnsupportedFeatureError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from airflow_provider_fds.delta.actions import Metadata, Protocol
    from airflow_provider_fds.delta.reader.known_states import KnownStates
    from airflow_provider_fds.delta.storage.storage import ObjectMeta, Storage
    from airflow_provider_fds.errors import FdsError


@dataclass(frozen=True, slots=True)
class TableState:
    """Protocol and metadata in force at a version, including the version's own actions."""

    version: int
    protocol: Protocol
    metadata: Metadata


class DeltaLog:
    """Reads the log of the table at the root of ``storage``. Holds no state between calls, except what ``known`` has.

    Only published commits count: files named ``<20 digits>.json`` directly in ``_delta_log``, with content.

    Errors of all methods, besides those of storage:
        TableNotFoundError: There is no Delta table.
        LogTruncatedError: Log cleanup removed the requested version.
        LogGapError: A version is missing between two existing ones, even when the log is listed once more.
        LogRewoundError: The requested version is later than the newest one.
        TornFileError: A commit file is empty, truncated or damaged.

    Args:
        storage: Storage of the table.
        known: Remembers the table's states, for a process that asks for several; ``None``: nothing is remembered.
    """

    def __init__(self, storage: Storage, known: KnownStates | None = None) -> None:
        self.storage = storage
        self.known = known
        self.table_uri = storage.uri
        #: The id of the table in the catalog whose view of the log this is; ``None``: the log is read as it is.
        self.catalog_table_id: str | None = getattr(storage, "catalog_table_id", None)
        self._check_rows = storage.is_file_system

    def __repr__(self) -> str:
        return f"DeltaLog({self.table_uri!r})"

    def one_answer(self) -> AbstractContextManager[None]:
        """Return a context for one poll or plan: in its body, a catalog that shows this log is asked at most once.

        A log in an object store is listed as few times as possible, see :class:`~.listed_log.ListedLog`. The newest
        version is then the same in the whole body. Only for the thread that enters it.
        """
        scope: AbstractContextManager[None] = getattr(self.storage, "one_answer", nullcontext)()
        return scope

    def renew(self) -> None:
        """End what :meth:`one_answer` knows, for a question that needs the newest version as of now."""
        if (renew := getattr(self.storage, "renew", None)) is not None:
            renew()

    def latest(self, known: int | None = None) -> int:
        """Return the newest version.

        Args:
            known: A version that existed before, -1 for "nothing yet". If given, a single HEAD of the next version is
                enough when nothing is new, and checks nothing else; if that version exists, the log is listed from
                ``known`` on and checked as by :meth:`verify_position`.
        """
        if known is None:
            return self._newest()
        if not self.probe(known + 1):
            return known
        tail = list_tail(self.storage, known)
        if (tail.newest is None or tail.newest <= known) and self.probe(known + 1):
            # observed with OneLake: an empty listing although the object exists
            return self._gallop(known + 1)
        return self._checked(known, tail)

    def verify_position(self, version: int) -> int:
        """Return the newest version after checking, with one LIST, that ``version`` can be read next.

        ``version`` must exist or be the one after the newest, and no version may be missing from there on.
        """
        return self._checked(version - 1, list_tail(self.storage, version - 1))

    def earliest(self) -> int:
        """Return the version of the oldest commit file; the table's state there may no longer be known."""
        tail = LogTail()
        for item in self.storage.list_after(LOG_FOLDER):
            if not tail.see(item) or tail.first is not None:
                break
        if tail.first is None:
            raise not_found(self.storage)
        return tail.first

    def probe(self, version: int) -> bool:
        """Return whether the commit of ``version`` exists, with exactly one HEAD."""
        found = self.storage.head(commit_key(version))
        return found is not None and found.size_bytes > 0

    async def probe_async(self, version: int) -> bool:
        """Like :meth:`probe`, without blocking the event loop."""
        found = await self.storage.head_async(commit_key(version))
        return found is not None and found.size_bytes > 0

    def written_at(self, version: int) -> int | None:
        """Return when the file of a commit was written, by which it is told from another commit of its version.

        Milliseconds since the epoch, with one HEAD; ``None``: there is no such commit, or the log is a catalog's, which
        writes another file of a commit when it publishes it. Such a table is told by :attr:`catalog_table_id`.
        """
        if self.catalog_table_id is not None:
            return None
        found = self.storage.head(commit_key(version))
        return None if found is None else found.modified_ms

    def commit(self, version: int, meta: ObjectMeta | None = None) -> Commit:
        """Return the commit of ``version``: one HEAD and one GET; no HEAD if its metadata is given as ``meta``."""
        meta = meta or self.storage.head(commit_key(version))
        if meta is None:
            raise missing(self.storage, version)
        return next(self._read(iter([meta]), version, 1))

    def commits(self, first: int, last: int, window: int = 64) -> Iterator[Commit]:
        """Yield the commits from ``first`` to ``last``, both inclusive, in order.

        Memory does not grow with their number. From an object store, up to ``window`` commits are read ahead. An error
        about a version is raised when that version is reached, after all earlier ones were yielded.
        """
        return self._read(listed(self.storage, first, last), first, window)

    def list_commits(self, first: int, last: int) -> list[ObjectMeta]:
        """Return the metadata of the commit files from ``first`` to ``last``, both inclusive; all must exist."""
        return list(listed(self.storage, first, last))

    def state_at(self, version: int) -> TableState:
        """Return protocol and metadata in force at ``version``, from the newest checkpoint and the commits after it.

        A known state takes the place of the checkpoint if it is later, which one HEAD checks.

        Raises:
            UnsupportedFeatureError: The table at that version needs a reader feature that FDS does not support.
        """
        first, protocol, metadata = self._state_before(version)
        last: ObjectMeta | None = None
        for number, meta, data in self._contents(listed(self.storage, first, version), first, 64):
            last = meta
            # a commit that cannot hold one of these actions is not even decoded
            is_whole = data is not None and data.rstrip().endswith(b"}")
            if data is None or not is_whole or b'"protocol"' in data or b'"metaData"' in data:
                for action in self._decoded(number, meta, data).actions:
                    protocol = action.protocol or protocol
                    metadata = action.metaData or metadata
        if protocol is None or metadata is None:
            lacking = " and ".join(
                name for name, value in (("protocol", protocol), ("metaData", metadata)) if value is None
            )
            raise TornFileError(
                f"the log of {self.table_uri} has no {lacking} action up to version {version}; expected one in "
                f"version 0 or in a checkpoint. {LOG_FOLDER} is damaged; restore it",
                table=self.table_uri,
                version=version,
            )
        check_readable(
            protocol,
            table=self.table_uri,
            version=version,
            metadata=metadata,
            catalog_table_id=self.catalog_table_id,
        )
        if self.known is not None:
            is_known = (known := self.known.up_to(version)) is not None and known.version == version
            last = last or (None if is_known else self.storage.head(commit_key(version)))
            if last is not None:
                self.known.see(last, version, protocol, metadata)
        return TableState(version, protocol, metadata)

    def newest_readable(self, first: int = 0) -> tuple[TableState, FdsError | None]:
        """Return the state at the newest version or, if that cannot be read, at an earlier one, with the error.

        A log may end with commits that FDS cannot read: from one with an unknown feature, from a torn one, or from a
        missing one on. What is before them is as it was. Costs what :meth:`state_at` costs, many times over only if
        there is an error.

        Args:
            first: The version that must be readable; if it is not, the error is raised.
        """
        last = -1
        try:
            last = self.latest()
            return self.state_at(last), None
        except (UnsupportedFeatureError, TornFileError, LogGapError) as error:
            last, found = (last if error.version is None else max(last, error.version)) - 1, None
            while first <= last:
                middle = (first + last) // 2
                try:
                    found = self.state_at(middle)
                    first = middle + 1
                except (UnsupportedFeatureError, TornFileError, LogGapError):
                    last = middle - 1
                except LostPositionError:
                    first = middle + 1
            if found is None:
                raise
            return found, error

    def _state_before(self, version: int) -> tuple[int, Protocol | None, Metadata | None]:
        """Return the first version to read for the state at ``version``, and what is in force before it."""
        from airflow_provider_fds.delta.log_checkpoint.checkpoints import checkpoint_state, find_checkpoint

        known = None if self.known is None else self.known.verified(self.storage, version)
        is_near = known is not None and version - known.version <= NEAR
        checkpoint = None if is_near else find_checkpoint(self, version)
        if known is not None and (checkpoint is None or checkpoint.version <= known.version):
            return known.version + 1, known.protocol, known.metadata
        if checkpoint is None:
            return 0, None, None
        return checkpoint.version + 1, *checkpoint_state(self, checkpoint)

    def _read(self, metas: Iterator[ObjectMeta], first: int, window: int) -> Iterator[Commit]:
        for version, meta, data in self._contents(metas, first, window):
            yield self._decoded(version, meta, data)

    def _contents(
        self, metas: Iterator[ObjectMeta], first: int, window: int
    ) -> Iterator[tuple[int, ObjectMeta, bytes | None]]:
        version = first
        try:
            for meta, data in read_ahead(self.storage, metas, window=window, whole_up_to_bytes=STREAMED_ABOVE_BYTES):
                yield version, meta, data
                version += 1
        except FileNotFoundError:
            raise missing(self.storage, version) from None

    def _decoded(self, version: int, meta: ObjectMeta, data: bytes | None) -> Commit:
        if data is None:
            return streamed_commit(self.storage, version, meta, check_rows=self._check_rows)
        return commit_of(self.storage, version, data, meta, check_rows=self._check_rows)

    def _checked(self, known: int, tail: LogTail) -> int:
        """Return the newest version from a listing that starts at ``known``, or raise the error it shows."""
        if tail.first is None and tail.checkpoint is not None and tail.checkpoint > known:
            raise tails.truncated(self.table_uri, known + 1, tail.checkpoint)
        if tail.first is None:
            raise missing(self.storage, max(known, 0))
        if tail.first > known + 1:
            raise missing(self.storage, known + 1)
        if tail.empty is not None:
            raise tails.empty_commit(self.table_uri, tail.empty)
        if tail.hole is not None:
            raise tails.gap(self.table_uri, *tail.hole, tail.checkpoint)
        if tail.newest is None:
            raise tails.empty_commit(self.table_uri, tail.first)
        return tail.newest

    def _newest(self) -> int:
        hint = hinted_version(self.storage)
        if hint is not None:
            tail = list_tail(self.storage, hint)
            is_sound = tail.hole is None and tail.empty is None
            if is_sound and tail.first is not None and tail.first <= hint + 1 and tail.newest is not None:
                return tail.newest
        tail = list_tail(self.storage, None)
        checkpoint = -1 if tail.checkpoint is None else tail.checkpoint
        if tail.first is None and checkpoint < 0:
            raise not_found(self.storage)
        # missing or damaged commits below a checkpoint are no longer needed
        if tail.empty is not None and tail.empty > checkpoint:
            raise tails.empty_commit(self.table_uri, tail.empty)
        if tail.last_hole is not None and tail.last_hole[1] - 1 > checkpoint:
            raise tails.gap(self.table_uri, *tail.last_hole, tail.checkpoint)
        if tail.newest is None and checkpoint < 0:
            raise tails.empty_commit(self.table_uri, tail.first or 0)
        return max(checkpoint, -1 if tail.newest is None else tail.newest)

    def _gallop(self, present: int) -> int:
        """Return the newest version by HEADs only: twice the binary logarithm of its distance from ``present``."""
        step = 1
        while self.probe(present + step):
            present += step
            step *= 2
        while step > 1:
            step //= 2
            if self.probe(present + step):
                present += step
        return present
