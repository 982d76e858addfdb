"""The context of a stream in Airflow: connections, settings, the Variable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.checkpoint.registry import checkpoint_store
from airflow_provider_fds.hooks.places import sink_places, table_places
from airflow_provider_fds.hooks.settings import deployment as this_deployment
from airflow_provider_fds.hooks.settings import refuse_former_settings, retention, schema_changes, staging_uri
from airflow_provider_fds.hooks.storage import storage_options
from airflow_provider_fds.ledger.owner import Actor, Owner
from airflow_provider_fds.stream.connected_stream import StreamContext

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream import DeltaStream


def working_context(
    stream: DeltaStream,
    *,
    actor: Actor,
    owner: Owner,
    owner_is_running: Callable[[Owner], bool],
    sink: Sink | None = None,
    run_since: datetime | None = None,
) -> StreamContext:
    """Return the context of a task that works on a stream. Looks up connections; accesses no storage.

    Raises:
        ConfigurationError: A connection is missing or of the wrong type, there is no staging folder, or a setting in
            ``[fds]`` is invalid.
    """
    refuse_former_settings()
    # used only after the load, which must not fail then
    retention()
    staging = staging_uri(stream.staging, stream.name)
    if sink is not None:
        _grant_database(sink.database_conn_id)
    return StreamContext(
        places=table_places(stream.storage_conn_id, stream.table, stream.catalog_conn_id),
        staging_uri=staging,
        staging_options=storage_options(stream.storage_conn_id, staging),
        checkpoints=checkpoint_store(stream.name, stream.checkpoint, stream.table_uri),
        deployment=actor.deployment,
        actor=actor,
        owner=owner,
        owner_is_running=owner_is_running,
        sink_places=sink_places(stream.storage_conn_id, sink),
        grant_database=_grant_database,
        schema_changes=schema_changes(),
        run_since=run_since,
    )


def reading_context(stream: DeltaStream, *, staging: str | None = None, deployment: str | None = None) -> StreamContext:
    """Return the context of a sensor or a trigger, which only reads.

    Args:
        stream: The stream.
        staging: Staging folder; ``None``: as configured where this runs.
        deployment: Name of the installation; ``None``: as configured where this runs.

    Raises:
        ConfigurationError: As :func:`working_context`.
    """
    staging = staging or staging_uri(stream.staging, stream.name)
    deployment = deployment or this_deployment()
    return StreamContext(
        places=table_places(stream.storage_conn_id, stream.table, stream.catalog_conn_id),
        staging_uri=staging,
        staging_options=storage_options(stream.storage_conn_id, staging),
        checkpoints=checkpoint_store(stream.name, stream.checkpoint, stream.table_uri),
        deployment=deployment,
        actor=Actor(deployment=deployment),
        owner=Owner(kind="airflow", deployment=deployment),
        owner_is_running=lambda _owner: True,
    )


def _grant_database(conn_id: str | None) -> None:
    if conn_id is not None:
        # few sinks are in a database
        from airflow_provider_fds.hooks.databases import grant_database

        grant_database(conn_id)
