"""A stream whose batches a function of the user's takes: FDS knows no table, and says so where it matters."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import ConfigurationError, SinkError
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.sinks import DeltaAppendSink, ForeachBatchSink
from airflow_provider_fds.stream.actions.action_builder import ActionBuilder
from airflow_provider_fds.stream.actions.prepared_action import perform

SINK = ForeachBatchSink("jobs.orders:load", writes=["bronze", "errors"])


@pytest.fixture
def source(log_builder: Any) -> Any:
    log_builder.create()
    for _ in range(2):
        log_builder.append(1)
    return log_builder


def run(bench: Any, sink: Any, name: str = "run-1", **report: Any) -> Any:
    session = bench.session(name, stream=bench.stream(max_versions_per_batch=1))
    while (work := session.begin(sink)).status in ("work", "fence"):
        bench.report(session, work, session.job(work, sink), **report)
        assert session.collect(work).failure is None
    return session


def builder(bench: Any) -> ActionBuilder:
    ledger = Ledger(open_storage(str(bench.staging)), "orders")
    ledger.find()
    return ActionBuilder(
        ledger, "a test", log=DeltaLog(open_storage(str(bench.table))), owner_runs=lambda _owner: False
    )


def test_its_batches_are_committed_without_a_version_of_a_sink(bench, source):
    session = run(bench, SINK, sink_version=None, sink_table_id=None)

    state = session.connected.state
    assert (state.sink.kind, state.sink.target) == ("foreach_batch", "jobs.orders:load")
    assert state.sink.app_ids == (f"fds:{state.uuid}#bronze", f"fds:{state.uuid}#errors")
    assert (state.next_batch_id, state.planned, state.sink_version) == (2, (), None)
    result = session.result()
    assert (result.batches, result.sink_version) == (2, None)


def test_a_rewind_begins_a_new_epoch_without_a_fence(bench, source):
    run(bench, SINK, sink_version=None, sink_table_id=None)
    ledger = builder(bench).ledger
    move = builder(bench).rewind(to=1, sink_rows="keep")
    assert "unless the job replaces them" in move.describe()
    perform(ledger, move, bench.session().context.actor)

    state = run(bench, SINK, "run-2", sink_version=None, sink_table_id=None).connected.state
    assert (state.epoch, state.phase, state.next_batch_id) == (2, "open", 2)


def test_a_replan_asks_whether_the_batch_on_its_way_landed(bench, source):
    session = bench.session(stream=bench.stream())
    session.job(session.begin(SINK), SINK)
    with pytest.raises(ConfigurationError, match="--landed"):
        builder(bench).replan()
    assert builder(bench).replan(landed=True).commands[0].to == {"offset": session.connected.state.planned[0].end}


def test_another_function_or_a_table_in_its_place_is_refused(bench, source, tmp_path):
    run(bench, SINK, sink_version=None, sink_table_id=None)
    source.append(1)
    for other in (ForeachBatchSink("jobs.orders:other"), DeltaAppendSink(str(tmp_path / "sink"))):
        with pytest.raises(SinkError, match=r"foreach_batch jobs\.orders:load"):
            bench.session("run-2").begin(other)


def test_a_table_is_fenced_when_the_stream_moves_on_to_a_function(bench, source, tmp_path):
    session = run(bench, DeltaAppendSink(str(tmp_path / "sink")))
    perform(session.connected.ledger, builder(bench).replan(new_sink=True), session.context.actor)
    session = bench.session("run-2")
    work = session.begin(SINK)

    assert work.status == "fence"
    session.job(work, SINK)
    (job,) = (bench.staging / "orders/jobs/2/fence").glob("*.job.json")
    assert (tmp_path / "sink").as_uri() in job.read_text()


def test_tables_can_be_named_later_and_not_be_taken_back(bench, source, tmp_path):
    named = ForeachBatchSink("jobs.orders:load", writes={"bronze": str(tmp_path / "bronze"), "errors": None})
    run(bench, SINK, sink_version=None, sink_table_id=None)
    source.append(1)
    state = run(bench, named, "run-2", sink_version=None, sink_table_id=None).connected.state
    assert state.sink.tables == {"bronze": (tmp_path / "bronze").as_uri()}
    source.append(1)
    moved = ForeachBatchSink("jobs.orders:load", writes={"bronze": str(tmp_path / "other"), "errors": None})
    for other in (SINK, moved):
        with pytest.raises(SinkError, match="fds replan orders --new-sink"):
            bench.session("run-3").begin(other)


def test_a_write_to_the_source_table_is_refused(bench, source):
    with pytest.raises(SinkError, match="overlaps"):
        bench.session().begin(ForeachBatchSink("jobs.orders:load", writes={"bronze": str(bench.table)}))
