"""``--file FILE``: the streams of a file, and the tables that its patterns find."""

from __future__ import annotations

import argparse
import json
import shutil
from typing import Any

import pytest

from airflow_provider_fds.catalog.names import TableName
from airflow_provider_fds.catalog.table import CatalogTable, ListedTable
from airflow_provider_fds.cli.fleet.fleet import find_fleet
from airflow_provider_fds.cli.main import main
from tests.conftest import LogBuilder

FILE = """
defaults:
  starting_version: 0
  sink: {{uri: "{root}/sinks/{{table}}"}}
streams:
  - table: {root}/orders
    max_files_per_batch: 2
  - table: {root}/gone
    group: small
  - tables: {root}/raw/*
    group: small
    exclude: [tmp_*]
groups:
  small:
    batches_per_application: 1
"""


def fds(capsys: Any, *arguments: object) -> tuple[int, str, str]:
    code = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def table(folder: Any, appends: int) -> LogBuilder:
    builder = LogBuilder(folder)
    builder.create()
    for _ in range(appends):
        builder.append(3)
    return builder


@pytest.fixture
def file(tmp_path):
    for name, appends in (("orders", 2), ("raw/a", 1), ("raw/b", 0), ("raw/tmp_c", 1)):
        table(tmp_path / name, appends)
    (tmp_path / "raw" / "no table").mkdir()
    path = tmp_path / "streams.yaml"
    path.write_text(FILE.format(root=tmp_path))
    return path


def rows_of(out: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.splitlines()]


def test_plan_totals_what_each_stream_has_left_and_the_applications_and_writes_nothing(file, tmp_path, capsys):
    before = sorted(tmp_path.rglob("*"))
    code, out, _ = fds(capsys, "plan", "--file", file, "--dry-run", "--output", "json")
    *streams, total = rows_of(out)
    # gone fails, the others are planned
    assert code == 2
    assert {row["stream"]: (row.get("batches"), row.get("num_files"), row["status"]) for row in streams} == {
        "orders": (3, 6, "up_to_date"),
        "gone": (None, None, "stopped"),
        "a": (1, 3, "up_to_date"),
        "b": (0, 0, "up_to_date"),
    }
    assert streams[0]["sink"] == f"{tmp_path}/sinks/orders"
    # one for each group
    assert total == {
        "streams": 4, "batches": 4, "num_files": 9, "num_bytes": 9000, "applications": 2, "problems": []
    }  # fmt: skip
    assert sorted(tmp_path.rglob("*")) == before


def test_plan_is_a_table_for_people(file, tmp_path, capsys):
    (tmp_path / "gone").mkdir()
    table(tmp_path / "gone", 0)
    code, out, _ = fds(capsys, "plan", "--file", file, "--dry-run", "--batches-per-application", 2)
    header, orders, *_, pattern, total = out.splitlines()
    assert code == 0
    assert header.split() == ["STREAM", "BATCHES", "FILES", "BYTES", "TABLE", "SINK"]
    assert orders.split()[:5] == ["orders", "3", "6", "5.9", "KiB"]
    assert pattern == f"pattern {tmp_path}/raw/*: 2 tables"
    assert total == "4 streams: 4 batches, 9 files, 8.8 KiB, in 3 Spark applications"


def test_plan_begins_at_the_position_of_a_stream_that_exists(file, tmp_path, capsys):
    staging = tmp_path / "staging"
    arguments = ("plan", tmp_path / "orders", "--staging", staging, "--stream", "orders")
    assert fds(capsys, *arguments, "--option", "starting_version=2")[0] == 0
    *streams, _ = rows_of(fds(capsys, "plan", "--file", file, "--dry-run", "--staging", staging, "--output", "json")[1])
    assert (streams[0]["batches"], streams[0]["first_version"]) == (1, 2)


def test_plan_begins_at_a_position_in_the_staging_of_the_environment(file, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("AIRFLOW__FDS__STAGING", str(tmp_path / "staging"))
    assert fds(capsys, "plan", tmp_path / "orders", "--stream", "orders", "--option", "starting_version=2")[0] == 0
    *streams, _ = rows_of(fds(capsys, "plan", "--file", file, "--dry-run", "--output", "json")[1])
    assert (streams[0]["batches"], streams[0]["first_version"]) == (1, 2)


def test_plan_says_that_streams_without_a_staging_folder_are_planned_as_new(file, capsys, caplog, tmp_path):
    fds(capsys, "plan", "--file", file, "--dry-run")
    assert "4 streams planned as if new" in caplog.text
    assert "orders, gone, a, b. Give --staging, or set AIRFLOW__FDS__STAGING" in caplog.text
    caplog.clear()
    fds(capsys, "plan", "--file", file, "--dry-run", "--staging", tmp_path / "staging")
    assert not caplog.text


def test_plan_says_that_a_stream_has_no_position_until_its_next_run_and_is_no_failure(file, tmp_path, capsys):
    table(tmp_path / "gone", 0)
    staging = tmp_path / "staging"
    planned = ("plan", tmp_path / "orders", "--staging", staging, "--stream", "orders", "--deployment", "cli")
    assert fds(capsys, *planned)[0] == 0
    assert fds(capsys, "rewind", "orders", "--to", "start", "--staging", staging, "--why", "a test", "--yes")[0] == 0
    arguments = ("plan", "--file", file, "--dry-run", "--staging", staging)
    code, out, _ = fds(capsys, *arguments)
    assert code == 0
    assert out.splitlines()[1].split()[:2] == ["orders", "unknown"]
    assert out.splitlines()[-1].startswith("orders: stream 'orders' has no position: its next run opens the requested")
    (orders, *_) = rows_of(fds(capsys, *arguments, "--output", "json")[1])
    assert orders["error"] is None
    assert orders["waiting"].startswith("stream 'orders' has no position")


def test_status_has_the_streams_that_have_not_begun_too(file, tmp_path, capsys):
    staging = tmp_path / "staging"
    arguments = ("plan", tmp_path / "orders", "--staging", staging, "--stream", "orders")
    assert fds(capsys, *arguments, "--option", "starting_version=0")[0] == 0
    # not in the file
    assert fds(capsys, "plan", tmp_path / "raw" / "tmp_c", "--staging", staging, "--stream", "other")[0] == 0
    code, out, _ = fds(capsys, "status", "--file", file, "--staging", staging, "--output", "json")
    found = {row["name"]: (row["condition"], row["newest_version"]) for row in rows_of(out)}
    assert code == 1
    assert found == {
        "orders": ("loading", 2), "gone": ("unreadable", None), "a": ("not_begun", 1), "b": ("not_begun", 0)
    }  # fmt: skip
    assert rows_of(out)[2]["sink"] == {
        "kind": "delta_append", "target": f"{tmp_path}/sinks/a", "delivery": "transaction"
    }  # fmt: skip
    code, out, err = fds(capsys, "status", "--file", file, "--staging", staging)
    assert out.splitlines()[-1] == f"pattern {tmp_path}/raw/*: 2 tables"
    assert "gone: [TABLE_NOT_FOUND]" in err


def test_staging_may_be_in_the_file(file, tmp_path, capsys):
    assert "has no staging folder. Give --staging" in fds(capsys, "status", "--file", file)[2]
    file.write_text(file.read_text().replace("defaults:", f"defaults:\n  staging: {tmp_path}/staging"))
    assert fds(capsys, "status", "--file", file)[0] == 1


def test_a_table_of_a_pattern_with_the_name_of_a_stream_is_named_and_not_loaded(file, tmp_path, capsys):
    table(tmp_path / "raw" / "orders", 1)
    code, out, _ = fds(capsys, "plan", "--file", file, "--dry-run")
    assert code == 2
    assert f"table {tmp_path}/raw/orders is not loaded: its stream 'orders' has the name of the stream of" in out


def test_plan_and_status_know_what_a_run_has_recorded_and_leave_every_byte_as_it_is(file, tmp_path, capsys):
    text = file.read_text().replace("defaults:", f"defaults:\n  staging: {tmp_path}/staging")
    file.write_text(text.replace("    exclude:", "    new_tables: alert\n    exclude:"))
    table(tmp_path / "gone", 1)
    for name, last in (("orders", 2), ("gone", 1), ("a", 1)):
        place = tmp_path / ("raw" if name == "a" else "") / name
        words = ("plan", place, "--stream", name, "--staging", tmp_path / "staging")
        assert fds(capsys, *words, "--option", "starting_version=0")[0] == 0, last
    # the run that records the tables of the pattern
    for _ in find_fleet(argparse.Namespace(file=file, staging=None, storage_option=[]), dry_run=False):
        pass
    table(tmp_path / "raw" / "c", 1)
    shutil.rmtree(tmp_path / "raw" / "b")

    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert list((tmp_path / "staging" / ".fleets").iterdir())
    code, out, _ = fds(capsys, "plan", "--file", file, "--dry-run", "--output", "json")
    *streams, total = rows_of(out)
    assert ([row["stream"] for row in streams], code) == (["orders", "gone", "a"], 2)
    gone, new = total["problems"]
    assert "of stream 'b' is gone" in gone
    assert "raw/c is new and is not loaded" in new
    code, out, err = fds(capsys, "status", "--file", file)
    assert (code, out.splitlines()[-1]) == (1, f"pattern {tmp_path}/raw/*: 1 table")
    assert "of stream 'b' is gone" in err
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("plan", "--file", "FILE"), "fds plan --file writes nothing, so it needs --dry-run"),
        (("plan", "--file", "FILE", "--dry-run", "/table"), "TABLE and --file cannot be combined"),
        (("plan", "--file", "FILE", "--dry-run", "--option", "a=b"), "--option and --file cannot be combined"),
        (("plan", "--dry-run"), "missing TABLE; for all streams of a file, give --file FILE"),
        (("plan", "--file", "FILE", "--dry-run", "--stream", "a"), "--stream and --file cannot be combined"),
        (("plan", "--file", "nofile.yaml", "--dry-run"), "nofile.yaml"),
        (("plan", "/table"), "needs --stream NAME and --staging DIR"),
        (("plan", "/table", "--dry-run", "--staging", "s"), "missing --stream NAME"),
        (("plan", "/table", "--staging", "s"), "missing --stream NAME"),
        (("status", "orders"), "missing --staging (or AIRFLOW__FDS__STAGING, or `airflow fds`"),
        (("explain", "orders"), "required: --staging (or AIRFLOW__FDS__STAGING, or `airflow fds`"),
        (("status",), "missing --staging"),
        (("status", "--file", "nofile.yaml", "--staging", "s"), "nofile.yaml"),
    ],
)
def test_what_cannot_work_is_refused(file, capsys, monkeypatch, arguments, message):
    monkeypatch.delenv("AIRFLOW__FDS__STAGING", raising=False)
    code, _, err = fds(capsys, *(file if one == "FILE" else one for one in arguments))
    assert (code, message in err) == (2, True), err


def test_a_file_of_names_takes_the_catalog_of_the_command_line(tmp_path, capsys, monkeypatch):
    table(tmp_path / "lake" / "orders", 2)
    table(tmp_path / "lake" / "raw", 1)
    lines = ListedTable(TableName(("sales", "lines")), problem="sales.lines is a view")
    orders = ListedTable(TableName(("sales", "orders")))

    class Hive:
        def listed(self, _schema):
            return [lines, orders]

        def load(self, name):
            return CatalogTable(name, str(tmp_path / "lake" / name.parts[1]), "1")

    path = tmp_path / "streams.yaml"
    path.write_text(
        f"""
defaults: {{starting_version: 0, sink: "{tmp_path}/sinks/{{table}}"}}
streams:
  - {{tables: sales.*, catalog_conn_id: hive}}
  - {{table: sales.raw, catalog_conn_id: hive}}
  - {{table: lake/raw, name: by_path, sink: "{tmp_path}/sinks/by_path"}}
"""
    )
    monkeypatch.chdir(tmp_path)
    code, out, err = fds(capsys, "plan", "--file", path, "--dry-run")
    assert code == 2
    assert "the Airflow connection 'hive', which the command line does not read. Add --catalog thrift" in out + err
    monkeypatch.setattr("airflow_provider_fds.cli.catalogs._catalog_at", lambda _uri, _secret: Hive())
    known = ("--catalog", "thrift://h:9083")
    code, out, _ = fds(capsys, "plan", "--file", path, "--dry-run", *known)
    assert code == 0, out
    assert "pattern sales.*: 1 table\npattern sales.*: 1 name left out that FDS cannot read: sales.lines." in out
    code, out, _ = fds(capsys, "status", "--file", path, "--staging", tmp_path / "staging", "--output", "json", *known)
    found = {one["name"]: one["newest_version"] for one in rows_of(out)}
    assert found == {"orders": 2, "raw": 1, "by_path": 1}
