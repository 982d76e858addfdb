"""Watchers of assets in the real triggerer, on PostgreSQL: killed between poll and event, and a thousand of them."""

from __future__ import annotations

import json
import time
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
from airflow.triggers.base import BaseEventTrigger
from airflow_stack import AirflowStack
from deltalake import DeltaTable, write_deltalake

from airflow_provider_fds.fault_points import ASKED_BY, ASKED_LATER, MARKS_IN
from tests.postgresql import missing, postgresql

pytestmark = [
    pytest.mark.timeout(900),
    pytest.mark.skipif(missing("psycopg2", "asyncpg") is not None, reason=str(missing("psycopg2", "asyncpg"))),
    pytest.mark.skipif(
        not hasattr(BaseEventTrigger, "create_shared_stream_producer"), reason="this Airflow has no shared streams"
    ),
]

TABLES = ("killed", "first", "second", "many")


class Watching:
    """The stack, its tables, and what its database says."""

    def __init__(self, stack: AirflowStack, lake: Path, marks: Path, url: str) -> None:
        self.stack = stack
        self.lake = lake
        self.marks = marks
        self._url = url.replace("+psycopg2", "")

    def append(self, table: str) -> int:
        write_deltalake(self.lake / table, pa.table({"id": [1, 2, 3]}), mode="append")
        return DeltaTable(self.lake / table).version()

    def select(self, query: str, *values: object) -> list[tuple]:
        import psycopg2

        connection = psycopg2.connect(self._url)
        try:
            with connection.cursor() as cursor:
                cursor.execute(query, values)
                return cursor.fetchall()
        finally:
            connection.close()

    def versions(self, asset: str) -> list[int]:
        """The last versions of the asset's events, in their order."""
        found = self.select(
            "select e.extra from asset_event e join asset a on a.id = e.asset_id where a.name like %s order by e.id",
            asset,
        )
        return [extra["payload"]["last_version"] for (extra,) in found]

    def cursors(self, asset: str) -> list[int]:
        found = self.select(
            "select s.value from asset_state_store s join asset a on a.id = s.asset_id where a.name like %s", asset
        )
        return sorted(json.loads(value)["version"] for (value,) in found)

    def wait(self, is_reached, what: str, seconds: float = 120):
        return self.stack.wait(is_reached, seconds, what)

    def unpause(self, dag: str) -> None:
        self.wait(lambda: self.stack.client.has_dag(dag), f"DAG {dag} was not found")
        self.stack.client.unpause(dag)
        # a DAG that was paused has its watchers once its file is parsed again
        self.stack.kill_process("dag-processor")
        self.stack.start_process("dag-processor")

    def triggerer_that_died_is_replaced(self, fault: str) -> None:
        triggerer = self.stack._processes["triggerer"]
        self.wait((self.marks / fault).exists, f"{fault} was not reached")
        self.wait(lambda: triggerer.poll() is not None, "the triggerer goes on without its runner")
        self.stack.start_process("triggerer")


@pytest.fixture(scope="module")
def watching(tmp_path_factory):
    lake, marks = tmp_path_factory.mktemp("lake"), tmp_path_factory.mktemp("marks")
    for table in TABLES:
        write_deltalake(lake / table, pa.table({"id": [0]}))
    env = {
        "FDS_TEST_LAKE": str(lake),
        "AIRFLOW__FDS__STAGING": str(lake / "staging"),
        ASKED_BY: ASKED_LATER,
        MARKS_IN: str(marks),
        "AIRFLOW__TRIGGERER__CAPACITY": "1500",
    }
    with postgresql() as url:
        env["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] = url
        home, dags = tmp_path_factory.mktemp("airflow"), Path(__file__).with_name("dags_watching")
        with AirflowStack(home, dags, env=env) as stack:
            yield Watching(stack, lake, marks, url)


def test_a_triggerer_that_is_killed_loses_nothing_and_fires_once_more_at_most(watching):
    watching.wait(lambda: watching.cursors("killed") == [0] and watching.cursors("both") == [0, 0], "no cursor")
    # a process reads its faults when it starts
    (watching.marks / ASKED_LATER).write_text("kill@watcher.found,kill@watcher.stored")
    watching.stack.kill_process("triggerer")
    watching.stack.start_process("triggerer")

    watching.append("killed")
    watching.triggerer_that_died_is_replaced("kill@watcher.found")
    assert watching.versions("killed") == []
    # the event is stored, then the runner dies before the cursor moves
    watching.triggerer_that_died_is_replaced("kill@watcher.stored")
    assert watching.versions("killed") == [1]
    watching.wait(lambda: watching.cursors("killed") == [1], "the cursor does not move")
    assert watching.versions("killed") == [1, 1]

    watching.stack.kill_process("triggerer")
    watching.append("killed")
    watching.append("killed")
    watching.stack.start_process("triggerer")
    watching.wait(lambda: watching.cursors("killed") == [3], "what came while no triggerer ran is lost")
    watching.stack.kill_process("triggerer")
    watching.stack.start_process("triggerer")
    watching.append("first")
    watching.wait(lambda: watching.cursors("both") == [0, 1], "the watcher of the other table does not fire")
    watching.append("second")
    watching.wait(lambda: watching.cursors("both") == [1, 1], "the second watcher of an asset does not fire")
    assert watching.versions("killed") == [1, 1, 3]
    assert watching.versions("both") == [1, 1]

    def told() -> list[int]:
        runs = [run["dag_run_id"] for run in watching.stack.client.runs("killed")]
        if any(watching.stack.client.run_state("killed", run) != "success" for run in runs):
            return []
        return [version for run in runs for version in watching.stack.client.xcom("killed", run, "versions")]

    # an event may be in the run of the one before it
    watching.wait(lambda: sorted(told()) == [1, 1, 3], "the runs were not told of each version")
    assert len(watching.stack.client.runs("killed")) <= 3

    # its stream has committed nothing
    watching.unpause("started")
    watching.wait(lambda: watching.versions("started") == [1], "the watcher of a stream does not fire")


def test_a_thousand_watchers_run_in_one_triggerer(watching):
    watching.unpause("many")
    watching.wait(lambda: watching.cursors("many-%") == [0] * 1000, "not all watchers started", 240)
    began = time.monotonic()
    before = cpu_seconds(watching.stack)
    time.sleep(20)
    idle = (cpu_seconds(watching.stack) - before) / (time.monotonic() - began)
    began = time.monotonic()
    watching.append("many")
    watching.wait(lambda: len(watching.versions("many-%")) == 1000, "not all watchers fired", 240)
    fired = time.monotonic() - began
    watching.wait(lambda: watching.cursors("many-%") == [1] * 1000, "not all cursors moved", 240)
    moved = time.monotonic() - began
    assert watching.versions("many-%") == [1] * 1000
    print(f"1,000 watchers: idle {idle:.3f} CPU, all events after {fired:.1f} s, all cursors after {moved:.1f} s")


def cpu_seconds(stack: AirflowStack) -> float:
    """CPU of the process that runs the triggers."""
    leader = psutil.Process(stack._processes["triggerer"].pid)
    return sum(sum(one.cpu_times()[:2]) for one in [leader, *leader.children(recursive=True)])
