from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_provider_fds.delta.reader import ordering
from airflow_provider_fds.errors import StorageError


def ten_batches():
    rows = [{"modificationTime": i % 7, "path": str(i), "vectorId": ""} for i in range(500)]
    return [pa.RecordBatch.from_pylist(rows)] * 10


def open_files_below(folder):
    """The files that this process has open and that no name leads to any more."""
    links = [link.readlink() for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    return [link for link in links if link.is_relative_to(folder)]


@pytest.mark.parametrize("times", [1, 40, 3_000, 1_000_000], ids="of {} times".format)
@pytest.mark.parametrize("run_bytes", [1, 3_000, 40_000, 1 << 20], ids="runs of {} bytes".format)
def test_rows_that_do_not_fit_are_sorted_through_runs_on_disk(monkeypatch, run_bytes, times):
    monkeypatch.setattr(ordering, "RUN_BYTES", run_bytes)
    monkeypatch.setattr(ordering, "BLOCK_BYTES", 700)
    rng = random.Random(run_bytes + times)
    rows = [
        # some batches have nulls in all rows of a column, some in none, some in a few
        (
            rng.randrange(times),
            f"{rng.randrange(300):x}é",
            str(rng.randrange(3)),
            i if rng.randrange(2_000) < i else None,
        )
        for i in range(2_000)
    ]
    names = [*ordering.ORDER, "value"]
    schema = pa.schema(
        [("modificationTime", pa.int64()), ("path", pa.string()), ("vectorId", pa.string()), ("value", pa.int64())]
    )
    batches = [
        pa.RecordBatch.from_pylist([dict(zip(names, row, strict=True)) for row in rows[first : first + 77]], schema)
        for first in range(0, len(rows), 77)
    ]

    found = [tuple(row.values()) for b in ordering.in_order(batches) for row in b.to_pylist()]

    # rows with equal keys may come in any order
    assert [row[:3] for row in found] == sorted(row[:3] for row in rows)
    assert sorted(found, key=repr) == sorted(rows, key=repr)


def test_the_runs_on_disk_have_no_name_and_end_with_the_sort(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(ordering, "RUN_BYTES", 100)
    before = open_files_below(tmp_path)
    sorting = ordering.in_order(ten_batches())
    next(sorting)

    assert not list(tmp_path.iterdir())
    assert before == []
    assert open_files_below(tmp_path)
    sorting.close()
    assert open_files_below(tmp_path) == []


def test_runs_that_do_not_fit_on_the_disk_are_an_error_that_names_the_folder(monkeypatch, tmp_path, disk_of):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(ordering, "RUN_BYTES", 100)

    with disk_of(20_000), pytest.raises(StorageError, match=f"temporary folder {tmp_path}.*TMPDIR"):
        list(ordering.in_order(ten_batches()))

    assert not list(tmp_path.iterdir())
    assert open_files_below(tmp_path) == []


def test_runs_get_longer_if_there_are_many(monkeypatch):
    monkeypatch.setattr(ordering, "RUN_BYTES", 100)
    runs = []
    monkeypatch.setattr(ordering._Spill, "write", lambda _, run, __: runs.append(sum(rows.num_rows for rows in run)))
    rows = pa.RecordBatch.from_pylist([{"modificationTime": 1, "path": "a", "vectorId": ""}])

    list(ordering.in_order([rows] * 3_000))

    assert sum(runs) == 3_000
    assert sorted(runs[:-1]) == runs[:-1]
    assert runs[-2] > 4 * runs[0]


def test_no_rows_sort_to_no_batches():
    assert list(ordering.in_order([])) == []
