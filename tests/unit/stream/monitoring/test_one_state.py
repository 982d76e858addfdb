"""One state of a stream: each cause, on every surface that shows states."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.cli.main import main
from airflow_provider_fds.errors import FdsError, StreamBusyError
from airflow_provider_fds.ledger.entries.operator_entries import Held, Resumed, Retired
from airflow_provider_fds.sinks import DeltaAppendSink
from airflow_provider_fds.stream import DeltaStream
from airflow_provider_fds.stream.monitoring.alerts import StreamAlerts, find_alerts
from airflow_provider_fds.stream.monitoring.monitor import StreamMonitor
from airflow_provider_fds.stream.monitoring.status import status_of
from airflow_provider_fds.stream.monitoring.status_file import update_status_file, write_status_file
from airflow_provider_fds.stream.run.reporting import reporting_end, write_end
from airflow_provider_fds.ui.folders import StatusFolder
from airflow_provider_fds.ui.history import StreamHistory
from airflow_provider_fds.ui.rows import row_of
from airflow_provider_fds.ui.streams import FoundStream
from tests.conftest import LogBuilder

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.stream.conftest import Bench

DELETE = {"remove": {"path": "a", "dataChange": True, "deletionTimestamp": 0}}
#: The states that need attention, each with its code on the surfaces that have one.
NEEDS_ATTENTION = {"failing", "blocked", "quarantined", "lost_position", "unreadable"}


@dataclass
class Scene:
    """A stream with a table of two appended versions, and how its runs end."""

    bench: Bench
    log: Any
    sink: DeltaAppendSink

    def run(self, name: str, *, stream: DeltaStream | None = None, **changes: Any) -> FdsError | None:
        """Run as a task does, with a driver that writes everything, or as ``changes`` of its reports say."""
        session = self.bench.session(name, stream=stream)
        try:
            with reporting_end(session):
                work = session.begin(self.sink)
                if work.status == "work":
                    self.bench.report(session, work, session.job(work, self.sink), **changes)
                    if (failure := session.collect(work).failure) is not None:
                        raise failure
        except FdsError as error:
            return error
        return None

    def act(self, action: Any) -> None:
        """Act as a person on the page does."""
        connected = self.bench.session("person").connected
        connected.load()
        connected.execute(action)
        update_status_file(connected.staging, connected.ledger)


@pytest.fixture
def scene(bench, log_builder, tmp_path):
    log_builder.create(timestamp_ms=now_ms())
    log_builder.append(2, timestamp_ms=now_ms())
    return Scene(bench, log_builder, DeltaAppendSink(str(tmp_path / "sink")))


def now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


def failed(**facts: Any) -> dict[str, Any]:
    return {"outcome": "failed", "sink_version": None, "rows_written": None, "error_message": "of Spark", **facts}


def deleted(scene: Scene, **options: Any) -> None:
    scene.run("run-1")
    scene.log.commit(DELETE, operation="DELETE", timestamp_ms=now_ms())
    scene.run("run-2", stream=scene.bench.stream(**options))


def columns_change(scene: Scene) -> None:
    scene.run("run-1")
    fields = [LogBuilder.field("id"), LogBuilder.field("other")]
    scene.log.commit(scene.log.metadata(fields), operation="RENAME COLUMN", timestamp_ms=now_ms())
    scene.log.append(1, timestamp_ms=now_ms())
    scene.run("run-2", stream=scene.bench.stream(on_schema_change="add=fail"))


def spark_fails(scene: Scene) -> None:
    scene.run("run-1", **failed(error_class="MERGE_ORDER_UNKNOWN", reason="MERGE_ORDER_UNKNOWN", retryable=False))


def rows_differ(scene: Scene) -> None:
    scene.run("run-1", rows_written=1)


def sink_is_gone(scene: Scene) -> None:
    scene.run("run-1")
    shutil.rmtree(scene.sink.uri.removeprefix("file://"))
    scene.run("run-2")


def sink_is_gone_unseen(scene: Scene) -> None:
    scene.run("run-1")
    shutil.rmtree(scene.sink.uri.removeprefix("file://"))


def is_held(scene: Scene) -> None:
    scene.run("run-1")
    scene.act(Held(why="moving house"))


def is_retired(scene: Scene) -> None:
    scene.run("run-1")
    scene.act(Retired(why="replaced"))


def waits_for_more(scene: Scene) -> None:
    scene.run("run-1")
    scene.log.append(1, timestamp_ms=now_ms())
    scene.run("run-2", stream=scene.bench.stream(min_batch_bytes="1g"))


def has_new_data(scene: Scene) -> None:
    scene.run("run-1")
    scene.log.append(1, timestamp_ms=now_ms())


def is_planned(scene: Scene) -> None:
    session = scene.bench.session("run-1")
    session.begin(scene.sink)
    scene.bench.running.add("run-1")


def is_finished(scene: Scene) -> None:
    scene.run("run-1", stream=scene.bench.stream(ending_version=1))
    for _ in range(3):
        scene.log.append(1, timestamp_ms=now_ms())


def is_finished_and_its_table_is_gone_past_it(scene: Scene) -> None:
    is_finished(scene)
    for version in (0, 1, 2):
        (scene.log.root / "_delta_log" / f"{version:020}.json").unlink()


def table_is_another(scene: Scene) -> None:
    scene.run("run-1")
    shutil.rmtree(scene.log.root)
    anew = LogBuilder(scene.log.root)
    anew.table_id = "22222222-2222-3333-4444-555555555555"
    anew.create()
    anew.append(2)
    scene.run("run-2")


def table_is_gone(scene: Scene) -> None:
    scene.run("run-1")
    shutil.rmtree(scene.log.root)
    scene.run("run-2")


def was_up_to_date(scene: Scene) -> None:
    scene.run("run-1")


def succeeded_after_a_failure(scene: Scene) -> None:
    spark_fails(scene)
    scene.run("run-2")


def gave_way_after_a_failure(scene: Scene) -> None:
    spark_fails(scene)
    write_end(scene.bench.session("run-2"), StreamBusyError("another run is at work", owner="run-9"))


def held_and_resumed_after_a_failure(scene: Scene) -> None:
    deleted(scene)
    scene.act(Held(why="looking"))
    scene.act(Resumed(why="looked"))


def begins_again_after_a_failure(scene: Scene) -> None:
    spark_fails(scene)
    scene.bench.session("run-2").begin(scene.sink)


#: What happened, the state on every surface, and the code of the failure or the problem.
CAUSES: list[tuple[Callable[[Scene], None], str, str | None]] = [
    (was_up_to_date, "up_to_date", None),
    (has_new_data, "behind", None),
    (waits_for_more, "waiting", None),
    (is_planned, "loading", None),
    (deleted, "failing", "SOURCE_ROWS_DELETED"),
    (columns_change, "failing", "SCHEMA_CHANGED"),
    (spark_fails, "failing", "MERGE_ORDER_UNKNOWN"),
    (sink_is_gone, "failing", "SINK_MISSING"),
    (sink_is_gone_unseen, "failing", "SINK_MISSING"),
    (gave_way_after_a_failure, "failing", "MERGE_ORDER_UNKNOWN"),
    (succeeded_after_a_failure, "up_to_date", None),
    (held_and_resumed_after_a_failure, "behind", None),
    (begins_again_after_a_failure, "loading", None),
    (rows_differ, "blocked", None),
    (lambda scene: deleted(scene, on_violation="quarantine"), "quarantined", None),
    (is_held, "held", None),
    (is_retired, "retired", None),
    (is_finished, "finished", None),
    (is_finished_and_its_table_is_gone_past_it, "finished", None),
    (table_is_another, "lost_position", "TABLE_REPLACED"),
    (table_is_gone, "unreadable", "TABLE_NOT_FOUND"),
]


def fds(capsys: Any, *words: object) -> tuple[int, str]:
    code = main([str(word) for word in words])
    return code, capsys.readouterr().out


@pytest.mark.parametrize(("cause", "state", "code"), CAUSES, ids=[one[0].__name__.strip("<>") for one in CAUSES])
def test_every_surface_shows_the_same_state(scene, capsys, cause, state, code):
    cause(scene)
    capsys.readouterr()
    needs = state in NEEDS_ATTENTION
    staging = ("--staging", scene.bench.staging)

    exit_code, out = fds(capsys, "status", "orders", *staging, "--output", "json")
    one = json.loads(out)
    assert (one["condition"], one["reason_code"], one["needs_attention"]) == (state, code, needs)
    assert (exit_code != 0) is needs
    _, out = fds(capsys, "status", "orders", *staging)
    assert f"state            {state.replace('_', ' ')}\n" in out

    exit_code, out = fds(capsys, "status", *staging, "--lagging", "100d", "--output", "json")
    assert [json.loads(line)["condition"] for line in out.splitlines() if line.startswith("{")] == [state] * needs
    assert exit_code == int(needs)
    _, out = fds(capsys, "status", *staging, "--output", "prometheus")
    assert re.search(rf'fds_needs_attention{{stream="orders",state="{state}",[^}}]*}} {int(needs)}$', out, re.MULTILINE)

    _, out = fds(capsys, "explain", "orders", *staging, "--output", "json")
    explained = json.loads(out)
    assert explained["condition"] == state
    assert code is None or f"[{code}]" in explained["cause"]
    assert "--force" not in str(explained["commands"])

    watched = StreamMonitor(lambda: scene.bench.session("monitor").connected.context)
    (seen,) = watched.poll()
    assert seen.condition == state
    (alert,) = find_alerts(seen, StreamAlerts()).alerts or (None,)
    assert (None if alert is None else alert.state) == (state if needs else None)
    assert alert is None or code is None or code in alert.why

    row = page_row(scene)
    if row is not None:
        # a run or a person has written it, and the list does not show what happened since
        assert row["condition"] in {state, "up_to_date", "failing"}
    assert watched.write_status_files([seen], interval_seconds=60) is None
    row = page_row(scene)
    assert (row["condition"], row["on_its_page"], row["needs_attention"]) == (state, state, needs)
    assert not needs or code is None or f"[{code}]" in row["problem"]


def page_row(scene: Scene) -> dict[str, Any] | None:
    """The row of the page's list, with the state that the page of the stream shows."""
    staging = str(scene.bench.staging)
    row = StatusFolder(staging, dict).read().rows.get("orders")
    if row is None:
        return None
    storage = scene.bench.session("page").connected.staging
    detailed, _ = FoundStream(row, storage, StreamHistory(storage, "orders")).details()
    return row_of(row, staging, datetime.now(UTC)) | {"on_its_page": detailed.condition}


def test_failures_in_a_row_are_counted_until_something_moves(scene):
    deleted(scene)
    first = scene.run("run-3")
    assert first is not None
    row = page_row(scene)
    assert row is not None
    assert (row["failed_runs"], row["will_retry"]) == (2, False)
    assert row["since"] < row["observed_at"]
    assert row["problem"].startswith("The last 2 runs failed, the first at ")
    # the reason is said once, and the commands can be copied
    assert row["problem"].count("[SOURCE_ROWS_DELETED]") == 1
    assert "`fds skip orders --version " in row["problem"]
    scene.act(Held(why="looking"))
    scene.act(Resumed(why="looked"))
    scene.run("run-4")
    row = page_row(scene)
    assert row is not None
    # nothing was committed since the first one
    assert row["failed_runs"] == 3
    scene.run("run-5", stream=scene.bench.stream(ignore_deletes=True))
    row = page_row(scene)
    assert row is not None
    assert (row["condition"], row["failed_runs"], row["problem"]) == ("up_to_date", 0, None)


@pytest.mark.parametrize("other", ["table", "deployment"])
def test_a_run_that_was_refused_says_nothing_about_the_stream_whose_name_it_has_used(scene, tmp_path, other, caplog):
    scene.run("run-1")
    before = page_row(scene)
    if other == "table":
        builder = LogBuilder(tmp_path / "another")
        builder.create()
        session = scene.bench.session("run-2", stream=DeltaStream("orders", table=builder.uri, starting_version=0))
    else:
        session = scene.bench.session("run-2", deployment="another")
    with pytest.raises(FdsError), reporting_end(session):
        session.begin(scene.sink)
    after = page_row(scene)
    assert before is not None
    assert after is not None
    assert after["observed_at"] == before["observed_at"]


def test_a_finished_stream_whose_end_was_removed_goes_on(scene):
    is_finished(scene)
    connected = scene.bench.session("run-2").connected
    assert connected.load().ended.version == 1
    assert scene.run("run-2") is None
    scene.log.append(1, timestamp_ms=now_ms())
    (seen,) = StreamMonitor(lambda: scene.bench.session("monitor").connected.context).poll()
    assert (seen.condition, seen.lag_versions) == ("behind", 1)


def test_the_age_of_the_lag_is_that_of_the_moment_it_is_shown(scene):
    has_new_data(scene)
    watched = StreamMonitor(lambda: scene.bench.session("monitor").connected.context)
    assert watched.write_status_files(watched.poll(), interval_seconds=60) is None
    file = StatusFolder(str(scene.bench.staging), dict).read().rows["orders"]
    late = datetime.fromisoformat(file.written_at) + timedelta(hours=1)
    row = row_of(file, str(scene.bench.staging), late)
    assert row["lag_seconds"] == pytest.approx(file.lag_seconds + 3600)
    assert row["retention_left_seconds"] == pytest.approx(file.retention_left_seconds - 3600)


def test_a_snapshot_that_is_read_in_part_counts_as_one_version(scene):
    stream = scene.bench.stream(starting_version=None, max_files_per_trigger=1)
    session = scene.bench.session("run-1", stream=stream)
    work = session.begin(scene.sink, max_batches=1)
    scene.bench.report(session, work, session.job(work, scene.sink))
    session.collect(work)
    for versions in (1, 2):
        (seen,) = StreamMonitor(lambda: scene.bench.session("monitor").connected.context).poll()
        assert (seen.lag_versions, seen.condition) == (versions, "behind")
        scene.log.append(1, timestamp_ms=now_ms())


def test_a_trigger_that_waits_for_the_stream_does_not_end_its_failure(scene):
    deleted(scene)
    connected = scene.bench.session("sensor").connected
    seen = status_of(connected, seen_waiting="waits for more data")
    write_status_file(connected.staging, seen, connected.state, written_by="run")
    row = page_row(scene)
    assert row is not None
    assert (row["condition"], row["failed_runs"], row["waits_for"]) == ("failing", 1, None)


def test_a_monitor_sees_in_the_next_round_that_a_run_has_failed(scene):
    scene.run("run-1")
    scene.log.commit(DELETE, operation="DELETE", timestamp_ms=now_ms())
    watched = StreamMonitor(lambda: scene.bench.session("monitor").connected.context)
    assert [one.condition for one in watched.poll()] == ["behind"]
    scene.run("run-2")
    assert [one.condition for one in watched.poll()] == ["failing"]
    assert [one.condition for one in watched.poll()] == ["failing"]
