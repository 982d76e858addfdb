"""Serves the page's files, with answers that a test decides, in a process of the test."""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import airflow_provider_fds

STATIC = Path(airflow_provider_fds.__file__).parent / "ui" / "static"

#: A page around the page, as Airflow's: the sandbox of its iframe is that of Airflow 3.3.
AROUND = """<!doctype html><html lang="en"><title>Airflow</title><body style="margin:0">
<iframe title="Delta streams" src="/fds/" style="border:0;width:100%;height:100vh"
 sandbox="allow-scripts allow-same-origin allow-forms allow-downloads"></iframe></body></html>"""


@dataclass
class PageServer:
    """Answers of the API by path, which a test sets; an answer is ``(status, JSON value)``, or a function of the body.

    Attributes:
        answers: By method and path below ``api/``, such as ``"GET streams"``.
        requests: What was asked, oldest first: method, path, body.
    """

    url: str = ""
    answers: dict[str, Any] = field(default_factory=dict)
    requests: list[tuple[str, str, Any]] = field(default_factory=list)

    def show(
        self, streams: list[dict[str, Any]], *, staging: tuple[str, ...] = ("s3://lake/_fds",), **more: Any
    ) -> None:
        """Answer with these streams."""
        answer = {"generated_at": datetime.now(UTC).isoformat(), "staging": list(staging), "problems": []} | more
        self.answers["GET streams"] = (200, answer | {"streams": streams})

    def show_stream(self, stream: dict[str, Any]) -> None:
        """Answer with this stream, when it is asked for."""
        self.answers[f"GET streams/{stream['id']}"] = (200, stream)

    def asked(self, method: str) -> list[tuple[str, Any]]:
        """Return path and body of the requests with a method."""
        return [(path, body) for used, path, body in self.requests if used == method]


class _Handler(SimpleHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, directory=str(STATIC), **keywords)

    def do_GET(self) -> None:
        if self.path.startswith("/fds/api/"):
            self._answer(None)
        elif self.path.startswith("/fds/"):
            self.path = self.path.removeprefix("/fds")
            super().do_GET()
        elif self.path.startswith("/plugin/"):
            self._send(200, AROUND.encode(), "text/html")
        else:  # a page of Airflow
            self._send(200, b"<!doctype html><title>Airflow's page</title>", "text/html")

    def do_POST(self) -> None:
        self._answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def _answer(self, body: Any) -> None:
        path = unquote(self.path.removeprefix("/fds/api/"))
        server = self.server.page_server
        server.requests.append((self.command, path, body))
        answer = server.answers.get(f"{self.command} {path}", (404, {"detail": "There is no such stream."}))
        status, value = answer(body) if callable(answer) else answer
        self._send(status, json.dumps(value).encode(), "application/json")

    def _send(self, status: int, data: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def log_message(self, *_: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    page_server: PageServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        # a page that is left does not wait for its answers
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def serve() -> tuple[PageServer, _Server]:
    """Start a server on a free port of loopback; the caller shuts the second value down."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.page_server = PageServer(f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.page_server, server
