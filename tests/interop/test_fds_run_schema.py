"""``fds run`` over a renamed column: it stops before it, waits for a word, and reads on under the new name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_fds.cli.main import main
from airflow_provider_fds.errors import EXIT_STOPPED

RENAMED_AT = 3


@pytest.fixture
def orders(lab) -> str:
    """A table with column mapping: two appends, a rename, two more appends."""
    path = lab.create(
        "renamed orders",
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


def run(orders: str) -> tuple[int, list[dict[str, Any]], str]:
    command = [
        sys.executable, "-m", "airflow_provider_fds.cli.main", "run", orders, "--stream", "orders",
        "--sink", sink(orders), "--staging", staging(orders), "--checkpoint", f"{orders}.json",
        "--option", "starting_version=0", "--master", "local[1]", "--output", "json",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


# D18
def test_a_rename_that_was_acknowledged_is_passed_and_all_rows_are_there(lab, orders):
    code, lines, _ = run(orders)
    assert (code, [line["rows"] for line in lines[:-1]]) == (EXIT_STOPPED, [3])
    error = lines[-1]["error"]
    assert (error["type"], error["version"]) == ("SchemaChangedError", RENAMED_AT)
    assert "~ name -> label" in error["message"]

    # the sink first, as the message says, then the word
    lab.sql("ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')", sink(orders))
    lab.sql("ALTER TABLE {} RENAME COLUMN name TO label", sink(orders))
    words = ["--version", str(RENAMED_AT), "--why", "the sink has the new name"]
    assert main(["acknowledge", "orders", "--staging", staging(orders), *words]) == 0
    code, lines, said = run(orders)

    assert code == 0, said[-3000:]
    assert [line["rows"] for line in lines[:-1]] == [2]
    assert lab.spark.read.format("delta").load(sink(orders)).columns == ["id", "label", "p"]
    assert lab.table(sink(orders)) == lab.table(orders)
    assert Path(f"{orders}.json").exists()
    assert run(orders)[:2] == (0, [{"status": "up_to_date", "error": None}])
