"""``fds run`` on a stream of changes: a real Spark, a source that another engine wrote."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from airflow_provider_fds.batch.sink.commit_metadata import read_commit_metadata
from tests.fds_command import fds


@pytest.fixture
def orders(tmp_path: Path) -> str:
    """A table in which commits with change files and commits without alternate."""
    uri = str(tmp_path / "orders")

    def rows(*ids: int) -> pa.Table:
        return pa.table({"id": list(ids), "state": ["new"] * len(ids)})

    deltalake.write_deltalake(uri, rows(0, 1, 2, 3), configuration={"delta.enableChangeDataFeed": "true"})
    deltalake.DeltaTable(uri).update({"state": "'paid'"}, predicate="id < 2")
    deltalake.write_deltalake(uri, rows(4, 5), mode="append")
    deltalake.DeltaTable(uri).delete("id = 3")
    deltalake.write_deltalake(uri, rows(6), mode="overwrite")
    return uri


def run(orders: str, server: str) -> list[dict[str, Any]]:
    folder = Path(orders).parent
    done = fds(
        *("run", orders, "--stream", "changes", "--sink", str(folder / "bronze"), "--remote", server),
        *("--staging", str(folder / "staging"), "--checkpoint", str(folder / "cp.json"), "--output", "json"),
        *("--option", "read_change_feed=true", "--option", "starting_version=0"),
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_every_change_lands_once_and_a_second_run_finds_nothing(orders, connect_server):
    assert run(orders, connect_server.url)[-1] == {"status": "up_to_date", "error": None}
    sink = deltalake.DeltaTable(Path(orders).parent / "bronze")
    version = sink.version()

    found = sink.to_pyarrow_table()
    assert found.column_names == ["id", "state", "_change_type"]
    expected = deltalake.DeltaTable(orders).load_cdf(starting_version=0).read_all()
    names = found.column_names
    assert rows_of(found, names) == rows_of(pa.table(expected), names)
    assert found.num_rows == 4 + 4 + 2 + 1 + 6

    commits = [read_commit_metadata(commit.get("userMetadata")) for commit in reversed(sink.history())]
    chain = [(commit["after"], commit["start"], commit["end"]) for commit in commits if commit is not None]
    # 0 | 1 | 2 | 3 | 4: the two kinds of commit alternate
    assert len(chain) == 5
    assert all(after == start for after, start, _ in chain)
    assert [start for _, start, _ in chain[1:]] == [end for _, _, end in chain[:-1]]

    assert run(orders, connect_server.url)[-1] == {"status": "up_to_date", "error": None}
    assert deltalake.DeltaTable(Path(orders).parent / "bronze").version() == version


def rows_of(table: pa.Table, names: list[str]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row[name] for name in names) for row in table.to_pylist())
