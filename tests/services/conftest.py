"""An Airflow with the providers of other services, which are in a folder of their own, and servers that stand for them.

A suite of its own, because the folder must be on the path before Airflow is imported (``make services``).
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT = Path(__file__).resolve().parents[2]
_FOLDER = ROOT / ".compat" / "services"
if not _FOLDER.is_dir():
    raise pytest.UsageError(f"{_FOLDER} is missing: `make services` installs requirements/services.txt")
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

EXAMPLES = ROOT / "airflow_provider_fds" / "example_dags"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(*_WARNINGS))


class LostAnswerError(Exception):
    """What a server's function raises that has done what it was asked, and whose answer does not arrive."""


class Service:
    """An HTTP server whose answers a function gives: ``answer(method, path, body) -> (status, value)``."""

    def __init__(self) -> None:
        self.answer: Callable[[str, str, Any], tuple[int, Any]] = lambda *_: (404, {})
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _any(self) -> None:
                text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                try:
                    status, value = service.answer(self.command, self.path, json.loads(text or "null"))
                except LostAnswerError:
                    self.close_connection = True
                    return
                data = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = _any  # noqa: N815  # names of the base class

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop it."""
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def service() -> Iterator[Service]:
    """A service on this machine."""
    made = Service()
    yield made
    made.close()


@pytest.fixture
def example(installation, lake, monkeypatch):
    """Return a function that loads ``services/orders_on_<name>.py``, on a lake with two orders and the jobs' files."""
    monkeypatch.setenv("FDS_EXAMPLE_LAKE", lake.uri)
    lake.append("orders", 1, 2)
    shutil.copytree(EXAMPLES / "jobs", lake.root / "code")

    def load(name: str) -> Any:
        dag = installation.add((EXAMPLES / "services" / f"orders_on_{name}.py").read_text())
        dag.get_task("load").retry_delay = timedelta(seconds=1)
        return dag

    return load
