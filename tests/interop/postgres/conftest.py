"""A PostgreSQL server for the tests of this folder, with a database of its own for each test."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.batch.sink.postgres_connection import grant
from airflow_provider_fds.sinks import PostgresSink
from tests.interop.spark.conftest import Stream, begun, source_template
from tests.postgresql import PostgresServer, missing, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NAMES = count(1)

__all__ = ["begun", "source_template"]


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    if (problem := missing("psycopg")) is not None:
        pytest.skip(problem)
    # without it, a start after a crash syncs each file of all tests' databases by itself, which can take minutes
    with running_server("fds", "recovery_init_sync_method=syncfs") as server:
        yield server


class Database:
    """A database of one test.

    Args:
        server: Its server.
        name: Its name.
    """

    def __init__(self, server: PostgresServer, name: str) -> None:
        self.server = server
        self.name = name

    def parameters(self, **more: Any) -> dict[str, Any]:
        return {"host": "127.0.0.1", "port": self.server.port, "user": "fds", "dbname": self.name, **more}

    @contextmanager
    def connection(self, **more: Any) -> Iterator[Any]:
        import psycopg

        with psycopg.connect(**self.parameters(**more), autocommit=True) as connection:
            yield connection

    def run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement, and return its rows."""
        with self.connection() as connection:
            done = connection.execute(statement, values or None)
            return list(done.fetchall()) if done.description else []

    def rows(self) -> list[int]:
        """Return the ids in the table of the tests, sorted."""
        return [row[0] for row in self.run("SELECT id FROM public.orders ORDER BY id")]


@pytest.fixture
def database(postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A database with the table ``public.orders``, as connection ``pg`` of this process."""
    found = Database(postgres_server, f"test_{next(_NAMES)}")
    Database(postgres_server, "postgres").run(f"CREATE DATABASE {found.name}")
    found.run("CREATE TABLE public.orders (id bigint, name text, p bigint)")
    monkeypatch.setenv("FDS_POSTGRES", "{}")
    grant("pg", found.parameters())
    return found


class PostgresStream(Stream):
    """A stream that loads into the table of the tests."""

    @property
    def sink(self) -> PostgresSink:  # type: ignore[override]
        return PostgresSink("public.orders", conn_id="pg")


@pytest.fixture
def stream(tmp_path: Path, source_template: Path, database: Database) -> PostgresStream:
    return PostgresStream(tmp_path, source_template)
