"""``fds run`` on a source that adds a column which the sink must not add: it stops before Spark loads that version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.backends import registry
from airflow_provider_fds.backends.base import Outcome, SparkBackend
from airflow_provider_fds.errors import EXIT_BATCH_FAILED, EXIT_OK
from tests import fds_command
from tests.unit.stream.conftest import SINK_ID

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import LogBuilder
    from tests.unit.stream.conftest import Bench

WAYS_OUT = ("DeltaAppendSink(…, merge_schema=True)", "leave them out (columns=[…] of the sink)")


class Spark(SparkBackend):
    """Reports each batch as loaded, and remembers the versions."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.loaded: list[tuple[int, int]] = []

    def check(self) -> None:
        """Find nothing wrong."""

    def run(self, application: Any) -> Outcome:
        self.loaded += [(batch.first_version, batch.last_version) for batch in application.work.batches]
        self.bench.report(application.session, application.work, application.spec_uri)
        return Outcome()


@pytest.fixture
def spark(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Spark:
    found = Spark(bench)
    monkeypatch.setattr(registry, "command_line_backend", lambda *_: found)
    return found


@pytest.fixture
def source(log_builder: LogBuilder) -> LogBuilder:
    log_builder.create([log_builder.field("id")])
    log_builder.append()
    return log_builder


@pytest.fixture
def sink_log(log_builder: LogBuilder, tmp_path: Path) -> LogBuilder:
    """The log of the sink, written by hand."""
    builder = type(log_builder)(tmp_path / "sink")
    builder.table_id = SINK_ID
    return builder


@pytest.fixture
def fds(bench: Bench, tmp_path: Path) -> Any:
    def run(*more: str) -> tuple[int, str]:
        places = ("--staging", str(bench.staging), "--sink", str(tmp_path / "sink"))
        words = ("run", str(bench.table), "--stream", "orders", "--option", "starting_version=0", *places, *more)
        done = fds_command.fds(*words)
        return done.returncode, done.stderr

    return run


def add_column(source: LogBuilder) -> None:
    fields = [source.field("id"), source.field("note", "string")]
    source.commit(source.metadata(fields), operation="ADD COLUMNS")


def test_a_sink_that_the_same_run_creates_has_the_columns_of_its_first_batch(spark, source, fds):
    add_column(source)
    source.append()
    code, said = fds()
    assert (code, spark.loaded) == (EXIT_BATCH_FAILED, [(0, 1)])
    assert "the batch has columns note that the sink" in said
    assert all(way in said for way in WAYS_OUT), said


def test_a_column_that_came_without_rows_is_compared_when_the_rows_come(spark, source, fds, sink_log):
    sink_log.create([source.field("id")])
    assert fds()[0] == EXIT_OK
    add_column(source)
    assert fds()[0] == EXIT_OK
    source.append()
    loaded = list(spark.loaded)
    for _ in range(2):
        code, said = fds()
        assert (code, spark.loaded) == (EXIT_BATCH_FAILED, loaded)
        assert all(way in said for way in WAYS_OUT), said


@pytest.mark.parametrize("way", ["merge_schema=yes", "columns=id"])
def test_each_way_out_that_the_error_names_loads_the_rows(spark, source, fds, sink_log, way):
    sink_log.create([source.field("id")])
    fds()
    add_column(source)
    source.append()
    assert fds()[0] == EXIT_BATCH_FAILED
    assert fds("--sink-option", way)[0] == EXIT_OK
    assert spark.loaded == [(0, 1), (2, 3)]


@pytest.mark.parametrize("way", ["merge_schema=yes", "columns=id"])
def test_a_new_sink_takes_all_versions_with_each_way_out(spark, source, fds, way):
    add_column(source)
    source.append()
    assert fds("--sink-option", way)[0] == EXIT_OK
    assert spark.loaded == [(0, 1), (2, 3)]
