"""The writer of ``ForeachBatchSink``: calls the function once per batch, and again if it is not known to have returned.

Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Optional

from airflow_provider_fds.batch.report import STARTED, UNREADABLE_ADVICE, AttemptReport, decode, report_name
from airflow_provider_fds.fault_points import reach
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.spark.fence.close_epochs import close_writes
from airflow_provider_fds.spark.runtime.failures import RefusalError
from airflow_provider_fds.spark.runtime.hadoop_files import hadoop_path, names, read_bytes
from airflow_provider_fds.spark.runtime.settings import TRANSACTION_SETTINGS
from airflow_provider_fds.spark.writers.foreach_batch import ForeachBatch
from airflow_provider_fds.spark.writers.foreach_tables import WrittenTables
from airflow_provider_fds.spark.writers.rows.user_code import call, load_function
from airflow_provider_fds.spark.writers.writer import Landed, Writer

if TYPE_CHECKING:
    from airflow_provider_fds.batch.report import FenceReport
    from airflow_provider_fds.batch.spec import BatchSpec, FenceSpec, JobSpec
    from airflow_provider_fds.sinks import ForeachBatchSink

_WHAT = "function"

#: What a driver reports that has not called the function, or whose writes Delta has skipped; earlier versions of FDS
#: had another name.
_NOT_CALLED = (Reason.SINK_OUT_OF_ORDER, "OutOfTurn")


class ForeachBatchWriter(Writer):
    """Hands batches to the function, which may write to several tables, known to FDS or not."""

    _sink: ForeachBatchSink

    def __init__(self, spark: Any, sink: ForeachBatchSink, job: JobSpec, settings: Dict[str, str]) -> None:
        super().__init__(spark, sink, job, settings)
        self._function = load_function(sink.function, _WHAT, ("df", "batch"))
        self._tables = WrittenTables(spark, sink, job.tables)
        self._is_repeated = False

    @classmethod
    def close_epochs(cls, spark: Any, job: JobSpec, fence: FenceSpec, sink: Any) -> FenceReport:
        """Close older epochs in the tables that FDS knows; see :func:`~.fence.close_epochs.close_writes`."""
        return close_writes(spark, job, fence, sink)

    def find(self, batch: BatchSpec) -> Optional[Landed]:
        """Return what an earlier attempt reported if the function had returned there, else ``None``.

        Raises:
            RefusalError: A named table was restored or replaced since, or a file among the reports is not a report.
        """
        folder, _, _ = report_name(batch.epoch, batch.batch_id, "").rpartition("/")
        folder = f"{hadoop_path(self._job.reports, self._spark)}/{folder}"
        found = sorted(names(folder, self._spark))
        begun = {name[: -len(STARTED)] for name in found if name.endswith(STARTED)} - {self._job.attempt_id}
        for name in found:
            if not name.endswith(".json") or name.endswith(STARTED):
                continue
            try:
                report = decode(AttemptReport, read_bytes(f"{folder}/{name}", self._spark))
            except ValueError as error:
                raise RefusalError(
                    Reason.REPORT_UNREADABLE,
                    f"stream {batch.stream!r}, batch {batch.batch_id}: the report {folder}/{name} cannot be used: "
                    f"{error}. {UNREADABLE_ADVICE}",
                ) from error
            other = report.differs_from(
                uuid=batch.uuid,
                epoch=batch.epoch,
                batch_id=batch.batch_id,
                digest=batch.manifest_digest,
                attempt_id=name.removesuffix(".json"),
            )
            if other is not None:
                continue
            if report.is_done:
                self._tables.check_kept(batch)
                rows, tables = report.rows_written, self._tables.versions
                return Landed(None, by_this_attempt=False, rows=rows, tables=tables)
            if report.error_class in _NOT_CALLED:
                # it did not call the function, or Delta skipped what the function wrote
                begun.discard(report.attempt_id)
        self._is_repeated = bool(begun)
        return None

    def append(self, frame: Any, batch: BatchSpec) -> Landed:
        """Call the function with the batch.

        Raises:
            RefusalError: The function raised, or left session settings that would lose later batches.
        """
        of_batch = ForeachBatch(batch, self._sink.names)
        self._tables.prepare(batch, is_repeated=self._is_repeated)
        reach("driver.commit.before")
        result = call(self._function, self._sink.function, _WHAT, frame, of_batch)
        reach("driver.commit.after")
        self._check_session()
        self._tables.check_landed(batch, of_batch.asked)
        is_count = isinstance(result, int) and not isinstance(result, bool)
        rows = result if is_count else None
        return Landed(None, by_this_attempt=True, rows=rows, tables=self._tables.versions)

    def _check_session(self) -> None:
        left = [key for key in TRANSACTION_SETTINGS if self._spark.conf.get(key, None) is not None]
        for key in left:
            self._spark.conf.unset(key)
        if left:
            raise RefusalError(
                Reason.USER_FUNCTION_FAILED,
                f"{_WHAT} {self._sink.function} left {', '.join(left)} set in the session: Delta would silently "
                "skip every later write without its own options. Unset it in a finally block, or use write "
                "options: batch.txn_options(…)",
            )
        changed = [
            f"{key}={self._spark.conf.get(key, None)} (was {value})"
            for key, value in self._settings.items()
            if str(self._spark.conf.get(key, None)).lower() != value
        ]
        for key, value in self._settings.items():
            self._spark.conf.set(key, value)
        if changed:
            raise RefusalError(
                Reason.USER_FUNCTION_FAILED,
                f"{_WHAT} {self._sink.function} changed settings without which rows may be lost: {', '.join(changed)}",
            )
