"""The scope of a run on one data interval: the versions committed between two instants."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_provider_fds.batch.version_ranges import describe_range
from airflow_provider_fds.errors import (
    BatchFailedError,
    ConfigurationError,
    SourceFilesGoneError,
    TableReplacedError,
    VerificationError,
)
from airflow_provider_fds.ledger.entries.interval_entries import Boundary, IntervalOpened
from airflow_provider_fds.stream.attempt.result import IntervalResult, RunWork, totals_of
from airflow_provider_fds.stream.declaration.sink_needs import missing_columns_problem
from airflow_provider_fds.stream.epochs import opening
from airflow_provider_fds.stream.planning.changed_options import warn_about_changed_options
from airflow_provider_fds.stream.planning.plan_batches import plan_interval
from airflow_provider_fds.stream.position.data_interval import instant_text, version_at
from airflow_provider_fds.stream.position.source_unchanged import table_id_now
from airflow_provider_fds.stream.run.scope import Scope, Transaction
from airflow_provider_fds.stream.sink_record.overlap import refuse_overlap_of_interval
from airflow_provider_fds.stream.sink_record.replacement import refuse_replacement

if TYPE_CHECKING:
    from airflow_provider_fds.batch.report import AttemptReport
    from airflow_provider_fds.batch.spec import BatchSpec
    from airflow_provider_fds.errors import FdsError
    from airflow_provider_fds.ledger.facts import BlockedFacts
    from airflow_provider_fds.ledger.owner import Owner
    from airflow_provider_fds.ledger.records import IntervalRecord
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.ledger.values import PlannedBatch
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.source.offset import Offset
    from airflow_provider_fds.stream.connected_stream import ConnectedStream
    from airflow_provider_fds.stream.position.data_interval import DataInterval


class IntervalScope(Scope):
    """One data interval, which depends on others only through the boundaries it shares with its neighbours.

    With a sink that appends, an interval is planned once, and committed batches are not written again. With a sink that
    replaces, each plan opens a new generation of the interval. Its transactions are higher than those of earlier
    generations, so that a zombie of an earlier generation can no longer write.

    Args:
        connected: The stream.
        data_interval: The run's interval.
    """

    def __init__(self, connected: ConnectedStream, data_interval: DataInterval) -> None:
        super().__init__(connected)
        self.data_interval = data_interval

    @property
    def interval(self) -> str:
        """Name of the interval."""
        return self.data_interval.name

    @property
    def record(self) -> IntervalRecord:
        """The record of the interval."""
        record = self._known()
        assert record is not None  # noqa: S101  # it was opened before it is asked for
        return record

    def _known(self) -> IntervalRecord | None:
        return self.connected.state.interval(self.interval)

    @property
    def _replaces(self) -> bool:
        sink = self.connected.state.sink
        return sink is not None and sink.replaces

    def check_sink(self, sink: Sink | None) -> None:
        """Refuse a sink that needs the batches in order, or columns that the stream does not read."""
        if sink is None:
            raise ConfigurationError(
                f"stream {self.stream.name!r} reads data intervals, which cannot be planned without a sink.",
                table=self.stream.table,
            )
        if sink.needs_order:
            raise ConfigurationError(
                f"stream {self.stream.name!r} reads data intervals, which run in any order, but "
                f"{type(sink).__name__} needs the order of the source's commits. Read by offset (omit read), or "
                "use a sink that replaces or appends.",
                table=self.stream.table,
            )
        if (problem := missing_columns_problem(self.stream, sink)) is not None:
            raise ConfigurationError(problem, table=self.stream.table)

    def ensure_open(self, sink: Sink | None, *, start: Offset | None = None) -> StreamState:
        """Create the stream and resolve both ends of the interval to versions."""
        if start is not None:
            raise ConfigurationError(
                f"stream {self.stream.name!r} reads data intervals, so it has no position that could start at "
                f"{start.to_json()}. Omit the start.",
                table=self.stream.table,
            )
        state = opening.ensure_created(self.connected, sink)
        log = self.connected.log
        table_id: str | None = None
        for instant in (self.data_interval.start, self.data_interval.end):
            text = instant_text(instant)
            if any(known.instant == text for known in state.boundaries):
                continue
            if table_id is None:
                table_id = self._table_id(state)
            version = version_at(log, instant, state.boundaries, now=datetime.now(UTC))
            state = self.connected.execute(Boundary(instant=text, version=version, table_id=table_id))
        return state

    def _table_id(self, state: StreamState) -> str:
        """Return the id of the table, if it is the table that earlier intervals were read from."""
        log = self.connected.log
        found = table_id_now(log)
        if state.table_id is not None and found != state.table_id:
            raise TableReplacedError(
                f"{log.table_uri}: another table is now at this URI: its id is {found}, but the intervals of "
                f"stream {self.stream.name!r} were read from {state.table_id}. Restore the old table, or use a stream "
                "with another name and another sink for the new one",
                table=log.table_uri,
            )
        return found

    def before_binding(self, state: StreamState, sink: Sink | None) -> RunWork | None:
        """Refuse an interval that another stream appends to the sink, or one that replaces rows of another stream."""
        record, interval = self._known(), (*self._versions(), str(state.table_id))
        # before the stream is bound, so that it may take another sink
        if record is None or not record.is_planned:
            refuse_overlap_of_interval(self.connected, sink, *interval)
        refuse_replacement(self.connected, sink, *interval)
        return None

    def settled(self, *, retry: bool, user_job: bool) -> RunWork | None:
        """Return the result of an interval that is loaded and whose sink appends; ``retry`` makes no difference."""
        del retry, user_job
        record = self._known()
        if self._replaces or record is None:
            return None
        if not record.is_done:
            if record.blocked is not None:
                raise self.blocked_error(record.blocked)
            return None
        result = self.result()
        if result is None:
            return self._nothing()
        return RunWork("done", record.generation, target=record.last_version, result=result)

    @property
    def planned(self) -> tuple[PlannedBatch, ...]:
        """The batches of an interval whose sink appends; one that replaces gets a new plan once no driver is left."""
        record = self._known()
        is_kept = record is not None and (not self._replaces or record.submitted is not None)
        return record.planned if record is not None and is_kept else ()

    def warn_about_changed_options(self) -> None:
        """Warn if the planned batches were planned with other options; a sink that replaces gets them planned anew."""
        if self.planned:
            warn_about_changed_options(self.connected, self.record)

    def plan(self, sink: Sink | None, max_batches: int, *, user_job: bool) -> RunWork:
        """Open the interval, with a new generation if it was planned before, and plan all of it."""
        del user_job
        record, previous = self._known(), self.stopped_owner()
        generation = 1 if record is None else record.generation + (1 if record.is_planned else 0)
        self._table_id(self.connected.state)
        me = self.connected.context.owner
        state = self.connected.execute(
            IntervalOpened(interval=self.interval, generation=generation, owner=me, previous=previous)
        )
        opened = self.record
        found = plan_interval(self.connected, state, opened, sink=sink, replaces=self._replaces)
        self._record_plan(generation, opened.last_version, found.batches, rest=found.rest)
        return self.work(max_batches) if self.record.planned else self._nothing(self.record.last_version)

    def _versions(self) -> tuple[int, int]:
        """Return first and last version of the interval; the last is before the first if it has none."""
        versions = {known.instant: known.version for known in self.connected.state.boundaries}
        return (
            versions[instant_text(self.data_interval.start)],
            versions[instant_text(self.data_interval.end)] - 1,
        )

    def work(self, max_batches: int, *, warning: FdsError | None = None) -> RunWork:
        """Return the first planned batches as work; a sink that replaces gets all of them in one transaction."""
        record = self.record
        batches = record.planned if self._replaces else record.planned[:max_batches]
        is_more = len(batches) < len(record.planned)
        return self._work(batches, target=record.last_version, is_more=is_more, warning=warning)

    def _nothing(self, target: int | None = None) -> RunWork:
        reason = f"Nothing in interval {self.interval} of table {self.stream.table} for stream {self.stream.name!r}."
        return RunWork("up_to_date", self.record.generation, target=target, reason=reason)

    def transactions(self, batches: tuple[PlannedBatch, ...]) -> list[Transaction]:
        """Return one transaction of all batches for a sink that replaces, else one for each batch."""
        return [Transaction(batches)] if self._replaces else super().transactions(batches)

    def specs(self, batches: tuple[PlannedBatch, ...]) -> tuple[BatchSpec, ...]:
        """Return the transactions as the Spark side needs them; each is complete without the ones before it."""
        state, record, uri = self.connected.state, self.record, self._stream_uri()
        versions = (record.first_version, record.last_version)
        return tuple(
            replace(
                state.spec(one.parts, uri, epoch=record.generation, after=one.parts[0].start, interval=self.interval),
                interval_versions=versions,
            )
            for one in self.transactions(batches)
        )

    def for_job(self, sink: Sink, specs: tuple[BatchSpec, ...]) -> tuple[Sink, tuple[BatchSpec, ...]]:
        """Return the sink with the versions of the interval in what it replaces."""
        return sink.for_versions(self.record.first_version, self.record.last_version), specs

    @property
    def sink_version(self) -> int | None:
        """Newest version of the sink that the stream had written when the interval was planned."""
        return self.record.since

    def result(self) -> IntervalResult | None:
        """Return what is committed of the interval, or ``None`` if nothing is or the interval is empty."""
        record = self._known()
        if record is None or not record.batches:
            return None
        return IntervalResult(
            stream=self.stream.name,
            interval_start=instant_text(self.data_interval.start),
            interval_end=instant_text(self.data_interval.end),
            generation=record.generation,
            **totals_of(record),
        )

    def is_end_fixed(self) -> bool:
        """Whether the version the interval ends with is resolved, which makes the interval complete."""
        end = instant_text(self.data_interval.end)
        return any(known.instant == end for known in self.connected.load().boundaries)

    @property
    def owner(self) -> Owner | None:
        """Who owns the uncommitted plan of the interval, or ``None`` without such a plan."""
        record = self._known()
        return None if record is None or record.is_done else record.owner

    def describe_planned(self) -> str:
        """Return the interval."""
        return f"interval {self.interval}"

    def busy(self, owner: Owner) -> str:
        """Return that the interval belongs to ``owner``."""
        return (
            f"interval {self.interval} of stream {self.stream.name!r} belongs to {owner.describe()}, which "
            "appears to be running. If it has stopped, mark it failed in Airflow"
        )

    def blocked_error(self, blocked: BlockedFacts) -> VerificationError:
        """Return the error of the interval, which alone stops."""
        record = self.record
        way_out = (
            "clear the task, which replaces the interval again"
            if self._replaces
            else f"run `fds accept {self.stream.name} --interval {self.interval} --why …` and clear the task"
        )
        return VerificationError(
            f"stream {self.stream.name!r}, interval {self.interval}, batch {blocked.batch_id} of "
            f"{self.connected.log.table_uri} ({describe_range(record.first_version, record.last_version)}): "
            f"{blocked.reason}. The plan has {blocked.rows_planned} rows, but the sink's version "
            f"{blocked.sink_version} has {blocked.rows_written}. Compare the sink with the source; then {way_out}",
            table=self.connected.log.table_uri,
            version=record.last_version,
        )

    def failure(self, work: RunWork, transaction: Transaction, report: AttemptReport | None) -> BatchFailedError:
        """Return the error for a transaction that is not done, in terms of the interval if source files are gone."""
        failure = super().failure(work, transaction, report)
        if not isinstance(failure, SourceFilesGoneError):
            return failure
        first, last = transaction.parts[0].first_version, transaction.last.last_version
        return SourceFilesGoneError(
            f"interval {self.interval} of stream {self.stream.name!r}: data files of {describe_range(first, last)} "
            f"of {self.stream.table} were removed by VACUUM or by hand. This run wrote nothing of the interval; "
            "rows that an earlier run loaded are still there. Restore the files from a backup or an earlier "
            "version of the objects and clear the task; to be able to load old intervals again, keep removed "
            "files for longer (delta.deletedFileRetentionDuration)",
            error_class=failure.error_class,
            table=self.stream.table,
            version=first,
        )
