"""FDS: incremental Delta Lake ingestion for Apache Airflow, on Spark.

The public names can be imported from here and are loaded on first use. Importing the package therefore costs nothing,
which keeps DAG parsing fast and lets the Spark driver import it with the standard library alone.
"""

from __future__ import annotations

from importlib import import_module

__version__ = "0.2.0"

_PUBLIC = {
    "DeltaCommitOperator": "airflow_provider_fds.operators.delta_commit",
    "DeltaIntervalTrigger": "airflow_provider_fds.triggers.delta_interval",
    "DeltaIngestOperator": "airflow_provider_fds.operators.delta_ingest",
    "DeltaMergeSink": "airflow_provider_fds.sinks",
    "DeltaPlanOperator": "airflow_provider_fds.operators.delta_plan",
    "DeltaReplaceSink": "airflow_provider_fds.sinks",
    "DeltaStream": "airflow_provider_fds.stream",
    "DeltaStreamMoveOperator": "airflow_provider_fds.operators.delta_stream_move",
    "DeltaTableHook": "airflow_provider_fds.hooks.delta_table",
    "DeltaTableSink": "airflow_provider_fds.sinks",
    "DeltaTableVersionSensor": "airflow_provider_fds.sensors.delta_table_version",
    "DeltaTableVersionTrigger": "airflow_provider_fds.triggers.delta_table_version",
    "FdsError": "airflow_provider_fds.errors",
    "ForeachBatchSink": "airflow_provider_fds.sinks",
}

__all__ = ["__version__", *sorted(_PUBLIC)]  # noqa: PLE0604  # the names are strings, built from one table


def __getattr__(name: str) -> object:
    """Load a public name on first use."""
    module = _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module), name)


def __dir__() -> list[str]:
    return sorted(__all__)
