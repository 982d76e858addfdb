"""The minimum of an S3 server that FDS needs, on loopback: it keeps objects, and records its requests.

A full S3 imitation spends more time on a request than its client, so it would dominate the measurement. A delay and a
bandwidth make it a store far away.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import json
import os
import re
import sys
import threading
import time
from collections import Counter
from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from collections.abc import Iterator

_REASONS = {200: "OK", 204: "No Content", 206: "Partial Content", 404: "Not Found", 412: "Precondition Failed"}
_PAGE = 1000


class Request(NamedTuple):
    """A request: its method, its key or prefix, and when it came and was answered (seconds of one clock)."""

    method: str
    key: str
    start: float
    end: float


class Server:
    """Objects by key, and the requests.

    Args:
        objects: What the store has.
        delay: Seconds that each request takes.
        bytes_per_second: Speed at which contents are sent and received; 0: no limit.
        is_recording: Whether :attr:`recorded` gets each request; :attr:`requests` counts them by method in any case.
    """

    def __init__(
        self,
        objects: dict[str, bytes],
        *,
        delay: float = 0.0,
        bytes_per_second: float = 0.0,
        is_recording: bool = False,
    ) -> None:
        self.objects = objects
        self.requests: Counter[str] = Counter()
        self.recorded: list[Request] = []
        self._keys = sorted(objects)
        self.delay = delay
        self._bytes_per_second = bytes_per_second
        self._is_recording = is_recording

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionResetError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                start = time.perf_counter()
                method, target, _ = head.split("\r\n", 1)[0].split(" ")
                headers = {
                    name.strip().lower(): value.strip()
                    for name, _, value in (line.partition(":") for line in head.splitlines()[1:])
                }
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                answer = self.answer(method, target, headers, body)
                if self.delay:
                    size = len(body) + len(answer)
                    await asyncio.sleep(self.delay + (size / self._bytes_per_second if self._bytes_per_second else 0))
                if self._is_recording:
                    url = urlsplit(target)
                    query = parse_qs(url.query)
                    name = "LIST" if "list-type" in query else method
                    key = query.get("prefix", [""])[0] if name == "LIST" else _key(url.path)
                    self.recorded.append(Request(name, key, start, time.perf_counter()))
                writer.write(answer)
                await writer.drain()
        writer.close()

    def answer(self, method: str, target: str, headers: dict[str, str], body: bytes = b"") -> bytes:  # noqa: PLR0911
        url = urlsplit(target)
        key = _key(url.path)
        query = parse_qs(url.query, keep_blank_values=True)
        if url.path == "/_requests":
            return _response(200, str(dict(self.requests)).encode())
        if "list-type" in query:
            self.requests["LIST"] += 1
            return _response(200, self._listed(query))
        self.requests[method] += 1
        if method == "PUT":
            if headers.get("if-none-match") == "*" and key in self.objects:
                return _response(412, b"")
            self.put(key, body)
            return _response(200, b"")
        if method == "DELETE":
            self._delete(key)
            return _response(204, b"")
        if method == "POST" and "delete" in query:
            names = re.findall(r"<Key>(.*?)</Key>", body.decode())
            for name in names:
                self._delete(name)
            done = "".join(f"<Deleted><Key>{name}</Key></Deleted>" for name in names)
            return _response(200, f"<?xml version='1.0'?><DeleteResult>{done}</DeleteResult>".encode())
        data = self.objects.get(key)
        if data is None:
            return _response(404, b"", method)
        if wanted := re.fullmatch(r"bytes=(\d+)-(\d+)", headers.get("range", "")):
            first, last = int(wanted[1]), min(int(wanted[2]), len(data) - 1)
            return _response(
                206, data[first : last + 1], method, f"Content-Range: bytes {first}-{last}/{len(data)}\r\n"
            )
        return _response(200, data, method)

    def put(self, key: str, data: bytes) -> None:
        """Store an object."""
        if key not in self.objects:
            bisect.insort(self._keys, key)
        self.objects[key] = data

    def _delete(self, key: str) -> None:
        if self.objects.pop(key, None) is not None:
            del self._keys[bisect.bisect_left(self._keys, key)]

    def _listed(self, query: dict[str, list[str]]) -> bytes:
        prefix, after = query.get("prefix", [""])[0], query.get("start-after", [""])[0]
        after = query.get("continuation-token", [after])[0]
        found: list[str] = []
        folders: list[str] = []
        is_cut = False
        for key in self._keys_after(prefix, after):
            folder, mark, _ = key[len(prefix) :].partition("/")
            if "delimiter" in query and mark:
                if prefix + folder not in folders[-1:]:
                    folders.append(prefix + folder)
                continue
            if is_cut := len(found) == _PAGE:
                break
            found.append(key)
        items = "".join(
            f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>x</ETag>"
            f"<Size>{len(self.objects[key])}</Size></Contents>"
            for key in found
        )
        items += "".join(f"<CommonPrefixes><Prefix>{escape(one)}/</Prefix></CommonPrefixes>" for one in folders)
        more = f"<NextContinuationToken>{escape(found[-1])}</NextContinuationToken>" if is_cut else ""
        return (
            "<?xml version='1.0'?><ListBucketResult>"
            f"<IsTruncated>{str(is_cut).lower()}</IsTruncated><KeyCount>{len(found)}</KeyCount>{more}{items}"
            "</ListBucketResult>"
        ).encode()

    def _keys_after(self, prefix: str, after: str) -> Iterator[str]:
        keys = self._keys
        first = max(bisect.bisect_left(keys, prefix), bisect.bisect_right(keys, after) if after else 0)
        return takewhile(lambda key: key.startswith(prefix), (keys[at] for at in range(first, len(keys))))


def _key(path: str) -> str:
    """Return the key of a path: bucket and key."""
    return unquote(path).lstrip("/").partition("/")[2]


def _response(status: int, body: bytes, method: str = "GET", more: str = "") -> bytes:
    head = (
        f'HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Length: {len(body)}\r\nETag: "x"\r\n{more}'
        "Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n"
    )
    return head.encode() + (b"" if method == "HEAD" else body)


def options(port: int) -> dict[str, object]:
    """Return the storage options with which FDS reaches the store at ``port``."""
    return {
        "endpoint": f"http://127.0.0.1:{port}",
        "access_key_id": "a",
        "secret_access_key": "b",
        "region": "us-east-1",
        "allow_http": True,
    }


def connect(port: int) -> None:
    """Let Airflow have the store at ``port`` as the connection ``bench``."""
    extra = {"endpoint_url": f"http://127.0.0.1:{port}", "region_name": "us-east-1"}
    os.environ["AIRFLOW_CONN_BENCH"] = json.dumps({"conn_type": "aws", "login": "a", "password": "b", "extra": extra})


@contextlib.contextmanager
def in_thread(server: Server) -> Iterator[int]:
    """Serve from a thread of this process meanwhile; yield the port."""
    loop = asyncio.new_event_loop()

    async def start() -> asyncio.Server:
        return await asyncio.start_server(server.handle, "127.0.0.1", 0, backlog=4096)

    listening = loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(_stop(listening), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _stop(listening: asyncio.Server) -> None:
    listening.close()
    ours = asyncio.current_task()
    connections = [task for task in asyncio.all_tasks() if task is not ours]
    for task in connections:
        task.cancel()
    await asyncio.gather(*connections, return_exceptions=True)


async def serve(tables: int, commits: int, drivers: int = 0) -> None:
    """Serve ``tables`` logs of ``commits`` versions each; print the port.

    What a standalone master would say about ``drivers`` drivers that run is served, too.
    """
    content = b'{"commitInfo":{"timestamp":1,"operation":"WRITE"}}\n'
    objects = {f"t{i}/_delta_log/{v:020d}.json": content for i in range(tables) for v in range(commits)}
    running = b'{"success":true,"driverState":"RUNNING"}'
    objects |= {f"submissions/status/driver-{i}": running for i in range(drivers)}
    server = await asyncio.start_server(Server(objects).handle, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(*map(int, sys.argv[1:])))
