"""The turns of one run on its stream: ``next_work``, Spark, ``collect``, within the run's limits."""

from __future__ import annotations

import logging

import pytest

from airflow_provider_fds.errors import ViolationError


def run_spark(bench, session, sink, **changes):
    """Do what Spark would do with the work in hand."""
    bench.report(session, session.work, session.job(session.work, sink), **changes)


def test_a_run_drains_its_stream_in_turns_and_returns_all_of_it(bench, sink, two_appends):
    stream = bench.stream(max_files_per_batch=1)
    session = bench.limited(stream=stream, max_batches=1)
    turns = 0
    while session.next_work(sink) is not None:
        turns += 1
        run_spark(bench, session, sink)
        assert session.collect(session.work, spark_failed=False).failure is None
    result = session.result()
    assert turns == 5
    assert (result.batches, result.rows is None or result.rows > 0) == (5, True)
    assert session.has_committed
    assert session.stopped is None


def test_a_run_of_few_batches_ends_after_them_and_says_that_there_are_more(bench, sink, two_appends):
    stream = bench.stream(max_files_per_batch=1)
    session = bench.limited(stream=stream, max_batches=2, max_in_all=3)
    while session.next_work(sink) is not None:
        run_spark(bench, session, sink)
        session.collect(session.work, spark_failed=False)
    assert (session.result().batches, session.is_more) == (3, True)
    rest = bench.limited("run-2", stream=stream, max_in_all=2)
    while rest.next_work(sink) is not None:
        run_spark(bench, rest, sink)
        rest.collect(rest.work, spark_failed=False)
    assert (rest.result().batches, rest.is_more) == (2, False)


def test_each_line_of_the_log_names_the_stream(bench, sink, two_appends, log_builder, caplog):
    caplog.set_level(logging.INFO, "airflow_provider_fds.stream")
    log_builder.commit(log_builder.remove(next(iter(log_builder.live))), operation="DELETE")
    session = bench.session()
    session.next_work(sink)
    run_spark(bench, session, sink, warnings=("the sink was overwritten",))
    session.collect(session.work, spark_failed=False)
    session.next_work(sink)
    name = session.stream.name
    again = bench.limited(retry=True)
    assert again.next_work(sink) is None
    messages = [one for one in caplog.messages if "application" in one or "this run" in one]
    assert len(messages) >= 2
    assert f"Stream {name}: the sink was overwritten" in caplog.messages
    assert [one for one in caplog.messages if name not in one] == []


def test_a_turn_that_finds_nothing_says_why(bench, sink, two_appends):
    bench.load_once(sink)
    session = bench.session("run-2")
    assert session.next_work(sink) is None
    assert session.idle.status == "up_to_date"
    assert session.result() is None


def test_a_batch_that_was_not_started_because_the_time_was_up_is_no_failure(bench, sink, two_appends):
    session = bench.limited(stop_after_ms=1)
    session.next_work(sink)
    session.job(session.work, sink)
    collected = session.collect(session.work, spark_failed=False)
    assert collected.failure is not None
    assert session.is_out_of_time
    assert session.next_work(sink) is None


def test_the_same_batch_is_a_failure_if_spark_failed(bench, sink, two_appends):
    session = bench.limited(stop_after_ms=1)
    session.next_work(sink)
    session.job(session.work, sink)
    assert session.collect(session.work, spark_failed=True).failure is not None
    assert not session.is_out_of_time


def test_a_violation_after_what_was_loaded_is_no_error_of_this_run(bench, sink, two_appends, log_builder):
    log_builder.commit(log_builder.remove(next(iter(log_builder.live))), operation="DELETE")
    session = bench.session()
    assert session.next_work(sink).warning is not None
    run_spark(bench, session, sink)
    session.collect(session.work, spark_failed=False)
    assert session.next_work(sink) is None
    assert isinstance(session.stopped, ViolationError)
    with pytest.raises(ViolationError):
        bench.session("run-2").next_work(sink)
