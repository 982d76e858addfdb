"""A separate Airflow for these tests: home, database and DAG folder in a temporary place.

Airflow reads ``AIRFLOW_HOME`` when it is first imported, so it is set when this file is imported. Everything else is in
the ``airflow.cfg`` there, so that only the home leaks into processes that other tests start.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import tempfile
import textwrap
import warnings
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from tests.airflow.warehouse import Warehouse, running_warehouse
from tests.interop.connect_server import RunningServer, running_server
from tests.interop.quick_spark import server_settings
from tests.postgresql import missing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_provider_fds import DeltaStream

    BySubmit = Callable[[], AbstractContextManager[None]]

ROOT = Path(__file__).resolve().parents[2]
HOME = Path(tempfile.mkdtemp(prefix="fds-airflow-"))
DAGS = HOME / "dags"

os.environ["AIRFLOW_HOME"] = str(HOME)
DAGS.mkdir()
(HOME / "airflow.cfg").write_text(
    textwrap.dedent(
        f"""
        [core]
        dags_folder = {DAGS}
        load_examples = False
        executor = LocalExecutor
        default_task_retry_delay = 1
        dags_are_paused_at_creation = False
        min_serialized_dag_update_interval = 0
        fernet_key = c2l4dHktZm91ciBieXRlcyBvZiBub3RoaW5nIHMhISE=
        simple_auth_manager_all_admins = True
        [api]
        base_url = http://fds.test
        [api_auth]
        jwt_secret = {"t" * 64}
        [database]
        sql_alchemy_conn = sqlite:///{HOME}/airflow.db
        [logging]
        logging_level = INFO
        base_log_folder = {HOME}/logs
        """
    )
)

#: Warnings of Airflow and its libraries about each other are ignored; those of FDS stay errors.
_WARNINGS = (
    "ignore::DeprecationWarning",
    "ignore::PendingDeprecationWarning",
    "ignore::UserWarning",
    "ignore::FutureWarning",
    "ignore::ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
    r"error:::airflow_provider_fds(\..*)?",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings(*_WARNINGS))


@pytest.fixture(scope="session", autouse=True)
def airflow_home() -> Iterator[Path]:
    """The home, removed at the end."""
    yield HOME
    with warnings.catch_warnings():
        # pipes that Airflow's hooks and supervisors leave open; pytest would find them when none of these filters
        # applies
        warnings.simplefilter("ignore")
        gc.collect()
    shutil.rmtree(HOME, ignore_errors=True)


@pytest.fixture(scope="session")
def airflow_database(airflow_home: Path) -> Path:
    """The metadata database, created once."""
    from airflow.utils.db import initdb

    # does what `airflow db migrate` does, without starting Airflow again
    initdb()
    return airflow_home / "airflow.db"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A folder with Delta tables, written by delta-rs."""
    return Lake(tmp_path / "lake")


class Lake:
    """Delta tables with columns ``id`` (int64) and ``name`` (string)."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def uri(self) -> str:
        """The folder's URI."""
        return self.root.as_uri()

    def append(self, table: str, *ids: int, **options: Any) -> int:
        """Append one row per id and return the version; ``options`` are those of ``write_deltalake``."""
        import deltalake
        import pyarrow as pa

        rows = pa.table({"id": pa.array(ids, pa.int64()), "name": [f"n{i}" for i in ids]})
        deltalake.write_deltalake(self.root / table, rows, mode="append", **options)
        return deltalake.DeltaTable(self.root / table).version()

    def delete(self, table: str, predicate: str) -> None:
        """Delete rows."""
        import deltalake

        deltalake.DeltaTable(self.root / table).delete(predicate)

    def restore(self, table: str, version: int) -> None:
        """Restore a table to a version, as RESTORE does."""
        import deltalake

        deltalake.DeltaTable(str(self.root / table)).restore(version)

    def ids(self, table: str) -> list[int]:
        """Return all ids of the table, sorted."""
        import deltalake

        return sorted(deltalake.DeltaTable(self.root / table).to_pyarrow_table().column("id").to_pylist())

    def exists(self, table: str) -> bool:
        """Whether the table exists."""
        return (self.root / table / "_delta_log").is_dir()


_SPARK = "AIRFLOW_CONN_SPARK_DEFAULT"
_SUBMIT = json.dumps({"conn_type": "spark", "host": "local[1]"})


@pytest.fixture(scope="session")
def spark_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A Spark Connect server for all tests: a load takes it one second of CPU time, and a spark-submit seven."""
    with running_server(tmp_path_factory.mktemp("connect"), **server_settings()) as running:
        yield running


@pytest.fixture
def on_server(installation: Installation, spark_server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> BySubmit:
    """Tasks load on a running server, except within the context that this fixture returns when it is called.

    For tests whose subject is not the start of Spark.
    """
    server = {"conn_type": "spark_connect", "host": "127.0.0.1", "port": spark_server.port}
    monkeypatch.setenv(_SPARK, json.dumps(server))

    @contextmanager
    def by_submit() -> Iterator[None]:
        with monkeypatch.context() as patch:
            patch.setenv(_SPARK, _SUBMIT)
            yield

    return by_submit


@pytest.fixture
def installation(airflow_database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Installation]:
    """An Airflow without DAGs and Variables, with its own staging and a local Spark."""
    monkeypatch.setenv("AIRFLOW__FDS__STAGING", (tmp_path / "staging").as_uri())
    monkeypatch.setenv(_SPARK, _SUBMIT)
    yield Installation()
    for file in DAGS.iterdir():
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    from airflow.models.variable import Variable
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    with create_session() as session:
        session.execute(delete(Variable))


class Installation:
    """Runs DAGs as ``dag.test()`` does: real database, real task processes, inline triggers."""

    def add(self, text: str) -> Any:
        """Put a DAG file into the DAG folder and return its only DAG."""
        return self._load(textwrap.dedent(text), f"dag_{uuid4().hex}.py")

    def add_example(self, name: str) -> Any:
        """Put the example ``dags/<name>.py`` into the DAG folder and return its DAG."""
        if not (DAGS / "jobs").exists():
            shutil.copytree(ROOT / "airflow_provider_fds" / "example_dags" / "jobs", DAGS / "jobs")
            shutil.copy(ROOT / "airflow_provider_fds" / "example_dags" / ".airflowignore", DAGS)
        examples = ROOT / "airflow_provider_fds" / "example_dags"
        for file in examples.glob(f"{name}_*.yaml"):
            shutil.copy(file, DAGS)
        return self._load((examples / f"{name}.py").read_text(), f"{name}.py")

    def _load(self, text: str, file_name: str) -> Any:
        try:
            from airflow.dag_processing.dagbag import DagBag
        except ImportError:
            # Airflow 3.1
            from airflow.models.dagbag import DagBag

        path = DAGS / file_name
        path.write_text(text)
        bag = DagBag(str(path))
        assert not bag.import_errors, bag.import_errors
        (dag,) = bag.dags.values()
        return dag

    def run(self, dag: Any, **kwargs: Any) -> Run:
        """Run the DAG once, to its end."""
        return Run(dag.test(**kwargs))

    def events(self, uri: str) -> list[dict[str, Any]]:
        """Return the extras of all events of an asset, oldest first."""
        from airflow.models.asset import AssetEvent, AssetModel
        from airflow.utils.session import create_session
        from sqlalchemy import select

        found = select(AssetEvent).join(AssetModel, AssetEvent.asset_id == AssetModel.id).where(AssetModel.uri == uri)
        with create_session() as session:
            return [event.extra for event in session.scalars(found.order_by(AssetEvent.id)).all()]

    def queued_dags(self) -> list[str]:
        """Return the DAGs for which an asset event has queued a run."""
        from airflow.models.asset import AssetDagRunQueue
        from airflow.utils.session import create_session
        from sqlalchemy import select

        with create_session() as session:
            return [row.target_dag_id for row in session.scalars(select(AssetDagRunQueue)).all()]


class Run:
    """The outcome of a DAG run."""

    def __init__(self, dag_run: Any) -> None:
        from airflow.models.taskinstance import TaskInstance
        from airflow.models.xcom import XComModel
        from airflow.utils.session import create_session
        from sqlalchemy import select

        self.run_id: str = dag_run.run_id
        self.dag_id: str = dag_run.dag_id
        with create_session() as session:
            of_run = (TaskInstance.dag_id == dag_run.dag_id, TaskInstance.run_id == dag_run.run_id)
            instances = session.scalars(select(TaskInstance).where(*of_run)).all()
            self.states = {(ti.task_id, ti.map_index): str(ti.state) for ti in instances}
            self.map_labels = {(ti.task_id, ti.map_index): ti.rendered_map_index for ti in instances}
            of_run = (XComModel.dag_id == dag_run.dag_id, XComModel.run_id == dag_run.run_id)
            values = session.scalars(select(XComModel).where(*of_run)).all()
            # as stored, without deserialize_value(), which would turn the text "2" into the number 2
            self.xcoms = {(xcom.task_id, xcom.map_index, xcom.key): xcom.value for xcom in values}

    def state(self, task_id: str, map_index: int = -1) -> str:
        """Return the state of a task instance."""
        return self.states[task_id, map_index]

    def xcom(self, task_id: str, key: str = "return_value", map_index: int = -1) -> Any:
        """Return an XCom, or ``None`` if it was not pushed."""
        return self.xcoms.get((task_id, map_index, key))


@pytest.fixture
def stand_at() -> Callable[..., None]:
    """Positions a stream after a version, as if runs had found no data up to there."""
    return _stand_at


def _stand_at(stream: DeltaStream, staging: str, table_id: str, version: int, *, deployment: str) -> None:
    """Position a stream after ``version``, as if runs had found no data up to there: ledger and checkpoint file."""
    from airflow_provider_fds.delta.storage.open import canonical_uri, open_storage
    from airflow_provider_fds.ledger.entries.epoch_entries import Created, Opened
    from airflow_provider_fds.ledger.entries.plan_entries import Advanced
    from airflow_provider_fds.ledger.owner import Actor, Owner
    from airflow_provider_fds.ledger.staging.log import Ledger
    from airflow_provider_fds.source.offset import Offset

    actor, end = Actor(deployment=deployment), Offset.after(version, table_id).to_json()
    ledger = Ledger(open_storage(staging), stream.name)
    state = ledger.find()
    if state.phase == "empty":
        table = canonical_uri(stream.table)
        ledger.execute(Created(uuid="u", name=stream.name, table=table, deployment=deployment), actor)
        ledger.execute(Opened(epoch=1, start=end, table_id=table_id), actor)
    elif state.position is not None and state.position != end:
        ledger.execute(
            Advanced(
                epoch=1,
                owner=Owner(kind="cli", deployment=deployment),
                start=state.position,
                end=end,
                first_version=Offset.from_json(state.position).version,
                last_version=version,
                skipped=(),
                log_digest="",
                last_commit_sha256="",
            ),
            actor,
        )
    Path(stream.checkpoint.removeprefix("file:")).write_text(ledger.checkpoint().to_json())


@pytest.fixture
def warehouse(monkeypatch: pytest.MonkeyPatch) -> Iterator[Warehouse]:
    """A PostgreSQL database that Airflow knows as the connection ``warehouse``."""
    if (problem := missing("psycopg")) is not None:
        pytest.skip(problem)
    with running_warehouse() as found:
        monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", found.uri)
        yield found


@pytest.fixture
def spark_on_path(monkeypatch, tmp_path):
    """Return a function that puts first on PATH a spark-submit that only prints its version."""

    def make(version="4.2.0", scala="2.13", name="spark-submit"):
        folder = tmp_path / f"spark-{version}-{scala}" / "bin"
        folder.mkdir(parents=True, exist_ok=True)
        program = folder / name
        program.write_text(f"#!/bin/sh\necho 'version {version}'\necho 'Using Scala version {scala}.18'\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        return str(program)

    return make
