"""``FleetSession``: one run of a fleet, on handmade logs, with a Spark that only leaves its reports."""

from __future__ import annotations

import json

import pytest

from airflow_provider_fds.batch.fleet_spec import FleetProgress, FleetSpec
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import FleetFailedError, FleetRejectedError, StorageError
from airflow_provider_fds.fleet import positions
from airflow_provider_fds.fleet.session import FleetSession
from airflow_provider_fds.fleet.value import FleetStream
from airflow_provider_fds.ledger.entries.operator_entries import Held
from airflow_provider_fds.ledger.owner import Actor
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.places import Place
from airflow_provider_fds.sinks import DeltaAppendSink
from airflow_provider_fds.stream import DeltaStream
from airflow_provider_fds.stream.actions.action_builder import ActionBuilder
from airflow_provider_fds.stream.actions.prepared_action import perform
from tests.conftest import LogBuilder
from tests.counting_storage import count_requests
from tests.unit.stream.conftest import Bench


class Fleet:
    """Tables, each with a stream, and the runs of the fleet."""

    def __init__(self, root):
        self.root = root
        self.staging = root / "staging"
        self.tables = {}
        self.benches = {}
        self.options = {}
        self.applications = []
        self.opened = []
        self.ended = {}

    def table(self, name, appends=1, **options):
        self.tables[name] = log = LogBuilder(self.root / "tables" / name)
        log.create()
        for _ in range(appends):
            log.append(1)
        self.benches[name] = Bench(log.root, self.staging)
        self.options[name] = options
        return log

    def stream(self, name):
        stream = self.benches[name].stream(name, **self.options[name])
        return FleetStream(stream, DeltaAppendSink(str(self.root / "sinks" / name)))

    def session(self, run="run-1", **arguments):
        def context_of(one):
            return self.benches[one.name].session(run, stream=one.stream).context

        def watch(session):
            name = session.stream.name
            self.opened.append(name)
            return lambda error: self.ended.update({name: error})

        arguments = {"fleet": "lake/fleet", "deployment": "test", "watch": watch, **arguments}
        return FleetSession([self.stream(name) for name in self.tables], context_of, **arguments)

    def run(self, run="run-1", *, fails=(), dies=False, **arguments):
        """Let a run work to its end; the jobs of the streams in ``fails`` report a failure."""
        self.opened, session = [], self.session(run, **arguments)
        while runs := session.next_work():
            spec = session.write_jobs(parallelism=2)
            self.applications.append([one.name for one in runs])
            assert spec is not None
            for one in runs:
                if one.name in fails:
                    self.fail(one)
                elif not dies:
                    self.benches[one.name].report(one.session, one.work, one.spec_uri)
            session.collect(RuntimeError("Spark died") if dies else None)
        return session.finish()

    def fail(self, one):
        changes = {
            "outcome": "failed",
            "error_class": "USER_FUNCTION_FAILED",
            "error_message": "no such column",
        }
        if one.stream.stream.expectations is not None:
            changes |= {"reason": "TOO_MANY_REJECTED", "rows_tested": 10, "rows_rejected": 4, "failed_rows": {"id": 4}}
        changes |= {"sink_version": None, "rows_written": None, "retryable": False}
        self.benches[one.name].report(one.session, one.work, one.spec_uri, **changes)


def outcomes(result):
    return {one.stream: one.outcome for one in result.outcomes}


@pytest.fixture
def fleet(tmp_path):
    return Fleet(tmp_path)


@pytest.fixture
def requests(monkeypatch):
    """All requests to tables and staging."""
    return count_requests(monkeypatch)


def test_each_stream_is_loaded_in_one_application_and_has_a_result_of_its_own(fleet):
    for number in range(1, 4):
        fleet.table(f"t{number}", appends=number)
    result = fleet.run()
    assert outcomes(result) == {"t1": "loaded", "t2": "loaded", "t3": "loaded"}
    assert fleet.applications == [["t1", "t2", "t3"]]
    assert [one.result.files for one in result.outcomes] == [1, 2, 3]
    assert (result.counts, result.total("files"), result.error()) == ({"loaded": 3}, 6, None)
    assert fleet.ended == {"t1": None, "t2": None, "t3": None}
    assert json.loads(json.dumps(result.to_dict()))["streams"]["t2"]["files"] == 2
    assert "3 streams: 3 loaded; 60 rows from 6 files" in result.describe()


def test_a_stream_that_leaves_out_too_many_rows_pauses_until_a_person_accepts_its_batch(fleet):
    fleet.table("good")
    fleet.table("bad", expect={"id": "drop"}, max_rejected=0.1, on_violation="quarantine")
    result = fleet.run(fails=("bad",))
    assert outcomes(result) == {"good": "loaded", "bad": "paused"}
    assert result.error() is None
    assert outcomes(fleet.run("run-2"))["bad"] == "paused"
    assert fleet.applications == [["good", "bad"]]

    ledger = Ledger(open_storage(str(fleet.staging)), "bad")
    ledger.find()
    prepared = ActionBuilder(ledger, "known").accept(batch=0)
    perform(ledger, prepared, Actor(deployment="test", user="ann", host="desk"))
    assert outcomes(fleet.run("run-3"))["bad"] == "loaded"


def test_an_unchanged_stream_costs_one_head_and_is_not_opened(fleet, requests):
    for number in range(30):
        fleet.table(f"t{number}")
    fleet.run()
    fleet.tables["t7"].append(1)
    requests.clear()
    result = fleet.run("run-2")
    assert result.counts == {"loaded": 1, "unchanged": 29}
    assert fleet.opened == ["t7"]
    of_others = [one for one in requests if "/t7" not in f"{one.root}/{one.key}" and ".fleets" not in one.key]
    listed = [one for one in of_others if one.kind == "list_after"]
    assert {one.kind for one in of_others} == {"head", "list_after"}
    # in every 20th run, each stream's table is listed instead, and its ledger is asked
    assert len(listed) <= 5
    assert len(of_others) == 29 + len(listed)


def test_a_stream_whose_name_means_another_table_is_opened_and_refused(fleet, monkeypatch):
    folders = {"sales.orders": fleet.table("orders").root}
    ids = {}

    class Names:
        def resolve(self, table):
            if table not in folders:
                return Place(table)
            return Place(str(folders[table]), name=table, table_id=ids.get(table, str(folders[table])))

    def by_name(name):
        stream = DeltaStream(name, table="sales.orders", catalog_conn_id="hive", starting_version=0)
        return FleetStream(stream, DeltaAppendSink(str(fleet.root / "sinks" / name)))

    monkeypatch.setattr(fleet, "stream", by_name)
    session = fleet.benches["orders"].session
    monkeypatch.setattr(fleet.benches["orders"], "session", lambda run, **more: session(run, places=Names(), **more))
    assert outcomes(fleet.run()) == {"orders": "loaded"}
    assert outcomes(fleet.run("run-2")) == {"orders": "unchanged"}
    # registered anew at the same place: the log there is compared
    ids["sales.orders"] = "u2"
    assert outcomes(fleet.run("run-2a")) == {"orders": "up_to_date"}
    assert outcomes(fleet.run("run-2b")) == {"orders": "unchanged"}

    other = LogBuilder(fleet.root / "tables" / "other")
    other.create()
    folders["sales.orders"] = other.root
    result = fleet.run("run-3")
    assert outcomes(result) == {"orders": "failed"}
    assert "STREAM_TABLE_CHANGED" in result.describe()


def test_without_news_a_run_reads_and_writes_the_cache_once(fleet, requests):
    fleet.table("t")
    fleet.run()
    requests.clear()
    assert fleet.run("run-2").counts == {"unchanged": 1}
    assert sorted(one.kind for one in requests if ".fleets" in one.key) == ["get", "get", "put"]


def test_a_retry_reads_all_streams_and_works_only_on_what_is_not_done(fleet):
    for name in ("a", "b"):
        fleet.table(name)
    assert outcomes(fleet.run(fails=["b"])) == {"a": "loaded", "b": "failed"}
    result = fleet.run(retry=True)
    assert outcomes(result) == {"a": "loaded", "b": "loaded"}
    assert fleet.applications == [["a", "b"], ["b"]]
    assert [one.result.files for one in result.outcomes] == [1, 1]


def test_a_rewind_between_two_runs_is_noticed(fleet):
    fleet.table("a")
    fleet.table("b")
    fleet.run()
    decide(fleet, "a", lambda action: action.rewind(to=0, sink_rows="keep"))
    (run,) = fleet.session("run-2").next_work()
    assert (run.name, run.work.status) == ("a", "fence")
    assert fleet.opened == ["a", "b", "a"]


def decide(fleet, name, make):
    """Make a decision about a stream as a person does."""
    ledger = Ledger(open_storage(str(fleet.staging)), name)
    ledger.find()
    builder = ActionBuilder(ledger, "again", replaces=False, owner_runs=lambda _owner: False)
    perform(ledger, make(builder), Actor(deployment="test", user="person"))


def test_a_hold_between_two_runs_is_noticed(fleet):
    fleet.table("a")
    fleet.run()
    decide(fleet, "a", lambda action: action.hold())
    assert outcomes(fleet.run("run-2")) == {"a": "paused"}
    assert outcomes(fleet.run("run-3")) == {"a": "paused"}


@pytest.mark.parametrize("moment", ["before the token", "between token and ledgers", "after the ledgers"])
def test_a_hold_at_any_moment_of_a_run_is_noticed_by_it_or_by_the_next_one(fleet, monkeypatch, moment):
    for name in ("a", "b"):
        fleet.table(name)
    fleet.run()
    hold = lambda: decide(fleet, "a", lambda action: action.hold())  # noqa: E731
    begin, load, save = positions.KnownPositions.begin, positions.KnownPositions.load, positions.KnownPositions.save

    def at(now, do):
        return lambda self, *given: (hold() if now == moment else None, do(self, *given))[1]

    with monkeypatch.context() as patch:
        patch.setattr(positions.KnownPositions, "begin", at("before the token", begin))
        patch.setattr(positions.KnownPositions, "load", at("between token and ledgers", load))
        patch.setattr(positions.KnownPositions, "save", at("after the ledgers", save))
        fleet.run("run-2")
    assert outcomes(fleet.run("run-3")) == {"a": "paused", "b": "unchanged"}


def test_after_a_decision_all_ledgers_are_asked_once(fleet, requests):
    for number in range(10):
        fleet.table(f"t{number}")
    fleet.run()

    def of_ledgers():
        requests.clear()
        assert set(outcomes(fleet.run("later")).values()) <= {"unchanged", "paused"}
        return len([one for one in requests if one.kind == "head" and "ledger" in one.key])

    before = of_ledgers()
    decide(fleet, "t3", lambda action: action.hold())
    decided = of_ledgers()
    assert (before <= 3, decided >= 10, of_ledgers() <= 3 + 1) == (True, True, True)


def test_a_decision_that_nobody_was_told_of_is_noticed_within_20_runs(fleet):
    fleet.table("a")
    fleet.run()
    connected = fleet.benches["a"].session("person", stream=fleet.stream("a").stream).connected
    connected.load()
    connected.execute(Held(why="with an older FDS"))
    found = [outcomes(fleet.run(f"run-{number}"))["a"] for number in range(positions.LISTED_EVERY)]
    assert found[-1] == "paused"
    assert set(found) == {"unchanged", "paused"}


def test_a_decision_in_a_staging_folder_of_its_own_is_noticed(fleet):
    for name in ("a", "b"):
        fleet.table(name)
    fleet.benches["b"].staging = fleet.staging = fleet.root / "other"
    fleet.benches["b"] = Bench(fleet.tables["b"].root, fleet.root / "other")
    fleet.run()
    assert outcomes(fleet.run("run-2")) == {"a": "unchanged", "b": "unchanged"}
    decide(fleet, "b", lambda action: action.hold())
    assert outcomes(fleet.run("run-3")) == {"a": "unchanged", "b": "paused"}


def test_a_stream_that_is_declared_differently_is_opened(fleet):
    fleet.table("a")
    fleet.run()
    fleet.options["a"] = {"max_files_per_batch": 7}
    assert outcomes(fleet.run("run-2")) == {"a": "up_to_date"}
    assert outcomes(fleet.run("run-3")) == {"a": "unchanged"}


def test_a_damaged_cache_is_an_empty_one(fleet):
    fleet.table("a")
    fleet.run()
    (cache,) = (fleet.staging / ".fleets").glob("*.json")
    cache.write_text("{")
    assert outcomes(fleet.run("run-2")) == {"a": "up_to_date"}


def test_a_stream_that_fails_fails_alone(fleet):
    for name in ("a", "b", "c"):
        fleet.table(name)
    fleet.tables["b"].commit(fleet.tables["b"].remove(next(iter(fleet.tables["b"].live))), operation="DELETE")
    (fleet.tables["c"].log / f"{1:020d}.json").write_text("{")
    result = fleet.run()
    assert outcomes(result) == {"a": "loaded", "b": "loaded", "c": "failed"}
    assert result.to_dict()["streams"]["b"]["stopped"]["version"] == 2
    assert outcomes(fleet.run("run-2")) == {"a": "unchanged", "b": "failed", "c": "failed"}
    assert str(fleet.ended["b"]) != "None"


def test_the_error_of_the_fleet_names_its_streams_and_obeys_them(fleet):
    for name in ("a", "b"):
        fleet.table(name)
    rejected = fleet.run(fails=["b"]).error()
    assert type(rejected) is FleetRejectedError
    assert rejected.streams == ("b",)
    assert "1 of 2 streams" in str(rejected)
    assert "no such column" in str(rejected)
    died = fleet.run("run-2", dies=True).error()
    assert type(died) is FleetFailedError or died is None


def test_a_dead_driver_fails_what_it_has_not_reported(fleet):
    for name in ("a", "b"):
        fleet.table(name)
    result = fleet.run(dies=True)
    assert result.counts == {"failed": 2}
    assert type(result.error()) is FleetFailedError
    assert fleet.run(retry=True).counts == {"loaded": 2}


def test_fail_fast_starts_nothing_after_a_failure(fleet):
    for name in ("a", "b"):
        fleet.table(name)
    (fleet.tables["a"].log / f"{1:020d}.json").write_text("{")
    result = fleet.run(stop_on_failure=True, threads=1)
    assert outcomes(result) == {"a": "failed", "b": "left"}
    assert fleet.applications == []


def test_fail_fast_leaves_the_others_of_a_stream_that_pauses_at_a_batch(fleet):
    fleet.table("bad", expect={"id": "drop"}, max_rejected=0.1, on_violation="quarantine")
    fleet.table("good")
    session = fleet.session(stop_on_failure=True)
    bad, _ = session.next_work()
    session.write_jobs(parallelism=1)
    # the driver counts the batch as failed, and starts nothing else
    fleet.fail(bad)
    session.collect(None)
    assert session.next_work() == ()
    result = session.finish()
    assert (outcomes(result), result.error()) == ({"bad": "paused", "good": "left"}, None)
    assert outcomes(fleet.run("run-2", stop_on_failure=True)) == {"bad": "paused", "good": "loaded"}


def test_done_streams_are_committed_while_others_run(fleet):
    for name in ("a", "b"):
        fleet.table(name)
    session = fleet.session()
    first, second = session.next_work()
    storage = open_storage(str(fleet.staging))
    uri = session.write_jobs(parallelism=2, max_bytes_in_flight=10)
    spec = FleetSpec.from_file(uri, storage.get(uri.removeprefix(f"{storage.uri}/"))[0])
    assert [job.stream for job in spec.jobs] == ["a", "b"]
    progress = spec.progress.removeprefix(f"{storage.uri}/")
    session.commit_reported()
    fleet.benches["a"].report(first.session, first.work, first.spec_uri)
    session.commit_reported()
    assert first.session.result() is None
    storage.put(progress, FleetProgress({"a": 1}, {"a": "done"}).to_json())
    assert not session.commit_reported()
    assert first.session.result().files == 1
    assert second.session.result() is None
    storage.put(progress, FleetProgress({"a": 1}, {"a": "done", "b": "left"}).to_json())
    assert session.commit_reported()
    session.collect(RuntimeError("Spark died"))
    session.next_work()
    result = session.finish()
    assert outcomes(result) == {"a": "loaded", "b": "failed"}
    # nothing of the application stays
    assert not [path for path in (fleet.staging / ".fleets").rglob("*") if path.is_file() and ".fleet." in path.name]


def test_a_busy_stream_is_passed_over_and_named(fleet):
    for name in ("a", "b"):
        fleet.table(name)
    other = fleet.benches["a"].session("other", stream=fleet.stream("a").stream)
    other.begin(fleet.stream("a").sink)
    fleet.benches["a"].running.add("other")
    result = fleet.run()
    assert outcomes(result) == {"a": "busy", "b": "loaded"}
    assert "1 busy (a)" in result.describe()
    assert result.error() is None


def test_a_fleet_drains_each_stream_in_as_many_applications_as_that_takes(fleet):
    fleet.table("a", appends=3, max_files_per_batch=1)
    fleet.table("b", appends=1)
    result = fleet.run(max_batches=1)
    assert fleet.applications == [["a", "b"], ["a"], ["a"]]
    assert [one.result.batches for one in result.outcomes] == [3, 1]


def test_what_an_application_has_one_of_is_given_in_turns_beside_what_fits_everywhere(fleet):
    for name in ("a1", "a2", "b1", "free"):
        fleet.table(name, appends=3 if name == "a1" else 1, max_versions_per_batch=1)
    needs = {name: name[0] for name in ("a1", "a2", "b1")}
    result = fleet.run(max_batches=1, apart=lambda session, _sink: needs.get(session.stream.name))
    assert outcomes(result) == dict.fromkeys(fleet.tables, "loaded")
    # the streams of one key share an application; the other key is not kept waiting until the first has no more work
    assert fleet.applications[:2] == [["a1", "a2", "free"], ["b1"]]
    assert all(len({needs[name] for name in names if name in needs}) < 2 for names in fleet.applications)
    assert (
        sum("a1" in names for names in fleet.applications) == sum("free" in names for names in fleet.applications) + 2
    )


def test_a_stream_whose_needs_cannot_be_told_fails_alone(fleet):
    for name in ("a", "b"):
        fleet.table(name)

    def apart(session, _sink):
        if session.stream.name == "a":
            raise StorageError("no such file of settings")

    result = fleet.run(apart=apart)
    assert outcomes(result) == {"a": "failed", "b": "loaded"}


def test_what_the_time_limit_leaves_is_no_failure(fleet):
    fleet.table("a")
    session = fleet.session(stop_after_ms=1)
    session.next_work()
    session.write_jobs(parallelism=1)
    session.collect()
    assert session.next_work() == ()
    result = session.finish()
    assert outcomes(result) == {"a": "left"}
    assert result.error() is None


def test_a_connection_that_is_missing_fails_its_stream_alone(fleet):
    for name in ("a", "b"):
        fleet.table(name)
    session = fleet.session()
    context_of = session._context_of

    def refusing(one):
        if one.name == "a":
            raise StorageError("no connection")
        return context_of(one)

    session._context_of = refusing
    assert [run.name for run in session.next_work()] == ["b"]
