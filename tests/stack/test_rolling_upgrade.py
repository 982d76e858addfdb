"""Airflow's processes with two versions of FDS: each row is loaded once, whichever is upgraded first.

The older version is a commit of this repository, read with ``git archive`` by ``make upgrade-test``.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from airflow_stack import AirflowStack

from tests.stack.conftest import Pipeline

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The folder of the older version.
OLD = os.environ.get("FDS_UPGRADE_FROM", "")

pytestmark = [
    pytest.mark.timeout(1200),
    pytest.mark.skipif(not OLD, reason="an older version is needed, which `make upgrade-test` reads from git"),
]

WORKERS, TRIGGERER = ("scheduler",), ("triggerer",)
OTHERS = ("api-server", "dag-processor")


class Rolling(AirflowStack):
    """An Airflow whose processes are moved from the older version to this one."""

    def use(self, version: str) -> None:
        """Choose the version of processes that are started from now on: ``old`` or ``new``."""
        self.env["PYTHONPATH"] = OLD if version == "old" else str(Path(__file__).parents[2])

    def upgrade(self, *names: str) -> None:
        """Kill processes and start them with this version."""
        self.use("new")
        for name in names:
            self.kill_process(name)
            self.start_process(name)
        self.wait(self.is_healthy, 300, f"{names} did not become healthy")


@contextmanager
def airflow_of_the_older_version(folder: Path, name: str) -> Iterator[tuple[Rolling, Pipeline]]:
    lake = folder / "lake"
    lake.mkdir()
    env = {
        "AIRFLOW_CONN_SPARK_DEFAULT": '{"conn_type": "spark", "host": "local[1]"}',
        "AIRFLOW__FDS__STAGING": str(lake / "staging"),
        "FDS_TEST_LAKE": str(lake),
        # `python -m airflow` would take the package from this folder
        "PYTHONSAFEPATH": "1",
        # dead processes are noticed within seconds
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "15",
        "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
        "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "10",
        "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "3",
    }
    stack = Rolling(folder / "airflow", Path(__file__).with_name("dags_of_two_versions"), env=env)
    stack.use("old")
    with stack:
        pipeline = Pipeline(stack, name, lake)
        pipeline.create()
        yield stack, pipeline


def load(pipeline: Pipeline, run: str) -> None:
    pipeline.wait_for_state(run, "ingest", "success")


def deferred(pipeline: Pipeline) -> str:
    """Start a run and return it once it waits in the triggerer."""
    run = pipeline.start()
    pipeline.wait_for_state(run, "wait", "deferred")
    return run


def was_of(pipeline: Pipeline, version: str) -> bool:
    """Return whether the workers of the newest run had a version."""
    file = (pipeline.lake / f"{pipeline.name}.version").read_text()
    return file.startswith(OLD) == (version == "old")


def has_loaded(pipeline: Pipeline, rows: int) -> None:
    verdict = pipeline.verdict()
    assert (verdict.problems, verdict.keys.sink_rows) == ((), rows)


def test_a_trigger_of_the_older_version_wakes_in_the_new_triggerer_and_then_the_workers_follow(tmp_path):
    with airflow_of_the_older_version(tmp_path, "triggerer_first") as (stack, pipeline):
        pipeline.append(1, 2, 3)
        load(pipeline, pipeline.start())
        has_loaded(pipeline, 3)
        assert was_of(pipeline, "old")

        run = deferred(pipeline)
        stack.upgrade(*TRIGGERER)
        pipeline.append(4, 5)
        load(pipeline, run)
        has_loaded(pipeline, 5)

        run = deferred(pipeline)
        stack.upgrade(*WORKERS, *OTHERS)
        pipeline.append(6)
        load(pipeline, run)
        pipeline.append(7)
        load(pipeline, pipeline.start())
        assert was_of(pipeline, "new")
        has_loaded(pipeline, 7)


def test_a_trigger_of_the_new_workers_waits_in_the_older_triggerer(tmp_path):
    with airflow_of_the_older_version(tmp_path, "workers_first") as (stack, pipeline):
        pipeline.append(1, 2, 3)
        load(pipeline, pipeline.start())

        stack.upgrade(*WORKERS)
        run = deferred(pipeline)
        assert was_of(pipeline, "new")
        pipeline.append(4, 5)
        load(pipeline, run)
        has_loaded(pipeline, 5)

        stack.upgrade(*TRIGGERER, *OTHERS)
        pipeline.append(6)
        load(pipeline, pipeline.start())
        has_loaded(pipeline, 6)


def test_a_run_whose_worker_is_upgraded_while_spark_works_is_finished_by_the_new_one(tmp_path):
    with airflow_of_the_older_version(tmp_path, "driver_between") as (stack, pipeline):
        for row in range(30):
            pipeline.append(row)
        run = pipeline.start()
        sink = pipeline.lake / "driver_between_sink" / "_delta_log"
        stack.wait(lambda: sink.is_dir() and len(list(sink.glob("*.json"))) > 3, 240, "no batch was written")
        stack.upgrade(*WORKERS)
        load(pipeline, run)
        has_loaded(pipeline, 30)
        assert pipeline.task(run, "ingest")["try_number"] > 1
