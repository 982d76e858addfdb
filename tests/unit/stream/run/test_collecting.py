"""Batches are committed while the caller waits for Spark, and what goes wrong is left for the end."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

import pytest

from airflow_provider_fds.errors import LedgerError, StorageError
from airflow_provider_fds.stream.run.collecting import collecting, committing, logger


def test_each_batch_is_committed_and_reported_while_the_run_waits_for_spark(bench, two_appends, sink):
    session = bench.session(stream=bench.stream(max_versions_per_batch=1))
    work = session.begin(sink)
    parts = [replace(work, batches=(batch,)) for batch in work.batches[:2]]
    jobs = [session.job(part, sink) for part in parts]
    told, seen = threading.Event(), []

    def tell(collected):
        seen.append([batch.batch_id for batch in collected.committed])
        told.set()

    with collecting(session, work, tell, poll_seconds=0.01):
        for number, (part, job) in enumerate(zip(parts, jobs, strict=True)):
            bench.report(session, part, job)
            assert told.wait(30)
            told.clear()
            assert session.connected.state.last_batch_id == number
    assert seen == [[0], [0, 1]]


def test_the_log_says_that_spark_works_on_the_next_batch_only_if_there_is_one(bench, two_appends, sink, caplog):
    session = bench.session(stream=bench.stream(max_versions_per_batch=1))
    work = session.begin(sink)
    bench.report(session, work, session.job(work, sink))
    caplog.clear()
    caplog.set_level("INFO", logger=logger.name)
    with collecting(session, work, poll_seconds=0.01):
        until = time.monotonic() + 30
        while not caplog.messages and time.monotonic() < until:
            time.sleep(0.01)
    count = len(work.batches)
    assert caplog.messages[-1] == f"Stream orders: committed {count} of {count} batches; waiting for Spark to end."


@pytest.mark.parametrize("error", [LedgerError("the stream was taken away"), StorageError("no answer")])
def test_errors_while_spark_runs_are_left_until_it_ends(bench, two_appends, sink, error):
    session = bench.session(stream=bench.stream(max_versions_per_batch=1))
    work = session.begin(sink)
    asked = threading.Event()

    class Failing:
        stream = session.stream

        def collect(self, _work, *, is_running):
            assert is_running
            asked.set()
            raise error

    with collecting(Failing(), work, pytest.fail, poll_seconds=0.01):
        assert asked.wait(30)


def test_spark_is_ended_if_it_goes_on_after_all_batches_are_committed(bench, two_appends, sink, caplog):
    session = bench.session()
    work = session.begin(sink)
    assert len(work.batches) == 1
    ended = threading.Event()
    with collecting(session, work, lambda _: None, end=ended.set, poll_seconds=0.01, grace_seconds=0.2) as was_ended:
        assert not ended.wait(0.4)
        bench.report(session, work, session.job(work, sink))
        assert ended.wait(30)
    assert was_ended.is_set()
    assert session.connected.state.last_batch_id == 0
    assert "Stream orders: Spark has reported everything, but has not ended within 0 s" in caplog.messages[-1]


def test_spark_that_ends_by_itself_is_left_alone(bench, two_appends, sink):
    session = bench.session()
    work = session.begin(sink)
    bench.report(session, work, session.job(work, sink))
    told = threading.Event()

    def tell(_collected):
        told.set()

    with collecting(session, work, tell, end=pytest.fail, poll_seconds=0.01, grace_seconds=60):
        assert told.wait(30)


def test_a_fleet_is_committed_again_and_again_by_one_thread_until_spark_ends(caplog):
    calls, enough = [], threading.Event()

    def commit():
        calls.append(threading.current_thread().name)
        if len(calls) == 2:
            raise StorageError("no answer")
        if len(calls) == 5:
            enough.set()

    with committing(commit, poll_seconds=0.001):
        assert enough.wait(30)
    count = len(calls)
    assert set(calls) == {"fds-collect"}
    time.sleep(0.02)
    assert len(calls) == count
    assert caplog.messages == ["Fleet: batches could not be committed while Spark works; FDS tries again."]
