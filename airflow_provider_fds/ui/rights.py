"""Who may see and change a stream, according to Airflow's auth manager.

Whoever may read the DAG that loads a stream may see the stream, and whoever may edit that DAG may change it. If no
DAG of this installation is known to load it, the permissions on the stream's Variable apply.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import VariableDetails
from airflow.api_fastapi.core_api.security import requires_access_dag
from airflow.models.dag import DagModel
from airflow.utils.session import create_session
from fastapi import HTTPException, Request, status
from sqlalchemy import select

from airflow_provider_fds.checkpoint.variable import variable_key
from airflow_provider_fds.ui.dags import dag_here

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow.api_fastapi.auth.managers.models.base_user import BaseUser

    from airflow_provider_fds.stream.monitoring.status_row import StatusRow

    Method = Literal["GET", "PUT"]


class Rights:
    """The rights of the user of one request.

    Args:
        request: The request.
        user: Its user.
        deployment: Name of this Airflow installation.
    """

    def __init__(self, request: Request, user: BaseUser, deployment: str) -> None:
        self._request = request
        self._user = user
        self._deployment = deployment

    def readable(self, streams: Iterable[StatusRow]) -> list[StatusRow]:
        """Return the streams that the user may see. A fixed number of queries, however many streams there are."""
        streams = list(streams)
        manager: Any = get_auth_manager()
        allowed = manager.get_authorized_dag_ids(user=self._user, method="GET")
        others = {dag for one in streams if (dag := self._dag_of(one)) is not None} - allowed
        refused = _existing(others)
        return [one for one in streams if self._may_read(one, allowed, refused)]

    def may_see(self, name: str) -> bool:
        """Whether the user may see a stream of which only the name is known."""
        return self._has_variable("GET", name)

    def require(self, method: Method, stream: StatusRow) -> None:
        """Raise 403 unless the user may see (``GET``) or change (``PUT``) a stream."""
        dag_id = self._dag_of(stream)
        if dag_id is not None and _existing({dag_id}):
            check: Any = requires_access_dag(method, None, dag_id)
            check(self._request, self._user)
        elif not self._has_variable(method, stream.name):
            raise HTTPException(status.HTTP_403_FORBIDDEN, "Forbidden")

    def may(self, method: Method, stream: StatusRow) -> bool:
        """Whether the user may see (``GET``) or change (``PUT``) a stream."""
        try:
            self.require(method, stream)
        except HTTPException:
            return False
        return True

    def _may_read(self, stream: StatusRow, allowed: set[str], refused: set[str]) -> bool:
        dag_id = self._dag_of(stream)
        if dag_id in allowed:
            return True
        return dag_id not in refused and self._has_variable("GET", stream.name)

    def _dag_of(self, stream: StatusRow) -> str | None:
        return dag_here(stream, self._deployment)

    def _has_variable(self, method: Method, name: str) -> bool:
        manager: Any = get_auth_manager()
        details = VariableDetails(key=variable_key(name))
        return bool(manager.is_authorized_variable(method=method, details=details, user=self._user))


def _existing(dag_ids: set[str]) -> set[str]:
    """Return those that Airflow knows: the right on a DAG that was deleted says nothing."""
    if not dag_ids:
        return set()
    with create_session() as session:
        return set(session.scalars(select(DagModel.dag_id).where(DagModel.dag_id.in_(dag_ids))))
