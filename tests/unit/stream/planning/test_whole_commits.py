"""Whoever decides per key gets commits of the change feed whole, whichever way its batches were planned."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_fds.batch.spec import JobSpec
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.ledger.owner import Actor
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink, ForeachBatchSink
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.actions.action_builder import ActionBuilder
from airflow_provider_fds.stream.actions.prepared_action import perform

FUNCTION = ForeachBatchSink("orders_functions:split")
LIMITS: dict[str, Any] = {"read_change_feed": True, "max_files_per_batch": 2}


@pytest.fixture
def merge(tmp_path):
    return DeltaMergeSink(str(tmp_path / "merged"), keys=["id"])


@pytest.fixture
def overwritten(log_builder):
    """Version 1 adds three files, version 2 replaces them by three others."""
    log_builder.create(configuration={"delta.enableChangeDataFeed": "true"})
    log_builder.append(3)
    old = [f"part-00001-{n:05d}.parquet" for n in range(3)]
    new = [log_builder.add(f"new-{n}") for n in range(3)]
    return log_builder.commit(*new, *map(log_builder.remove, old), operation="WRITE")


def planned(bench, sink, *, run="run-1", user_job=False, **options):
    session = bench.session(run, stream=bench.stream(options.pop("name", "orders"), **{**LIMITS, **options}))
    return [batch.num_files for batch in session.begin(sink, user_job=user_job).batches]


@pytest.mark.usefixtures("overwritten")
def test_a_sink_that_decides_per_key_gets_it_whole(bench, merge):
    assert planned(bench, merge) == [2, 1, 6]


@pytest.mark.usefixtures("overwritten")
def test_a_sink_that_appends_gets_it_in_parts(bench, tmp_path):
    assert planned(bench, DeltaAppendSink(str(tmp_path / "sink"))) == [2, 1, 2, 2, 2]


@pytest.mark.usefixtures("overwritten")
@pytest.mark.parametrize("user_job", [True, False])
def test_the_users_own_code_gets_it_whole_unless_the_stream_says_otherwise(bench, user_job):
    sink = None if user_job else FUNCTION
    assert planned(bench, sink, user_job=user_job) == [2, 1, 6]
    assert planned(bench, sink, user_job=user_job, name="other", whole_commits=False) == [2, 1, 2, 2, 2]


@pytest.mark.usefixtures("overwritten")
def test_a_plan_without_a_sink_keeps_it_whole_until_the_stream_is_bound_to_one_that_appends(bench, tmp_path):
    assert planned(bench, None) == [2, 1, 6]
    session = bench.session(stream=bench.stream("bound", **LIMITS))
    sink = DeltaAppendSink(str(tmp_path / "sink"))
    work = session.begin(sink, max_batches=1)
    bench.report(session, work, session.job(work, sink))
    session.collect(work)
    assert planned(bench, None, name="bound") == [1, 2, 2, 2]


@pytest.mark.usefixtures("overwritten")
def test_a_merge_of_a_stream_that_cuts_commits_is_refused(bench, merge):
    session = bench.session(stream=bench.stream(whole_commits=False, **LIMITS))
    with pytest.raises(ConfigurationError, match="whole_commits=False, but DeltaMergeSink decides per key"):
        session.begin(merge)
    assert bench.session(stream=bench.stream("plain", whole_commits=False, ignore_changes=True)).begin(merge).batches


@pytest.mark.usefixtures("overwritten")
def test_batches_that_an_earlier_plan_has_cut_are_not_handed_to_a_merge(bench, merge):
    # as a plan was that no sink had a say in
    assert planned(bench, None, whole_commits=False) == [2, 1, 2, 2, 2]
    session = bench.session("run-2", stream=bench.stream(**LIMITS))
    with pytest.raises(ConfigurationError, match=r"batch 2 was planned to end inside version 2 .*fds replan orders"):
        session.begin(merge)

    builder = ActionBuilder(session.connected.ledger, "cut")
    perform(session.connected.ledger, builder.replan(), Actor(deployment="test", user="me", host="here"))
    # the sink is closed to the batches of before, then they are planned again
    assert bench.session("run-3", stream=bench.stream(**LIMITS)).begin(merge).status == "fence"


@pytest.mark.usefixtures("overwritten")
def test_batches_that_an_earlier_plan_has_cut_are_not_handed_to_the_users_own_code(bench):
    planned(bench, FUNCTION, whole_commits=False)
    with pytest.raises(ConfigurationError, match=r"batch 2 was planned to end inside version 2.* whole_commits=False"):
        planned(bench, FUNCTION, run="run-2")
    assert planned(bench, FUNCTION, run="run-3", whole_commits=False) == [2, 1, 2, 2, 2]


@pytest.mark.usefixtures("overwritten")
def test_a_merge_does_not_begin_inside_a_commit(bench, merge, log_builder):
    inside = Offset(log_builder.table_id, 2, 1)
    session = bench.session(stream=bench.stream(**LIMITS))
    with pytest.raises(
        ConfigurationError, match=r"inside version 2 .* `fds rewind orders --to 2 --sink-rows keep --why …`\.$"
    ):
        session.begin(merge, start=inside)

    builder = ActionBuilder(session.connected.ledger, "cut")
    assert "That is inside version 2." in builder.replan(new_sink=True).describe()
    move = builder.rewind(to=2, sink_rows="keep")
    assert "That is inside" not in move.describe()
    perform(session.connected.ledger, move, Actor(deployment="test", user="me", host="here"))
    fence = bench.session("run-2", stream=bench.stream(**LIMITS))
    assert fence.begin(merge).status in ("fence", "work")


@pytest.mark.parametrize("index", [5, 1])
def test_a_merge_begins_after_a_commit_and_inside_one_that_only_adds(bench, merge, log_builder, overwritten, index):
    version = overwritten if index == 5 else 1
    session = bench.session(stream=bench.stream(**LIMITS))
    work = session.begin(merge, start=Offset(log_builder.table_id, version, index))
    assert [batch.num_files for batch in work.batches] == ([] if index == 5 else [1, 6])


def job_of(bench, session, sink, work):
    storage = open_storage(str(bench.staging))
    return JobSpec.from_json(storage.get(session.job(work, sink).removeprefix(storage.uri + "/"))[0])


@pytest.mark.usefixtures("overwritten")
def test_the_driver_learns_of_each_batch_whether_it_cuts_such_a_commit(bench, merge, tmp_path):
    session = bench.session(stream=bench.stream(**LIMITS))
    batches = job_of(bench, session, merge, session.begin(merge)).batches
    assert [(batch.inner_versions, batch.divides_commit) for batch in batches] == [
        ((1,), False),
        ((1,), False),
        ((), False),
    ]
    append = DeltaAppendSink(str(tmp_path / "sink"))
    session = bench.session(stream=bench.stream("append", **LIMITS))
    batches = job_of(bench, session, append, session.begin(append)).batches
    assert [batch.divides_commit for batch in batches] == [None] * 5
    assert [batch.inner_versions for batch in batches] == [(1,), (1,), (2,), (2,), (2,)]


@pytest.mark.usefixtures("overwritten")
def test_a_batch_of_changes_is_reported_even_if_the_stream_no_longer_reads_changes(bench, merge):
    planned(bench, None, whole_commits=False)
    session = bench.session("run-2", stream=bench.stream(max_files_per_batch=2, ignore_changes=True))
    batches = job_of(bench, session, merge, session.begin(merge)).batches
    assert [batch.divides_commit for batch in batches] == [False, False, True, True, True]


@pytest.mark.usefixtures("overwritten")
def test_a_batch_whose_commit_left_the_log_is_not_reported_as_whole(bench, merge, log_builder):
    session = bench.session(stream=bench.stream(**LIMITS))
    work = session.begin(merge)
    log_builder.clean_up_before(2)
    assert [batch.divides_commit for batch in job_of(bench, session, merge, work).batches] == [None, None, False]
