"""The Spark application: ``job.py <uri of a job spec>`` loads planned batches, in order, into one sink.

``job.py <uri of a fleet spec>`` does that for many streams at once (``fleet_job.py``).

It imports only the standard library, pyspark and its own zip, and is written for Python 3.9 and Spark 3.5. For each
batch it writes a marker before it touches the sink and a report when it is done. It stops at the first batch that is
not done and verified, because a later transaction would make the earlier one unwritable. Its reports decide nothing:
the ledger does.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
from contextlib import suppress
from typing import Any, Sequence, Union

from airflow_provider_fds.batch.fleet_spec import FleetSpec, is_fleet
from airflow_provider_fds.batch.spec import JobSpec
from airflow_provider_fds.spark.application.batch_attempt import BatchAttempt
from airflow_provider_fds.spark.application.fleet_job import report_unstarted
from airflow_provider_fds.spark.application.job_run import (
    EXIT_FAILED,
    EXIT_FAILED_RETRYABLE,
)
from airflow_provider_fds.spark.application.lingering import run_lingering
from airflow_provider_fds.spark.application.progress import tell_ui_address
from airflow_provider_fds.spark.runtime.attempt_identity import is_in_cluster
from airflow_provider_fds.spark.runtime.driver_versions import no_session
from airflow_provider_fds.spark.runtime.failures import explain
from airflow_provider_fds.spark.runtime.hadoop_files import hadoop_path, local_path, read_bytes

#: How long Spark may take to stop.
_END_SECONDS = 60
_WATCH_SECONDS = 1.0
#: As of a process that SIGTERM has ended.
_KILLED = 143


def main(argv: Sequence[str]) -> int:
    """Run the job that ``argv[0]`` names, and return the exit code.

    0: every batch is done and verified (or the time is up). 10: stopped at a failed batch, a retry may help. 11: a
    retry will not help. 12: a batch is in the sink but differs from the plan. For a fleet, 0 says only that it ran.
    """
    _leave_own_folder()
    _end_with_the_jvm()
    if len(argv) != 1:
        print("usage: job.py <uri of the job spec>", file=sys.stderr)
        return EXIT_FAILED
    uri = argv[0]
    spark: Any = None
    spec: Union[JobSpec, FleetSpec, None] = None
    read = FleetSpec.from_file if is_fleet(uri) else JobSpec.from_file
    try:
        # an unreadable local spec is found before the cost of starting a session
        path = hadoop_path(uri)
        if local_path(path) is not None:
            spec = read(uri, read_bytes(path))
        try:
            spark = _session()
        except Exception as e:  # noqa: BLE001 - any error is reported
            return _unstarted(spec, no_session(e))
        if spec is None:
            spec = read(uri, read_bytes(hadoop_path(uri, spark), spark))
    except (OSError, ValueError, TypeError) as e:
        print(f"FDS cannot read the {'fleet' if is_fleet(uri) else 'job'} spec {uri}: {e}", file=sys.stderr)
        return _leave(spark, EXIT_FAILED)
    tell_ui_address(spark)
    return _leave(spark, run_lingering(spark, spec, uri))


def _unstarted(spec: Union[JobSpec, FleetSpec, None], error: Exception) -> int:
    """Print why there is no session; also report it if staging is local: other files are reached through Spark."""
    failure = explain(error)
    if isinstance(spec, FleetSpec):
        print(f"FDS has no session: {failure.error_class}: {failure.message}", flush=True)
        report_unstarted(spec, error)
    elif spec is None or spec.fence is not None:
        print(f"FDS has no session: {failure.error_class}: {failure.message}", flush=True)
    else:
        work = BatchAttempt(None, spec, spec.batches[0])
        work.report(work.failed(error))
    return EXIT_FAILED_RETRYABLE if failure.retryable else EXIT_FAILED


def _leave_own_folder() -> None:
    """Remove this file's folder from the path, so that imports do not find the modules beside this file."""
    own = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - sys.path has texts
    if sys.path and os.path.abspath(sys.path[0]) == own and os.path.exists(f"{own}/batch_attempt.py"):  # noqa: PTH100, PTH110
        del sys.path[0]


def _end_with_the_jvm() -> None:
    """End this process when its JVM has ended, if a JVM started it: a cluster that kills a driver kills only that."""
    jvm = os.getppid()
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return

    def watch() -> None:
        while os.getppid() == jvm:
            time.sleep(_WATCH_SECONDS)
        os._exit(_KILLED)

    threading.Thread(target=watch, name="fds-jvm", daemon=True).start()


def _session() -> Any:
    # pyspark itself warns at import if pandas 3 is installed; no pandas is used here
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
    from pyspark.sql import SparkSession

    return SparkSession.builder.appName("fds").getOrCreate()


def _leave(spark: Any, code: int) -> int:
    """End this process and its JVM: everything is written and reported.

    Neither waits for threads, as ``sys.exit`` and the end of ``main`` in the JVM would: a thread pool of a library that
    nobody shuts down, or a thread of a function that hangs, would keep the application for ever.
    """
    if spark is None:
        return code
    sys.stdout.flush()
    sys.stderr.flush()
    ending = threading.Thread(target=_end_spark, args=(spark, code), daemon=True)
    ending.start()
    ending.join(_END_SECONDS)
    os._exit(code)


def _end_spark(spark: Any, code: int) -> None:
    context, jvm = spark.sparkContext, spark._jvm
    # YARN's application master ends the JVM itself, and would take this for a failure
    is_client = not is_in_cluster(spark)
    if not context.master.startswith("local"):
        spark.stop()
    if is_client:
        # in local mode, Spark's shutdown hook stops the session faster; the only answer is a closed connection
        with suppress(Exception):
            jvm.java.lang.System.exit(code)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
