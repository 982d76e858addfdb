"""Names of files: percent-encoded on our side, decoded for Hadoop."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_fds.spark.reports import first_data_file, hadoop_path, local_path, read_bytes, write_bytes


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///a%20b/c", "/a b/c"),
        ("file:/a", "/a"),
        ("FILE:///a", "/a"),
        ("/a%20b", "/a%20b"),
        ("s3://b/a", None),
        ("hdfs://h/a", None),
    ],
)
def test_a_local_uri_is_decoded_and_a_path_is_not(uri, path):
    assert local_path(uri) == (None if path is None else Path(path))


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///a%20b", "file:/a b"),
        ("/a%20b", "file:/a%20b"),
        ("s3://bucket/a%20b/", "s3a://bucket/a b"),
        ("s3n://bucket/a", "s3a://bucket/a"),
        ("S3A://bucket/a", "s3a://bucket/a"),
        ("abfss://c@a.dfs.core.windows.net/x", "abfss://c@a.dfs.core.windows.net/x"),
    ],
)
def test_spark_gets_decoded_paths_and_a_scheme_it_knows(uri, path):
    assert hadoop_path(uri) == path


def test_a_report_is_whole_or_not_there(tmp_path):
    uri = (tmp_path / "a b" / "1.json").as_uri()
    write_bytes(uri, b"one")
    write_bytes(uri, b"two")
    assert read_bytes(uri) == b"two"
    assert [p.name for p in (tmp_path / "a b").iterdir()] == ["1.json"]


def test_the_first_data_file_of_a_manifest_is_found(tmp_path):
    log = tmp_path / "_delta_log" / "00000000000000000000.json"
    log.parent.mkdir()
    log.write_text('{"protocol":{}}\n{"metaData":{"id":"x"}}\n{"add":{"path":"file:///t/a%20b.parquet","size":1}}\n')
    assert first_data_file(str(tmp_path)) == "file:///t/a%20b.parquet"


def test_a_manifest_without_files_or_without_a_first_commit_has_none(tmp_path):
    assert first_data_file(str(tmp_path)) is None
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / "00000000000000000000.json").write_text('{"protocol":{}}\n')
    assert first_data_file(str(tmp_path)) is None
