"""``fds run`` and ``fds backfill`` into each kind of sink, with a real Spark and without a checkpoint file."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest

from tests.fds_command import fds

if TYPE_CHECKING:
    from pathlib import Path

FUNCTION = """
def load(df, batch):
    rows = df.drop("_commit_version", "_commit_timestamp")
    rows.write.format("delta").mode("append").options(**batch.txn_options("gold")).save({gold!r})
"""


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    for state in ("new", "paid"):
        rows = pa.table({"id": [1, 2] if state == "new" else [2, 3], "state": [state] * 2})
        deltalake.write_deltalake(tmp_path / "orders", rows, mode="append")
    return tmp_path


def load(lake: Path, server: str, *words: str, command: str = "run") -> list[dict[str, Any]]:
    source = (str(lake / "orders"), "--stream") if command == "run" else ()
    done = fds(
        *(command, *source, "orders", "--staging", str(lake / "staging"), "--remote", server, "--output", "json"),
        *words,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def rows_of(table: Path) -> list[dict[str, Any]]:
    found = deltalake.DeltaTable(table).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: (row["id"], row.get("_is_current", True)))


FROM_THE_START = ("--option", "starting_version=0", "--option", "max_versions_per_batch=1")


def test_a_merge_keeps_the_newest_row_of_a_key_and_a_history_all_of_them(orders, connect_server):
    merge = ("--sink-option", "kind=delta_merge", "--sink-option", "keys=id", *FROM_THE_START)
    load(orders, connect_server.url, "--sink", str(orders / "current"), *merge)
    assert rows_of(orders / "current") == [
        {"id": 1, "state": "new"}, {"id": 2, "state": "paid"}, {"id": 3, "state": "paid"}
    ]  # fmt: skip
    history = (*merge, "--sink-option", "scd=2", "--sink-option", "provenance=yes", "--stream", "history")
    load(orders, connect_server.url, "--sink", str(orders / "history"), *history)
    found = rows_of(orders / "history")
    assert [(row["id"], row["state"], row["_is_current"], row["_source_version"]) for row in found] == [
        (1, "new", True, 0), (2, "new", False, 0), (2, "paid", True, 1), (3, "paid", True, 1)
    ]  # fmt: skip
    assert list(orders.glob("*.json")) == []


def test_a_function_loads_each_batch_and_a_second_run_finds_nothing(orders, connect_server, monkeypatch):
    (orders / "fds_run_function.py").write_text(FUNCTION.format(gold=str(orders / "gold")))
    monkeypatch.syspath_prepend(orders)
    function = ("kind=foreach_batch", "function=fds_run_function:load", "writes=gold")
    function = tuple(word for option in function for word in ("--sink-option", option))
    *batches, end = load(orders, connect_server.url, *function, *FROM_THE_START)
    assert [(batch["batch_id"], batch["rows_read"], batch["sink_version"]) for batch in batches] == [
        (0, 2, None), (1, 2, None)
    ]  # fmt: skip
    assert end == {"status": "up_to_date", "error": None}
    assert [row["id"] for row in rows_of(orders / "gold")] == [1, 2, 2, 3]
    assert load(orders, connect_server.url, *function, *FROM_THE_START) == [end]
    assert len(rows_of(orders / "gold")) == 4


def test_a_backfill_goes_into_the_sink_of_the_stream_with_the_arguments_given(orders, connect_server):
    sink = ("--sink", str(orders / "bronze"), "--sink-option", "provenance=yes")
    load(orders, connect_server.url, *sink, "--option", "starting_version=1")
    load(orders, connect_server.url, "--sink-option", "provenance=yes", "--end", "0", command="backfill")
    assert [(row["id"], row["_source_version"]) for row in rows_of(orders / "bronze")] == [
        (1, 0), (2, 0), (2, 1), (3, 1)
    ]  # fmt: skip


def test_rows_are_tested_and_what_fails_is_shown(orders, connect_server):
    tests = ("--expect", "id <> 3=reject", "--expect", "state = 'new' = warn", "--max-rejected", "0.5")
    rejects = ("--rejects", str(orders / "rejects"))
    *batches, _ = load(orders, connect_server.url, "--sink", str(orders / "bronze"), *tests, *rejects, *FROM_THE_START)
    assert [(batch["rows"], batch["rows_rejected"]) for batch in batches] == [(2, 0), (1, 1)]
    assert batches[1]["failed_rows"] == {"id <> 3": 1, "state = 'new'": 2}
    assert [row["id"] for row in rows_of(orders / "bronze")] == [1, 2, 2]
    assert [(row["id"], row["_rejected"]["batch_id"]) for row in rows_of(orders / "rejects")] == [(3, 1)]
    shown = "1 row rejected (1 fail id <> 3, 2 fail state = 'new')"
    for command in ("status", "history"):
        done = fds(command, "orders", "--staging", str(orders / "staging"))
        assert shown in " ".join(done.stdout.split()), done.stdout
    place = ("--staging", str(orders / "staging"), "--remote", connect_server.url, "--stream", "other")
    sink = ("--sink", str(orders / "other"), "--option", "starting_version=0")
    done = fds("run", str(orders / "orders"), *place, *sink, "--expect", "id < 3=fail")
    assert done.returncode != 0
    assert "1 of 4 rows fail 'id < 3', such as (_commit_version=1)" in done.stderr
    done = fds("run", str(orders / "orders"), *place, *sink, "--expect", "id < 3")
    assert "--expect must be EXPRESSION=ACTION with one of the actions warn, drop, reject, fail" in done.stderr


@pytest.mark.parametrize("where", ["rejects/{table}", "rejects"])
def test_the_streams_of_a_fleet_reject_rows_into_tables_of_their_own_or_into_one(tmp_path, connect_server, where):
    for name, ids in (("orders", [1, 2, 3]), ("returns", [3, 4])):
        deltalake.write_deltalake(tmp_path / "lake" / name, pa.table({"id": ids}))
    file = tmp_path / "streams.yaml"
    file.write_text(
        f"defaults: {{staging: {tmp_path}/staging, expect: {{'id <> 3': reject}}, rejects: '{tmp_path}/{where}'}}\n"
        f"streams: [{{tables: '{tmp_path}/lake/*', sink: '{tmp_path}/bronze/{{table}}'}}]\n"
    )
    for _ in range(2):
        done = fds("run", "--file", str(file), "--remote", connect_server.url)
        assert done.returncode == 0, done.stderr[-3000:]
    assert [row["id"] for name in ("orders", "returns") for row in rows_of(tmp_path / "bronze" / name)] == [1, 2, 4]
    tables = {tmp_path / where.format(table=name) for name in ("orders", "returns")}
    found = [row["_rejected"]["stream"] for table in tables for row in rows_of(table)]
    assert sorted(found) == ["orders", "returns"]
