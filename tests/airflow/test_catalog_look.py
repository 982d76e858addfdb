"""What the name of a polled table stands for is looked up from time to time, once for all triggers of a process."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from airflow_provider_fds import DeltaStream
from airflow_provider_fds.catalog import problems
from airflow_provider_fds.catalog.names import TableName
from airflow_provider_fds.catalog.table import CatalogPlaces, CatalogTable
from airflow_provider_fds.fleet.positions import KnownPosition, declared
from airflow_provider_fds.hooks import places, stream_context
from airflow_provider_fds.hooks.places import TableAddress
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.triggers.catalog_look import LOOK_SECONDS, CatalogLooks, Meaning, shared_looks
from airflow_provider_fds.triggers.delta_table_condition import DeltaTableConditionTrigger
from airflow_provider_fds.triggers.table_poll import Watchers, ticks
from tests.airflow.test_fleet_trigger import Tables, payload
from tests.conftest import LogBuilder

NAME = "sales.orders"
ORDERS, LINES = TableAddress("sales.orders", None, "hive"), TableAddress("sales.lines", None, "hive")
HERE, THERE = Meaning("file:///lake/here", "1"), Meaning("file:///lake/there", "1")


class Asked:
    """Answers looks, and counts them; an answer that is an error is raised."""

    def __init__(self):
        self.now = 0.0
        self.answers = {ORDERS: HERE, LINES: THERE}
        self.asked = []
        self.looks = CatalogLooks(self.answer, lambda: self.now)

    def answer(self, address):
        self.asked.append(address)
        if isinstance(answer := self.answers[address], Exception):
            raise answer
        return answer


@pytest.fixture
def asked():
    return Asked()


async def test_the_streams_of_a_table_share_one_look_every_ten_minutes(asked):
    looks = asked.looks
    assert await asyncio.gather(*(looks.meaning(one) for one in (ORDERS, ORDERS, LINES, ORDERS))) == [
        HERE, HERE, THERE, HERE
    ]  # fmt: skip
    assert sorted(asked.asked) == [LINES, ORDERS]
    asked.now = LOOK_SECONDS - 1
    asked.answers[ORDERS] = THERE
    assert await looks.change(ORDERS, HERE) is None
    asked.now = LOOK_SECONDS
    found = await asyncio.gather(*(looks.change(ORDERS, HERE) for _ in range(3)))
    assert found == ["its name sales.orders is now that of another table, or of another folder: file:///lake/there"] * 3
    assert asked.asked.count(ORDERS) == 2
    assert await looks.change(ORDERS, THERE) is None
    # by its URI, there is nothing to ask
    assert await looks.meaning(TableAddress("file:///lake/here")) is None


async def test_a_catalog_that_is_down_is_asked_less_and_less_often_and_said_once(asked, caplog):
    caplog.set_level(logging.INFO)
    looks = asked.looks
    await looks.meaning(ORDERS)
    asked.answers[ORDERS] = problems.unavailable("the catalog", TableName(("sales", "orders")), "it is down")
    times = []
    for minute in range(10, 301, 10):
        asked.now = 60.0 * minute
        before = len(asked.asked)
        assert await looks.change(ORDERS, HERE) is None
        times += [minute] * (len(asked.asked) - before)
    assert times == [10, 20, 40, 80, 160, 240]
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert "Table sales.orders is polled where it was" in warning.message
    asked.answers[ORDERS] = THERE
    asked.now = 60.0 * 320
    assert "another folder" in await looks.change(ORDERS, HERE)
    assert caplog.records[-1].message == "The catalog of table sales.orders answers again."


class Metastore:
    """A catalog that can be down."""

    def __init__(self, folder):
        self.folder = folder
        self.error = None

    def load(self, name):
        if self.error is not None:
            raise self.error
        return CatalogTable(name, str(self.folder), "1")


@pytest.fixture
def metastore(log_builder, monkeypatch):
    log_builder.with_appends(1)
    found = Metastore(log_builder.root)
    for module in (places, stream_context):
        monkeypatch.setattr(module, "table_places", lambda *_: CatalogPlaces(found, lambda _uri: {}))
    return found


def down():
    return problems.unavailable("the catalog", TableName(("sales", "orders")), "it is down")


async def reopened(trigger, polls):
    """Poll so many times without the pauses between; return what there was to report."""
    for number in range(polls):
        found = await trigger._poll(is_recheck=number % trigger.recheck_every == 0)
        if found is not None:
            return found
    return None


async def test_a_task_that_waits_is_woken_when_the_name_means_another_folder(metastore, log_builder, tmp_path):
    now = [0.0]
    shared_looks()._clock = lambda: now[0]
    condition = {"version": 5}
    trigger = DeltaTableConditionTrigger(table="sales.orders", catalog_conn_id="hive", condition=condition)
    assert await reopened(trigger, 30) is None
    # down in a look and in a recheck: it goes on where it was
    metastore.error = down()
    now[0] += LOOK_SECONDS
    assert [await trigger._poll(is_recheck=is_recheck) for is_recheck in (False, True, False)] == [None, None, None]
    metastore.error, metastore.folder = None, tmp_path / "elsewhere"
    now[0] += LOOK_SECONDS
    found = await trigger._poll(is_recheck=False)
    assert found.reason.startswith("stopped: its name sales.orders is now that of another table, or of another folder")
    assert found.newest_version == -1


async def test_a_name_that_is_gone_wakes_the_task_too(metastore):
    now = [0.0]
    shared_looks()._clock = lambda: now[0]
    trigger = DeltaTableConditionTrigger(table="sales.orders", catalog_conn_id="hive", condition={"version": 5})
    await trigger._poll(is_recheck=True)
    metastore.error = problems.not_found("the catalog", TableName(("sales", "orders")))
    now[0] += LOOK_SECONDS
    found = await trigger._poll(is_recheck=False)
    assert "its name can no longer be read: the catalog has no table sales.orders" in found.reason


async def test_a_watcher_follows_a_name_to_another_folder(metastore, tmp_path):
    now = [0.0]
    shared_looks()._clock = lambda: now[0]
    watchers = Watchers()
    watchers.join("a", 0.01)
    polled = ticks(ORDERS, watchers)
    assert (await anext(polled)).newest.version == 1
    other = LogBuilder(tmp_path / "other")
    other.with_appends(4)
    metastore.folder = other.root
    now[0] += LOOK_SECONDS
    assert (await anext(polled)).newest.version == 4
    await polled.aclose()


class NamedTables(Tables):
    """The tables of a fleet, of which one has a name in a catalog."""

    def __init__(self, root, metastore):
        super().__init__(root, 1)
        self.metastore = metastore
        metastore.folder = self.logs["t0"].root
        self.streams = [
            replace(
                one, stream=DeltaStream.from_dict({**one.stream.to_dict(), "table": NAME, "catalog_conn_id": "hive"})
            )
            for one in self.streams
        ]
        (one,) = self.streams
        end = Offset.after(1, self.logs["t0"].table_id).to_json()
        position = KnownPosition(declared(one, "d"), end, self.ledger("t0").n, self.logs["t0"].uri)
        self.known.save({"t0": position})


@pytest.fixture
def fleet(metastore, airflow_database, tmp_path, monkeypatch):
    monkeypatch.setenv("AIRFLOW__FDS__STAGING", (tmp_path / "fleet" / "staging").as_uri())
    return NamedTables(tmp_path / "fleet", metastore)


async def test_a_fleet_is_woken_when_a_name_means_another_folder(fleet, tmp_path):
    now = [0.0]
    shared_looks()._clock = lambda: now[0]
    trigger = fleet.trigger()
    await trigger._look()
    assert trigger._open() == {}
    assert await trigger._poll("t0", is_listed=False) is None
    fleet.metastore.folder = tmp_path / "elsewhere"
    assert await trigger._poll("t0", is_listed=False) is None
    now[0] += LOOK_SECONDS
    assert "its name sales.orders is now that of another table" in await trigger._poll("t0", is_listed=False)
    # a trigger that begins after the change
    assert (await payload(fleet.trigger()))["reason"].startswith("t0: LedgerError: stream 't0' has read")
