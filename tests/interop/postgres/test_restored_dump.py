"""A table and its account that were restored from a dump; no Spark is needed."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_fds.batch.sink.postgres_account import Account, Entry
from airflow_provider_fds.batch.spec import JobSpec
from airflow_provider_fds.batch.transactions import txn_version
from airflow_provider_fds.sinks import PostgresSink
from airflow_provider_fds.spark.runtime.failures import RefusalError
from airflow_provider_fds.spark.writers.postgres_writer import PostgresWriter
from tests.unit.spark.batches import batch

SINK = PostgresSink("public.orders", conn_id="pg")
PAGE = Path(__file__).parents[3] / "docs" / "sinks.md"
UUID = "0b6c3a6e-7c6d-4c8e-9a51-0e3c1f6f2a11"
#: The batch after batches 0 and 1.
NEXT = replace(batch(number=2, digest="third", uuid=UUID), prev_txn_version=txn_version(1, 1))


def look(database: Any, target: str) -> Any:
    """Let a driver look whether it is the batch's turn."""
    job = JobSpec((NEXT,), SINK.to_dict(), target, 2, "reports", "attempt")
    made = PostgresWriter(None, SINK, job, {})
    with database.connection() as connection:
        connection.autocommit = False
        account = Account(connection, SINK.account, SINK.parts)
        return made._find(account, NEXT, made._known(account, NEXT))


@pytest.mark.parametrize("has_all", [True, False])
def test_the_statement_of_the_page_lets_the_stream_continue_where_the_copy_is(database, has_all):
    with database.connection() as connection:
        connection.autocommit = False
        account = Account(connection, SINK.account, SINK.parts)
        account.create()
        target = account.registered(account.target())
        account.add_stream(UUID, target, "orders", 1)
        for number in range(2 if has_all else 1):
            account.record(UUID, target, Entry(1, number, f"d{number}", 1, "end", number + 1, "a"))
        connection.commit()
    # what pg_restore makes: the same rows in a table with another oid
    database.run("ALTER TABLE public.orders RENAME TO dropped")
    database.run("CREATE TABLE public.orders (LIKE dropped)")
    with pytest.raises(RefusalError, match="restored from a dump") as refused:
        look(database, target)
    assert target in str(refused.value)
    assert 'the page "Sinks"' in str(refused.value)

    # in another server, a table may have the oid that another one had in the first
    database.run("INSERT INTO fds.targets SELECT gen_random_uuid(), 'public.orders'::regclass::oid::bigint, 'another'")
    (statement,) = re.findall(r"`(UPDATE fds\.targets .*?)`", PAGE.read_text(encoding="utf-8"))
    database.run(statement.replace("SCHEMA.TABLE", "public.orders").replace("'ID'", f"'{target}'"))
    if has_all:
        assert look(database, target) is None
        return
    with pytest.raises(RefusalError, match="lacks committed batches") as refused:
        look(database, target)
    assert "--to batch:1 " in str(refused.value)
