# What type checkers see of the package: they cannot follow __getattr__, which loads the public names.
from airflow_provider_fds.errors import FdsError as FdsError
from airflow_provider_fds.fleet.table_pattern import TablePattern as TablePattern
from airflow_provider_fds.fleet.value import FleetStream as FleetStream
from airflow_provider_fds.hooks.delta_table import DeltaTableHook as DeltaTableHook
from airflow_provider_fds.operators.delta_commit import DeltaCommitOperator as DeltaCommitOperator
from airflow_provider_fds.operators.delta_fleet import DeltaFleetOperator as DeltaFleetOperator
from airflow_provider_fds.operators.delta_ingest import DeltaIngestOperator as DeltaIngestOperator
from airflow_provider_fds.operators.delta_plan import DeltaPlanOperator as DeltaPlanOperator
from airflow_provider_fds.operators.delta_stream_action import DeltaStreamActionOperator as DeltaStreamActionOperator
from airflow_provider_fds.operators.delta_stream_monitor import DeltaStreamMonitorOperator as DeltaStreamMonitorOperator
from airflow_provider_fds.operators.fleet_dags import fds_dags as fds_dags
from airflow_provider_fds.sensors.delta_table_version import DeltaTableVersionSensor as DeltaTableVersionSensor
from airflow_provider_fds.sinks import DeltaAppendSink as DeltaAppendSink
from airflow_provider_fds.sinks import DeltaMergeSink as DeltaMergeSink
from airflow_provider_fds.sinks import DeltaReplaceSink as DeltaReplaceSink
from airflow_provider_fds.sinks import ForeachBatchSink as ForeachBatchSink
from airflow_provider_fds.sinks import PostgresSink as PostgresSink
from airflow_provider_fds.stream import DeltaStream as DeltaStream
from airflow_provider_fds.stream.monitoring.alerts import StreamAlerts as StreamAlerts
from airflow_provider_fds.triggers.delta_fleet import DeltaFleetTrigger as DeltaFleetTrigger
from airflow_provider_fds.triggers.delta_interval import DeltaIntervalTrigger as DeltaIntervalTrigger
from airflow_provider_fds.triggers.delta_stream_monitor import DeltaStreamMonitorTrigger as DeltaStreamMonitorTrigger
from airflow_provider_fds.triggers.delta_table_change import (
    DeltaTableChangeTrigger as DeltaTableChangeTrigger,
)
from airflow_provider_fds.triggers.delta_table_condition import (
    DeltaTableConditionTrigger as DeltaTableConditionTrigger,
)
from airflow_provider_fds.triggers.delta_table_version import DeltaTableVersionTrigger as DeltaTableVersionTrigger
from airflow_provider_fds.triggers.delta_watermark import DeltaWatermarkTrigger as DeltaWatermarkTrigger

__version__: str
__all__ = [
    "DeltaAppendSink",
    "DeltaCommitOperator",
    "DeltaFleetOperator",
    "DeltaFleetTrigger",
    "DeltaIngestOperator",
    "DeltaIntervalTrigger",
    "DeltaMergeSink",
    "DeltaPlanOperator",
    "DeltaReplaceSink",
    "DeltaStream",
    "DeltaStreamActionOperator",
    "DeltaStreamMonitorOperator",
    "DeltaStreamMonitorTrigger",
    "DeltaTableChangeTrigger",
    "DeltaTableConditionTrigger",
    "DeltaTableHook",
    "DeltaTableVersionSensor",
    "DeltaTableVersionTrigger",
    "DeltaWatermarkTrigger",
    "FdsError",
    "FleetStream",
    "ForeachBatchSink",
    "PostgresSink",
    "StreamAlerts",
    "TablePattern",
    "__version__",
    "fds_dags",
]
