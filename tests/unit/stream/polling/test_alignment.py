"""Streams that are aligned in event time: ``align_with`` and ``max_drift``."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_fds.cli.main import main
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import ConfigurationError, LedgerError
from airflow_provider_fds.ledger.entries.operator_entries import Retired
from airflow_provider_fds.ledger.owner import Actor
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream import DeltaStream
from airflow_provider_fds.stream.polling import alignment
from airflow_provider_fds.stream.polling.alignment import table_poller
from airflow_provider_fds.stream.run.reporting import write_end
from tests.conftest import LogBuilder
from tests.unit.stream.conftest import Bench

if TYPE_CHECKING:
    from airflow_provider_fds.stream.polling.poll import TablePoller

START = datetime(2026, 1, 1, tzinfo=UTC)


def stats(hour: float | None) -> str:
    if hour is None:
        return json.dumps({"numRecords": 1})
    at = (START + timedelta(hours=hour)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return json.dumps({"numRecords": 1, "minValues": {"ts": at}, "maxValues": {"ts": at}, "nullCount": {"ts": 0}})


def now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


class Lake:
    """Streams ``s0``, ``s1``, … of a table each, all aligned with each other, in one staging folder."""

    def __init__(self, place: Any, count: int = 2, **options: Any) -> None:
        self.names = [f"s{number}" for number in range(count)]
        self.tables = {name: LogBuilder(place / name) for name in self.names}
        self.benches = {name: Bench(table.root, place / "staging") for name, table in self.tables.items()}
        self.sinks: dict[str, Any] = {name: DeltaAppendSink(str(place / f"{name}_sink")) for name in self.names}
        self.staging = place / "staging"
        self.loaded: dict[str, list[int]] = {name: [] for name in self.names}
        self.runs = 0
        self.streams = {}
        for name, table in self.tables.items():
            table.create([table.field("id"), table.field("ts", "timestamp")], timestamp_ms=now_ms())
            others = [other for other in self.names if other != name]
            given = {"event_time_column": "ts", "align_with": others, "max_drift": "1h", **options}
            self.streams[name] = self.benches[name].stream(name, **given)

    def append(self, name: str, *hours: float | None, files: int = 1) -> None:
        for hour in hours:
            self.tables[name].append(files, stats=stats(hour), timestamp_ms=now_ms())

    def run(self, name: str, **begin: Any) -> Any:
        self.runs += 1
        bench = self.benches[name]
        session, work = bench.run_once(self.sinks[name], f"run-{self.runs}", self.streams[name], **begin)
        for batch in work.batches:
            self.loaded[name] += range(batch.first_version, Offset.from_json(batch.end).version)
        self.last = session
        return work

    def poller(self, name: str) -> TablePoller:
        session = self.benches[name].session("sensor", stream=self.streams[name])
        state = session.connected.load()
        position = None if state.position is None else Offset.from_json(state.position)
        return table_poller(self.streams[name], session.context, position)

    def version(self, name: str) -> int:
        """The last version that the stream has committed."""
        return Offset.from_json(Ledger(open_storage(str(self.staging)), name).find().position).version - 1


@pytest.fixture
def lake(tmp_path):
    return Lake(tmp_path)


@pytest.fixture
def clock(monkeypatch):
    """How much later than the real time aligned streams believe it to be: ``clock.later``."""
    found = SimpleNamespace(later=timedelta())

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:
            return datetime.now(tz) + found.later

    monkeypatch.setattr(alignment, "datetime", Clock)
    return found


def begun(lake: Lake) -> Lake:
    """Let both streams load a first version with event time 0."""
    for name in lake.names:
        lake.append(name, 0)
        lake.run(name)
    return lake


def test_a_batch_ends_before_it_runs_ahead_of_the_slowest_and_says_for_whom_it_waits(lake):
    begun(lake).append("s0", 0.5, 1, 1.01, 0.2)
    lake.append("s1", 0.1)
    assert lake.run("s0").batches[-1].last_version == 3
    work = lake.run("s0")
    assert (work.status, work.batches) == ("up_to_date", ())
    assert work.reason == (
        "Stream 's0' is waiting for stream 's1', whose watermark is 2026-01-01T00:00:00.000000Z: version 4 has event "
        "times up to 2026-01-01T01:00:36.000000Z, and max_drift is 1 h. It continues when that stream has committed "
        "later rows or is idle."
    )
    assert lake.last.scope.waits_for == work.reason
    lake.run("s1")
    assert lake.run("s0").batches[-1].last_version == 5
    assert lake.last.scope.waits_for is None


@pytest.mark.parametrize("command", ["status", "explain"])
def test_the_command_line_says_for_whom_a_stream_waits_once_a_run_or_a_trigger_has_seen_it(lake, command, capsys):
    begun(lake).append("s0", 0.5, 1, 1.01)
    lake.append("s1", 0.1)
    lake.run("s0")
    reason = lake.run("s0").reason
    line = [command, "s0", "--staging", str(lake.staging)]
    assert main(line) == 0
    assert "is waiting for stream 's1'" not in " ".join(capsys.readouterr().out.split())
    write_end(lake.last, None)
    assert main(line) == 0
    assert reason in " ".join(capsys.readouterr().out.split())
    lake.run("s1")
    lake.run("s0")
    lake.append("s0", 9)
    assert main(line) == 0
    assert reason not in " ".join(capsys.readouterr().out.split())


def test_the_slowest_goes_on_even_if_one_commit_spans_more_than_the_drift(lake):
    begun(lake).append("s0", 100, 101, 300)
    lake.append("s1", 100.5, 200)
    # both are slowest
    assert lake.run("s0").batches[-1].last_version == 2
    assert not lake.run("s0").batches
    assert lake.run("s1").batches[-1].last_version == 2
    assert lake.run("s0").batches[-1].last_version == 3
    assert lake.run("s1").batches[-1].last_version == 3
    assert lake.run("s0").batches[-1].last_version == 4


def test_a_stream_waits_for_one_that_does_not_exist_or_has_no_watermark_yet(lake):
    lake.append("s0", 0, 1)
    assert lake.run("s0").batches[-1].last_version == 1
    assert "stream 's1', which does not exist in staging" in lake.run("s0").reason
    lake.tables["s1"].commit(operation="OPTIMIZE", timestamp_ms=now_ms())
    lake.run("s1")
    assert "which has no watermark yet" in lake.run("s0").reason
    lake.append("s1", 5)
    lake.run("s1")
    assert lake.run("s0").batches[-1].last_version == 2


def test_nobody_waits_for_a_stream_without_event_times_or_a_retired_one(lake, caplog):
    begun(lake).append("s0", 9, 19)
    lake.run("s0")
    assert lake.run("s0").reason
    ledger = Ledger(open_storage(str(lake.staging)), "s1")
    ledger.find()
    ledger.execute(Retired(why="done"), Actor(deployment="test", user="me"))
    assert lake.run("s0").batches
    assert "no watermark" not in caplog.text


def test_a_stream_whose_batches_have_no_event_times_holds_nobody_back_and_is_named(lake, caplog):
    lake.append("s1", None)
    lake.run("s1")
    lake.append("s0", 0, 50)
    assert lake.run("s0").batches[-1].last_version == 2
    assert "stream s1 has committed batches but has no watermark" in caplog.text


def test_an_idle_stream_holds_nobody_back_but_one_with_data_does(lake, clock):
    begun(lake).append("s0", 3, 6)
    lake.run("s0")
    clock.later = timedelta(minutes=14)
    assert lake.run("s0").reason
    clock.later = timedelta(minutes=16)
    lake.append("s1", 0.1)
    assert lake.run("s0").reason
    lake.run("s1")
    # commits without data are no data
    lake.tables["s1"].commit(operation="OPTIMIZE", timestamp_ms=now_ms())
    assert lake.run("s0").batches[-1].last_version == 3


def test_a_stream_whose_table_cannot_be_read_is_not_idle(lake, clock, caplog):
    begun(lake).append("s0", 3, 6)
    lake.run("s0")
    clock.later = timedelta(hours=1)
    lake.tables["s1"].root.rename(lake.tables["s1"].root.with_name("gone"))
    assert lake.run("s0").reason
    assert "whether stream s1 is idle is unknown" in caplog.text


def test_a_ledger_that_cannot_be_read_is_an_error(lake):
    begun(lake).append("s0", 3)
    for entry in (lake.staging / "s1").rglob("*.json"):
        entry.write_text("?")
    with pytest.raises(LedgerError, match="s1"):
        lake.run("s0")


def test_files_without_statistics_pass_and_excluded_files_do_not_count(tmp_path):
    lake = begun(Lake(tmp_path, exclude_regex="tmp-"))
    lake.append("s0", 2, None)
    table = lake.tables["s0"]
    table.commit(table.add("tmp-1", stats=stats(99)), table.add("b", stats=stats(0)), timestamp_ms=now_ms())
    assert lake.run("s0").batches[-1].last_version == 4


def test_an_initial_snapshot_is_loaded_whole(tmp_path):
    lake = begun(Lake(tmp_path))
    lake.append("s0", 50, 60, 70)
    stream = lake.streams["s0"].to_dict()
    options = {name: value for name, value in stream["options"].items() if name != "starting_version"}
    lake.streams["s0"] = DeltaStream.from_dict(
        {**stream, "name": "late", "options": {**options, "max_files_per_batch": 1}}
    )
    lake.sinks["s0"] = DeltaAppendSink(str(tmp_path / "late_sink"))
    assert [batch.num_files for batch in lake.run("s0").batches] == [1, 1, 1, 1]


def test_the_rest_of_a_commit_that_has_begun_does_not_wait(tmp_path):
    lake = begun(Lake(tmp_path, max_files_per_batch=1))
    lake.append("s0", 9, files=3)
    lake.run("s0", max_batches=1)
    assert len(lake.run("s0").batches) == 2


def test_a_merge_sink_gets_whole_commits(tmp_path):
    lake = Lake(tmp_path, whole_commits=True, max_files_per_batch=2)
    lake.sinks["s0"] = DeltaMergeSink(str(tmp_path / "merged"), keys=["id"])
    begun(lake).append("s0", 0.5, 9, files=3)
    assert [batch.num_files for batch in lake.run("s0").batches] == [3]
    assert lake.run("s0").reason
    lake.append("s1", 8.5)
    lake.run("s1")
    assert [batch.num_files for batch in lake.run("s0").batches] == [3]


async def test_a_poll_waits_as_a_plan_does_and_wakes_when_the_other_has_moved(lake):
    begun(lake).append("s0", 2)
    lake.append("s1", 0.5)
    lake.run("s0")
    lake.append("s0", 4)
    poller = lake.poller("s0")
    assert await poller.poll() is None
    assert poller.held.other.name == "s1"
    assert await poller.poll() is None
    assert lake.poller("s1").check().reason == "data"
    lake.run("s1")
    assert await poller.poll() is None
    lake.append("s1", 3.5)
    lake.run("s1")
    assert (await poller.poll()).reason == "data"
    assert lake.run("s0").batches


async def test_a_stream_that_waits_for_more_and_for_another_is_loaded_when_the_first_wait_ends(tmp_path, monkeypatch):
    lake = begun(Lake(tmp_path, min_batch_bytes=5000, max_batch_wait="1m"))
    lake.append("s0", 0.5, 9)
    poller = lake.poller("s0")
    assert await poller.poll() is None
    assert poller.waiting is not None
    assert poller.held is not None
    monkeypatch.setattr(
        "airflow_provider_fds.stream.polling.min_batch.time.time", lambda: datetime.now(UTC).timestamp() + 90
    )
    assert (await poller.poll()).reason == "data"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"align_with": "b", "max_drift": "1h"}, "needs event_time_column too"),
        ({"align_with": "b", "event_time_column": "ts"}, "needs max_drift too"),
        ({"max_drift": "1h"}, "no effect without align_with"),
        ({"align_with": ["a"], "max_drift": "1h", "event_time_column": "ts"}, "the stream 'a' itself"),
        ({"align_with": [3], "max_drift": "1h", "event_time_column": "ts"}, "streams or their names"),
        ({"align_with": "b", "max_drift": 0, "event_time_column": "ts"}, "above 0"),
        ({"align_with": "b", "max_drift": "soon", "event_time_column": "ts"}, "above 0"),
        (
            {"align_with": "b", "max_drift": "1h", "event_time_column": "ts", "read": "data_interval"},
            "intervals have no watermark",
        ),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(options, words):
    with pytest.raises(ConfigurationError, match=words):
        DeltaStream("a", "s3://lake/t", **options)


def test_streams_and_names_are_the_same():
    other = DeltaStream("b", "s3://lake/b")
    values = {"event_time_column": "ts", "max_drift": timedelta(days=40)}
    stream = DeltaStream("a", "s3://lake/a", align_with=[other, "c"], **values)
    assert stream.options.align_with == ("b", "c")
    assert DeltaStream.from_dict(json.loads(json.dumps(stream.to_dict()))) == stream
    assert DeltaStream("a", "s3://lake/a", align_with=other, **values).options.align_with == ("b",)


TIMES = st.lists(st.one_of(st.none(), st.floats(0, 12)), max_size=5)
STEPS = st.lists(st.integers(0, 2), max_size=10)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    times=st.lists(TIMES, min_size=2, max_size=3),
    order=STEPS,
    limit=st.integers(1, 3),
    is_reversed=st.booleans(),
)
def test_whatever_the_times_are_nothing_is_lost_order_is_kept_and_nobody_waits_for_good(
    times, order, limit, is_reversed, clock, tmp_path_factory
):
    clock.later = timedelta()
    lake = Lake(tmp_path_factory.mktemp("lake"), len(times), max_versions_per_batch=limit)
    for name, hours in zip(lake.names, times, strict=True):
        lake.append(name, *hours)

    def run(name: str) -> bool:
        has_begun = bool(lake.loaded[name]) or Ledger(open_storage(str(lake.staging)), name).find().phase == "open"
        found = lake.poller(name).check() if has_begun else None
        work = lake.run(name)
        # the poll and the plan agree, or a run would be woken for nothing, or never
        assert not has_begun or (found is not None and found.reason == "data") == bool(work.batches)
        return bool(work.batches)

    for number in order:
        run(lake.names[number % len(lake.names)])
    names = lake.names[::-1] if is_reversed else lake.names
    for name in names:
        run(name)
    rounds = 0
    while any(lake.version(name) < lake.tables[name].version for name in names):
        clock.later = timedelta(hours=1)
        # in each round a stream goes on
        moved = [run(name) for name in names]
        assert any(moved)
        rounds += 1
        assert rounds < 30
    for name in names:
        assert sorted(set(lake.loaded[name])) == lake.loaded[name]
        assert lake.version(name) == lake.tables[name].version
