"""Where the committed offset is kept, with Airflow's own Variables and XComs: what a run finds there, and what not."""

from __future__ import annotations

import json
from uuid import uuid4

import pytest

from airflow_provider_fds.ledger.position import Checkpoint
from airflow_provider_fds.source.offset import Offset

HOME = """
    from datetime import datetime
    from airflow.sdk import DAG, task
    from airflow_provider_fds.checkpoint.variable import VariableCheckpointStore
    from airflow_provider_fds.checkpoint.xcom import XComCheckpointStore
    from tests.checkpoint_contract import check_home

    with DAG("{kind}_home", schedule=None, start_date=datetime(2026, 1, 1)):
        @task
        def variable():
            from airflow.sdk import Variable
            store = VariableCheckpointStore("orders")
            check_home(store, lambda text: Variable.set(store.key, text))

        @task
        def xcom(**context):
            store = XComCheckpointStore("orders")
            check_home(store, lambda text: context["ti"].xcom_push(store.key, text))
        {kind}()
"""

STREAM = """
from datetime import datetime
from airflow.sdk import DAG
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow_provider_fds import DeltaCommitOperator, DeltaPlanOperator, DeltaStream

orders = DeltaStream("orders", table="{lake}/orders", checkpoint="{checkpoint}")
with DAG("{dag_id}", schedule=None, start_date=datetime(2026, 1, 1)):
    plan = DeltaPlanOperator(task_id="plan", stream=orders)
    plan >> EmptyOperator(task_id="load") >> DeltaCommitOperator(task_id="commit", batch=plan.output)
"""
COUNTING = """
from datetime import datetime
from airflow.sdk import DAG, task
from msgspec.structs import replace
from airflow_provider_fds.checkpoint.xcom import XComCheckpointStore
from tests.checkpoint_contract import MINE

with DAG("counting", schedule=None, start_date=datetime(2026, 1, 1)):
    @task
    def count(stream):
        store = XComCheckpointStore(stream)
        before = store.read()
        n = 0 if before is None else before.n + 1
        store.write(replace(MINE, n=n, stream=stream))
        return n
    count.override(task_id="one")("orders")
    count.partial().expand(stream=["orders", "customers"])
"""
KEY = "fds.orders"
OFFSET = Offset("t", 3).to_json()


@pytest.fixture
def dag_of(installation, lake):
    """Makes the one DAG of a test; XComs of other tests' DAGs are not its."""

    def make(checkpoint):
        return installation.add(STREAM.format(lake=lake.uri, checkpoint=checkpoint, dag_id=f"dag_{uuid4().hex}"))

    return make


@pytest.fixture
def refusal(capsys):
    """Runs a DAG whose plan fails, and returns what its log says."""

    def run(installation, dag):
        capsys.readouterr()
        assert installation.run(dag).state("plan") == "failed"
        return capsys.readouterr().out

    return run


def variable():
    from airflow.models.variable import Variable
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        return session.scalars(select(Variable).where(Variable.key == KEY)).one_or_none()


def set_variable(text):
    from airflow.models.variable import Variable

    Variable.set(KEY, text)


@pytest.mark.parametrize("kind", ["variable", "xcom"])
def test_variable_and_xcom_satisfy_the_checkpoint_contract(installation, kind):
    assert set(installation.run(installation.add(HOME.format(kind=kind))).states.values()) == {"success"}


def test_outside_a_task_an_xcom_is_not_read_and_writing_is_refused_with_the_reason(airflow_database):
    from airflow_provider_fds.checkpoint.xcom import XComCheckpointStore
    from airflow_provider_fds.errors import ConfigurationError
    from tests.checkpoint_contract import MINE

    store = XComCheckpointStore("orders")
    assert store.read() is None
    with pytest.raises(ConfigurationError, match=r"XCom 'fds_checkpoint\.orders' cannot be written here"):
        store.write(MINE)


# XCom


def test_an_xcom_is_read_from_the_newest_run_before_of_this_task_and_stream(installation):
    dag = installation.add(COUNTING)
    for n in range(4):
        run = installation.run(dag)
        found = [run.xcom("one"), run.xcom("count", map_index=0), run.xcom("count", map_index=1)]
        assert found == [n, n, n]
        if n == 2:
            remove_xcoms(run)  # as a later attempt begins: what the run before left is found
            again = installation.run(dag)
            assert again.xcom("one") == 2
            remove_xcoms(run, again)
            run = installation.run(dag)
            assert run.xcom("one") == 2


def committed(run):
    text = run.xcom("commit", "fds_checkpoint.orders")
    return None if text is None else Checkpoint.from_json(json.loads(text) if text[0] == '"' else text, home="test")


def remove_xcoms(*runs):
    from airflow.models.xcom import XComModel

    for run in runs:
        for task_id, map_index in run.states:
            XComModel.clear(dag_id=run.dag_id, task_id=task_id, run_id=run.run_id, map_index=map_index)


def edit_xcom(run, value):
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import update

    where = {"dag_id": run.dag_id, "task_id": "plan", "run_id": run.run_id, "key": "fds_checkpoint.orders"}
    with create_session() as session:
        edited = session.execute(update(XComModel).filter_by(**where).values(value=value))
        assert edited.rowcount == 1


def test_with_xcom_as_home_each_run_shows_its_position_and_the_next_continues_from_it(installation, lake, dag_of):
    dag = dag_of("xcom")
    runs = []
    for i in range(3):
        lake.append("orders", i)
        runs.append(installation.run(dag))
        assert set(runs[-1].states.values()) == {"success"}
    assert [committed(run).batch_id for run in runs] == [0, 1, 2]
    assert [json.loads(committed(run).offset)["reservoirVersion"] for run in runs] == [1, 2, 3]
    assert [run.xcom("plan", "start") for run in runs[1:]] == [committed(run).offset for run in runs[:-1]]
    assert variable() is None


def test_removed_xcoms_lose_nothing(installation, lake, dag_of, capsys):
    dag = dag_of("xcom")
    lake.append("orders", 1)
    first = installation.run(dag)
    remove_xcoms(first)  # as `airflow db clean`, a cleared task or a later attempt do
    lake.append("orders", 2)
    second = installation.run(dag)
    assert committed(second).batch_id == 1
    assert "is absent" not in capsys.readouterr().out  # nothing is wrong with an empty XCom


def test_an_xcom_that_was_edited_is_named_and_removing_it_settles_it(installation, lake, dag_of, refusal):
    dag = dag_of("xcom")
    lake.append("orders", 1)
    first = installation.run(dag)
    lake.append("orders", 2)

    found = Checkpoint.from_json(first.xcom("plan", "fds_checkpoint.orders"), home="test")
    edited = found.to_json().replace('"batch_id":null', '"batch_id":5')
    assert edited != found.to_json()
    edit_xcom(first, edited)
    message = refusal(installation, dag)
    assert "it was edited: batch_id is 5, but None in entry 3" in message
    assert "remove XCom 'fds_checkpoint.orders' of the newest run" in message
    remove_xcoms(first)
    assert committed(installation.run(dag)).batch_id == 1


@pytest.mark.parametrize("value", ["somebody's note", [1], {"offset": {"a": 1}}], ids=["text", "list", "object"])
def test_an_xcom_that_is_no_checkpoint_is_replaced_from_the_ledger(installation, lake, dag_of, value):
    dag = dag_of("xcom")
    lake.append("orders", 1)
    edit_xcom(installation.run(dag), value)
    lake.append("orders", 2)
    run = installation.run(dag)
    assert committed(run).batch_id == 1
    assert Checkpoint.from_json(run.xcom("plan", "fds_checkpoint.orders"), home="test").n > 0


INGEST = """
from datetime import datetime
from airflow.sdk import DAG
from airflow_provider_fds import DeltaIngestOperator, DeltaStream, DeltaAppendSink, DeltaTableVersionSensor

orders = DeltaStream("orders", table="{lake}/orders", checkpoint="{checkpoint}", max_files_per_batch=1)
with DAG("ingests", schedule=None, start_date=datetime(2026, 1, 1)):
    wait = DeltaTableVersionSensor(task_id="wait", stream=orders, deferrable=True, poll_interval=0.1)
    wait >> DeltaIngestOperator(task_id="ingest", stream=orders, sink=DeltaAppendSink("{lake}/bronze"))
"""


def test_sensor_and_ingest_work_with_xcom_as_home_and_rows_land_once(installation, on_server, lake):
    dag = installation.add(INGEST.format(lake=lake.uri, checkpoint="xcom"))
    lake.append("orders", 1)
    lake.append("orders", 2)
    first = installation.run(dag)
    shown = Checkpoint.from_json(first.xcom("ingest", "fds_checkpoint.orders"), home="test")
    assert shown.offset == first.xcom("ingest")["end"]
    remove_xcoms(first)
    lake.append("orders", 3)
    second = installation.run(dag)
    assert set(second.states.values()) == {"success"}
    assert second.xcom("ingest")["start"] == first.xcom("ingest")["end"]
    assert lake.ids("bronze") == [1, 2, 3]
    assert variable() is None


# asset state store


ASSET_HOME = """
    from datetime import datetime
    from airflow.sdk import DAG, Asset, task
    from airflow.sdk.execution_time.context import AssetStateStoreAccessor
    from airflow_provider_fds.checkpoint.asset import AssetCheckpointStore
    from tests.checkpoint_contract import MINE, check_home

    with DAG("asset_home", schedule=None, start_date=datetime(2026, 1, 1)):
        @task(inlets=[Asset("s3://lake/orders")])
        def known():
            store = AssetCheckpointStore("orders", "s3a://lake/orders")
            check_home(store, lambda text: AssetStateStoreAccessor(uri="s3://lake/orders").set(store.key, text))

        @task
        def unknown():
            store = AssetCheckpointStore("orders", "s3://lake/customers")
            assert store.read() is None
            store.write(MINE)
            assert store.read() is None
        known()
        unknown()
"""


@pytest.fixture
def asset_store():
    """Skips without the asset state store."""
    return pytest.importorskip("airflow.models.asset_state_store", reason="needs Airflow 3.3").AssetStateStoreModel


@pytest.fixture
def asset_states(asset_store):
    """Returns the values of all assets by URI and key, or removes them, as Airflow does for an orphaned asset."""
    from airflow.models.asset import AssetActive, AssetModel
    from airflow.utils.session import create_session
    from sqlalchemy import delete, select

    def states(*, remove=False):
        with create_session() as session:
            of_asset = select(AssetModel.uri, asset_store.key, asset_store.value).join(
                AssetModel, AssetModel.id == asset_store.asset_id
            )
            found = {(uri, key): json.loads(value) for uri, key, value in session.execute(of_asset)}
            if remove:
                session.execute(delete(asset_store))
                session.execute(delete(AssetActive))
            return found

    states(remove=True)
    return states


def test_the_state_of_an_asset_satisfies_the_checkpoint_contract_and_of_an_unknown_one_is_left_out(
    installation, asset_states
):
    run = installation.run(installation.add(ASSET_HOME))
    assert set(run.states.values()) == {"success"}
    assert list(asset_states()) == [("s3://lake/orders", "fds.orders")]


def test_the_page_of_the_asset_shows_the_position_and_vanished_values_lose_nothing(
    installation, on_server, lake, asset_states
):
    dag = installation.add(INGEST.format(lake=lake.uri, checkpoint="asset"))
    lake.append("orders", 1)
    first = installation.run(dag)
    assert set(first.states.values()) == {"success"}
    ((place, shown),) = asset_states().items()
    assert place == (f"{lake.uri}/orders", "fds.orders")
    assert next(iter(shown)) == "position"
    assert shown["position"].startswith(f"version 0 of {lake.uri}/orders, 20")
    assert shown["position"].endswith("Z, 1 row in the last batch")
    assert shown["offset"] == first.xcom("ingest")["end"]
    assert variable() is None

    for i in (2, 3):
        lake.append("orders", i)
        if i == 3:
            # as the scheduler does when no DAG refers to the asset any longer
            assert len(asset_states(remove=True)) == 1
        run = installation.run(dag)
        assert set(run.states.values()) == {"success"}
        assert next(iter(asset_states().values()))["offset"] == run.xcom("ingest")["end"]
    assert lake.ids("bronze") == [1, 2, 3]


@pytest.mark.usefixtures("asset_store")
def test_an_asset_of_the_user_for_the_table_is_the_inlet(airflow_home):
    from airflow.sdk import Asset

    from airflow_provider_fds import DeltaAppendSink, DeltaIngestOperator, DeltaStream

    # Airflow refuses to run a task with two assets of one URI
    named = Asset(name="orders", uri="s3://lake/orders")
    task = DeltaIngestOperator(
        task_id="t",
        stream=DeltaStream("orders", table="s3a://lake/orders", checkpoint="asset"),
        sink=DeltaAppendSink("s3://lake/bronze"),
        inlets=[named],
    )
    assert task.inlets == [named]


def test_a_dag_for_an_older_airflow_is_refused_when_it_is_parsed(monkeypatch, lake):
    from airflow_provider_fds import DeltaAppendSink, DeltaIngestOperator, DeltaStream, airflow_version
    from airflow_provider_fds.errors import ConfigurationError

    stream = DeltaStream("orders", table=f"{lake.uri}/orders", checkpoint="asset")
    monkeypatch.setattr(airflow_version, "_airflow_version", lambda: "3.2.1")
    with pytest.raises(ConfigurationError, match=r"needs the asset state store of Airflow 3\.3 or newer"):
        DeltaIngestOperator(task_id="t", stream=stream, sink=DeltaAppendSink(f"{lake.uri}/bronze"))


def test_outside_a_task_the_state_of_an_asset_is_not_read_and_writing_is_refused(airflow_database, asset_store):
    from airflow_provider_fds.checkpoint.asset import AssetCheckpointStore
    from airflow_provider_fds.errors import ConfigurationError
    from tests.checkpoint_contract import MINE

    store = AssetCheckpointStore("orders", "s3://lake/orders")
    assert store.read() is None
    with pytest.raises(ConfigurationError, match="only a running task can write it"):
        store.write(MINE)


# Variable


def test_a_variable_begins_with_the_position_in_words_which_decide_nothing(installation, lake, dag_of):
    dag = dag_of("variable")
    lake.append("orders", 1)
    installation.run(dag)
    value = variable().val
    assert value.startswith(f'{{"position":"version 0 of {lake.uri}/orders, 20')
    set_variable(json.dumps({**json.loads(value), "position": "edited"}))
    lake.append("orders", 2)
    assert installation.run(dag).xcom("commit")["first_batch_id"] == 1


def test_a_variable_that_was_edited_is_named_and_its_command_settles_it(installation, lake, dag_of, refusal):
    from airflow.models.variable import Variable

    dag = dag_of("variable")
    lake.append("orders", 1)
    installation.run(dag)
    value = variable().val
    set_variable(value.replace('\\"reservoirVersion\\":1', '\\"reservoirVersion\\":0'))
    assert variable().val != value
    lake.append("orders", 2)
    message = refusal(installation, dag)
    for words in (
        "it was edited: offset is",
        "fds rewind orders",
        "fds recover orders",
        f"`airflow variables delete {KEY}`",
    ):
        assert words in message
    Variable.delete(KEY)
    run = installation.run(dag)
    assert run.xcom("commit")["first_batch_id"] == 1
    assert json.loads(variable().val)["batch_id"] == 1


def test_a_variable_that_was_exported_and_imported_again_is_the_same(installation, lake, dag_of):
    dag = dag_of("variable")
    lake.append("orders", 1)
    installation.run(dag)
    set_variable(json.dumps(json.loads(variable().val), indent=2))  # what `airflow variables import` makes of it
    lake.append("orders", 2)
    assert installation.run(dag).xcom("commit")["first_batch_id"] == 1


def test_a_variable_of_another_installation_is_named_and_its_command_settles_it(installation, lake, dag_of, refusal):
    from airflow.models.variable import Variable

    dag = dag_of("variable")
    lake.append("orders", 1)
    foreign = Checkpoint(
        stream="orders", uuid="u", deployment="https://prod", n=40, digest="00", epoch=1, batch_id=9, offset=OFFSET
    )
    set_variable(foreign.to_json())
    message = refusal(installation, dag)
    for words in (
        "names entry 40, but the ledger has no entry",
        "written by the installation 'https://prod' and imported into this one, 'http://fds.test'",
        f"`airflow variables delete {KEY}`",
    ):
        assert words in message
    Variable.delete(KEY)
    assert installation.run(dag).xcom("commit")["first_batch_id"] == 0


def test_a_variable_and_staging_of_another_installation_are_named_with_the_command(
    installation, lake, dag_of, refusal, monkeypatch
):
    dag = dag_of("variable")
    lake.append("orders", 1)
    installation.run(dag)
    lake.append("orders", 2)
    with monkeypatch.context() as patch:
        patch.setenv("AIRFLOW__FDS__DEPLOYMENT", "https://copy")
        assert "fds transfer orders" in refusal(installation, dag)
    assert installation.run(dag).xcom("commit")["first_batch_id"] == 1


def test_a_variable_that_the_environment_hides_is_named_at_the_next_run(
    installation, lake, dag_of, refusal, monkeypatch
):
    dag = dag_of("variable")
    lake.append("orders", 1)
    installation.run(dag)
    lake.append("orders", 2)
    with monkeypatch.context() as patch:
        patch.setenv("AIRFLOW_VAR_FDS.ORDERS", variable().val)  # even with the value that is right today
        assert "hidden by the environment variable AIRFLOW_VAR_FDS.ORDERS" in refusal(installation, dag)
    assert installation.run(dag).xcom("commit")["first_batch_id"] == 1


def test_a_variable_that_a_secrets_backend_hides_is_named_and_nothing_is_lost(
    installation, lake, dag_of, capsys, tmp_path, monkeypatch
):
    reason = "Airflow 3.1 reads its secrets backends once per process, when it is imported"
    configuration = pytest.importorskip("airflow.sdk.configuration", reason=reason)
    # Airflow 3.2 reads them anew each time
    read_anew = getattr(configuration, "clear_secrets_backends_cache", lambda: None)
    dag = dag_of("variable")
    lake.append("orders", 1)
    installation.run(dag)
    lake.append("orders", 2)
    (tmp_path / "secrets.json").write_text(json.dumps({KEY: variable().val}))
    with monkeypatch.context() as patch:
        patch.setenv("AIRFLOW__WORKERS__SECRETS_BACKEND", "airflow.secrets.local_filesystem.LocalFilesystemBackend")
        kwargs = json.dumps({"variables_file_path": f"{tmp_path}/secrets.json"})
        patch.setenv("AIRFLOW__WORKERS__SECRETS_BACKEND_KWARGS", kwargs)
        read_anew()
        capsys.readouterr()
        hidden = installation.run(dag)
    read_anew()
    assert hidden.state("plan") == "failed"
    message = capsys.readouterr().out
    assert (
        f"in a secrets backend ([secrets] backend) takes precedence over Airflow's own. Remove '{KEY}' there" in message
    )
    assert installation.run(dag).xcom("commit")["first_batch_id"] == 1
