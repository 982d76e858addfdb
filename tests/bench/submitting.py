"""One micro-batch by spark-submit: FDS's start compared with the same read and append written by hand."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HAND_WRITTEN = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
source, sink = sys.argv[1:3]
spark.read.format("delta").load(source).write.format("delta").mode("append").save(sink)
spark.stop()
"""


def prepare(root: str) -> None:
    """Write a table of five small files in five commits, and the program that a person would write."""
    import pyarrow as pa
    from deltalake import write_deltalake

    for number in range(5):
        ids = list(range(number * 1000, number * 1000 + 1000))
        write_deltalake(f"{root}/source", pa.table({"id": ids, "v": [str(i) for i in ids]}), mode="append")
    Path(root, "hand_written.py").write_text(HAND_WRITTEN)


def by_fds(root: str) -> dict[str, Any]:
    """Run the job of one batch with FDS's own spark-submit, from the planned batch to the report."""
    from airflow_provider_fds.ledger.owner import Actor, Owner
    from airflow_provider_fds.sinks import DeltaAppendSink
    from airflow_provider_fds.spark.submission.launch import run_locally
    from airflow_provider_fds.stream import DeltaStream, StreamContext, StreamSession

    with tempfile.TemporaryDirectory() as folder:
        sink = DeltaAppendSink(f"{folder}/sink")
        session = StreamSession(
            DeltaStream("bench", table=f"{root}/source", starting_version=0),
            StreamContext(
                staging_uri=f"{folder}/staging",
                deployment="bench",
                actor=Actor(deployment="bench", user="bench", host="bench"),
                owner=Owner(kind="cli", deployment="bench", run_id="bench"),
                owner_is_running=lambda _owner: False,
            ),
        )
        work = session.begin(sink)
        spec_uri = session.job(work, sink)
        start = time.perf_counter()
        code = run_locally(spec_uri, master="local[2]")
        seconds = time.perf_counter() - start
        assert code == 0
        collected = session.collect(work)
        assert collected.reports[0].rows_written == 5000
    return {"seconds": seconds, "phases": dict(collected.reports[0].seconds)}


def by_hand(root: str) -> dict[str, Any]:
    """Run the same read and append with ``--packages`` and default settings; the packages are in Ivy's cache."""
    return _by_hand(root, "--packages", "io.delta:delta-spark_4.2_2.13:4.4.0")


def by_hand_light(root: str) -> dict[str, Any]:
    """Run the same with Delta's two JARs as ``--jars``, no UI, and small shuffles and snapshots."""
    from airflow_provider_fds.spark.installation.jars import delta_jars

    return _by_hand(
        root, "--jars", ",".join(map(str, delta_jars())),
        "--conf", "spark.ui.enabled=false",
        "--conf", "spark.databricks.delta.snapshotPartitions=1",
        "--conf", "spark.sql.shuffle.partitions=1",
    )  # fmt: skip


def make_archive() -> dict[str, Any]:
    """Create the class archive, as ``fds admin prepare`` does; do nothing if it exists."""
    from airflow_provider_fds.spark.submission.submit import submit_arguments

    archive = submit_arguments("", master="local[2]").class_archive
    assert archive is not None
    archive.make()
    return {}


def _by_hand(root: str, *options: str) -> dict[str, Any]:
    import pyspark

    home = Path(pyspark.__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        command = [
            str(home / "bin" / "spark-submit"), "--master", "local[2]", *options,
            "--conf", "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension",
            "--conf", "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
            f"{root}/hand_written.py", f"{root}/source", f"{folder}/sink",
        ]  # fmt: skip
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        start = time.perf_counter()
        subprocess.run(command, env=environment, capture_output=True, check=True, cwd=folder)
        return {"seconds": time.perf_counter() - start}
