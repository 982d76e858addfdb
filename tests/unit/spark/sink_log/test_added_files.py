"""A commit of the sink is only there with its files: each with its size, where the driver reads the log."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote
from uuid import UUID

import deltalake
import pyarrow as pa
import pytest

from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.spark.runtime.failures import RefusalError
from airflow_provider_fds.spark.runtime.hadoop_files import reached_by
from airflow_provider_fds.spark.sink_log.added_files import AddedFiles
from airflow_provider_fds.spark.sink_log.history import SinkLog
from airflow_provider_fds.stream.attempt.driver_files import DriverFiles
from airflow_provider_fds.z85 import encode_z85

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two commits; the names of folders and of partitions need encoding."""
    path = tmp_path / "sink é"
    for number in (0, 2):
        rows = pa.table({"id": [number, number + 1], "p": ["a b", "c%20/d"]})
        deltalake.write_deltalake(path, rows, mode="append", partition_by=["p"])
    return path


def check(table: Path | str, version: int) -> None:
    path = table if isinstance(table, str) else f"file:{table}"
    log = SinkLog(None, path)
    history = log.history(None)
    assert history is not None
    commit = history.at(version)
    assert commit is not None
    AddedFiles(None, path, log).check(history, commit, "batch 7", "running a command")


def added(table: Path, version: int) -> list[Path]:
    lines = (table / "_delta_log" / f"{version:020}.json").read_text().splitlines()
    return [table / unquote(action["add"]["path"]) for action in map(json.loads, lines) if "add" in action]


def test_a_commit_with_all_its_files_is_there(table: Path) -> None:
    assert len(added(table, 1)) == 2
    for version in (0, 1):
        check(table, version)


def test_a_missing_file_is_named_with_what_to_do(table: Path) -> None:
    file = added(table, 1)[0]
    file.unlink()
    check(table, 0)
    with pytest.raises(RefusalError) as error:
        check(table, 1)
    assert (error.value.reason, error.value.retryable) == (Reason.SINK_FILES_MISSING, False)
    message = str(error.value)
    assert f"batch 7 is in the sink file:{table} as version 1, but 1 of its 2 data files are not there" in message
    assert file.name in message
    assert "restore version 0 of the sink, the last without this commit, which also undoes every later commit, and" in (
        message
    )


def test_a_file_of_another_size_is_not_the_file(table: Path) -> None:
    file = added(table, 0)[0]
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(RefusalError, match=r"1 of its 2 data files are not there.*whose first commit this is"):
        check(table, 0)


@pytest.mark.parametrize("storage", ["u", "p"])
def test_a_deletion_vector_is_a_file_of_the_commit(table: Path, storage: str) -> None:
    """A merge that only deletes rows adds no data file."""
    name = UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61")
    vector = table / "ab" / f"deletion_vector_{name}.bin"
    vector.parent.mkdir()
    vector.write_bytes(bytes(1 + 4 + 40 + 4))
    named = f"ab{encode_z85(name.bytes)}" if storage == "u" else f"file://{quote(str(vector))}"
    described = {"storageType": storage, "pathOrInlineDv": named, "offset": 1, "sizeInBytes": 40, "cardinality": 1}
    log = table / "_delta_log" / f"{1:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    first = next(action["add"] for action in actions if "add" in action)
    first["deletionVector"] = described
    log.write_text("\n".join(map(json.dumps, actions)))
    check(table, 1)
    vector.write_bytes(bytes(40))
    with pytest.raises(RefusalError, match=rf"1 of its 2 data files are not there \(.*{vector.name}, 41 bytes\)"):
        check(table, 1)
    vector.unlink()
    with pytest.raises(RefusalError, match=f"1 of its 2 data files are not there .*{vector.name}"):
        check(table, 1)


def test_files_that_a_later_commit_has_rewritten_or_removed_may_be_gone(table: Path) -> None:
    gone = [*added(table, 0), *added(table, 1)]
    deltalake.DeltaTable(table).optimize.compact()
    for file in gone:
        file.unlink()
    for version in (0, 1):
        check(table, version)


def test_a_restore_does_not_excuse_that_files_are_missing(table: Path) -> None:
    for file in added(table, 1):
        file.unlink()
    deltalake.DeltaTable(table).restore(0)
    with pytest.raises(RefusalError, match="2 of its 2 data files"):
        check(table, 1)


def test_files_outside_the_table_are_looked_for_where_the_log_says(table: Path, tmp_path: Path) -> None:
    other = tmp_path / "other é.parquet"
    other.write_bytes(b"1234")
    log = table / "_delta_log"
    adds = [{"add": {"path": path, "size": 4}} for path in (f"{tmp_path}/other%20%C3%A9.parquet", other.as_uri())]
    (log / f"{2:020}.json").write_text("\n".join(map(json.dumps, [{"commitInfo": {"operation": "MERGE"}}, *adds])))
    check(table, 2)
    other.unlink()
    with pytest.raises(RefusalError, match="2 of its 2 data files"):
        check(table, 2)


class Remote:
    """Files of another storage, which only Airflow reaches; counts the looks at them."""

    def __init__(self, table: Path) -> None:
        self._table = table
        self.sizes = 0

    def _local(self, path: str) -> Path:
        return self._table / path.partition("sink/")[2]

    def names(self, folder: str) -> set[str]:
        return {child.name for child in self._local(folder).iterdir()}

    def read_bytes(self, path: str) -> bytes:
        return self._local(path).read_bytes()

    def exists(self, path: str) -> bool:
        return self._local(path).exists()

    def size_bytes(self, path: str) -> int | None:
        self.sizes += 1
        return self._local(path).stat().st_size if self.exists(path) else None

    def write_bytes(self, path: str, data: bytes) -> None:
        self._local(path).write_bytes(data)

    def first_bytes(self, path: str) -> bytes:
        return self.read_bytes(path)


@pytest.mark.parametrize(("root", "looks"), [("hdfs://nodes/sink", 2), ("s3a://bucket/sink", 0)])
def test_files_are_looked_for_in_a_file_system_and_not_in_an_object_store(table: Path, root: str, looks: int) -> None:
    files = Remote(table)
    with reached_by(files):
        check(root, 1)
        assert files.sizes == looks
        for file in added(table, 1):
            file.unlink()
        if looks == 0:
            check(root, 1)
            return
        with pytest.raises(RefusalError, match="2 of its 2 data files"):
            check(root, 1)


def test_the_files_of_a_job_in_an_airflow_worker_have_a_size(table: Path) -> None:
    from airflow_provider_fds.delta.storage.local import LocalStorage

    file = added(table, 0)[0]
    files = DriverFiles(LocalStorage(str(table)))
    assert files.size_bytes(f"file:{file}") == file.stat().st_size
    file.unlink()
    assert files.size_bytes(f"file:{file}") is None
