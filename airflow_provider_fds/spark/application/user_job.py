"""For your own Spark job, between ``DeltaPlanOperator`` and ``DeltaCommitOperator``.

Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any, Dict, Optional
from uuid import uuid4

from airflow_provider_fds.batch.report import AttemptReport, report_name
from airflow_provider_fds.batch.spec import USER_JOB_PREFIX, UserJobBatch
from airflow_provider_fds.batch.transactions import txn_app_id
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.spark.application.batch_rows import batch_rows
from airflow_provider_fds.spark.runtime.failures import RefusalError
from airflow_provider_fds.spark.runtime.hadoop_files import hadoop_path
from airflow_provider_fds.spark.runtime.settings import DELTA_SESSION, force, forced_settings
from airflow_provider_fds.spark.runtime.staged_report import write_report

#: Where a job finds its batch: an argument, a Spark setting, an environment variable.
ARGUMENT, SETTING, VARIABLE = "--fds-batch", "spark.fds.batch", "FDS_BATCH"


class CurrentBatch:
    """The batch that this job must load; see :func:`current_batch`.

    Attributes:
        stream: Name of the stream.
        epoch: Epoch of the stream.
        batch_id: Number of the batch in its epoch.
        manifest: The batch as a Delta table, which :meth:`dataframe` loads.
        start: Where the batch starts (exclusive), Delta's streaming offset as JSON.
        end: Where it ends (inclusive).
        first_version: First version of the source with rows in the batch (inclusive).
        last_version: Last version (inclusive).
        num_rows: Number of rows according to the source's log statistics, or ``None`` if a file has no statistics or
            the stream has ``where``.
    """

    def __init__(self, spark: Any, handed_out: UserJobBatch) -> None:
        batch = handed_out.batch
        self._spark = spark
        self._spec = batch
        self._reports = handed_out.reports
        self.stream = batch.stream
        self.epoch = batch.epoch
        self.batch_id = batch.batch_id
        self.manifest = batch.manifest
        self.start = batch.start
        self.end = batch.end
        self.first_version = batch.first_version
        self.last_version = batch.last_version
        self.num_rows: Optional[int] = batch.num_rows

    def dataframe(self) -> Any:
        """Return the new rows, each with ``_commit_version`` and ``_commit_timestamp``.

        Also applies the settings of :func:`spark_conf` that can be set on a running session.

        Raises:
            RefusalError: The session has a setting that FDS cannot work with, or the manifest does not exist.
        """
        force(self._spark)
        return batch_rows(self._spark, self._spec)

    def txn_options(self, write: Optional[str] = None) -> Dict[str, str]:
        """Return the write options with which Delta accepts a write of this batch once: ``txnAppId, txnVersion``.

        Args:
            write: A name, if the job writes more than once: if two writes to a table have the same options, Delta
                silently skips the second. ``None``: the write that ``DeltaCommitOperator(verify=…)`` looks for.
        """
        return {
            "txnAppId": txn_app_id(self._spec.uuid, self._spec.interval, write),
            "txnVersion": str(self._spec.txn_version),
        }

    def report(self, rows: Optional[int] = None) -> None:
        """Report that the batch is loaded, and how many rows were written; ``DeltaCommitOperator`` shows the number.

        The report commits nothing: the offset moves when the tasks between plan and commit have succeeded.
        """
        batch = self._spec
        attempt_id = f"{USER_JOB_PREFIX}{int(time.time() * 1000):015d}-{uuid4().hex[:8]}"
        report = AttemptReport(
            uuid=batch.uuid,
            epoch=batch.epoch,
            batch_id=batch.batch_id,
            manifest_digest=batch.manifest_digest,
            attempt_id=attempt_id,
            outcome="written",
            rows_planned=batch.num_rows,
            rows_written=rows,
        )
        folder = hadoop_path(self._reports, self._spark)
        write_report(f"{folder}/{report_name(batch.epoch, batch.batch_id, attempt_id)}", report.to_json(), self._spark)
        print(f"FDS batch {batch.batch_id} of stream {batch.stream} is loaded: {rows} rows", flush=True)


def current_batch(spark: Any, batch: Optional[str] = None) -> CurrentBatch:
    """Return the batch that this job must load.

    Args:
        spark: The session.
        batch: ``plan.output["batch"]``; ``None``: the value of the argument ``--fds-batch``, the setting
            ``spark.fds.batch`` or the environment variable ``FDS_BATCH``, whichever comes first in this order.

    Raises:
        RefusalError: The job was given no batch.
        ValueError: The given value is not a batch, or comes from another version of FDS.
    """
    text = batch or _argument() or spark.conf.get(SETTING, None) or os.environ.get(VARIABLE)
    if not text:
        raise RefusalError(
            Reason.WIRING_INVALID,
            "this job received no batch: pass plan.output['batch'] of the DeltaPlanOperator as Spark setting "
            f"(conf={{'{SETTING}': plan.output['batch']}}), as argument ({ARGUMENT}), as environment variable "
            f"({VARIABLE}), or to current_batch(spark, batch=…)",
        )
    return CurrentBatch(spark, UserJobBatch.from_json(text))


def spark_conf() -> Dict[str, str]:
    """Return the Spark settings for a job that reads a batch, for ``SparkSubmitOperator(conf=…)``.

    - ``spark.sql.extensions``, ``spark.sql.catalog.spark_catalog``: Delta itself.
    - ``spark.databricks.delta.snapshotPartitions=1``: otherwise Delta spreads the few lines of a manifest over 50
      tasks, and takes 6 to 7 times as long to load it.
    - ``spark.sql.files.ignoreMissingFiles`` and ``ignoreCorruptFiles`` ``=false``: otherwise Spark silently omits the
      rows of a lost or damaged file.
    - ``spark.databricks.delta.history.metricsEnabled=true``: the sink's history says how many rows were written.
    - ``spark.sql.execution.arrow.pythonUDF.columnarInput.enabled=false``: with ``true``, Spark 4.2.0 hangs forever on a
      Python UDF over a Delta table.
    """
    return {
        **DELTA_SESSION,
        **forced_settings(),
    }


def _argument() -> Optional[str]:
    for position, argument in enumerate(sys.argv):
        if argument == ARGUMENT and position + 1 < len(sys.argv):
            return sys.argv[position + 1]
        if argument.startswith(f"{ARGUMENT}="):
            return argument[len(ARGUMENT) + 1 :]
    return None
