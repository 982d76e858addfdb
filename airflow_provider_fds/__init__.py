"""FDS: incremental Delta Lake ingestion for Apache Airflow, on Spark.

The public names can be imported from here and are loaded on first use. Importing the package therefore costs nothing,
which keeps DAG parsing fast and lets the Spark driver import it with the standard library alone.
"""

from __future__ import annotations

from airflow_provider_fds.lazy import loads, located

__version__ = "0.2.0"

_PUBLIC = located(
    __name__,
    {
        "errors": ("FdsError",),
        "fleet.table_pattern": ("TablePattern",),
        "fleet.value": ("FleetStream",),
        "hooks.delta_table": ("DeltaTableHook",),
        "operators.delta_commit": ("DeltaCommitOperator",),
        "operators.delta_fleet": ("DeltaFleetOperator",),
        "operators.delta_ingest": ("DeltaIngestOperator",),
        "operators.delta_plan": ("DeltaPlanOperator",),
        "operators.delta_stream_monitor": ("DeltaStreamMonitorOperator",),
        "operators.delta_stream_action": ("DeltaStreamActionOperator",),
        "operators.fleet_dags": ("fds_dags",),
        "sensors.delta_table_version": ("DeltaTableVersionSensor",),
        "sinks": ("DeltaMergeSink", "DeltaReplaceSink", "DeltaAppendSink", "ForeachBatchSink", "PostgresSink"),
        "stream": ("DeltaStream",),
        "stream.monitoring.alerts": ("StreamAlerts",),
        "triggers.delta_fleet": ("DeltaFleetTrigger",),
        "triggers.delta_interval": ("DeltaIntervalTrigger",),
        "triggers.delta_table_change": ("DeltaTableChangeTrigger",),
        "triggers.delta_table_condition": ("DeltaTableConditionTrigger",),
        "triggers.delta_stream_monitor": ("DeltaStreamMonitorTrigger",),
        "triggers.delta_table_version": ("DeltaTableVersionTrigger",),
        "triggers.delta_watermark": ("DeltaWatermarkTrigger",),
    },
)

__all__ = ["__version__", *sorted(_PUBLIC)]  # noqa: PLE0604  # the names are strings, built from one table

__getattr__ = loads(__name__, _PUBLIC)


def __dir__() -> list[str]:
    return sorted(__all__)
