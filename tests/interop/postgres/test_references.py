"""Foreign keys to a table from which FDS removes rows to load them again; no Spark is needed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider_fds.batch.sink.postgres_account import Account, Entry
from airflow_provider_fds.batch.spec import FenceSpec
from airflow_provider_fds.sinks import PostgresSink
from airflow_provider_fds.spark.fence.postgres_removal import PostgresRemoval
from airflow_provider_fds.spark.runtime.failures import RefusalError
from airflow_provider_fds.spark.writers.postgres.replaced_interval import ReplacedInterval
from tests.unit.spark.batches import batch

UUID = "0b6c3a6e-7c6d-4c8e-9a51-0e3c1f6f2a11"
DAY = "2026-01-01/2026-01-02"
SINK = PostgresSink("public.orders", conn_id="pg", mode="replace", provenance=True)


@pytest.fixture
def referenced(database: Any) -> Any:
    """Return a function that lets ``items`` refer to a row of version 1."""

    def refer(on_delete: str) -> Any:
        database.run("ALTER TABLE public.orders ADD _source_version bigint, ADD PRIMARY KEY (id)")
        database.run("INSERT INTO public.orders VALUES (7, 'a', 0, 1)")
        database.run(f"CREATE TABLE public.items (order_id bigint REFERENCES public.orders {on_delete})")
        database.run("INSERT INTO public.items VALUES (7)")
        return database

    return refer


def account_of(connection: Any, **fields: Any) -> tuple[Account, str]:
    account = Account(connection, SINK.account, SINK.parts)
    account.create()
    target = account.registered(account.target())
    account.add_stream(UUID, target, "orders", 1)
    account.record(UUID, target, Entry(1, 0, "d", 1, "end", 1, "a", **fields), "table", (0, 9))
    return account, target


def run_again(database: Any) -> None:
    """Replace the interval's row by the same one, as a run that is cleared does."""
    one = replace(batch(epoch=2, uuid=UUID), interval=DAY, interval_versions=(0, 9))
    with database.connection() as connection:
        connection.autocommit = False
        account, target = account_of(connection, interval=DAY)
        job: Any = SimpleNamespace(allow_overlap=False)
        columns: Any = [SimpleNamespace(name="_source_version")]
        ReplacedInterval(account, target, job, one, SINK, 1).remove(connection, columns)
        connection.execute("INSERT INTO public.orders VALUES (7, 'b', 0, 1)")
        connection.commit()


@pytest.mark.parametrize("on_delete", ["ON DELETE CASCADE", "ON DELETE SET NULL"])
def test_a_run_that_is_cleared_takes_no_rows_of_other_tables_with_it(referenced, on_delete):
    database = referenced(on_delete)
    with pytest.raises(RefusalError, match=rf"rows of items .*{on_delete}") as refused:
        run_again(database)
    assert (refused.value.reason, refused.value.retryable) == ("SINK_UNSUITABLE", False)
    assert database.run("SELECT order_id FROM public.items") == [(7,)]


def test_nor_if_they_refer_to_a_partition(database):
    database.run("DROP TABLE public.orders")
    database.run(
        "CREATE TABLE public.orders (id bigint, name text, p bigint, _source_version bigint) PARTITION BY LIST (p)"
    )
    database.run("CREATE TABLE public.zero (id bigint PRIMARY KEY, name text, p bigint, _source_version bigint)")
    database.run("ALTER TABLE public.orders ATTACH PARTITION public.zero FOR VALUES IN (0)")
    database.run("CREATE TABLE public.items (order_id bigint REFERENCES public.zero ON DELETE CASCADE)")
    database.run("INSERT INTO public.orders VALUES (7, 'a', 0, 1)")
    database.run("INSERT INTO public.items VALUES (7)")
    with pytest.raises(RefusalError, match=r"rows of items .*ON DELETE CASCADE"):
        run_again(database)
    assert database.run("SELECT order_id FROM public.items") == [(7,)]


def test_a_deferred_foreign_key_is_satisfied_again_by_the_rows_that_are_loaded(referenced):
    database = referenced("DEFERRABLE INITIALLY DEFERRED")
    run_again(database)
    assert database.run("SELECT name FROM public.orders") == [("b",)]
    assert database.run("SELECT order_id FROM public.items") == [(7,)]


def test_a_fence_takes_no_older_rows_of_its_table_with_those_that_are_read_again(database):
    database.run("ALTER TABLE public.orders ADD _source_version bigint, ADD PRIMARY KEY (id)")
    database.run("ALTER TABLE public.orders ADD FOREIGN KEY (p) REFERENCES public.orders ON DELETE CASCADE")
    refuse_to_remove(database)


def test_nor_through_the_rows_of_another_table(database):
    database.run("ALTER TABLE public.orders ADD _source_version bigint, ADD PRIMARY KEY (id)")
    database.run("CREATE TABLE public.items (id bigint PRIMARY KEY REFERENCES public.orders ON DELETE CASCADE)")
    database.run("ALTER TABLE public.orders ADD FOREIGN KEY (p) REFERENCES public.items ON DELETE CASCADE")
    database.run("INSERT INTO public.orders VALUES (2, 'new', NULL, 5)")
    database.run("INSERT INTO public.items VALUES (2)")
    refuse_to_remove(database)


def refuse_to_remove(database: Any) -> None:
    """Let a fence remove the row of version 5; one of version 1 would go with it."""
    database.run("INSERT INTO public.orders VALUES (2, 'new', NULL, 5) ON CONFLICT DO NOTHING")
    database.run("INSERT INTO public.orders VALUES (1, 'old', 2, 1)")
    fence = FenceSpec(stream="orders", uuid=UUID, epoch=2, removes="rows", from_version=5)
    with database.connection() as connection:
        connection.autocommit = False
        account, target = account_of(connection)
        with pytest.raises(RefusalError, match=r"rows that are not read again: orders .*ON DELETE CASCADE"):
            PostgresRemoval(connection, fence, SINK).remove(account, target)
    assert database.rows() == [1, 2]
