"""The DAGs of streams, according to Airflow's database."""

from __future__ import annotations

from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from airflow.models.dag import DagModel
from airflow.utils.session import create_session
from sqlalchemy import select

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_fds.stream.monitoring.status_row import StatusRow

#: Time for which an answer of the database is used again.
_FRESH_SECONDS: Final = 5.0


def dag_here(stream: StatusRow, deployment: str) -> str | None:
    """Return the DAG that loads a stream, if it is one of this installation."""
    return stream.dag_id if stream.deployment == deployment else None


class KnownDags:
    """The DAGs that Airflow has now, with their owners. Safe for use by several threads."""

    def __init__(self) -> None:
        self._owners: dict[str, list[str]] = {}
        self._asked: set[str] = set()
        self._read_at = 0.0
        self._lock = Lock()

    def describe(self, streams: Sequence[StatusRow], deployment: str) -> list[dict[str, Any]]:
        """Return for each stream the owners of its DAG, and whether that DAG is gone, with at most one query."""
        dags = [dag_here(one, deployment) for one in streams]
        owners = self._read({dag_id for dag_id in dags if dag_id is not None})
        return [
            {"dag_owners": owners.get(dag_id or "", []), "dag_is_gone": dag_id is not None and dag_id not in owners}
            for dag_id in dags
        ]

    def has(self, dag_id: str) -> bool:
        """Return whether Airflow has a DAG now."""
        return dag_id in self._read({dag_id})

    def _read(self, wanted: set[str]) -> dict[str, list[str]]:
        with self._lock:
            is_fresh = monotonic() - self._read_at <= _FRESH_SECONDS
            if not wanted or (is_fresh and wanted <= self._asked):
                return self._owners
            self._asked |= wanted
            # Airflow keeps a DAG that is no longer in its bundle, as stale
            query = select(DagModel.dag_id, DagModel.owners).where(DagModel.dag_id.in_(self._asked), ~DagModel.is_stale)
            with create_session() as session:
                found = session.execute(query).all()
            self._owners = {dag: [one.strip() for one in (names or "").split(",") if one] for dag, names in found}
            self._read_at = monotonic()
            return self._owners
