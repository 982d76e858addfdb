"""The demo's writer and its verdict, on a few rows: a demo that could not fail would prove nothing."""

from __future__ import annotations

import json

import demo_verdict
import demo_writer
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

TABLE_ID = "6f1c7f6e-0000-4000-8000-000000000001"


def days(*sizes: int) -> list[pa.Table]:
    ids = iter(range(sum(sizes)))
    return [pa.table({"flight_id": [next(ids) for _ in range(size)]}) for size in sizes]


def operations(table) -> list[str]:
    return [commit["operation"] for commit in reversed(DeltaTable(table).history())]


def offset(version: int, index: int = -1) -> str:
    return json.dumps({"sourceVersion": 1, "reservoirId": TABLE_ID, "reservoirVersion": version, "index": index})


def opened(start: str) -> dict:
    return {"kind": "opened", "epoch": 1, "start": start}


def committed(batch_id: int, end: str) -> dict:
    return {"kind": "committed", "epoch": 1, "batch_id": batch_id, "digest": f"d{batch_id}", "end": end}


def advanced(start: str, end: str) -> dict:
    return {"kind": "advanced", "epoch": 1, "start": start, "end": end}


def batch(batch_id: int, start: str, end: str, after: str | None = None) -> dict:
    return {
        "epoch": 1,
        "batch_id": batch_id,
        "digest": f"d{batch_id}",
        "start": start,
        "end": end,
        "after": after or start,
    }


def entries(*actions: dict) -> list[dict]:
    return [{"n": n, "action": action} for n, action in enumerate(actions)]


def test_each_flight_is_a_row_and_the_365_days_are_in_order():
    flights = demo_writer.read_flights()
    split = list(demo_writer.split_by_day(flights))

    assert flights.num_rows == 336_776
    assert len(flights["flight_id"].unique()) == 336_776
    assert len(split) == demo_writer.DAYS
    assert sum(day.num_rows for day in split) == 336_776
    assert all(len({*zip(day["month"].to_pylist(), day["day"].to_pylist(), strict=True)}) == 1 for day in split[:40])


def test_the_writer_makes_a_commit_a_day_and_in_between_an_optimize_and_an_empty_one(tmp_path):
    demo_writer.write_days(tmp_path / "t", days(2, 3, 1, 2), optimize_after=2, empty_commit_after=3)

    assert operations(tmp_path / "t") == ["WRITE", "WRITE", "OPTIMIZE", "WRITE", "WRITE", "WRITE"]
    assert sorted(DeltaTable(tmp_path / "t").to_pyarrow_table()["flight_id"].to_pylist()) == list(range(8))
    empty = (tmp_path / "t" / "_delta_log" / f"{4:020d}.json").read_text().splitlines()
    assert [list(json.loads(line)) for line in empty] == [["commitInfo"]]


def test_the_writer_counts_its_days_from_the_first_it_writes(tmp_path):
    demo_writer.write_days(tmp_path / "t", days(1, 1), first_day=7, optimize_after=99, empty_commit_after=7)

    assert DeltaTable(tmp_path / "t").version() == 2


def test_an_empty_commit_never_replaces_another(tmp_path, monkeypatch):
    demo_writer.write_days(tmp_path / "t", days(1, 1))
    stale = DeltaTable(tmp_path / "t", version=0)
    monkeypatch.setattr(demo_writer, "DeltaTable", lambda _: stale)

    with pytest.raises(FileExistsError):
        demo_writer.commit_nothing(tmp_path / "t")

    assert sorted(p.suffix for p in (tmp_path / "t" / "_delta_log").iterdir()) == [".json", ".json"]


def test_a_growing_table_repeats_the_year_with_other_ids(tmp_path, monkeypatch):
    year = [day.append_column("year", pa.array([2013] * day.num_rows)) for day in days(2, 1)]
    pauses = iter([None, None, KeyboardInterrupt])
    monkeypatch.setattr(demo_writer.time, "sleep", lambda _: pause(next(pauses)))

    with pytest.raises(KeyboardInterrupt):
        demo_writer.grow(tmp_path / "t", year, first_day=3, seconds=2)

    rows = DeltaTable(tmp_path / "t").to_pyarrow_table()
    found = sorted(zip(rows["flight_id"].to_pylist(), rows["year"].to_pylist(), strict=True))
    assert found == [(3, 2014), (4, 2014), (5, 2014), (6, 2015), (7, 2015)]


def pause(error) -> None:
    if error is not None:
        raise error


def test_a_delete_is_one_commit_and_says_how_many_rows_are_gone(tmp_path):
    demo_writer.write_days(tmp_path / "t", days(3, 2))

    assert demo_writer.delete(tmp_path / "t", "flight_id < 2") == 2

    assert operations(tmp_path / "t") == ["WRITE", "WRITE", "DELETE"]
    assert sorted(DeltaTable(tmp_path / "t").to_pyarrow_table()["flight_id"].to_pylist()) == [2, 3, 4]


def test_a_delete_that_another_writer_overtakes_is_tried_again(tmp_path, monkeypatch):
    demo_writer.write_days(tmp_path / "t", days(2))
    tables = iter([DeltaTable(tmp_path / "t"), DeltaTable(tmp_path / "t")])
    DeltaTable(tmp_path / "t").delete("flight_id = 0")
    monkeypatch.setattr(demo_writer, "DeltaTable", lambda _: next(tables, DeltaTable(tmp_path / "t")))

    assert demo_writer.delete(tmp_path / "t", "flight_id = 1") == 1


@pytest.mark.parametrize(
    ("sink", "lost", "duplicated", "foreign"),
    [
        ([1, 2, 3], 0, 0, 0),
        ([3, 1], 1, 0, 0),
        ([1, 2, 3, 3, 3], 0, 2, 0),
        ([1, 2, 4], 1, 0, 1),
        ([], 3, 0, 0),
    ],
)
def test_lost_duplicate_and_foreign_keys_are_counted_and_are_problems(sink, lost, duplicated, foreign):
    keys = demo_verdict.compare_keys(pa.chunked_array([[1, 2], [3]]), pa.chunked_array([sink], pa.int64()))

    assert (keys.lost, keys.duplicated, keys.foreign) == (lost, duplicated, foreign)
    assert len(demo_verdict.key_problems(keys)) == sum(bool(count) for count in (lost, duplicated, foreign))


def test_a_key_that_the_source_has_twice_is_a_problem_of_the_demo_itself():
    keys = demo_verdict.compare_keys(pa.chunked_array([[1, 1]]), pa.chunked_array([[1, 1]]))

    assert "not distinct" in demo_verdict.key_problems(keys)[0]


def test_a_chain_with_commits_without_data_is_gapless():
    ledger = entries(
        opened(offset(0)), committed(0, offset(3)), advanced(offset(3), offset(5)), committed(1, offset(6))
    )
    chain = [batch(0, offset(0), offset(3)), batch(1, offset(5), offset(6), after=offset(3))]

    assert demo_verdict.chain_problems(chain, ledger) == []
    assert demo_verdict.committed_version(ledger) == 5


@pytest.mark.parametrize(
    ("chain", "said"),
    [
        ([batch(0, offset(1), offset(3)), batch(1, offset(3), offset(6))], "comes after"),
        ([batch(0, offset(0), offset(3)), batch(1, offset(4), offset(6))], "comes after"),
        ([batch(0, offset(0), offset(3)), batch(1, offset(4), offset(6), after=offset(3))], "nothing in the ledger"),
        ([batch(0, offset(0), offset(3))], "the ledger has committed"),
        (
            [batch(0, offset(0), offset(3)), batch(1, offset(3), offset(6)), batch(1, offset(3), offset(6))],
            "comes after",
        ),
    ],
    ids=["wrong start", "gap", "uncovered stretch", "batch missing", "batch twice"],
)
def test_a_broken_chain_is_found(chain, said):
    ledger = entries(opened(offset(0)), committed(0, offset(3)), committed(1, offset(6)))

    assert any(said in problem for problem in demo_verdict.chain_problems(chain, ledger))


def test_a_missing_ledger_entry_is_found():
    ledger = entries(opened(offset(0)), committed(0, offset(3)))
    del ledger[0]

    assert "in place 0" in demo_verdict.chain_problems([], ledger)[0]


def test_only_commits_that_fds_made_are_batches_of_the_sink(tmp_path):
    table = pa.table({"id": [1]})
    write_deltalake(tmp_path / "sink", table)
    ours = {"fds": 1, "stream": "s", "uuid": "u", **batch(0, offset(0), offset(1))}
    commit = {"commitInfo": {"operation": "WRITE", "userMetadata": json.dumps(ours)}}
    (tmp_path / "sink" / "_delta_log" / f"{1:020d}.json").write_text(json.dumps(commit) + "\n")

    assert demo_verdict.sink_batches(tmp_path / "sink") == [ours]
