"""The few calls of Airflow's REST API that the demo and the stack tests make. Standard library only."""

from __future__ import annotations

import json
import time
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import ProxyHandler, Request, build_opener

#: Seconds between attempts of a call that Airflow's database refused.
_PAUSES: Final = (0.2, 0.5, 1, 2, 4)


class AirflowClient:
    """A client of one API server.

    Args:
        url: Where the server is.
        login: User name and password; ``None`` for a server that lets everybody in
            (``simple_auth_manager_all_admins``).
    """

    def __init__(self, url: str, login: tuple[str, str] | None = None) -> None:
        self.url = url
        self._login = login
        self._token: str | None = None
        # the server is on this machine, whatever proxy the environment names
        self._opener = build_opener(ProxyHandler({}))

    def health(self) -> dict[str, Any]:
        """Return the health of the installation's parts."""
        return dict(self._send("GET", "/api/v2/monitor/health"))

    def import_errors(self) -> list[str]:
        """Return what is wrong with DAG files that could not be read."""
        return [error["stack_trace"] for error in self.call("GET", "/api/v2/importErrors")["import_errors"]]

    def has_dag(self, dag_id: str) -> bool:
        """Whether the scheduler knows the DAG."""
        return self._found(f"/api/v2/dags/{quote(dag_id)}") is not None

    def unpause(self, dag_id: str) -> None:
        """Let the scheduler make runs of the DAG."""
        self.call("PATCH", f"/api/v2/dags/{quote(dag_id)}", body={"is_paused": False})

    def trigger(self, dag_id: str) -> str:
        """Start a run of the DAG and return its id."""
        run = self.call("POST", f"/api/v2/dags/{quote(dag_id)}/dagRuns", body={"logical_date": None})
        return str(run["dag_run_id"])

    def runs(self, dag_id: str) -> list[dict[str, Any]]:
        """Return the last 100 runs of the DAG, the newest first."""
        found = self._found(f"/api/v2/dags/{quote(dag_id)}/dagRuns", order_by="-run_after", limit="100")
        return [] if found is None else list(found["dag_runs"])

    def run_state(self, dag_id: str, run_id: str) -> str:
        """Return ``queued``, ``running``, ``success`` or ``failed``."""
        return str(self.call("GET", f"/api/v2/dags/{quote(dag_id)}/dagRuns/{quote(run_id)}")["state"])

    def tasks(self, dag_id: str, run_id: str) -> dict[str, dict[str, Any]]:
        """Return the task instances of a run (``state``, ``try_number`` …) by task id."""
        found = self.call("GET", f"/api/v2/dags/{quote(dag_id)}/dagRuns/{quote(run_id)}/taskInstances")
        return {task["task_id"]: task for task in found["task_instances"]}

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value") -> Any:
        """Return an XCom value of a task, or ``None`` if it does not exist."""
        found = self._found(
            f"/api/v2/dags/{quote(dag_id)}/dagRuns/{quote(run_id)}/taskInstances/{quote(task_id)}"
            f"/xcomEntries/{quote(key)}"
        )
        return None if found is None else found["value"]

    def variable(self, key: str) -> str | None:
        """Return the value of a Variable, or ``None`` if it does not exist."""
        found = self._found(f"/api/v2/variables/{quote(key, safe='')}")
        return None if found is None else str(found["value"])

    def variables(self) -> dict[str, str]:
        """Return all Variables."""
        return {item["key"]: item["value"] for item in self.call("GET", "/api/v2/variables", limit="100")["variables"]}

    def asset_events(self, dag_id: str) -> list[dict[str, Any]]:
        """Return the asset events that tasks of the DAG have emitted, the oldest first."""
        found = self.call("GET", "/api/v2/assets/events", source_dag_id=dag_id, order_by="timestamp", limit="100")
        return list(found["asset_events"])

    def call(self, method: str, path: str, *, body: object = None, **parameters: str) -> Any:
        """Call the API and return the decoded answer.

        A call that the database refused is repeated: SQLite rolls a transaction back if another one has changed what it
        read.

        Raises:
            HTTPError: With the answer's text.
        """
        if self._token is None:
            if self._login is None:
                answer = self._send("GET", "/auth/token")
            else:
                user, password = self._login
                answer = self._send("POST", "/auth/token", {"username": user, "password": password})
            self._token = answer["access_token"]
        target = f"{path}?{urlencode(parameters)}" if parameters else path
        for pause in _PAUSES:
            try:
                return self._send(method, target, body)
            except HTTPError as error:
                if error.code != 500 or "Database error" not in error.msg:
                    raise
            time.sleep(pause)
        return self._send(method, target, body)

    def _found(self, path: str, **parameters: str) -> Any:
        try:
            return self.call("GET", path, **parameters)
        except HTTPError as error:
            if error.code == 404:
                return None
            raise

    def _send(self, method: str, target: str, body: object = None) -> Any:
        request = Request(self.url + target, method=method, headers={"Accept": "application/json"})
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        if self._token is not None:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with self._opener.open(request, timeout=120) as answer:
                text = answer.read()
        except HTTPError as error:
            said = error.read().decode(errors="replace")[:500]
            raise HTTPError(
                error.url, error.code, f"{method} {target}: {error.reason}: {said}", error.hdrs, None
            ) from error
        return json.loads(text) if text else None
