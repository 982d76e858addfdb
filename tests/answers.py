"""A server on loopback that gives recorded answers."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def answering(
    answers: tuple[Any, ...], headers: list[dict[str, str]] | None = None
) -> tuple[ThreadingHTTPServer, list]:
    """Return a server, and the requests that it gets: method, path and body of each.

    Args:
        answers: What it answers, the last one for ever: bytes or JSON, with or without a status before. That of 302 or
            307 is the address to which it redirects.
        headers: Gets the headers of each request.
    """
    asked: list[tuple[str, str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked.append((self.command, self.path, json.loads(body) if body else None))
            if headers is not None:
                headers.append(dict(self.headers))
            found = answers[min(len(asked), len(answers)) - 1]
            status, answer = found if isinstance(found, tuple) else (200, found)
            self.send_response(status)
            if status in (302, 307):
                self.send_header("Location", f"{answer}{self.path}")
                answer = b""
            data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_POST = do_DELETE = answer  # noqa: N815 - names of the base class

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    return server, asked
