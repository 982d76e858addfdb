"""``on_violation="ask"``: a task that asks in Airflow what to do at a version, and waits for the answer."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import deltalake
import pytest

from airflow_provider_fds import DeltaAppendSink, DeltaFleetOperator, DeltaIngestOperator, DeltaStream, FleetStream
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import ConfigurationError, StorageError
from airflow_provider_fds.hooks.exceptions import TaskFailedError
from airflow_provider_fds.ledger.entries.operator_entries import Quarantined, Resumed
from airflow_provider_fds.ledger.owner import Actor
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.operators.run import approval
from airflow_provider_fds.operators.run.approval import record_answer
from airflow_provider_fds.stream.actions.stop_choices import asked_about, prepare_choice
from airflow_provider_fds.triggers.stream_decision import StreamDecisionTrigger
from tests.fds_command import fds

if TYPE_CHECKING:
    from collections.abc import Callable

DAG_TEXT = """
from datetime import datetime
from airflow.sdk import DAG
from airflow_provider_fds import DeltaAppendSink, DeltaIngestOperator, DeltaStream

with DAG("{name}", schedule=None, start_date=datetime(2026, 1, 1)):
    DeltaIngestOperator(
        task_id="ingest",
        stream=DeltaStream("{name}", table="{lake}/orders", starting_version=1, on_violation="ask"),
        sink=DeltaAppendSink("{lake}/{name}"),
        # a test that does not answer ends, too
        **{{"ask_timeout": 30, {arguments}}},
    )
"""


@pytest.fixture(autouse=True)
def quick_polls(monkeypatch):
    monkeypatch.setenv("AIRFLOW__FDS__POLL_INTERVAL", "0.2")


@pytest.fixture
def asking(installation, lake):
    """Return a DAG whose stream stops at once, before version 1, which deletes rows."""
    lake.append("orders", 1, 2)
    lake.delete("orders", "id = 1")

    def make(name: str, arguments: str = "") -> Any:
        return installation.add(DAG_TEXT.format(name=name, lake=lake.uri, arguments=arguments))

    return make


@pytest.fixture
def ledger_of(tmp_path):
    return lambda name: Ledger(open_storage((tmp_path / "staging").as_uri()), name)


def question(dag_id: str) -> Any:
    """Return the newest question of a DAG, as Airflow has it; ``None`` if there is none."""
    from airflow.models.hitl import HITLDetail
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        of_dag = select(HITLDetail).join(TaskInstance, HITLDetail.ti_id == TaskInstance.id)
        found = session.scalars(of_dag.where(TaskInstance.dag_id == dag_id).order_by(HITLDetail.created_at)).all()
        session.expunge_all()
        return found[-1] if found else None


@pytest.fixture
def while_asked():
    """Does something in another thread, once the DAG has asked a question; raises its error in the end."""
    failures: list[BaseException] = []
    threads: list[threading.Thread] = []

    def begin(dag_id: str, act: Callable[[], object]) -> None:
        def work() -> None:
            try:
                deadline = time.monotonic() + 300
                while question(dag_id) is None:
                    assert time.monotonic() < deadline, "no question"
                    time.sleep(0.1)
                act()
            except BaseException as error:  # noqa: BLE001  # of another thread
                failures.append(error)

        threads.append(threading.Thread(target=work, daemon=True))
        threads[-1].start()

    yield begin
    for thread in threads:
        thread.join()
    assert failures == []


@pytest.fixture
def decide(tmp_path):
    """Decides with ``fds``, as a person at a terminal does."""

    def run(action: str, dag_id: str, *words: str) -> None:
        staging = (tmp_path / "staging").as_uri()
        given = (action, dag_id, *words, "--why", "seen", "--staging", staging, "--deployment", "http://fds.test")
        done = fds(*given, "--yes") if action in ("accept", "skip") else fds(*given)
        assert done.returncode == 0, done.stderr

    return run


def test_a_decision_elsewhere_wakes_the_task_which_loads_what_follows(
    asking, installation, lake, on_server, while_asked, decide
):
    dag = asking("asks_skip")
    lake.append("orders", 3)
    while_asked("asks_skip", lambda: decide("skip", "asks_skip", "--version", "1"))
    run = installation.run(dag)
    assert run.state("ingest") == "success"
    assert lake.ids("asks_skip") == [3]


@pytest.fixture
def stops_at_a_batch(installation, lake):
    """Return a DAG whose stream stops at its batch 0, of which one row of three fails an expectation."""
    lake.append("orders", 1, 2, -3)

    def make(name: str, arguments: str = "") -> Any:
        text = DAG_TEXT.replace("starting_version=1, ", REJECTING)
        return installation.add(text.format(name=name, lake=lake.uri, arguments=arguments))

    return make


REJECTING = 'starting_version=0, expect={{"id > 0": "reject"}}, max_rejected=0.1, rejects="{lake}/rejects_{name}", '


def test_a_batch_that_leaves_out_too_many_rows_is_loaded_once_somebody_accepts_it(
    stops_at_a_batch, installation, lake, on_server, while_asked, decide
):
    dag = stops_at_a_batch("asks_share")
    while_asked("asks_share", lambda: decide("accept", "asks_share", "--batch", "0"))
    run = installation.run(dag)
    assert run.state("ingest") == "success"
    assert run.xcom("ingest")["rows_rejected"] == 1
    assert (lake.ids("asks_share"), lake.ids("rejects_asks_share")) == ([1, 2], [-3])

    asked = question("asks_share")
    assert asked.options == ["Accept", "Resume", "Hold", "Stop"]
    assert asked.subject.startswith("Stream asks_share stops at batch 0 of file:")
    assert "keep 1 of 3 rows (33.33%) out of the sink, more than max_rejected=0.1 allows" in asked.body
    assert "| **Accept** | the stream loads batch 0 without the 1 of 3 rows" in asked.body


def test_an_answer_about_a_batch_is_in_the_ledger_with_the_persons_name(
    stops_at_a_batch, installation, lake, on_server, ledger_of
):
    dag = stops_at_a_batch("answers_share", '"ask_timeout": 0.1')
    installation.run(dag)
    ledger = ledger_of("answers_share")
    asked = asked_about(ledger.find())
    context = {"ti": SimpleNamespace(id="i", dag_id="d", run_id="r", task_id="ingest", map_index=-1, try_number=1)}
    event = {"chosen_options": ["Accept"], "params_input": {"why": "known"}, "timedout": False}
    event["responded_by_user"] = {"id": "7", "name": "alice"}
    # about fewer rows than the stream stops for now
    record_answer(dag.get_task("ingest"), context, event, 0, asked.rpartition("/")[0] + "/0")
    assert ledger_of("answers_share").find().quarantined is not None
    record_answer(dag.get_task("ingest"), context, event, 0, asked)
    ledger.refresh()
    last = list(ledger.entries())[-1]
    assert (last.action.kind, last.action.why, last.actor.user) == ("accepted", "known", "alice")
    # whichever run comes next loads it
    assert installation.run(dag).state("ingest") == "success"
    assert lake.ids("answers_share") == [1, 2]


@pytest.fixture
def loses_versions(installation, lake):
    """Return a DAG whose stream has read version 0, when log cleanup removes versions 1 and 2 of versions up to 3."""

    def make(name: str) -> Any:
        # no variable: while another thread reads one, the task in this process has no connection to Airflow
        checkpoint = f"file:{lake.root / 'checkpoint.json'}"
        text = DAG_TEXT.replace("starting_version=1", f'starting_version=0, checkpoint="{checkpoint}"')
        dag = installation.add(text.format(name=name, lake=lake.uri, arguments=""))
        lake.append("orders", 1)
        assert installation.run(dag).state("ingest") == "success"
        for one in (2, 3, 4):
            lake.append("orders", one)
        deltalake.DeltaTable(lake.root / "orders").create_checkpoint()
        for version in range(3):
            (lake.root / "orders" / "_delta_log" / f"{version:020d}.json").unlink()
        return dag

    return make


def test_a_stream_goes_on_without_lost_versions_once_somebody_skips_them_with_a_reason(
    loses_versions, installation, lake, on_server, while_asked, decide, ledger_of
):
    dag = loses_versions("asks_lost")
    refused: list[TaskFailedError] = []

    def decide_it() -> None:
        context = {"ti": SimpleNamespace(id="i", dag_id="d", run_id="r", task_id="ingest", map_index=-1, try_number=1)}
        event = {"chosen_options": ["Skip"], "params_input": {"why": " "}, "timedout": False}
        event["responded_by_user"] = {"id": "7", "name": "alice"}
        with pytest.raises(TaskFailedError, match="alice has chosen to skip lost versions without a reason") as caught:
            record_answer(dag.get_task("ingest"), context, event, 1, asked_about(ledger_of("asks_lost").find()))
        refused.append(caught.value)
        decide("skip", "asks_lost", "--version", "1-2")

    while_asked("asks_lost", decide_it)
    assert installation.run(dag).state("ingest") == "success"
    assert lake.ids("asks_lost") == [1, 4]
    assert refused[0].reason_code == "STREAM_QUARANTINED"
    asked = question("asks_lost")
    assert asked.options == ["Skip", "Resume", "Hold", "Stop"]
    assert asked.subject.startswith("Stream asks_lost stops before version 1 of file:")
    assert "2 versions (versions 1 to 2) were removed by log cleanup" in asked.body


def test_the_question_shows_what_stops_the_stream_and_what_each_choice_does(asking, installation, while_asked, decide):
    dag = asking("asks_text", '"approvers": ["7", {"id": "8", "name": "bob"}]')
    while_asked("asks_text", lambda: decide("hold", "asks_text"))
    # a stream on hold asks nobody
    assert [installation.run(dag).state("ingest") for _ in range(2)] == ["skipped", "skipped"]
    asked = question("asks_text")
    assert asked.options == ["Skip", "Resume", "Hold", "Stop"]
    assert asked.assignees == [{"id": "7", "name": "7"}, {"id": "8", "name": "bob"}]
    assert asked.subject.startswith("Stream asks_text stops before version 1 of file:")
    assert "DELETE" in asked.body
    assert "| **Skip** | the stream skips version 1" in asked.body


def test_a_question_that_nobody_answers_in_time_leaves_the_stream_where_it_is(asking, installation, ledger_of):
    run = installation.run(asking("asks_late", '"ask_timeout": 0.5'))
    assert run.state("ingest") == "failed"
    assert run.xcom("ingest", "fds_error")["reason_code"] == "STREAM_QUARANTINED"
    assert ledger_of("asks_late").find().quarantined.version == 1


@pytest.mark.parametrize("waits", [False, True])
def test_an_attempt_asks_once_because_airflow_would_show_the_first_question_again(
    asking, installation, lake, while_asked, decide, ledger_of, waits
):
    name = f"asks_once_{waits}".lower()
    dag = asking(name, '"wait": True, "timeout": 600' if waits else "")
    lake.delete("orders", "id = 2")
    while_asked(name, lambda: decide("skip", name, "--version", "1"))
    assert installation.run(dag).state("ingest") == "skipped"
    assert ledger_of(name).find().quarantined.version == 2
    assert "version 1" in question(name).subject


@pytest.fixture
def answered(asking, installation):
    """Answers the question of a stream in quarantine for ``alice``, as Airflow 3.3 does when it resumes a task."""

    def answer(name: str, choice: str, version: int = 1) -> None:
        dag = asking(name, '"ask_timeout": 0.1')
        installation.run(dag)
        context = {
            "ti": SimpleNamespace(id=name, dag_id=name, run_id="r", task_id="ingest", map_index=-1, try_number=1)
        }
        user = {"id": "7", "name": "alice"}
        event = {"chosen_options": [choice], "params_input": {"why": "on purpose"}, "responded_by_user": user}
        record_answer(dag.get_task("ingest"), context, {**event, "timedout": False}, version)

    return answer


@pytest.mark.parametrize(("choice", "kind"), [("Skip", "acknowledged"), ("Hold", "held"), ("Resume", "resumed")])
def test_an_answer_is_in_the_ledger_with_the_persons_name_and_reason(answered, ledger_of, choice, kind):
    name = f"answered_{kind}"
    answered(name, choice)
    ledger = ledger_of(name)
    ledger.find()
    last = list(ledger.entries())[-1]
    assert (last.action.kind, last.action.why) == (kind, "on purpose")
    assert (last.actor.user, last.actor.host) == ("alice", "airflow-ui")


def test_to_stop_fails_the_task_and_says_who_has_chosen_it(answered, ledger_of):
    with pytest.raises(TaskFailedError, match="alice has chosen to stop") as caught:
        answered("answered_stop", "Stop")
    assert (caught.value.reason_code, caught.value.version) == ("STREAM_QUARANTINED", 1)
    assert ledger_of("answered_stop").find().quarantined.version == 1


def test_an_answer_about_another_version_than_the_one_that_stops_the_stream_writes_nothing(answered, ledger_of):
    answered("answered_late", "Skip", version=0)
    assert ledger_of("answered_late").find().quarantined.version == 1


def test_what_a_trigger_saw_in_the_ledger_is_no_answer_once_the_stream_stops_there_again(
    asking, installation, ledger_of
):
    dag = asking("answered_nobody", '"ask_timeout": 0.1')
    installation.run(dag)
    context = {"ti": SimpleNamespace(id="i", dag_id="d", run_id="r", task_id="ingest", map_index=-1, try_number=1)}
    event = {"chosen_options": ["Resume"], "params_input": {}, "responded_by_user": None, "in_ledger": True}
    record_answer(dag.get_task("ingest"), context, event, 1)
    assert ledger_of("answered_nobody").find().quarantined.version == 1


@pytest.mark.parametrize("comes", ["before", "while it is written"])
def test_an_answer_is_not_taken_for_one_to_a_later_stop_at_the_same_version(
    asking, installation, ledger_of, monkeypatch, comes
):
    name = f"answers_later_{len(comes)}"
    dag = asking(name, '"ask_timeout": 0.1')
    installation.run(dag)
    ledger = ledger_of(name)
    asked, person = asked_about(ledger.find()), Actor(deployment="http://fds.test", user="bob", host="h")

    def stop_again() -> None:
        if ledger.state.quarantined.why != "other":
            ledger.execute(Resumed(why="try again"), person)
            ledger.execute(Quarantined(why="other", version=1, way_on="skip"), person)

    def prepare(*given: Any) -> Any:
        prepared = prepare_choice(*given)
        stop_again()
        return prepared

    if comes == "before":
        stop_again()
    monkeypatch.setattr(approval, "prepare_choice", prepare)
    context = {"ti": SimpleNamespace(id="i", dag_id="d", run_id="r", task_id="ingest", map_index=-1, try_number=1)}
    event = {"chosen_options": ["Skip"], "params_input": {"why": "known"}, "timedout": False}
    event["responded_by_user"] = {"id": "7", "name": "alice"}
    record_answer(dag.get_task("ingest"), context, event, 1, asked)
    assert ledger_of(name).find().quarantined.why == "other"


def test_a_trigger_whose_staging_has_no_ledger_waits_until_its_time_is_over(tmp_path):
    arguments = {"stream": "orders", "staging": tmp_path.as_uri(), "ti_id": "0" * 32, "version": 1}
    with pytest.raises(StorageError, match="is it mounted here"):
        StreamDecisionTrigger(**arguments)._poll()
    event = StreamDecisionTrigger(**arguments, until=time.time())._poll()
    assert (event["chosen_options"], event["timedout"], event["in_ledger"]) == (["Stop"], True, False)


STREAM = DeltaStream("orders", table="s3://lake/orders", on_violation="ask")
SINK = DeltaAppendSink("s3://lake/sink")


def test_a_fleet_asks_nobody_and_says_so():
    with pytest.raises(ConfigurationError, match="on_violation='ask', but the task of a fleet waits for nobody"):
        DeltaFleetOperator(task_id="load", streams=[{"stream": STREAM, "sink": SINK}])
    with pytest.raises(ConfigurationError, match="waits for nobody"):
        FleetStream(STREAM, SINK)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"approvers": "alice"}, "approvers must be a list"),
        ({"approvers": [{"id": 7, "name": "bob"}]}, "approvers must be a list"),
        ({"ask_timeout": 0}, "ask_timeout must be a positive"),
        ({"stream": DeltaStream("o", table="s3://b/o"), "approvers": ["alice"]}, "has no effect without on_violation"),
    ],
)
def test_arguments_about_a_question_are_checked_when_the_dag_is_parsed(arguments, problem):
    with pytest.raises(ConfigurationError, match=problem):
        DeltaIngestOperator(task_id="ingest", **{"stream": STREAM, "sink": SINK, **arguments})


def test_the_trigger_survives_a_move_to_another_triggerer_and_arguments_of_another_version():
    given = {"stream": "orders", "staging": "file:///s", "ti_id": "0" * 32, "version": 3, "until": 5.0}
    path, kwargs = StreamDecisionTrigger(**given, poll_interval=1).serialize()
    assert path.endswith(".StreamDecisionTrigger")
    assert StreamDecisionTrigger(**kwargs, unheard_of=1).serialize() == (path, kwargs)
    assert given.items() <= kwargs.items()
