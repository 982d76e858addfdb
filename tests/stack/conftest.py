"""The four real processes of Airflow, once for all tests of this folder, and tables for it to load."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

# the demo needs the same; its pieces are scripts, not a package
sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from airflow_stack import AirflowStack, StackError, readable_log
from demo_verdict import Verdict, judge

from airflow_provider_fds.fault_points import ASKED_BY, ASKED_LATER, MARKS_IN

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = pa.schema([("id", pa.int64()), ("word", pa.string())])


@dataclass(frozen=True)
class Pipeline:
    """A DAG of ``dags/streams.py`` with its tables, seen from outside."""

    stack: AirflowStack
    name: str
    lake: Path

    @property
    def source(self) -> Path:
        return self.lake / self.name

    @property
    def ledger(self) -> Path:
        return self.lake / "staging" / self.name / "ledger"

    def create(self) -> None:
        """Create the source: version 0, without rows."""
        DeltaTable.create(self.source, schema=SCHEMA)

    def append(self, *ids: int) -> int:
        """Commit rows to the source and return the version."""
        write_deltalake(self.source, pa.table({"id": ids, "word": [str(i) for i in ids]}, SCHEMA), mode="append")
        return DeltaTable(self.source).version()

    def start(self) -> str:
        """Start a run of the DAG and return its id."""

        def is_known() -> bool:
            assert not (errors := self.stack.client.import_errors()), errors[0]
            return self.stack.client.has_dag(self.name)

        self.stack.wait(is_known, 90, f"DAG {self.name} was not found")
        return self.stack.client.trigger(self.name)

    def task(self, run: str, task_id: str) -> dict[str, Any]:
        return self.stack.client.tasks(self.name, run)[task_id]

    def wait_for_state(self, run: str, task_id: str, state: str, seconds: float = 240) -> None:
        """Wait for a state of a task; if the task fails or takes too long, show its output."""
        over = {"failed", "upstream_failed", "skipped", "success"}
        with suppress(StackError):
            self.stack.wait(lambda: self.task(run, task_id)["state"] in {state, *over}, seconds, "")
        now = self.task(run, task_id)["state"]
        assert now == state, f"{self.name}.{task_id} is {now}, not {state} after {seconds} s:\n{self.log(run, task_id)}"

    def log(self, run: str, task_id: str) -> str:
        number = max(self.task(run, task_id)["try_number"], 1)
        return readable_log(self.stack.task_log(self.name, run, task_id, number), 80)

    def committed_version(self) -> int:
        """The newest committed version, according to the Variable that people see."""
        values = [v for key, v in self.stack.client.variables().items() if key.endswith(self.name)]
        assert len(values) == 1, f"one Variable for stream {self.name}: {self.stack.client.variables()}"
        offset = json.loads(values[0])["offset"]
        return (json.loads(offset) if isinstance(offset, str) else offset)["reservoirVersion"] - 1

    def verdict(self) -> Verdict:
        return judge(self.source, self.lake / f"{self.name}_sink", self.ledger, "id")


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("a lake")


@pytest.fixture(scope="session")
def marks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which a process finds its requested fault, and leaves a mark."""
    return tmp_path_factory.mktemp("marks")


@pytest.fixture(scope="session")
def stack(lake: Path, marks: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowStack]:
    env = {
        "AIRFLOW_CONN_SPARK_DEFAULT": '{"conn_type": "spark", "host": "local[1]"}',
        "AIRFLOW__FDS__STAGING": str(lake / "staging"),
        "FDS_TEST_LAKE": str(lake),
        # faults are requested one by one, see continuous.py
        ASKED_BY: ASKED_LATER,
        MARKS_IN: str(marks),
        # dead processes are noticed within seconds
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "15",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
        "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "10",
        "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "3",
        # Spark holds the pipes of a killed task
        "AIRFLOW__WORKERS__SOCKET_CLEANUP_TIMEOUT": "2",
    }
    with AirflowStack(tmp_path_factory.mktemp("airflow"), Path(__file__).with_name("dags"), env=env) as stack:
        yield stack


@pytest.fixture
def pipeline(request: pytest.FixtureRequest, stack: AirflowStack, lake: Path) -> Pipeline:
    return Pipeline(stack, request.param, lake)
