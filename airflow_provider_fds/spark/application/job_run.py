"""The job of one stream, one step at a time: a batch, or the fence. Python 3.9 syntax.

A run stops at the first batch that is not done and verified, because a later transaction would make the earlier one
unwritable. Standard library and pyspark only.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Union

from airflow_provider_fds.batch.report import AttemptReport, FenceReport, fence_report_name
from airflow_provider_fds.fault_points import reach
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sinks import sink_from_dict
from airflow_provider_fds.spark.application.batch_attempt import BatchAttempt
from airflow_provider_fds.spark.application.progress import INTERVAL_SECONDS, JobProgress
from airflow_provider_fds.spark.fence.failed_fence import failed_fence
from airflow_provider_fds.spark.runtime.attempt_identity import is_in_cluster
from airflow_provider_fds.spark.runtime.driver_versions import check_versions
from airflow_provider_fds.spark.runtime.failures import RefusalError
from airflow_provider_fds.spark.runtime.hadoop_files import hadoop_path
from airflow_provider_fds.spark.runtime.settings import force
from airflow_provider_fds.spark.runtime.staged_report import write_report
from airflow_provider_fds.spark.writers.writer import Writer, writer_class

if TYPE_CHECKING:
    from airflow_provider_fds.batch.spec import BatchSpec, FenceSpec, JobSpec

EXIT_DONE = 0
EXIT_FAILED_RETRYABLE = 10
EXIT_FAILED = 11
EXIT_MISMATCH = 12


class FenceAttempt:
    """One attempt on a fence.

    Args:
        spark: Session.
        spec: The job.
        fence: Its fence.
        subject: What a line for people begins with.
    """

    def __init__(self, spark: Any, spec: JobSpec, fence: FenceSpec, subject: str = "FDS") -> None:
        self._spark = spark
        self._spec = spec
        self._fence = fence
        self._subject = subject
        self._reporting = threading.Lock()
        self._is_reported = False

    def work(self) -> int:
        """Write the fence, report, and return the exit code."""
        sink = sink_from_dict(self._spec.sink)
        report = writer_class(sink).close_epochs(self._spark, self._spec, self._fence, sink)
        reach("fence.report.before")
        self.report(report)
        if report.outcome != "failed":
            return EXIT_DONE
        return EXIT_FAILED_RETRYABLE if report.retryable else EXIT_FAILED

    def failed(self, error: Exception) -> FenceReport:
        """Return the report of a fence that this attempt did not write."""
        return failed_fence(self._spec, self._fence, error)

    def report(self, report: FenceReport) -> bool:
        """Write the report unless the attempt has made one; return whether it was written."""
        with self._reporting:
            if self._is_reported:
                return False
            name = fence_report_name(self._fence.epoch, self._spec.attempt_id)
            write_report(f"{hadoop_path(self._spec.reports, self._spark)}/{name}", report.to_json(), self._spark)
            self._is_reported = True
        line = f"{self._subject} fence of epoch {self._fence.epoch} {report.outcome}"
        print(line if report.error_message is None else f"{line}: {report.error_message}", flush=True)
        for warning in report.warnings:
            print(f"FDS warning: {warning}", flush=True)
        return True


class JobRun:
    """The batches of one job, in order, or its fence.

    Args:
        spark: Session, the same for all steps.
        spec: The job.
        on_report: Called with the report of each batch once it is written.
        prepare: Prepares the session before the first batch, and returns the forced settings as they are in force;
            default: check the driver's versions, and force the settings.
        progress_seconds: A line about a batch is printed each time that it takes this long; ``None``: none is printed.
        stream: Name of the stream, for lines about it among others; ``None``: it is alone.
    """

    def __init__(
        self,
        spark: Any,
        spec: JobSpec,
        on_report: Optional[Callable[[AttemptReport], object]] = None,
        *,
        prepare: Optional[Callable[[], Dict[str, str]]] = None,
        progress_seconds: Optional[float] = INTERVAL_SECONDS,
        stream: Optional[str] = None,
    ) -> None:
        self.spec = spec
        self._spark = spark
        self._on_report = on_report
        self._prepare = prepare
        self._progress = None if progress_seconds is None else JobProgress(spark, spec, progress_seconds)
        self._subject = "FDS" if stream is None else f"FDS stream {stream}:"
        self._position = 0
        self._began_ms = int(time.time() * 1000)
        #: Rows of the batches that are done, ``None`` if unknown for one of them.
        self._rows: Optional[int] = 0
        self._code: Optional[int] = None
        self._writer: Optional[Writer] = None
        self._settings: Dict[str, str] = {}
        self._attempt: Union[BatchAttempt, FenceAttempt, None] = None

    @property
    def code(self) -> Optional[int]:
        """The exit code, or ``None`` while there is a next step."""
        return self._code

    @property
    def has_rest(self) -> bool:
        """Whether it ended before all batches were worked on, because its time limit was reached."""
        return self._code == EXIT_DONE and self._position < len(self.spec.batches)

    @property
    def next_batch(self) -> Optional[BatchSpec]:
        """The batch of the next step, ``None`` if that is a fence or there is none."""
        batches = self.spec.batches
        return batches[self._position] if self._code is None and self._position < len(batches) else None

    def step(self) -> None:
        """Work on the next batch, or write the fence, and report; sets :attr:`code` if it was the last step."""
        if self.spec.fence is not None:
            self._attempt = fenced = FenceAttempt(self._spark, self.spec, self.spec.fence, self._subject)
            self._code = fenced.work()
            return
        batch = self.next_batch
        if batch is None:
            self._code = EXIT_DONE
            return
        limit = self.spec.stop_after_ms
        if self._position and limit is not None and time.time() * 1000 >= limit:
            print(f"{self._subject} stops before batch {batch.batch_id}: the run's time limit is reached", flush=True)
            self._code = EXIT_DONE
            return
        code = self._load(batch)
        self._position += 1
        if code != EXIT_DONE or self._position == len(self.spec.batches):
            self._code = code

    def give_up(self, error: Exception) -> bool:
        """Report the batch of the running or next step as failed; a report of that step is then no longer written.

        May be called while another thread is in :meth:`step`.

        Returns:
            Whether the report is written: ``False`` if that step has already made one.
        """
        self._code = EXIT_FAILED_RETRYABLE
        attempt = self._attempt
        if self.spec.fence is not None:
            if not isinstance(attempt, FenceAttempt):
                attempt = self._attempt = FenceAttempt(self._spark, self.spec, self.spec.fence, self._subject)
            return attempt.report(attempt.failed(error))
        if self._position >= len(self.spec.batches):
            return False
        batch = self.spec.batches[self._position]
        if not isinstance(attempt, BatchAttempt) or attempt.batch is not batch:
            attempt = self._attempt = self._attempt_on(batch)
        return attempt.report(attempt.failed(error))

    def _attempt_on(self, batch: BatchSpec) -> BatchAttempt:
        return BatchAttempt(self._spark, self.spec, batch, f"{self._subject} batch")

    def _load(self, batch: BatchSpec) -> int:
        self._attempt = attempt = self._attempt_on(batch)
        try:
            batches = self.spec.batches
            job = {"began_ms": self._began_ms, "batches": len(batches), "done": self._position, "rows": self._rows}
            attempt.mark_started(job)
            reach("driver.started")
            if self._writer is None:
                self._settings = self._prepared()
                self._writer = _writer(self._spark, self.spec, self._settings)
            if self._progress is None:
                report = attempt.write(self._writer)
            else:
                # nobody else sees the lines of a driver elsewhere
                note = attempt.note if is_in_cluster(self._spark) else None
                with self._progress.batch(self._position, note):
                    report = attempt.write(self._writer)
        except Exception as e:  # noqa: BLE001 - any error: the report is the only way to convey it
            report = attempt.failed(e)
        table_id = None if self._writer is None else self._writer.table_id
        report = replace(report, settings=self._settings, sink_table_id=table_id)
        reach("driver.report.before")
        is_written = attempt.report(report)
        reach("driver.report.after")
        if is_written and self._on_report is not None:
            self._on_report(report)
        if not is_written:
            return EXIT_FAILED_RETRYABLE
        if report.is_done:
            wrote = report.rows_written
            self._rows = None if self._rows is None or wrote is None else self._rows + wrote
            return EXIT_DONE
        if report.outcome == "mismatch":
            return EXIT_MISMATCH
        return EXIT_FAILED_RETRYABLE if report.retryable else EXIT_FAILED

    def _prepared(self) -> Dict[str, str]:
        if self._prepare is not None:
            return self._prepare()
        check_versions(self._spark)
        return force(self._spark)


def run(
    spark: Any,
    spec: JobSpec,
    on_report: Optional[Callable[[AttemptReport], object]] = None,
    progress_seconds: float = INTERVAL_SECONDS,
) -> int:
    """Load the batches of ``spec``, or write its fence, in this session; report each; return the exit code.

    ``on_report`` is called with each report once it is written. A line about a batch is printed each
    ``progress_seconds`` that it takes.
    """
    job = JobRun(spark, spec, on_report, progress_seconds=progress_seconds)
    while (code := job.code) is None:
        job.step()
    return code


def shares_session(spec: JobSpec) -> bool:
    """Whether the job changes nothing in a session, so that others can use it, at the same time or later.

    A fence, and a new epoch in the table of rejected rows, set the transaction of their statement in it.
    """
    rejects = None if spec.expectations is None else spec.expectations.rejects
    return spec.fence is None and rejects is None and sink_from_dict(spec.sink).leaves_session_as_it_is


def _writer(spark: Any, spec: JobSpec, settings: Dict[str, str]) -> Writer:
    sink = sink_from_dict(spec.sink)
    if sink.needs_order and any(batch.interval is not None for batch in spec.batches):
        raise RefusalError(
            Reason.SINK_UNSUITABLE, f"{sink.kind} accepts the batches of an offset, in order, not data intervals"
        )
    if sink.replaces and any(batch.interval is None for batch in spec.batches):
        raise RefusalError(
            Reason.SINK_UNSUITABLE, "a sink that replaces accepts whole data intervals, not the batches of an offset"
        )
    return writer_class(sink)(spark, sink, spec, settings)
