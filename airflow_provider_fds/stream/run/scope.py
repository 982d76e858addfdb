"""What a run covers, and what belongs to it in ledger, staging and sink."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_fds.batch.location import hadoop_path
from airflow_provider_fds.errors import BatchFailedError, StreamBusyError
from airflow_provider_fds.ledger.entries.plan_entries import Claimed, Planned, skipped_in
from airflow_provider_fds.ledger.intervals import digest_of_parts, interval_folder, rows_of_parts
from airflow_provider_fds.ledger.state import working_driver
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.stream.attempt.batch_failure import FILE_NOT_FOUND, batch_failure
from airflow_provider_fds.stream.attempt.reports import new_attempt_id
from airflow_provider_fds.stream.attempt.result import RunWork
from airflow_provider_fds.stream.planning.plan_batches import schema_changes_of, skipped_of
from airflow_provider_fds.stream.sink_record.sink_now import find_sink

if TYPE_CHECKING:
    from airflow_provider_fds.batch.report import AttemptReport
    from airflow_provider_fds.batch.spec import BatchSpec
    from airflow_provider_fds.errors import FdsError, VerificationError
    from airflow_provider_fds.ledger.facts import BlockedFacts
    from airflow_provider_fds.ledger.owner import Owner
    from airflow_provider_fds.ledger.state import ScopeRecord, StreamState
    from airflow_provider_fds.ledger.values import PlannedBatch, SinkBinding
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.source.offset import Offset
    from airflow_provider_fds.source.planned import SourceBatch
    from airflow_provider_fds.stream.attempt.result import LoadResult
    from airflow_provider_fds.stream.connected_stream import ConnectedStream

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Transaction:
    """Planned batches that form one transaction of the sink; the last batch gives it its id."""

    parts: tuple[PlannedBatch, ...]

    @property
    def last(self) -> PlannedBatch:
        """The batch that gives the transaction its id."""
        return self.parts[-1]

    @property
    def digest(self) -> str:
        """Digest of the batches' manifests."""
        return digest_of_parts(self.parts)

    @property
    def num_rows(self) -> int | None:
        """Rows according to the log's statistics, or ``None`` if a file has no statistics."""
        return rows_of_parts(self.parts)


class Scope(ABC):
    """The versions that a run covers: those after the committed offset, or those of one data interval.

    :class:`~.session.StreamSession` takes the steps of a run, which are the same for every scope. The scope says where
    its range begins and ends, which record of the ledger its batches belong to, and when its run has finished.

    Args:
        connected: The stream.
    """

    def __init__(self, connected: ConnectedStream) -> None:
        self.connected = connected
        self.stream = connected.stream
        #: What data that the last plan left out wait for: more data, or another stream. ``None``: nothing waits.
        self.waits_for: str | None = None
        #: Whether the run lingers: it also loads versions that come after it has planned first.
        self.is_open_ended = False

    @property
    def interval(self) -> str | None:
        """Name of the data interval in ledger, reports and transactions; ``None`` for an offset."""
        return None

    @property
    @abstractmethod
    def record(self) -> ScopeRecord:
        """What the ledger says of the planned batches."""

    @abstractmethod
    def check_sink(self, sink: Sink | None) -> None:
        """Refuse a sink that does not fit how the stream is read.

        Raises:
            ConfigurationError: The message names the sink that does, or the option.
        """

    @abstractmethod
    def ensure_open(self, sink: Sink | None, *, start: Offset | None = None) -> StreamState:
        """Create the stream and resolve where the range begins, if that is not already done."""

    def before_binding(self, state: StreamState, sink: Sink | None) -> RunWork | None:
        """Return the work to do before a sink is bound and batches are planned, or ``None``."""
        del state, sink
        return None

    def sink_has_older_epochs(self, *, was: SinkBinding | None) -> bool:
        """Request the next epoch if the sink that was just bound has transactions of an earlier one."""
        del was
        return False

    @abstractmethod
    def settled(self, *, retry: bool, user_job: bool) -> RunWork | None:
        """Return the work of a run that has nothing to load any more, or ``None`` if it may have.

        Raises:
            VerificationError: The scope is blocked, and this run cannot replace its rows.
        """

    @property
    @abstractmethod
    def planned(self) -> tuple[PlannedBatch, ...]:
        """Batches that an earlier run or attempt has planned and that are loaded as they are."""

    def check_whole(self, sink: Sink | None, *, user_job: bool) -> None:
        """Refuse to go on if planned batches or the position cut a commit that the sink must see whole."""
        del sink, user_job

    @abstractmethod
    def warn_about_changed_options(self) -> None:
        """Warn if the planned batches were planned with other options."""

    @abstractmethod
    def plan(self, sink: Sink | None, max_batches: int, *, user_job: bool) -> RunWork:
        """Plan new batches and record them; return the work."""

    @abstractmethod
    def work(self, max_batches: int, *, warning: FdsError | None = None) -> RunWork:
        """Return the planned batches as work for Spark, with the violation that planning stopped before."""

    def transactions(self, batches: tuple[PlannedBatch, ...]) -> list[Transaction]:
        """Return the transactions of the sink that the batches form, in order: one for each batch."""
        return [Transaction((batch,)) for batch in batches]

    @abstractmethod
    def specs(self, batches: tuple[PlannedBatch, ...]) -> tuple[BatchSpec, ...]:
        """Return the transactions of ``batches`` as the Spark side needs them."""

    @abstractmethod
    def for_job(self, sink: Sink, specs: tuple[BatchSpec, ...]) -> tuple[Sink, tuple[BatchSpec, ...]]:
        """Return the sink and the batches of a job, with what the one says of the other."""

    @property
    @abstractmethod
    def sink_version(self) -> int | None:
        """Newest version of the sink that the driver knows of, or ``None`` if the stream has written none."""

    def job_folder(self, work: RunWork) -> str:
        """Return the folder of the work's job in staging: that of its first batch, with which retention removes it."""
        epoch = work.epoch if self.interval is None else f"{interval_folder(self.interval)}/{work.epoch}"
        return self.connected.folder.job_specs(epoch, work.batches[0].batch_id)

    @property
    def reports(self) -> str:
        """Folder of the reports in staging."""
        attempts = self.connected.folder.attempts
        return attempts if self.interval is None else f"{attempts}/{interval_folder(self.interval)}"

    @property
    def reports_location(self) -> str:
        """URI of that folder, as Spark reads it."""
        return self.connected.staging_location(self.reports)

    @abstractmethod
    def result(self) -> LoadResult | None:
        """Return what is committed, or ``None`` if nothing is."""

    def goes_on(self) -> bool:
        """Whether the run may load versions that come after it has planned first."""
        return False

    @abstractmethod
    def is_end_fixed(self) -> bool:
        """Whether the version that a run works up to is in the ledger."""

    @abstractmethod
    def describe_planned(self) -> str:
        """Return the planned batches in words, as what is taken over."""

    @abstractmethod
    def busy(self, owner: Owner) -> str:
        """Return why the run cannot work while ``owner`` does, and what to do."""

    @abstractmethod
    def blocked_error(self, blocked: BlockedFacts) -> VerificationError:
        """Return the error for a failed verification, with what a person has to do."""

    def failure(self, work: RunWork, transaction: Transaction, report: AttemptReport | None) -> BatchFailedError:
        """Return the error for a transaction that is not done."""
        del work
        missing = None
        if report is not None and report.error_class == FILE_NOT_FOUND:
            from airflow_provider_fds.stream.position.missing_files import find_missing

            missing = find_missing(self.connected, transaction.parts, report.error_message or "")
        state = self.connected.state
        failure = batch_failure(
            self.stream.name, self.stream.table, transaction.last, report, state.snapshot, missing, sink=state.sink
        )
        if failure.reason_code != Reason.SINK_MISSING or state.sink is None:
            return failure
        where = find_sink(self.connected, state)
        if where == "gone":
            return failure
        seen = "Airflow does" if where == "there" else "Airflow could not look for it"
        tables = " and ".join(state.sink.tables.values()) or state.sink.target
        return BatchFailedError(
            f"stream {self.stream.name!r}: Spark does not find the sink {tables}, but {seen}, so it is not known to be "
            "lost: mount its folder on the Spark driver and on every Spark worker, or let Spark read that storage. A "
            "retry works on the same rows",
            error_class=failure.error_class,
            table=self.stream.table,
            reason=Reason.SINK_NOT_VISIBLE,
        )

    @property
    def owner(self) -> Owner | None:
        """Who owns the batches that are planned and not committed, or ``None`` without such batches."""
        return self.record.owner

    def stopped_owner(self) -> Owner | None:
        """Return another owner of uncommitted batches, or ``None``.

        Raises:
            StreamBusyError: That owner still runs.
        """
        owner, context = self.owner, self.connected.context
        if owner is None or owner == context.owner:
            return None
        if context.owner_is_running(owner):
            raise StreamBusyError(self.busy(owner), owner=owner.describe(), table=self.connected.table.uri)
        return owner

    def take_over(self) -> None:
        """Make the planned batches this run's own, if their owner no longer runs.

        Raises:
            StreamBusyError: The owner still runs.
        """
        previous = self.stopped_owner()
        if previous is None:
            return
        logger.warning(
            "Stream %s: taking over %s of %s, which is no longer running",
            self.stream.name,
            self.describe_planned(),
            previous.describe(),
        )
        self.connected.execute(
            Claimed(
                epoch=self.record.epoch,
                interval=self.interval,
                owner=self.connected.context.owner,
                previous=previous,
                why="the owner is no longer running",
            )
        )

    def _record_plan(
        self, epoch: int, target: int, batches: tuple[PlannedBatch, ...], *, rest: SourceBatch | None = None
    ) -> None:
        """Record batches planned in ``epoch``, or in that generation; refused if it is not the newest any more.

        ``rest``: of an interval, the commits without data after its batches.
        """
        options = self.stream.options
        self.connected.execute(
            Planned(
                epoch=epoch,
                interval=self.interval,
                owner=self.connected.context.owner,
                target=target,
                batches=batches,
                options_digest=options.digest(),
                meaning_digest=options.meaning_digest(),
                skipped=() if rest is None else skipped_of(rest),
                schema_changes=() if rest is None else schema_changes_of(rest),
                # of the state that the batches were planned with: nothing has been read since
                left_out=skipped_in(self.connected.state, batches),
            )
        )

    def _work(self, batches: tuple[PlannedBatch, ...], **more: Any) -> RunWork:
        found = working_driver(self.record)
        more["found_driver"] = None if found is None else found.attempt_id
        return RunWork("work", self.record.epoch, batches, attempt_id=new_attempt_id(), **more)

    def _stream_uri(self) -> str:
        """URI of the stream's folder in staging, as Spark reads manifests from it."""
        return hadoop_path(self.connected.staging_location(self.stream.name))
