"""What a sink itself records of a stream: the log of a Delta table, or the account of a database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, cast

from airflow_provider_fds.stream.actions.recovery import ask_checkpoint, ask_sink

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.ledger.position import Checkpoint
    from airflow_provider_fds.ledger.values import SinkBinding
    from airflow_provider_fds.sinks import PostgresSink
    from airflow_provider_fds.stream.actions.recovery import SinkAccount


class SinkRecord(Protocol):
    """A sink that records which batches of a stream it has."""

    def of_stream(self, stream: str, uuid: str | None) -> SinkAccount | None:
        """Return what it records about a stream, or ``None`` if nothing. Raises as :func:`.recovery.ask_sink`."""

    def of_checkpoint(self, checkpoint: Checkpoint) -> SinkAccount | None:
        """Return what it records if its newest batch is the checkpoint's, where its records of batches are gone."""


def record_of(
    bound: SinkBinding,
    open_table: Callable[[str], Storage],
    grant_database: Callable[[str | None], object],
) -> SinkRecord | None:
    """Return the record of a sink, or ``None`` if user code writes it.

    Args:
        bound: The sink.
        open_table: Opens a Delta table.
        grant_database: Lets this process open the database of a connection.
    """
    if bound.is_user_defined:
        return None
    if bound.has_log:
        return LogRecord(open_table(bound.target))
    from airflow_provider_fds.stream.actions.recorded_in_database import DatabaseRecord

    sink = cast("PostgresSink", bound.sink())
    grant_database(sink.database_conn_id)
    return DatabaseRecord(sink, bound)


class LogRecord:
    """The commits of a Delta table.

    Args:
        storage: Its folder.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def of_stream(self, stream: str, uuid: str | None) -> SinkAccount | None:
        """Return what the log says; see :meth:`SinkRecord.of_stream`."""
        return ask_sink(self._storage, stream, uuid)

    def of_checkpoint(self, checkpoint: Checkpoint) -> SinkAccount | None:
        """Return what the newest transaction says; see :meth:`SinkRecord.of_checkpoint`."""
        return ask_checkpoint(self._storage, checkpoint)
