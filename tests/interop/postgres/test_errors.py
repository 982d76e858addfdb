"""What a database says about a batch: whether a retry may help, and what to do; no Spark is needed."""

from __future__ import annotations

import pytest

from airflow_provider_fds.batch.spec import JobSpec
from airflow_provider_fds.sinks import PostgresSink
from airflow_provider_fds.spark.runtime.failures import RefusalError
from airflow_provider_fds.spark.runtime.postgres_errors import refusals
from airflow_provider_fds.spark.writers.postgres_writer import PostgresWriter
from tests.unit.spark.batches import batch

SINK = PostgresSink("public.orders", conn_id="pg")
NO = "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''closed period''; END'"
#: A text that is too long for an index, even if it is compressed.
LONG = "(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 200) AS n)"


@pytest.mark.parametrize(
    ("before", "statement", "reason", "words"),
    [
        (
            f"{NO}; CREATE TRIGGER t BEFORE INSERT ON public.orders FOR EACH ROW EXECUTE FUNCTION no()",
            "INSERT INTO public.orders VALUES (1, 'a', 0)",
            "SINK_SCHEMA_MISMATCH",
            "P0001: closed period",
        ),
        (
            "CREATE INDEX ON public.orders (name)",
            f"INSERT INTO public.orders VALUES (1, {LONG}, 0)",
            "SINK_SCHEMA_MISMATCH",
            "54000: index row size",
        ),
        (
            "CREATE PUBLICATION p FOR ALL TABLES",
            "UPDATE public.orders SET p = 1",
            "SINK_UNSUITABLE",
            "55000: cannot update table",
        ),
    ],
    ids=["a trigger", "a long key", "no replica identity"],
)
def test_what_a_database_refuses_is_no_lost_connection(database, before, statement, reason, words):
    database.run(before)
    with pytest.raises(RefusalError) as refused, refusals("batch 1"):
        database.run(statement)
    assert (refused.value.reason, refused.value.retryable) == (reason, False)
    assert f"batch 1: the database refuses it ({words}" in str(refused.value)


@pytest.mark.parametrize("state", ["57P01", "57014", "53300", "08006", "58030", "XX000"])
def test_what_may_go_away_is_retried(database, state):
    with pytest.raises(RefusalError) as refused, refusals("batch 1"):
        database.run(f"DO $$ BEGIN RAISE EXCEPTION 'ended' USING ERRCODE = '{state}'; END $$")
    assert (refused.value.reason, refused.value.retryable) == ("SINK_CONNECTION_LOST", True)


def test_a_database_that_takes_no_writes_is_named_as_such(database):
    database.run(f"ALTER DATABASE {database.name} SET default_transaction_read_only = on")
    one = batch()
    with pytest.raises(RefusalError) as refused:
        PostgresWriter(None, SINK, JobSpec((one,), SINK.to_dict(), None, 1, "reports", "attempt"), {}).find(one)
    assert (refused.value.reason, refused.value.retryable) == ("SINK_UNSUITABLE", False)
    assert "default_transaction_read_only" in str(refused.value)
