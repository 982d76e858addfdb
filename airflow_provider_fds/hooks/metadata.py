"""A stream's data in Airflow's metadata database, for commands that run where no task API is available."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.checkpoint.variable import variable_key
from airflow_provider_fds.errors import StorageError
from airflow_provider_fds.ledger.position import Checkpoint
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from sqlalchemy.orm import Session

#: Events that are looked through for the newest one of a stream, newest first.
_EVENTS: Final = 10_000


@dataclass(frozen=True, slots=True)
class CommittedEvent:
    """The newest asset event of a stream, which Airflow wrote in the transaction that marked a task a success.

    Attributes:
        when: When Airflow wrote it.
        run: The run that caused it, ``dag_id/run_id``.
        epoch: Epoch of its batches.
        last_batch_id: Its last batch.
        end: End of its last batch (inclusive), offset JSON.
    """

    when: datetime
    run: str
    epoch: int
    last_batch_id: int
    end: str


def newest_event(stream: str) -> CommittedEvent | None:
    """Return the newest asset event of a stream, if it is among the newest 10,000 of all assets; else ``None``.

    Raises:
        StorageError: Airflow is not installed here, or its database does not answer.
    """
    with _session() as session:
        from airflow.models.asset import AssetEvent
        from sqlalchemy import select

        for event in session.scalars(select(AssetEvent).order_by(AssetEvent.id.desc()).limit(_EVENTS)):
            extra: dict[str, Any] = event.extra or {}
            if extra.get("stream") == stream and "end" in extra:
                run = f"{event.source_dag_id}/{event.source_run_id}"
                return CommittedEvent(
                    event.timestamp, run, int(extra["epoch"]), int(extra["last_batch_id"]), str(extra["end"])
                )
    return None


class MetadataVariable:
    """The Variable of a stream, read from the database: :class:`VariableCheckpointStore` needs a running task."""

    def __init__(self, stream: str) -> None:
        self.key = variable_key(stream)
        self.home = f"Airflow Variable {self.key!r}"

    def read(self) -> Checkpoint | None:
        """Return the checkpoint, or ``None`` if there is no such Variable.

        Raises:
            CheckpointError: The Variable does not contain a checkpoint.
            StorageError: Airflow is not installed here, or its database does not answer.
        """
        with _session() as session:
            from airflow.models.variable import Variable
            from sqlalchemy import select

            found = session.scalar(select(Variable).where(Variable.key == self.key))
            text = None if found is None else str(found.get_val())
        return None if text is None else Checkpoint.from_json(text, home=self.home)

    def remove(self) -> None:
        """Delete the Variable: the next run writes it from the ledger. Raises as :meth:`read` does."""
        with _session() as session:
            from airflow.models.variable import Variable
            from sqlalchemy import delete

            session.execute(delete(Variable).where(Variable.key == self.key))


@contextmanager
def _session() -> Iterator[Session]:
    try:
        from airflow.utils.session import create_session
        from sqlalchemy.exc import SQLAlchemyError
    except ImportError as error:
        raise StorageError(
            f"Airflow cannot be imported here ({error}). Run the command where Airflow is installed, with its "
            "configuration (AIRFLOW_HOME, [database] sql_alchemy_conn), or omit --airflow",
            reason=Reason.AIRFLOW_UNAVAILABLE,
        ) from error
    try:
        with create_session() as session:
            yield session
    except SQLAlchemyError as error:
        raise StorageError(
            f"Airflow's metadata database does not answer ({type(error).__name__}). Run the command with Airflow's "
            "configuration (AIRFLOW_HOME, [database] sql_alchemy_conn), or omit --airflow",
            reason=Reason.AIRFLOW_UNAVAILABLE,
        ) from error
