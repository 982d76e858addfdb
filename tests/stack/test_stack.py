"""FDS in a real Airflow: four processes, a triggerer that waits, spark-submit, and things that die in between."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import psutil
import pytest


def named(name: str):
    return pytest.mark.parametrize("pipeline", [name], indirect=True, ids=[name])


@named("grows")
def test_a_deferred_run_wakes_for_a_commit_and_the_next_run_loads_the_next_commit_only(pipeline):
    pipeline.create()

    first = pipeline.start()
    pipeline.wait_for_state(first, "wait", "deferred")
    version = pipeline.append(1, 2, 3)
    pipeline.wait_for_state(first, "ingest", "success")

    assert pipeline.committed_version() == version
    verdict = pipeline.verdict()
    assert (verdict.problems, verdict.keys.sink_rows, verdict.num_batches) == ((), 3, 1)

    second = pipeline.start()
    pipeline.wait_for_state(second, "wait", "deferred")
    version = pipeline.append(4, 5)
    pipeline.wait_for_state(second, "ingest", "success")

    assert pipeline.committed_version() == version
    verdict = pipeline.verdict()
    assert (verdict.problems, verdict.keys.sink_rows, verdict.num_batches) == ((), 5, 2)

    events = pipeline.stack.client.asset_events(pipeline.name)
    told = [[event["extra"][key] for key in ("first_version", "last_version", "rows")] for event in events]
    assert told == [[0, 1, 3], [2, 2, 2]]
    assert events[0]["uri"].endswith("grows_sink")


@named("spark_dies")
def test_a_killed_spark_job_is_tried_again_and_its_rows_are_there_once(pipeline):
    pipeline.create()
    pipeline.append(1, 2, 3)
    pipeline.append(4, 5)

    run = pipeline.start()
    started = "staging/spark_dies/tries/*/*/*.started.json"
    pipeline.stack.wait(lambda: list(pipeline.lake.glob(started)), 90, "the job did not begin to write")
    jvm = [process for process in pipeline.stack.processes() if is_job(process)]
    assert len(jvm) == 1
    os.kill(jvm[0].pid, signal.SIGKILL)
    pipeline.wait_for_state(run, "ingest", "success", 150)

    assert pipeline.task(run, "ingest")["try_number"] == 2
    verdict = pipeline.verdict()
    assert (verdict.problems, verdict.keys.sink_rows, verdict.num_batches) == ((), 5, 1)


@named("triggerer_dies")
def test_a_wait_goes_on_in_the_next_triggerer_when_one_dies(pipeline):
    pipeline.create()

    run = pipeline.start()
    pipeline.wait_for_state(run, "wait", "deferred")
    pipeline.stack.kill_process("triggerer")
    version = pipeline.append(1, 2)
    pipeline.stack.start_process("triggerer")
    pipeline.wait_for_state(run, "ingest", "success", 150)

    assert pipeline.committed_version() == version
    assert pipeline.verdict().problems == ()


def is_job(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.name() == "java" and "org.apache.spark.deploy.SparkSubmit" in process.cmdline()
    return False
