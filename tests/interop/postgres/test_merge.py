"""Merges of real Spark into a real PostgreSQL: the table ends as its source is, and each batch lands once."""

from __future__ import annotations

import threading
from dataclasses import replace

import deltalake
import pyarrow as pa
import pytest

from airflow_provider_fds.sinks import PostgresSink
from airflow_provider_fds.spark.writers import postgres_writer
from tests.interop.postgres.test_append import fence
from tests.postgresql import IMMEDIATE

pytestmark = pytest.mark.timeout(600)

CHANGED = {"read_change_feed": True, "max_versions_per_batch": 2}


@pytest.fixture(scope="module")
def changes(tmp_path_factory):
    """Inserts, an update, a delete, an update of a key, an overwrite, and a key that comes back."""
    path = str(tmp_path_factory.mktemp("changes") / "orders")

    def orders(name, *ids):
        return pa.table({"id": list(ids), "name": [f"{name} {i}" for i in ids], "p": [i % 2 for i in ids]})

    enabled = {"delta.enableChangeDataFeed": "true"}
    deltalake.write_deltalake(path, orders("first", *range(6)), configuration=enabled)
    deltalake.DeltaTable(path).update({"name": "'updated'"}, predicate="id < 2")
    deltalake.DeltaTable(path).delete("id = 1")
    deltalake.DeltaTable(path).update({"id": "id + 100"}, predicate="id = 2")
    deltalake.write_deltalake(path, orders("again", *range(3, 8)), mode="overwrite")
    deltalake.write_deltalake(path, orders("back", 1), mode="append")
    return path


def sink_of(**options):
    return PostgresSink("public.orders", "pg", mode="merge", **{"keys": ["id"], **options})


def rows(database):
    return database.run("SELECT id, name FROM public.orders ORDER BY id, name")


def plain_source(stream, *commits):
    stream.source = stream.folder / "plain"
    schema = pa.schema({"id": pa.int64(), "name": pa.string(), "p": pa.int64()})
    for values in commits:
        table = pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in values], schema)
        deltalake.write_deltalake(str(stream.source), table, mode="append")


def waits_for_a_lock(database):
    return bool(database.run("SELECT 1 FROM pg_locks WHERE NOT granted"))


@pytest.mark.parametrize("index", [True, False], ids=["primary key", "no index"])
def test_the_table_of_a_change_feed_ends_as_its_source_is(spark, stream, database, changes, index):
    if index:
        database.run("ALTER TABLE public.orders ADD PRIMARY KEY (id)")
    stream.source, stream.options = changes, CHANGED
    batches = stream.plan()
    code, reports = stream.work(spark, stream.job(*batches, sink=sink_of()))

    assert (code, [report.outcome for report in reports]) == (0, ["written"] * len(batches)), reports
    source = deltalake.DeltaTable(changes).to_pyarrow_table().to_pylist()
    assert rows(database) == sorted((row["id"], row["name"]) for row in source)
    # as a merge into a Delta table: 1 is deleted, 2 becomes 102; the overwrite deletes 0 and 102 …
    assert [report.rows_written for report in reports] == [6, 2, 2, 8]

    code, again = stream.work(spark, stream.job(*batches, sink=sink_of()))
    assert (code, {report.outcome for report in again}) == (0, {"verified"})
    assert [report.rows_written for report in again] == [6, 2, 2, 8]
    assert database.run("SELECT count(*) FROM pg_class WHERE relname = 'fds_batch'") == [(0,)]
    assert [table.name for table in spark.catalog.listTables() if table.name.startswith("fds_batch")] == []


def test_over_spark_connect_it_ends_so_too(connect_session, stream, database, changes):
    stream.source, stream.options = changes, {"read_change_feed": True, "max_versions_per_batch": 100}
    code, reports = stream.work(connect_session, stream.job(*stream.plan(), sink=sink_of()))
    assert code == 0, reports
    assert [row[0] for row in rows(database)] == [1, *range(3, 8)]


def test_deleted_rows_stay_without_delete_rows(spark, stream, database, changes):
    stream.source, stream.options = changes, CHANGED
    code, reports = stream.work(spark, stream.job(*stream.plan(), sink=sink_of(delete_rows=False)))
    assert code == 0, reports
    assert [row[0] for row in rows(database)] == [*range(8), 102]


def test_of_appended_rows_the_newest_of_a_key_is_there_with_what_only_the_table_has(spark, stream, database):
    database.run("ALTER TABLE public.orders ADD seen text DEFAULT 'new', ADD _source_version bigint")
    database.run("ALTER TABLE public.orders ADD _source_timestamp timestamptz")
    database.run("INSERT INTO public.orders VALUES (1, 'before', 0, 'kept')")
    plain_source(stream, [(1, "one", 0), (2, "two", 0)], [(1, "uno", 1)])
    sink = sink_of(provenance=True, columns=["id", "name"])
    code, reports = stream.work(spark, stream.job(*stream.plan(), sink=sink))
    assert code == 0, reports
    found = database.run("SELECT id, name, p, seen, _source_version FROM public.orders ORDER BY id")
    assert found == [(1, "uno", 0, "kept", 1), (2, "two", None, "new", 0)]


def test_a_late_row_does_not_take_the_place_of_a_newer_one(spark, stream, database):
    plain_source(
        stream,
        [(1, "five", 5), (1, "seven", 7), (2, "two", 5)],
        [(1, "late", 6), (2, "as new, from a later commit", 5), (3, "new", 1)],
    )
    code, reports = stream.work(spark, stream.job(*stream.plan(), sink=sink_of(sequence_by="p")))
    assert (code, [report.rows_written for report in reports]) == (0, [2, 2])
    assert rows(database) == [(1, "seven"), (2, "as new, from a later commit"), (3, "new")]


def test_rows_without_a_key_or_an_order_are_refused_with_count_and_example(spark, stream, database):
    plain_source(stream, [(None, "a", 5), (1, "b", 5), (1, "c", 5), (2, "d", None)])
    (batch,) = stream.plan()
    code, (report,) = stream.work(spark, stream.job(batch, sink=sink_of(sequence_by="p")))
    assert (code, report.reason) == (11, "MERGE_ORDER_UNKNOWN")
    message = report.error_message
    assert "cannot be merged into table public.orders of connection 'pg'" in message
    assert '1 rows have NULL in a key (id), such as {"id":null} in version 0' in message
    assert '1 rows have NULL in sequence_by (p), such as {"id":2} in version 0' in message
    assert "several rows of one key (id) have the same p and commit" in message
    assert rows(database) == []


def test_keys_that_are_one_by_the_collation_of_the_column_are_refused(spark, stream, database):
    database.run("CREATE COLLATION any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
    database.run("ALTER TABLE public.orders ALTER name TYPE text COLLATE any_case")
    plain_source(stream, [(1, "Abc", 0), (2, "abc", 0)])
    code, (report,) = stream.work(spark, stream.job(*stream.plan(), sink=sink_of(keys=["name"])))
    assert (code, report.reason) == (11, "MERGE_ORDER_UNKNOWN")
    assert "'Abc' and 'abc' are one key (name) by the table's collation" in report.error_message
    assert rows(database) == []


def test_a_key_that_the_database_cannot_compare_is_refused(spark, stream, database):
    database.run("ALTER TABLE public.orders ALTER name TYPE json USING NULL")
    code, (report,) = stream.work(spark, stream.job(stream.plan()[0], sink=sink_of(keys=["name"])))
    assert (code, report.reason) == (11, "SINK_SCHEMA_MISMATCH")
    assert "a merge compares name (json), which PostgreSQL cannot; use text" in report.error_message


def test_a_column_that_the_database_always_generates_is_refused_unless_it_is_the_key(spark, stream, database):
    always = (
        "ALTER TABLE public.orders ALTER COLUMN {0} SET NOT NULL, ALTER COLUMN {0} ADD GENERATED ALWAYS AS IDENTITY"
    )
    database.run(always.format("id"))
    plain_source(stream, [(1, "a", 5)], [(1, "b", 6)])
    stream.options = {"max_versions_per_batch": 1}
    code, reports = stream.work(spark, stream.job(*stream.plan(), sink=sink_of()))
    assert (code, rows(database)) == (0, [(1, "b")]), reports

    database.run("ALTER TABLE public.orders ALTER COLUMN id DROP IDENTITY")
    database.run(always.format("p"))
    plain_source(stream, [(1, "c", 7)])
    third = stream.plan()[-1]
    code, (report,) = stream.work(spark, stream.job(third, sink=sink_of()))
    assert (code, report.reason) == (11, "SINK_SCHEMA_MISMATCH")
    assert "a merge cannot update p, GENERATED ALWAYS AS IDENTITY" in report.error_message
    statement = report.error_message.rpartition("`ALTER")[2].partition("`")[0]
    database.run(f"ALTER{statement}")
    code, (report,) = stream.work(spark, stream.job(third, sink=sink_of()))
    assert (code, rows(database)) == (0, [(1, "c")]), report


@pytest.mark.parametrize("when", ["INSERT", "UPDATE", "DELETE"])
def test_a_trigger_that_leaves_rows_out_is_noticed_and_one_that_does_not_is_none_of_our_business(
    spark, stream, database, changes, when
):
    database.run("CREATE FUNCTION seen() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.p = 9; RETURN NEW; END'")
    database.run("CREATE TRIGGER a BEFORE UPDATE ON public.orders FOR EACH ROW EXECUTE FUNCTION seen()")
    stream.source, stream.options = changes, {"read_change_feed": True, "max_versions_per_batch": 1}
    batches = stream.plan()
    sink = sink_of()
    code, reports = stream.work(spark, stream.job(batches[0], sink=sink))
    assert code == 0, reports
    before = rows(database)
    database.run("CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    database.run(f"CREATE TRIGGER b BEFORE {when} ON public.orders FOR EACH ROW EXECUTE FUNCTION no()")
    code, reports = stream.work(spark, stream.job(*batches[1:], sink=sink))
    assert (code, reports[-1].reason) == (11, "ROWS_DIFFER")
    assert "changed 0 of" in reports[-1].error_message
    if when == "UPDATE":
        assert rows(database) == before


def test_a_key_that_another_writer_is_inserting_is_updated_once_it_is_there(spark, stream, database):
    plain_source(stream, [(1, "of the stream", 0)])
    (batch,) = stream.plan()
    done = []
    with database.connection() as other:
        other.execute("BEGIN")
        other.execute("INSERT INTO public.orders VALUES (1, 'of another', 0)")
        work = threading.Thread(target=lambda: done.append(stream.work(spark, stream.job(batch, sink=sink_of()))))
        work.start()
        while not waits_for_a_lock(database):
            assert work.is_alive(), done
        other.execute("COMMIT")
        work.join()
    assert done[0][0] == 0, done
    assert rows(database) == [(1, "of the stream")]


def test_two_drivers_at_once_merge_a_batch_once(spark, stream, database):
    first = stream.plan()[0]
    outcomes = []
    threads = [
        threading.Thread(
            target=lambda job: outcomes.extend(report.outcome for report in stream.work(spark, job)[1]), args=(job,)
        )
        for job in [stream.job(first, sink=sink_of()) for _ in range(2)]
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["verified", "written"]
    assert len(rows(database)) == 10


@pytest.mark.parametrize("at", [1, 2], ids=["before the rows", "before COMMIT"])
def test_a_server_that_crashes_merges_all_of_a_batch_or_nothing(spark, stream, database, changes, monkeypatch, at):
    stream.source, stream.options = changes, CHANGED
    batches = stream.plan()
    stream.work(spark, stream.job(batches[0], sink=sink_of()))
    before, reached = rows(database), []

    def reach(point):
        reached.append(point)
        if point == "driver.commit.before" and reached.count(point) == at:
            database.server.stop(IMMEDIATE)
            database.server.start()

    monkeypatch.setattr(postgres_writer, "reach", reach)
    code, (crashed,) = stream.work(spark, stream.job(batches[1], sink=sink_of()))
    assert (code, crashed.reason, crashed.retryable) == (10, "SINK_CONNECTION_LOST", True)
    assert rows(database) == before
    code, reports = stream.work(spark, stream.job(*batches[1:], sink=sink_of()))
    assert code == 0, reports
    assert [row[0] for row in rows(database)] == [1, *range(3, 8)]


def test_a_closed_epoch_merges_nothing(spark, stream, database):
    batches = stream.plan()
    assert fence(spark, stream, sink=sink_of())[1].outcome == "fenced"
    code, (late,) = stream.work(spark, stream.job(batches[0], sink=sink_of()))
    assert (code, late.reason) == (10, "EPOCH_OVERTAKEN")
    assert rows(database) == []


def test_older_versions_of_a_table_are_not_merged_over_what_another_stream_has_of_it(spark, stream, database):
    first, second, third = stream.plan()
    another = {"uuid": "11111111-2222-3333-4444-555555555555", "stream": "other", "batch_id": 0}
    stream.work(spark, stream.job(replace(second, prev_txn_version=None, **another), sink=sink_of()))
    code, (older,) = stream.work(spark, stream.job(first, sink=sink_of()))
    assert (code, older.reason) == (11, "SINK_HAS_ROWS")
    assert "could replace newer ones" in older.error_message
    newer = replace(third, batch_id=0, prev_txn_version=None)
    assert stream.work(spark, stream.job(newer, sink=sink_of()))[0] == 0
    # a column that orders the rows makes it right in any order
    ordered = {"uuid": "21111111-2222-3333-4444-555555555555", "stream": "ordered"}
    assert stream.work(spark, stream.job(replace(first, **ordered), sink=sink_of(sequence_by="p")))[0] == 0
    assert [row[0] for row in rows(database)] == list(range(30))


def test_rows_that_a_policy_hides_are_not_inserted_again(spark, stream, database):
    database.run("CREATE ROLE restricted LOGIN")
    database.run("GRANT ALL ON public.orders TO restricted")
    database.run(f"GRANT CREATE ON DATABASE {database.name} TO restricted")
    database.run("ALTER TABLE public.orders ENABLE ROW LEVEL SECURITY")
    database.run("CREATE POLICY few ON public.orders USING (id > 5)")
    from airflow_provider_fds.batch.sink.postgres_connection import grant

    grant("pg", database.parameters(user="restricted"))
    code, (report,) = stream.work(spark, stream.job(stream.plan()[0], sink=sink_of()))
    # a role is one of the whole server, which other tests use
    database.run("DROP OWNED BY restricted")
    database.run("DROP ROLE restricted")
    assert (code, report.reason) == (11, "SINK_UNSUITABLE"), report
    assert rows(database) == []


@pytest.mark.parametrize("where", ["", "WHERE OLD.id = 0"], ids=["all", "some"])
def test_rows_that_a_rule_leaves_out_are_noticed(spark, stream, database, changes, where):
    stream.source, stream.options = changes, {"read_change_feed": True, "max_versions_per_batch": 1}
    batches = stream.plan()
    stream.work(spark, stream.job(batches[0], sink=sink_of()))
    before = rows(database)
    database.run(f"CREATE RULE keeps AS ON UPDATE TO public.orders {where} DO INSTEAD NOTHING")
    code, (report,) = stream.work(spark, stream.job(batches[1], sink=sink_of()))
    assert (code, report.reason) == (11, "ROWS_DIFFER")
    assert f"changed {1 if where else 0} of 2 rows, so a trigger or a rule left some out" in report.error_message
    assert rows(database) == before


def test_a_deleted_key_takes_no_row_that_the_source_still_has(spark, stream, database, changes):
    database.run("ALTER TABLE public.orders ADD PRIMARY KEY (id)")
    database.run("ALTER TABLE public.orders ADD parent bigint REFERENCES public.orders ON DELETE CASCADE")
    stream.source, stream.options = changes, {"read_change_feed": True, "max_versions_per_batch": 1}
    batches = stream.plan()
    stream.work(spark, stream.job(*batches[:2], sink=sink_of()))
    database.run("UPDATE public.orders SET parent = 1 WHERE id = 4")
    before = rows(database)
    code, (report,) = stream.work(spark, stream.job(batches[2], sink=sink_of()))
    assert (code, report.reason, report.retryable) == (11, "SINK_UNSUITABLE", False), report
    assert "orders (foreign key orders_parent_fkey with ON DELETE CASCADE)" in report.error_message
    assert rows(database) == before

    # as the message says
    code, _ = stream.work(spark, stream.job(batches[2], sink=sink_of(delete_rows=False)))
    assert (code, rows(database)) == (0, before)
