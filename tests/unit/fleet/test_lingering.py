"""A fleet that lingers: it loads what comes in any of its tables, in rounds, and ends for one of few reasons."""

from __future__ import annotations

import shutil
import threading
import time

import pytest

from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import StorageError
from airflow_provider_fds.fleet import lingering
from airflow_provider_fds.fleet.lingering import LingeringStreams
from airflow_provider_fds.ledger.staging.housekeeping import Retention
from airflow_provider_fds.stream.monitoring.status_row import read_status_file
from airflow_provider_fds.stream.polling.poll import TablePoller
from airflow_provider_fds.stream.run.linger import Linger
from airflow_provider_fds.stream.run.reporting import write_end
from tests.conftest import LogBuilder
from tests.counting_storage import count_requests
from tests.unit.fleet.test_fleet_session import Fleet, decide, outcomes


@pytest.fixture
def fleet(tmp_path):
    fleet = Fleet(tmp_path)
    for name in ("a", "b", "c"):
        fleet.table(name)
    return fleet


@pytest.fixture
def meanwhile(monkeypatch):
    """Functions that are called one after the other, each when the run begins to wait."""
    steps = []
    news = LingeringStreams.news

    def step(self, *, waits):
        if waits and steps:
            steps.pop(0)()
        return news(self, waits=waits)

    monkeypatch.setattr(LingeringStreams, "news", step)
    return steps


def soon(seconds=0.1, **more):
    return Linger(seconds, 0.005, **more)


def test_what_comes_in_any_table_is_loaded_in_rounds_and_the_results_cover_all_of_it(fleet, meanwhile):
    meanwhile += [fleet.tables["b"].append, lambda: [fleet.tables[name].append() for name in ("a", "c")]]
    result = fleet.run(linger=soon())
    assert fleet.applications == [["a", "b", "c"], ["b"], ["a", "c"]]
    assert outcomes(result) == {"a": "loaded", "b": "loaded", "c": "loaded"}
    assert [one.result.batches for one in result.outcomes] == [2, 2, 2]
    # the next run knows where they are
    assert outcomes(fleet.run("run-2")) == {"a": "unchanged", "b": "unchanged", "c": "unchanged"}


def test_a_stream_that_was_unchanged_when_the_run_began_is_loaded_too(fleet, meanwhile):
    fleet.run()
    fleet.applications.clear()
    meanwhile.append(fleet.tables["c"].append)
    result = fleet.run("run-2", linger=soon())
    # the others only to report their end
    assert fleet.opened[0] == "c"
    assert (fleet.applications, outcomes(result)) == ([["c"]], {"a": "unchanged", "b": "unchanged", "c": "loaded"})


def test_a_table_that_is_replaced_by_a_younger_one_while_a_run_lingers_fails_its_stream_alone(
    fleet, meanwhile, monkeypatch
):
    monkeypatch.setattr(lingering, "_LIST_SECONDS", 0.02)

    def replace():
        shutil.rmtree(fleet.tables["b"].log)
        again = LogBuilder(fleet.tables["b"].root)
        again.table_id = "22222222-2222-3333-4444-555555555555"
        again.create()

    meanwhile.append(replace)
    result = fleet.run(linger=soon(1.0))
    assert outcomes(result) == {"a": "loaded", "b": "failed", "c": "loaded"}
    assert "deleted and created again" in str(fleet.ended["b"])


def test_while_some_streams_have_more_to_load_the_others_are_polled_too(fleet):
    for _ in range(2):
        fleet.tables["a"].append()
    fleet.options["a"] = {"max_versions_per_batch": 1}
    write, applications = fleet.benches["a"].report, fleet.applications

    def report(*given, **more):
        if len(applications) == 2:
            fleet.tables["b"].append()
        return write(*given, **more)

    fleet.benches["a"].report = report
    fleet.run(linger=soon(), max_batches=1)
    assert applications[:3] == [["a", "b", "c"], ["a"], ["a", "b"]]


def test_a_stream_that_fails_leaves_the_others_at_work(fleet, meanwhile):
    meanwhile += [lambda: [log.append() for log in fleet.tables.values()]] * 2
    fails = iter([(), ("b",), ()])
    session = fleet.session(linger=soon())
    while runs := session.next_work():
        session.write_jobs(parallelism=2)
        fleet.applications.append([one.name for one in runs])
        failing = next(fails)
        for one in runs:
            if one.name in failing:
                fleet.fail(one)
            else:
                fleet.benches[one.name].report(one.session, one.work, one.spec_uri)
        session.collect()
    result = session.finish()
    assert fleet.applications == [["a", "b", "c"], ["a", "b", "c"], ["a", "c"]]
    assert outcomes(result) == {"a": "loaded", "b": "failed", "c": "loaded"}
    assert [one.result.batches for one in result.outcomes] == [3, 1, 3]
    # what the failed stream has planned is for the next run
    assert outcomes(fleet.run("run-2"))["b"] == "loaded"


def test_fail_fast_ends_it_with_the_first_failure(fleet, meanwhile):
    meanwhile += [lambda: pytest.fail("it has waited")]
    result = fleet.run(linger=soon(60), fails=("b",), stop_on_failure=True)
    assert outcomes(result) == {"a": "left", "b": "failed", "c": "left"}


def test_a_stream_that_a_person_holds_ends_and_the_others_go_on(fleet, meanwhile, monkeypatch):
    monkeypatch.setattr(lingering, "LOOK_SECONDS", 0.01)

    def hold():
        decide(fleet, "b", lambda action: action.hold())
        fleet.tables["b"].append()

    meanwhile += [hold, fleet.tables["c"].append]
    result = fleet.run(linger=soon(2))
    assert fleet.applications == [["a", "b", "c"], ["c"]]
    found = {one.stream: one for one in result.outcomes}
    assert found["b"].outcome == "paused"
    assert found["b"].result.batches == 1


def test_a_decision_about_a_stream_is_seen_without_new_data(fleet, meanwhile, monkeypatch):
    monkeypatch.setattr(lingering, "LOOK_SECONDS", 0.01)
    meanwhile.append(lambda: decide(fleet, "b", lambda action: action.hold()))
    assert outcomes(fleet.run(linger=soon(0.5)))["b"] == "paused"


def test_a_request_for_another_epoch_is_work_of_the_next_round(fleet, meanwhile, monkeypatch):
    monkeypatch.setattr(lingering, "LOOK_SECONDS", 0.01)
    meanwhile.append(lambda: decide(fleet, "b", lambda action: action.rewind(to=0, sink_rows="keep")))
    session = fleet.session(linger=soon(1))
    for one in session.next_work():
        one.spec_uri = one.session.job(one.work, one.stream.sink)
        fleet.benches[one.name].report(one.session, one.work, one.spec_uri)
    session.collect()
    assert [(one.name, one.work.status, one.work.epoch) for one in session.next_work()] == [("b", "fence", 2)]


def test_it_ends_after_its_time_although_polls_wake_it_in_vain(fleet, meanwhile, monkeypatch):
    real = TablePoller.poll

    found = type("Found", (), {"is_finished": False})

    async def always(self):
        return found if self.table_uri.endswith("/a") else await real(self)

    monkeypatch.setattr(TablePoller, "poll", always)
    result = fleet.run(linger=soon(0.3))
    assert fleet.applications == [["a", "b", "c"]]
    assert 1 < fleet.opened.count("a") < 10
    assert outcomes(result) == {"a": "loaded", "b": "loaded", "c": "loaded"}


def test_a_poll_that_is_refused_is_tried_again_and_the_others_go_on(fleet, meanwhile, monkeypatch, caplog):
    real, refused = TablePoller.poll, threading.Event()

    async def poll(self):
        if self.table_uri.endswith("/b") and not refused.is_set():
            refused.set()
            raise StorageError("the store is away", table=self.table_uri)
        return await real(self)

    monkeypatch.setattr(TablePoller, "poll", poll)
    meanwhile.append(lambda: [log.append() for log in fleet.tables.values()])
    result = fleet.run(linger=soon(1))
    assert [one.result.batches for one in result.outcomes] == [2, 2, 2]
    assert any("Stream b: a poll was refused, FDS tries again: the store is away" in one for one in caplog.messages)


@pytest.mark.parametrize("why", ["asked", "limit", "needs data"])
def test_it_ends_at_once(fleet, meanwhile, why):
    if why == "needs data":
        fleet.run()
        linger = soon(600, needs_data=True)
    else:
        linger = soon(600, ends_at_ms=int(time.time() * 1000) if why == "limit" else None)
    if why == "asked":
        meanwhile.append(linger.end)
    elif why == "needs data":
        meanwhile.append(lambda: pytest.fail("it has waited"))
    assert len(fleet.run("run-2", linger=linger).outcomes) == 3


def test_the_next_attempt_goes_on_where_the_one_before_was(fleet, meanwhile):
    fleet.run(linger=soon())
    for log in fleet.tables.values():
        log.append()
    killed = fleet.session(linger=soon())
    killed.next_work()
    meanwhile.append(fleet.tables["a"].append)
    fleet.applications.clear()
    result = fleet.run(linger=soon(), retry=True)
    assert fleet.applications == [["a", "b", "c"], ["a"]]
    assert [one.result.batches for one in result.outcomes] == [3, 2, 2]


def test_others_see_that_its_streams_are_live_until_it_ends(fleet, meanwhile, tmp_path):
    staging = open_storage(str(tmp_path / "staging"))
    seen = []

    def look():
        seen.extend(read_status_file(staging, name).condition for name in fleet.tables)

    meanwhile.append(lambda: threading.Timer(0.5, look).start())
    fleet.run(linger=soon(1.5), watch=lambda session: lambda error: write_end(session, error))
    assert seen == ["live"] * 3
    assert [read_status_file(staging, name).condition for name in fleet.tables] == ["up_to_date"] * 3


def test_a_poll_costs_one_head_a_table(fleet, meanwhile, monkeypatch):
    fleet.run()
    monkeypatch.setattr(LingeringStreams, "_show", lambda _self: None)
    requests = count_requests(monkeypatch)
    polls = []
    polled = LingeringStreams._polled

    async def count(self):
        polls.append(1)
        return await polled(self)

    monkeypatch.setattr(LingeringStreams, "_polled", count)
    meanwhile.append(requests.clear)
    fleet.run("run-2", linger=soon(0.3))
    heads = [one for one in requests if one.kind in ("head", "head_async")]
    assert len(polls) > 2
    assert len(heads) == 3 * len(polls)


def test_what_is_no_longer_needed_is_removed_once_an_hour(fleet, meanwhile, monkeypatch):
    purged = []
    purge = "airflow_provider_fds.fleet.lingering.purge_stream"
    monkeypatch.setattr(purge, lambda connected, _retention: purged.append(connected.stream.name))
    meanwhile += [fleet.tables["a"].append] * 2
    fleet.run(linger=soon(), retention=Retention())
    assert sorted(purged) == ["a", "b", "c"]
