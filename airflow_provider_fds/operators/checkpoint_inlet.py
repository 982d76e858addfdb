"""The inlet of an operator whose stream has its checkpoint in the state store of an asset."""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.sdk import Asset

from airflow_provider_fds.stream.declaration.delta_stream import DeltaStream


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
