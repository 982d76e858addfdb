"""How many batches are left, and what a plan of too many leads to."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.source.options.options import SourceOptions
from airflow_provider_fds.source.planning.plan import BatchPlanner
from airflow_provider_fds.stream.planning import backlog as module
from airflow_provider_fds.stream.planning.backlog import Backlog, estimate_backlog

GIB = 1 << 30


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.WARNING)
    return lambda: [record.getMessage() for record in caplog.records if record.name.endswith("backlog")]


@pytest.mark.parametrize(
    ("options", "batches", "suggestion"),
    [
        ({}, 5_000, "max_files_per_batch=5000, max_bytes_per_batch='125g'"),
        ({"max_files_per_batch": 10}, 500_000, "max_files_per_batch=5000"),
        ({"max_bytes_per_batch": "1g"}, 50_000, "max_bytes_per_batch='50g'"),
        ({"max_bytes_per_batch": "100k"}, 5_000_000, "max_bytes_per_batch='50g'"),
        ({"max_rows_per_batch": 1_000}, 500_000, "max_rows_per_batch=500000"),
        ({"max_files_per_batch": 10_000, "max_versions_per_batch": 1}, 2_000,
         "max_files_per_batch=10000, max_versions_per_batch=2"),
        ({"max_files_per_batch": 10, "whole_commits": True}, 2_000, "max_files_per_batch=5000"),
        ({"max_files_per_batch": 5_000}, 1_000, "max_files_per_batch=5000"),
    ],
    ids=repr,
)  # fmt: skip
def test_the_limits_decide_how_many_batches_are_left(options: Any, batches: int, suggestion: str) -> None:
    parsed = SourceOptions.parse(options)
    backlog = Backlog(versions=2_000, files=5_000_000, bytes=50_000 * GIB, rows=500_000_000)
    assert backlog.batches(parsed) == batches
    assert backlog.suggestion(parsed) == suggestion


@pytest.mark.parametrize("suggested", ["50g", "125g"])
def test_the_suggested_limit_leads_to_a_thousand_batches(suggested: str) -> None:
    backlog = Backlog(versions=0, files=5_000_000, bytes=50_000 * GIB, rows=0)
    assert backlog.batches(SourceOptions.parse({"max_bytes_per_batch": suggested})) <= 1_000


@pytest.mark.parametrize(("files", "tolerance"), [(1, 1.0), (7, 0.5), (100, 0.1)])
def test_the_files_of_commits_follow_from_the_size_of_the_log(log_builder: Any, files: int, tolerance: float) -> None:
    log_builder.create()
    for _ in range(40):
        log_builder.append(files, size=2_000, rows=5)
        log_builder.commit({"txn": {"appId": "app", "version": 0}})
    log = DeltaLog(LocalStorage(str(log_builder.root)))
    options = SourceOptions.parse({"max_files_per_batch": 3})
    first = next(iter(BatchPlanner(log, Offset(log_builder.table_id, 1), None, options, log_builder.version)))

    found = estimate_backlog(log, first, log_builder.version, None)

    # a small commit is mostly commitInfo, which is shorter here than Spark's
    assert found.files == pytest.approx(40 * files, rel=tolerance)
    assert found.bytes == found.files * 2_000
    assert found.rows == found.files * 5
    assert found.versions == 80


def test_the_sizes_of_many_commits_are_extrapolated(log_builder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LISTED_COMMITS", 10)
    log_builder.create()
    for _ in range(40):
        log_builder.append(50)
    log = DeltaLog(LocalStorage(str(log_builder.root)))
    options = SourceOptions.parse({"max_files_per_batch": 3})
    planner = BatchPlanner(log, Offset(log_builder.table_id, 1), None, options, 40)
    assert estimate_backlog(log, next(iter(planner)), 40, None).files == pytest.approx(2_000, rel=0.2)


def test_a_plan_of_many_batches_is_warned_of_with_a_limit_that_leads_to_fewer(bench, log_builder, sink, warnings):
    log_builder.create()
    log_builder.append(2_500)

    work = bench.session(stream=bench.stream(max_files_per_batch=1)).begin(sink, max_batches=2)

    assert work.is_more
    (warning,) = warnings()
    assert "'orders': about 2," in warning
    assert "set larger limits: max_files_per_batch=3" in warning


def test_the_rest_of_a_snapshot_is_known(bench, log_builder, sink, warnings):
    log_builder.create()
    log_builder.append(1_600, size=7)
    stream = bench.stream(starting_version=None, max_files_per_batch=1)

    bench.session(stream=stream).begin(sink, max_batches=2)

    assert "about 1,600 batches are left up to version 1" in warnings()[0]
    assert "(about 1,600 files, 11,200 bytes)" in warnings()[0]


def test_a_plan_of_far_too_many_batches_is_refused_before_a_plan_is_written(bench, log_builder, sink, monkeypatch):
    monkeypatch.setattr(module, "MANY_BATCHES", 10)
    monkeypatch.setattr(module, "MOST_BATCHES", 50)
    log_builder.create()
    log_builder.append(100)
    session = bench.session(stream=bench.stream(max_files_per_batch=1))

    with pytest.raises(ConfigurationError, match="planned; set larger limits: max_files_per_batch=") as caught:
        session.begin(sink)

    assert caught.value.reason_code == Reason.TOO_MANY_BATCHES
    assert session.connected.load().planned == ()
    assert not list(bench.staging.rglob("*.parquet"))
    assert not list(bench.staging.rglob("_delta_log"))
    # a limit can be raised at any position
    assert bench.session(stream=bench.stream(max_files_per_batch=20)).begin(sink).status == "work"


@pytest.mark.parametrize("options", [{}, {"max_files_per_batch": 1, "where": "day > 1"}], ids=repr)
def test_few_batches_and_filtered_ones_list_nothing(bench, log_builder, sink, monkeypatch, warnings, options):
    monkeypatch.setattr(module, "estimate_backlog", None)
    log_builder.create([log_builder.field("id"), log_builder.field("day", "integer")], ["day"])
    log_builder.append(5, partitionValues={"day": "2"})

    assert bench.session(stream=bench.stream(**options)).begin(sink).status == "work"
    assert warnings() == []
