"""One run of a data interval: begin, hand the work to Spark, collect the outcome."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from airflow_provider_fds.batch.location import hadoop_path, spark_uri
from airflow_provider_fds.errors import (
    BatchFailedError,
    ConfigurationError,
    SourceFilesGoneError,
    StreamBusyError,
    TableReplacedError,
    VerificationError,
)
from airflow_provider_fds.ledger.interval_entries import Boundary, IntervalOpened
from airflow_provider_fds.ledger.intervals import interval_folder
from airflow_provider_fds.ledger.plan_entries import Claimed, Planned
from airflow_provider_fds.stream import opening
from airflow_provider_fds.stream.attempts import new_attempt_id
from airflow_provider_fds.stream.base_session import Session, SessionJob, Transaction
from airflow_provider_fds.stream.data_interval import instant_text, version_at
from airflow_provider_fds.stream.interval_planning import interval_spec, plan_interval
from airflow_provider_fds.stream.result import IntervalResult, RunWork, totals_of
from airflow_provider_fds.stream.verifying import check_planned

if TYPE_CHECKING:
    from airflow_provider_fds.batch.report import AttemptReport
    from airflow_provider_fds.ledger.owner import Owner
    from airflow_provider_fds.ledger.state import IntervalRecord, StreamState
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream.connect import StreamContext
    from airflow_provider_fds.stream.data_interval import DataInterval
    from airflow_provider_fds.stream.value import DeltaStream

logger = logging.getLogger(__name__)


class IntervalSession(Session):
    """A run on one data interval of a stream.

    It depends on other intervals only through the boundaries it shares with its neighbours. With a sink that appends,
    an interval is planned once, and committed batches are not written again. With a sink that replaces, each
    :meth:`begin` opens a new generation of the interval. Its transactions are higher than those of earlier generations,
    so that a zombie of an earlier generation can no longer write.

    Args:
        stream: The stream, with ``read="data_interval"``.
        context: Credentials, staging, checkpoint, and who is asking.
        interval: The run's interval.

    Raises:
        ConfigurationError: A URI cannot be opened, or the stream reads by offset.
    """

    def __init__(self, stream: DeltaStream, context: StreamContext, interval: DataInterval) -> None:
        if not stream.reads_by_interval:
            raise ConfigurationError(
                f"stream {stream.name!r} reads by offset, and has no intervals. Say read='data_interval'.",
                table=stream.table,
            )
        super().__init__(stream, context)
        self.interval = interval

    def begin(self, sink: Sink, *, max_batches: int = 200, retry: bool = False) -> RunWork:
        """Determine the work of this run and record it.

        Args:
            sink: Where the interval goes.
            max_batches: Maximum number of batches in one application; a replaced interval is always written whole.
            retry: Not needed here: the ledger records what was done.

        Raises:
            StreamBusyError: The interval belongs to another run that still runs.
            ConfigurationError: The interval is not over.
            LostPositionError: Commits of the interval are gone, or another table is at the URI.
            StoppedError: The interval has a version that the stream may not pass.
            VerificationError: The interval is blocked, and the sink appends.
        """
        del retry
        self._sink, self._log = sink, None
        if sink.needs_order:
            raise ConfigurationError(
                f"stream {self.stream.name!r} reads data intervals, which run in any order, and "
                f"{type(sink).__name__} goes by the order of the source's commits: read by offset (leave read=… out), "
                "or use DeltaReplaceSink.",
                table=self.stream.table,
            )
        self._resolve(opening.ensure_created(self.connected, sink))
        state = opening.ensure_bound(self.connected, sink, user_job=False)
        record = state.interval(self.interval.name)
        if sink.replaces or record is None or not record.is_planned:
            return self._plan(state, record, max_batches, replaces=sink.replaces)
        if record.is_done:
            result = self.result()
            if result is None:
                return RunWork("up_to_date", record.generation, reason=self._nothing(record))
            return RunWork("done", record.generation, target=record.last_version, result=result)
        if record.blocked is not None:
            raise self._blocked(record.blocked.reason, record.blocked.batch_id, replaces=False)
        if record.accepted is None:
            check_planned(self.connected.log, record.planned)
        return self._work(self._take_over(record), max_batches, replaces=False)

    def _job(self, work: RunWork, sink: Sink) -> SessionJob:
        state, record = self.connected.state, self._record()
        sink = sink.for_versions(record.first_version, record.last_version)
        described = sink.located(lambda uri: spark_uri(self.connected.open_sink(uri).uri)).to_dict()
        stream_uri = hadoop_path(self.connected.staging_location(self.stream.name))
        batches = tuple(interval_spec(state, record, one.parts, stream_uri) for one in self._transactions(work))
        jobs = f"{self.connected.folder.jobs}/{interval_folder(self.interval.name)}"
        return SessionJob(batches, described, record.since, f"{jobs}/{work.epoch}/{work.batches[0].batch_id}")

    def is_resolved(self) -> bool:
        """Whether the ledger already has the version the interval ends with, which makes the interval complete."""
        end = instant_text(self.interval.end)
        return any(known.instant == end for known in self.connected.load().boundaries)

    def result(self) -> IntervalResult | None:
        """Return what is committed of the interval, ``None`` if nothing is or the interval is empty."""
        record = self.connected.state.interval(self.interval.name)
        if record is None or not record.batches:
            return None
        return IntervalResult(
            stream=self.stream.name,
            interval_start=instant_text(self.interval.start),
            interval_end=instant_text(self.interval.end),
            generation=record.generation,
            **totals_of(record),
        )

    @property
    def _reports(self) -> str:
        return f"{self.connected.folder.attempts}/{interval_folder(self.interval.name)}"

    @property
    def _interval(self) -> str:
        return self.interval.name

    @property
    def _replaces(self) -> bool:
        sink = self.connected.state.sink
        return sink is not None and sink.replaces

    def _transactions(self, work: RunWork) -> list[Transaction]:
        return [Transaction(work.batches)] if self._replaces else super()._transactions(work)

    def _resolve(self, state: StreamState) -> None:
        """Resolve both ends of the interval to versions."""
        log = self.connected.log
        table_id: str | None = None
        for instant in (self.interval.start, self.interval.end):
            text = instant_text(instant)
            if any(known.instant == text for known in state.boundaries):
                continue
            if table_id is None:
                table_id = self._table_id(state)
            version = version_at(log, instant, state.boundaries, now=datetime.now(UTC))
            state = self.connected.execute(Boundary(instant=text, version=version, table_id=table_id))

    def _table_id(self, state: StreamState) -> str:
        """Return the id of the table, if it is the table that earlier intervals were read from."""
        log = self.connected.log
        found = log.state_at(log.latest()).metadata.id
        if state.table_id is not None and found != state.table_id:
            raise TableReplacedError(
                f"{log.table_uri}: another table is now at this URI: its id is {found}, but the intervals of "
                f"stream {self.stream.name!r} were read from {state.table_id}. Restore the old table, or use a stream "
                "with another name for the new one",
                table=log.table_uri,
            )
        return found

    def _plan(self, state: StreamState, record: IntervalRecord | None, max_batches: int, *, replaces: bool) -> RunWork:
        """Open the interval, with a new generation if it was planned before, and plan all of it."""
        previous = self._gone(record)
        generation = 1 if record is None else record.generation + (1 if record.is_planned else 0)
        me = self.context.owner
        self._table_id(state)
        state = self.connected.execute(
            IntervalOpened(interval=self.interval.name, generation=generation, owner=me, previous=previous)
        )
        batches = plan_interval(self.connected, state, self._record(), replaces=replaces)
        self.connected.execute(
            Planned(
                epoch=generation,
                interval=self.interval.name,
                owner=me,
                target=self._record().last_version,
                batches=batches,
                options_digest=self.stream.options.digest(),
                meaning_digest=self.stream.options.meaning_digest(),
            )
        )
        record = self._record()
        if not record.planned:
            return RunWork("up_to_date", generation, target=record.last_version, reason=self._nothing(record))
        return self._work(record, max_batches, replaces=replaces)

    def _gone(self, record: IntervalRecord | None) -> Owner | None:
        """Return another owner whose plan is not committed, after checking that it no longer runs."""
        if record is None or record.is_done or record.owner in (None, self.context.owner):
            return None
        owner = record.owner
        assert owner is not None  # noqa: S101  # the condition above excludes it
        if self.context.owner_is_running(owner):
            raise StreamBusyError(
                f"interval {record.interval} of stream {self.stream.name!r} belongs to {owner.describe()}, which "
                "appears to be running. If it has stopped, mark it failed in Airflow",
                owner=owner.describe(),
            )
        return owner

    def _take_over(self, record: IntervalRecord) -> IntervalRecord:
        previous = self._gone(record)
        if previous is None:
            return record
        logger.warning(
            "stream %s: taking over interval %s of %s, which does not run any more",
            self.stream.name,
            record.interval,
            previous.describe(),
        )
        self.connected.execute(
            Claimed(
                epoch=record.generation,
                interval=record.interval,
                owner=self.context.owner,
                previous=previous,
                why="the owner does not run any more",
            )
        )
        return self._record()

    def _work(self, record: IntervalRecord, max_batches: int, *, replaces: bool) -> RunWork:
        batches = record.planned if replaces else record.planned[:max_batches]
        return RunWork(
            "work",
            record.generation,
            batches,
            attempt_id=new_attempt_id(),
            target=record.last_version,
            is_more=len(batches) < len(record.planned),
        )

    def _failure(self, work: RunWork, transaction: Transaction, report: AttemptReport | None) -> BatchFailedError:
        failure = super()._failure(work, transaction, report)
        if not isinstance(failure, SourceFilesGoneError):
            return failure
        first, last = transaction.parts[0].first_version, transaction.last.last_version
        return SourceFilesGoneError(
            f"interval {self.interval.name} of stream {self.stream.name!r}: data files of versions {first} to {last} "
            f"of {self.stream.table} are gone, by VACUUM or by hand. Nothing of the interval was written by this run; "
            "what an earlier one loaded is there still. Put the files back, from a backup or an earlier version of "
            "the objects, and clear the task; to be able to load old intervals again keep removed files for longer "
            "(delta.deletedFileRetentionDuration)",
            error_class=failure.error_class,
            table=self.stream.table,
        )

    def _check_not_blocked(self, transaction: Transaction, report: AttemptReport, reason: str) -> None:
        del report
        if self._record().blocked is not None:
            raise self._blocked(reason, transaction.last.batch_id, replaces=self._replaces)

    def _blocked(self, reason: str, batch_id: int, *, replaces: bool) -> VerificationError:
        record = self._record()
        blocked = record.blocked
        planned, written, version = (
            (None, None, None)
            if blocked is None
            else (blocked.rows_planned, blocked.rows_written, blocked.sink_version)
        )
        way_out = (
            "clear the task, which replaces the interval again"
            if replaces
            else f"run `fds accept {self.stream.name} --interval {record.interval} --why …` and clear the task"
        )
        return VerificationError(
            f"stream {self.stream.name!r}, interval {record.interval}, batch {batch_id} (versions "
            f"{record.first_version} to {record.last_version} of {self.connected.log.table_uri}): {reason}. Planned "
            f"{planned} rows, the sink's version {version} has {written}. Compare the sink with the source; then "
            f"{way_out}",
            table=self.connected.log.table_uri,
            version=record.last_version,
        )

    def _record(self) -> IntervalRecord:
        record = self.connected.state.interval(self.interval.name)
        assert record is not None  # noqa: S101  # it was opened before it is asked for
        return record

    def _nothing(self, record: IntervalRecord) -> str:
        return f"Nothing in interval {record.interval} of table {self.stream.table} for stream {self.stream.name!r}."
