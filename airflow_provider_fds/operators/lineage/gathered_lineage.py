"""What a task has read and written, for OpenLineage: gathered while the task runs.

Airflow asks for the facets in a forked process, in which no storage can be read. So a task gathers them before it ends,
and only if the installation sends OpenLineage events. ``lineage_values`` has the value, ``lineage_facets`` its facet,
``spark_lineage`` the settings of the Spark agent, and ``hooks/lineage.py`` the names of tables and assets.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import replace
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.storage.open import canonical_uri
from airflow_provider_fds.hooks import lineage
from airflow_provider_fds.operators.lineage.lineage_values import Lineage, TableUse

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from airflow_provider_fds.operators.lineage.emits_lineage import EmitsLineage
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream.run.session import StreamSession

logger = logging.getLogger(__name__)

#: How long a task waits for the schemas of its tables.
_SCHEMA_SECONDS: Final = 20.0


@contextmanager
def gathering(operator: EmitsLineage, session: StreamSession, sink: Sink | None) -> Iterator[None]:
    """Record, after the body, what the run has committed, also if the body fails. Never raises an error of its own.

    Reads the source's and the sink's log for their schemas, unless the body has failed: the storage may be the reason.
    """
    if not lineage.is_on():
        yield
        return
    try:
        yield
    except BaseException:
        operator._lineage = gathered(session, sink, reads_schemas=False)  # noqa: SLF001  # its own part
        raise
    operator._lineage = gathered(session, sink)  # noqa: SLF001


def gathered(session: StreamSession, sink: Sink | None, *, reads_schemas: bool = True) -> Lineage | None:
    """Return what the run has committed, or ``None`` if that is nothing or cannot be found out."""
    try:
        result = session.result()
        if result is None:
            return None
        connected = session.connected
        # user code reads manifests; the agent reports nothing about FDS's own writes
        alias = f"{connected.staging.uri}/{session.stream.name}" if sink is None or sink.target == "function" else None
        source = TableUse(connected.table.uri, result.last_version, alias=alias)
        sinks = _sink_tables(session, sink, result)
        if reads_schemas:
            logs = [connected.log, *(DeltaLog(connected.open_sink(one.uri)) for one in sinks)]
            source, *sinks = _with_schemas([source, *sinks], logs)
        return Lineage(session.stream, source, tuple(sinks), sink, connected.state.uuid, result.to_dict())
    except Exception:  # lineage is never a reason to fail
        logger.debug("The lineage of stream %s was not gathered.", session.stream.name, exc_info=True)
        return None


def _sink_tables(session: StreamSession, sink: Sink | None, result: Any) -> list[TableUse]:
    if sink is None:
        return []
    if sink.table_uri is not None:
        return [TableUse(session.connected.sink_target(sink.table_uri), result.sink_version)]
    versions = session.connected.state.tables
    return [TableUse(canonical_uri(uri), versions.get(name)) for name, uri in sink.tables.items()]


def _with_schemas(tables: Sequence[TableUse], logs: Sequence[DeltaLog]) -> list[TableUse]:
    """Return the tables with their metadata, as far as it can be read in time: the rows are committed already."""
    found = list(tables)

    def read() -> None:
        for number, (table, log) in enumerate(zip(tables, logs, strict=True)):
            found[number] = _with_schema(table, log)

    reader = Thread(target=read, name="fds-lineage", daemon=True)
    reader.start()
    reader.join(_SCHEMA_SECONDS)
    if reader.is_alive():
        logger.info("The events of OpenLineage lack schemas: they were not read within %d seconds.", _SCHEMA_SECONDS)
    return list(found)


def _with_schema(table: TableUse, log: DeltaLog) -> TableUse:
    """Return the table with its metadata, or as it is if its log cannot be read from here."""
    if table.version is None or table.version < 0:
        return table
    try:
        return replace(table, metadata=log.state_at(table.version).metadata)
    except Exception:  # the worker may not be allowed to read the sink, or log cleanup was faster
        logger.debug("The schema of %s at version %s was not read.", table.uri, table.version, exc_info=True)
        return table
