"""The client of Airflow's REST API repeats what a busy SQLite refuses, and nothing else."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.error import HTTPError

import airflow_client
import pytest

REFUSED = {"detail": {"reason": "Database error", "message": "Serious error when handling your request."}}


@pytest.fixture
def server(monkeypatch):
    """An API server that gives the prepared answers one after the other, and keeps the calls."""
    monkeypatch.setattr(airflow_client, "_PAUSES", (0, 0))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.path == "/auth/token":
                code, found = 200, {"access_token": "token"}
            else:
                self.server.calls.append(f"{self.command} {self.path}")
                code, found = self.server.answers.pop(0)
            body = json.dumps(found).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815  # the names that the base class asks for

        def log_message(self, *_):
            """Say nothing."""

    found = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.answers, found.calls = [], []
    thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield found
    found.shutdown()
    found.server_close()
    thread.join()


def trigger(server) -> str:
    return airflow_client.AirflowClient(f"http://127.0.0.1:{server.server_port}").trigger("loads")


def test_a_call_that_the_database_refuses_is_repeated(server):
    server.answers = [(500, REFUSED), (500, REFUSED), (200, {"dag_run_id": "r1"})]
    assert trigger(server) == "r1"
    assert server.calls == ["POST /api/v2/dags/loads/dagRuns"] * 3


@pytest.mark.parametrize(("code", "answer"), [(500, {"detail": "a defect"}), (404, {"detail": "no such DAG"})])
def test_another_error_is_raised_at_once(server, code, answer):
    server.answers = [(code, answer)]
    with pytest.raises(HTTPError, match=answer["detail"]):
        trigger(server)


def test_a_database_that_refuses_again_and_again_is_an_error(server):
    server.answers = [(500, REFUSED)] * 3
    with pytest.raises(HTTPError, match="Database error"):
        trigger(server)
