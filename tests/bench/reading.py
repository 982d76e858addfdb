"""Reading a batch through its manifest, and with Structured Streaming: same files, same warm session, alternately."""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

ROWS_PER_FILE = 200
COMMITS = 10


def compare(sizes: list[int], rounds: int) -> dict[str, Any]:
    """Return the median seconds of both ways for each number of files, after one unmeasured round."""
    with tempfile.TemporaryDirectory() as folder:
        spark = _session(Path(folder))
        try:
            return {str(files): _compare(spark, Path(folder) / str(files), files, rounds) for files in sizes}
        finally:
            spark.stop()


def _compare(spark: Any, folder: Path, files: int, rounds: int) -> dict[str, float]:
    from pyspark.sql import functions

    table = folder / "table"
    _write_table(spark, table, files)
    expected = files * ROWS_PER_FILE

    def total(frame: Any) -> int:
        return int(frame.agg(functions.sum("id"), functions.count("id")).collect()[0][1])

    manifest_seconds, stream_seconds, build_seconds = [], [], []
    for number in range(rounds + 1):
        start = time.perf_counter()
        manifest = _write_manifest(table, folder / f"manifest-{number}", files)
        built = time.perf_counter() - start
        start = time.perf_counter()
        assert total(spark.read.format("delta").load(manifest)) == expected
        read = time.perf_counter() - start
        start = time.perf_counter()
        seen: list[int] = []
        query = (
            spark.readStream.format("delta")
            .option("startingVersion", 1)
            .option("maxFilesPerTrigger", files)
            .load(str(table))
            .writeStream.foreachBatch(lambda frame, _, seen=seen: seen.append(total(frame)))
            .option("checkpointLocation", str(folder / f"checkpoint-{number}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        streamed = time.perf_counter() - start
        assert seen == [expected]
        if number:
            manifest_seconds.append(read)
            stream_seconds.append(streamed)
            build_seconds.append(built)
    return {
        "manifest": statistics.median(manifest_seconds),
        "streaming": statistics.median(stream_seconds),
        "ratio": statistics.median(m / s for m, s in zip(manifest_seconds, stream_seconds, strict=True)),
        "plan_and_manifest": statistics.median(build_seconds),
    }


def _write_table(spark: Any, table: Path, files: int, rows: Any = None) -> None:
    """Write a table of ``files`` hard links to one data file, in ten commits; by default a file of 200 small rows."""
    seed = table.with_name("seed")
    if rows is None:
        rows = spark.range(ROWS_PER_FILE).selectExpr("id", "cast(id as string) v", "id * 0.5D x")
    rows.coalesce(1).write.format("delta").save(str(seed))
    lines = (seed / "_delta_log" / f"{0:020d}.json").read_text().splitlines()
    actions = [json.loads(line) for line in lines]
    add = next(a["add"] for a in actions if "add" in a)
    log = table / "_delta_log"
    log.mkdir(parents=True)
    first = [a for a in actions if "add" not in a and "commitInfo" not in a]
    (log / f"{0:020d}.json").write_text("".join(json.dumps(a) + "\n" for a in first))
    for version in range(1, COMMITS + 1):
        written = []
        for number in range(files // COMMITS):
            name = f"part-{version:03d}-{number:05d}.parquet"
            os.link(seed / add["path"], table / name)
            written.append(json.dumps({"add": {**add, "path": name}}))
        (log / f"{version:020d}.json").write_text("\n".join(written) + "\n")


def _write_manifest(table: Path, folder: Path, files: int) -> str:
    from airflow_provider_fds.batch.manifest.manifest import build_manifest
    from airflow_provider_fds.batch.manifest.publish import write_manifest
    from airflow_provider_fds.delta.reader.log import DeltaLog
    from airflow_provider_fds.delta.storage.open import open_storage
    from airflow_provider_fds.source.offset import Offset
    from airflow_provider_fds.source.options.options import SourceOptions
    from airflow_provider_fds.source.planning.plan import BatchPlanner

    log = DeltaLog(open_storage(str(table)))
    start = Offset(log.state_at(0).metadata.id, 1)
    options = SourceOptions.parse({"max_files_per_batch": files})
    (batch,) = BatchPlanner(log, start, None, options, COMMITS)
    assert batch.num_files == files
    manifest = build_manifest(batch, table_uri=log.table_uri)
    return write_manifest(manifest, open_storage(str(folder)), f"0-{manifest.digest}-{uuid.uuid4()}")


def _session(folder: Path, *, packages: str = "") -> Any:
    from pyspark.sql import SparkSession

    from airflow_provider_fds.spark.installation.jars import delta_jars

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(map(str, delta_jars())))
        .config("spark.jars.packages", packages)
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "3g")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .config("spark.sql.shuffle.partitions", "1")
        .getOrCreate()
    )
