"""A stream without new data is not up to date if its sink has lost what was loaded."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from airflow_provider_fds.errors import BatchRejectedError
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink
from airflow_provider_fds.stream.monitoring.status import status_of


@pytest.fixture
def sink(tmp_path):
    return DeltaAppendSink(str(tmp_path / "sink"))


@pytest.fixture
def loaded(bench, log_builder, sink):
    """A stream that has loaded versions 0 to 2, in versions 1 and 2 of the sink."""
    log_builder.create()
    log_builder.append(1)
    log_builder.append(1)
    bench.load_once(sink, "run-1", bench.stream(max_versions_per_batch=1))
    return bench


def commit(sink, operation, **parameters):
    """Leave a commit of another writer, which removes a file; an OPTIMIZE keeps its rows."""
    folder = Path(sink.uri) / "_delta_log"
    version = len(list(folder.glob("*.json")))
    info = {"operation": operation, "operationParameters": parameters}
    remove = {"path": "a", "dataChange": operation != "OPTIMIZE", "deletionTimestamp": 1}
    lines = [json.dumps({"commitInfo": info}), json.dumps({"remove": remove})]
    (folder / f"{version:020}.json").write_text("\n".join(lines) + "\n")


def begin(bench, sink, run="run-2"):
    return bench.session(run, stream=bench.stream(max_versions_per_batch=1)).begin(sink)


def status(bench):
    return status_of(bench.session("status").connected)


def test_a_sink_that_is_as_it_was_costs_one_request_and_says_nothing(loaded, sink):
    assert begin(loaded, sink).status == "up_to_date"
    assert (status(loaded).condition, status(loaded).problem) == ("up_to_date", None)


@pytest.mark.parametrize(
    ("done", "says"),
    [
        (lambda sink: commit(sink, "RESTORE", version=1), "had a RESTORE in version 3"),
        (lambda sink: commit(sink, "RESTORE", timestamp="2024-01-01"), "had a RESTORE in version 3"),
        (lambda sink: commit(sink, "CREATE OR REPLACE TABLE"), "had a CREATE OR REPLACE TABLE in version 3"),
        (lambda sink: (Path(sink.uri) / "_delta_log" / f"{2:020}.json").unlink(), "is at an earlier version"),
        (lambda sink: shutil.rmtree(sink.uri), "is missing"),
    ],
)
def test_a_sink_that_lost_rows_is_a_problem_of_the_run_and_of_the_status(loaded, sink, done, says):
    done(sink)
    with pytest.raises(BatchRejectedError, match=says):
        begin(loaded, sink)
    found = status(loaded)
    assert says in found.problem
    assert (found.condition, found.exit_code) == ("failing", 6)


@pytest.mark.parametrize(
    ("operation", "parameters", "is_told"),
    [("DELETE", {"predicate": "[]"}, True), ("WRITE", {"mode": "Overwrite"}, True), ("OPTIMIZE", {}, False)],
)
def test_rows_that_another_writer_removed_are_a_warning(loaded, sink, operation, parameters, is_told, caplog):
    commit(sink, operation, **parameters)
    assert begin(loaded, sink).status == "up_to_date"
    assert ("removed rows that stream 'orders' may have loaded" in caplog.text) is is_told
    assert status(loaded).problem is None
    assert ("removed rows" in status(loaded).extra.get("sink warning", "")) is is_told


def test_a_restore_that_keeps_what_was_loaded_says_nothing(loaded, sink):
    commit(sink, "OPTIMIZE")
    commit(sink, "RESTORE", version=2)
    assert status(loaded).problem is None


def test_a_sink_that_merges_is_checked_too(bench, log_builder, tmp_path):
    sink = DeltaMergeSink(str(tmp_path / "sink"), keys=["id"])
    log_builder.create()
    log_builder.append(1)
    bench.load_once(sink, "run-1")
    shutil.rmtree(sink.uri)
    assert "is missing" in status(bench).problem
