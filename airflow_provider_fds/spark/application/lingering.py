"""A driver that lingers: once its job is done, it waits for the next one of the run. Python 3.9 syntax."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, Optional, Tuple, Union

from airflow_provider_fds.batch.fleet_spec import FleetSpec, fleet_attempt, is_fleet
from airflow_provider_fds.batch.next_job import KEY_SETTING, next_job_name, read_next_job
from airflow_provider_fds.batch.spec import JobSpec
from airflow_provider_fds.spark.application.fleet_job import run_fleet
from airflow_provider_fds.spark.application.job_run import EXIT_DONE, EXIT_FAILED, EXIT_FAILED_RETRYABLE, run
from airflow_provider_fds.spark.runtime.failures import shortened
from airflow_provider_fds.spark.runtime.hadoop_files import exists, hadoop_path, local_path, read_bytes
from airflow_provider_fds.spark.writers.after_commit import AFTER_COMMITS

#: Time between two looks for the next job: where it costs a system call, and where it costs a request.
_LOCAL_SECONDS = 0.02
_REMOTE_SECONDS = 0.5
#: How long a log checkpoint of the sink may take at the end.
_END_SECONDS = 60.0


def run_lingering(spark: Any, spec: Union[JobSpec, FleetSpec], spec_uri: str) -> int:
    """Run a job or a fleet, then each next one of its run, in one application; return the exit code of the last one.

    It ends with the first job that is not done, because what was given up may still be running. It also ends when the
    run says that there is no other job, and when none has come in the time of the spec: the worker may be gone.
    Then it still waits for what Delta does after the last commit.
    """
    try:
        return _run_jobs(spark, spec, spec_uri)
    finally:
        AFTER_COMMITS.wait(_END_SECONDS)


def _run_jobs(spark: Any, spec: Union[JobSpec, FleetSpec], spec_uri: str) -> int:
    key = spark.sparkContext.getConf().get(KEY_SETTING)
    while True:
        code, is_done = _run(spark, spec)
        if not is_done or spec.linger_seconds is None or key is None or _is_late(spec):
            return code
        try:
            found = _next(spark, spec, spec_uri, key)
            if found is None:
                return code
            read = FleetSpec.from_file if is_fleet(found) else JobSpec.from_file
            spec_uri, spec = found, read(found, read_bytes(hadoop_path(found, spark), spark))
        except (ValueError, TypeError) as error:
            print(f"FDS cannot go on with the next job: {error}", flush=True)
            return EXIT_FAILED
        except Exception as error:  # noqa: BLE001 - py4j's, or of the file system: a new attempt works on
            print(f"FDS cannot read the next job: {shortened(str(error))}", flush=True)
            return EXIT_FAILED_RETRYABLE


def _run(spark: Any, spec: Union[JobSpec, FleetSpec]) -> Tuple[int, bool]:
    """Run the jobs of a spec; return the exit code, and whether everything is done."""
    if isinstance(spec, FleetSpec):
        # of a fleet, the code says only that it ran
        return EXIT_DONE, all(ended == "done" for ended in run_fleet(spark, spec).values())
    code = run(spark, spec)
    return code, code == EXIT_DONE


def _is_late(spec: Union[JobSpec, FleetSpec]) -> bool:
    """Whether the time of the run is over, so that it has no other job."""
    return spec.stop_after_ms is not None and time.time() * 1000 >= spec.stop_after_ms


def _next(spark: Any, spec: Union[JobSpec, FleetSpec], spec_uri: str, key: str) -> Optional[str]:
    """Wait for the next job and return its URI, ``None`` if there is none."""
    folder = hadoop_path(spec_uri, spark).rpartition("/")[0]
    attempt_id = fleet_attempt(spec_uri) if isinstance(spec, FleetSpec) else spec.attempt_id
    path = f"{folder}/{next_job_name(attempt_id)}"
    pause = _REMOTE_SECONDS if local_path(path) is None else _LOCAL_SECONDS
    limit = time.monotonic() + (spec.linger_seconds or 0.0)
    while not exists(path, spark):
        if time.monotonic() > limit:
            print(f"FDS has waited {spec.linger_seconds:.0f} s for another job, and ends", flush=True)
            return None
        time.sleep(pause)
    with suppress(FileNotFoundError):
        return read_next_job(read_bytes(path, spark), attempt_id, key)
    return None
