from __future__ import annotations

import random

import pyarrow as pa
import pytest

from airflow_provider_fds.delta.reader import ordering


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


def test_an_abandoned_sort_leaves_nothing_on_disk(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    rows = [{"modificationTime": i % 7, "path": str(i), "vectorId": ""} for i in range(500)]
    batches = [pa.RecordBatch.from_pylist(rows)] * 10

    monkeypatch.setattr(ordering, "RUN_BYTES", 100)
    sorting = ordering.in_order(batches)
    next(sorting)
    assert list(tmp_path.iterdir())
    sorting.close()
    assert not list(tmp_path.iterdir())


def test_no_rows_sort_to_no_batches():
    assert list(ordering.in_order([])) == []
