"""Drivers in a standalone cluster, and a real Airflow whose processes die while they run."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.stack.conftest import Pipeline
from tests.standalone_cluster import running

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_stack import AirflowStack

pytestmark = pytest.mark.timeout(900)


def test_a_driver_outlives_its_worker_or_is_left_by_it_while_the_triggerer_dies_and_no_other_one_is_started(
    stack: AirflowStack, lake: Path, tmp_path: Path
):
    kept, left = (Pipeline(stack, name, lake) for name in ("keeps_worker", "leaves_worker"))
    for pipeline in (kept, left):
        (lake / f"{pipeline.name}_marks").mkdir()
        pipeline.append(1, 2, 3)
    with running(tmp_path, workers=2, cores=2) as cluster:
        host, port = cluster.master.rsplit(":", 1)
        connection = {"connection_id": "cluster", "conn_type": "spark", "host": host, "port": int(port)}
        stack.client.call(
            "POST", "/api/v2/connections", body={**connection, "extra": f'{{"rest-port": {cluster.rest_port}}}'}
        )
        runs = {pipeline.name: pipeline.start() for pipeline in (kept, left)}
        drivers = {pipeline.name: stopped_driver(pipeline) for pipeline in (kept, left)}
        left.wait_for_state(runs["leaves_worker"], "ingest", "deferred")
        assert kept.task(runs["keeps_worker"], "ingest")["state"] == "running"

        stack.lose_worker()
        stack.kill_process("triggerer")
        stack.start_process("triggerer")
        stack.start_process("scheduler")
        finds = "was started before, for the same batches"
        stack.wait(lambda: finds in kept.log(runs["keeps_worker"], "ingest"), 240, "no attempt has found the driver")
        for driver in drivers.values():
            os.kill(driver, signal.SIGCONT)

        for pipeline, tries in ((kept, 2), (left, 1)):
            pipeline.wait_for_state(runs[pipeline.name], "ingest", "success")
            assert pipeline.task(runs[pipeline.name], "ingest")["try_number"] == tries
            verdict = pipeline.verdict()
            assert (verdict.problems, verdict.keys.sink_rows, verdict.num_batches) == ((), 3, 1)
        assert len(list(cluster.work.glob("driver-*"))) == 2


def stopped_driver(pipeline: Pipeline) -> int:
    """Wait until the driver stands still before its write; return its process id."""
    mark = pipeline.lake / f"{pipeline.name}_marks" / "stop@driver.commit.before"
    return int(pipeline.stack.wait(lambda: mark.exists() and mark.read_text(), 240, f"{pipeline.name} has no driver"))
