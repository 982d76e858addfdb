"""What Spark makes of a manifest: pruning, counting, the checksum, and that nobody can write to it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_provider_fds.batch.manifest.manifest import build_manifest


@pytest.fixture(scope="module")
def table(lab):
    """Six commits of one file with ten rows each."""
    path = lab.path("plain")
    for k in range(6):
        frame = lab.spark.range(k * 10, k * 10 + 10, numPartitions=1).selectExpr("id", f"'p{k % 3}' AS pt")
        frame.write.format("delta").partitionBy("pt").mode("append").save(path)
    return path


def files_scanned(frame) -> int:
    """Run a frame and return how many files its scans opened, by Spark's own metric."""
    frame.collect()
    plan = frame._jdf.queryExecution().executedPlan()
    converters = frame.sparkSession._jvm.scala.jdk.javaapi.CollectionConverters

    def scanned(node) -> int:
        kind = node.getClass().getSimpleName()
        if kind == "AdaptiveSparkPlanExec":
            return scanned(node.executedPlan())
        if kind.endswith("QueryStageExec"):
            return scanned(node.plan())
        own = node.metrics().apply("numFiles").value() if kind == "FileSourceScanExec" else 0
        return own + sum(scanned(child) for child in converters.asJava(node.children()))

    return scanned(plan)


def folder_of(manifest: str) -> Path:
    return Path(manifest.removeprefix("file://"))


def log_files(manifest: str) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in (folder_of(manifest) / "_delta_log").iterdir() if file.is_file()}


def test_filters_on_version_partition_and_column_open_only_the_files_they_need(lab, table):
    frame = lab.read_one(table)

    assert files_scanned(frame) == 6
    assert files_scanned(frame.where("_commit_version = 3")) == 1
    assert files_scanned(frame.where("_commit_version BETWEEN 1 AND 4 AND pt = 'p1'")) == 2
    assert files_scanned(frame.where("id BETWEEN 12 AND 13")) == 1


def test_rows_and_versions_are_counted_from_the_manifest_alone(lab, table):
    frame = lab.read_one(table)

    counted = frame.selectExpr("count(*)", "min(_commit_version)", "max(_commit_version)")

    assert tuple(counted.collect()[0]) == (60, 0, 5)
    assert files_scanned(counted) == 0


def test_without_stats_rows_are_still_counted_but_no_file_is_skipped_by_value(lab, table):
    (batch,) = lab.batches(table)
    frame = lab.read(batch, table, stats=False)

    assert frame.count() == 60
    assert files_scanned(frame.selectExpr("count(*)")) == 0
    assert files_scanned(frame.where("id BETWEEN 12 AND 13")) == 6
    assert lab.rows(frame) == lab.table(table)


def test_the_checksum_says_what_delta_itself_says_of_the_same_files(lab, table):
    (batch,) = lab.batches(table)
    ours = json.loads(build_manifest(batch, table_uri=lab.log(table).table_uri).checksum_json)
    deltas = json.loads(Path(table, "_delta_log", f"{5:020d}.crc").read_text())

    counted = ("tableSizeBytes", "numFiles", "numMetadata", "numProtocol", "setTransactions", "domainMetadata")
    assert {key: ours[key] for key in counted} == {key: deltas[key] for key in counted}
    assert ours.keys() <= deltas.keys()
    assert ours["metadata"].keys() == deltas["metadata"].keys()


# Spark writes data files before it is refused: into the manifest's folder, where no version lists them.
@pytest.mark.parametrize("statement", ["DELETE FROM {} WHERE id = 1", "VACUUM {}"])
def test_a_manifest_cannot_be_written_to(lab, table, statement):
    (batch,) = lab.batches(table)
    manifest = lab.publish(batch, table)
    before = log_files(manifest)

    with pytest.raises(Exception, match="DELTA_UNSUPPORTED_FEATURES_FOR_WRITE"):
        lab.sql(statement, manifest).collect()

    assert log_files(manifest) == before
    assert lab.rows(lab.spark.read.format("delta").load(manifest)) == lab.table(table)


def test_reading_leaves_nothing_in_the_folder(lab, table):
    (batch,) = lab.batches(table)
    manifest = lab.publish(batch, table)

    lab.spark.read.format("delta").load(manifest).collect()

    files = sorted(file.name for file in folder_of(manifest).rglob("*") if file.is_file())
    assert files == [f"{0:020d}.crc", f"{0:020d}.json"]


def test_each_row_still_tells_the_file_of_the_source_it_is_from(lab, table):
    source = lab.spark.read.format("delta").load(table)

    def located(frame):
        return sorted(tuple(row) for row in frame.select("id", "_metadata.file_path").collect())

    assert located(lab.read_one(table)) == located(source)
