"""Whether another owner still works, asked of a real Airflow from inside a task."""

from __future__ import annotations

import pytest

from airflow_provider_fds.ledger.owner import Owner
from airflow_provider_fds.operators.run.owner import owner_is_running, task_owner


def owner(**fields):
    return Owner(**{"kind": "airflow", "deployment": "d", **fields})


class Silent:
    """A task instance whose supervisor does not answer."""

    def get_task_states(self, **_filters):
        raise ConnectionError("gone")

    get_dr_count = get_task_states


@pytest.mark.parametrize(
    "other",
    [
        owner(kind="cli", run_id="me@host:1"),
        owner(deployment="another", dag_id="a", run_id="r", task_id="t"),
        owner(dag_id="a", run_id="r", task_id="t"),
        owner(dag_id="a", run_id="r", task_id="t", is_three_task=True),
    ],
    ids=["cli", "another deployment", "task", "run"],
)
def test_an_owner_counts_as_running_where_airflow_cannot_be_asked(other):
    assert owner_is_running(Silent(), "d")(other) is True


ASKING = """
from datetime import datetime
from airflow.sdk import DAG, task

with DAG("asking", schedule=None, start_date=datetime(2026, 1, 1)):

    @task
    def before(part):
        return part

    @task(retries=0)
    def failed():
        raise RuntimeError("no")

    @task(trigger_rule="all_done")
    def ask(**context):
        from airflow_provider_fds.ledger.owner import Owner
        from airflow_provider_fds.operators.run.owner import owner_is_running, task_owner
        ti = context["ti"]
        is_running = owner_is_running(ti, "d")
        me = task_owner(ti, "d")
        def other(**fields):
            base = {"kind": "airflow", "deployment": "d", "dag_id": ti.dag_id, "run_id": ti.run_id, "task_id": "ask"}
            return is_running(Owner(**{**base, **fields}))
        earlier = context["params"]["earlier"]
        return {
            "me": is_running(me),
            "succeeded_before": other(task_id="before", map_index=1),
            "failed_before": other(task_id="failed"),
            "not_yet": other(task_id="later"),
            "no_such_index": other(task_id="before", map_index=7),
            "no_such_run": other(run_id="nothing"),
            "my_run_of_three": other(is_three_task=True),
            "no_such_run_of_three": other(run_id="nothing", is_three_task=True),
            "earlier_task": other(run_id=earlier),
            "earlier_run_of_three": other(run_id=earlier, is_three_task=True),
        }

    @task(trigger_rule="all_done")
    def later():
        pass

    [before.expand(part=[1, 2]), failed()] >> ask() >> later()
"""


def test_airflow_says_which_tasks_and_runs_are_unfinished(installation):
    dag = installation.add(ASKING.replace("schedule=None", 'schedule=None, params={"earlier": "nothing"}'))
    first = installation.run(dag)
    answers = first.xcom("ask")
    assert answers == {
        "me": True,
        "succeeded_before": False,
        "failed_before": False,
        "not_yet": True,
        "no_such_index": False,
        "no_such_run": False,
        "my_run_of_three": True,
        "no_such_run_of_three": False,
        "earlier_task": False,
        "earlier_run_of_three": False,
    }
    # the first run has ended: neither its tasks nor, for a three-task batch, the run itself go on
    second = installation.run(dag, run_conf={"earlier": first.run_id})
    assert second.xcom("ask")["earlier_task"] is False
    assert second.xcom("ask")["earlier_run_of_three"] is False


def test_all_attempts_of_a_task_are_one_owner_and_a_commit_names_the_plan():
    from types import SimpleNamespace

    first = SimpleNamespace(dag_id="a", run_id="r", task_id="ingest", map_index=-1, try_number=1)
    second = SimpleNamespace(**{**vars(first), "try_number": 2})
    assert task_owner(first, "d") == task_owner(second, "d")
    commit = SimpleNamespace(**{**vars(first), "task_id": "commit"})
    plan = SimpleNamespace(**{**vars(first), "task_id": "plan"})
    assert task_owner(commit, "d", task_id="plan", is_three_task=True) == task_owner(plan, "d", is_three_task=True)
