"""Batches of real Spark into a real PostgreSQL: each lands once, in one transaction with its row in the account."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from airflow_provider_fds.batch.report import FenceReport, decode, fence_report_name
from airflow_provider_fds.batch.spec import Expectations, FenceSpec
from airflow_provider_fds.batch.transactions import fence_version, txn_version
from airflow_provider_fds.sinks import PostgresSink
from airflow_provider_fds.spark.application.job_run import run
from airflow_provider_fds.spark.runtime.failures import RefusalError
from airflow_provider_fds.spark.writers import postgres_writer
from airflow_provider_fds.spark.writers.postgres.postgres_rows import AppendedRows
from airflow_provider_fds.spark.writers.postgres_writer import PostgresWriter
from tests.postgresql import FAST, IMMEDIATE

pytestmark = pytest.mark.timeout(600)

ALL = list(range(30))


def fence(spark, stream, epoch=2, removes=None, from_version=None, is_forced=False, **fields):
    """Run a fence job; return its exit code and its report."""
    removal = {"removes": removes, "from_version": from_version, "is_forced": is_forced}
    spec = stream.job(fence=FenceSpec("orders", stream.uuid, epoch, **removal), **fields)
    code = run(spark, spec)
    return code, decode(FenceReport, (stream.reports / fence_report_name(epoch, spec.attempt_id)).read_bytes())


def entries(database):
    return database.run("SELECT epoch, batch, rows, version FROM fds.batches ORDER BY version")


def test_batches_are_appended_in_order_and_found_again(spark, stream, database):
    batches = stream.plan()
    code, reports = stream.work(spark, stream.job(*batches))

    assert (code, [report.outcome for report in reports]) == (0, ["written"] * 3), reports
    assert [(report.rows_written, report.sink_version) for report in reports] == [(10, 1), (10, 2), (10, 3)]
    assert database.rows() == ALL
    assert entries(database) == [(1, 0, 10, 1), (1, 1, 10, 2), (1, 2, 10, 3)]

    code, again = stream.work(spark, stream.job(*batches))
    assert (code, [report.outcome for report in again]) == (0, ["verified"] * 3), again
    assert {report.sink_table_id for report in reports + again} == {reports[0].sink_table_id}
    assert database.rows() == ALL


def test_a_batch_over_spark_connect_lands_once(connect_session, stream, database):
    batches = stream.plan()
    for _ in range(2):
        code, reports = stream.work(connect_session, stream.job(*batches))
        assert code == 0, reports
    assert database.rows() == ALL


def test_where_columns_constants_and_provenance_are_as_for_a_delta_sink(spark, stream, database):
    database.run(
        "CREATE TABLE public.chosen (id bigint, tier bigint, _source_version bigint, _source_timestamp timestamptz)"
    )
    sink = PostgresSink(
        "public.chosen", "pg", where="id > 7", columns=["id"], constant_columns={"tier": 3}, provenance=True
    )
    code, reports = stream.work(spark, stream.job(*stream.plan(), sink=sink))

    assert code == 0, reports
    found = database.run("SELECT id, tier, _source_version FROM public.chosen ORDER BY id")
    assert found == [(n, 3, n // 10) for n in range(8, 30)]


def test_another_manifest_under_the_number_of_a_batch_is_refused(spark, stream, database):
    first = stream.plan()[0]
    stream.work(spark, stream.job(first))
    code, (report,) = stream.work(spark, stream.job(replace(first, manifest_digest="0" * 64)))

    assert (code, report.reason) == (11, "SINK_OUT_OF_ORDER")
    assert database.rows() == ALL[:10]


def test_a_batch_out_of_turn_is_refused(spark, stream, database):
    batches = stream.plan()
    code, (report,) = stream.work(spark, stream.job(batches[1]))

    assert (code, report.reason) == (11, "SINK_OUT_OF_ORDER")
    assert "running `fds rewind orders --to start --sink-rows keep|empty --why …`" in report.error_message
    assert database.rows() == []


def test_rows_that_the_log_does_not_count_are_not_written(spark, stream, database):
    first = replace(stream.plan()[0], num_rows=11)
    code, (report,) = stream.work(spark, stream.job(first))

    assert (code, report.reason) == (11, "ROWS_DIFFER")
    assert database.rows() == []


def test_rows_that_a_trigger_leaves_out_are_not_written(spark, stream, database):
    database.run("CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    database.run("CREATE TRIGGER t BEFORE INSERT ON public.orders FOR EACH ROW WHEN (NEW.id = 3) EXECUTE FUNCTION no()")
    code, (report,) = stream.work(spark, stream.job(stream.plan()[0]))

    assert (code, report.reason) == (11, "ROWS_DIFFER")
    assert "took 9 of 10 rows" in report.error_message
    assert (database.rows(), entries(database)) == ([], [])


def test_a_constraint_refuses_the_whole_batch(spark, stream, database):
    database.run("ALTER TABLE public.orders ADD CHECK (id < 15)")
    code, reports = stream.work(spark, stream.job(*stream.plan()))

    assert (code, [report.outcome for report in reports]) == (11, ["written", "failed"])
    assert reports[1].reason == "SINK_SCHEMA_MISMATCH"
    assert database.rows() == ALL[:10]


def test_a_missing_table_is_not_created(spark, stream, database):
    database.run("DROP TABLE public.orders")
    code, (report,) = stream.work(spark, stream.job(stream.plan()[0]))
    assert (code, report.reason) == (11, "SINK_MISSING")


def test_a_table_that_was_created_again_is_refused(spark, stream, database):
    batches = stream.plan()
    _, (loaded,) = stream.work(spark, stream.job(batches[0]))
    database.run("DROP TABLE public.orders")
    database.run("CREATE TABLE public.orders (id bigint, name text, p bigint)")
    code, (report,) = stream.work(spark, stream.job(batches[1], **stream.after(loaded)))

    assert (code, report.reason) == (11, "SINK_REPLACED")
    assert database.rows() == []


def test_an_unlogged_table_is_refused(spark, stream, database):
    database.run("ALTER TABLE public.orders SET UNLOGGED")
    code, (report,) = stream.work(spark, stream.job(stream.plan()[0]))
    assert (code, report.reason) == (11, "SINK_UNSUITABLE")


@pytest.mark.parametrize("kind", ["UNLOGGED", "FOREIGN"])
def test_a_table_with_a_partition_that_could_lose_rows_is_refused(spark, stream, database, kind):
    database.run("DROP TABLE public.orders")
    database.run("CREATE TABLE public.orders (id bigint, name text, p bigint) PARTITION BY RANGE (id)")
    database.run("CREATE TABLE public.rest PARTITION OF public.orders DEFAULT PARTITION BY LIST (p)")
    database.run("CREATE FOREIGN DATA WRAPPER nothing; CREATE SERVER far FOREIGN DATA WRAPPER nothing")
    server = "SERVER far" if kind == "FOREIGN" else ""
    database.run(f'CREATE {kind} TABLE public."Ones" PARTITION OF public.rest DEFAULT {server}')
    code, (report,) = stream.work(spark, stream.job(stream.plan()[0]))
    assert (code, report.reason) == (11, "SINK_UNSUITABLE")
    assert 'has the partition "Ones", which is' in report.error_message


def test_synchronous_commit_of_the_role_is_overridden_for_the_transaction_only(spark, stream, database, monkeypatch):
    database.run(f"ALTER DATABASE {database.name} SET synchronous_commit = off")
    seen = []
    write = AppendedRows.write

    def written(self, connection, columns):
        seen.append(connection.execute("SHOW synchronous_commit").fetchone()[0])
        return write(self, connection, columns)

    monkeypatch.setattr(AppendedRows, "write", written)
    code, _ = stream.work(spark, stream.job(stream.plan()[0]))
    assert (code, seen) == (0, ["on"])


def test_two_drivers_at_once_write_a_batch_once(spark, stream, database):
    first = stream.plan()[0]
    jobs = [stream.job(first) for _ in range(3)]
    outcomes = []

    def work(job):
        outcomes.append([report.outcome for report in stream.work(spark, job)[1]])

    threads = [threading.Thread(target=work, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(outcomes) == [["verified"], ["verified"], ["written"]]
    assert database.rows() == ALL[:10]


def test_a_fence_closes_older_epochs_and_tells_what_had_landed(spark, stream, database):
    batches = stream.plan()
    _, reports = stream.work(spark, stream.job(*batches[:2]))
    code, closed = fence(spark, stream, **stream.after(reports[0]))

    assert (code, closed.outcome, closed.sink_version) == (0, "fenced", 3)
    assert [(one.epoch, one.batch_id, one.sink_version) for one in closed.landed] == [(1, 1, 2)]
    assert closed.landed[0].end == batches[1].end
    assert closed.evidence.newest == txn_version(1, 1)
    assert fence(spark, stream, **stream.after(reports[0]))[1].sink_version == 3

    code, (late,) = stream.work(spark, stream.job(batches[2], **stream.after(reports[1])))
    assert (code, late.reason) == (10, "EPOCH_OVERTAKEN")
    new = replace(batches[2], epoch=2, batch_id=0, prev_txn_version=fence_version(2))
    known = {"sink_table_id": closed.sink_table_id, "sink_version": closed.sink_version}
    code, (report,) = stream.work(spark, stream.job(new, **known))
    assert (code, report.outcome, report.sink_version) == (0, "written", 4)
    assert database.rows() == ALL


def test_a_fence_before_the_first_batch_keeps_that_out(spark, stream, database):
    batches = stream.plan()
    assert fence(spark, stream)[1].outcome == "fenced"
    code, (late,) = stream.work(spark, stream.job(batches[0]))

    assert (code, late.reason) == (10, "EPOCH_OVERTAKEN")
    assert database.rows() == []


def test_a_zombie_that_holds_the_lock_is_ended_by_the_fence(spark, stream, database, monkeypatch):
    first = stream.plan()[0]
    holds, goes_on = threading.Event(), threading.Event()

    def reach(point):
        if point == "driver.commit.before" and database.run("SELECT 1 FROM pg_locks WHERE locktype = 'advisory'"):
            holds.set()
            assert goes_on.wait(120)

    monkeypatch.setattr(postgres_writer, "reach", reach)
    ended = []
    zombie = threading.Thread(target=lambda: ended.extend(stream.work(spark, stream.job(first))[1]))
    zombie.start()
    assert holds.wait(120)
    code, closed = fence(spark, stream)
    goes_on.set()
    zombie.join()

    assert (code, closed.outcome, closed.landed) == (0, "fenced", ())
    assert [(report.reason, report.retryable) for report in ended] == [("EPOCH_OVERTAKEN", True)]
    assert database.rows() == []


@pytest.mark.parametrize("at", [1, 2], ids=["before the rows", "before COMMIT"])
def test_a_server_that_crashes_loses_and_doubles_nothing(spark, stream, database, monkeypatch, at):
    batches = stream.plan()
    stream.work(spark, stream.job(batches[0]))
    reached = []

    def reach(point):
        reached.append(point)
        if point == "driver.commit.before" and reached.count(point) == at:
            database.server.stop(IMMEDIATE)
            database.server.start()

    monkeypatch.setattr(postgres_writer, "reach", reach)
    code, (crashed,) = stream.work(spark, stream.job(batches[1]))
    assert (code, crashed.reason, crashed.retryable) == (10, "SINK_CONNECTION_LOST", True)
    assert database.rows() == ALL[:10]
    code, (report,) = stream.work(spark, stream.job(batches[1]))
    assert (code, report.outcome) == (0, "written")
    assert database.rows() == ALL[:20]


def test_a_server_that_crashes_after_commit_still_has_the_batch(spark, stream, database, monkeypatch):
    first = stream.plan()[0]

    def reach(point):
        if point == "driver.commit.after":
            database.server.stop(IMMEDIATE)
            database.server.start()

    monkeypatch.setattr(postgres_writer, "reach", reach)
    assert stream.work(spark, stream.job(first))[0] == 0
    monkeypatch.undo()
    assert database.rows() == ALL[:10]


def test_a_server_that_is_stopped_is_no_reason_to_give_up(spark, stream, database):
    first = stream.plan()[0]
    database.server.stop(FAST)
    try:
        code, (report,) = stream.work(spark, stream.job(first))
    finally:
        database.server.start()
    assert (code, report.reason, report.retryable) == (10, "SINK_CONNECTION_LOST", True)


def test_streams_of_one_name_and_of_the_same_rows_are_refused(spark, stream, database, monkeypatch):
    first = stream.plan()[0]
    stream.work(spark, stream.job(first))
    other = "11111111-2222-3333-4444-555555555555"
    _, (namesake,) = stream.work(spark, stream.job(replace(first, uuid=other)))
    _, (overlap,) = stream.work(spark, stream.job(replace(first, uuid=other, stream="other")))
    monkeypatch.setattr(stream, "uuid", other)
    code, closed = fence(spark, stream)
    assert (code, closed.outcome, closed.reason) == (11, "failed", "SINK_OF_NAMESAKE")
    assert [namesake.reason, overlap.reason] == ["SINK_OF_NAMESAKE", "SINK_HAS_ROWS"]
    assert database.rows() == ALL[:10]

    allowed = stream.job(replace(first, uuid=other, stream="other"), allow_overlap=True)
    assert stream.work(spark, allowed)[0] == 0
    assert database.rows() == sorted([*ALL[:10], *ALL[:10]])


def test_of_two_streams_that_copy_the_same_rows_at_the_same_moment_one_is_refused(spark, stream, database, monkeypatch):
    first, second, third = stream.plan()
    another = {"uuid": "11111111-2222-3333-4444-555555555555", "stream": "other"}
    for batch in (first, replace(second, batch_id=0, prev_txn_version=None, **another)):
        assert stream.work(spark, stream.job(batch))[0] == 0
    mine = replace(third, batch_id=1, prev_txn_version=txn_version(1, 0))
    jobs = [stream.job(mine), stream.job(replace(mine, **another))]
    has_copied, other_began, looks, reports = threading.Event(), threading.Event(), [], [[], []]
    threads = [
        threading.Thread(target=lambda n=n, job=job: reports[n].extend(stream.work(spark, job)[1]))
        for n, job in enumerate(jobs)
    ]

    def reach(point):
        if point == "driver.commit.before" and threading.current_thread() is threads[0]:
            looks.append(point)
            if len(looks) == 2:
                has_copied.set()
                assert other_began.wait(120)
                # until the other stream waits for this one, or does not
                while threads[1].is_alive() and not database.run("SELECT 1 FROM pg_locks WHERE NOT granted"):
                    time.sleep(0.05)

    monkeypatch.setattr(postgres_writer, "reach", reach)
    threads[0].start()
    assert has_copied.wait(120)
    threads[1].start()
    other_began.set()
    for thread in threads:
        thread.join()

    assert [report.outcome for report in reports[0]] == ["written"]
    assert [report.reason for report in reports[1]] == ["SINK_HAS_ROWS"]
    assert database.rows() == ALL


def test_a_role_with_the_documented_privileges_is_enough_and_one_without_is_told(spark, stream, database):
    database.run("DROP ROLE IF EXISTS plain")
    database.run("CREATE ROLE plain LOGIN")
    first = stream.plan()[0]
    stream.work(spark, stream.job(first))
    from airflow_provider_fds.batch.sink.postgres_connection import grant

    grant("pg", database.parameters(user="plain"))
    batches = stream.plan()
    code, (report,) = stream.work(spark, stream.job(batches[1]))
    assert (code, report.reason) == (11, "SINK_UNSUITABLE")
    database.run("GRANT USAGE ON SCHEMA fds TO plain")
    database.run("GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA fds TO plain")
    database.run("GRANT INSERT ON public.orders TO plain")
    code, (report,) = stream.work(spark, stream.job(batches[1]))
    database.run("DROP OWNED BY plain")
    database.run("DROP ROLE plain")
    assert (code, report.outcome) == (0, "written"), report


def test_a_writer_without_psycopg_says_how_to_install_it(spark, stream, database, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    writer = PostgresWriter(spark, stream.sink, stream.job(stream.plan()[0]), {})
    with pytest.raises(RefusalError, match=r"pip install 'airflow-provider-fds\[postgres\]'"):
        writer.find(stream.plan()[0])
    assert database


def test_rows_that_fail_an_expectation_do_not_reach_the_table(spark, stream, database):
    expectations = Expectations({"id % 10 <> 3": "drop", "p = 0": "warn"})
    batches = stream.plan()
    code, reports = stream.work(spark, stream.job(*batches, expectations=expectations))

    assert code == 0, reports
    assert database.rows() == [n for n in ALL if n % 10 != 3]
    assert [(one.rows_written, one.rows_read, one.rows_rejected) for one in reports] == [(9, 10, 1)] * 3
    assert [one.failed_rows["p = 0"] for one in reports] == [5, 5, 5]
    # the account does not have the expectations of a batch
    code, again = stream.work(spark, stream.job(*batches, expectations=expectations))
    assert (code, [one.outcome for one in again]) == (0, ["verified"] * 3), again
    assert [(one.rows_rejected, one.failed_rows) for one in again] == [(1, {})] * 3
    assert "how many rows failed each expectation is not known" in again[0].warnings[0]
