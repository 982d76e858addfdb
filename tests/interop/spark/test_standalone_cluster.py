"""The same job on a standalone cluster: a master, two workers, executors that get JARs from the driver."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from concurrent.futures import Future
from contextlib import contextmanager

import pytest

from airflow_provider_fds.spark.application.job import EXIT_FAILED
from airflow_provider_fds.spark.installation.install import bundled_spark_home
from airflow_provider_fds.spark.submission.launch import run_locally
from tests.compose import command

pytestmark = pytest.mark.timeout(900)


@contextmanager
def daemon(folder, sign, command):
    """A process of Spark's own; yields a future of the match, once its log matches ``sign``."""
    home = bundled_spark_home()
    env = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder / "work"),
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    process = subprocess.Popen(
        [str(home / "bin" / command[0]), *command[1:]],
        env=env,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )

    seen = Future()

    def drain() -> None:
        log = ""
        with process.stderr:
            for line in process.stderr:
                log += line
                if not seen.done() and (found := re.search(sign, log, re.DOTALL)):
                    seen.set_result(found)

    reader = threading.Thread(target=drain)
    reader.start()
    try:
        yield seen
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        reader.join()


@pytest.fixture
def master(tmp_path):
    """URL of a master that has two workers of one core each."""
    leader = command("spark-master", {"spark-master": "127.0.0.1", "7077": "0", "8081": "0"})
    with daemon(tmp_path, r"Starting Spark master at (spark://\S+:(\d+)).*I have been elected leader", leader) as up:
        url, port = up.result(300).groups()
        worker = command("spark-worker", {"spark-master": "127.0.0.1", "7077": port})
        # a container has a name of its own to bind to
        worker = [*worker[:2], "--host", "127.0.0.1", *worker[2:]]
        sign = "Successfully registered with master"
        with daemon(tmp_path, sign, worker) as one, daemon(tmp_path, sign, worker) as other:
            one.result(300)
            other.result(300)
            yield url


def test_a_standalone_cluster_loads_the_same_batches_and_its_driver_says_how_it_ended(
    stream_of_a_copy, master, tmp_path
):
    stream = stream_of_a_copy
    batches = stream.plan()
    max(stream.source.glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns).unlink()
    spec = stream.job(*batches)
    lines = []
    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    code = run_locally(stream.save(spec), master=master, conf=conf, on_line=lines.append)
    # the files of the last batch are gone: a retry does not help
    assert code == EXIT_FAILED, lines
    *done, failed = stream.read_reports(spec)
    assert [(report.outcome, report.rows_written) for report in done] == [("written", 10)] * 2
    assert failed.error_class == "FAILED_READ_FILE.FILE_NOT_EXIST"
    assert len(stream.sink_commits()) == 2
    # both workers had an executor of the application
    assert len(list(tmp_path.glob("work/app-*/*"))) == 2
