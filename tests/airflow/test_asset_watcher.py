"""``DeltaTableChangeTrigger``, as the triggerer of Airflow 3.3 runs it for an ``AssetWatcher``, and an older one."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from contextlib import asynccontextmanager, suppress

import pytest
import structlog
from airflow.sdk import Asset, AssetWatcher
from airflow.triggers.base import BaseEventTrigger

from airflow_provider_fds import DeltaStream, DeltaTableChangeTrigger
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.hooks.position import Standing
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.polling.poll import PollResult
from airflow_provider_fds.triggers.table_poll import Watchers
from airflow_provider_fds.triggers.watcher_cursor import cursor_key

pytestmark = pytest.mark.usefixtures("airflow_database")

SHARES = hasattr(BaseEventTrigger, "create_shared_stream_producer")
needs_sharing = pytest.mark.skipif(not SHARES, reason="this Airflow has no shared streams")


class AssetStore:
    """The state store of one asset."""

    def __init__(self, **values):
        self.values = values
        self.failures = 0

    async def aget(self, key, default=None):
        if self.failures:
            self.failures -= 1
            raise RuntimeError("the API server is restarting")
        return self.values.get(key, default)

    async def aset(self, key, value):
        self.values[key] = json.loads(json.dumps(value))


class Triggerer:
    """The part of a triggerer that runs event triggers, with the stored events of all its watchers."""

    def __init__(self):
        self.events = []
        self.stores_events = True
        self.manager = None
        if SHARES:
            from airflow.triggers.shared_stream import SharedStreamManager

            self.manager = SharedStreamManager(log=structlog.get_logger())
        self._ids = itertools.count()
        self._tasks = []

    def start(self, trigger):
        # the triggerer makes its own instance
        _, kwargs = trigger.serialize()
        started = type(trigger)(**json.loads(json.dumps(kwargs)))
        if hasattr(trigger, "asset_state_store"):
            started.asset_state_store = trigger.asset_state_store
        self._tasks.append(asyncio.create_task(self._run(next(self._ids), started)))
        return self._tasks[-1]

    async def _run(self, number, trigger):
        key = trigger.shared_stream_key()
        if key is None:
            found = trigger.run()
        else:
            found = trigger.filter_shared_stream(self.manager.subscribe(trigger_id=number, trigger=trigger, key=key))
        try:
            async for event in found:
                seq = None if key is None else self.manager.bind_pending_event(trigger_id=number, key=key)
                if self.stores_events:
                    self.events.append(event.payload)
                    if seq is not None:
                        asyncio.get_running_loop().call_later(0.01, self.manager.confirm_persisted, [seq])
        finally:
            if key is not None:
                await self.manager.unsubscribe(number, key)

    async def kill(self):
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        if self.manager is not None:
            await self.manager.stop_all()


@asynccontextmanager
async def triggerer():
    running = Triggerer()
    try:
        yield running
    finally:
        await running.kill()


async def until(is_reached, seconds=20):
    for _ in range(int(seconds * 100)):
        if is_reached():
            return
        await asyncio.sleep(0.01)
    pytest.fail("not reached in time")


@pytest.fixture
def table(log_builder):
    log_builder.create()
    return log_builder


@pytest.fixture
def polls(monkeypatch):
    """The HEADs of polls. The first one comes after the first listing: a watcher has its first version by then."""
    found = []
    head = LocalStorage.head_async

    async def counted(storage, key):
        found.append(key)
        return await head(storage, key)

    monkeypatch.setattr(LocalStorage, "head_async", counted)
    return found


@pytest.fixture
def watcher(table):
    def make(store=None, **arguments):
        trigger = DeltaTableChangeTrigger(**{"table": table.uri, "poll_interval": 0.02, **arguments})
        if SHARES:
            trigger.asset_state_store = store
        return trigger

    return make


def payload(table, first, last, *operations, rows):
    return {
        "table": table.uri,
        "first_version": first,
        "last_version": last,
        "operations": list(operations or ["WRITE"]),
        "rows": rows,
    }


def stored_version(store):
    return next((value["version"] for value in store.values.values()), None)


async def test_it_fires_for_each_change_from_its_start_on_and_not_before(table, watcher, polls):
    table.append()
    store = AssetStore()
    async with triggerer() as running:
        running.start(watcher(store))
        await until(lambda: len(polls) > 3)
        assert running.events == []
        table.append(2)
        await until(lambda: running.events)
        table.commit(operation="OPTIMIZE")
        await until(lambda: polls[-1].endswith("04.json"))
        table.append()
        await until(lambda: len(running.events) == 2)
    assert running.events == [payload(table, 2, 2, rows=20), payload(table, 4, 4, rows=10)]


@needs_sharing
async def test_the_cursor_moves_after_the_event_is_stored_and_is_found_on_the_asset(table, watcher):
    store = AssetStore()
    async with triggerer() as running:
        running.start(watcher(store))
        await until(lambda: stored_version(store) == 0)
        running.stores_events = False
        table.append()
        await asyncio.sleep(0.5)
        assert stored_version(store) == 0
    (value,) = store.values.values()
    assert value["table"] == table.uri
    assert list(store.values) == [cursor_key(table.uri, None)]
    async with triggerer() as running:
        running.start(watcher(store))
        await until(lambda: stored_version(store) == 1)
    assert running.events == [payload(table, 1, 1, rows=10)]


@needs_sharing
async def test_what_comes_while_no_triggerer_runs_fires_once_and_nothing_fires_twice(table, watcher, polls):
    store = AssetStore()
    events = []
    for version in (1, 2, 3):
        table.append()
        async with triggerer() as running:
            running.start(watcher(store))
            await until(lambda version=version: stored_version(store) == version)
            polls.clear()
            await until(lambda: len(polls) > 3)
            events += running.events
    # the first start only notes where it began
    assert events == [payload(table, version, version, rows=10) for version in (2, 3)]


@needs_sharing
async def test_watchers_of_a_table_share_one_poll_and_each_has_its_cursor(table, watcher, polls):
    stores = [AssetStore() for _ in range(50)]
    async with triggerer() as running:
        for number, store in enumerate(stores):
            # a shared poll takes the shortest interval
            running.start(watcher(store, name=str(number), poll_interval=0.1 if number == 7 else 60))
        await until(lambda: all(store.values for store in stores))
        polls.clear()
        await asyncio.sleep(1.05)
        assert 1 <= len(polls) <= 13
        table.append()
        await until(lambda: all(stored_version(store) == 1 for store in stores))
    assert running.events == [payload(table, 1, 1, rows=10)] * 50


@needs_sharing
async def test_two_watchers_of_one_asset_keep_two_cursors(table, watcher):
    store = AssetStore(**{cursor_key(table.uri, "old"): {"version": 0, "modified_ms": None}})
    table.append()
    async with triggerer() as running:
        running.start(watcher(store, name="new"))
        running.start(watcher(store, name="old"))
        await until(lambda: running.events)
        await until(lambda: [value["version"] for value in store.values.values()] == [1, 1])
    assert running.events == [payload(table, 1, 1, rows=10)]
    assert set(store.values) == {cursor_key(table.uri, "old"), cursor_key(table.uri, "new")}


@needs_sharing
async def test_a_watcher_that_starts_late_is_told_what_the_others_know_already(table, watcher):
    first = AssetStore()
    late = AssetStore(**{cursor_key(table.uri, None): {"version": 0, "modified_ms": None}})
    async with triggerer() as running:
        running.start(watcher(first, poll_interval=3600))
        await until(lambda: first.values)
        assert running.events == []
        table.append()
        running.start(watcher(AssetStore(), poll_interval=0.05))
        await until(lambda: running.events)
        running.events.clear()
        # the table has not changed since
        running.start(watcher(late, poll_interval=3600))
        await until(lambda: running.events)
    assert running.events == [payload(table, 1, 1, rows=10)]


@needs_sharing
async def test_assets_that_share_a_trigger_both_keep_the_cursor(table, watcher):
    class Stores:
        def __init__(self, *stores):
            self._by_name = {str(number): store for number, store in enumerate(stores)}
            self._by_uri = {}

    key = cursor_key(table.uri, None)
    first, second = AssetStore(**{key: {"version": 0, "modified_ms": None}}), AssetStore()
    table.append()
    async with triggerer() as running:
        running.start(watcher(Stores(first, second)))
        await until(lambda: stored_version(first) == stored_version(second) == 1)
    assert running.events == [payload(table, 1, 1, rows=10)]


@needs_sharing
async def test_a_store_that_does_not_answer_is_asked_again_and_nothing_is_lost(table, watcher, monkeypatch):
    monkeypatch.setattr("airflow_provider_fds.triggers.delta_table_change._AGAIN_AFTER_SECONDS", 0.05)
    store = AssetStore(**{cursor_key(table.uri, None): {"version": 0, "modified_ms": None}})
    store.failures = 2
    table.append()
    async with triggerer() as running:
        running.start(watcher(store))
        await until(lambda: stored_version(store) == 1)
    assert running.events == [payload(table, 1, 1, rows=10)]


async def test_a_table_that_does_not_exist_is_waited_for(log_builder, polls):
    async with triggerer() as running:
        running.start(DeltaTableChangeTrigger(table=log_builder.uri, poll_interval=0.02))
        await until(lambda: polls)
        log_builder.create()
        log_builder.append()
        await until(lambda: running.events)
    assert running.events == [payload(log_builder, 1, 1, rows=10)]


async def test_a_poll_that_fails_is_repeated(table, watcher, polls, monkeypatch):
    head = LocalStorage.head_async
    failures = iter([OSError("connection reset")] * 2)

    async def flaky(storage, key):
        for error in failures:
            raise error
        return await head(storage, key)

    async with triggerer() as running:
        running.start(watcher(AssetStore()))
        await until(lambda: polls)
        monkeypatch.setattr(LocalStorage, "head_async", flaky)
        table.append()
        await until(lambda: running.events)
    assert running.events == [payload(table, 1, 1, rows=10)]


async def test_with_a_stream_it_fires_while_the_stream_is_behind_also_after_a_restart(
    table, tmp_path, stand_at, installation
):
    stream = DeltaStream("orders", table=table.uri, checkpoint=f"file:{tmp_path / 'checkpoint.json'}")
    table.append()
    stand_at(stream, (tmp_path / "staging").as_uri(), table.table_id, 1, deployment="http://fds.test")
    trigger = DeltaTableChangeTrigger(stream=stream, poll_interval=0.02)
    table.append()
    for _ in range(2):
        async with triggerer() as running:
            running.start(trigger)
            await until(lambda: running.events)
            await asyncio.sleep(0.2)
        assert running.events == [payload(table, 2, 2, rows=10)]
    stand_at(stream, (tmp_path / "staging").as_uri(), table.table_id, 2, deployment="http://fds.test")
    async with triggerer() as running:
        running.start(trigger)
        await asyncio.sleep(0.4)
    assert running.events == []


@pytest.fixture
def standing(monkeypatch):
    """What the ledger says of a stream, by the test's own hand."""
    said = {"position": None, "pause": None, "found": None}
    monkeypatch.setattr(
        "airflow_provider_fds.triggers.watcher_cursor.read_standing", lambda *_: Standing(**said), raising=True
    )
    return said


async def test_a_stream_that_is_resumed_is_started_for_what_came_while_it_paused(
    table, tmp_path, installation, standing, polls, monkeypatch
):
    monkeypatch.setattr("airflow_provider_fds.triggers.delta_table_change._LOOK_AGAIN_SECONDS", 0.05)
    stream = DeltaStream("orders", table=table.uri, checkpoint=f"file:{tmp_path / 'checkpoint.json'}")
    standing.update(position=Offset.after(0, table.table_id), pause="a person holds it", is_stopped=True)
    async with triggerer() as running:
        running.start(DeltaTableChangeTrigger(stream=stream, poll_interval=0.02))
        await until(lambda: polls)
        table.append()
        await until(lambda: polls[-1].endswith("2.json"))
        await asyncio.sleep(0.3)
        assert running.events == []
        standing.update(pause=None, is_stopped=False)
        await until(lambda: running.events)
        await asyncio.sleep(0.3)
    assert running.events == [payload(table, 1, 1, rows=10)]


@pytest.mark.parametrize("asks", [False, True])
async def test_a_stream_that_stops_at_a_version_is_started_again_once_a_person_has_decided(
    table, tmp_path, installation, standing, monkeypatch, asks
):
    monkeypatch.setattr("airflow_provider_fds.triggers.delta_table_change._LOOK_AGAIN_SECONDS", 0.05)
    stream = DeltaStream("orders", table=table.uri, checkpoint=f"file:{tmp_path / 'checkpoint.json'}")
    standing.update(position=Offset.after(0, table.table_id))
    table.append()
    async with triggerer() as running:
        running.start(DeltaTableChangeTrigger(stream=stream, poll_interval=0.02))
        await until(lambda: running.events)
        found = PollResult(1, reason="the run asks") if asks else None
        standing.update(pause=None if asks else "version 1 deletes rows", found=found, is_stopped=True)
        await asyncio.sleep(0.3)
        assert len(running.events) == 1
        standing.update(pause=None, found=None, is_stopped=False)
        await until(lambda: len(running.events) > 1)
        await asyncio.sleep(0.3)
    assert running.events == [payload(table, 1, 1, rows=10)] * 2


async def test_a_stream_that_has_reached_its_end_is_not_started_again(table, tmp_path, installation, standing, polls):
    stream = DeltaStream("orders", table=table.uri, checkpoint=f"file:{tmp_path / 'checkpoint.json'}")
    end = PollResult(0, reason="finished", is_finished=True)
    standing.update(position=Offset.after(0, table.table_id), found=end)
    async with triggerer() as running:
        running.start(DeltaTableChangeTrigger(stream=stream, poll_interval=0.02))
        await until(lambda: polls)
        table.append()
        await until(lambda: polls[-1].endswith("2.json"))
        await asyncio.sleep(0.5)
    assert running.events == []


async def test_a_watcher_that_fails_for_long_is_asked_at_one_pace_however_often_the_table_changes():
    watchers = Watchers()
    asked = []
    watchers.ask = lambda: asked.append(time.monotonic())
    for _ in range(50):
        watchers.ask_in(1)
        await asyncio.sleep(0)
    watchers.ask_in(0.01)
    await asyncio.sleep(1.2)
    assert len(asked) == 1
    watchers.ask_in(0.01)
    await asyncio.sleep(0.1)
    assert len(asked) == 2


@pytest.mark.parametrize(
    "stored", [{"table": "unknown://lake/orders"}, {"stream": "{"}, {"stream": "[]"}, {"stream": '{"name": "a"}'}, {}]
)
def test_arguments_of_another_version_of_fds_end_the_trigger_and_not_the_triggerer(stored):
    # the only error of a trigger's arguments that the triggerer survives
    with pytest.raises(TypeError):
        DeltaTableChangeTrigger(**stored)


def test_a_stream_that_never_ran_is_started_for_all_the_table_has(table, tmp_path, installation):
    table.append()
    stream = DeltaStream("fresh", table=table.uri, checkpoint=f"file:{tmp_path / 'none.json'}")

    async def first():
        async with triggerer() as running:
            running.start(DeltaTableChangeTrigger(stream=stream, poll_interval=0.02))
            await until(lambda: running.events)
            return running.events

    assert asyncio.run(first()) == [payload(table, 1, 1, rows=10)]


def test_it_can_watch_an_asset_and_its_arguments_survive_airflows_database(table):
    from airflow.models.trigger import Trigger

    encoders = pytest.importorskip("airflow.serialization.encoders", reason="Airflow 3.1 has it elsewhere")
    decoders = pytest.importorskip("airflow.serialization.decoders", reason="likewise")

    stream = DeltaStream("orders", table=table.uri, max_files_per_batch=7)
    trigger = DeltaTableChangeTrigger(stream=stream)
    asset = Asset("orders", watchers=[AssetWatcher(name="orders", trigger=trigger)])
    encoded = encoders.encode_trigger(asset.watchers[0].trigger)
    kept = Trigger._decrypt_kwargs(Trigger.encrypt_kwargs(encoded["kwargs"]))
    again = DeltaTableChangeTrigger(**{key: decoders.smart_decode_trigger_kwargs(value) for key, value in kept.items()})
    assert DeltaStream.from_dict(again.stream) == stream
    assert again.serialize() == trigger.serialize()


def test_equal_watchers_are_one_trigger_and_the_key_is_the_table_and_its_connection():
    one, other = (DeltaTableChangeTrigger(table=table) for table in ("s3://lake/orders", "s3://lake/orders/"))
    third = DeltaTableChangeTrigger(table="s3://lake/orders", storage_conn_id="lake")
    if SHARES:
        assert one.shared_stream_key() == other.shared_stream_key() != third.shared_stream_key()
    else:
        assert not hasattr(BaseEventTrigger, "shared_stream_key")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "needs table=… or stream=…"),
        ({"table": ""}, "table must be a non-empty string"),
        ({"table": "ftp://host/table"}, "ftp"),
        ({"table": "s3://key:HUSH@lake/orders"}, "Put credentials into the Airflow connection"),
        ({"table": "s3://lake/{{ ds }}"}, "Airflow does not render templates in a watcher"),
        ({"table": "s3://lake/orders", "poll_interval": 0}, "poll_interval must be a number of seconds"),
        ({"table": "s3://lake/orders", "poll_interval": "30"}, "poll_interval must be a number of seconds"),
        ({"table": "s3://lake/orders", "storage_conn_id": 3}, "storage_conn_id must be a non-empty string"),
        ({"table": "s3://lake/orders", "name": ""}, "name must be a non-empty string"),
        ({"table": "t", "stream": DeltaStream("a", "s3://lake/a")}, "stream already has a table"),
        ({"stream": DeltaStream("a", "s3://lake/a", read="data_interval")}, "no position to compare"),
        ({"stream": {"name": "a"}}, "stream must be a DeltaStream"),
    ],
)
def test_bad_arguments_are_refused_where_the_dag_is_parsed(arguments, said):
    with pytest.raises(ConfigurationError, match=said) as refused:
        DeltaTableChangeTrigger(**arguments)
    assert "HUSH" not in str(refused.value)


@needs_sharing
async def test_a_thousand_watchers_of_one_table_poll_it_once_and_cost_next_to_nothing(table, watcher, polls):
    stores = [AssetStore() for _ in range(1000)]
    async with triggerer() as running:
        for number, store in enumerate(stores):
            running.start(watcher(store, name=str(number), poll_interval=0.05))
        await until(lambda: all(store.values for store in stores))
        await asyncio.sleep(0.5)
        polls.clear()
        cpu, began = time.process_time(), time.monotonic()
        await until(lambda: len(polls) >= 40)
        idle_ms = (time.process_time() - cpu) / len(polls) * 1000
        # one poll for all: a thousand would be 20,000 a second
        assert len(polls) / (time.monotonic() - began) < 40
        cpu = time.process_time()
        table.append()
        await until(lambda: all(stored_version(store) == 1 for store in stores))
        change_ms = (time.process_time() - cpu) * 1000
    assert running.events == [payload(table, 1, 1, rows=10)] * 1000
    print(f"1,000 watchers of one table: {idle_ms:.2f} ms CPU a poll, {change_ms:.0f} ms CPU for a change")
    assert idle_ms < 20
