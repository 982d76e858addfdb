"""A real S3 server (moto) on loopback that counts requests, and fails as real servers and their networks do."""

from __future__ import annotations

import re
import socket
import threading
import urllib.request
from collections import Counter
from dataclasses import dataclass

EXPIRED = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"

#: No server waits longer than this for a test that forgot it.
LONGEST_SECONDS = 60
#: A slow body comes in this many pieces, with this much time between them.
PIECES = 5
PIECE_SECONDS = 0.3


@dataclass
class Fault:
    """A fault of some requests.

    Attributes:
        kind: ``status`` and ``status_after`` (this response before or after the store did it), ``reset_before`` and
            ``reset_after`` (the connection breaks), ``silent_before`` and ``silent_after`` (no response ever comes),
            ``cut`` (the connection breaks within the body), ``stall`` (the body stops in the middle), ``slow`` (it
            comes in pieces).
        method: ``GET``, ``LIST``, ``HEAD``, ``PUT``, ``DELETE``; empty: all.
        path: Only requests whose path contains this.
        times: How many requests fail.
        after: How many requests pass first.
        status: For kind ``status``: the status line.
        body: For kind ``status``: the body.
    """

    kind: str
    method: str = ""
    path: str = ""
    times: int = 1 << 30
    after: int = 0
    status: str = "503 Service Unavailable"
    body: bytes = b""


class Server:
    """A moto server; every request passes through this class first."""

    def __init__(self):
        from moto.server import ThreadedMotoServer

        self._moto = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        self._moto.start()
        host, port = self._moto.get_host_and_port()
        self.endpoint = f"http://{host}:{port}"
        self._app = self._moto._server.app
        self._moto._server.app = self._serve
        self._lock = threading.Lock()
        self._released = threading.Event()
        self._writing = threading.Lock()
        self._meeting = None
        self.meetings = 0
        self.requests = Counter()
        self.faults = []
        self.bucket = ""
        self.is_conditional = True
        self.keys_by_bucket = {}
        #: Says of a path and a key of access whether requests pass; ``None``: all do.
        self.is_valid_key = None

    def _serve(self, environ, start_response):
        method = environ["REQUEST_METHOD"]
        if method == "GET" and "list-type" in environ.get("QUERY_STRING", ""):
            method = "LIST"
        with self._lock:
            self.requests[method] += 1
            fault = self._fault_for(method, environ["PATH_INFO"])
            is_valid = self._remember_key(environ)
        if not is_valid:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response("403 Forbidden", [("Content-Length", str(len(EXPIRED)))])
            return [b"" if method == "HEAD" else EXPIRED]
        if not self.is_conditional:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        if fault is None:
            return self._perform(method, environ, start_response)
        if fault.kind == "status":
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response(fault.status, [("Content-Length", str(len(fault.body)))])
            return [b"" if method == "HEAD" else fault.body]
        if fault.kind in ("cut", "stall", "slow"):
            return self._in_pieces(fault.kind, environ, start_response)
        if fault.kind == "status_after":
            self._answer_to_nobody(environ)
            start_response(fault.status, [("Content-Length", "0")])
            return [b""]
        if fault.kind.endswith("_after"):
            self._answer_to_nobody(environ)
        if fault.kind.startswith("silent"):
            self._released.wait(LONGEST_SECONDS)
        return self._hang_up(environ)

    def _perform(self, method, environ, start_response):
        if method not in ("PUT", "POST"):
            return self._app(environ, start_response)
        meeting = self._meeting
        is_met = meeting is not None and method == "PUT" and meeting[0] in environ["PATH_INFO"]
        if is_met and meeting[1].wait(LONGEST_SECONDS) == 0:
            self.meetings += 1
        # moto checks whether the key exists and then writes it; a store does both at once
        with self._writing:
            return self._app(environ, start_response)

    def _remember_key(self, environ):
        """Count the key of a request, and return whether it is valid."""
        bucket = environ["PATH_INFO"].split("/")[1]
        found = re.search(r"Credential=([^/]+)/", environ.get("HTTP_AUTHORIZATION", ""))
        if found:
            self.keys_by_bucket.setdefault(bucket, Counter())[found[1]] += 1
        return self.is_valid_key is None or self.is_valid_key(environ["PATH_INFO"], found[1] if found else "")

    def _fault_for(self, method, path):
        for fault in self.faults:
            if fault.method in ("", method) and fault.path in path and fault.times > 0:
                if fault.after > 0:
                    fault.after -= 1
                    return None
                fault.times -= 1
                return fault
        return None

    def _answer_to_nobody(self, environ):
        for _ in self._app(environ, lambda *_: None):
            pass

    def _in_pieces(self, kind, environ, start_response):
        body = b"".join(self._app(environ, start_response))
        if kind == "slow":
            step = len(body) // PIECES + 1
            for i in range(0, len(body), step):
                yield body[i : i + step]
                self._released.wait(PIECE_SECONDS)
            return
        yield body[: len(body) // 2]
        if kind == "stall":
            self._released.wait(LONGEST_SECONDS)
        self._hang_up(environ)

    def _hang_up(self, environ):
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        raise ConnectionResetError

    def fail(self, kind, method="", **more):
        """Let requests fail from now on, see :class:`Fault`."""
        self.faults.append(Fault(kind, method, **more))

    def let_meet(self, path, parties):
        """From now on, let PUT requests whose path contains ``path`` wait for each other, this many at a time."""
        self._meeting = (path, threading.Barrier(parties))
        self.meetings = 0

    def forget_conditions(self):
        """From now on, imitate an S3 that accepts ``If-None-Match`` and ignores it."""
        self.is_conditional = False

    def heal(self):
        """Let every request pass, and wake the waiting ones."""
        self.faults.clear()
        self.is_conditional = True
        self.is_valid_key = None
        if self._meeting is not None:
            self._meeting[1].abort()
            self._meeting = None
        self._released.set()
        self._released = threading.Event()

    def new_bucket(self, name):
        """Create an empty bucket and count from now on."""
        self.heal()
        request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")
        urllib.request.urlopen(request, timeout=30).close()
        self.bucket = name
        self.requests.clear()

    def keys(self, bucket):
        """Return the keys of all objects in a bucket."""
        request = f"{self.endpoint}/{bucket}?list-type=2&max-keys=1000"
        with urllib.request.urlopen(request, timeout=30) as answer:
            return re.findall(r"<Key>([^<]*)</Key>", answer.read().decode())

    def options(self, **more):
        """Return the storage options of this server."""
        return {
            "endpoint": self.endpoint,
            "region": "us-east-1",
            "access_key_id": "test",
            "secret_access_key": "test-secret",
            "retry_config": {"max_retries": 0},
            **more,
        }

    def stop(self):
        """Stop the server."""
        self.heal()
        self._moto.stop()
