"""One attempt on one batch: the marker before it, the write, the report after it. Python 3.9 syntax.

Standard library and pyspark only.
"""

from __future__ import annotations

import json
import sys
import threading
import time
import traceback
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ContextManager, Dict, Optional

from airflow_provider_fds.batch.checked_json import SPEC_FORMAT
from airflow_provider_fds.batch.report import AttemptReport, report_name, started_name
from airflow_provider_fds.batch.version_ranges import describe_covered
from airflow_provider_fds.credentials import redacted
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sinks import Sink, sink_from_dict
from airflow_provider_fds.spark.application.batch_rows import batch_rows
from airflow_provider_fds.spark.runtime.attempt_identity import identity, is_connect
from airflow_provider_fds.spark.runtime.failures import RefusalError, explain, shortened
from airflow_provider_fds.spark.runtime.hadoop_files import hadoop_path, write_bytes
from airflow_provider_fds.spark.runtime.staged_report import write_report

if TYPE_CHECKING:
    from airflow_provider_fds.batch.sink.sink_commit import SinkCommit
    from airflow_provider_fds.batch.spec import BatchSpec, Expectations, JobSpec
    from airflow_provider_fds.spark.writers.rows.expected_rows import ExpectedRows, RowCounts
    from airflow_provider_fds.spark.writers.writer import Landed, Writer


class BatchAttempt:
    """One batch in one attempt, and the duration of its steps.

    Args:
        spark: Session; ``None`` if there is none and staging is local.
        spec: The job.
        batch: One of its batches.
        subject: What a line for people begins with.

    Attributes:
        batch: The batch.
    """

    def __init__(self, spark: Any, spec: JobSpec, batch: BatchSpec, subject: str = "FDS batch") -> None:
        self._spark = spark
        self._spec = spec
        self.batch = batch
        self._subject = subject
        self._reporting = threading.Lock()
        self._is_reported = False
        self._marker: Dict[str, Any] = {}
        self._began = time.monotonic()
        self._seconds: Dict[str, float] = {}
        #: Of the rows that expectations tested, if they are known.
        self._counts: Optional[RowCounts] = None
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

    def mark_started(self, job: Optional[Dict[str, Any]] = None) -> None:
        """Record that this attempt may have touched the sink, however it ends.

        Args:
            job: What its job has done before, for whoever looks at the stream: ``began_ms``, ``batches``, ``done`` and
                ``rows``.
        """
        marker = {
            "format": SPEC_FORMAT,
            "attempt_id": self._spec.attempt_id,
            "started_ms": int(time.time() * 1000),
            **({} if job is None else {"job": job}),
            **identity(self._spark),
        }
        self._put(self._marker_name, _encoded(marker))
        self._marker = marker

    def note(self, stage: str) -> None:
        """Add to that record what Spark is doing, in words, if staging can be reached."""
        self._marker["stage"] = stage
        write_bytes(self._path(self._marker_name), _encoded(self._marker), self._spark, makes_folder=False)

    @property
    def _marker_name(self) -> str:
        return started_name(self.batch.epoch, self.batch.batch_id, self._spec.attempt_id)

    def write(self, writer: Writer) -> AttemptReport:
        """Write the batch into the sink if it is not there, and report what is there now."""
        landed = writer.find(self.batch)
        self._step("check")
        if landed is None and self._spec.verify_only:
            raise RefusalError(
                Reason.BATCH_NOT_COMMITTED,
                f"batch {self.batch.batch_id} is not in the sink; this job only checks, and wrote nothing",
                retryable=True,
            )
        if landed is None:
            with self._kept(writer) as rows:
                if self._spec.expectations is None:
                    self._step("load")
                    landed = writer.append(rows, self.batch)
                else:
                    landed = self._append_expected(writer, rows, self._spec.expectations)
            self._step("write")
            self._seconds["write"] -= landed.looked_seconds
            self._seconds["verify"] = landed.looked_seconds
        elif landed.commit is not None:
            self._count_again(writer, landed.commit)
        return self._verified(landed)

    def _rows(self, writer: Writer) -> Any:
        """Return the rows of the batch as the sink gets them."""
        frame = batch_rows(self._spark, self.batch, are_all_read=self._sink.takes_all_rows)
        return writer.prepare(frame, self.batch)

    def _kept(self, writer: Writer) -> ContextManager[Any]:
        """Return a context with the rows, which are kept if they are tested before a write that must get the same."""
        rows, expectations = self._rows(writer), self._spec.expectations
        is_tested = writer.tests_rows or (expectations is not None and expectations.decides)
        if not (is_tested and self._sink.may_change_rows):
            return nullcontext(rows)
        # few sinks call user code
        from airflow_provider_fds.spark.writers.rows.kept_rows import kept_rows

        return kept_rows(rows)

    def _append_expected(self, writer: Writer, rows: Any, expectations: Expectations) -> Landed:
        """Write the rows that the sink gets, and count the others: with the write, unless a count decides on it."""
        tested = self._tested(rows, expectations)
        if writer.reads_rows_once and not expectations.decides and not is_connect(self._spark):
            self._step("load")
            # the writer does not know how many rows it gets
            landed = writer.append(tested.observed(), replace(self.batch, num_rows=None))
            self._counts = tested.observed_counts() if landed.by_this_attempt else None
            if self._counts is None or not self._agrees(self._counts, landed):
                # tasks that Spark repeated are counted twice
                self._counts = tested.count()
            return landed
        self._counts = counts = tested.count()
        tested.refuse(counts, getattr(self._sink, "keys", ()), self.batch.may_reject)
        if expectations.rejects is not None:
            from airflow_provider_fds.spark.writers.rows.rejects_table import RejectsTable

            what, attempt = self.batch.describe(), self._spec.attempt_id
            table = RejectsTable(self._spark, expectations, self._sink, self.batch, attempt, what)
            table.write(tested, counts.into_table)
        self._step("load")
        planned = self.batch.num_rows
        kept = None if planned is None else max(planned - counts.rejected, 0)
        return writer.append(tested.kept(), replace(self.batch, num_rows=kept))

    def _tested(self, rows: Any, expectations: Expectations) -> ExpectedRows:
        # most streams have no expectations
        from airflow_provider_fds.spark.writers.rows.expected_rows import ExpectedRows

        return ExpectedRows(rows, expectations, self.batch.describe())

    def _agrees(self, counts: RowCounts, landed: Landed) -> bool:
        wrote = None if landed.commit is None else landed.commit.rows_written
        return wrote is None or wrote == counts.rows - counts.rejected

    def _count_again(self, writer: Writer, commit: SinkCommit) -> None:
        """Count the rows of a batch that an earlier attempt wrote, by the expectations that it had.

        Its rows and their tests are the same as then. Without its report, nothing else has the numbers.
        """
        then = (commit.metadata or {}).get("expect")
        if not isinstance(then, dict):
            return
        from airflow_provider_fds.batch.spec import Expectations

        try:
            self._counts = self._tested(self._rows(writer), Expectations(then)).count()
        except Exception as error:  # noqa: BLE001 - the batch is in the sink, whatever its numbers are
            print(f"FDS warning: the rows of {self.batch.describe()} cannot be counted again: {error}", flush=True)

    def failed(self, error: Exception) -> AttemptReport:
        """Return the report of a batch that this attempt did not commit."""
        failure = explain(error)
        message = failure.message
        if not isinstance(error, RefusalError):
            batch = self.batch
            message = (
                f"stream {batch.stream!r}, batch {batch.batch_id} ({_versions(batch)}) into "
                f"{describe_sink(self._spec.sink)}: {message}"
            )
            # first the cause, which a person would otherwise look for in a hundred lines of the JVM
            print(
                f"{self._subject} {batch.batch_id} fails with {failure.error_class}: {shortened(message)}; the trace:\n"
                + redacted("".join(traceback.format_exception(type(error), error, error.__traceback__))),
                file=sys.stderr,
                flush=True,
            )
        counts = self._counts if failure.reason == Reason.TOO_MANY_REJECTED else None
        told = {} if counts is None else _told(counts)
        return replace(
            self._blank,
            **told,
            error_class=failure.error_class,
            reason=failure.reason,
            error_message=shortened(message),
            retryable=failure.retryable,
        )

    def report(self, report: AttemptReport) -> bool:
        """Write the report, and print one line for people; an attempt makes one report.

        Returns:
            Whether it was written: ``False`` if the attempt was given up, and is reported, by another thread.
        """
        with self._reporting:
            if self._is_reported:
                return False
            self._report(report)
            self._is_reported = True
            return True

    def _report(self, report: AttemptReport) -> None:
        took = time.monotonic() - self._began
        seconds = {step: round(value, 3) for step, value in {**self._seconds, "total": took}.items()}
        report = replace(report, seconds=seconds)
        self._put(report_name(report.epoch, report.batch_id, report.attempt_id), report.to_json())
        rows = "unknown" if report.rows_written is None else f"{report.rows_written:,}"
        line = f"{self._subject} {report.batch_id} {report.outcome}: "
        if report.outcome != "failed":
            where = "" if report.sink_version is None else f"sink version {report.sink_version}, "
            line += f"{rows} rows, {where}{took:.1f} s"
        if report.error_message:
            line += ("" if report.outcome == "failed" else "; ") + f"{report.error_class}: {report.error_message}"
        print(line, flush=True)
        for warning in report.warnings:
            print(f"FDS warning: {warning}", flush=True)

    def _verified(self, landed: Landed) -> AttemptReport:
        commit, batch = landed.commit, self.batch
        counts = self._counts
        rejected = 0 if counts is None else counts.rejected
        blank = replace(self._blank, rows_rejected=rejected, failed_rows={} if counts is None else counts.failed)
        if commit is None:
            # a user's function has returned; only the function knows what it wrote
            outcome = "written" if landed.by_this_attempt else "verified"
            done = replace(blank, outcome=outcome, rows_read=batch.num_rows, rows_written=landed.rows)
            return replace(done, tables=landed.tables)
        wrote = commit.rows_written
        report = replace(
            blank,
            outcome="written" if landed.by_this_attempt else "verified",
            sink_version=commit.version,
            rows_written=wrote,
            rows_read=self._rows_read(wrote, rejected),
            files_written=commit.files_written,
            bytes_written=commit.bytes_written,
            warnings=landed.warnings,
        )
        if self._lacks_counts(landed):
            lost = "how many rows failed each expectation is not known: an earlier attempt wrote the batch"
            left_out = max((batch.num_rows or 0) - (wrote or 0), 0)
            return replace(
                report, rows_rejected=left_out, warnings=(*report.warnings, f"{self.batch.describe()}: {lost}")
            )
        problem = self._difference(wrote, rejected, (commit.metadata or {}).get("settings") or {})
        if problem is None:
            return report
        return replace(
            report,
            outcome="mismatch",
            retryable=False,
            error_class=Reason.ROWS_DIFFER,
            reason=Reason.ROWS_DIFFER,
            error_message=(
                f"batch {batch.batch_id} is in the sink as version {commit.version}, but {problem}. Find out why "
                f"before you accept it ({_versions(batch)})"
            ),
        )

    def _rows_read(self, wrote: Optional[int], rejected: int) -> Optional[int]:
        if self.batch.num_rows is not None or not self._sink.writes_rows_as_they_are or wrote is None:
            return self.batch.num_rows
        return wrote + rejected

    def _lacks_counts(self, landed: Landed) -> bool:
        """Whether the account of a database does not say how many of a batch's rows were to be written."""
        is_found = not landed.by_this_attempt and self._sink.target == "database_table"
        return is_found and self._spec.expectations is not None and self._counts is None

    def _difference(self, wrote: Optional[int], rejected: int, settings: Dict[str, str]) -> Optional[str]:
        """Return how the commit differs from the plan, or ``None`` if it does not."""
        lenient = [key for key in settings if "ignore" in key and settings[key] != "false"]
        if lenient:
            return f"it was written under {', '.join(f'{key}={settings[key]}' for key in lenient)}"
        planned = self.batch.num_rows
        if planned is None or not self._sink.writes_rows_as_they_are or wrote == planned - rejected:
            return None
        wrote_words = "does not say how many rows it wrote" if wrote is None else f"wrote {wrote:,} rows"
        left_out = f", of which expectations kept {rejected:,} out" if rejected else ""
        return f"that commit {wrote_words}, but the source's log counts {planned:,}{left_out}"

    def _step(self, name: str) -> None:
        self._seconds[name] = time.monotonic() - self._began - sum(self._seconds.values())

    def _put(self, name: str, data: bytes) -> None:
        write_report(self._path(name), data, self._spark, has_folder=bool(self._marker))

    def _path(self, name: str) -> str:
        return f"{hadoop_path(self._spec.reports, self._spark)}/{name}"


def _encoded(marker: Dict[str, Any]) -> bytes:
    return json.dumps(marker, sort_keys=True).encode()


def _told(counts: RowCounts) -> Dict[str, Any]:
    """Return what a report says of the rows of a batch that leaves out too many."""
    return {"rows_tested": counts.rows, "rows_rejected": counts.rejected, "failed_rows": counts.failed}


def _versions(batch: BatchSpec) -> str:
    return describe_covered(batch.start, batch.end, batch.first_version, batch.last_version)


def describe_sink(sink: Dict[str, Any]) -> str:
    """Return a sink in words, for the message of any failure: also one whose cause is that it cannot be built."""
    try:
        return sink_from_dict(sink).describe()
    except (ValueError, TypeError):
        return f"a sink of kind {sink.get('kind')!r}"
