"""``fds run --file``: what it does with a file and prints, with a Spark that only leaves its reports."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from rich.console import Console

from airflow_provider_fds.backends import registry
from airflow_provider_fds.backends.base import Outcome, SparkBackend
from airflow_provider_fds.batch.fleet_spec import FleetSpec
from airflow_provider_fds.cli.fleet import progress as fleet_progress
from airflow_provider_fds.cli.main import main
from airflow_provider_fds.errors import EXIT_BATCH_FAILED, EXIT_CONFIGURATION
from tests.conftest import LogBuilder
from tests.unit.stream.conftest import Bench

FILE = """
defaults:
  staging: {root}/staging
  starting_version: 0
  sink: {{uri: "{root}/sinks/{{table}}"}}
groups:
  raw:
    parallelism: 3
    max_bytes_in_flight: 1g
    spark: {{conf: {{spark.a: group, spark.b: group}}, driver_memory: 2g}}
streams:
  - table: {root}/orders
  - tables: {root}/raw/*
    group: raw
    batch_timeout: 5m
"""


class Spark(SparkBackend):
    """Reports the jobs of each stream as done, but for those in ``fails``."""

    def __init__(self) -> None:
        self.fails: set[str] = set()
        self.applications: list[Any] = []
        self.specs: list[FleetSpec] = []
        self.error: Exception | None = None
        self.conf: list[dict[str, Any]] = []

    def check(self) -> None:
        """Find nothing wrong."""

    def run_fleet(self, application: Any) -> Outcome:
        self.applications.append(application)
        self.specs.append(FleetSpec.from_json(Path(urlsplit(application.spec_uri).path).read_bytes()))
        for part in application.parts:
            bench = Bench(part.session.stream.table, part.session.context.staging_uri)
            if part.session.stream.name not in self.fails:
                bench.report(part.session, part.work, part.spec_uri)
        print("FDS Spark UI: http://localhost:4040")
        application.commit()
        return Outcome(self.error)


@pytest.fixture
def spark(monkeypatch):
    found = Spark()

    def backend(_master: str, _remote: str | None, arguments: Any, _tell: Any) -> Spark:
        found.conf.append(arguments.conf)
        return found

    monkeypatch.setattr(registry, "command_line_backend", backend)
    return found


@pytest.fixture
def tables(tmp_path):
    (tmp_path / "streams.yaml").write_text(FILE.format(root=tmp_path))
    found = {}
    for name in ("orders", "raw/a", "raw/b"):
        found[name] = builder = LogBuilder(tmp_path / name)
        builder.create()
        builder.append(2)
    return found


def fds(capsys: Any, folder: Any, *arguments: str) -> tuple[int, str, str]:
    code = main(["run", "--file", str(folder / "streams.yaml"), *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_each_group_is_one_application_with_the_groups_settings(spark, tables, tmp_path, capsys):
    code, out, err = fds(capsys, tmp_path, "--conf", "spark.b=mine")
    assert code == 0
    assert out.splitlines() == [
        "orders: 20 rows in 1 batch",
        "a: 20 rows in 1 batch",
        "b: 20 rows in 1 batch",
        "3 streams, 0 stopped, 2 Spark applications",
    ]
    assert "group raw: 2 batches of 2 streams in one Spark application" in err
    assert "a: 1 batch" in err
    assert "Spark UI: http://localhost:4040" in err
    assert [[job.timeout_seconds for job in spec.jobs] for spec in spark.specs] == [[None], [300.0, 300.0]]
    assert [one.parallelism for one in spark.applications] == [8, 3]
    assert spark.conf == [
        {"spark.b": "mine"},
        {"spark.a": "group", "spark.b": "mine", "spark.driver.memory": "2g"},
    ]


def test_a_second_run_starts_no_spark_if_nothing_is_new(spark, tables, tmp_path, capsys):
    fds(capsys, tmp_path)
    code, out, _ = fds(capsys, tmp_path)
    assert (code, len(spark.applications)) == (0, 2)
    assert out.splitlines()[-2:] == ["b: unchanged", "3 streams, 0 stopped, 0 Spark applications"]


def test_a_stream_that_fails_is_named_and_its_code_is_the_exit_code(spark, tables, tmp_path, capsys):
    spark.fails = {"a"}
    code, out, err = fds(capsys, tmp_path)
    assert code == EXIT_BATCH_FAILED
    assert out.splitlines()[1:] == [
        "a: failed", "b: 20 rows in 1 batch", "3 streams, 1 stopped, 2 Spark applications"
    ]  # fmt: skip
    assert "fds: a: [SPARK_ENDED_EARLY]" in err
    assert err.count("Spark ended without a report") == 1
    spark.fails = set()
    assert fds(capsys, tmp_path)[0] == 0


def test_json_has_an_object_for_each_stream_and_the_totals(spark, tables, tmp_path, capsys):
    spark.fails = {"b"}
    _, out, err = fds(capsys, tmp_path, "--output", "json")
    *streams, total = map(json.loads, out.splitlines())
    assert [(one["stream"], one["outcome"], one.get("rows")) for one in streams] == [
        ("orders", "loaded", 20), ("a", "loaded", 20), ("b", "failed", None)
    ]  # fmt: skip
    assert streams[2]["error"]["reason_code"] == "SPARK_ENDED_EARLY"
    assert total == {"streams": 3, "stopped": 1, "applications": 2, "problems": []}
    assert "batch" not in err


def test_a_new_table_is_loaded_and_a_gone_one_is_an_error(spark, tables, tmp_path, capsys):
    fds(capsys, tmp_path)
    builder = LogBuilder(tmp_path / "raw" / "c")
    builder.create()
    builder.append(1)
    (tmp_path / "raw" / "a").rename(tmp_path / "gone")
    code, out, err = fds(capsys, tmp_path)
    assert code == EXIT_CONFIGURATION
    assert "c: 10 rows in 1 batch" in out
    assert f"table {tmp_path}/raw/a of stream 'a' is gone" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--sink", "/sink"), "--sink and --file cannot be combined"),
        (("--checkpoint", "/file", "--sink-option", "scd=2"), "--sink-option and --file cannot be combined"),
        (("--max-batches", "3"), "--max-batches and --file cannot be combined"),
    ],
)
def test_what_the_file_says_of_each_stream_is_refused_as_an_argument(tables, tmp_path, capsys, arguments, message):
    code, _, err = fds(capsys, tmp_path, *arguments)
    assert (code, message in err) == (2, True), err


def test_a_properties_file_which_only_a_task_passes_on_is_refused(spark, tables, tmp_path, capsys):
    text = FILE.replace("driver_memory: 2g", "properties_file: spark.conf, exclude_packages: 'a:b'")
    (tmp_path / "streams.yaml").write_text(text.format(root=tmp_path))
    code, _, err = fds(capsys, tmp_path)
    assert code == EXIT_CONFIGURATION
    assert "group 'raw' has the properties_file 'spark.conf'" in err
    (tmp_path / "streams.yaml").write_text(text.replace("properties_file: spark.conf, ", "").format(root=tmp_path))
    fds(capsys, tmp_path)
    assert spark.conf[-1]["spark.jars.excludes"] == "a:b"


def test_one_stream_still_needs_its_arguments(capsys, monkeypatch):
    monkeypatch.delenv("AIRFLOW__FDS__STAGING", raising=False)
    assert main(["run", "/table", "--stream", "orders"]) == 2
    message = capsys.readouterr().err
    assert "missing --staging (or AIRFLOW__FDS__STAGING" in message
    assert ", --sink; for all streams of a file" in message


def test_a_run_without_a_name_for_its_stream_writes_nothing(tables, capsys, tmp_path):
    places = ("--sink", tmp_path / "sink", "--staging", tmp_path / "staging", "--checkpoint", tmp_path / "offset")
    before = sorted(tmp_path.rglob("*"))
    assert main(["run", *map(str, (tmp_path / "raw" / "a", *places))]) == 2
    assert "missing --stream NAME (the name under which staging keeps the position)" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_terminal_has_a_table_of_the_streams_while_spark_works(spark, tables, tmp_path, capsys, monkeypatch):
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, height=7)
    monkeypatch.setattr(fleet_progress, "rich_console", lambda: console)
    spark.fails = {"a"}
    assert fds(capsys, tmp_path)[0] == EXIT_BATCH_FAILED
    text = out.getvalue()
    assert "group raw: 2 of 2 streams done" in text
    assert "STREAM" in text
    assert "stopped" in text
    assert "group raw: 2 batches of 2 streams in one Spark application" in text


def test_a_file_with_several_groups_does_not_linger(spark, tables, tmp_path, capsys):
    code, _, err = fds(capsys, tmp_path, "--linger", "10m")
    assert code == EXIT_CONFIGURATION
    assert "--linger is for a file with one group" in err
    assert spark.applications == []


def test_a_file_with_one_group_lingers(spark, tables, tmp_path, capsys):
    (tmp_path / "streams.yaml").write_text(FILE.format(root=tmp_path).replace("group: raw", "group: default"))
    code, out, _ = fds(capsys, tmp_path, "--linger", "1s")
    assert code == 0
    assert out.splitlines()[-1] == "3 streams, 0 stopped, 1 round"
