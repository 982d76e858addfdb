"""A fence that removes rows from PostgreSQL: exactly those that are read again, with its row in the account."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_provider_fds.batch.spec import fence_version
from airflow_provider_fds.sinks import PostgresSink
from tests.interop.postgres.test_append import ALL, entries, fence

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
    return fence(spark, stream, sink=SINK, removes="rows", from_version=1, **known, **fields)


def test_a_fence_removes_what_is_read_again_and_a_closed_epoch_brings_nothing_back(spark, stream, database, loaded):
    batches, reports = loaded
    for _ in range(2):
        code, closed = removal(spark, stream, reports[0])
        assert (code, closed.outcome, closed.has_removed, closed.removed_rows) == (0, "fenced", True, 20)
        assert closed.landed == ()
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
            "a trigger keeps them",
        ),
    ],
    ids=["rows", "stream", "column", "trigger"],
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
