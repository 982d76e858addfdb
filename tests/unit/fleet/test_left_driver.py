"""A driver that an earlier attempt of a fleet has left in a cluster, as the next attempt finds it."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest

from airflow_provider_fds.backends.base import Application
from airflow_provider_fds.batch.fleet_spec import FleetProgress, FleetSpec, fleet_attempt, progress_name
from airflow_provider_fds.batch.report import started_name
from airflow_provider_fds.delta.storage.open import open_storage
from tests.unit.fleet.test_fleet_session import Fleet, outcomes


class Lost:
    """An attempt that died after it had started a driver for streams of a fleet."""

    def __init__(self, bench, *names, driver="driver-1", **arguments):
        self.bench = bench
        session = bench.session(**arguments)
        self.runs = {run.name: run for run in session.next_work()}
        self.spec_uri = session.write_jobs(parallelism=2)
        for name in names:
            run = self.runs[name]
            run.session.driver.write(run.work, cluster="standalone", address="http://m:6066", driver=driver)

    def report(self, name, **changes):
        """Let the driver report the batches of a stream."""
        run = self.runs[name]
        self.bench.benches[name].report(run.session, run.work, run.spec_uri, **changes)

    def note(self, **progress):
        """Let the driver note its progress."""
        storage = open_storage(str(self.bench.staging))
        spec = FleetSpec.from_json(storage.get(self.spec_uri.removeprefix(f"{storage.uri}/"))[0])
        key = spec.progress.removeprefix(f"{storage.uri}/")
        assert key.endswith(progress_name(fleet_attempt(self.spec_uri)))
        storage.put(key, FleetProgress(**progress).to_json())


@dataclass
class DriversOf:
    """A cluster, and the drivers that work in it."""

    cluster: str
    names: tuple[str, ...] = ()

    finds_drivers = True

    def attaches_to(self, cluster: str) -> bool:
        return cluster == self.cluster

    def working(self, driver: str) -> tuple[str, str] | None:
        return (self.cluster, "http://m:6066") if driver in self.names else None


@pytest.fixture
def fleet(tmp_path):
    found = Fleet(tmp_path)
    for name in ("a", "b", "c"):
        found.table(name)
    return found


def next_attempt(fleet, **arguments):
    return fleet.session(retry=True, drivers=DriversOf("standalone"), **arguments)


def state_of(fleet, name):
    state = fleet.benches[name].session("look", stream=fleet.stream(name).stream).connected.load()
    assert state.phase != "empty"
    return state


def names(runs):
    return [run.name for run in runs]


def test_the_next_attempt_waits_for_the_driver_of_its_streams_and_only_then_starts_another_one(fleet):
    lost = Lost(fleet, "a", "b")
    session = next_attempt(fleet)
    assert names(session.next_work()) == ["a", "b"]
    assert session.write_jobs(parallelism=2) == lost.spec_uri
    assert {run.work.submitted.driver for run in session.runs} == {"driver-1"}
    assert not session.commit_reported()
    lost.report("a")
    lost.note(reports={"a": 1})
    assert not session.commit_reported()
    assert [len(state_of(fleet, name).planned) for name in ("a", "b")] == [0, 1]
    lost.report("b")
    lost.note(reports={"a": 1, "b": 1}, ended=dict.fromkeys("abc", "done"))
    assert session.commit_reported()
    session.collect()

    # the third stream was in no ledger with a driver
    (rest,) = session.next_work()
    assert (rest.name, rest.work.submitted) == ("c", None)
    assert session.write_jobs(parallelism=2) != lost.spec_uri
    fleet.benches["c"].report(rest.session, rest.work, rest.spec_uri)
    session.collect()
    assert session.next_work() == ()
    assert outcomes(session.finish()) == dict.fromkeys("abc", "loaded")


def test_what_a_driver_had_not_done_when_it_ended_is_work_for_another_one(fleet):
    lost = Lost(fleet, "a", "b", "c")
    lost.report("a")
    session = next_attempt(fleet)
    assert names(session.next_work()) == ["a", "b", "c"]
    session.write_jobs(parallelism=2)
    session.collect(RuntimeError("driver driver-1 ended: FAILED"))
    assert [state_of(fleet, name).submitted for name in ("b", "c")] == [None, None]
    runs = session.next_work()
    assert [(run.name, run.work.submitted) for run in runs] == [("b", None), ("c", None)]
    assert session.write_jobs(parallelism=2) != lost.spec_uri
    for run in runs:
        fleet.benches[run.name].report(run.session, run.work, run.spec_uri)
    session.collect()
    assert session.next_work() == ()
    assert outcomes(session.finish()) == dict.fromkeys("abc", "loaded")


def test_no_other_driver_follows_one_that_was_stopped_with_the_task(fleet):
    Lost(fleet, "a", "b", "c").report("a")
    session = next_attempt(fleet)
    session.next_work()
    session.write_jobs(parallelism=2)
    session.collect(RuntimeError("driver driver-1 ended: KILLED"), is_final=True)
    assert session.next_work() == ()
    assert outcomes(session.finish()) == {"a": "loaded", "b": "failed", "c": "failed"}


def test_a_driver_works_on_while_a_stream_needs_it_that_has_left_the_fleet(fleet):
    lost = Lost(fleet, "a", "b", "c")
    del fleet.tables["b"]
    session = next_attempt(fleet)
    assert names(session.next_work()) == ["a", "c"]
    assert session.write_jobs(parallelism=2) == lost.spec_uri
    for name in ("a", "c"):
        lost.report(name)
    lost.note(reports=dict.fromkeys("abc", 1), ended={"a": "done", "c": "done"})
    # the caller stops the driver 90 seconds after this has returned True
    assert not session.commit_reported()
    assert [len(state_of(fleet, name).planned) for name in "abc"] == [0, 1, 0]
    polls = session.leave()
    # a report that is known already does not wake the task again
    assert (polls["streams"], polls["reported"]) == (["a", "b", "c"], 3)
    lost.note(reports=dict.fromkeys("abc", 1), ended=dict.fromkeys("abc", "done"))
    assert session.commit_reported()


@pytest.mark.parametrize("moved", ["a", "abc"], ids=["one stream was moved", "the fleet was renamed"])
def test_a_driver_of_another_fleet_is_waited_for_only_if_all_its_streams_were_moved(fleet, moved):
    lost = Lost(fleet, "a", "b", "c", fleet="another")
    for name in set("abc") - set(moved):
        del fleet.tables[name]
    session = next_attempt(fleet)
    assert names(session.next_work()) == list(moved)
    is_waited_for = moved == "abc"
    assert {run.work.submitted is not None for run in session.runs} == {is_waited_for}
    assert (session.write_jobs(parallelism=2) == lost.spec_uri) is is_waited_for


@pytest.mark.parametrize("others", ["bc", ""], ids=["shared", "alone"])
def test_a_task_of_one_stream_waits_for_the_driver_of_a_fleet_only_if_no_other_stream_needs_that(fleet, others):
    for name in set("bc") - set(others):
        del fleet.tables[name]
    Lost(fleet, "a", *others)
    one = fleet.stream("a")
    session = fleet.benches["a"].session(stream=one.stream)
    work = session.begin(one.sink, retry=True)
    spark = DriversOf("standalone")
    application = Application.of_work(session, one.sink, work, spark)
    assert (application.left is None, application.spec_uri != "") == (bool(others), bool(others))


def test_the_reports_of_a_driver_whose_jobs_are_not_known_are_looked_for_one_by_one(fleet):
    lost = Lost(fleet, "a", "b", fleet="another")
    storage = open_storage(str(fleet.staging))
    storage.delete(lost.spec_uri.removeprefix(f"{storage.uri}/"))
    session = next_attempt(fleet)
    assert names(session.next_work()) == ["a", "b"]
    assert session.write_jobs(parallelism=2) == ""
    lost.report("a")
    assert not session.commit_reported()
    lost.report("b")
    assert session.commit_reported()


def test_two_drivers_that_were_left_are_waited_for_one_after_the_other(fleet):
    lost = Lost(fleet, "a")
    run = lost.runs["b"]
    run.session.driver.write(run.work, cluster="standalone", address="http://m:6066", driver="driver-2")
    for name in ("a", "b"):
        lost.report(name)
    session = next_attempt(fleet)
    turns = []
    for _ in range(2):
        turns.append([(run.name, run.work.submitted.driver) for run in session.next_work()])
        session.write_jobs(parallelism=2)
        session.collect()
    assert turns == [[("a", "driver-1")], [("b", "driver-2")]]
    assert names(session.next_work()) == ["c"]


def test_a_driver_that_no_ledger_names_is_waited_for_by_the_streams_that_it_has_begun(fleet):
    lost = Lost(fleet)
    work = lost.runs["a"].work
    staging = lost.runs["a"].session.connected.staging
    key = f"a/attempts/{started_name(work.epoch, work.batches[0].batch_id, work.attempt_id)}"
    marker = {"attempt_id": work.attempt_id, "driver": "driver-1", "job": {"batches": 1, "done": 0}}
    staging.put(key, json.dumps(marker).encode())
    session = fleet.session(retry=True, drivers=DriversOf("standalone", ("driver-1",)))
    assert [(run.name, run.work.submitted.driver) for run in session.next_work()] == [("a", "driver-1")]


def test_a_driver_in_another_kind_of_cluster_is_not_waited_for(fleet):
    Lost(fleet, "a", "b", "c")
    runs = fleet.session(retry=True, drivers=DriversOf("yarn")).next_work()
    assert [(run.name, run.work.submitted) for run in runs] == [("a", None), ("b", None), ("c", None)]


def test_a_run_that_leaves_its_driver_is_resumed_and_has_what_it_had_loaded_before(fleet):
    fleet.table("d")
    fleet.run("run-0")
    for name in ("a", "b", "c"):
        fleet.tables[name].append(1)
    first = fleet.session()
    runs = first.next_work()
    assert names(runs) == ["a", "b", "c"]
    first.write_jobs(parallelism=2)
    for run in runs:
        run.session.driver.write(run.work, cluster="standalone", address="http://m:6066", driver="driver-1")
    fleet.benches["a"].report(runs[0].session, runs[0].work, runs[0].spec_uri)
    progress = open_storage(str(fleet.staging))
    polls = first.leave()
    assert (polls["streams"], polls["reported"]) == (["a", "b", "c"], 0)
    progress.put(polls["progress"], FleetProgress({"a": 1}, {"a": "done"}).to_json())
    assert fleet.ended == dict.fromkeys("abcd")

    def resumed():
        return fleet.session(resumed=True, drivers=DriversOf("standalone"))

    second = resumed()
    second.next_work()
    second.write_jobs(parallelism=2)
    assert not second.commit_reported()
    assert second.leave()["reported"] == 1

    third = resumed()
    assert names(third.next_work()) == ["b", "c"]
    third.write_jobs(parallelism=2)
    for run in runs[1:]:
        fleet.benches[run.name].report(run.session, run.work, run.spec_uri)
    third.collect(is_final=True)
    assert third.next_work() == ()
    result = third.finish()
    assert outcomes(result) == {**dict.fromkeys("abc", "loaded"), "d": "unchanged"}
    assert [one.result.files for one in result.loaded] == [1, 1, 1]


def test_a_run_stays_with_its_drivers_once_a_batch_has_failed(fleet):
    session = fleet.session()
    runs = session.next_work()
    assert session.can_leave
    session.write_jobs(parallelism=2)
    fleet.fail(runs[0])
    for run in runs[1:]:
        fleet.benches[run.name].report(run.session, run.work, run.spec_uri)
    session.collect()
    assert not session.can_leave


def test_a_stream_whose_batches_were_taken_over_and_loaded_by_a_process_that_left_is_loaded_when_it_is_resumed(fleet):
    fleet.run("run-0", dies=True)
    first = fleet.session()
    runs = first.next_work()
    first.write_jobs(parallelism=2)
    for run in runs:
        fleet.benches[run.name].report(run.session, run.work, run.spec_uri)
        run.commit_reported()
    first.leave()
    fleet.tables["b"].append(1)
    second = fleet.session(resumed=True)
    assert names(second.next_work()) == ["b"]
    second.write_jobs(parallelism=2)
    fleet.benches["b"].report(second.runs[0].session, second.runs[0].work, second.runs[0].spec_uri)
    second.collect()
    assert second.next_work() == ()
    result = second.finish()
    assert outcomes(result) == dict.fromkeys("abc", "loaded")
    assert [one.result.batches for one in result.loaded] == [1, 2, 1]
