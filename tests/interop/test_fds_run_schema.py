"""``fds run`` over a renamed column: it stops before it, waits for a word, and reads on under the new name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_fds.errors import EXIT_STOPPED
from tests.fds_command import fds

RENAMED_AT = 3


@pytest.fixture
def orders(lab, request) -> str:
    """A table with column mapping: two appends, a rename, two more appends."""
    path = lab.create(
        f"renamed orders of {request.node.name[:20]}",
        "(id LONG, name STRING, p INT) USING delta PARTITIONED BY (p) "
        "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
    )
    lab.sql("INSERT INTO {} VALUES (1, 'one', 1), (2, 'two', 2)", path)
    lab.sql("INSERT INTO {} VALUES (3, NULL, 1)", path)
    lab.sql("ALTER TABLE {} RENAME COLUMN name TO label", path)
    lab.sql("INSERT INTO {} VALUES (4, 'four', 2)", path)
    lab.sql("INSERT INTO {} VALUES (5, 'five', NULL)", path)
    return path


def staging(orders: str) -> str:
    return f"{orders} staging"


def sink(orders: str) -> str:
    return f"{orders} bronze"


def run(orders: str, server: str) -> tuple[int, list[dict[str, Any]], str]:
    done = fds(
        *("run", orders, "--stream", "orders", "--sink", sink(orders), "--staging", staging(orders)),
        *("--checkpoint", f"{orders}.json", "--option", "starting_version=0", "--output", "json"),
        *("--remote", server),
    )
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


# D18
def test_a_stop_behind_a_batch_that_an_earlier_run_has_planned_is_told(orders, connect_server):
    """The run that takes the batch over must not end as if all was loaded."""
    planned = fds("plan", orders, "--stream", "orders", "--staging", staging(orders), "--option", "starting_version=0")
    assert planned.returncode in (0, EXIT_STOPPED), planned.stderr
    code, lines, _ = run(orders, connect_server.url)
    assert (code, [line["rows"] for line in lines[:-1]]) == (EXIT_STOPPED, [3])
    assert lines[-1]["error"]["version"] == RENAMED_AT


def test_a_rename_that_was_accepted_is_passed_and_all_rows_are_there(lab, orders, connect_server):
    code, lines, _ = run(orders, connect_server.url)
    assert (code, [line["rows"] for line in lines[:-1]]) == (EXIT_STOPPED, [3])
    error = lines[-1]["error"]
    assert (error["type"], error["version"]) == ("SchemaChangedError", RENAMED_AT)
    assert "~ name -> label" in error["message"]

    # the sink first, as the message says, then the word
    lab.sql("ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')", sink(orders))
    lab.sql("ALTER TABLE {} RENAME COLUMN name TO label", sink(orders))
    words = ["--version", str(RENAMED_AT), "--why", "the sink has the new name"]
    assert fds("accept", "orders", "--staging", staging(orders), "--yes", *words).returncode == 0
    code, lines, said = run(orders, connect_server.url)

    assert code == 0, said[-3000:]
    assert [line["rows"] for line in lines[:-1]] == [2]
    assert lab.spark.read.format("delta").load(sink(orders)).columns == ["id", "label", "p"]
    assert lab.table(sink(orders)) == lab.table(orders)
    assert Path(f"{orders}.json").exists()
    assert run(orders, connect_server.url)[:2] == (0, [{"status": "up_to_date", "error": None}])
