"""Each DAG in ``dags/``, run for real: Airflow's task processes, spark-submit on ``local[1]`` or a Spark server."""

from __future__ import annotations

import sys
import threading
import time
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_provider_fds import example_dags
from tests.interop import quick_spark
from tests.postgresql import missing, running_server


@pytest.fixture(autouse=True)
def example_lake(lake, monkeypatch):
    monkeypatch.setenv("FDS_EXAMPLE_LAKE", lake.uri)
    return lake


def test_every_task_of_fds_is_retried(installation):
    """A worker that dies and Airflow's state mismatch of a deferred task need it."""
    examples = [path.stem for path in Path(example_dags.__file__).parent.glob("*.py") if path.stem != "__init__"]
    tasks = [task for name in examples for task in installation.add_example(name).tasks]
    without = {
        task.task_id for task in tasks if type(task).__module__.startswith("airflow_provider_fds") and not task.retries
    }
    assert not without
    assert len(tasks) > 15


def test_orders_to_bronze_loads_what_is_there_and_tells_the_consumer(installation, on_server, lake):
    lake.append("orders", 1, 2)
    lake.append("orders", 3)
    installation.add_example("orders_consumer")
    run = installation.run(installation.add_example("orders_to_bronze"))

    assert run.states == {("wait", -1): "success", ("ingest", -1): "success"}
    assert run.xcom("wait") == 1
    result = run.xcom("ingest")
    assert lake.ids("bronze/orders") == [1, 2, 3]
    assert (result["rows"], result["batches"], result["sink_version"]) == (3, 1, 0)
    # the sink's asset has one event, and the consumer's run is queued
    assert installation.events(f"{lake.uri}/bronze/orders") == [result]
    assert installation.queued_dags() == ["orders_consumer"]
    consumer = installation.run(installation.add_example("orders_consumer"))
    assert consumer.xcom("report") == result


# D48
def test_orders_cron_loads_and_then_skips_what_is_not_new(installation, on_server, lake):
    lake.append("orders", 1, 2)
    dag = installation.add_example("orders_cron")
    assert installation.run(dag).state("ingest") == "success"
    assert lake.ids("cron/orders") == [1, 2]
    assert installation.run(dag).state("ingest") == "skipped"


def test_orders_live_loads_what_comes_while_it_lingers_with_one_spark(installation, lake):
    lake.append("orders", 1, 2)
    dag = installation.add_example("orders_live")
    dag.get_task("ingest").linger = timedelta(seconds=8)

    first = lake.root / "live" / "orders" / "_delta_log" / f"{0:020}.json"

    def write() -> None:
        for number, landed in enumerate(([1, 2], [1, 2, 3]), start=3):
            while not first.exists() or lake.ids("live/orders") != landed:
                time.sleep(0.1)
            lake.append("orders", number)

    writing = threading.Thread(target=write)
    writing.start()
    run = installation.run(dag)
    writing.join()
    result = run.xcom("ingest")
    assert lake.ids("live/orders") == [1, 2, 3, 4]
    # the XCom and the event cover all batches of the run
    assert (result["batches"], result["rows"], result["last_version"]) == (3, 4, 2)
    assert installation.events(f"{lake.uri}/live/orders") == [result]


def test_orders_watch_starts_its_work_once_per_change(installation, lake):
    lake.append("orders", 1)
    dag = installation.add_example("orders_watch")
    dag.get_task("changed").timeout = 5
    first = installation.run(dag)
    assert (first.xcom("changed"), first.state("refresh")) == (0, "success")
    lake.append("orders", 2)
    assert installation.run(dag).xcom("refresh") == 1


def test_many_tables_loads_each_table_with_a_stream_of_its_own(installation, on_server, lake):
    lake.append("orders", 1, 2)
    lake.append("customers", 7)
    run = installation.run(installation.add_example("many_tables"))
    assert run.states == {("ingest", 0): "success", ("ingest", 1): "success"}
    assert run.map_labels == {("ingest", 0): "many_orders", ("ingest", 1): "many_customers"}
    assert (lake.ids("many/orders"), lake.ids("many/customers")) == ([1, 2], [7])
    assert run.xcom("ingest", map_index=1)["rows"] == 1
    assert installation.events(f"{lake.uri}/many/customers") == [run.xcom("ingest", map_index=1)]
    assert installation.events(f"{lake.uri}/many/orders") == [run.xcom("ingest", map_index=0)]


def test_fleet_loads_each_table_in_one_application(installation, on_server, lake):
    lake.append("orders", 1, 2)
    lake.append("customers", 7)
    run = installation.run(installation.add_example("fleet"))
    assert run.states == {("load", -1): "success"}
    assert (lake.ids("fleet/orders"), lake.ids("fleet/customers")) == ([1, 2], [7])
    assert run.xcom("load")["counts"] == {"loaded": 2}


def test_fleet_file_loads_all_tables_of_a_lake_and_those_that_appear(installation, on_server, lake):
    lake.append("orders", 1, 2)
    lake.append("customers", 7)
    dag = installation.add_example("fleet_file")
    assert dag.fileloc.endswith("/fleet_file.py")
    first = installation.run(dag)
    assert first.state("load") == "success"
    assert (lake.ids("from_file/orders"), lake.ids("from_file/customers")) == ([1, 2], [7])
    lake.append("items", 9)
    assert installation.run(dag).state("load") == "success"
    assert (lake.ids("from_file/orders"), lake.ids("from_file/items")) == ([1, 2], [9])


def test_orders_three_tasks_loads_with_a_job_of_the_user(installation, lake, tmp_path, monkeypatch):
    from airflow_provider_fds.spark.installation.install import bundled_spark_home

    home = bundled_spark_home()
    monkeypatch.setenv("PATH", f"{home / 'bin'}:{Path(sys.executable).parent}:/usr/bin:/bin")
    monkeypatch.setenv("SPARK_HOME", str(home))
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    # what the installation of the user sets for all jobs
    defaults = {**quick_spark.INTERPRETED, **quick_spark.SMALL_LOGS, "spark.driver.extraJavaOptions": quick_spark.JVM}
    (tmp_path / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in defaults.items()))
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    lake.append("orders", 1, 2)
    run = installation.run(installation.add_example("orders_three_tasks"))
    assert set(run.states.values()) == {"success"}
    assert lake.ids("own/orders") == [1, 2]
    assert (run.xcom("commit")["batches"], run.xcom("commit")["rows"]) == (1, 2)


def test_orders_merged_keeps_one_row_per_key_and_hands_changes_to_a_function(installation, lake):
    lake.append("orders", 1, 2, configuration={"delta.enableChangeDataFeed": "true"})
    lake.append("orders", 3)
    lake.delete("orders", "id = 2")
    run = installation.run(installation.add_example("orders_merged"))
    assert set(run.states.values()) == {"success"}
    assert lake.ids("silver/orders") == [1, 3]
    # the table as it is comes first, as inserts
    assert (lake.ids("split/kept"), lake.ids("split/gone")) == ([1, 3], [])
    assert (run.xcom("split")["rows"], run.xcom("split")["sink_version"]) == (2, None)
    assert installation.events(f"{lake.uri}/silver/orders") == [run.xcom("merge")]


def test_orders_function_hands_the_new_rows_to_a_function_in_a_session_of_the_task(installation, lake):
    lake.append("orders", 1, 200)
    lake.append("orders", 300)
    dag = installation.add_example("orders_function")
    run = installation.run(dag)
    assert run.state("load_large") == "success"
    assert lake.ids("large/orders") == [200, 300]
    result = run.xcom("load_large")
    assert (result["batches"], result["last_version"]) == (1, 1)
    assert installation.run(dag).state("load_large") == "skipped"


def test_orders_on_change_is_started_by_its_table_and_loads_what_is_new(installation, on_server, lake):
    import asyncio

    dag = installation.add_example("orders_on_change")
    (asset,) = dag.timetable.asset_condition.objects
    trigger = asset.watchers[0].trigger

    async def event():
        return await anext(trigger.run())

    lake.append("orders", 1, 2)
    assert asyncio.run(event()).payload["last_version"] == 0
    assert installation.run(dag).xcom("ingest")["rows"] == 2
    assert lake.ids("on_change/orders") == [1, 2]


def test_orders_to_postgres_loads_each_row_once_and_its_task_shows_no_password(
    installation, on_server, lake, monkeypatch
):
    if (problem := missing("psycopg")) is not None:
        pytest.skip(problem)
    import psycopg

    with running_server("fds") as server:
        monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", f"postgres://fds:not-shown@127.0.0.1:{server.port}/postgres")
        with psycopg.connect(host="127.0.0.1", port=server.port, user="fds", dbname="postgres", autocommit=True) as one:
            one.execute("CREATE TABLE public.orders (id bigint, _source_version bigint, _source_timestamp timestamptz)")
            dag = installation.add_example("orders_to_postgres")
            for ids in ((1, 2), (3,)):
                lake.append("orders", *ids)
                run = installation.run(dag)
                assert run.state("ingest") == "success"
            found = one.execute("SELECT id, _source_version FROM public.orders ORDER BY id").fetchall()
        assert found == [(1, 0), (2, 0), (3, 1)]
        assert (run.xcom("ingest")["rows"], run.xcom("ingest")["sink_version"]) == (1, 2)
        staged = [path for path in lake.root.rglob("*") if path.is_file() and b"not-shown" in path.read_bytes()]
        assert not staged


def test_orders_expected_puts_bad_rows_aside_and_orders_mended_loads_them(installation, on_server, lake):
    lake.append("orders", 1, 2, -3, 0, 1001, 6)
    result = installation.run(installation.add_example("orders_expected")).xcom("ingest")
    assert lake.ids("tested/orders") == [1, 2, 6, 1001]
    assert lake.ids("rejects/orders") == [-3, 0]
    assert (result["rows"], result["rows_read"], result["rows_rejected"]) == (4, 6, 2)
    assert result["failed_rows"] == {"id < 1000": 1, "id <> 0": 1, "id > 0": 2, "id IS NOT NULL": 0}
    # the event of the sink's asset has the same
    assert installation.events(f"{lake.uri}/tested/orders") == [result]
    assert installation.run(installation.add_example("orders_mended")).xcom("load_again")["rows"] == 1
    assert lake.ids("tested/orders") == [-3, 1, 2, 6, 1001]


def test_orders_merged_to_postgres_keeps_one_row_per_key(installation, lake, monkeypatch):
    if (problem := missing("psycopg")) is not None:
        pytest.skip(problem)
    import psycopg

    lake.append("orders", 1, 2, configuration={"delta.enableChangeDataFeed": "true"})
    with running_server("fds") as server:
        monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", f"postgres://fds@127.0.0.1:{server.port}/postgres")
        with psycopg.connect(host="127.0.0.1", port=server.port, user="fds", dbname="postgres", autocommit=True) as one:
            one.execute("CREATE TABLE public.orders_now (id bigint PRIMARY KEY)")
            dag = installation.add_example("orders_merged_to_postgres")
            assert installation.run(dag).state("merge") == "success"
            lake.append("orders", 3)
            lake.delete("orders", "id = 2")
            assert installation.run(dag).state("merge") == "success"
            assert one.execute("SELECT id FROM public.orders_now ORDER BY id").fetchall() == [(1,), (3,)]
