"""FDS in a real Airflow: four processes, a triggerer that waits, spark-submit, and things that die in between."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import psutil
import pytest

# less than a minute each on two free cores, starting Airflow included; a busy machine may take its time
pytestmark = pytest.mark.timeout(900)


def named(name: str):
    return pytest.mark.parametrize("pipeline", [name], indirect=True, ids=[name])


@named("grows")
def test_a_run_loads_what_is_there_and_the_next_one_defers_until_there_is_more(pipeline):
    first_version = pipeline.append(1, 2, 3)

    first = pipeline.start()
    pipeline.wait_for_state(first, "ingest", "success")

    assert pipeline.committed_version() == first_version
    verdict = pipeline.verdict()
    assert (verdict.problems, verdict.keys.sink_rows, verdict.num_batches) == ((), 3, 1)

    second = pipeline.start()
    pipeline.wait_for_state(second, "wait", "deferred")
    second_version = pipeline.append(4, 5)
    pipeline.wait_for_state(second, "ingest", "success")

    assert pipeline.committed_version() == second_version
    verdict = pipeline.verdict()
    assert (verdict.problems, verdict.keys.sink_rows, verdict.num_batches) == ((), 5, 2)

    events = pipeline.stack.client.asset_events(pipeline.name)
    told = [[event["extra"][key] for key in ("first_version", "last_version", "rows")] for event in events]
    assert told == [[0, 0, 3], [1, 1, 2]]
    assert events[0]["uri"].endswith("grows_sink")


# D30
@named("spark_dies")
def test_a_killed_spark_job_is_tried_again_and_its_rows_are_there_once(pipeline):
    pipeline.append(1, 2, 3)
    pipeline.append(4, 5)

    run = pipeline.start()
    started = "staging/spark_dies/tries/*/*/*.started.json"
    pipeline.stack.wait(lambda: list(pipeline.lake.glob(started)), 240, "the job did not begin to write")
    jvm = [process for process in pipeline.stack.processes() if is_job(process)]
    assert len(jvm) == 1
    os.kill(jvm[0].pid, signal.SIGKILL)
    pipeline.wait_for_state(run, "ingest", "success")

    assert pipeline.task(run, "ingest")["try_number"] == 2
    verdict = pipeline.verdict()
    assert (verdict.problems, verdict.keys.sink_rows, verdict.num_batches) == ((), 5, 1)


# D30
@pytest.mark.parametrize(
    ("pipeline", "process"),
    [("triggerer_dies", "triggerer"), ("scheduler_dies", "scheduler")],
    indirect=["pipeline"],
    ids=["triggerer", "scheduler"],
)
def test_a_wait_goes_on_in_the_next_triggerer_or_scheduler_when_one_dies(pipeline, process):
    pipeline.create()
    empty = pipeline.start()
    pipeline.wait_for_state(empty, "ingest", "skipped")

    run = pipeline.start()
    pipeline.wait_for_state(run, "wait", "deferred")
    pipeline.stack.kill_process(process)
    version = pipeline.append(1, 2)
    pipeline.stack.start_process(process)
    pipeline.wait_for_state(run, "ingest", "success")

    assert pipeline.committed_version() == version
    assert pipeline.verdict().problems == ()


def is_job(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return process.name() == "java" and "org.apache.spark.deploy.SparkSubmit" in process.cmdline()
    return False
