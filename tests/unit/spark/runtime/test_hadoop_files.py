"""Names of files: percent-encoded on our side, decoded for Hadoop."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_fds.spark.runtime.hadoop_files import (
    exists,
    first_data_file,
    hadoop_path,
    local_path,
    names,
    read_bytes,
    write_bytes,
)


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:///a%20b", "file:/a b"),
        ("FILE:/a/", "file:/a"),
        ("/a%20b", "file:/a%20b"),
        ("s3://bucket/a%20b/", "s3a://bucket/a b"),
        ("s3n://bucket/a", "s3a://bucket/a"),
        ("S3A://bucket/a", "s3a://bucket/a"),
        ("abfss://c@a.dfs.core.windows.net/x", "abfss://c@a.dfs.core.windows.net/x"),
    ],
)
def test_spark_gets_decoded_paths_and_a_scheme_it_knows(uri, path):
    assert hadoop_path(uri) == path


def test_a_relative_path_is_relative_to_this_process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert hadoop_path("a/b") == f"file:{tmp_path}/a/b"


@pytest.mark.parametrize(
    ("path", "local"),
    [("file:/a b/c", "/a b/c"), ("file:///a%20b", "/a%20b"), ("/a", "/a"), ("s3a://b/a", None), ("hdfs://h/a", None)],
)
def test_local_paths_are_distinguished_from_uris_and_not_decoded(path, local):
    assert local_path(path) == (None if local is None else Path(local))


def test_a_report_is_written_completely_or_not_at_all(tmp_path):
    path = f"file:{tmp_path}/a b/1.json"
    write_bytes(path, b"one")
    write_bytes(path, b"two")
    assert read_bytes(path) == b"two"
    assert names(f"{tmp_path}/a b") == {"1.json"}
    assert exists(path)
    assert not exists(f"{path}x")


def test_a_missing_folder_has_no_names(tmp_path):
    assert names(str(tmp_path / "gone")) == set()


def test_the_first_data_file_of_a_manifest_is_found(tmp_path):
    log = tmp_path / "_delta_log" / "00000000000000000000.json"
    log.parent.mkdir()
    log.write_text('{"protocol":{}}\n{"metaData":{"id":"x"}}\n{"add":{"path":"file:///t/a%20b.parquet","size":1}}\n')
    assert first_data_file(str(tmp_path)) == "file:/t/a b.parquet"


def test_a_manifest_without_files_or_without_a_first_commit_has_none(tmp_path):
    assert first_data_file(str(tmp_path)) is None
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / "00000000000000000000.json").write_text('{"protocol":{}}\n')
    assert first_data_file(str(tmp_path)) is None
