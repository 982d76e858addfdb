"""``on_violation="ask"``: a task that asks in Airflow what to do at a version, and waits for the answer."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds import DeltaAppendSink, DeltaFleetOperator, DeltaIngestOperator, DeltaStream, FleetStream
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.hooks.exceptions import TaskFailedError
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.operators.run.approval import record_answer
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
                deadline = time.monotonic() + 120
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
        done = fds(*given, "--yes") if action == "skip" else fds(*given)
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


def test_an_attempt_asks_once_because_airflow_would_show_the_first_question_again(
    asking, installation, lake, while_asked, decide, ledger_of
):
    dag = asking("asks_once")
    lake.delete("orders", "id = 2")
    while_asked("asks_once", lambda: decide("skip", "asks_once", "--version", "1"))
    assert installation.run(dag).state("ingest") == "skipped"
    assert ledger_of("asks_once").find().quarantined.version == 2
    assert "version 1" in question("asks_once").subject


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
