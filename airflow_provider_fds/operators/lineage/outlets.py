"""What operators declare to Airflow in a DAG file: outlets of a sink and of alerts, the inlet of a checkpoint."""

from __future__ import annotations

from typing import Any, Final

from airflow.providers.common.compat.sdk import Asset, AssetAlias

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.stream.declaration.delta_stream import DeltaStream

#: How the names of alert outlets begin and end, which events about a sink do not use.
_BEGINNING: Final = "fds:"
_ENDING: Final = ":alerts"


def default_outlet(dag_id: str, task_id: str) -> AssetAlias:
    """Return the default outlet of an operator: an alias, whose events may name any asset, or none."""
    return AssetAlias(name=f"{_BEGINNING}{dag_id}.{task_id}")


def alert_outlet(dag_id: str, task_id: str) -> AssetAlias:
    """Return the outlet through which a task emits the incidents of any stream."""
    return AssetAlias(name=f"{_BEGINNING}{dag_id}.{task_id}{_ENDING}")


def is_alert_outlet(outlet: object) -> bool:
    """Whether an outlet is one of :func:`alert_outlet`."""
    return isinstance(outlet, AssetAlias) and outlet.name.startswith(_BEGINNING) and outlet.name.endswith(_ENDING)


def add_alert_outlet(operator: Any, alerts: object) -> None:
    """Give an operator with alerts the outlet for them.

    Raises:
        ConfigurationError: ``alerts`` is neither ``None`` nor ``StreamAlerts``.
    """
    if alerts is None:
        return
    from airflow_provider_fds.stream.monitoring.alerts import StreamAlerts

    if not isinstance(alerts, StreamAlerts):
        raise ConfigurationError(
            f"alerts must be StreamAlerts(…), such as StreamAlerts(notifiers=[…]), got {alerts!r}.",
            subject=f"task {operator.task_id!r}",
        )
    operator.outlets = [*operator.outlets, alert_outlet(operator.dag_id, operator.task_id)]


def add_checkpoint_inlet(operator: Any, stream: object) -> None:
    """Add the table's asset as an inlet, without which Airflow keeps no state of it.

    If the stream is known only when the task runs, or its table is a template, the user must declare the inlet.

    Raises:
        ConfigurationError: Airflow is older than 3.3.
    """
    if not isinstance(stream, DeltaStream) or stream.checkpoint != "asset":
        return
    from airflow_provider_fds.checkpoint.asset import check_asset_state_store, table_asset_uri

    check_asset_state_store()
    if "{{" not in stream.table:
        asset = Asset(table_asset_uri(stream.table_uri))
        # an asset of another name and the same URI would conflict with the user's
        if asset.uri not in {getattr(inlet, "uri", None) for inlet in operator.inlets}:
            operator.inlets = [*operator.inlets, asset]
