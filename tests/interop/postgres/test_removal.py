"""A fence that removes rows from PostgreSQL: exactly those that are read again, with its row in the account."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from airflow_provider_fds.batch.sink.postgres_connection import grant
from airflow_provider_fds.batch.transactions import fence_version
from airflow_provider_fds.sinks import PostgresSink
from airflow_provider_fds.spark.fence import postgres_fence
from airflow_provider_fds.spark.writers import postgres_writer
from tests.interop.postgres.test_append import ALL, entries, fence
from tests.interop.postgres.test_lost_answers import proxied

pytestmark = pytest.mark.timeout(600)

SINK = PostgresSink("public.orders", conn_id="pg", provenance=True)
COLUMNS = "ADD _source_version bigint, ADD _source_timestamp timestamptz"


@pytest.fixture
def loaded(spark, stream, database):
    """Three batches are in the table, each of one version."""
    database.run(f"ALTER TABLE public.orders {COLUMNS}")
    batches = stream.plan()
    code, reports = stream.work(spark, stream.job(*batches, sink=SINK))
    assert code == 0, reports
    return batches, reports


def removal(spark, stream, known=None, **fields):
    known = {} if known is None else stream.after(known)
    asked = {"removes": "rows", "from_version": 1, **fields}
    return fence(spark, stream, sink=SINK, **known, **asked)


def test_a_fence_removes_what_is_read_again_and_a_closed_epoch_brings_nothing_back(spark, stream, database, loaded):
    batches, reports = loaded
    for _ in range(2):
        code, closed = removal(spark, stream, reports[0])
        assert (code, closed.outcome, closed.has_removed, closed.removed_rows) == (0, "fenced", True, 20)
        assert (closed.landed, closed.warnings) == ((), ())
        (removed,) = closed.evidence.removed
        assert (removed.epoch, removed.sink_version, removed.what, removed.from_version) == (2, 4, "rows", 1)
        assert database.rows() == ALL[:10]
    assert entries(database) == [(1, 0, 10, 1), (1, 1, 10, 2), (1, 2, 10, 3), (2, -1, 20, 4)]

    # a driver of the closed epoch
    late = replace(batches[2], batch_id=3, prev_txn_version=batches[2].txn_version)
    code, (report,) = stream.work(spark, stream.job(late, sink=SINK, **stream.after(reports[2])))
    assert (code, report.reason) == (10, "EPOCH_OVERTAKEN")
    assert database.rows() == ALL[:10]

    again = [replace(batch, epoch=2, batch_id=n) for n, batch in enumerate(batches[1:])]
    again[0] = replace(again[0], prev_txn_version=fence_version(2))
    again[1] = replace(again[1], prev_txn_version=again[0].txn_version)
    known = {"sink_table_id": closed.sink_table_id, "sink_version": closed.sink_version}
    code, written = stream.work(spark, stream.job(*again, sink=SINK, **known))
    assert code == 0, written
    assert database.rows() == ALL


@pytest.mark.parametrize(
    ("statements", "reason", "message"),
    [
        (
            ["INSERT INTO public.orders (id) VALUES (-1)"],
            "SINK_SHARED",
            "it has rows without _source_version",
        ),
        (
            ["INSERT INTO fds.streams SELECT gen_random_uuid(), target, 'other', 1, 1 FROM fds.streams"],
            "SINK_SHARED",
            "stream 'other' writes to it, too",
        ),
        (
            ["ALTER TABLE public.orders DROP _source_version"],
            "SINK_SCHEMA_MISMATCH",
            "it has no column _source_version",
        ),
        (
            [
                "CREATE FUNCTION kept() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
                "CREATE TRIGGER kept BEFORE DELETE ON public.orders FOR EACH ROW EXECUTE FUNCTION kept()",
            ],
            "ROWS_DIFFER",
            "rows are still in it, because a trigger keeps them",
        ),
        (
            [
                "ALTER TABLE public.orders ADD PRIMARY KEY (id)",
                "CREATE TABLE public.invoices (order_id bigint REFERENCES public.orders)",
                "INSERT INTO public.invoices VALUES (20)",
            ],
            "SINK_UNSUITABLE",
            "a constraint keeps its rows (23503: ",
        ),
    ],
    ids=["rows", "stream", "column", "trigger", "constraint"],
)
def test_nothing_is_removed_if_the_rows_may_be_others(spark, stream, database, loaded, statements, reason, message):
    for statement in statements:
        database.run(statement)
    before = database.rows()
    code, closed = removal(spark, stream, loaded[1][2])
    assert (code, closed.outcome, closed.reason) == (11, "failed", reason), closed
    assert f"nothing was removed from table public.orders of connection 'pg': {message}" in closed.error_message
    assert "`fds rewind orders --replace --to N --sink-rows keep --why …`" in closed.error_message
    assert database.rows() == before
    assert [entry[1] for entry in entries(database)] == [0, 1, 2]


def test_rows_without_a_source_version_are_removed_only_by_force(spark, stream, database):
    plain = PostgresSink("public.orders", conn_id="pg")
    batches = stream.plan()
    code, reports = stream.work(spark, stream.job(*batches, sink=plain))
    assert code == 0, reports
    everything = {"sink": plain, "removes": "all", **stream.after(reports[2])}

    code, closed = fence(spark, stream, **everything)
    assert (code, closed.reason) == (11, "SINK_SHARED")
    assert "repeat the request with --replace --force-sink" in closed.error_message
    assert database.rows() == ALL

    code, closed = fence(spark, stream, epoch=3, is_forced=True, **everything)
    assert (code, closed.outcome, closed.removed_rows, closed.landed) == (0, "fenced", 30, ())
    assert database.rows() == []


def test_rows_that_the_account_does_not_know_are_removed_only_by_force(spark, stream, database, loaded):
    database.run("INSERT INTO public.orders SELECT * FROM public.orders WHERE _source_version = 2 LIMIT 1")
    before = database.rows()
    code, closed = removal(spark, stream, loaded[1][2])
    assert (code, closed.reason) == (11, "SINK_SHARED"), closed
    assert "21 rows would be removed, but the account says that the stream wrote 20" in closed.error_message
    assert "repeat the request with --replace --force-sink" in closed.error_message
    assert database.rows() == before

    for _ in range(2):
        code, closed = removal(spark, stream, loaded[1][2], epoch=3, is_forced=True)
        assert (code, closed.removed_rows) == (0, 21)
        (warning,) = closed.warnings
        assert "removed 21 rows" in warning
        assert "the others were of other writers" in warning
    assert database.rows() == ALL[:10]


def test_a_removal_tells_that_rows_were_gone_before(spark, stream, database, loaded):
    database.run("DELETE FROM public.orders WHERE id = 29")
    code, closed = removal(spark, stream, loaded[1][2])
    assert (code, closed.outcome, closed.removed_rows) == (0, "fenced", 19), closed
    (warning,) = closed.warnings
    assert "removed 19 rows" in warning
    assert "says that the stream wrote 20 of them: another writer had removed rows" in warning
    assert database.rows() == ALL[:10]

    # what an earlier fence removed is not expected again
    code, closed = removal(spark, stream, loaded[1][2], epoch=3, removes="all", from_version=None)
    assert (code, closed.removed_rows, closed.warnings) == (0, 10, ())


def test_a_table_that_is_empty_has_no_rows_of_others(spark, stream, database):
    code, closed = fence(spark, stream, removes="all")
    assert (code, closed.outcome, closed.removed_rows) == (0, "fenced", 0)
    assert database.rows() == []


def test_a_writer_that_holds_the_table_is_waited_for_and_nothing_is_removed_meanwhile(
    spark, stream, database, loaded, monkeypatch
):
    monkeypatch.setattr(postgres_fence, "_MOST_ATTEMPTS", 2)
    monkeypatch.setattr(postgres_fence, "_LOCK_SECONDS", 0.2)
    with database.connection() as other, other.transaction():
        other.execute("UPDATE public.orders SET name = 'held' WHERE id = 29")
        code, closed = removal(spark, stream, loaded[1][2])
        assert (code, closed.reason, closed.retryable) == (10, "SINK_BUSY", True)
        assert "held the stream's lock or the table 2 times. A retry tries again" in closed.error_message
    assert database.rows() == ALL
    code, closed = removal(spark, stream, loaded[1][2])
    assert (code, closed.removed_rows) == (0, 20)
    assert database.rows() == ALL[:10]


def test_a_removal_needs_the_documented_privileges(spark, stream, database, loaded):
    database.run("DROP ROLE IF EXISTS remover")
    database.run("CREATE ROLE remover LOGIN")
    database.run("GRANT USAGE ON SCHEMA fds TO remover")
    database.run("GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA fds TO remover")
    database.run("GRANT INSERT ON public.orders TO remover")
    grant("pg", database.parameters(user="remover"))
    code, closed = removal(spark, stream, loaded[1][2])
    assert (code, closed.reason) == (11, "SINK_UNSUITABLE")
    assert "42501" in closed.error_message
    assert database.rows() == ALL
    database.run("GRANT SELECT, DELETE ON public.orders TO remover")
    code, closed = removal(spark, stream, loaded[1][2])
    database.run("DROP OWNED BY remover")
    database.run("DROP ROLE remover")
    assert (code, closed.removed_rows) == (0, 20)
    assert database.rows() == ALL[:10]


def test_a_removal_whose_commit_had_no_answer_is_found_in_the_account(spark, stream, database, loaded, monkeypatch):
    def reach(point):
        if point == "fence.commit.before":
            proxy.cuts = 0

    with proxied(database, "answer") as proxy:
        proxy.cuts = 1
        monkeypatch.setattr(postgres_fence, "reach", reach)
        code, closed = removal(spark, stream, loaded[1][2])
        assert proxy.cuts == 1
        assert (code, closed.reason, closed.retryable) == (10, "SINK_CONNECTION_LOST", True)
        assert database.rows() == ALL[:10]
        code, closed = removal(spark, stream, loaded[1][2])
    assert (code, closed.outcome, closed.has_removed, closed.removed_rows) == (0, "fenced", True, 20)
    assert database.rows() == ALL[:10]


def test_a_driver_that_holds_the_lock_with_rows_of_the_closed_epoch_brings_none_of_them(
    spark, stream, database, loaded, monkeypatch
):
    batches, reports = loaded
    late = replace(batches[2], batch_id=3, prev_txn_version=batches[2].txn_version)
    holds, goes_on = threading.Event(), threading.Event()

    def reach(point):
        if point == "driver.commit.before" and database.run("SELECT 1 FROM pg_locks WHERE locktype = 'advisory'"):
            holds.set()
            assert goes_on.wait(120)

    monkeypatch.setattr(postgres_writer, "reach", reach)
    ended = []
    job = stream.job(late, sink=SINK, **stream.after(reports[2]))
    zombie = threading.Thread(target=lambda: ended.extend(stream.work(spark, job)[1]))
    zombie.start()
    assert holds.wait(120)
    code, closed = removal(spark, stream, reports[2])
    goes_on.set()
    zombie.join()

    assert (code, closed.outcome, closed.removed_rows, closed.landed) == (0, "fenced", 20, ())
    assert [report.retryable for report in ended] == [True]
    assert database.rows() == ALL[:10]
