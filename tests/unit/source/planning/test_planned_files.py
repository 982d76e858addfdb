"""The files of large batches lie in a temporary file, and are the same."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from airflow_provider_fds.batch.manifest.manifest import build_manifest
from airflow_provider_fds.delta.actions import Add, DeletionVector
from airflow_provider_fds.errors import StorageError
from airflow_provider_fds.source.planned import ChangedFile, PlannedFile
from airflow_provider_fds.source.planning import planned_files
from airflow_provider_fds.source.planning.planned_files import FileCollector
from tests.manifests import commit_json


@pytest.fixture(params=[1, 3, 5, 6, 7, 100])
def limit(request: Any, monkeypatch: Any) -> int:
    """Fewer files than are kept, as many, more, and many more."""
    monkeypatch.setattr(planned_files, "KEPT_FILES", request.param)
    monkeypatch.setattr(planned_files, "_CHUNK_FILES", min(2, request.param))
    return int(request.param)


def planned(number: int, add: Add) -> PlannedFile:
    return PlannedFile(number // 3, number % 3, 1_700_000_000_000 + number, add)


def collect(files: list[PlannedFile]) -> Any:
    collector = FileCollector()
    assert not collector
    for file in files:
        collector.append(file)
    assert collector
    return collector.collected()


def every_kind_of_file() -> list[PlannedFile]:
    vector = DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 34, 2, 1)
    return [
        planned(0, Add("a", 1)),
        planned(1, Add("b%20c", 2**40, {"p": "ä", "q": None}, 5, False, '{"numRecords":3}', vector, 7, 8)),
        planned(2, Add("d", 3, {})),
        planned(3, Add("e", 4, stats="")),
        planned(4, Add("f", 5, deletionVector=DeletionVector("p", "file:///x", 1))),
        planned(5, Add("g", 6, None, 1)),
    ]


@pytest.mark.usefixtures("limit")
def test_files_come_back_in_their_order_with_all_that_they_have() -> None:
    files = every_kind_of_file()
    found = collect(files)
    assert (len(found), list(found), list(found)) == (6, files, files)
    assert (found[0], found[5], found[-2], found[1:4], found[::-2]) == (
        *(files[index] for index in (0, 5, -2)),
        tuple(files[1:4]),
        tuple(files[::-2]),
    )
    for index in (6, -7):
        with pytest.raises(IndexError):
            found[index]


@pytest.mark.parametrize("limit", [3], indirect=True)
def test_a_full_temporary_folder_is_an_error_that_names_it(limit: int, disk_of: Any) -> None:
    with disk_of(10), pytest.raises(StorageError, match=r"temporary folder .*: File too large.*set TMPDIR"):
        collect(every_kind_of_file())


@pytest.mark.usefixtures("limit")
def test_files_of_the_change_data_feed_keep_their_change_type() -> None:
    types = ["insert", "delete", None, "insert"]
    files = [planned(number, ChangedFile(f"f{number}", 1, change_type=kind)) for number, kind in enumerate(types)]
    found = [file.add for file in collect(files)]
    assert found == [file.add for file in files]
    assert [add.change_type for add in found if isinstance(add, ChangedFile)] == types


def test_nothing_collected_is_not_a_file() -> None:
    assert (list(FileCollector().collected()), len(FileCollector().collected())) == ([], 0)


@pytest.mark.usefixtures("limit")
def test_a_batch_has_the_same_manifest_however_its_files_are_kept(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    for number in range(8):
        log_builder.commit(log_builder.add(f"f{number}"), log_builder.add(f"g{number}"))
    (batch,) = plan(1).batches
    kept = replace(batch, files=tuple(batch.files))
    assert (batch.num_files, batch.num_bytes, batch.num_rows) == (kept.num_files, kept.num_bytes, kept.num_rows)
    found, expected = (build_manifest(one, table_uri="file:///table") for one in (batch, kept))
    assert found == expected
    paths = [json.loads(line)["add"]["path"] for line in commit_json(found).splitlines()[2:]]
    assert paths == [f"file:///table/{letter}{number}" for number in range(8) for letter in "fg"]
