"""What a run writes to the ledger of its batches: their commits, and the driver that a cluster runs for them.

A commit is written once the driver has reported its batch and the sink has it. For the driver see docs/clusters.md.
"""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from dataclasses import replace
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import asdict

from airflow_provider_fds.batch.report import STARTED
from airflow_provider_fds.delta.storage.prefetch import AT_ONCE, in_windows
from airflow_provider_fds.errors import BatchFailedError, FdsError
from airflow_provider_fds.ledger.entries.commit_entries import Blocked, Committed
from airflow_provider_fds.ledger.entries.plan_entries import Submitted
from airflow_provider_fds.ledger.state import working_driver
from airflow_provider_fds.stream.attempt.reports import read_report
from airflow_provider_fds.stream.attempt.result import Collected, measured, rows_differ
from airflow_provider_fds.stream.position.source_unchanged import check_range_unchanged
from airflow_provider_fds.stream.run.quarantine import quarantine_batch
from airflow_provider_fds.stream.sink_record.evidence import ReportedBatch
from airflow_provider_fds.stream.sink_record.sink_evidence import evidence_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_fds.batch.report import AttemptReport
    from airflow_provider_fds.ledger.facts import SubmittedFacts
    from airflow_provider_fds.ledger.values import PlannedBatch
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream.attempt.result import RunWork
    from airflow_provider_fds.stream.run.scope import Scope, Transaction
    from airflow_provider_fds.stream.sink_record.evidence import Evidence

logger = logging.getLogger(__name__)


class BatchCommits:
    """Commits the batches of a run in order, each once the driver has reported it and the sink has it.

    Args:
        scope: What the run covers.

    Attributes:
        on_committed: Called after each commit with its entry and the number of batches; must not raise.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.connected = scope.connected
        self.on_committed: Callable[[Committed, int], None] = lambda _committed, _batches: None
        # of the attempt in hand: what is committed, one report for each transaction of the sink
        self._attempt_id: str | None = None
        self._committed: list[PlannedBatch] = []
        self._reports: list[AttemptReport] = []
        self._sink: Sink | None = None
        # remembers whether this worker may read the sink
        self._evidence: Evidence | None = None

    def collect(self, work: RunWork, sink: Sink | None, *, is_running: bool) -> Collected:
        """Commit what is reported of ``work`` and not committed yet; return the outcome of all calls for it.

        Args:
            work: The work, of batches.
            sink: Where they go.
            is_running: As in :meth:`StreamSession.collect`.

        Raises:
            VerificationError: As :meth:`StreamSession.collect`.
        """
        if self._attempt_id != work.attempt_id:
            self._attempt_id, self._committed, self._reports = work.attempt_id, [], []
            self._sink, self._evidence = sink, evidence_of(self.connected, sink)
        left = self.scope.transactions(work.batches)[len(self._reports) :]
        connected = self.connected
        # what a catalog answered is known to this thread only
        is_alone = connected.staging.is_file_system or connected.log.catalog_table_id is not None
        window = 0 if is_alone else 1 if is_running else AT_ONCE
        for transaction, verified in in_windows(left, partial(self._verified, work), window=window):
            try:
                report, problems = verified()
            except BatchFailedError as refused:
                if is_running:
                    break
                return self._outcome(None, refused)
            if is_running and (report is None or not report.is_done):
                break
            if report is None or not (report.is_done or report.outcome == "mismatch"):
                if (paused := quarantine_batch(connected, transaction.last, report)) is not None:
                    return replace(self._outcome(report), paused=paused)
                return self._outcome(report, self.scope.failure(work, transaction, report))
            if problems:
                if is_running:
                    break
                # one reason for all problems: a person accepts all of them or none
                self._block(work, transaction, report, "; ".join(problems))
            self._commit(work, transaction, report)
        return self._outcome()

    def _outcome(self, failed: AttemptReport | None = None, failure: BatchFailedError | None = None) -> Collected:
        """Return the outcome of the attempt so far, with the report and the error of the batch that failed, if any."""
        reports = self._reports if failed is None else [*self._reports, failed]
        return Collected(tuple(self._committed), tuple(reports), failure)

    def _verified(self, work: RunWork, transaction: Transaction) -> tuple[AttemptReport | None, list[str]]:
        """Read the report of a transaction; return also how the sink and the source's log differ from the plan."""
        report = self._report(work, transaction)
        if report is None or not (report.is_done or report.outcome == "mismatch"):
            return report, []
        differs = rows_differ(report, self._sink, transaction.num_rows)
        changed = (check_range_unchanged(self.connected.log, part) for part in transaction.parts)
        return report, list(dict.fromkeys(problem for problem in (differs, *changed) if problem is not None))

    def _report(self, work: RunWork, transaction: Transaction) -> AttemptReport | None:
        uuid, batch_id = self.connected.state.uuid, transaction.last.batch_id
        reported = ReportedBatch(uuid, work.epoch, batch_id, transaction.digest, self.scope.interval)
        return read_report(self.connected, self.scope.reports, reported, work.attempt_id, self._evidence)

    def _commit(self, work: RunWork, transaction: Transaction, report: AttemptReport) -> None:
        """Record that the transaction is in the sink and verified."""
        committed = Committed(
            epoch=work.epoch,
            interval=self.scope.interval,
            batch_id=transaction.last.batch_id,
            owner=self.connected.context.owner,
            attempt_id=work.attempt_id,
            outcome="written" if report.outcome == "written" else "verified",
            digest=transaction.digest,
            sink_version=report.sink_version,
            sink_table_id=report.sink_table_id,
            rows=report.rows_written,
            measures=measured(report, self.connected.state.sink_warnings),
            tables=dict(report.tables),
        )
        self.connected.execute(committed)
        self.on_committed(committed, len(transaction.parts))
        for warning in report.warnings:
            logger.warning("Stream %s: %s", self.connected.stream.name, warning)
        self._committed += transaction.parts
        self._reports.append(report)

    def _block(self, work: RunWork, transaction: Transaction, report: AttemptReport, reason: str) -> None:
        """Record that verification failed, and raise; return if a person has already accepted exactly this."""
        blocked = Blocked(
            epoch=work.epoch,
            interval=self.scope.interval,
            batch_id=transaction.last.batch_id,
            owner=self.connected.context.owner,
            attempt_id=work.attempt_id,
            reason=reason,
            rows_planned=transaction.num_rows,
            rows_written=report.rows_written,
            sink_version=report.sink_version,
            sink_table_id=report.sink_table_id,
        )
        self.connected.execute(blocked)
        if self.scope.record.blocked is not None:
            raise self.scope.blocked_error(blocked)


class Drivers(Protocol):
    """Drivers that a cluster may run."""

    @property
    def finds_drivers(self) -> bool:
        """Whether :meth:`working` can find one."""

    def attaches_to(self, cluster: str) -> bool:
        """Whether this attempt can wait for a driver in that kind of cluster."""

    def working(self, driver: str) -> tuple[str, str] | None:
        """Return kind and address of the cluster in which a driver of that name works, if it is known to."""


class DriverRecord:
    """Writes which driver works on the batches of a run, and finds the one that an earlier attempt has left.

    Args:
        scope: What the run covers.

    Attributes:
        lock: Held while the run writes entries: a driver that lingers is started beside the thread that commits.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self.lock = RLock()

    def write(self, work: RunWork, *, cluster: str, address: str, driver: str) -> None:
        """Record that a cluster has started a driver for ``work``; arguments as in :class:`SubmittedFacts`.

        Raises:
            LedgerError: The batches belong to another run by now.
        """
        self._execute(
            Submitted(
                epoch=work.epoch,
                interval=self._scope.interval,
                owner=self._scope.connected.context.owner,
                attempt_id=work.attempt_id,
                batch_id=work.batches[-1].batch_id,
                cluster=cluster,
                address=address,
                driver=driver,
            )
        )

    def left(self, work: RunWork, drivers: Drivers | None = None) -> RunWork | None:
        """Return the part of ``work`` on which the driver of an earlier attempt works, ``None`` if there is none.

        It is the work of that attempt, so whoever takes it commits what the driver reports. A driver that no entry
        names, because its task died before it wrote one, is found by what it has left in staging, and gets its entry.

        Args:
            work: The work of this attempt.
            drivers: The drivers that this attempt can wait for; default: the one that the ledger has.
        """
        found = self._of(work)
        if found is None and drivers is not None and drivers.finds_drivers and work.batches:
            found = self._unnamed(work, drivers)
        if found is None or not (drivers is None or drivers.attaches_to(found.cluster)):
            return None
        batches = tuple(batch for batch in work.batches if batch.batch_id <= found.batch_id)
        is_more = work.is_more or len(batches) < len(work.batches)
        return replace(work, batches=batches, attempt_id=found.attempt_id, is_more=is_more, submitted=found)

    def ended(self, work: RunWork) -> None:
        """Record that the driver of the batches has ended, unless all batches of its job are committed.

        A driver that a later attempt has started goes on.
        """
        found = self._of(work)
        # any other driver is of a later attempt, and at work for another process
        if found is not None and found.attempt_id in (work.attempt_id, work.found_driver):
            # without it, the next attempt asks the cluster in vain
            with suppress(FdsError):
                self._execute(Submitted(owner=self._scope.connected.context.owner, has_ended=True, **asdict(found)))

    def _of(self, work: RunWork) -> SubmittedFacts | None:
        """Return the driver that was started for uncommitted batches of the epoch of ``work``."""
        found = working_driver(self._scope.record) if work.batches else None
        return found if found is not None and found.epoch == work.epoch else None

    def _unnamed(self, work: RunWork, drivers: Drivers) -> SubmittedFacts | None:
        """Return the driver of the newest attempt that has begun the first batch, if it works; the ledger then has it.

        Which driver that is decides what is waited for, not which rows are in the sink.
        """
        transactions = self._scope.transactions(work.batches)
        staging = self._scope.connected.staging
        folder = f"{self._scope.reports}/{work.epoch}/{transactions[0].last.batch_id}"
        keys = [meta.key for meta in staging.list_after(folder) if meta.key.endswith(STARTED)]
        # the name of an attempt has its time
        for key in sorted(keys, reverse=True):
            try:
                marker = json.loads(staging.get(key)[0])
                driver, attempt_id, job = marker["driver"], marker["attempt_id"], marker["job"]
                rest = max(1, int(job["batches"]) - int(job["done"]))
            except (OSError, ValueError, KeyError, TypeError):
                # such as that of a driver which no cluster runs
                continue
            place = drivers.working(driver) if driver and isinstance(driver, str) else None
            if place is not None:
                batches = tuple(part for one in transactions[:rest] for part in one.parts)
                theirs = replace(work, batches=batches, attempt_id=str(attempt_id))
                self.write(theirs, cluster=place[0], address=place[1], driver=driver)
                return self._of(work)
        return None

    def _execute(self, submitted: Submitted) -> None:
        with self.lock:
            self._scope.connected.execute(submitted)
