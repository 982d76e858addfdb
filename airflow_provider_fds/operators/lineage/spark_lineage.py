"""Spark settings for OpenLineage's Spark agent: its events name this task as parent, and no staging files."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.hooks import lineage
from airflow_provider_fds.sinks import DeltaSink

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_fds.sinks import Sink

logger = logging.getLogger(__name__)

#: The agent sends nothing about a query whose plan has one of these at its root. FDS's own writes are such queries: the
#: task's event describes them by the table, while the agent would name a manifest in staging as the input.
DENIED_NODES: Final = "spark.openlineage.filter.deniedSparkNodes"
_OWN_WRITES: Final = (
    "org.apache.spark.sql.execution.datasources.SaveIntoDataSourceCommand",
    "org.apache.spark.sql.delta.commands.MergeIntoCommand",
)

#: The agent removes the group ``remove`` from the names of datasets. User code reads one manifest for each batch; with
#: this pattern they are a single dataset, the stream's folder in staging.
REMOVED_PATH: Final = "spark.openlineage.dataset.removePath.pattern"
_BELOW_THE_STREAM: Final = r"(?<remove>/manifests/[0-9]+/[^/]+)$"


def agent_settings(
    conf: Mapping[str, Any], context: Any, sink: Sink, *, injects_parent: bool, injects_transport: bool
) -> dict[str, str]:
    """Return the settings to add to ``conf``; none if nothing sends OpenLineage events. Never raises.

    Args:
        conf: The user's settings, which take precedence.
        context: The task's context.
        sink: Where the batches go.
        injects_parent: Whether the user has requested the task as the parent, even if Airflow sends no events.
        injects_transport: Whether the agent gets the transport that Airflow uses.
    """
    is_on = lineage.is_on()
    added: dict[str, Any] = {}
    try:
        from airflow.providers.common.compat.openlineage.utils import spark

        if is_on or injects_parent:
            added |= spark.inject_parent_job_information_into_spark_properties(dict(conf), context)
        if injects_transport:
            added |= spark.inject_transport_information_into_spark_properties(dict(conf), context)
    except Exception as error:  # lineage is never a reason to fail
        logger.warning("OpenLineage's Spark agent gets no settings from this task: %s", error)
        logger.debug("The settings of OpenLineage's agent were not made.", exc_info=True)
    if is_on and isinstance(sink, DeltaSink):
        added[DENIED_NODES] = f"[{';'.join(_OWN_WRITES)}]"
    elif is_on:
        added[REMOVED_PATH] = _BELOW_THE_STREAM
    return {key: str(value) for key, value in added.items() if key not in conf}
