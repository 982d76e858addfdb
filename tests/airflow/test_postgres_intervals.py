"""Data intervals that a DAG loads into PostgreSQL, with a connection of Airflow: each row of the table once."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

import pytest

from tests.airflow.conftest import HOME
from tests.airflow.warehouse import PASSWORD, Search

pytestmark = pytest.mark.timeout(900)

DAG = """
from datetime import datetime, timezone
from airflow.sdk import CronDataIntervalTimetable, DAG
from airflow_provider_fds import DeltaIngestOperator, DeltaStream, PostgresSink

with DAG(
    "days_in_postgres_{mode}",
    schedule=CronDataIntervalTimetable("0 0 * * *", timezone="UTC"),
    start_date=datetime(2026, 1, 1, tzinfo=timezone.utc),
    catchup=False,
):
    DeltaIngestOperator(
        task_id="load",
        stream=DeltaStream("days", table="{lake}/orders", read="data_interval"),
        sink=PostgresSink("public.orders", conn_id="warehouse", mode="{mode}", provenance=True),
        conn_id="spark_default",
    )
"""
ROWS = "SELECT id, name, _source_version FROM public.orders ORDER BY id"
FIRST, SECOND = ([(n, f"n{n}", n // 10) for n in ids] for ids in ((0, 1, 10, 11), (20, 21)))
FOREIGN = (99, "other", None)


@pytest.fixture
def days(installation, on_server, lake, warehouse):
    """Returns a function that makes a DAG, and the run of a day: of four, the third one has no commit."""
    for version, hours in enumerate((0, 8, 24, 72)):
        lake.append("orders", version * 10, version * 10 + 1)
        when = (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=hours)).timestamp()
        os.utime(lake.root / "orders" / "_delta_log" / f"{version:020d}.json", (when, when))
    warehouse.run("INSERT INTO public.orders (id, name) VALUES (99, 'other')")

    def make(mode):
        dag = installation.add(DAG.format(lake=lake.uri, mode=mode))
        return lambda day: installation.run(dag, logical_date=datetime(2026, 1, day + 1, tzinfo=UTC))

    return make


def test_days_are_loaded_in_any_order_and_a_cleared_day_replaces_its_rows_once(
    days, warehouse, tmp_path, capfd, caplog
):
    run = days("replace")
    second = run(2)
    assert second.state("load") == "success"
    assert warehouse.run(ROWS) == [*SECOND, FOREIGN]
    first = run(1)
    assert (first.xcom("load")["first_version"], first.xcom("load")["last_version"]) == (0, 1)
    assert warehouse.run(ROWS) == [*FIRST, *SECOND, FOREIGN]
    assert run(3).state("load") == "skipped"
    assert run(4).state("load") == "success"

    warehouse.run("UPDATE public.orders SET name = 'stale'")
    again = run(1)
    assert again.xcom("load")["generation"] > first.xcom("load")["generation"]
    assert (again.xcom("load")["rows"], again.xcom("load")["interval_start"]) == (4, "2026-01-01T00:00:00.000Z")
    others = [(n, "stale", n // 10) for n in (20, 21, 30, 31)]
    assert warehouse.run(ROWS) == [*FIRST, *others, (99, "stale", None)]
    warehouse.run("DELETE FROM public.orders WHERE id = 10")
    assert run(1).xcom("load")["rows"] == 4
    assert warehouse.run(ROWS) == [*FIRST, *others, (99, "stale", None)]
    written = capfd.readouterr()
    assert "another writer had removed rows, which are loaded again" in written.out + written.err + caplog.text
    assert PASSWORD not in written.out + written.err + caplog.text
    search = Search(tmp_path, HOME)
    search.look()
    assert not search.found


def test_a_cleared_day_that_is_appended_is_not_loaded_again(days, warehouse):
    run = days("append")
    assert run(2).xcom("load")["rows"] == 2
    assert run(1).state("load") == "success"
    again = run(2)
    assert (again.state("load"), again.xcom("load")["rows"]) == ("success", 2)
    assert warehouse.run(ROWS) == [*FIRST, *SECOND, FOREIGN]
    assert warehouse.run("SELECT count(*) FROM fds.batches") == [(2,)]
