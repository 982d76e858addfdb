"""Imports what tasks need, in a process that forks them (``[fds] preload``)."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Final

log = logging.getLogger(__name__)

#: What the tasks of ``DeltaIngestOperator`` and ``DeltaFleetOperator`` import when they run, also on Spark Connect.
_OF_TASKS: Final = (
    "airflow_provider_fds.operators.run.ingest_run",
    "airflow_provider_fds.operators.run.fleet_run",
    "airflow_provider_fds.operators.delta_ingest",
    "airflow_provider_fds.operators.delta_fleet",
    "airflow_provider_fds.operators.lineage.asset_event",
    "airflow_provider_fds.operators.lineage.spark_lineage",
    "airflow_provider_fds.backends.spark_connect",
    "airflow_provider_fds.backends.spark_submit",
    "airflow_provider_fds.stream.monitoring.all_statuses",
    "airflow_provider_fds.stream.monitoring.metrics",
    "airflow_provider_fds.stream.monitoring.status_file",
    "airflow_provider_fds.stream.run.reporting",
    "airflow_provider_fds.triggers.deferral",
)


def preload() -> None:
    """Import what tasks need, and pyspark's client of Spark Connect if it is installed. Makes no connection.

    Processes that are forked later have it already. Never raises: a task imports what is missing itself.
    """
    try:
        for module in _OF_TASKS:
            import_module(module)
    except ImportError as error:
        log.warning("[fds] preload: tasks import what they need themselves, because of %s", error)
        return
    from airflow_provider_fds.spark.sessions.connect_server import connect_mode, import_client

    try:
        with connect_mode():
            import_client()
    except ImportError as error:
        # a setup without Spark Connect
        log.info("[fds] preload: the client of Spark Connect is not loaded: %s", error)
