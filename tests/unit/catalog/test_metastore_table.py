"""What an entry of a metastore is, and where its Delta table is."""

from __future__ import annotations

import pytest

from airflow_provider_fds.catalog.metastore_table import MetastoreTable, delta_location
from airflow_provider_fds.catalog.names import TableName
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason

PROVIDER = "spark.sql.sources.provider"
SPARK = {PROVIDER: "delta"}


def entry(parameters=SPARK, location="", path="", table_type="EXTERNAL_TABLE", **more):
    name = TableName(("lab", "t"))
    return MetastoreTable(
        name, parameters=parameters, location=location, serde_path=path, table_type=table_type, **more
    )


@pytest.mark.parametrize(
    ("table", "uri"),
    [
        pytest.param(
            entry(location="file:/wh/t", path="file:/wh/t", table_type="MANAGED_TABLE"), "file:///wh/t", id="managed"
        ),
        pytest.param(
            entry(location="file:/wh/lab.db/t-__PLACEHOLDER__", path="file:/lake/t"), "file:///lake/t", id="external"
        ),
        pytest.param(entry(location="file:/old", path="file:/lake/t"), "file:///lake/t", id="path-before-location"),
        pytest.param(entry({PROVIDER: "DELTA"}, "s3a://b/t"), "s3a://b/t", id="trino"),
        pytest.param(entry({"Spark.SQL.Sources.Provider": "Delta"}, "s3://b/t"), "s3://b/t", id="any-case"),
        pytest.param(entry({"table_type": "DELTA", "classification": "delta"}, "s3://b/t"), "s3://b/t", id="athena"),
        pytest.param(
            entry({"table_type": "delta", "classification": "parquet"}, "s3://b/t"), "s3://b/t", id="declared-type"
        ),
        pytest.param(
            entry({"classification": "Delta", "table_type": "delta", **SPARK}, "s3://b/t/", "s3://b/t/"),
            "s3://b/t",
            id="crawler",
        ),
        pytest.param(entry({"classification": "delta"}, "s3://b/t"), "s3://b/t", id="classification"),
        pytest.param(
            entry({"storage_handler": "io.delta.hive.DeltaStorageHandler"}, "hdfs://nn:8020/t"),
            "hdfs://nn:8020/t",
            id="hive-connector",
        ),
        pytest.param(
            entry({**SPARK, "table_type": "ICEBERG", "metadata_location": "s3://b/m"}, "s3://b/t"),
            "s3://b/t",
            id="uniform",
        ),
        pytest.param(entry(location="hdfs://name-service/lake/t"), "hdfs://name-service/lake/t", id="hdfs"),
        pytest.param(
            entry(location="abfss://c@a.dfs.core.windows.net/t"), "abfss://c@a.dfs.core.windows.net/t", id="azure"
        ),
        pytest.param(entry(location="/lake/t"), "file:///lake/t", id="no-scheme"),
        pytest.param(
            entry(location="file:/lake é/a%20b/c?d#e"), "file:///lake%20%C3%A9/a%2520b/c%3Fd%23e", id="not-encoded"
        ),
        pytest.param(entry(location="s3://b"), "s3://b", id="bucket"),
    ],
)
def test_a_delta_table_is_where_the_metastore_says(table, uri):
    assert delta_location("Hive metastore", table) == uri


@pytest.mark.parametrize(
    ("table", "problem", "way_on"),
    [
        pytest.param(entry({}, table_type="VIRTUAL_VIEW"), "is a view", "a Delta table that it reads", id="view"),
        pytest.param(
            entry({"presto_view": "true"}, table_type="VIRTUAL_VIEW"), "is a view", "it reads", id="presto-view"
        ),
        pytest.param(entry(table_type="MATERIALIZED_VIEW"), "is a materialized view", "it reads", id="materialized"),
        pytest.param(
            entry({PROVIDER: "parquet"}, "file:/p", "file:/p"), "is a Parquet table", "CONVERT TO DELTA", id="parquet"
        ),
        pytest.param(
            entry({"classification": "parquet"}, "s3://b/p"),
            "is a Parquet table",
            "Delta tables only",
            id="crawled-parquet",
        ),
        pytest.param(entry({PROVIDER: "csv"}, "file:/p"), "is a CSV table", "Delta tables only", id="csv"),
        pytest.param(
            entry({}, "file:/h", input_format="org.apache.hadoop.hive.ql.io.parquet.MapredParquetInputFormat"),
            "is a Parquet table",
            "Delta",
            id="hive",
        ),
        pytest.param(
            entry({}, "file:/h", input_format="org.apache.hadoop.mapred.TextInputFormat"),
            "is not known as a Delta table",
            "USING DELTA",
            id="unknown",
        ),
        pytest.param(
            entry({PROVIDER: "org.x.Own"}, "file:/h"), "format 'org.x.Own'", "Delta tables only", id="own-format"
        ),
        pytest.param(
            entry({"table_type": "ICEBERG", "metadata_location": "s3://b/i/1.json"}, "s3://b/i"),
            "is an Iceberg table",
            "Delta",
            id="iceberg",
        ),
        pytest.param(
            entry({"storage_handler": "org.apache.iceberg.mr.hive.HiveIcebergStorageHandler"}),
            "is an Iceberg table",
            "Delta",
            id="hive-iceberg",
        ),
        pytest.param(
            entry({PROVIDER: "iceberg", "classification": "delta"}, "s3://b/i"),
            "is an Iceberg table",
            "Delta",
            id="provider-wins",
        ),
        pytest.param(entry({PROVIDER: "hudi"}, "s3://b/h"), "is a Hudi table", "Delta", id="hudi"),
        pytest.param(
            entry({}, "s3://b/h", input_format="org.apache.hudi.hadoop.HoodieParquetInputFormat"),
            "is a Hudi table",
            "Delta",
            id="hive-hudi",
        ),
        pytest.param(
            entry(
                {"classification": "parquet"},
                "s3://b/t/_symlink_format_manifest",
                input_format="org.apache.hadoop.hive.ql.io.SymlinkTextInputFormat",
            ),
            "is a symlink table",
            "probably 's3://b/t'",
            id="symlink",
        ),
        pytest.param(
            entry({}, link="main.lab.t"),
            "is a link to main.lab.t, which is a link itself",
            "the table that the links lead to",
            id="link",
        ),
        pytest.param(
            entry(location="file:/wh/lab.db/t-__PLACEHOLDER__"),
            "a placeholder of Spark",
            "SET LOCATION",
            id="placeholder",
        ),
        pytest.param(entry(), "without a location", "Set its location", id="no-location"),
        pytest.param(
            entry(location="dbfs:/mnt/t"), "at a location that FDS cannot read", "supported storage", id="scheme"
        ),
        pytest.param(entry(location="hdfs:/lake/t"), "no NameNode", "supported storage", id="no-namenode"),
        pytest.param(entry(location="s3://key:secret-key@b/t"), "contains user info", "supported storage", id="secret"),
    ],
)
def test_what_fds_cannot_read_is_named(table, problem, way_on):
    with pytest.raises(ConfigurationError) as caught:
        delta_location("Hive metastore thrift://h:1", table)
    message = str(caught.value)
    assert "lab.t in Hive metastore thrift://h:1 is " in message
    assert problem in message
    assert way_on in message
    assert "secret-key" not in message
    assert caught.value.reason_code == Reason.CATALOG_TABLE_UNREADABLE
