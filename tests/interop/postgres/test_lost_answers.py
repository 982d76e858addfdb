"""A network that is cut at COMMIT: the account says what became of the batch."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager, suppress

import pytest

from airflow_provider_fds.batch.sink.postgres_connection import grant
from airflow_provider_fds.spark.writers import postgres_writer

pytestmark = pytest.mark.timeout(600)


class Proxy:
    """Passes connections on to a server, until one of them sends COMMIT.

    Args:
        port: The server's.
        mode: ``answer``: COMMIT reaches the server, its answer is lost; ``request``: COMMIT is lost; ``silence``: the
            answer is held back, and the connection stays.
    """

    def __init__(self, port: int, mode: str) -> None:
        self._server = port
        self._mode = mode
        self._is_over = threading.Event()
        self.cuts = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._is_over.set()
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._server))
                cut = threading.Event()
                for one, other, is_up in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._pass, args=(one, other, cut, is_up), daemon=True).start()

    def _pass(self, one: socket.socket, other: socket.socket, cut: threading.Event, is_up: bool) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 16):
                if is_up and b"COMMIT" in data and b"fds" not in data and not self.cuts:
                    self.cuts += 1
                    cut.set()
                    if self._mode == "request":
                        break
                if not is_up and cut.is_set():
                    if self._mode == "silence":
                        self._is_over.wait()
                    break
                other.sendall(data)
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()


@contextmanager
def proxied(database, mode):
    proxy = Proxy(database.server.port, mode)
    grant("pg", database.parameters(port=proxy.port))
    try:
        yield proxy
    finally:
        proxy.close()


@pytest.fixture
def registered(spark, stream, database):
    """The batches of a stream whose account exists, so that the next COMMIT is the batch's."""
    batches = stream.plan()
    code, _ = stream.work(spark, stream.job(batches[0]))
    assert code == 0
    return batches


def only_of_append(monkeypatch, proxy):
    """Let the proxy cut nothing before the batch's own transaction."""
    proxy.cuts = 1
    reached = []

    def reach(point):
        if point == "driver.commit.before" and not reached:
            proxy.cuts = 0
            reached.append(point)

    monkeypatch.setattr(postgres_writer, "reach", reach)


@pytest.mark.parametrize("mode", ["answer", "silence"])
def test_a_batch_whose_commit_had_no_answer_is_found_in_the_account(
    spark, stream, database, registered, monkeypatch, mode
):
    monkeypatch.setattr(postgres_writer, "_COMMIT_SECONDS", 2.0)
    with proxied(database, mode) as proxy:
        only_of_append(monkeypatch, proxy)
        code, (report,) = stream.work(spark, stream.job(registered[1]))
        assert proxy.cuts == 1
    assert (code, report.outcome, report.rows_written) == (0, "written", 10)
    assert database.rows() == list(range(20))


def test_a_batch_whose_commit_was_lost_is_written_by_the_retry(spark, stream, database, registered, monkeypatch):
    with proxied(database, "request") as proxy:
        only_of_append(monkeypatch, proxy)
        code, (report,) = stream.work(spark, stream.job(registered[1]))
        assert proxy.cuts == 1
        assert (code, report.reason, report.retryable) == (10, "SINK_CONNECTION_LOST", True)
        assert database.rows() == list(range(10))
        code, (report,) = stream.work(spark, stream.job(registered[1]))
    assert (code, report.outcome) == (0, "written")
    assert database.rows() == list(range(20))
