"""FDS in a real Airflow: four processes, a triggerer that waits, spark-submit. What dies in between: test_chaos.py."""

from __future__ import annotations

import json
from contextlib import suppress
from urllib.error import HTTPError

import pytest
from deltalake import DeltaTable

from tests.chaos.actors import state_of
from tests.fds_command import fds

# less than a minute each on two free cores, starting Airflow included; a busy machine may take its time
pytestmark = pytest.mark.timeout(900)


def named(name: str):
    return pytest.mark.parametrize("pipeline", [name], indirect=True, ids=[name])


@named("grows")
def test_a_run_loads_what_is_there_and_the_next_one_defers_until_there_is_more(pipeline):
    first_version = pipeline.append(1, 2, 3)

    first = pipeline.start()
    pipeline.wait_for_state(first, "ingest", "success")

    assert pipeline.committed_version() == first_version
    verdict = pipeline.verdict()
    assert (verdict.problems, verdict.keys.sink_rows, verdict.num_batches) == ((), 3, 1)

    second = pipeline.start()
    pipeline.wait_for_state(second, "ingest", "deferred")
    second_version = pipeline.append(4, 5)
    pipeline.wait_for_state(second, "ingest", "success")

    assert pipeline.committed_version() == second_version
    verdict = pipeline.verdict()
    assert (verdict.problems, verdict.keys.sink_rows, verdict.num_batches) == ((), 5, 2)

    events = pipeline.stack.client.asset_events(pipeline.name)
    told = [[event["extra"][key] for key in ("first_version", "last_version", "rows")] for event in events]
    assert told == [[0, 0, 3], [1, 1, 2]]
    assert events[0]["uri"].endswith("grows_sink")


@named("stops")
def test_a_stream_in_quarantine_alerts_once_as_an_event_and_by_its_notifier_however_many_runs_follow(pipeline):
    pipeline.create()
    pipeline.append(1, 2, 3)
    DeltaTable(pipeline.source).delete("id = 2")

    first, second = "", ""
    for _ in range(2):
        first, second = second, pipeline.start()
        pipeline.wait_for_state(second, "ingest", "success")

    (told,) = map(json.loads, (pipeline.lake / "told").read_text().splitlines())
    assert (told["stream"], told["state"], told["version"]) == ("stops", "quarantined", 2)
    assert told["operation"].startswith("DELETE")
    assert told["run"] == first
    assert told["action"].startswith("fds skip stops --version 2 --why …")
    (event,) = pipeline.stack.client.asset_events("stops")
    assert event["uri"] == "fds://stops/state"
    same = ("stream", "state", "version", "operation", "why", "action")
    assert [event["extra"][key] for key in same] == [told[key] for key in same]


@named("asks")
def test_a_person_answers_in_airflow_what_to_do_at_a_version_and_the_waiting_task_loads_what_follows(pipeline):
    pipeline.create()
    pipeline.append(1, 2, 3)
    DeltaTable(pipeline.source).delete("id = 2")
    pipeline.append(4, 5)

    run = pipeline.start()
    pipeline.wait_for_state(run, "ingest", "deferred")
    client = pipeline.stack.client
    of_task = f"/api/v2/dags/asks/dagRuns/{run}/taskInstances/ingest/-1/hitlDetails"
    asked = client.call("GET", of_task)
    assert asked["options"] == ["Skip", "Resume", "Hold", "Stop"]
    assert "DELETE" in asked["body"]
    assert asked["response_received"] is False

    def is_over() -> bool:
        # Airflow may fail a task that is woken as soon as it waits (docs/troubleshooting.md); its retry asks again
        state = pipeline.task(run, "ingest")["state"]
        with suppress(HTTPError):
            if state == "deferred" and not client.call("GET", of_task)["response_received"]:
                client.call("PATCH", of_task, body={"chosen_options": ["Skip"], "params_input": {"why": "on purpose"}})
        return state in ("success", "failed")

    pipeline.stack.wait(is_over, 240, "the task did not resume")
    pipeline.wait_for_state(run, "ingest", "success")

    assert pipeline.committed_version() == 3
    sink = DeltaTable(pipeline.lake / "asks_sink").to_pyarrow_table()
    assert sorted(sink.column("id").to_pylist()) == [4, 5]
    entries = [json.loads(file.read_text()) for file in sorted(pipeline.ledger.glob("*.json"))]
    (decided,) = [entry for entry in entries if '"acknowledged"' in json.dumps(entry)]
    assert "on purpose" in json.dumps(decided)
    assert decided["actor"]["user"] == client.call("GET", of_task)["responded_by_user"]["name"]


@named("asks_elsewhere")
def test_a_decision_by_command_wakes_the_task_that_waits_for_an_answer_in_airflow(pipeline):
    pipeline.create()
    pipeline.append(1, 2, 3)
    DeltaTable(pipeline.source).delete("id = 2")

    run = pipeline.start()
    pipeline.wait_for_state(run, "ingest", "deferred")
    client = pipeline.stack.client
    staging = str(pipeline.lake / "staging")
    done = fds("hold", "asks_elsewhere", "--why", "seen", "--staging", staging, "--deployment", client.url)
    assert done.returncode == 0, done.stderr
    pipeline.wait_for_state(run, "ingest", "skipped")

    of_task = f"/api/v2/dags/asks_elsewhere/dagRuns/{run}/taskInstances/ingest/-1/hitlDetails"
    asked = _answer_to_the_first_attempt(client, of_task)
    assert (asked["chosen_options"], asked["responded_by_user"]) == (["Hold"], None)


def _answer_to_the_first_attempt(client, of_task):
    """Return it from where Airflow keeps it: 3.1 keeps one a task, and 3.2 has only former attempts by number."""
    with suppress(HTTPError):
        return client.call("GET", f"{of_task}/tries/1")
    return client.call("GET", of_task)


@named("endless")
def test_a_task_that_a_person_ends_takes_the_function_of_the_user_with_it(pipeline):
    """It is cleared while it works: the next attempt works alone. Then that is marked as failed, and nothing works."""
    pipeline.append(1)
    run = pipeline.start()
    client, alive = pipeline.stack.client, pipeline.lake / "alive"

    def workers() -> list[int]:
        return list(dict.fromkeys(map(int, alive.read_text().split()))) if alive.exists() else []

    pipeline.stack.wait(lambda: len(workers()) == 1, 240, "the function was not called")
    (first,) = workers()
    body = {"dry_run": False, "dag_run_id": run, "task_ids": ["ingest"], "only_failed": False, "only_running": False}
    client.call("POST", "/api/v2/dags/endless/clearTaskInstances", body=body)
    pipeline.stack.wait(lambda: len(workers()) == 2, 240, "the function was not called again")
    assert state_of(first) is None, "two attempts work on one batch"

    (second,) = set(workers()) - {first}
    path = f"/api/v2/dags/endless/dagRuns/{run}/taskInstances/ingest"
    client.call("PATCH", path, body={"new_state": "failed"})
    pipeline.stack.wait(lambda: state_of(second) is None, 60, "the function works although its task has failed")
    assert pipeline.task(run, "ingest")["state"] == "failed"
    assert len(workers()) == 2
