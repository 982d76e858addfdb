"""Event times of batches, and the watermark of a stream."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_fds.cli.main import main
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.ledger.entries.epoch_entries import Opened
from airflow_provider_fds.ledger.owner import Actor
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.ledger.values import Fence
from airflow_provider_fds.stream import DeltaStream
from airflow_provider_fds.stream.actions.action_builder import ActionBuilder
from airflow_provider_fds.stream.actions.prepared_action import perform


def stats(first: str | None, last: str | None, rows: int = 10) -> str:
    if first is None:
        return json.dumps({"numRecords": rows, "minValues": {}, "maxValues": {}, "nullCount": {"ts": rows}})
    low, high = (f"2026-01-{number}T00:00:00.000Z" for number in (first, last))
    found = {"minValues": {"ts": low}, "maxValues": {"ts": high}, "nullCount": {"ts": 0}}
    return json.dumps({"numRecords": rows, **found})


@pytest.fixture
def table(log_builder):
    log_builder.create([log_builder.field("id"), log_builder.field("ts", "timestamp")])
    return log_builder


def timed(bench: Any, **options: Any) -> DeltaStream:
    return bench.stream(event_time_column="ts", **options)


def day(number: int) -> str:
    return f"2026-01-{number:02d}T00:00:00.000000Z"


def times(result: Any) -> dict[str, Any]:
    return {key: value for key, value in result.to_dict().items() if key.startswith(("event_time", "watermark"))}


def test_a_result_has_the_range_of_its_batches_and_the_watermark(bench, table, sink):
    table.append(stats=stats("03", "05"))
    table.append(stats=stats("02", "04"))
    session, _ = bench.run_once(sink, stream=timed(bench, max_versions_per_batch=1))
    assert times(session.result()) == {
        "event_time_min": day(2),
        "event_time_max": "2026-01-05T00:00:00.000999Z",
        "event_time_missing": None,
        "watermark": day(5),
    }
    assert session.status().watermark == day(5)


def test_a_stream_without_the_option_reports_nothing(bench, table, sink):
    table.append(stats=stats("03", "05"))
    session, work = bench.run_once(sink)
    assert (times(session.result()), work.batches[0].event_time) == ({}, None)
    assert session.status().watermark is None


def test_the_watermark_never_goes_back_and_the_range_of_a_later_run_is_its_own(bench, table, sink):
    stream = timed(bench)
    table.append(stats=stats("03", "05"))
    bench.run_once(sink, "run-1", stream)
    table.append(stats=stats("01", "02"))
    session, _ = bench.run_once(sink, "run-2", stream)
    found = times(session.result())
    assert (found["event_time_max"], found["watermark"]) == ("2026-01-02T00:00:00.000999Z", day(5))
    # the first run's result stays as it was
    assert times(bench.session("run-1", stream=stream).begin(sink, retry=True).result)["watermark"] == day(5)


def test_files_without_statistics_have_no_times_say_why_and_do_not_move_the_watermark(bench, table, sink, caplog):
    stream = timed(bench)
    table.append(stats=stats("03", "05"))
    bench.run_once(sink, "run-1", stream)
    table.append(stats=stats("06", "07"))
    table.append(2)
    session, _ = bench.run_once(sink, "run-2", stream)
    assert times(session.result()) == {
        "event_time_min": None,
        "event_time_max": None,
        "event_time_missing": "2 of 3 files have no statistics of column ts",
        "watermark": day(5),
    }
    assert "1 planned batches have no event times" in caplog.text


def test_rows_without_a_time_have_no_range_and_are_no_gap(bench, table, sink):
    stream = timed(bench)
    table.append(stats=stats(None, None))
    session, _ = bench.run_once(sink, "run-1", stream)
    found = times(session.result())
    assert (found["event_time_missing"], found["watermark"]) == ("no row has a value in the column", None)
    table.append(stats=stats(None, None))
    table.append(stats=stats("03", "05"))
    session, _ = bench.run_once(sink, "run-2", stream)
    assert times(session.result())["event_time_min"] == day(3)


def test_an_initial_snapshot_has_no_watermark_before_its_end(bench, table, sink):
    for last in ("07", "05", "06"):
        table.append(stats=stats("01", last))
    stream = DeltaStream("orders", table=str(bench.table), event_time_column="ts", max_files_per_batch=1)
    found = []
    for run in ("run-1", "run-2", "run-3"):
        session, _ = bench.run_once(sink, run, stream, max_batches=1)
        found.append((session.result().watermark, session.status().watermark))
    assert found == [(None, None), (None, None), (day(7), day(7))]
    table.append(stats=stats("01", "02"))
    session, _ = bench.run_once(sink, "run-4", stream)
    assert session.result().watermark == day(7)


@pytest.mark.parametrize(("move", "kept"), [("rewind", None), ("replan", "2026-01-05T00:00:00.000000Z")])
def test_a_stream_that_reads_again_begins_a_new_watermark(bench, table, sink, move, kept):
    stream = timed(bench)
    table.append(stats=stats("03", "05"))
    bench.run_once(sink, "run-1", stream)
    ledger = Ledger(open_storage(str(bench.staging)), "orders")
    ledger.find()
    arguments = {"to": 1, "sink_rows": "keep"} if move == "rewind" else {}
    perform(ledger, getattr(ActionBuilder(ledger, why="again"), move)(**arguments), Actor(deployment="test", user="me"))
    state = ledger.state
    assert state.watermark == day(5)
    fence = Fence(status="sink_missing")
    opened = Opened(
        epoch=state.epoch, start=state.closed.position, table_id=table.table_id, fence=fence, continues=move == "replan"
    )
    assert opened.apply(state).watermark == kept


def test_a_batch_that_counts_as_loaded_after_a_replan_moves_the_watermark(bench, table, sink):
    stream = timed(bench, max_versions_per_batch=1)
    for last in ("05", "06", "07"):
        table.append(stats=stats("03", last))
    bench.run_once(sink, "run-1", stream, max_batches=1)
    landed, _ = bench.session("run-2", stream=stream).begin(sink).batches
    ledger = Ledger(open_storage(str(bench.staging)), "orders")
    ledger.find()
    perform(ledger, ActionBuilder(ledger, why="again").replan(), Actor(deployment="test", user="me"))
    opened = Opened(epoch=2, start=landed.end, table_id=table.table_id, continues=True)
    assert opened.apply(ledger.state).watermark == day(6)


def test_a_column_that_does_not_exist_is_refused_before_anything_is_planned(bench, table, sink):
    table.append()
    with pytest.raises(ConfigurationError, match="version 1 has no column 'when', which event_time_column"):
        bench.session(stream=bench.stream(event_time_column="when")).begin(sink)
    with pytest.raises(ConfigurationError, match="'id' is of type long"):
        bench.session(stream=bench.stream(event_time_column="id")).begin(sink)
    assert not list(bench.staging.glob("orders/manifests/**/*.json"))


def test_a_column_that_was_added_later_has_no_times_before(bench, log_builder, sink):
    log_builder.create([log_builder.field("id")])
    log_builder.append()
    log_builder.commit(log_builder.metadata([log_builder.field("id"), log_builder.field("ts", "timestamp")]))
    log_builder.append(stats=stats("03", "05"))
    _, work = bench.run_once(replace(sink, merge_schema=True), stream=timed(bench))
    before, after = work.batches
    assert before.event_time.missing == "the table has no column ts at version 1"
    assert after.event_time.seen == day(5)


def test_fds_status_shows_the_watermark(bench, table, sink, capsys):
    table.append(stats=stats("03", "05"))
    bench.run_once(sink, stream=timed(bench))
    assert main(["status", "orders", "--staging", str(bench.staging), "--output", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["watermark"] == day(5)


@pytest.mark.parametrize("value", ["", "  ", 5, True])
def test_what_is_no_name_is_refused(value):
    with pytest.raises(ConfigurationError, match="must be the name of a column"):
        DeltaStream("s", "s3://lake/t", event_time_column=value)
