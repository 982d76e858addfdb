"""The statements of a merge in a real PostgreSQL: keys are equal, and in order, as the columns of the table say."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from airflow_provider_fds.spark.runtime.postgres_tables import may_leave_out
from airflow_provider_fds.spark.writers.postgres.postgres_columns import table_columns
from airflow_provider_fds.spark.writers.postgres.postgres_merge_sql import STAGED, PostgresMergeSql

#: Texts that differ in upper and lower case are equal.
ANY_CASE = "CREATE COLLATION any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"


@pytest.fixture
def merge(database):
    """Merges rows, each with a flag whether it is deleted, into ``public.things``; returns rows by statement."""

    @contextmanager
    def staged(rows, keys, sequence_by):
        with database.connection() as connection, connection.transaction():
            columns = tuple(table_columns(connection, ("public", "things")))
            sql = PostgresMergeSql(("public", "things"), columns, keys, sequence_by)
            connection.execute(sql.create())
            listed = ", ".join("%s" for _ in range(len(columns) + 1))
            for row in rows:
                connection.execute(f"INSERT INTO {STAGED} VALUES ({listed})", row)
            yield connection, sql

    def merge(*rows, keys=("id",), sequence_by=None):
        changed = []
        with staged(rows, keys, sequence_by) as (connection, sql):
            connection.execute(sql.lock())
            for statement, count in sql.statements(deletes=True):
                expected = connection.execute(count).fetchone()[0]
                changed.append(connection.execute(statement).rowcount)
                assert changed[-1] == expected
        return changed

    def doubled(*rows, keys=("id",)):
        with staged(rows, keys, None) as (connection, sql):
            query = sql.doubled()
            return None if query is None else connection.execute(query).fetchone()

    merge.doubled = doubled
    return merge


def things(database):
    return database.run("SELECT * FROM public.things ORDER BY 1, 2")


@pytest.mark.parametrize("index", ["", ", PRIMARY KEY (id)"], ids=["no index", "primary key"])
def test_rows_are_deleted_updated_and_inserted(database, merge, index):
    database.run(f"CREATE TABLE public.things (id int, name text{index})")
    database.run("INSERT INTO public.things VALUES (1, 'one'), (2, 'two'), (3, 'three')")
    assert merge((1, "gone", True), (2, "new two", False), (4, "four", False), (5, "never", True)) == [1, 1, 1]
    assert things(database) == [(2, "new two"), (3, "three"), (4, "four")]


@pytest.mark.parametrize(
    ("kind", "there", "key"),
    [
        ("numeric", "1.50", "1.5"),
        ("numeric(10,3)", "1.50", "1.5"),
        ("timestamptz", "2026-01-01 12:00+02", "2026-01-01 10:00Z"),
        ("text COLLATE any_case", "Abc", "ABC"),
        ("double precision", "NaN", "NaN"),
        ("bytea", r"\x0a", r"\x0A"),
    ],
)
def test_a_key_is_the_same_where_the_column_says_so(database, merge, kind, there, key):
    database.run(ANY_CASE)
    database.run(f"CREATE TABLE public.things (id {kind}, name text)")
    database.run(f"INSERT INTO public.things VALUES ('{there}', 'old')")
    assert merge((key, "new", False)) == [0, 1, 0]
    assert database.run("SELECT name FROM public.things") == [("new",)]


def test_a_key_that_was_only_written_in_another_way_is_written_so(database, merge):
    database.run(ANY_CASE)
    database.run("CREATE TABLE public.things (id text COLLATE any_case PRIMARY KEY, n int)")
    merge(("Abc", 1, False), ("x", 1, False))
    merge(("ABC", 2, False), ("x", 1, True), ("X", 3, False))
    assert things(database) == [("ABC", 2), ("X", 3)]


def test_two_keys_of_a_batch_that_are_one_for_the_table_are_found(database, merge):
    database.run(ANY_CASE)
    database.run("CREATE TABLE public.things (id text COLLATE any_case, n int)")
    assert merge.doubled(("b", 0, False), ("a", 1, False), ("A", 2, False)) == ("A", "a")
    assert merge.doubled(("a", 1, True), ("A", 2, False)) is None
    database.run("ALTER TABLE public.things ALTER id TYPE text")
    assert merge.doubled(("a", 1, False), ("A", 2, False)) is None


def test_text_is_in_order_by_its_bytes_as_in_spark(database, merge):
    database.run('CREATE TABLE public.things (id int, at text COLLATE "und-x-icu")')
    database.run("INSERT INTO public.things VALUES (1, 'B'), (2, 'a'), (3, NULL)")
    # by the rules of a language, 'a' is before 'B'
    assert merge((1, "a", False), (2, "B", False), (3, "", False), sequence_by="at") == [0, 2, 0]
    assert things(database) == [(1, "a"), (2, "a"), (3, "")]


def test_all_of_several_keys_count_and_a_table_of_keys_alone_is_only_added_to(database, merge):
    database.run('CREATE TABLE public.things ("The Id" int, region text)')
    for _ in range(2):
        merge((1, "a", False), (1, "b", False), keys=("the id", "region"))
    assert things(database) == [(1, "a"), (1, "b")]


def test_keys_that_the_database_numbers_itself_are_those_of_the_batch(database, merge):
    database.run("CREATE TABLE public.things (id int GENERATED ALWAYS AS IDENTITY, name text)")
    for name in ("one", "two"):
        merge((7, name, False))
    assert things(database) == [(7, "two")]


def test_rows_of_partitions_are_found_and_moved(database, merge):
    database.run("CREATE TABLE public.things (id int, day int, name text) PARTITION BY LIST (day)")
    for day in (1, 2):
        database.run(f"CREATE TABLE public.things_{day} PARTITION OF public.things FOR VALUES IN ({day})")
    merge((1, 1, "one", False), (2, 1, "two", False))
    assert merge((1, 2, "one", False), (2, 1, "two", True)) == [1, 1, 0]
    assert database.run("SELECT id, day FROM public.things_2") == [(1, 2)]
    assert database.run("SELECT id FROM public.things_1") == []


@pytest.mark.parametrize("kind", ["INHERITS (public.things)", "PARTITION OF public.things DEFAULT"])
def test_a_trigger_of_a_table_below_may_leave_out_rows(database, kind):
    by = "PARTITION BY LIST (id)" if "PARTITION" in kind else ""
    database.run(f"CREATE TABLE public.things (id int) {by}")
    database.run(f"CREATE TABLE public.below {'()' if not by else ''} {kind}")
    database.run("CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
    with database.connection() as connection:
        assert not may_leave_out(connection, ("public", "things"))
        connection.execute("CREATE TRIGGER t BEFORE UPDATE ON public.below FOR EACH ROW EXECUTE FUNCTION no()")
        assert may_leave_out(connection, ("public", "things"))
