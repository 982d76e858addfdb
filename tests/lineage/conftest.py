"""An Airflow with the provider of OpenLineage, which is in a folder of its own, and a server that receives its events.

A suite of its own, because the folder must be on the path before Airflow is imported.
"""

from __future__ import annotations

import gzip
import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

_FOLDER = Path(sys.prefix) / "openlineage"
if not _FOLDER.is_dir():
    raise pytest.UsageError(f"{_FOLDER} is missing: `scripts/bootstrap.sh dev` installs requirements/openlineage.txt")
sys.path.insert(0, str(_FOLDER))
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_FOLDER), os.environ.get("PYTHONPATH"))))

from tests.airflow.conftest import (  # noqa: E402  # they import Airflow
    _WARNINGS,
    airflow_database,
    airflow_home,
    installation,
    lake,
)

__all__ = ["airflow_database", "airflow_home", "installation", "lake"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(*_WARNINGS))


class Receiver:
    """An OpenLineage server that keeps the events it gets."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                receiver.events.append(json.loads(body))
                self.send_response(201)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def of(self, job: str, kind: str | None = None) -> list[dict[str, Any]]:
        """Return the events of a job, in order; ``kind`` is ``START``, ``COMPLETE`` or ``FAIL``."""
        return [
            event for event in self.events if event["job"]["name"] == job and kind in (None, event.get("eventType"))
        ]

    def datasets(self, side: str) -> set[tuple[str, str]]:
        """Return namespace and name of all ``inputs`` or ``outputs``."""
        return {(found["namespace"], found["name"]) for event in self.events for found in event.get(side, [])}

    def close(self) -> None:
        """Stop."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture(scope="session")
def _server() -> Iterator[Receiver]:
    """One for all tests: Airflow's listener, and the process that sends its events of DAG runs, keep their client."""
    found = Receiver()
    yield found
    found.close()


@pytest.fixture
def receiver(_server: Receiver, monkeypatch: pytest.MonkeyPatch) -> Receiver:
    """An OpenLineage server that this Airflow sends its events to."""
    from airflow.providers.openlineage import conf

    transport = {"type": "http", "url": _server.url, "endpoint": "api/v1/lineage", "auth": {"type": "api_key"}}
    transport["auth"] |= {"apiKey": "very-secret-key"}
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__TRANSPORT", json.dumps(transport))
    for each in vars(conf).values():
        if hasattr(each, "cache_clear"):
            each.cache_clear()
    _server.events.clear()
    return _server
