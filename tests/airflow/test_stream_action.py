"""``DeltaStreamActionOperator`` and the DAG that ships with it, in a real Airflow."""

from __future__ import annotations

import re
import shutil

import pytest

from airflow_provider_fds.cli.main import main
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.ledger.entries.plan_entries import Claimed
from airflow_provider_fds.ledger.owner import Actor, Owner
from airflow_provider_fds.ledger.staging.log import Ledger

INGEST = """
    from airflow.sdk import DAG
    from airflow_provider_fds import DeltaIngestOperator, DeltaStream, DeltaAppendSink
    with DAG("loads", schedule=None):
        DeltaIngestOperator(
            task_id="ingest",
            stream=DeltaStream("orders", table="{lake}/orders", starting_version=0, max_versions_per_batch=1),
            sink=DeltaAppendSink("{lake}/bronze/orders"),
        )
"""


@pytest.fixture
def ledger(tmp_path):
    def read():
        ledger = Ledger(open_storage((tmp_path / "staging").as_uri()), "orders")
        ledger.find()
        return ledger

    return read


@pytest.fixture
def acted(installation, on_server):
    """Runs the shipped DAG."""
    dag = installation.add_example("fds_ops")
    return lambda **conf: installation.run(dag, run_conf={"stream": "orders", "why": "wrong rows", **conf})


def test_a_stream_is_rewound_from_the_ui_and_every_row_is_there_once(installation, lake, acted, ledger):
    lake.append("orders", 1)
    lake.append("orders", 2)
    loads = installation.add(INGEST.format(lake=lake.uri))
    assert installation.run(loads).state("ingest") == "success"

    run = acted(action="rewind", to=1, sink_rows="keep")

    assert run.state("act") == "success"
    said = run.xcom("act")
    assert (said["before"], said["after"]) == (
        "epoch 1, the beginning of version 2",
        "epoch 2, reads from version 1 on",
    )
    assert any("last version of the sink without them is 0" in note for note in said["notes"])
    entry = list(ledger().entries())[-1]
    assert (entry.action.kind, entry.actor.dag_id, entry.request_id) == (
        "requested",
        "fds_ops",
        f"fds_ops/{run.run_id}/act[-1]",
    )
    lake.restore("bronze/orders", 0)
    lake.append("orders", 3)
    again = installation.run(loads)
    assert again.state("ingest") == "success"
    assert lake.ids("bronze/orders") == [1, 2, 3]
    assert (again.xcom("ingest")["epoch"], again.xcom("ingest")["rows"]) == (2, 2)


def test_a_stream_is_rewound_from_the_ui_and_its_next_run_removes_the_rows(installation, lake, acted, ledger):
    lake.append("orders", 1)
    lake.append("orders", 2)
    ingest = INGEST.replace('bronze/orders")', 'bronze/orders", provenance=True)')
    loads = installation.add(ingest.format(lake=lake.uri))
    assert installation.run(loads).state("ingest") == "success"
    assert acted(action="rewind", to="start", sink_rows="delete").state("act") == "failed"

    run = acted(action="rewind", to=1, sink_rows="delete")
    lake.append("orders", 3)
    assert installation.run(loads).state("ingest") == "success"

    assert any("deletes the rows with _source_version >= 1" in note for note in run.xcom("act")["notes"])
    assert lake.ids("bronze/orders") == [1, 2, 3]
    # runs of one DAG object in one process keep the values of the runs before
    emptied = acted(action="rewind", to="start", sink_rows="empty")
    assert emptied.state("act") == "success"
    assert installation.run(loads).state("ingest") == "success"
    assert lake.ids("bronze/orders") == [1, 2, 3]


def test_a_stream_is_held_and_resumed(installation, lake, acted, ledger):
    lake.append("orders", 1)
    loads = installation.add(INGEST.format(lake=lake.uri))
    installation.run(loads)
    lake.append("orders", 2)
    acted(action="hold")
    assert ledger().state.held.why == "wrong rows"
    assert installation.run(loads).state("ingest") == "skipped"
    acted(action="resume")
    assert installation.run(loads).state("ingest") == "success"
    assert lake.ids("bronze/orders") == [1, 2]


def test_batches_that_a_person_plans_or_frees_are_loaded_by_the_next_run(
    installation, lake, acted, ledger, tmp_path, capsys
):
    lake.append("orders", 1)
    loads = installation.add(INGEST.format(lake=lake.uri))
    installation.run(loads)
    where = ["--stream", "orders", "--staging", (tmp_path / "staging").as_uri(), "--option", "starting_version=0"]
    deployment = ledger().state.deployment

    lake.append("orders", 2)
    assert main(["plan", f"{lake.uri}/orders", *where, "--deployment", deployment]) == 0
    assert installation.run(loads).state("ingest") == "success"

    lake.append("orders", 3)
    assert main(["plan", f"{lake.uri}/orders", *where, "--deployment", deployment]) == 0
    gone = Owner(kind="cli", deployment=deployment, run_id="elsewhere:1:1")
    found = ledger()
    claim = Claimed(epoch=1, owner=gone, previous=found.state.owner, why="test")
    found.execute(claim, Actor(deployment=deployment))
    assert installation.run(loads).state("ingest") == "skipped"
    unlock = ["unlock", "orders", *where[2:4], "--deployment", deployment, "--why", "that machine is gone"]
    assert main(unlock) == 2
    assert "Whether it is running cannot be seen from here" in capsys.readouterr().out
    assert ledger().state.owner == gone
    # nobody can be asked there: whoever triggers the DAG has decided
    assert acted(action="unlock").state("act") == "success"
    assert installation.run(loads).state("ingest") == "success"

    assert lake.ids("bronze/orders") == [1, 2, 3]


def test_a_repeated_task_acts_once(installation, on_server, lake, ledger):
    lake.append("orders", 1)
    installation.run(installation.add(INGEST.format(lake=lake.uri)))
    dag = installation.add(
        """
        from airflow.sdk import DAG
        from airflow_provider_fds import DeltaStreamActionOperator

        class DiesOnce(DeltaStreamActionOperator):
            def execute(self, context):
                done = super().execute(context)
                if context["ti"].try_number == 1:
                    raise RuntimeError("the worker dies after it has written")
                return done

        with DAG("resets", schedule=None):
            DiesOnce(
                task_id="act",
                stream="orders",
                action="rewind",
                to="start",
                sink_rows="keep",
                why="wrong rows",
                retries=1,
                retry_delay=0,
            )
        """
    )
    assert installation.run(dag).state("act") == "success"
    assert ledger().state.epoch == 2


def test_an_impossible_action_fails_without_a_retry_and_writes_nothing(installation, lake, acted, ledger):
    lake.append("orders", 1)
    installation.run(installation.add(INGEST.format(lake=lake.uri)))
    before = ledger().n
    for conf in (
        {"action": "rewind", "to": "start", "stream": "nothing"},
        {"action": "skip"},
        {"action": "hold", "version": 3},
        {"action": "rewind", "to": "batch:x"},
        {"action": "replan", "landed": "perhaps"},
        # the stream has passed the version
        {"action": "accept", "version": 0},
    ):
        assert acted(**conf).state("act") == "failed", conf
        assert ledger().n == before


@pytest.mark.parametrize(("action", "now"), [("adopt", "unlock"), ("reset", "rewind with to='start'")])
def test_an_older_name_of_an_action_is_an_error_that_names_the_new_one(action, now):
    from airflow_provider_fds import DeltaStreamActionOperator

    act = DeltaStreamActionOperator(task_id="act", stream="orders", action=action, why="a test")
    with pytest.raises(ConfigurationError, match=rf"got '{action}'. It is now {now}"):
        act._asked()


def test_recover_shows_what_airflow_has_and_removes_a_variable_that_contradicts_the_ledger(
    installation, on_server, lake, ledger, capsys, tmp_path
):
    from airflow.models.variable import Variable

    lake.append("orders", 1)
    loads = installation.add(INGEST.format(lake=lake.uri))
    run = installation.run(loads)
    asked = ["recover", "orders", "--staging", (tmp_path / "staging").as_uri(), "--airflow", "--yes"]
    assert main(asked) == 0
    said = capsys.readouterr().out
    assert re.search(r"variable: +entry \d, epoch 1, the beginning of version 1, as in the ledger", said)
    assert re.search(r"event: +epoch 1, up to batch 0, the beginning of version 1; .* by loads/" + run.run_id[:6], said)
    assert Variable.get("fds.orders")

    Variable.set("fds.orders", Variable.get("fds.orders").replace('"epoch":1', '"epoch":7'))
    assert main(asked) == 0
    assert "was removed; the next run writes it from ledger entry" in capsys.readouterr().out
    assert Variable.get("fds.orders", None) is None
    lake.append("orders", 2)
    assert installation.run(loads).state("ingest") == "success"
    assert lake.ids("bronze/orders") == [1, 2]
    assert Variable.get("fds.orders")


def test_a_lost_ledger_is_recovered_from_the_ui_and_no_row_is_loaded_again(installation, lake, acted, ledger, tmp_path):
    from airflow.models.variable import Variable

    lake.append("orders", 1)
    loads = installation.add(INGEST.format(lake=lake.uri))
    assert installation.run(loads).state("ingest") == "success"
    shutil.rmtree(tmp_path / "staging" / "orders")
    assert acted(action="recover").state("act") == "failed"

    run = acted(action="recover", sink_uri=f"{lake.uri}/bronze/orders", table=f"{lake.uri}/orders")

    assert run.state("act") == "success"
    assert "epoch 2, continues at the beginning of version 1" in run.xcom("act")["after"]
    assert ledger().state.epoch == 2
    assert '"epoch":1' not in Variable.get("fds.orders")
    assert acted(action="recover").xcom("act")["after"] == "the ledger matches the sink; there is nothing to do"
    lake.append("orders", 2)
    assert installation.run(loads).state("ingest") == "success"
    assert lake.ids("bronze/orders") == [1, 2]


def test_a_reason_that_looks_like_a_number_is_a_text_in_the_ledger(installation, lake, acted, ledger):
    lake.append("orders", 1)
    loads = installation.add(INGEST.format(lake=lake.uri).replace('"loads"', '"loads_and_is_held"'))
    assert installation.run(loads).state("ingest") == "success"
    assert acted(action="hold", why="4711").state("act") == "success"
    assert ledger().state.held.why == "4711"
    assert installation.run(loads).state("ingest") == "skipped"
