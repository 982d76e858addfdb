"""A run that lingers: it loads what comes after it has loaded everything, and ends for one of few reasons."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from airflow_provider_fds.errors import StorageError
from airflow_provider_fds.ledger.entries.operator_entries import Held
from airflow_provider_fds.ledger.entries.request_entries import Requested
from airflow_provider_fds.stream.monitoring.status import status_of
from airflow_provider_fds.stream.monitoring.status_file import with_state
from airflow_provider_fds.stream.monitoring.status_row import read_status_file
from airflow_provider_fds.stream.polling.poll import TablePoller
from airflow_provider_fds.stream.run import linger as lingering
from airflow_provider_fds.stream.run.linger import Hourly, Linger
from airflow_provider_fds.stream.run.reporting import reporting_end


def drained(bench, sink, linger, *, run="run-1", stream=None, meanwhile=(), **more):
    """Let a run work until it ends; before each wait, do the next one of ``meanwhile``."""
    session = bench.limited(run, stream=stream, linger=linger, **more)
    steps = iter(meanwhile)

    def step():
        next(steps, lambda: None)()

    session.on_caught_up = step
    turns = 0
    while (work := session.next_work(sink)) is not None:
        turns += 1
        bench.report(session, work, session.job(work, sink))
        assert session.collect(work).failure is None
    return session, turns


def soon(seconds=0.05):
    return Linger(seconds, 0.005)


def test_a_run_that_lingers_loads_what_comes_and_its_result_covers_all_of_it(bench, sink, two_appends, log_builder):
    session, turns = drained(bench, sink, soon(), meanwhile=[log_builder.append, log_builder.append])
    assert turns == 3
    result = session.result()
    assert (result.batches, result.last_version) == (3, log_builder.version)
    assert not session.is_more
    state = session.connected.load()
    assert not state.planned


def test_the_next_attempt_of_its_run_takes_over_what_was_planned_and_goes_on(bench, sink, two_appends, log_builder):
    bench.limited(linger=soon()).next_work(sink)
    log_builder.append()
    session, turns = drained(bench, sink, soon(), retry=True, meanwhile=[log_builder.append])
    assert turns == 3
    assert session.result().last_version == log_builder.version


def test_a_run_after_it_begins_where_it_ended(bench, sink, two_appends, log_builder):
    drained(bench, sink, soon(), meanwhile=[log_builder.append])
    log_builder.append()
    session, turns = drained(bench, sink, None, run="run-2")
    assert (turns, session.result().first_version) == (1, log_builder.version)


def test_a_run_that_was_planned_before_it_was_to_linger_keeps_its_end(bench, sink, two_appends, log_builder):
    bench.session().next_work(sink)
    log_builder.append()
    session, turns = drained(bench, sink, soon(), retry=True)
    assert (turns, session.result().last_version) == (1, log_builder.version - 1)


def test_others_see_that_it_is_live_until_it_ends_or_has_not_said_so_for_a_minute(bench, sink, two_appends, caplog):
    seen = []

    def look():
        connected = bench.session("person").connected
        now = datetime.now(UTC)
        seen.extend(status_of(connected, clock=lambda at=at: at).condition for at in (now, now + timedelta(minutes=2)))
        row = read_status_file(connected.staging, "orders")
        seen.append(with_state(row, connected.load(), connected.ledger.n).condition)

    linger = soon(0.5)
    waiting = linger.wait
    linger.wait = lambda connected, **more: (threading.Timer(0.2, look).start(), waiting(connected, **more))[1]
    session, _ = drained(bench, sink, linger)
    assert seen == ["live", "up_to_date", "live"]
    with reporting_end(session):
        pass
    assert status_of(bench.session("person").connected).condition == "up_to_date"


def test_a_task_that_waits_elsewhere_does_not_linger_without_data(bench, sink, two_appends):
    bench.load_once(sink)
    session, turns = drained(bench, sink, Linger(3600, 0.005, needs_data=True), run="run-2")
    assert (turns, session.idle.status) == (0, "up_to_date")


def test_a_run_ends_at_its_limits(bench, sink, two_appends, log_builder):
    _, turns = drained(bench, sink, Linger(3600, 0.005, ends_at_ms=int(time.time() * 1000)))
    assert turns == 1
    log_builder.append()
    session, turns = drained(
        bench, sink, Linger(3600, 0.005), run="run-2", max_in_all=1, meanwhile=[log_builder.append]
    )
    assert (turns, session.result().batches) == (1, 1)
    log_builder.append()
    linger = Linger(3600, 0.005)
    _, turns = drained(bench, sink, linger, run="run-3", meanwhile=[linger.end])
    assert turns == 1


def test_a_finished_stream_does_not_linger(bench, sink, two_appends, log_builder):
    stream = bench.stream(ending_version=log_builder.version)
    session, turns = drained(bench, sink, Linger(3600, 0.005), stream=stream)
    assert (turns, session.result().last_version) == (1, log_builder.version)


def test_a_run_ends_before_a_version_that_it_cannot_pass(bench, sink, two_appends, log_builder):
    def delete():
        log_builder.commit(log_builder.remove(next(iter(log_builder.live))), operation="DELETE")

    # after the deletion nothing may land, so the run ends at once, with what it has loaded
    session, turns = drained(bench, sink, Linger(3600, 0.005), meanwhile=[delete])
    assert (turns, session.result().batches) == (1, 1)
    assert session.stopped is not None


@pytest.mark.parametrize("asked", ["hold", "replan"])
def test_a_person_ends_it(bench, sink, two_appends, monkeypatch, asked):
    monkeypatch.setattr(lingering, "LOOK_SECONDS", 0.01)

    def act():
        connected = bench.session("person").connected
        state = connected.load()
        to = {"offset": state.position, "meaning_digest": state.meaning_digest}
        replan = Requested(reason="replan", why="a look at the sink", closes=state.epoch, to=to)
        connected.execute(Held(why="a look at the sink") if asked == "hold" else replan)

    session, turns = drained(bench, sink, Linger(3600, 0.005), meanwhile=[act])
    assert (turns, session.result().batches) == (1, 1)


def test_a_poll_that_is_refused_is_repeated(bench, sink, two_appends, log_builder, monkeypatch, caplog):
    real, refused = TablePoller.poll_blocking, threading.Event()

    def poll(self):
        if not refused.is_set():
            refused.set()
            raise StorageError("the store is away", table=self.table_uri)
        return real(self)

    monkeypatch.setattr(TablePoller, "poll_blocking", poll)
    _, turns = drained(bench, sink, soon(1), meanwhile=[log_builder.append, lambda: None], max_in_all=2)
    assert turns == 2
    assert any("a poll was refused, FDS tries again: the store is away" in line for line in caplog.messages)


def test_what_is_due_each_hour_is_not_done_before(monkeypatch):
    done = []
    hourly = Hourly(lambda: done.append(1))
    hourly()
    assert done == []
    later = time.monotonic() + 3600
    monkeypatch.setattr(lingering.time, "monotonic", lambda: later)
    hourly()
    hourly()
    assert done == [1]
