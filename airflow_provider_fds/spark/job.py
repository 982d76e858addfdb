"""The Spark application: ``job.py <uri of a job spec>`` loads planned batches, in order, into one sink.

It imports only the standard library, pyspark and its own zip, and is written for Python 3.9 and Spark 3.5. For each
batch it writes a marker before it touches the sink and a report when it is done. It stops at the first batch that is
not done and verified, because a later transaction would make the earlier one unwritable. Its reports decide nothing:
the ledger does.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
import warnings
from dataclasses import replace
from typing import Any, Callable, Dict, List, Optional, Sequence

from airflow_provider_fds.batch.checked_json import SPEC_FORMAT
from airflow_provider_fds.batch.report import AttemptReport, fence_report_name, report_name, started_name
from airflow_provider_fds.batch.spec import BatchSpec, FenceSpec, JobSpec
from airflow_provider_fds.batch.version_ranges import describe_covered
from airflow_provider_fds.credentials import redacted
from airflow_provider_fds.fault_points import reach
from airflow_provider_fds.sinks import Sink, sink_from_dict
from airflow_provider_fds.spark.batch_rows import batch_rows
from airflow_provider_fds.spark.driver_versions import check_versions, no_session
from airflow_provider_fds.spark.failures import RefusalError, explain, shortened
from airflow_provider_fds.spark.files import hadoop_path, local_path, read_bytes, write_bytes
from airflow_provider_fds.spark.identity import identity
from airflow_provider_fds.spark.progress import INTERVAL_SECONDS, JobProgress, tell_ui_address
from airflow_provider_fds.spark.settings import force
from airflow_provider_fds.spark.writers import Landed, Writer, writer_class

EXIT_DONE = 0
EXIT_FAILED_RETRYABLE = 10
EXIT_FAILED = 11
EXIT_MISMATCH = 12


def main(argv: Sequence[str]) -> int:
    """Run the job that ``argv[0]`` names, and return the exit code.

    0: every batch is done and verified (or the time is up). 10: stopped at a failed batch, a retry may help. 11: a
    retry will not help. 12: a batch is in the sink but differs from the plan.
    """
    _leave_own_folder()
    if len(argv) != 1:
        print("usage: job.py <uri of the job spec>", file=sys.stderr)
        return EXIT_FAILED
    uri = argv[0]
    spark: Any = None
    spec: Optional[JobSpec] = None
    try:
        # an unreadable local spec is found before the cost of starting a session
        path = hadoop_path(uri)
        if local_path(path) is not None:
            spec = JobSpec.from_file(uri, read_bytes(path))
        try:
            spark = _session()
        except Exception as e:  # noqa: BLE001 - any error is reported
            return _unstarted(spec, no_session(e))
        if spec is None:
            spec = JobSpec.from_file(uri, read_bytes(hadoop_path(uri, spark), spark))
    except (OSError, ValueError, TypeError) as e:
        print(f"FDS cannot read the job spec {uri}: {e}", file=sys.stderr)
        return _leave(spark, EXIT_FAILED)
    tell_ui_address(spark)
    return _leave(spark, run(spark, spec))


def _unstarted(spec: Optional[JobSpec], error: Exception) -> int:
    """Print why there is no session; also report it if staging is local: other files are reached through Spark."""
    failure = explain(error)
    if spec is None or spec.fence is not None:
        print(f"FDS has no session: {failure.error_class}: {failure.message}", flush=True)
    else:
        work = _BatchWork(None, spec, spec.batches[0])
        work.report(work.failed(error))
    return EXIT_FAILED_RETRYABLE if failure.retryable else EXIT_FAILED


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
    if spec.fence is not None:
        return _run_fence(spark, spec, spec.fence)
    writer: Optional[Writer] = None
    settings: Dict[str, str] = {}
    progress = JobProgress(spark, spec, progress_seconds)
    for position, batch in enumerate(spec.batches):
        if position and spec.stop_after_ms is not None and time.time() * 1000 >= spec.stop_after_ms:
            print(f"FDS stops before batch {batch.batch_id}: the run's time limit is reached", flush=True)
            break
        work = _BatchWork(spark, spec, batch)
        try:
            work.mark_started()
            reach("driver.started")
            if writer is None:
                check_versions(spark)
                settings = force(spark)
                writer = _writer(spark, spec, settings)
            with progress.batch(position):
                report = work.write(writer)
        except Exception as e:  # noqa: BLE001 - any error: the report is the only way to convey it
            report = work.failed(e)
        report = replace(report, settings=settings, sink_table_id=None if writer is None else writer.table_id)
        reach("driver.report.before")
        work.report(report)
        reach("driver.report.after")
        if on_report is not None:
            on_report(report)
        if not report.is_done:
            if report.outcome == "mismatch":
                return EXIT_MISMATCH
            return EXIT_FAILED_RETRYABLE if report.retryable else EXIT_FAILED
    return EXIT_DONE


def _run_fence(spark: Any, spec: JobSpec, fence: FenceSpec) -> int:
    sink = sink_from_dict(spec.sink)
    report = writer_class(sink).close_epochs(spark, spec, fence, sink)
    reach("fence.report.before")
    name = fence_report_name(fence.epoch, spec.attempt_id)
    write_bytes(f"{hadoop_path(spec.reports, spark)}/{name}", report.to_json(), spark)
    line = f"FDS fence of epoch {fence.epoch} {report.outcome}"
    print(line if report.error_message is None else f"{line}: {report.error_message}", flush=True)
    for warning in report.warnings:
        print(f"FDS warning: {warning}", flush=True)
    if report.outcome != "failed":
        return EXIT_DONE
    return EXIT_FAILED_RETRYABLE if report.retryable else EXIT_FAILED


def _writer(spark: Any, spec: JobSpec, settings: Dict[str, str]) -> Writer:
    sink = sink_from_dict(spec.sink)
    if sink.needs_order and any(batch.interval is not None for batch in spec.batches):
        raise RefusalError("Sink", f"{sink.kind} accepts the batches of an offset, in order, not data intervals")
    if sink.replaces and any(batch.interval is None for batch in spec.batches):
        raise RefusalError("Sink", "a sink that replaces accepts whole data intervals, not the batches of an offset")
    return writer_class(sink)(spark, sink, spec, settings)


class _BatchWork:
    """One batch in one attempt, and the duration of its steps."""

    def __init__(self, spark: Any, spec: JobSpec, batch: BatchSpec) -> None:
        self._spark = spark
        self._spec = spec
        self._batch = batch
        self._began = time.monotonic()
        self._seconds: Dict[str, float] = {}
        self._blank = AttemptReport(
            uuid=batch.uuid,
            epoch=batch.epoch,
            batch_id=batch.batch_id,
            manifest_digest=batch.manifest_digest,
            attempt_id=spec.attempt_id,
            outcome="failed",
            rows_planned=batch.num_rows,
        )

    @property
    def _sink(self) -> Sink:
        return sink_from_dict(self._spec.sink)

    def mark_started(self) -> None:
        """Record that this attempt may have touched the sink, however it ends."""
        marker = {
            "format": SPEC_FORMAT,
            "attempt_id": self._spec.attempt_id,
            "started_ms": int(time.time() * 1000),
            **identity(self._spark),
        }
        name = started_name(self._batch.epoch, self._batch.batch_id, self._spec.attempt_id)
        self._put(name, json.dumps(marker, sort_keys=True).encode())

    def write(self, writer: Writer) -> AttemptReport:
        """Write the batch into the sink if it is not there, and report what is there now."""
        landed = writer.find(self._batch)
        self._step("check")
        if landed is None and self._spec.verify_only:
            raise RefusalError(
                "NotCommitted",
                f"batch {self._batch.batch_id} is not in the sink; this job only checks, and wrote nothing",
                retryable=True,
            )
        if landed is None:
            frame = batch_rows(self._spark, self._batch, are_all_read=self._sink.takes_all_rows)
            self._step("load")
            landed = writer.append(frame, self._batch)
            self._step("write")
            self._seconds["write"] -= landed.looked_seconds
            self._seconds["verify"] = landed.looked_seconds
        return self._verified(landed)

    def failed(self, error: Exception) -> AttemptReport:
        """Return the report of a batch that this attempt did not commit."""
        failure = explain(error)
        message = failure.message
        if not isinstance(error, RefusalError):
            print(redacted(traceback.format_exc()), file=sys.stderr)
            batch = self._batch
            message = (
                f"stream {batch.stream!r}, batch {batch.batch_id} ({_versions(batch)}) into "
                f"{_describe(self._spec.sink)}: {message}"
            )
        return replace(
            self._blank,
            error_class=failure.error_class,
            error_message=shortened(message),
            retryable=failure.retryable,
        )

    def report(self, report: AttemptReport) -> None:
        """Write the report, and print one line for people."""
        took = time.monotonic() - self._began
        seconds = {step: round(value, 3) for step, value in {**self._seconds, "total": took}.items()}
        report = replace(report, seconds=seconds)
        self._put(report_name(report.epoch, report.batch_id, report.attempt_id), report.to_json())
        rows = "unknown" if report.rows_written is None else f"{report.rows_written:,}"
        line = f"FDS batch {report.batch_id} {report.outcome}: "
        if report.outcome != "failed":
            where = "" if report.sink_version is None else f"sink version {report.sink_version}, "
            line += f"{rows} rows, {where}{took:.1f} s"
        if report.error_message:
            line += ("" if report.outcome == "failed" else "; ") + f"{report.error_class}: {report.error_message}"
        print(line, flush=True)
        for warning in report.warnings:
            print(f"FDS warning: {warning}", flush=True)

    def _verified(self, landed: Landed) -> AttemptReport:
        commit, batch = landed.commit, self._batch
        if commit is None:
            # a user's function has returned; only the function knows what it wrote
            outcome = "written" if landed.by_this_attempt else "verified"
            done = replace(self._blank, outcome=outcome, rows_read=batch.num_rows, rows_written=landed.rows)
            return replace(done, tables=landed.tables)
        wrote = commit.rows_written
        report = replace(
            self._blank,
            outcome="written" if landed.by_this_attempt else "verified",
            sink_version=commit.version,
            rows_written=wrote,
            rows_read=wrote if batch.num_rows is None and self._sink.writes_rows_as_they_are else batch.num_rows,
            files_written=commit.files_written,
            bytes_written=commit.bytes_written,
            warnings=landed.warnings,
        )
        problem = self._difference(wrote, (commit.metadata or {}).get("settings") or {})
        if problem is None:
            return report
        return replace(
            report,
            outcome="mismatch",
            retryable=False,
            error_class="RowsDiffer",
            error_message=(
                f"batch {batch.batch_id} is in the sink as version {commit.version}, but {problem}. Find out why "
                f"before you accept it ({_versions(batch)})"
            ),
        )

    def _difference(self, wrote: Optional[int], settings: Dict[str, str]) -> Optional[str]:
        """Return how the commit differs from the plan, or ``None`` if it does not."""
        lenient = [key for key in settings if "ignore" in key and settings[key] != "false"]
        if lenient:
            return f"it was written under {', '.join(f'{key}={settings[key]}' for key in lenient)}"
        planned = self._batch.num_rows
        if planned is None or not self._sink.writes_rows_as_they_are or wrote == planned:
            return None
        wrote_words = "does not say how many rows it wrote" if wrote is None else f"wrote {wrote:,} rows"
        return f"that commit {wrote_words}, but the source's log counts {planned:,}"

    def _step(self, name: str) -> None:
        self._seconds[name] = time.monotonic() - self._began - sum(self._seconds.values())

    def _put(self, name: str, data: bytes) -> None:
        write_bytes(f"{hadoop_path(self._spec.reports, self._spark)}/{name}", data, self._spark)


def _versions(batch: BatchSpec) -> str:
    return describe_covered(batch.start, batch.end, batch.first_version, batch.last_version)


def _describe(sink: Dict[str, Any]) -> str:
    """Return a sink in words, for the message of any failure: also one whose cause is that it cannot be built."""
    try:
        return sink_from_dict(sink).describe()
    except (ValueError, TypeError):
        return f"a sink of kind {sink.get('kind')!r}"


def _leave_own_folder() -> None:
    """Remove this file's folder from the path, so that imports do not find the modules beside this file."""
    own = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - sys.path has texts
    if sys.path and os.path.abspath(sys.path[0]) == own and os.path.exists(f"{own}/delta_table_writer.py"):  # noqa: PTH100, PTH110
        del sys.path[0]


def _session() -> Any:
    # pyspark itself warns at import if pandas 3 is installed; no pandas is used here
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
    from pyspark.sql import SparkSession

    return SparkSession.builder.appName("fds").getOrCreate()


def _leave(spark: Any, code: int) -> int:
    if spark is None:
        return code
    is_local = spark.sparkContext.master.startswith("local")
    sys.stdout.flush()
    sys.stderr.flush()
    if is_local:
        # everything is written and reported; stopping the session normally takes up to a second more
        os._exit(code)
    spark.stop()
    return code


__all__: List[str] = ["EXIT_DONE", "EXIT_FAILED", "EXIT_FAILED_RETRYABLE", "EXIT_MISMATCH", "main", "run"]

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
