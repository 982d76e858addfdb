"""``DeltaTableVersionTrigger``, as a triggerer runs it."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from airflow_provider_fds import DeltaStream, DeltaTableVersionTrigger
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.errors import StorageError
from airflow_provider_fds.hooks.stream_context import reading_context
from airflow_provider_fds.ledger.entries.operator_entries import Resumed
from airflow_provider_fds.stream import StreamSession

pytestmark = pytest.mark.usefixtures("airflow_database")


def now_ms():
    return int(time.time() * 1000)


class Watched:
    """A table of two commits, a stream that has consumed both, and a trigger that waits."""

    def __init__(self, builder, tmp_path, stand_at):
        self.stand_at = stand_at
        self.builder = builder
        self.builder.create(timestamp_ms=now_ms())
        self.builder.append(timestamp_ms=now_ms())
        self.checkpoint = tmp_path / "checkpoint.json"
        self.stream = DeltaStream("orders", table=builder.uri, checkpoint=f"file:{self.checkpoint}")
        self.staging = (tmp_path / "staging").as_uri()
        self.consumed(1)

    def consumed(self, version):
        self.stand_at(self.stream, self.staging, self.builder.table_id, version, deployment="d")

    def trigger(self, **kwargs):
        values = {"stream": self.stream.to_dict(), "staging": self.staging, "deployment": "d", "poll_interval": 0.01}
        return DeltaTableVersionTrigger(**{**values, **kwargs})


@pytest.fixture
def watched(log_builder, tmp_path, stand_at):
    return Watched(log_builder, tmp_path, stand_at)


async def payload(trigger):
    async for event in trigger.run():
        return event.payload
    return None


class Looks:
    """Counts the requests that a table's storage gets."""

    def __init__(self, monkeypatch):
        self.heads = []
        self.lists = []
        self.news = asyncio.Event()
        head, listing = LocalStorage.head_async, LocalStorage.list_after
        loop = asyncio.get_running_loop()
        looks = self

        async def counted_head(storage, key):
            looks.heads.append(key)
            looks.news.set()
            return await head(storage, key)

        def counted_list(storage, folder, after=None):
            # in a thread; staging is listed, too
            if folder == "_delta_log":
                looks.lists.append(after)
                loop.call_soon_threadsafe(looks.news.set)
            return listing(storage, folder, after)

        monkeypatch.setattr(LocalStorage, "head_async", counted_head)
        monkeypatch.setattr(LocalStorage, "list_after", counted_list)

    async def until(self, kind, count):
        while len(getattr(self, kind)) < count:
            self.news.clear()
            await self.news.wait()


async def test_it_fires_at_once_if_there_is_data_already(watched):
    watched.builder.append(timestamp_ms=now_ms())
    assert await payload(watched.trigger()) == {"status": "success", "version": 2, "reason": "data"}


async def test_it_fires_when_data_comes_and_not_before(watched, monkeypatch):
    looks = Looks(monkeypatch)
    waiting = asyncio.create_task(payload(watched.trigger()))
    await looks.until("heads", 3)
    assert not waiting.done()
    watched.builder.append(timestamp_ms=now_ms())
    assert await waiting == {"status": "success", "version": 2, "reason": "data"}


async def test_a_task_woken_without_data_is_not_woken_again_at_once(watched):
    watched.builder.append(timestamp_ms=now_ms())
    pausing = asyncio.create_task(payload(watched.trigger(pauses_first=True, poll_interval=3600)))
    assert (await payload(watched.trigger()))["version"] == 2
    assert not pausing.done()
    pausing.cancel()


async def test_small_data_waits_and_wakes_the_stream_when_its_wait_is_over_without_another_commit(watched):
    stream = DeltaStream.from_dict(
        {**watched.stream.to_dict(), "options": {"min_batch_bytes": "64m", "max_batch_wait": 2}}
    )
    began = time.time()
    watched.builder.append(timestamp_ms=int(began * 1000))
    # a poll at the poll interval would come too late
    found = await payload(watched.trigger(stream=stream.to_dict(), poll_interval=3600))
    assert found == {"status": "success", "version": 2, "reason": "data"}
    assert 2 <= time.time() - began < 60


async def test_an_unchanged_table_costs_one_head_a_poll_and_a_list_now_and_then(watched, monkeypatch):
    looks = Looks(monkeypatch)
    waiting = asyncio.create_task(payload(watched.trigger(recheck_every=4)))
    await looks.until("lists", 3)
    waiting.cancel()
    # looks 0, 4, 8 are lists; the six between them are one HEAD each, of the version after the position
    assert len(looks.heads) in (6, 7)
    assert set(looks.heads) == {"_delta_log/00000000000000000002.json"}


async def test_commits_without_data_do_not_wake_the_stream(watched, monkeypatch):
    looks = Looks(monkeypatch)
    waiting = asyncio.create_task(payload(watched.trigger()))
    await looks.until("heads", 2)
    watched.builder.commit(operation="OPTIMIZE", timestamp_ms=now_ms())
    await looks.until("heads", 6)
    assert not waiting.done()
    assert "_delta_log/00000000000000000003.json" in looks.heads
    waiting.cancel()


async def test_a_commit_of_another_run_is_noticed_at_the_next_recheck(watched, monkeypatch):
    looks = Looks(monkeypatch)

    def another_run_is_faster(_trigger, _refusals):
        # called between two looks
        if watched.builder.version == 1:
            watched.builder.append(timestamp_ms=now_ms())
            watched.consumed(2)
        return 0.01

    monkeypatch.setattr(DeltaTableVersionTrigger, "_pause_seconds", another_run_is_faster)
    waiting = asyncio.create_task(payload(watched.trigger(recheck_every=1)))
    await looks.until("lists", 4)
    assert not waiting.done()
    watched.builder.append(timestamp_ms=now_ms())
    assert (await waiting)["version"] == 3


async def test_a_lost_position_is_for_the_run_to_judge(watched):
    watched.builder.append(timestamp_ms=now_ms())
    watched.builder.append(timestamp_ms=now_ms())
    watched.builder.clean_up_before(3)
    event = await payload(watched.trigger())
    assert (event["status"], event["version"], event["reason"]) == ("success", 3, "position is lost")


async def test_a_table_that_is_gone_is_an_error_event(watched, monkeypatch):
    looks = Looks(monkeypatch)
    waiting = asyncio.create_task(payload(watched.trigger(recheck_every=2)))
    await looks.until("heads", 1)
    for file in watched.builder.log.iterdir():
        file.unlink()
    watched.builder.log.rmdir()
    event = await waiting
    assert (event["status"], event["retryable"]) == ("error", False)
    assert watched.builder.uri in event["message"]


# D36
async def test_consecutive_refusals_end_the_wait(watched, monkeypatch):
    refused = []

    async def refuse(storage, key):
        refused.append(key)
        raise StorageError("503 slow down")

    monkeypatch.setattr(LocalStorage, "head_async", refuse)
    event = await payload(watched.trigger(max_refusals=3))
    assert (event["status"], event["error"], event["retryable"]) == ("error", "StorageError", True)
    assert "3 polls in a row" in event["message"]
    assert "503 slow down" in event["message"]
    assert len(refused) == 3


# D36
async def test_only_consecutive_refusals_are_counted(watched, monkeypatch):
    looks = Looks(monkeypatch)
    head = LocalStorage.head_async
    asked = []

    async def refuse_every_second(storage, key):
        asked.append(key)
        if len(asked) % 2:
            raise StorageError("503 slow down")
        return await head(storage, key)

    monkeypatch.setattr(LocalStorage, "head_async", refuse_every_second)
    waiting = asyncio.create_task(payload(watched.trigger(max_refusals=2)))
    await looks.until("heads", 4)
    assert not waiting.done()
    waiting.cancel()


async def test_a_missing_connection_is_an_error_event_that_names_it(watched):
    stream = {**watched.stream.to_dict(), "table": "s3://lake/orders", "storage_conn_id": "aws_lake"}
    event = await payload(watched.trigger(stream=stream))
    assert (event["status"], event["error"]) == ("error", "ConfigurationError")
    assert "'aws_lake'" in event["message"]


async def test_it_writes_nothing(watched, tmp_path):
    watched.builder.append(timestamp_ms=now_ms())
    before = sorted(tmp_path.rglob("*"))
    await payload(watched.trigger())
    assert sorted(tmp_path.rglob("*")) == before


def test_it_is_built_again_from_what_it_serialises_which_is_plain_and_without_credentials(watched, monkeypatch):
    monkeypatch.setenv("AIRFLOW_CONN_AWS_LAKE", '{"conn_type": "aws", "login": "key", "password": "hidden"}')
    stream = {**watched.stream.to_dict(), "table": "s3://lake/orders", "storage_conn_id": "aws_lake"}
    path, kwargs = watched.trigger(stream=stream, recheck_every=7).serialize()
    assert path == f"{DeltaTableVersionTrigger.__module__}.{DeltaTableVersionTrigger.__qualname__}"
    assert json.loads(json.dumps(kwargs)) == kwargs
    assert "hidden" not in json.dumps(kwargs)
    assert DeltaTableVersionTrigger(**kwargs).serialize() == (path, kwargs)


def test_arguments_of_another_version_are_tolerated(watched):
    _, kwargs = watched.trigger().serialize()
    assert DeltaTableVersionTrigger(**kwargs, retired_argument=1).serialize()[1] == kwargs


async def test_a_task_waits_until_a_quarantine_ends(watched, tmp_path):
    path = next(iter(watched.builder.live))
    watched.builder.commit(watched.builder.remove(path), operation="DELETE", timestamp_ms=now_ms())
    given = {**watched.stream.to_dict(), "starting_version": 2, "on_violation": "quarantine"}
    stream = DeltaStream.from_dict(given)
    stream_context = reading_context(stream, staging=watched.staging, deployment="d")
    watched.checkpoint.unlink()
    session = StreamSession(stream, stream_context)
    assert session.begin(None).status == "paused"

    waiting = asyncio.create_task(payload(watched.trigger(stream=stream.to_dict(), recheck_every=2)))
    done, _ = await asyncio.wait({waiting}, timeout=0.3)
    assert not done
    session.connected.execute(Resumed(why="looked at it"))
    event = await asyncio.wait_for(waiting, 30)

    assert event["status"] == "success"
    assert event["reason"].startswith("stopped: ")
