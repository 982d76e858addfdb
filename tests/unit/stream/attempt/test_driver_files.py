"""Staging and sink under the paths that a job on Airflow's side uses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.errors import StorageError
from airflow_provider_fds.spark.runtime.hadoop_files import (
    exists,
    hadoop_path,
    names,
    reached_by,
    read_bytes,
    write_bytes,
)
from airflow_provider_fds.stream.attempt.driver_files import DriverFiles

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def files(tmp_path: Path) -> DriverFiles:
    return DriverFiles(LocalStorage(str(tmp_path / "sta é%20ging")), LocalStorage(str(tmp_path / "sink")))


def test_a_file_is_written_and_found_again_under_the_path_that_hadoop_would_use(files, tmp_path):
    path = hadoop_path((tmp_path / "sta é%20ging" / "a b" / "1.json").as_uri())
    for data in (b"one", b"two"):
        files.write_bytes(path, data)
        assert files.read_bytes(path) == data
    assert files.exists(path)
    assert not files.exists(path + "x")
    assert files.names(path.rpartition("/")[0]) == {"1.json"}
    assert files.names(path.rpartition("/")[0] + "/gone") == set()
    assert files.first_bytes(path) == b"two"
    assert files.first_bytes(path + "x") == b""
    with pytest.raises(FileNotFoundError):
        files.read_bytes(path + "x")


def test_a_path_that_is_neither_staging_nor_sink_is_refused(files, tmp_path):
    for path in (f"file:{tmp_path}/sink2/x", f"file:{tmp_path}/sink", "s3a://elsewhere/x"):
        with pytest.raises(StorageError, match="neither in staging nor in the sink"):
            files.read_bytes(path)


class Bucket(LocalStorage):
    """A folder that passes for a bucket."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.uri = "s3://lake/sta%20ging"


class Session:
    """As much of a session as tells where the files are."""

    class conf:  # noqa: N801
        @staticmethod
        def get(key: str, default: None) -> None:
            return default


def test_a_bucket_is_the_same_under_all_its_schemes_and_needs_no_jvm(tmp_path):
    with reached_by(DriverFiles(Bucket(tmp_path))):
        path = hadoop_path("s3://lake/sta%20ging/a/x.json", Session())
        assert path == "s3a://lake/sta ging/a/x.json"
        write_bytes(path, b"1")
        assert read_bytes("s3://lake/sta ging/a/x.json") == b"1"
        assert exists(path)
        assert names("s3n://lake/sta ging/a") == {"x.json"}
