"""The minimum of an S3 server that a poll needs, on loopback: it answers HEAD, GET and LIST and counts them.

A full S3 imitation spends more time on a request than its client, so it would dominate the measurement.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import Counter
from urllib.parse import parse_qs, unquote, urlsplit

_EMPTY = (
    b"<?xml version='1.0'?><ListBucketResult><IsTruncated>false</IsTruncated><KeyCount>0</KeyCount></ListBucketResult>"
)


class Server:
    """Objects by key, all with the same time, and a count of requests by method."""

    def __init__(self, objects: dict[str, bytes]) -> None:
        self.objects = objects
        self.requests: Counter[str] = Counter()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionResetError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
                writer.write(self.answer(method, target))
                await writer.drain()
        writer.close()

    def answer(self, method: str, target: str) -> bytes:
        url = urlsplit(target)
        key = unquote(url.path).split("/", 2)[-1]
        query = parse_qs(url.query)
        if url.path == "/_requests":
            return _response(200, str(dict(self.requests)).encode())
        if "list-type" in query:
            self.requests["LIST"] += 1
            return _response(200, self._listed(query))
        self.requests[method] += 1
        data = self.objects.get(key)
        if data is None:
            return _response(404, b"", method)
        return _response(200, data, method)

    def _listed(self, query: dict[str, list[str]]) -> bytes:
        prefix, after = query.get("prefix", [""])[0], query.get("start-after", [""])[0]
        found = sorted(key for key in self.objects if key.startswith(prefix) and key > after)[:1000]
        if not found:
            return _EMPTY
        items = "".join(
            f"<Contents><Key>{key}</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>x</ETag>"
            f"<Size>{len(self.objects[key])}</Size></Contents>"
            for key in found
        )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{items}</ListBucketResult>".encode()


def _response(status: int, body: bytes, method: str = "GET") -> bytes:
    reason = {200: "OK", 404: "Not Found"}[status]
    head = (
        f'HTTP/1.1 {status} {reason}\r\nContent-Length: {len(body)}\r\nETag: "x"\r\n'
        "Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\r\n"
    )
    return head.encode() + (b"" if method == "HEAD" else body)


async def serve(tables: int, commits: int) -> None:
    """Serve ``tables`` logs of ``commits`` versions each; print the port."""
    content = b'{"commitInfo":{"timestamp":1,"operation":"WRITE"}}\n'
    objects = {f"t{i}/_delta_log/{v:020d}.json": content for i in range(tables) for v in range(commits)}
    server = await asyncio.start_server(Server(objects).handle, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2])))
