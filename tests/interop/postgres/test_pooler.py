"""PostgreSQL behind a pooler in transaction mode: each transaction of a driver may be in another session."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from airflow_provider_fds.batch.sink.postgres_connection import grant
from airflow_provider_fds.sinks import PostgresSink
from airflow_provider_fds.spark.writers import postgres_writer
from tests.interop.postgres.test_append import ALL, entries, fence
from tests.postgresql import missing_pooler, running_pooler

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def pooled(database, postgres_server):
    """The stream's connection goes to a pooler of a few sessions; yields what their settings are now."""
    if (problem := missing_pooler()) is not None:
        pytest.skip(problem)
    with running_pooler(postgres_server) as port:
        grant("pg", database.parameters(port=port))

        def session(what):
            with database.connection(port=port, prepare_threshold=None) as connection:
                return connection.execute(what).fetchone()[0]

        yield session


def assert_nothing_is_left_in_the_sessions(database, session):
    """Other clients get these sessions: no setting, lock or table of FDS may be in them."""
    assert session("SHOW lock_timeout") == "0"
    assert session("SHOW client_connection_check_interval") == "0"
    assert session("SHOW search_path") == '"$user", public'
    assert database.run("SELECT 1 FROM pg_locks WHERE locktype = 'advisory'") == []
    assert database.run("SELECT relname FROM pg_class WHERE relpersistence = 't'") == []


def test_batches_are_appended_once_and_leave_nothing_in_the_sessions(spark, stream, database, pooled):
    batches = stream.plan()
    for _ in range(2):
        code, reports = stream.work(spark, stream.job(*batches))
        assert code == 0, reports
    assert database.rows() == ALL
    assert [entry[1] for entry in entries(database)] == [0, 1, 2]
    assert_nothing_is_left_in_the_sessions(database, pooled)


def test_batches_are_merged_by_a_temporary_table_of_the_transaction(spark, stream, database, pooled):
    sink = PostgresSink("public.orders", "pg", mode="merge", keys=["id"])
    database.run("INSERT INTO public.orders VALUES (0, 'old', 0)")
    for _ in range(2):
        code, reports = stream.work(spark, stream.job(*stream.plan(), sink=sink))
        assert code == 0, reports
    assert database.rows() == ALL
    assert database.run("SELECT 1 FROM public.orders WHERE name = 'old'") == []
    assert_nothing_is_left_in_the_sessions(database, pooled)


def test_a_fence_ends_the_session_of_a_driver_that_holds_the_lock(spark, stream, database, pooled, monkeypatch):
    batches = stream.plan()
    code, reports = stream.work(spark, stream.job(*batches[:2]))
    assert code == 0, reports
    late = replace(batches[2], prev_txn_version=batches[1].txn_version)
    holds, goes_on = threading.Event(), threading.Event()

    def reach(point):
        if point == "driver.commit.before":
            holds.set()
            assert goes_on.wait(120)

    monkeypatch.setattr(postgres_writer, "reach", reach)
    ended = []
    job = stream.job(late, **stream.after(reports[1]))
    zombie = threading.Thread(target=lambda: ended.extend(stream.work(spark, job)[1]))
    zombie.start()
    assert holds.wait(120)
    code, closed = fence(spark, stream, **stream.after(reports[1]))
    goes_on.set()
    zombie.join()

    assert (code, closed.outcome, closed.landed) == (0, "fenced", ())
    assert [report.retryable for report in ended] == [True]
    assert database.rows() == ALL[:20]
    assert_nothing_is_left_in_the_sessions(database, pooled)
