"""A connection to a Hive metastore, bounded in time and bytes for each call."""

from __future__ import annotations

import socket
import time
from typing import Final

#: The most of one answer: a table of some ten thousand columns, or the names of some hundred thousand tables.
_MOST_BYTES: Final = 32 << 20
_MOST_ITEMS: Final = 1_000_000
_RECEIVED_BYTES: Final = 1 << 16


class ThriftConnection:
    """A connection, which is what Thrift's protocol calls a transport: bounded in time and bytes for each call."""

    def __init__(self, server: socket.socket) -> None:
        from pymetastore.hive_metastore import ThriftHiveMetastore
        from thrift.protocol.TBinaryProtocol import TBinaryProtocol

        self._socket = server
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._written = bytearray()
        self._received = b""
        self._at = 0
        self._bytes_left = 0
        self._deadline = 0.0
        limits = {"string_length_limit": _MOST_BYTES, "container_length_limit": _MOST_ITEMS}
        self.client = ThriftHiveMetastore.Client(TBinaryProtocol(self, **limits))

    def start(self, deadline: float) -> None:
        """Begin a call."""
        self._deadline = deadline
        self._bytes_left = _MOST_BYTES

    def close(self) -> None:
        """Close it."""
        self._socket.close()

    def write(self, data: bytes) -> None:
        """Keep a part of a call until :meth:`flush`."""
        self._written += data

    def flush(self) -> None:
        """Send the call."""
        written, self._written = bytes(self._written), bytearray()
        self._wait()
        self._socket.sendall(written)

    def readAll(self, size: int) -> bytes:  # noqa: N802 - Thrift's name
        """Return exactly so many bytes."""
        end = self._at + size
        if end > len(self._received):
            parts = [self._received[self._at :]]
            missing = size - len(parts[0])
            while missing > 0:
                part = self._receive()
                parts.append(part)
                missing -= len(part)
            self._received = b"".join(parts)
            self._at, end = 0, size
        data = self._received[self._at : end]
        self._at = end
        return data

    def _receive(self) -> bytes:
        self._wait()
        part = self._socket.recv(_RECEIVED_BYTES)
        if not part:
            raise ConnectionError("the server closed it")
        self._bytes_left -= len(part)
        if self._bytes_left < 0:
            raise ValueError(f"more than {_MOST_BYTES >> 20} MB")
        return part

    def _wait(self) -> None:
        seconds = self._deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        self._socket.settimeout(seconds)
