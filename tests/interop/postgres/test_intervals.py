"""Data intervals in PostgreSQL: a run replaces what an earlier run of its interval wrote, and nothing else."""

from __future__ import annotations

import time
from dataclasses import replace
from threading import Event, Thread, current_thread
from uuid import uuid4

import pytest

from airflow_provider_fds.batch.transactions import txn_version
from airflow_provider_fds.sinks import PostgresSink
from airflow_provider_fds.spark.writers.postgres.postgres_rows import AppendedRows
from tests.interop.spark.test_sink_replace import DAY, NEXT_DAY, interval_of

pytestmark = pytest.mark.timeout(600)

DAY_AFTER = "2026-01-03T00:00:00.000Z/2026-01-04T00:00:00.000Z"
REPLACE = PostgresSink("public.orders", "pg", mode="replace", provenance=True)


@pytest.fixture
def versions(database):
    database.run("ALTER TABLE public.orders ADD _source_version bigint, ADD _source_timestamp timestamptz")
    return database


def of(*parts, **more):
    """One transaction of an interval made of batches, with their versions."""
    made = interval_of(*parts, **more)
    return replace(made, interval_versions=(made.first_version, made.last_version))


def load(spark, stream, batch, **fields):
    code, reports = stream.work(spark, stream.job(batch, sink=fields.pop("sink", REPLACE), **fields))
    return code, reports[-1]


def test_a_later_generation_replaces_the_interval_and_no_other_row(spark, stream, versions):
    first, second, third = stream.plan()
    versions.run("INSERT INTO public.orders (id) VALUES (99)")
    assert load(spark, stream, of(third, interval=NEXT_DAY))[0] == 0
    code, report = load(spark, stream, of(first, second))
    assert (code, report.outcome, report.rows_written) == (0, "written", 20)
    assert versions.rows() == [*range(30), 99]
    assert load(spark, stream, of(first, second))[1].outcome == "verified"
    again = replace(of(first, generation=2), interval_versions=(0, 1))
    code, report = load(spark, stream, again)
    assert (code, report.outcome, report.rows_written, report.warnings) == (0, "written", 10, ())
    assert versions.rows() == [*range(10), *range(20, 30), 99]
    known = versions.run('SELECT "interval", epoch, rows, version FROM fds.batches ORDER BY version')
    assert known == [(NEXT_DAY, 1, 10, 1), (DAY, 1, 20, 2), (DAY, 2, 10, 3)]
    assert versions.run("SELECT epoch, version FROM fds.streams") == [(1, 3)]


def test_a_driver_of_an_earlier_generation_writes_nothing(spark, stream, versions):
    first = stream.plan()[0]
    assert load(spark, stream, of(first, generation=2))[0] == 0
    code, report = load(spark, stream, of(first))
    assert (code, report.reason, report.retryable) == (10, "EPOCH_OVERTAKEN", True)
    assert "generation 2" in report.error_message
    code, report = load(spark, stream, replace(of(first, generation=2), manifest_digest="0" * 64))
    assert report.reason == "SINK_OUT_OF_ORDER"
    assert versions.rows() == list(range(10))


def test_rows_of_another_writer_are_not_replaced(spark, stream, versions):
    first = stream.plan()[0]
    versions.run("INSERT INTO public.orders (id, _source_version) VALUES (99, 0)")
    code, report = load(spark, stream, of(first))
    assert (code, report.reason) == (11, "SINK_SHARED")
    assert "1 rows would be replaced, but the account says that the stream wrote 0 of them" in report.error_message
    versions.run("DELETE FROM public.orders")
    assert load(spark, stream, of(first))[0] == 0
    versions.run("INSERT INTO public.orders (id, _source_version) VALUES (99, 0)")
    assert load(spark, stream, of(first, generation=2))[1].reason == "SINK_SHARED"
    assert versions.rows() == [*range(10), 99]


def test_rows_that_others_have_removed_are_loaded_again_with_a_warning(spark, stream, versions):
    first = stream.plan()[0]
    assert load(spark, stream, of(first))[0] == 0
    versions.run("DELETE FROM public.orders WHERE id < 4")
    code, report = load(spark, stream, of(first, generation=2))
    assert code == 0
    assert "6 rows were replaced, and the account says that the stream wrote 10" in " ".join(report.warnings)
    assert versions.rows() == list(range(10))


def test_a_trigger_that_keeps_rows_fails_the_interval(spark, stream, versions):
    first = stream.plan()[0]
    assert load(spark, stream, of(first))[0] == 0
    versions.run("CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    versions.run("CREATE TRIGGER t BEFORE DELETE ON public.orders FOR EACH ROW WHEN (OLD.id = 3) EXECUTE FUNCTION no()")
    code, report = load(spark, stream, of(first, generation=2))
    assert (code, report.reason) == (11, "ROWS_DIFFER")
    assert versions.rows() == list(range(10))


@pytest.mark.parametrize("source", ["the same table", "another table"])
def test_an_interval_that_may_replace_rows_of_another_stream_is_refused(spark, stream, versions, tmp_path, source):
    other = type(stream)(tmp_path / "other", stream.source)
    if source == "another table":
        other.source = tmp_path / "customers"
        spark.range(100, 105, 1, 1).selectExpr("id", "'a' name", "id p").write.format("delta").save(str(other.source))
    append = PostgresSink("public.orders", "pg", provenance=True)
    theirs = replace(other.plan()[0], stream="customers")
    code, _ = other.work(spark, other.job(theirs, sink=append))
    assert code == 0
    before = versions.rows()
    code, report = load(spark, stream, of(stream.plan()[0]))
    assert (code, report.reason) == (11, "SINK_SHARED" if source == "another table" else "SINK_HAS_ROWS")
    assert "'customers'" in report.error_message
    assert load(spark, stream, of(stream.plan()[0]), allow_overlap=True)[1].reason == "SINK_SHARED"
    assert versions.rows() == before
    assert load(spark, stream, of(stream.plan()[1]))[0] == 0
    assert versions.rows() == sorted([*before, *range(10, 20)])


def test_a_stream_of_the_same_name_elsewhere_is_refused(spark, stream, versions):
    first, second, _ = stream.plan()
    assert load(spark, stream, of(first))[0] == 0
    namesake = replace(of(second), uuid=str(uuid4()))
    assert load(spark, stream, namesake)[1].reason == "SINK_OF_NAMESAKE"


def test_two_intervals_with_a_version_in_common_do_not_both_land_at_once(spark, stream, versions, monkeypatch):
    first, second, _ = stream.plan()
    wide, narrow = of(first, second), of(second, interval=NEXT_DAY)
    write, inner = AppendedRows.write, []

    def meanwhile(self, connection, columns):
        if not inner:
            inner.append(True)
            inner.append(load(spark, stream, narrow)[0])
        return write(self, connection, columns)

    monkeypatch.setattr(AppendedRows, "write", meanwhile)
    code, report = load(spark, stream, wide)
    assert (code, report.reason, inner[1]) == (10, "SINK_BUSY", 0)
    assert versions.rows() == list(range(10, 20))
    assert load(spark, stream, wide)[0] == 0
    assert versions.rows() == list(range(20))


def test_an_interval_whose_delete_waits_for_another_one_is_retried(spark, stream, versions, monkeypatch):
    first, second, _ = stream.plan()
    assert load(spark, stream, of(first, second))[0] == 0
    write, has_deleted, done = AppendedRows.write, Event(), []

    def other():
        done.append(load(spark, stream, of(second, interval=NEXT_DAY))[0])

    def meanwhile(self, connection, columns):
        if current_thread() is thread:
            has_deleted.set()
            waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'"
            deadline = time.monotonic() + 60
            while not versions.run(waits) and time.monotonic() < deadline:
                time.sleep(0.05)
        return write(self, connection, columns)

    monkeypatch.setattr(AppendedRows, "write", meanwhile)
    thread = Thread(target=other)
    thread.start()
    assert has_deleted.wait(60)
    code, report = load(spark, stream, of(first, second, generation=2))
    thread.join(60)
    assert (code, report.reason, done) == (10, "SINK_BUSY", [0])
    assert versions.rows() == list(range(20))
    assert load(spark, stream, of(first, second, generation=3))[0] == 0
    assert versions.rows() == list(range(20))


@pytest.mark.parametrize("mode", ["append", "replace"])
def test_intervals_that_an_older_copy_of_the_database_lacks_do_not_stay_unnoticed(spark, stream, versions, mode):
    first, second, third = stream.plan()
    sink = replace(REPLACE, mode=mode)
    assert load(spark, stream, of(first), sink=sink)[0] == 0
    after = stream.after(load(spark, stream, of(second, interval=NEXT_DAY), sink=sink)[1])
    versions.run("DELETE FROM public.orders WHERE id >= 10")
    versions.run("DELETE FROM fds.batches WHERE version = 2")
    versions.run("UPDATE fds.streams SET version = 1")
    code, report = load(spark, stream, of(third, interval=DAY_AFTER), sink=sink, **after)
    if mode == "append":
        assert (code, report.reason) == (11, "SINK_OUT_OF_ORDER")
        assert "is at commit 1 of the stream, but the ledger knows commit 2" in report.error_message
        assert versions.rows() == list(range(10))
        return
    assert code == 0
    assert "Load them again by clearing the runs of their data intervals" in " ".join(report.warnings)
    assert load(spark, stream, of(second, interval=NEXT_DAY, generation=2), sink=sink, **after)[0] == 0
    assert versions.rows() == list(range(30))


def test_two_intervals_of_a_new_stream_are_loaded_at_once(spark, stream, versions, monkeypatch):
    first, second, _ = stream.plan()
    write, inner = AppendedRows.write, []

    def meanwhile(self, connection, columns):
        if not inner:
            inner.append(True)
            inner.append(load(spark, stream, of(second, interval=NEXT_DAY))[0])
        return write(self, connection, columns)

    monkeypatch.setattr(AppendedRows, "write", meanwhile)
    assert load(spark, stream, of(first))[0] == 0
    assert inner == [True, 0]
    assert versions.rows() == list(range(20))
    assert versions.run("SELECT version FROM fds.batches ORDER BY 1") == [(1,), (2,)]


def test_an_interval_is_appended_once_in_any_order(spark, stream, database):
    first, second, third = stream.plan()
    later = replace(of(third, interval=NEXT_DAY), batch_id=0)
    assert load(spark, stream, later, sink=stream.sink)[0] == 0
    parts = [
        replace(of(one), batch_id=number, prev_txn_version=txn_version(1, 0) if number else None)
        for number, one in enumerate((first, second))
    ]
    assert load(spark, stream, parts[1], sink=stream.sink)[1].reason == "SINK_OUT_OF_ORDER"
    for _ in range(2):
        code, _ = stream.work(spark, stream.job(*parts))
        assert code == 0
    assert database.rows() == list(range(30))
    assert database.run("SELECT count(*) FROM fds.batches") == [(3,)]


def test_a_table_is_created_by_the_first_interval(spark, stream, database):
    sink = PostgresSink("public.days", "pg", mode="replace", provenance=True, create=True)
    first = stream.plan()[0]
    code, report = load(spark, stream, of(first), sink=sink)
    assert code == 0, report
    code, report = load(spark, stream, of(first, generation=2), sink=sink, sink_table_id=report.sink_table_id)
    assert code == 0, report
    assert database.run("SELECT count(*), min(_source_version), max(_source_version) FROM public.days") == [(10, 0, 0)]
