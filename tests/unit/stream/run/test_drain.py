"""``Drain``: the turns of one run on its stream."""

from __future__ import annotations

import logging

import pytest

from airflow_provider_fds.errors import ViolationError
from airflow_provider_fds.stream.run.drain import Drain


def run_spark(bench, drain, **changes):
    """Do what Spark would do with the work in hand."""
    bench.report(drain.session, drain.work, drain.job(), **changes)


def test_a_run_drains_its_stream_in_turns_and_returns_all_of_it(bench, sink, two_appends):
    stream = bench.stream(max_files_per_batch=1)
    drain = Drain(bench.session(stream=stream), sink, max_batches=1)
    turns = 0
    while drain.next_work() is not None:
        turns += 1
        run_spark(bench, drain)
        assert drain.collect(spark_failed=False).failure is None
    result = drain.result()
    assert turns == 5
    assert (result.batches, result.rows is None or result.rows > 0) == (5, True)
    assert drain.has_committed
    assert drain.stopped is None


def test_a_run_of_few_batches_ends_after_them_and_says_that_there_are_more(bench, sink, two_appends):
    stream = bench.stream(max_files_per_batch=1)
    drain = Drain(bench.session(stream=stream), sink, max_batches=2, max_in_all=3)
    while drain.next_work() is not None:
        run_spark(bench, drain)
        drain.collect(spark_failed=False)
    assert (drain.result().batches, drain.is_more) == (3, True)
    rest = Drain(bench.session("run-2", stream=stream), sink, max_in_all=2)
    while rest.next_work() is not None:
        run_spark(bench, rest)
        rest.collect(spark_failed=False)
    assert (rest.result().batches, rest.is_more) == (2, False)


def test_each_line_of_the_log_names_the_stream(bench, sink, two_appends, log_builder, caplog):
    caplog.set_level(logging.INFO, "airflow_provider_fds.stream")
    log_builder.commit(log_builder.remove(next(iter(log_builder.live))), operation="DELETE")
    drain = Drain(bench.session(), sink)
    drain.next_work()
    run_spark(bench, drain, warnings=("the sink was overwritten",))
    drain.collect(spark_failed=False)
    drain.next_work()
    name = drain.session.stream.name
    again = Drain(bench.session(), sink, retry=True)
    assert again.next_work() is None
    messages = [one for one in caplog.messages if "application" in one or "this run" in one]
    assert len(messages) >= 2
    assert f"Stream {name}: the sink was overwritten" in caplog.messages
    assert [one for one in caplog.messages if name not in one] == []


def test_a_turn_that_finds_nothing_says_why(bench, sink, two_appends):
    bench.load_once(sink)
    drain = Drain(bench.session("run-2"), sink)
    assert drain.next_work() is None
    assert drain.idle.status == "up_to_date"
    assert drain.result() is None


def test_a_batch_that_was_not_started_because_the_time_was_up_is_no_failure(bench, sink, two_appends):
    drain = Drain(bench.session(), sink, stop_after_ms=1)
    drain.next_work()
    drain.job()
    collected = drain.collect(spark_failed=False)
    assert collected.failure is not None
    assert drain.is_out_of_time
    assert drain.next_work() is None


def test_the_same_batch_is_a_failure_if_spark_failed(bench, sink, two_appends):
    drain = Drain(bench.session(), sink, stop_after_ms=1)
    drain.next_work()
    drain.job()
    assert drain.collect(spark_failed=True).failure is not None
    assert not drain.is_out_of_time


def test_a_violation_after_what_was_loaded_is_no_error_of_this_run(bench, sink, two_appends, log_builder):
    log_builder.commit(log_builder.remove(next(iter(log_builder.live))), operation="DELETE")
    drain = Drain(bench.session(), sink)
    assert drain.next_work().warning is not None
    run_spark(bench, drain)
    drain.collect(spark_failed=False)
    assert drain.next_work() is None
    assert isinstance(drain.stopped, ViolationError)
    with pytest.raises(ViolationError):
        Drain(bench.session("run-2"), sink).next_work()
