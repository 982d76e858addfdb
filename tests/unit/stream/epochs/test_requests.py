"""What a run asks of storage, besides reading the source's log and writing manifests."""

from __future__ import annotations

from collections import Counter

import pytest

from airflow_provider_fds.checkpoint.file import FileCheckpointStore
from airflow_provider_fds.errors import SchemaChangedError
from airflow_provider_fds.ledger.staging.housekeeping import Retention
from airflow_provider_fds.sinks import DeltaAppendSink
from airflow_provider_fds.stream.run.purge import purge_stream
from tests.counting_storage import count_requests

#: The budget of a run's first batch, and of each further one.
FIRST, FURTHER = 12, 8


class Costs:
    """Runs of a stream whose every storage request is noted."""

    def __init__(self, bench, log_builder, tmp_path, monkeypatch):
        self.bench, self.log = bench, log_builder
        self.sink = DeltaAppendSink(str(tmp_path / "sink"))
        self.home = FileCheckpointStore(tmp_path / "checkpoint.json")
        self.requests = count_requests(monkeypatch)

    def run(self, name, *, checkpoints=True, dies=False):
        """Work one run to its end and return what it asked for, phase by phase."""
        stream = self.bench.stream(max_files_per_batch=2)
        session = self.bench.session(name, stream=stream, checkpoints=self.home if checkpoints else None)
        self.requests.clear()
        work = session.begin(self.sink)
        job = session.job(work, self.sink)
        submitted = self._counted()
        if dies:
            return len(work.batches), submitted
        self.bench.report(session, work, job)
        self.requests.clear()
        collected = session.collect(work)
        assert len(collected.committed) == len(work.batches)
        return len(work.batches), submitted + self._counted(planning=False)

    def end_of_run(self, name):
        """Return what the look after the last batch asks for."""
        session = self.bench.session(name, stream=self.bench.stream(max_files_per_batch=2), checkpoints=self.home)
        work = session.begin(self.sink)
        self.bench.report(session, work, session.job(work, self.sink))
        session.collect(work)
        self.requests.clear()
        assert session.begin(self.sink).status == "done"
        return self._counted()

    def _counted(self, *, planning=True):
        """Count by place and kind: the log is read freely while a batch is planned, its manifest written freely."""
        counted = Counter()
        for request in self.requests:
            place = request.root.rsplit("/", 1)[-1]
            is_of_plan = planning and place == "table"
            if not is_of_plan and "/manifests/" not in request.key:
                counted[place, request.kind] += 1
        return counted


@pytest.fixture
def costs(bench, log_builder, tmp_path, monkeypatch):
    log_builder.create()
    log_builder.append(2)
    return Costs(bench, log_builder, tmp_path, monkeypatch)


def appended(costs, n):
    for _ in range(n):
        costs.log.append(2)


def test_the_first_batch_of_a_run_costs_twelve_requests_at_most(costs):
    costs.run("run-1")
    for run in ("run-2", "run-3"):
        appended(costs, 1)
        batches, asked = costs.run(run)
        assert batches == 1
        assert asked == {
            ("staging", "get"): 4,  # fold, its entry, "no further entry"; the attempt's report
            ("staging", "put_if_absent"): 2,  # planned, committed
            ("staging", "put"): 2,  # the job; the fold for the next run
            ("sink", "get"): 1,  # has the sink the batch that the report names
            ("table", "list_after"): 1,  # is the range still the one that was planned,
            ("table", "get"): 1,  # and its last commit
        }
        assert asked.total() <= FIRST


def test_each_further_batch_costs_eight_requests_at_most(costs):
    costs.run("run-1")
    appended(costs, 1)
    _, one = costs.run("run-2")
    appended(costs, 9)
    batches, nine = costs.run("run-3")
    assert batches == 9
    further = nine - one
    assert further.total() <= (batches - 1) * FURTHER
    assert further.total() == (batches - 1) * 5  # report; the sink's commit; list, get; committed


@pytest.mark.parametrize("commits", [1, 40])
def test_the_cost_of_a_run_does_not_grow_with_the_history_of_the_stream(costs, commits):
    for i in range(commits):
        costs.run(f"run-{i}")
        appended(costs, 1)
    _, asked = costs.run("last")
    assert asked.total() == 11


def test_without_a_checkpoint_the_ledger_is_found_within_the_same_budget(costs):
    costs.run("run-1")
    appended(costs, 1)
    _, asked = costs.run("run-2", checkpoints=False)
    assert asked["staging", "list_after"] == 2
    assert asked.total() <= FIRST


def test_a_run_after_one_that_died_pays_for_the_fold_that_the_dead_one_did_not_write(costs):
    costs.run("run-1")
    appended(costs, 1)
    costs.run("run-2", dies=True)
    costs.run("run-2", dies=True)
    _, asked = costs.run("run-3")
    assert asked["staging", "put_if_absent"] == 2  # claimed, committed
    assert asked.total() <= FIRST + 2


def test_the_check_after_the_last_batch_is_one_request(costs):
    costs.run("run-1")
    appended(costs, 1)
    assert costs.end_of_run("run-2") == {("staging", "get"): 1}


def test_the_first_run_of_all_pays_once_for_what_it_sets_up(costs):
    _, asked = costs.run("run-1")
    appended(costs, 1)
    _, usual = costs.run("run-2")
    once = asked - usual
    assert once.total() <= 20
    assert {place for place, _ in once} == {"staging", "sink"}


def of_table(costs):
    return Counter(request.kind for request in costs.requests if request.root.endswith("/table"))


@pytest.mark.parametrize("commits", [1, 40])
def test_planning_reads_only_the_commits_after_the_position(costs, commits):
    appended(costs, commits)
    costs.run("run-1")
    appended(costs, 1)
    session = costs.bench.session("run-2", stream=costs.bench.stream(max_files_per_batch=2), checkpoints=costs.home)
    costs.requests.clear()
    assert len(session.begin(costs.sink).batches) == 1
    asked = of_table(costs)
    assert asked["get"] <= 3  # the commit before the position; the new one, for its age and to plan it
    assert asked["head"] <= 5


def test_a_status_reads_only_the_commits_after_the_position(costs):
    appended(costs, 40)
    costs.run("run-1")
    appended(costs, 1)
    session = costs.bench.session("status", stream=costs.bench.stream(max_files_per_batch=2), checkpoints=costs.home)
    costs.requests.clear()
    assert session.status().lag_versions == 1
    assert of_table(costs)["get"] <= 4


def test_retention_does_not_read_the_log_back(costs):
    appended(costs, 40)
    costs.run("run-1")
    session = costs.bench.session("run-2", stream=costs.bench.stream(max_files_per_batch=2), checkpoints=costs.home)
    assert session.begin(costs.sink).status == "up_to_date"
    costs.requests.clear()
    purge_stream(session.connected, Retention())
    assert not of_table(costs)


def test_a_schema_change_is_noticed_after_a_known_state(costs):
    costs.run("run-1")
    costs.log.commit(costs.log.metadata([costs.log.field("id", "string")]))
    session = costs.bench.session("run-2", stream=costs.bench.stream(max_files_per_batch=2), checkpoints=costs.home)
    with pytest.raises(SchemaChangedError, match="string"):
        session.begin(costs.sink)
