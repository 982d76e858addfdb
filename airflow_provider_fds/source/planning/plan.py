"""Plans batches from an offset to a target version.

One pass over the log. Each commit is summarised and judged as a whole before any of its files is delivered. Memory
never holds more than one batch and, unless it is huge, one commit.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING

from airflow_provider_fds.delta.damage import DAMAGE, describe
from airflow_provider_fds.delta.reader.timestamps import CommitTimestamps, has_commit_times
from airflow_provider_fds.errors import (
    ConfigurationError,
    FdsError,
    LostPositionError,
    StoppedError,
    TornFileError,
    UnsupportedFeatureError,
)
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.source.changes.barrier import NO_ALLOWANCES, Allowances, Barrier
from airflow_provider_fds.source.changes.change_feed import as_inserts, read_changes
from airflow_provider_fds.source.changes.change_recording import with_last
from airflow_provider_fds.source.changes.classify import CommitContent, Skip
from airflow_provider_fds.source.offset import BASE_INDEX, Offset
from airflow_provider_fds.source.planned import PlanOutcome
from airflow_provider_fds.source.planning.cutter import BatchCutter
from airflow_provider_fds.source.planning.files_read import FilesRead
from airflow_provider_fds.source.planning.start import newest_state, other_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from airflow_provider_fds.delta.actions import Add
    from airflow_provider_fds.delta.commits import Commit
    from airflow_provider_fds.delta.reader.log import DeltaLog, TableState
    from airflow_provider_fds.delta.reader.snapshot import FrozenSnapshot
    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.source.options.options import SourceOptions
    from airflow_provider_fds.source.planned import FeedKind, PassedSchemaChange, SourceBatch
    from airflow_provider_fds.source.planning.batch_builder import BatchBuilder
    from airflow_provider_fds.source.planning.drift import Drift

#: Errors that concern one version: everything before it is valid and is delivered.
_STOPS = (StoppedError, LostPositionError, UnsupportedFeatureError, TornFileError)


class BatchPlanner:
    """Plans the batches after an offset, lazily; iterate over it once.

    The same log, offset, options and target give the same batches; planning from the end of any batch gives the batches
    that follow it. Every version between the start and the end of the last batch is in a batch; versions that change
    data and are skipped are in its ``skipped``. Commits without data form a batch with no files, which can only come
    last or alone.

    A batch ends at the limits of the options, before a commit that lists a file that the batch already has, between a
    commit with change files and one without (``read_change_feed``), before a commit that changes the schema, and before
    a version that cannot be passed. Commits after the target are never read.

    With ``keeps_replaced_rows`` no limit cuts a commit of the change feed that both adds and removes rows: a sink that
    decides per key must see the rows before a commit together with the rows after it.

    Args:
        log: The table's log.
        start: Position to plan from (exclusive).
        state: Protocol and metadata in force at ``start``. ``None``: taken from the log as of *before* the start
            version, so that a change in that version is judged too. For the first batch of a stream pass
            :func:`~airflow_provider_fds.source.planning.start.starting_state`.
        options: The stream's options; its start options are ignored here.
        target: Last version to plan (inclusive).
        snapshot: The frozen initial snapshot; needed while ``start.is_initial_snapshot``.
        snapshot_storage: Storage that holds it.
        snapshot_timestamp_ms: Time of the snapshot's version; ``None``: looked up in the log, which must then still
            have the commit.
        allowances: What lets the stream pass versions besides its options.
        keeps_replaced_rows: Whether a commit of the change feed that both adds and removes rows is never cut.
        drift: Ends the plan before a version that it does not admit.

    Attributes:
        outcome: How planning ended; ``None`` until the last batch is handed out.

    Raises:
        ConfigurationError: A snapshot is needed and not given, or, when iterated, the offset is past the last file of
            its commit.
        StorageError: When iterated: storage does not answer.
    """

    def __init__(
        self,
        log: DeltaLog,
        start: Offset,
        state: TableState | None,
        options: SourceOptions,
        target: int,
        *,
        snapshot: FrozenSnapshot | None = None,
        snapshot_storage: Storage | None = None,
        snapshot_timestamp_ms: int | None = None,
        allowances: Allowances = NO_ALLOWANCES,
        keeps_replaced_rows: bool = False,
        drift: Drift | None = None,
    ) -> None:
        if start.is_initial_snapshot and (snapshot is None or snapshot_storage is None):
            raise ConfigurationError(
                f"{log.table_uri}: the position {start.to_json()} is in the initial snapshot, whose frozen file "
                "list was not given.",
                table=log.table_uri,
                version=start.version,
            )
        self.outcome: PlanOutcome | None = None
        self._log = log
        self._table = log.table_uri
        self._start = start
        self._state = state
        self._is_state_known = True
        self._known = log.known
        self._options = options
        self._target = target
        self._snapshot = snapshot
        self._snapshot_storage = snapshot_storage
        self._snapshot_timestamp_ms = snapshot_timestamp_ms
        self._barrier = Barrier(
            options, log.table_uri, start.table_id, allowances, catalog_table_id=log.catalog_table_id
        )
        self._keeps_replaced_rows = keeps_replaced_rows
        self._drift = drift
        self._timestamps = CommitTimestamps(log)
        self._files = FilesRead(options, self._table)
        self._cutter = BatchCutter(log.table_uri, start, options, state, self._files)
        self._is_timed = False
        self._reading = start.version
        self._given_state = state

    def __iter__(self) -> Iterator[SourceBatch]:
        error: FdsError | None = None
        try:
            if self._start.is_initial_snapshot or self._start.version <= self._target:
                self._find_state()
                yield from self._snapshot_batches()
                yield from self._commit_batches()
        except _STOPS as stop:
            error = with_last(stop, self._log, self._target)
        except DAMAGE as found:
            error = self._damaged(found)
        if error is not None and self._cutter.is_inside_version:
            start, version = self._cutter.builder.start, self._reading
            if start.version >= version:
                # a batch with part of the bad version was handed out: this plan cannot be used
                raise error
            # the unfinished batch holds part of the bad version: plan the part before that version again
            self.outcome = PlanOutcome("stopped", error, self._target)
            yield from self.before(version, start)
            return
        self.outcome = PlanOutcome("up_to_date" if error is None else "stopped", error, self._target)
        builder = self._cutter.builder
        if builder.end != builder.start:
            yield builder.build()

    @property
    def has_ended(self) -> bool:
        """Whether the batch handed out last ends at the target, with nothing that stops the plan before it."""
        return self.outcome is not None and self.outcome.error is None

    def stop(self, error: FdsError) -> None:
        """Record that the last batch cannot be used, so that planning ended before it."""
        self.outcome = PlanOutcome("stopped", error, self._target)

    def before(self, version: int, start: Offset) -> BatchPlanner:
        """Return a planner from ``start``, the start of a batch of this planner, that ends before ``version``."""
        return BatchPlanner(
            self._log,
            start,
            self._given_state if start == self._start else None,
            self._options,
            min(version - 1, self._target),
            snapshot=self._snapshot,
            snapshot_storage=self._snapshot_storage,
            snapshot_timestamp_ms=self._snapshot_timestamp_ms,
            allowances=self._barrier.allowances,
            keeps_replaced_rows=self._keeps_replaced_rows,
        )

    def _damaged(self, error: Exception) -> StoppedError:
        version = self._reading
        stop = StoppedError(
            f"{self._table}: version {version} cannot be planned ({describe(error)}): its commit, or a file that "
            f"it refers to, is damaged. The stream stops before version {version}; everything before it is "
            f"delivered. Restore the file, or skip the commit with skip_versions='{version}'",
            table=self._table,
            version=version,
        )
        stop.__cause__ = error
        return stop

    def _find_state(self) -> None:
        """Look up the state in force at the start, unless it was given."""
        start = self._start
        if self._state is None:
            is_untouched = start.index == BASE_INDEX and not start.is_initial_snapshot
            version = start.version - 1 if is_untouched else start.version
            if version < 0:
                return
            try:
                self._state = self._log.state_at(version)
            except LostPositionError:
                if self._options.read_change_feed:
                    # it must be known whether changes were recorded
                    self._state = self._log.state_at(start.version)
                # Reading from a version needs only its commit. If log cleanup left nothing to rebuild the state from,
                # the newest state is used until a commit sets another, as in Delta's own source.
                self._log.verify_position(version + 1)
                self._state = self._state or newest_state(self._log, self._target)
            self._cutter.builder.state = self._state
        # a later state stands for one that cannot be read
        self._is_state_known = self._state.version <= start.version
        self._known = self._log.known if self._is_state_known else None
        self._barrier.check_schema(self._state, start.version)
        if self._state.metadata.id != start.table_id:
            raise other_table(self._log, start, self._state.metadata.id)

    def _snapshot_batches(self) -> Iterator[SourceBatch]:
        start, snapshot, storage = self._start, self._snapshot, self._snapshot_storage
        if not start.is_initial_snapshot or snapshot is None or storage is None:
            return
        version, left = start.version, snapshot.num_files - start.next_index
        commit = self._snapshot_commit(version)

        def read(builder: BatchBuilder) -> None:
            builder.read_snapshot(commit)
            builder.feed = feed

        feed: FeedKind | None = None
        if self._options.read_change_feed:
            feed = "whole_files"
            self._barrier.check_recorded(self._state, version)
        if left <= 0:
            read(self._cutter.builder)
        else:
            timestamp_ms = self._snapshot_timestamp_ms
            if timestamp_ms is None:
                timestamp_ms = self._time_of(commit or self._log.commit(version))
            self._cutter.builder.admission.admit_version(tuple, is_snapshot=True)
            files: Iterable[tuple[int, Add]] = snapshot.adds(storage, start.next_index)
            if self._files.has_filter and self._state is not None:
                files = self._files.under(self._state.metadata).passing(files)
            if self._options.read_change_feed:
                files = as_inserts(files, self._files.excluded)
            delivered = yield from self._cutter.deliver(version, timestamp_ms, files, read, is_snapshot=True)
            if self._files.has_filter and not delivered:
                # files that the filter excludes count for no limit
                self._cutter.make_room()
                reason = self._files.excludes(f"{left} data files of the initial snapshot")
                self._cutter.skip(version, None, reason)
        self._cutter.end_version(version)

    def _snapshot_commit(self, version: int) -> Commit | None:
        with suppress(LostPositionError):
            return self._log.commit(version)
        return None

    def _commit_batches(self) -> Iterator[SourceBatch]:
        start, table, options, barrier = self._start, self._table, self._options, self._barrier
        first = start.version + 1 if start.is_initial_snapshot else start.version
        if first > self._target:
            return
        for commit in self._log.commits(first, self._target):
            version = self._reading = commit.version
            content = CommitContent.of(version, commit.actions, table=table)
            state, passed = self._state_after(commit, content)
            verdict = barrier.judge(content)
            if self._files.has_filter:
                # even if there is nothing to filter: a predicate that does not fit is reported by the first plan
                self._files.under(state.metadata)
            if options.read_change_feed:
                self._barrier.check_recorded(state, version)
            first_index = start.next_index if version == start.version and not start.is_initial_snapshot else 0
            if not (first_index or isinstance(verdict, Skip) or self._admits(commit, content, state)):
                return
            if passed is not None:
                # one manifest has one schema: earlier files are read under the schema they were written with
                yield from self._cutter.cut()
                self._cutter.builder.schema_changes.append(passed)
            self._state = state
            if isinstance(verdict, Skip):
                self._pass(commit, state)
                self._cutter.skip(version, content.operation, verdict.reason)
            elif options.read_change_feed:
                yield from self._commit_changes(commit, content, state, first_index)
            elif content.adds > first_index:
                yield from self._commit_files(commit, content, state, first_index)
            else:
                self._ensure_index(first_index, version, content.adds)
                self._pass(commit, state)
            self._cutter.end_version(version)

    def _state_after(self, commit: Commit, content: CommitContent) -> tuple[TableState, PassedSchemaChange | None]:
        if self._state is None and content.metadata is not None and content.metadata.id != self._start.table_id:
            raise other_table(self._log, self._start, content.metadata.id)
        state, passed = self._barrier.state_after(self._state, content, comparable=self._is_state_known)
        self._is_state_known = self._is_state_known or content.metadata is not None
        if self._known is not None:
            self._known.see(commit, commit.version, state.protocol, state.metadata)
        return state, passed

    def _admits(self, commit: Commit, content: CommitContent, state: TableState) -> bool:
        if self._drift is None:
            return True
        files = (file for _, file in self._files.of_commit(commit, content, state.metadata))
        return self._drift.admits(commit.version, files, state.metadata)

    def _commit_files(
        self, commit: Commit, content: CommitContent, state: TableState, first_index: int
    ) -> Iterator[SourceBatch]:
        def files(first: int = first_index) -> Iterable[tuple[int, Add]]:
            adds = (action.add for action in commit.actions if action.add is not None and action.add.changes_data)
            found = islice(enumerate(adds), first, None)
            return found if passing is None else passing(found)

        passing = self._files.under(state.metadata).passing if self._files.has_filter else None
        if passing is not None and next(iter(files()), None) is None:
            is_whole = next(iter(files(0)), None) is None
            self._leave_out(commit, content, state, content.adds if is_whole else 0)
            return
        delivered = yield from self._cutter.admit(commit, state, files, timestamp_ms=self._time_of(commit))
        # judged from its first file, so that a plan that resumes within the commit gives the same answer
        if not delivered and all(self._cutter.is_excluded(add) for _, add in files(0)):
            reason = f"exclude_regex excludes all of its {content.adds} data files"
            self._cutter.skip(content.version, content.operation, reason)

    def _commit_changes(
        self, commit: Commit, content: CommitContent, state: TableState, first_index: int
    ) -> Iterator[SourceBatch]:
        """Deliver the changes of a commit; here, as in Delta, excluded files count for no limit."""
        changes = read_changes(
            commit,
            content,
            first_index,
            self._files.excluded,
            self._log.storage,
            keeps_replaced_rows=self._keeps_replaced_rows,
        )
        self._ensure_index(first_index, commit.version, changes.count)
        if self._files.has_filter and (num_files := changes.num_files):
            changes = changes.passing(self._files.under(state.metadata).passing)
            if not changes.num_files:
                self._leave_out(commit, content, state, num_files)
                return
        if changes.num_files:
            yield from self._cutter.admit(
                commit,
                state,
                changes.files,
                timestamp_ms=self._time_of(commit),
                feed=changes.kind,
                is_group=changes.is_group,
            )
            return
        self._pass(commit, state)
        if changes.num_excluded:
            reason = f"exclude_regex excludes all {changes.num_excluded} files of its changes"
            self._cutter.skip(content.version, content.operation, reason)

    def _leave_out(self, commit: Commit, content: CommitContent, state: TableState, num_files: int) -> None:
        """Skip a commit, or the rest of one, if the filters keep nothing of it.

        ``num_files`` is 0 for a rest: the commit was read in part, which is not recorded as a skip.
        """
        self._pass(commit, state)
        if not num_files:
            return
        reason = self._files.excludes(f"all of its {num_files} data files")
        self._cutter.skip(content.version, content.operation, reason)

    def _time_of(self, commit: Commit) -> int:
        if self._state is None:
            raise AssertionError("a commit's time was read before its metadata")
        self._is_timed = True
        return self._timestamps.of(commit, self._state.metadata)

    def _pass(self, commit: Commit, state: TableState) -> None:
        """Record a commit, or the rest of one, that delivers nothing."""
        self._cutter.builder.read_commit(commit, state)
        # file times are tracked from the first version with files; a gap would cost a LIST at the next version
        if self._is_timed and not has_commit_times(state.metadata):
            self._timestamps.of(commit, state.metadata)

    def _ensure_index(self, first_index: int, version: int, count: int) -> None:
        if first_index > count:
            raise ConfigurationError(
                f"{self._table}: the position {self._start.to_json()} names file {first_index - 1} of version "
                f"{version}, which has {count} data files: the position was created with other options, or for "
                "another table. Take the position from the stream's ledger.",
                table=self._table,
                version=version,
                reason=Reason.INVALID_OFFSET,
            )
