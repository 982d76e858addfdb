"""Polls a table for anything that a stream has not committed. Writes nothing."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.delta.moments import parse_timestamp
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.reader.timestamps import CommitTimestamps
from airflow_provider_fds.delta.retention import LOG_RETENTION, retention
from airflow_provider_fds.errors import (
    ConfigurationError,
    LogTruncatedError,
    LostPositionError,
    StoppedError,
    TornFileError,
    UnsupportedFeatureError,
)
from airflow_provider_fds.source.changes.classify import CommitContent, Emit, Stop, classify
from airflow_provider_fds.source.planning.drift import NO_WATERMARK
from airflow_provider_fds.source.planning.end import known_end
from airflow_provider_fds.source.planning.files_read import FilesRead
from airflow_provider_fds.stream.polling.min_batch import MinBatch
from airflow_provider_fds.stream.position.lost_position import nearly_lost
from airflow_provider_fds.stream.position.source_unchanged import check_table, verify_version

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from airflow_provider_fds.delta.actions import Add, Cdc, Metadata, Remove
    from airflow_provider_fds.delta.commits import Commit
    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.source.offset import Offset
    from airflow_provider_fds.source.options.options import SourceOptions
    from airflow_provider_fds.source.planning.drift import Drift, HeldBack
    from airflow_provider_fds.source.planning.end import StreamEnd
    from airflow_provider_fds.stream.declaration.delta_stream import DeltaStream
    from airflow_provider_fds.stream.polling.min_batch import WaitingWork

logger = logging.getLogger(__name__)

#: A position older than this, or than this share of the log's retention, wakes the stream even without data, so that
#: the position moves before the log is cleaned up past it.
OLD_POSITION: Final = timedelta(days=1)
OLD_POSITION_SHARE: Final = 0.1


@dataclass(frozen=True, slots=True)
class PollResult:
    """A reason to start a run.

    Attributes:
        newest_version: Newest version of the table.
        reason: ``data``. ``position is old``: there are only commits without data, and the position must move before
            the log is cleaned up past it. ``end is near``: there are only commits without data before the stream's end,
            and a run must move the position there. ``stopped: …``: a commit that the stream cannot pass, for the run
            to report. ``position is lost``: the table no longer has the next version; a run passes what is lost, asks a
            person, or reports it. If the stream is finished, a sentence that says so.
        is_finished: Whether the stream has read everything up to its end, so that there is nothing to wait for.
    """

    newest_version: int
    reason: str
    is_finished: bool = False


class TablePoller:
    """Polls a table from a position.

    A poll costs one HEAD while nothing is new (:meth:`poll`), one LIST when the log itself is checked (:meth:`check`),
    and one GET per commit that was not read before. The first commit without data, and any stream with
    ``where`` or ``min_batch_bytes``, cost one extra read of the table's metadata.

    Data below ``min_batch_bytes`` is no reason for a run until ``max_batch_wait`` has passed (:attr:`waiting`). Neither
    is a version that waits for another stream (:attr:`held`); while it does, a poll reads the ledgers of those streams
    instead of the log.

    Args:
        stream: The stream.
        storage: Storage of its table.
        position: Committed offset; ``None`` if the stream was never opened: then the table itself counts as new, as
            soon as a commit reaches the stream's start.
        drift: Reads how far the stream may run ahead of those that it is aligned with; ``None``: of none.

    Attributes:
        held: The version that waits for another stream, as of the last poll, or ``None``.
    """

    def __init__(
        self, stream: DeltaStream, storage: Storage, position: Offset | None, drift: Callable[[], Drift] | None = None
    ) -> None:
        self._options = stream.options
        self._name = stream.name
        self._end: StreamEnd | None = None
        self._log = DeltaLog(storage)
        self._position = position
        self._next: int | None = None if position is None else position.version
        self._files_read = FilesRead(stream.options, self._log.table_uri)
        self._metadata: Metadata | None = None
        self._has_looked_for_metadata = False
        self._minimum = MinBatch.of(stream)
        self._gathered: _Gathered | None = None
        self.held: HeldBack | None = None
        self._read_drift = drift
        self._drift: Drift | None = None
        self._seen_us = NO_WATERMARK

    @property
    def table_uri(self) -> str:
        """URI of the table's folder."""
        return self._log.table_uri

    @property
    def waiting(self) -> WaitingWork | None:
        """Data that was seen and is waiting for more, or ``None``."""
        found = self._gathered
        if found is None or self._minimum is None:
            return None
        return self._minimum.waiting(found.num_bytes, found.oldest_ms)

    def check(self) -> PollResult | None:
        """Read the log once, with one LIST, and return a result if a run has something to do.

        Raises:
            TableNotFoundError: There is no table.
        """
        with self._log.one_answer():
            return self._check()

    def _check(self) -> PollResult | None:
        if self._position is None or self._position.is_initial_snapshot:
            return self._start_seen(self._log.latest())
        assert self._next is not None  # noqa: S101  # a position has a version
        self._forget_held()
        try:
            if (finished := self._finished()) is not None:
                return finished
            newest = verify_version(self._log, self._position, self._next)
        except LostPositionError:
            return self._lost()
        if (warning := nearly_lost(self._log, self._next, newest)) is not None:
            logger.warning("stream %s: %s", self._name, warning)
        if self._files_read.has_filter:
            self._find_metadata(newest)
        for version in range(self._next, self._last(newest) + 1):
            commit = self._log.commit(version)
            if (seen := self._seen(commit, newest)) is not None:
                return seen
            if self.held is not None:
                return self._waited_long_enough(newest)
            if self._is_old(commit, newest):
                return PollResult(newest, reason="position is old")
            self._next = version + 1
        return self._near_end(newest) or self._waited_long_enough(newest)

    async def poll(self) -> PollResult | None:
        """Poll with exactly one HEAD if there is no new version; otherwise run :meth:`check` in a thread.

        Raises:
            LostPositionError: The log has a hole before the new version.
        """
        return await self._polled(asyncio.to_thread, self._log.probe_async)

    def poll_blocking(self) -> PollResult | None:
        """Like :meth:`poll`, for a caller that polls often and has no event loop to keep free."""
        try:
            self._polled(_at_once, partial(_at_once, self._log.probe)).send(None)
        except StopIteration as ended:
            found: PollResult | None = ended.value
            return found
        raise AssertionError("a poll that blocks has waited for an event loop")

    async def _polled(
        self, call: Callable[..., Awaitable[Any]], probe: Callable[[int], Awaitable[bool]]
    ) -> PollResult | None:
        """Poll; ``call`` calls a function that blocks, and ``probe`` asks for a version of the log."""
        if self.held is not None and await call(self._is_still_held):
            return self._waited_long_enough(self.held.version - 1)
        if self._next is not None and not await probe(self._next):
            return self._waited_long_enough(self._next - 1)
        found: PollResult | None = await call(self.check)
        return found

    def _waited_long_enough(self, newest: int) -> PollResult | None:
        """Return a result if there is data that was waiting for more and does no longer."""
        if self._gathered is None or self.waiting is not None:
            return None
        return PollResult(newest, reason="data")

    def _lost(self) -> PollResult:
        """Return a result that lets a run judge: it passes lost versions, asks a person, or fails. Blocking."""
        try:
            newest = self._log.latest()
        except LostPositionError:
            newest = 0 if self._next is None else self._next
        return PollResult(newest, reason="position is lost")

    def _finished(self) -> PollResult | None:
        """Look up the end of the stream, if it has one; return a result if the position is past it. Blocking."""
        if self._position is None:
            return None
        self._end = self._end or known_end(self._log, self._options, self._position)
        if self._end is None or not self._end.is_reached(self._position):
            return None
        if self._end.is_of_log:
            # in another table, a time means another version
            with suppress(LogTruncatedError):
                verify_version(self._log, self._position, self._position.version)
            check_table(self._log, self._position)
        reason = self._end.describe(self._name, self._log.table_uri)
        return PollResult(self._end.version, reason=reason, is_finished=True)

    def _find_metadata(self, newest: int) -> None:
        """Look up, once, the types of partition values and the log's retention. Blocking."""
        if self._metadata is None and not self._has_looked_for_metadata:
            self._has_looked_for_metadata = True
            try:
                self._metadata = self._log.state_at(newest).metadata
            except (LostPositionError, UnsupportedFeatureError):
                # a run reports this; callers here have a default
                self._metadata = None

    def _is_old(self, commit: Commit, newest: int) -> bool:
        """Whether the position must move although this next commit has no data. Blocking."""
        age = timedelta(seconds=time.time() - commit.modified_ms / 1000)
        if age > OLD_POSITION:
            return True
        self._find_metadata(newest)
        if self._metadata is None:
            return False
        return age > retention(self._metadata, LOG_RETENTION) * OLD_POSITION_SHARE

    def _last(self, newest: int) -> int:
        return newest if self._end is None else min(newest, self._end.version)

    def _near_end(self, newest: int) -> PollResult | None:
        if self._end is None or self._next is None or self._next <= self._end.version:
            return None
        return PollResult(newest, reason="end is near")

    def _start_seen(self, newest: int) -> PollResult | None:
        """Return the result for a stream before its first batch. Blocking."""
        start = self._options.starting_timestamp
        if (
            self._position is None
            and start is not None
            and CommitTimestamps(self._log).at_or_after(parse_timestamp(start)) is None
        ):
            self._next = newest + 1
            return None
        return PollResult(newest, reason="data")

    def _forget_held(self) -> None:
        self.held = self._drift = None

    def _is_still_held(self) -> bool:
        """Read the ledgers of the other streams again, for the version that waits for one of them. Blocking."""
        assert self.held is not None  # noqa: S101  # the caller has looked
        drift, held = self._begin_drift(), self.held
        return not drift.admits_time(held.version, held.time_us)

    def _begin_drift(self) -> Drift:
        assert self._read_drift is not None  # noqa: S101  # only an aligned stream waits for others
        drift = self._read_drift()
        drift.seen_us = max(drift.seen_us, self._seen_us)
        return drift

    def _is_held(self, commit: Commit, content: CommitContent, newest: int) -> bool:
        """Whether a commit with data must wait for another stream. Blocking."""
        if self._position is not None and commit.version == self._position.version and self._position.next_index > 0:
            return False
        self._find_metadata(newest)
        if self._metadata is None:
            return False
        self._drift = self._drift or self._begin_drift()
        if self._drift.admits(commit.version, self._files(commit, content), self._metadata):
            self._seen_us = self._drift.seen_us
            return False
        self.held = self._drift.held
        return True

    def _seen(self, commit: Commit, newest: int) -> PollResult | None:
        content = CommitContent.of(commit.version, commit.actions, table=self._log.table_uri)
        self._metadata = content.metadata or self._metadata
        verdict = classify(content, self._options, table=self._log.table_uri)
        if isinstance(verdict, Stop):
            return PollResult(newest, reason=f"stopped: {verdict.error}")
        if not isinstance(verdict, Emit):
            return None
        try:
            if not self._has_files(commit, content):
                return None
            if self._read_drift is not None and self._is_held(commit, content, newest):
                return None
            waits = self._gather(commit, content, newest)
        except (ConfigurationError, StoppedError) as error:
            # a filter does not fit the table, or a partition value is damaged
            return PollResult(newest, reason=f"stopped: {error}")
        return None if waits else PollResult(newest, reason="data")

    def _gather(self, commit: Commit, content: CommitContent, newest: int) -> bool:
        """Add a commit with data to the data that is waiting for more; return whether all of it still waits."""
        position, before = self._position, self._gathered
        # the rest of a commit does not wait, and neither does what follows it
        if self._minimum is None or position is None or position.next_index > 0:
            return False
        if before is None:
            self._find_metadata(newest)
            if self._metadata is None:
                return False
            try:
                oldest_ms = CommitTimestamps(self._log).of(commit, self._metadata)
            except (StoppedError, TornFileError):
                # a run reports this
                return False
            before = _Gathered(oldest_ms)
        sizes = [file.size or 0 for file in self._files(commit, content)]
        self._gathered = found = before.plus(len(sizes), sum(sizes))
        return self.waiting is not None and not found.exceeds(self._options)

    def _has_files(self, commit: Commit, content: CommitContent) -> bool:
        if self._files_read.reads_all:
            is_feed = self._options.read_change_feed
            return bool(content.adds or (is_feed and (content.change_files or content.removes)))
        return any(True for _ in self._files(commit, content))

    def _files(self, commit: Commit, content: CommitContent) -> Iterator[Add | Remove | Cdc]:
        """Return the files of a commit that the stream reads; without metadata, which a run reports, all of them."""
        return (file for _, file in self._files_read.of_commit(commit, content, self._metadata))


async def _at_once(call: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function without letting go of the thread."""
    return call(*arguments)


@dataclass(frozen=True, slots=True)
class _Gathered:
    """Data that was seen: time of its oldest commit, and its versions, files and bytes."""

    oldest_ms: int
    versions: int = 0
    files: int = 0
    num_bytes: int = 0

    def plus(self, files: int, num_bytes: int) -> _Gathered:
        """Return the data with one more version."""
        return _Gathered(self.oldest_ms, self.versions + 1, self.files + files, self.num_bytes + num_bytes)

    def exceeds(self, options: SourceOptions) -> bool:
        """Whether it is more than one batch, so that the first batch cannot grow."""
        pairs = ((self.files, options.max_files_per_batch), (self.versions, options.max_versions_per_batch))
        return any(limit is not None and count > limit for count, limit in pairs)
