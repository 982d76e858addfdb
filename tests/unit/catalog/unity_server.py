"""A small HTTP server that gives the answers of a real Unity Catalog, as recorded, or others that a test sets."""

from __future__ import annotations

import copy
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable

RECORDED = Path(__file__).parent / "recorded"
ROOT = "/api/2.1/unity-catalog"


def recorded(name: str) -> Any:
    """Return the body of a recorded answer, to change."""
    return copy.deepcopy(json.loads((RECORDED / f"{name}.json").read_text())["response"]["body"])


class Reply:
    """An answer: a status, a body, headers. A body of bytes is sent as it is; an iterator in chunks."""

    def __init__(self, status: int, body: Any = None, **headers: str) -> None:
        self.status = status
        self.body = body
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class UnityServer:
    """Answers what :attr:`replies` has for ``GET /path``; a list of replies is given out one by one, the last stays.

    What is a function is called for each request.

    Attributes:
        requests: Method, path, query, authorization and body of each request.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str], str, str]] = []
        self.replies: dict[str, Reply | list[Reply] | Callable[[], Reply]] = {}
        for path in sorted(RECORDED.glob("*.json")):
            found = json.loads(path.read_text())
            if found["request"]["method"] == "GET" and "config_" not in path.name:
                body = found["response"]["body"]
                self.replies[f"GET {found['request']['path']}"] = Reply(found["response"]["status"], body)
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # an answer is two writes: the second one would wait for the client's acknowledgement
            disable_nagle_algorithm = True

            def log_message(self, *_: object) -> None:
                """Say nothing."""

            def do_GET(self) -> None:
                server._answer(self)

            do_POST = do_GET  # noqa: N815

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def paths(self) -> list[str]:
        return [f"{method} {path}" for method, path, *_ in self.requests]

    def _answer(self, handler: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(handler.path)
        path = parts.path.removeprefix(ROOT)
        length = int(handler.headers.get("content-length") or 0)
        body = handler.rfile.read(length).decode()
        authorization = handler.headers.get("authorization", "")
        self.requests.append((handler.command, path, dict(parse_qsl(parts.query)), authorization, body))
        found = self.replies.get(f"{handler.command} {path}", Reply(404, b""))
        if isinstance(found, list):
            found = found.pop(0) if len(found) > 1 else found[0]
        elif not isinstance(found, Reply):
            found = found()
        handler.send_response(found.status)
        for name, value in found.headers.items():
            handler.send_header(name, value)
        if hasattr(found.body, "__next__"):
            handler.send_header("connection", "close")
            handler.end_headers()
            handler.close_connection = True
            try:
                for chunk in found.body:
                    handler.wfile.write(chunk)
            except OSError:
                pass
            return
        content = found.body if isinstance(found.body, bytes) else json.dumps(found.body).encode()
        handler.send_header("content-length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)
