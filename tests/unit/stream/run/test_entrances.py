"""Whatever starts a run of a stream, or starts it again, each row is handed out once: what docs/failures.md says."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.checkpoint.file import FileCheckpointStore
from airflow_provider_fds.errors import CheckpointError, StreamBusyError
from airflow_provider_fds.ledger.owner import Owner
from airflow_provider_fds.source.offset import Offset

if TYPE_CHECKING:
    from airflow_provider_fds.sinks import DeltaAppendSink
    from airflow_provider_fds.stream import RunResult
    from tests.unit.stream.conftest import Bench


def load(bench: Bench, sink: DeltaAppendSink, run: str, *, retry: bool = False, **kw: Any) -> RunResult | None:
    session = bench.session(run, **kw)
    while (work := session.begin(sink, retry=retry)).status == "work":
        bench.report(session, work, session.job(work, sink))
        assert session.collect(work).failure is None
    return work.result if work.status == "done" else None


def owner(dag: str, run: str, task: str = "ingest", map_index: int = -1) -> Owner:
    return Owner(kind="airflow", deployment="test", dag_id=dag, run_id=run, task_id=task, map_index=map_index)


def test_a_month_of_cleared_runs_returns_the_original_results_in_any_order(bench, log_builder, sink):
    log_builder.create()
    results = {}
    for day in range(30):
        log_builder.append(1)
        results[day] = load(bench, sink, f"run-{day}")
    log_builder.append(1)
    rows = bench.sink_version
    for day in (29, 0, 15, *range(30)):
        assert load(bench, sink, f"run-{day}", retry=True) == results[day]
    assert bench.sink_version == rows
    assert [results[day].first_version for day in (1, 29)] == [2, 30]


def test_catchup_runs_load_everything_in_the_first_and_nothing_in_the_others(bench, two_appends, sink):
    results = [load(bench, sink, f"scheduled__2026-01-0{day}") for day in (1, 2, 3)]

    assert [result is not None and result.rows for result in results] == [50, False, False]


@pytest.mark.parametrize("state", ["success", "failed"])
def test_a_task_that_was_marked_leaves_its_batches_to_the_next_run(bench, two_appends, sink, state):
    planned = bench.session("run-1").begin(sink).batches
    # whatever it was marked as, it does not run any more
    bench.running.discard("run-1")
    session = bench.session("run-2")

    assert session.begin(sink).batches == planned


def test_two_dags_on_one_stream_and_sink_take_turns(bench, two_appends, log_builder, sink):
    first = bench.session(owner=owner("one", "run-1"))
    first.begin(sink)
    bench.running.add("run-1")
    with pytest.raises(StreamBusyError, match="DAG one, run run-1"):
        bench.session(owner=owner("two", "run-9")).begin(sink)
    work = first.begin(sink)
    bench.report(first, work, first.job(work, sink))
    first.collect(work)
    log_builder.append(1)

    assert load(bench, sink, "", owner=owner("two", "run-9")).first_version == 3


def test_mapped_instances_on_one_stream_are_owners_of_their_own(bench, two_appends, sink):
    bench.session(owner=owner("dag", "run-1", map_index=0)).begin(sink)
    bench.running.add("run-1")

    with pytest.raises(StreamBusyError, match=r"ingest\[0\]"):
        bench.session(owner=owner("dag", "run-1", map_index=1)).begin(sink)


def test_changed_limits_apply_after_the_batches_that_are_planned(bench, log_builder, sink):
    log_builder.create()
    log_builder.append(5)
    bench.session("run-1", stream=bench.stream(max_files_per_batch=5)).begin(sink)
    log_builder.append(4)
    smaller = bench.stream(max_files_per_batch=2)
    session = bench.session("run-2", stream=smaller)
    sizes = []
    while (work := session.begin(sink)).status == "work":
        sizes += [batch.num_files for batch in work.batches]
        bench.report(session, work, session.job(work, sink))
        session.collect(work)

    assert sizes == [5, 2, 2]


def test_a_renamed_dag_continues_and_takes_over_the_batches_of_the_old_one(bench, two_appends, sink):
    planned = bench.session(owner=owner("old_name", "run-1")).begin(sink).batches
    session = bench.session(owner=owner("new_name", "run-1"))

    assert session.begin(sink).batches == planned


def test_a_deleted_dag_that_is_restored_continues_at_the_offset(bench, two_appends, log_builder, sink, tmp_path):
    store = FileCheckpointStore(tmp_path / "cp.json")
    load(bench, sink, "run-1", checkpoints=store)
    log_builder.append(1)

    assert load(bench, sink, "run-of-the-restored-dag", checkpoints=store).first_version == 3


@pytest.mark.parametrize("what", ["wiped", "not shared"])
def test_staging_that_lacks_the_ledger_is_an_error_that_names_the_way(bench, two_appends, sink, tmp_path, what):
    store = FileCheckpointStore(tmp_path / "cp.json")
    load(bench, sink, "run-1", checkpoints=store)
    if what == "wiped":
        shutil.rmtree(bench.staging)
    else:
        bench.staging = tmp_path / "a disk of another worker"

    with pytest.raises(
        CheckpointError, match=r"the ledger has no entry.*`fds recover orders --sink URI --table URI --deployment test`"
    ):
        bench.session("run-2", checkpoints=store).begin(sink)


def test_a_run_that_is_cleared_while_the_next_one_works_gets_its_own_result(bench, two_appends, log_builder, sink):
    first = load(bench, sink, "run-1")
    log_builder.append(1)
    bench.session("run-2").begin(sink)
    bench.running.add("run-2")

    assert load(bench, sink, "run-1", retry=True) == first
    position = bench.session().connected.load().position
    assert Offset.from_json(position).version == 3
