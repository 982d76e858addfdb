"""A table by its name in a Hive metastore, in a real Airflow: sensor, ingest, monitor and watcher."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
from typing import TYPE_CHECKING

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred
from msgspec.structs import replace

from airflow_provider_fds import DeltaStream, DeltaTableHook, DeltaTableVersionSensor
from airflow_provider_fds.catalog.hive import HiveCatalog
from airflow_provider_fds.catalog.names import TableName
from airflow_provider_fds.catalog.table import CatalogPlaces
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import EXIT_CONFIGURATION, ConfigurationError
from airflow_provider_fds.hooks.places import TableAddress
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.ledger.state import StreamState
from airflow_provider_fds.ledger.values import CatalogName
from airflow_provider_fds.places import Paths
from airflow_provider_fds.triggers import catalog_look
from airflow_provider_fds.triggers.catalog_look import ask_catalog
from airflow_provider_fds.triggers.delta_stream_monitor import DeltaStreamMonitorTrigger
from airflow_provider_fds.triggers.delta_table_change import DeltaTableChangeTrigger
from airflow_provider_fds.triggers.delta_table_condition import DeltaTableConditionTrigger
from airflow_provider_fds.triggers.table_poll import Watchers, ticks
from tests.airflow.test_asset_watcher import SHARES, AssetStore, stored_version, triggerer, until
from tests.airflow.test_sensor_without_stream import TaskInstance
from tests.fds_command import airflow_fds, fds
from tests.interop.catalog.metastore import metastore_program, move, register, unregister

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOADED = TableName(("sales", "orders_loaded"))

DAG_TEXT = """
from datetime import datetime
from airflow.sdk import DAG
from airflow_provider_fds import DeltaTableVersionSensor

with DAG("known_by_name", schedule=None, start_date=datetime(2026, 1, 1)):
    DeltaTableVersionSensor(
        task_id="known", table="sales.orders", catalog_conn_id="hive", version=1, timeout=1, poll_interval=1
    )
"""


FLEET_TEXT = """
from datetime import datetime
from airflow.sdk import DAG
from airflow_provider_fds import DeltaAppendSink, DeltaFleetOperator, TablePattern

with DAG("schema_by_name", schedule=None, start_date=datetime(2026, 1, 1)):
    DeltaFleetOperator(
        task_id="load",
        patterns=[
            TablePattern(
                "crm.*",
                sink=DeltaAppendSink("{lake}/by_name/{{schema}}/{{table}}"),
                name="crm_{{table}}",
                exclude=["tmp_*"],
                catalog_conn_id="hive",
                options={{"starting_version": "earliest"}},
            )
        ],
        on_gone="retire",
    )
"""


MOVED_TEXT = """
from datetime import datetime
from airflow.sdk import DAG
from airflow_provider_fds import DeltaAppendSink, DeltaIngestOperator, DeltaStream, DeltaTableVersionSensor

items = DeltaStream("items", table="sales.items", catalog_conn_id="hive", starting_version="earliest")
with DAG("waits_by_name", schedule=None, start_date=datetime(2026, 1, 1)):
    wait = DeltaTableVersionSensor(task_id="wait", stream=items, deferrable=True, poke_interval=1, timeout=300)
    wait >> DeltaIngestOperator(task_id="ingest", stream=items, sink=DeltaAppendSink("{lake}/bronze/items"))
"""

ACCEPT_TEXT = """
from datetime import datetime
from airflow.sdk import DAG
from airflow_provider_fds import DeltaStreamActionOperator

with DAG("accepts", schedule=None, start_date=datetime(2026, 1, 1)):
    DeltaStreamActionOperator(
        task_id="act", stream="items", action="accept", moved_to="{folder}", why="the disk was full"
    )
"""


@pytest.fixture(scope="module")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with metastore_program(tmp_path_factory.mktemp("metastore")) as program:
        yield f"thrift://127.0.0.1:{program.receive('port')}"


@pytest.fixture
def hive(metastore: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    port = int(metastore.rpartition(":")[2])
    monkeypatch.setenv("AIRFLOW_CONN_HIVE", json.dumps({"conn_type": "fds_hive", "host": "127.0.0.1", "port": port}))
    yield metastore
    for name in ("sales.orders", "sales.orders_loaded"):
        unregister(metastore, name)


def ledger_of(tmp_path: Path, name: str) -> Ledger:
    return Ledger(open_storage((tmp_path / "staging").as_uri()), name, deployment="http://fds.test")


def test_a_table_is_found_by_its_name_wherever_a_dag_names_it(
    installation, lake, hive, tmp_path, on_server, monkeypatch
):
    monkeypatch.setenv("FDS_EXAMPLE_LAKE", lake.uri)
    lake.append("orders", 1, 2)
    register(hive, "sales.orders", f"{lake.uri}/orders")
    dag = installation.add_example("orders_by_name")
    dag.get_task("wait").timeout = 1
    with on_server():
        assert set(installation.run(dag).states.values()) == {"success"}
    assert lake.ids("by_name/orders") == [1, 2]
    catalog = HiveCatalog(hive)
    assert catalog.load(LOADED).location == f"{lake.uri}/by_name/orders"

    state = ledger_of(tmp_path, "orders_by_name").find()
    assert state.sink.target == f"{lake.uri}/by_name/orders"
    assert (state.table, state.catalog.connection, state.catalog.name) == (
        f"{lake.uri}/orders", "hive", "sales.orders"
    )  # fmt: skip

    # nothing new: the sensor waits; then what came
    assert installation.run(dag).state("wait") == "skipped"
    lake.append("orders", 3)
    assert installation.run(dag).state("ingest") == "success"
    assert lake.ids("by_name/orders") == [1, 2, 3]
    assert installation.run(installation.add(DAG_TEXT)).state("known") == "success"
    assert DeltaTableHook(catalog_conn_id="hive").latest_version("sales.orders") == 1

    # another table has the name of the sink: nothing is loaded into it
    lake.append("orders", 4)
    unregister(hive, "sales.orders_loaded")
    register(hive, "sales.orders_loaded", f"{lake.uri}/elsewhere")
    assert installation.run(dag).state("ingest") != "success"
    assert lake.ids("by_name/orders") == [1, 2, 3]
    # forgotten, but still there: the next run registers it
    unregister(hive, "sales.orders_loaded")
    assert installation.run(dag).state("ingest") == "success"
    assert lake.ids("by_name/orders") == [1, 2, 3, 4]
    assert catalog.load(LOADED).location == f"{lake.uri}/by_name/orders"
    catalog.close()

    # another table of the name, at another place: nothing of it is loaded
    lake.append("other", 7)
    unregister(hive, "sales.orders")
    register(hive, "sales.orders", f"{lake.uri}/other")
    assert "success" not in installation.run(dag).states.values()
    assert lake.ids("by_name/orders") == [1, 2, 3, 4]


def test_a_fleet_finds_the_tables_of_a_schema_as_they_appear_and_go(
    installation, lake, hive, tmp_path, on_server, caplog
):
    def outcomes(run):
        return {name: one["outcome"] for name, one in run.xcom("load")["streams"].items()}

    for name, ident in (("orders", 1), ("lines", 2), ("tmp_orders", 3)):
        lake.append(name, ident)
        register(hive, f"crm.{name}", f"{lake.uri}/{name}")
    register(hive, "crm.csvs", f"{lake.uri}/csvs", provider="csv")
    dag = installation.add(FLEET_TEXT.format(lake=lake.uri))
    assert outcomes(installation.run(dag)) == {"crm_lines": "loaded", "crm_orders": "loaded"}
    assert "pattern crm.*: 1 name left out that FDS cannot read: crm.csvs" in caplog.text
    assert (lake.ids("by_name/crm/orders"), lake.ids("by_name/crm/lines")) == ([1], [2])

    # one table appears, one goes and fails none of the others, and one has the name of what is not Delta
    lake.append("late", 4)
    lake.append("lines", 5)
    register(hive, "crm.late", f"{lake.uri}/late")
    unregister(hive, "crm.orders")
    run = installation.run(dag)
    assert outcomes(run) == {"crm_late": "loaded", "crm_lines": "loaded", "crm_orders": "gone"}
    assert (lake.ids("by_name/crm/late"), lake.ids("by_name/crm/lines")) == ([4], [2, 5])
    assert ledger_of(tmp_path, "crm_orders").find().retired is not None
    assert ledger_of(tmp_path, "crm_late").find().catalog.name == "crm.late"
    for name in ("lines", "late", "tmp_orders", "csvs"):
        unregister(hive, f"crm.{name}")


def test_a_task_that_waits_notices_that_its_table_moved_and_goes_on_once_that_is_accepted(
    installation, lake, hive, tmp_path, on_server, capsys, monkeypatch
):
    lake.append("items", 1, 2)
    register(hive, "sales.items", f"{lake.uri}/items")
    dag = installation.add(MOVED_TEXT.format(lake=lake.uri))
    assert installation.run(dag).state("ingest") == "success"

    asked = []

    def ask_and_move(address):
        asked.append(address.table)
        if len(asked) == 3:
            # while the task waits
            shutil.move(lake.root / "items", lake.root / "new" / "items")
            move(hive, "sales.items", f"{lake.uri}/new/items")
        return ask_catalog(address)

    monkeypatch.setattr(catalog_look, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(catalog_look, "ask_catalog", ask_and_move)
    assert installation.run(dag).state("wait") == "failed"
    assert asked == ["sales.items"] * 3
    log = capsys.readouterr().out
    assert "its name sales.items is now that of another table, or of another folder" in log
    assert f"its catalog has moved that table to {lake.uri}/new/items" in log

    accepted = installation.run(installation.add(ACCEPT_TEXT.format(folder=f"{lake.uri}/new/items")))
    assert accepted.state("act") == "success"
    lake.append("new/items", 3)
    assert installation.run(dag).state("ingest") == "success"
    assert lake.ids("bronze/items") == [1, 2, 3]
    assert ledger_of(tmp_path, "items").find().table == f"{lake.uri}/new/items"
    unregister(hive, "sales.items")


def test_the_command_line_of_airflow_knows_the_connections_of_sources_and_of_sinks(
    installation, lake, hive, spark_server, tmp_path, monkeypatch
):
    monkeypatch.setenv("AIRFLOW__FDS__DEPLOYMENT", "http://fds.test")
    lake.append("orders", 1, 2)
    register(hive, "sales.orders", f"{lake.uri}/orders")
    sink = f"{{uri: sales.orders_loaded, catalog_conn_id: hive, create: true, location: '{lake.uri}/bronze'}}"
    file = tmp_path / "streams.yaml"
    file.write_text(
        f"streams: [{{name: orders, table: sales.orders, catalog_conn_id: hive, starting_version: 0, sink: {sink}}}]"
    )
    words = ["run", "--file", str(file), "--remote", spark_server.url]
    # without Airflow: the catalog of the sources is given, and that of the sinks is missing
    refused = fds(*words, "--catalog", hive)
    assert refused.returncode == EXIT_CONFIGURATION
    assert "sales.orders_loaded is the Airflow connection 'hive'" in refused.stderr
    assert airflow_fds(*words).returncode == 0
    assert lake.ids("bronze") == [1, 2]
    assert HiveCatalog(hive).load(LOADED).location == f"{lake.uri}/bronze"

    lake.append("orders", 3)
    orders = ["run", "sales.orders", "--catalog", "hive", "--stream", "orders", "--option", "starting_version=0"]
    loaded = [*orders, "--remote", spark_server.url, "--sink", "sales.orders_loaded", "--sink-catalog"]
    assert airflow_fds(*loaded, "hive").returncode == 0
    assert lake.ids("bronze") == [1, 2, 3]
    unknown = airflow_fds(*loaded, "nosuch")
    assert unknown.returncode == EXIT_CONFIGURATION
    assert "connection 'nosuch', which is the catalog_conn_id, does not exist" in unknown.stderr


def test_the_monitor_asks_the_catalog_of_a_connection_and_reads_what_the_command_line_loads_by_its_uri(
    installation, monkeypatch, tmp_path
):
    monkeypatch.setenv("AIRFLOW_CONN_HIVE", json.dumps({"conn_type": "fds_hive", "host": "127.0.0.1"}))
    trigger = DeltaStreamMonitorTrigger(staging=str(tmp_path), interval=60.0, until=0.0)
    named = CatalogName(connection="hive", name="sales.orders")
    state = StreamState(name="orders", table="/lake/orders", catalog=named)
    assert isinstance(trigger._places_for(state), CatalogPlaces)
    for other in (None, CatalogName(connection="thrift://127.0.0.1:9083", name="sales.orders")):
        assert trigger._places_for(replace(state, catalog=other)) == Paths()


def test_watchers_of_one_name_share_a_poll(hive):
    orders = DeltaStream("orders", table="sales.orders", catalog_conn_id="hive")
    by_stream, by_table = (
        DeltaTableChangeTrigger(stream=orders),
        DeltaTableChangeTrigger(table="sales.orders", catalog_conn_id="hive"),
    )
    assert by_stream.shared_stream_key() == by_table.shared_stream_key()
    _, arguments = by_table.serialize()
    assert DeltaTableChangeTrigger(**arguments).shared_stream_key() == by_table.shared_stream_key()
    assert by_table._address().uri == "catalog://hive/sales.orders"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that metastores were asked for."""
    found = []
    load = HiveCatalog.load

    def counted(catalog, name):
        found.append(str(name))
        return load(catalog, name)

    monkeypatch.setattr(HiveCatalog, "load", counted)
    return found


async def test_a_name_that_the_catalog_does_not_have_yet_is_waited_for(installation, hive, log_builder, asked):
    store = AssetStore()
    watcher = DeltaTableChangeTrigger(table="sales.orders", catalog_conn_id="hive", poll_interval=0.05)
    if SHARES:
        watcher.asset_state_store = store
    waiting = DeltaTableConditionTrigger(
        table="sales.orders", catalog_conn_id="hive", condition={"after_version": -1}, poll_interval=0.05
    )
    sensor = DeltaTableVersionSensor(
        task_id="wait", table="sales.orders", catalog_conn_id="hive", version=1, deferrable=True
    )
    with pytest.raises(TaskDeferred) as deferred:
        await asyncio.to_thread(sensor.execute, {"ti": TaskInstance()})
    assert deferred.value.trigger.serialize()[1]["condition"] == {"version": 1}
    async with triggerer() as running:
        running.start(watcher)
        found = asyncio.ensure_future(anext(waiting.run()))
        await until(lambda: len(asked) > 5)
        if SHARES:
            await until(lambda: stored_version(store) == -1)
        log_builder.create()
        log_builder.append()
        await asyncio.to_thread(register, hive, "sales.orders", log_builder.uri)
        assert (await found).payload["status"] == "success"
        await until(lambda: running.events)
    assert [(event["first_version"], event["table"]) for event in running.events] == [
        (1, "catalog://hive/sales.orders")
    ]


async def test_a_watcher_goes_on_with_the_table_that_its_name_means_now(installation, hive, lake, monkeypatch):
    monkeypatch.setattr(catalog_look, "LOOK_SECONDS", 0.05)
    lake.append("orders", 1)
    register(hive, "sales.orders", f"{lake.uri}/orders")
    watchers = Watchers()
    watchers.join("test", 0.01)
    found = ticks(TableAddress("sales.orders", catalog_conn_id="hive"), watchers)
    try:
        assert (await anext(found)).newest.version == 0
        for _ in range(3):
            lake.append("anew", 7)
        unregister(hive, "sales.orders")
        register(hive, "sales.orders", f"{lake.uri}/anew")
        async with asyncio.timeout(60):
            assert (await anext(found)).newest.version == 2
    finally:
        await found.aclose()


@pytest.mark.parametrize(
    ("connection", "words"),
    [
        (None, "does not exist. Create it with `airflow connections add hive --conn-type fds_hive"),
        ({"conn_type": "http", "host": "h"}, "is of type 'http', but catalog_conn_id needs one of 'fds_hive'"),
        ({"conn_type": "fds_hive"}, "has no host"),
        ({"conn_type": "hive_metastore", "host": "h", "extra": {"auth_mechanism": "GSSAPI"}}, "asks for GSSAPI"),
    ],
)
def test_a_connection_that_is_none_of_a_catalog_says_so(installation, monkeypatch, connection, words):
    if connection is not None:
        monkeypatch.setenv("AIRFLOW_CONN_HIVE", json.dumps(connection))
    with pytest.raises(ConfigurationError, match=words):
        DeltaTableHook(catalog_conn_id="hive").latest_version("sales.orders")


@pytest.mark.parametrize("host", ["thrift://127.0.0.1", "127.0.0.1,other.example:9999", "127.0.0.1:{port}"])
def test_the_hosts_of_a_connection_are_read_as_people_write_them(installation, hive, monkeypatch, lake, host):
    port = int(hive.rpartition(":")[2])
    connection = {"conn_type": "hive_metastore", "host": host.format(port=port), "port": port}
    monkeypatch.setenv("AIRFLOW_CONN_HIVE", json.dumps(connection))
    lake.append("orders", 1)
    register(hive, "sales.orders", f"{lake.uri}/orders")
    assert DeltaTableHook(catalog_conn_id="hive").latest_version("sales.orders") == 0


def test_the_button_in_the_form_says_whether_the_catalog_answers(installation, hive, monkeypatch):
    from airflow.models.connection import Connection

    assert Connection(conn_id="hive", conn_type="fds_hive").test_connection() == (True, "the catalog answers")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        down = {"conn_type": "fds_hive", "host": "127.0.0.1", "port": taken.getsockname()[1]}
        # Airflow's UI, too, tests a connection under an id of its own in the environment
        monkeypatch.setenv("AIRFLOW_CONN_DOWN", json.dumps(down))
        is_there, message = Connection(conn_id="down", conn_type="fds_hive").test_connection()
    assert not is_there
    assert "Hive metastore thrift://127.0.0.1" in message
