"""Plan, load, commit: wiring, skips, and when a batch is committed. The load is a plain task here, without Spark."""

from __future__ import annotations

import re

import pytest

from airflow_provider_fds import DeltaPlanOperator, DeltaStream
from airflow_provider_fds.batch.spec import UserJobBatch
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.ledger.owner import Owner
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.operators.run.batch_message import batch_message
from airflow_provider_fds.spark.submission.driver_zip import driver_zip

HEAD = """
from datetime import datetime
from airflow.sdk import DAG, task
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow_provider_fds import DeltaCommitOperator, DeltaPlanOperator, DeltaStream, DeltaAppendSink

orders = DeltaStream("{name}", table="{lake}/orders")
with DAG("{name}", schedule=None, start_date=datetime(2026, 1, 1)):
    plan = DeltaPlanOperator(task_id="plan", stream=orders)
"""


def _body(*lines):
    return "".join(f"    {line}\n" for line in lines)


@pytest.fixture
def dag_of(installation, lake):
    def make(name, *lines):
        return installation.add(HEAD.format(name=name, lake=lake.uri) + _body(*lines))

    return make


GOOD = (
    'commit = DeltaCommitOperator(task_id="commit", batch=plan.output)',
    'plan >> EmptyOperator(task_id="load") >> commit',
)


def test_a_batch_goes_from_plan_to_commit_as_flat_texts_and_nothing_new_is_a_skip(dag_of, installation, lake):
    lake.append("orders", 1, 2)
    lake.append("orders", 3)
    dag = dag_of("good", *GOOD)
    first = installation.run(dag)
    assert set(first.states.values()) == {"success"}
    batch = first.xcom("plan")
    assert {type(value) for value in batch.values()} == {str}
    assert all(first.xcom("plan", key) == value for key, value in batch.items())
    assert (batch["batch_id"], batch["epoch"], batch["num_files"], batch["num_rows"]) == ("0", "1", "2", "3")
    assert batch["txn_app_id"] == f"fds:{batch['uuid']}"
    assert batch["txn_version"] == str(2**32 + 1)
    assert batch["manifest"].startswith("file:")
    assert first.xcom("commit")["end"] == batch["end"]

    second = installation.run(dag)
    assert set(second.states.values()) == {"skipped"}

    lake.append("orders", 4)
    third = installation.run(dag)
    assert third.xcom("plan", "start") == batch["end"]
    assert third.xcom("commit")["first_batch_id"] == 1


def test_the_token_is_one_for_all_tries_of_a_load_and_another_once_the_plan_is_cleared(dag_of, installation, lake):
    lake.append("orders", 1)
    run = installation.run(dag_of("named", *GOOD))
    planned = UserJobBatch.from_json(run.xcom("plan", "batch"))
    stream = DeltaStream("named", table=f"{lake.uri}/orders")

    def token(try_number, run_id=run.run_id):
        owner = Owner(kind="airflow", deployment="http://fds.test", dag_id="named", run_id=run_id, is_three_task=True)
        return batch_message(
            planned.batch,
            stream,
            reports=planned.reports,
            owner=owner,
            task_id="plan",
            map_index=-1,
            try_number=try_number,
            py_files="",
        )["token"]

    assert token(1) == token(1)
    assert re.fullmatch("fds-[0-9a-f]{32}", token(1))
    assert len({token(1), token(2), token(1, "another run")}) == 3


def test_a_plan_puts_the_modules_of_the_driver_into_staging_only_if_it_is_told_to(dag_of, installation, lake, tmp_path):
    lake.append("orders", 1)
    assert installation.run(dag_of("modules", *GOOD)).xcom("plan", "py_files") == ""
    assert not (tmp_path / "staging" / ".drivers").exists()

    lake.append("orders", 2)
    head = HEAD.replace("stream=orders)", "stream=orders, ship_modules=True)")
    uri = installation.run(installation.add(head.format(name="modules", lake=lake.uri) + _body(*GOOD))).xcom(
        "plan", "py_files"
    )
    (file,) = (tmp_path / "staging" / ".drivers").iterdir()
    assert uri == file.as_uri()
    assert file.read_bytes() == driver_zip().read_bytes()


def test_a_changed_start_is_in_the_result_of_the_commit_and_moves_nothing(dag_of, installation, lake):
    lake.append("orders", 1)
    assert installation.run(dag_of("began", *GOOD)).xcom("commit")["warnings"] == []
    lake.append("orders", 2)
    changed = HEAD.replace('orders")', 'orders", starting_version=0)')
    run = installation.run(installation.add(changed.format(name="began", lake=lake.uri) + _body(*GOOD)))
    assert run.xcom("plan")["first_version"] == "1"
    (warning,) = run.xcom("commit")["warnings"]
    for part in ("starting_version=0 has no effect", "the snapshot of version 0", "fds rewind", "stream.backfill("):
        assert part in warning


def test_a_commit_without_a_load_between_is_refused_before_anything_is_planned(dag_of, installation, lake, tmp_path):
    lake.append("orders", 1)
    dag = dag_of("wired_wrong", 'commit = DeltaCommitOperator(task_id="commit", batch=plan.output)')
    run = installation.run(dag)
    assert (run.state("plan"), run.state("commit")) == ("failed", "upstream_failed")
    assert not (tmp_path / "staging").exists()


def test_a_load_beside_the_commit_is_not_a_load_between(dag_of, installation, lake):
    from airflow_provider_fds.errors import ConfigurationError
    from airflow_provider_fds.operators.task.wiring import check_wiring, commits_of

    dag = dag_of("beside", 'plan >> EmptyOperator(task_id="load")', GOOD[0])
    assert commits_of(dag, "plan") == ["commit"]
    with pytest.raises(ConfigurationError, match=r"'commit' commits the batch of 'plan', but there is .*Wire plan >> "):
        check_wiring(dag, "plan", "commit")


def test_a_batch_whose_load_failed_is_not_committed_even_if_the_trigger_rule_lets_the_commit_run(
    dag_of, installation, lake
):
    lake.append("orders", 1)
    lines = (
        "@task",
        "def load():",
        "    raise RuntimeError('no')",
        'commit = DeltaCommitOperator(task_id="commit", batch=plan.output, trigger_rule="all_done")',
        "plan >> load() >> commit",
    )
    failed = installation.run(dag_of("failing", *lines))
    assert (failed.state("load"), failed.state("commit")) == ("failed", "failed")


def test_a_batch_that_a_failed_run_has_left_goes_to_the_next_run_with_the_same_rows(dag_of, installation, lake):
    lake.append("orders", 1)
    lines = (
        "@task",
        "def load(batch):",
        "    import os",
        "    if os.environ.get('FDS_TEST_FAIL'):",
        "        raise RuntimeError('no')",
        'commit = DeltaCommitOperator(task_id="commit", batch=plan.output)',
        "plan >> load(plan.output) >> commit",
    )
    dag = dag_of("left", *lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FDS_TEST_FAIL", "1")
        failed = installation.run(dag)
    assert failed.state("commit") == "upstream_failed"
    lake.append("orders", 2)
    again = installation.run(dag)
    assert set(again.states.values()) == {"success"}
    keys = ("uuid", "epoch", "batch_id", "manifest", "txn_version", "start", "end")
    assert [again.xcom("plan", key) for key in keys] == [failed.xcom("plan", key) for key in keys]
    # a service that knows the failed job by its token would answer with it
    assert again.xcom("plan", "token") != failed.xcom("plan", "token")


@pytest.mark.parametrize("state", ["success", "running"])
def test_a_plan_whose_load_is_not_cleared_with_it_hands_out_no_new_batch(
    dag_of, installation, lake, tmp_path, monkeypatch, state
):
    lake.append("orders", 1)
    dag = dag_of(f"half_cleared_{state}", *GOOD)
    set_state_before(monkeypatch, "plan", "load", state)
    run = installation.run(dag)

    assert (run.state("plan"), run.state("commit")) == ("failed", "upstream_failed")
    ledger = Ledger(open_storage((tmp_path / "staging").as_uri()), f"half_cleared_{state}")
    assert (ledger.find().planned, ledger.state.last_batch_id) == ((), None)


def test_a_plan_that_is_cleared_alone_hands_out_the_batch_that_its_load_has_loaded(
    dag_of, installation, lake, tmp_path, monkeypatch
):
    lake.append("orders", 1)
    dag = dag_of("plan_again", *GOOD)
    real = DeltaPlanOperator.execute

    def twice(self, context):
        first = real(self, context)
        set_state(context["ti"], "load", "success")
        assert real(self, context)["txn_version"] == first["txn_version"]
        set_state(context["ti"], "load", None)
        return first

    monkeypatch.setattr(DeltaPlanOperator, "execute", twice)
    run = installation.run(dag)

    assert set(run.states.values()) == {"success"}


def set_state_before(monkeypatch, task_id, other, state):
    """Let another task of the run be in a state when a plan starts, as one that was not cleared is."""
    real = DeltaPlanOperator.execute

    def execute(self, context):
        if self.task_id == task_id:
            set_state(context["ti"], other, state)
        return real(self, context)

    monkeypatch.setattr(DeltaPlanOperator, "execute", execute)


def set_state(ti, task_id, state):
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import update

    with create_session() as session:
        of_task = (TaskInstance.dag_id == ti.dag_id, TaskInstance.run_id == ti.run_id, TaskInstance.task_id == task_id)
        session.execute(update(TaskInstance).where(*of_task).values(state=state))


def test_with_verify_a_load_that_did_not_write_the_transaction_is_found_out(dag_of, installation, lake):
    lake.append("orders", 1)
    lake.append("sink", 1)
    lines = (
        f'commit = DeltaCommitOperator(task_id="commit", batch=plan.output, verify=DeltaAppendSink("{lake.uri}/sink"))',
        GOOD[1],
    )
    run = installation.run(dag_of("verified", *lines))
    assert (run.state("load"), run.state("commit")) == ("success", "failed")


def test_mapped_loads_all_have_to_succeed(dag_of, installation, lake):
    lake.append("orders", 1)
    lines = (
        "@task",
        "def load(part, manifest):",
        "    return part",
        'loads = load.partial(manifest=plan.output["manifest"]).expand(part=[1, 2, 3])',
        'commit = DeltaCommitOperator(task_id="commit", batch=plan.output, stream=orders)',
        "loads >> commit",
    )
    run = installation.run(dag_of("mapped_loads", *lines))
    assert set(run.states.values()) == {"success"}
    assert run.xcom("commit")["batches"] == 1


def test_a_batch_of_another_stream_is_refused(dag_of, installation, lake):
    lake.append("orders", 1)
    lines = (
        f'other = DeltaStream("other", table="{lake.uri}/orders")',
        'commit = DeltaCommitOperator(task_id="commit", batch=plan.output, stream=other)',
        GOOD[1],
    )
    run = installation.run(dag_of("of_another", *lines))
    assert (run.state("load"), run.state("commit")) == ("success", "failed")


def test_while_another_run_owns_the_batch_on_busy_decides_whether_a_plan_skips_or_fails(dag_of, installation, lake):
    lake.append("orders", 1)
    lines = (
        'skipping = DeltaPlanOperator(task_id="skipping", stream=orders)',
        'failing = DeltaPlanOperator(task_id="failing", stream=orders, on_busy="fail", trigger_rule="all_done")',
        "plan >> skipping >> failing",
    )
    run = installation.run(dag_of("busy", *lines))
    assert (run.state("plan"), run.state("skipping"), run.state("failing")) == ("success", "skipped", "failed")


def test_a_plan_that_waits_for_its_turn_leaves_the_worker():
    from airflow_provider_fds.airflow_version import sdk_exception
    from airflow_provider_fds.errors import StreamBusyError
    from airflow_provider_fds.operators.task.on_busy import give_way

    with pytest.raises(sdk_exception("AirflowRescheduleException")):
        give_way("wait", StreamBusyError("busy", owner="somebody"))
