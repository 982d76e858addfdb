"""``DeltaFleetTrigger``, as a triggerer runs it."""

from __future__ import annotations

import asyncio
import json
import shutil
import time

import pytest

from airflow_provider_fds import DeltaAppendSink, DeltaFleetTrigger, DeltaStream, FleetStream
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.delta.storage.open import canonical_uri, open_storage
from airflow_provider_fds.errors import AccessDeniedError
from airflow_provider_fds.fleet.positions import KnownPosition, KnownPositions, declared
from airflow_provider_fds.ledger.entries.epoch_entries import Created, Opened
from airflow_provider_fds.ledger.entries.operator_entries import Held, Resumed
from airflow_provider_fds.ledger.owner import Actor
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.source.offset import Offset
from tests.conftest import LogBuilder

pytestmark = pytest.mark.usefixtures("airflow_database")

ACTOR = Actor(deployment="d")


class Tables:
    """Tables whose streams have consumed everything, as the last run of the fleet has remembered."""

    def __init__(self, root, count):
        self.staging = (root / "staging").as_uri()
        self.logs, self.streams, known = {}, [], {}
        for number in range(count):
            name = f"t{number}"
            self.logs[name] = log = LogBuilder(root / name)
            now = int(time.time() * 1000)
            log.create(timestamp_ms=now)
            log.append(timestamp_ms=now)
            stream = DeltaStream(name, table=log.uri, checkpoint=f"file:{root}/{name}.json")
            one = FleetStream(stream, DeltaAppendSink((root / "sinks" / name).as_uri()))
            self.streams.append(one)
            end = Offset.after(1, log.table_id).to_json()
            ledger = self.ledger(name)
            ledger.execute(Created(uuid="u", name=name, table=canonical_uri(stream.table), deployment="d"), ACTOR)
            ledger.execute(Opened(epoch=1, start=end, table_id=log.table_id), ACTOR)
            known[name] = KnownPosition(declared(one, "d"), end, ledger.n)
        self.known = KnownPositions(open_storage(self.staging), "fleet", "d")
        self.known.save(known)

    def ledger(self, name):
        ledger = Ledger(open_storage(self.staging), name)
        ledger.find()
        return ledger

    def append(self, name):
        return self.logs[name].append(timestamp_ms=int(time.time() * 1000))

    def trigger(self, **arguments):
        values = {"streams": [one.to_dict() for one in self.streams], "fleet": "fleet", "staging": self.staging}
        return DeltaFleetTrigger(**{**values, "deployment": "d", "poll_interval": 0.01, **arguments})


@pytest.fixture
def tables(tmp_path, monkeypatch):
    monkeypatch.setenv("AIRFLOW__FDS__STAGING", (tmp_path / "staging").as_uri())
    return Tables(tmp_path, 5)


async def payload(trigger):
    async for event in trigger.run():
        return event.payload
    return None


async def test_it_fires_for_the_tables_with_news_and_names_them(tables):
    tables.append("t2")
    found = await asyncio.wait_for(payload(tables.trigger()), 20)
    assert found == {"status": "success", "streams": ["t2"], "reason": "t2: data"}


async def test_an_unchanged_table_costs_one_head_per_poll(tables, monkeypatch):
    heads, polled = [], asyncio.Event()
    head_async = LocalStorage.head_async

    async def counted(storage, key):
        heads.append(storage.uri)
        if len(heads) == 25:
            polled.set()
        return await head_async(storage, key)

    monkeypatch.setattr(LocalStorage, "head_async", counted)
    task = asyncio.create_task(payload(tables.trigger(poll_interval=0.05)))
    await asyncio.wait_for(polled.wait(), 20)
    assert [len(set(heads[first : first + 5])) for first in range(0, 25, 5)] == [5] * 5
    tables.append("t0")
    assert (await asyncio.wait_for(task, 20))["streams"] == ["t0"]


async def test_a_commit_without_data_does_not_wake_the_task(tables):
    task = asyncio.create_task(payload(tables.trigger()))
    tables.logs["t1"].commit(operation="OPTIMIZE", timestamp_ms=int(time.time() * 1000))
    await asyncio.sleep(0.5)
    assert not task.done()
    tables.append("t1")
    assert (await asyncio.wait_for(task, 20))["streams"] == ["t1"]


async def test_a_held_stream_is_not_polled_until_it_is_resumed(tables):
    tables.ledger("t3").execute(Held(why="look"), ACTOR)
    tables.append("t3")
    task = asyncio.create_task(payload(tables.trigger(recheck_every=2)))
    await asyncio.sleep(0.5)
    assert not task.done()
    tables.ledger("t3").execute(Resumed(why="go"), ACTOR)
    assert (await asyncio.wait_for(task, 20))["streams"] == ["t3"]


async def test_a_table_that_cannot_be_polled_is_news_and_keeps_no_other_from_being_polled(tables, monkeypatch):
    head_async = LocalStorage.head_async

    async def refusing(storage, key):
        if storage.uri.endswith("/t4"):
            raise AccessDeniedError("no")
        return await head_async(storage, key)

    monkeypatch.setattr(LocalStorage, "head_async", refusing)
    found = await asyncio.wait_for(payload(tables.trigger()), 20)
    assert found["reason"] == "t4: AccessDeniedError: no"


@pytest.mark.parametrize("is_created_again", [True, False], ids=["it was created again", "it is gone"])
async def test_a_table_that_was_replaced_by_a_younger_one_or_is_gone_is_news(tables, is_created_again):
    log = tables.logs["t3"]
    task = asyncio.create_task(payload(tables.trigger(recheck_every=2)))
    await asyncio.sleep(0.2)
    assert not task.done()
    shutil.rmtree(log.root / "_delta_log")
    if is_created_again:
        again = LogBuilder(log.root)
        again.table_id = "22222222-2222-3333-4444-555555555555"
        again.create(timestamp_ms=int(time.time() * 1000))
    found = await asyncio.wait_for(task, 20)
    assert found["streams"] == ["t3"]
    assert ("position is lost" if is_created_again else "TableNotFoundError") in found["reason"]


def test_it_survives_a_restart_of_the_triggerer(tables):
    path, arguments = tables.trigger(pauses_first=True).serialize()
    assert path == "airflow_provider_fds.triggers.delta_fleet.DeltaFleetTrigger"
    again = DeltaFleetTrigger(**json.loads(json.dumps(arguments)), unknown=1)
    assert again.serialize()[1] == arguments
