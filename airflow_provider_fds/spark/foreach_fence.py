"""The fences of a function's writes: one in each named table, under the write's own application id.

Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, List

from airflow_provider_fds.batch.report import FenceReport
from airflow_provider_fds.sinks import DeltaTableSink
from airflow_provider_fds.spark.failures import explain, shortened
from airflow_provider_fds.spark.fence import close_epochs
from airflow_provider_fds.spark.files import hadoop_path
from airflow_provider_fds.spark.history import SinkLog

if TYPE_CHECKING:
    from airflow_provider_fds.batch.spec import FenceSpec, JobSpec
    from airflow_provider_fds.sinks import ForeachBatchSink

#: Later than every version: a check of the log that reads no commit.
_NONE = sys.maxsize


def close_writes(spark: Any, spec: JobSpec, fence: FenceSpec, sink: ForeachBatchSink) -> FenceReport:
    """Write the missing fence of each named write; return the report of the first that fails."""
    done: List[str] = []
    for name, uri in sink.tables.items():
        report = _close(spark, spec, replace(fence, write=name), uri)
        if report.outcome == "failed":
            return report
        if report.outcome == "fenced":
            done.append(name)
    outcome = "fenced" if done else "sink_missing"
    return FenceReport(fence.uuid, fence.epoch, spec.attempt_id, outcome, writes=tuple(done))


def _close(spark: Any, spec: JobSpec, fence: FenceSpec, uri: str) -> FenceReport:
    # the session decides which log store the function uses; the fence commits through the same one
    table = DeltaTableSink(uri, allow_single_driver_s3=True)
    try:
        log = SinkLog(spark, hadoop_path(uri, spark))
        history = log.history(_NONE)
        if history is not None and log.transaction(fence.txn_app_id) == fence.txn_version:
            return FenceReport(fence.uuid, fence.epoch, spec.attempt_id, "fenced")
    except Exception as error:  # noqa: BLE001 - any error: the report is the only way to convey it
        failure = explain(error)
        return FenceReport(
            fence.uuid,
            fence.epoch,
            spec.attempt_id,
            "failed",
            error_class=failure.error_class,
            error_message=shortened(f"write {fence.write!r} in {uri}: {failure.message}"),
            retryable=failure.retryable,
        )
    # the process that opens the epoch reads what landed from the tables' logs; here only new commits are read
    known = None if history is None else history.newest_version
    return close_epochs(spark, replace(spec, sink_version=known, sink_table_id=None), fence, table)


__all__: List[str] = ["close_writes"]
