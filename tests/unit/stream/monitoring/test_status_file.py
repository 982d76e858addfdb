"""Status files: what a task or a monitor leaves for the page "Delta streams"."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.errors import AccessDeniedError, LedgerError, StoppedError
from airflow_provider_fds.ledger.entries.operator_entries import Held, Quarantined
from airflow_provider_fds.ledger.layout import status_key
from airflow_provider_fds.ledger.owner import Actor
from airflow_provider_fds.ledger.state import StreamState
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sinks import DeltaAppendSink
from airflow_provider_fds.stream.monitoring.all_statuses import stream_names, unreadable
from airflow_provider_fds.stream.monitoring.monitor import ROUNDS_PER_FILE, StreamMonitor
from airflow_provider_fds.stream.monitoring.run_failure import RunEnd, failures_after
from airflow_provider_fds.stream.monitoring.status import StreamStatus, status_of
from airflow_provider_fds.stream.monitoring.status_file import (
    KEPT_SAMPLES,
    write_status_file,
)
from airflow_provider_fds.stream.monitoring.status_row import known_row, parse_row, read_status_file, waits_for
from tests.counting_storage import count_requests

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
TASK = Actor(deployment="test", dag_id="dag", run_id="run-1", task_id="ingest")


@pytest.fixture
def staging(tmp_path):
    return LocalStorage(str(tmp_path / "files"))


def status(name="orders", **fields):
    found = {"table": "s3://lake/orders", "phase": "open", "condition": "waiting", "uuid": "u", "deployment": "test"}
    return StreamStatus(name=name, **{**found, **fields})


def written(staging, found, state=None, *, by="run", **more):
    write_status_file(staging, found, state, written_by=by, clock=lambda: NOW, **more)
    return read_status_file(staging, found.name)


def test_a_run_leaves_the_status_of_its_stream_with_its_task_and_the_last_batch(bench, log_builder, tmp_path):
    log_builder.create()
    log_builder.append(2)
    sink = DeltaAppendSink(str(tmp_path / "sink"))
    session, _ = bench.run_once(sink)
    found = status_of(session.connected)
    row = written(session.connected.staging, found, session.connected.state, actor=TASK, committed_at="2026-11-23")
    assert (row.name, row.condition, row.lag_versions, row.pending_rows) == ("orders", "up_to_date", 0, 0)
    assert (row.dag_id, row.task_id, row.run_id, row.deployment) == ("dag", "ingest", "run-1", "test")
    assert (row.last_batch.batch_id, row.last_batch.epoch, row.last_batch.committed_at) == (0, 1, "2026-11-23")
    assert (row.table, row.sink["target"]) == (found.table, found.sink["target"])
    assert row.written_at == "2026-11-23T12:00:00.000Z"


def test_a_monitor_keeps_the_task_the_time_of_the_batch_and_the_samples(staging):
    batch = {"epoch": 1, "batch_id": 3, "rows": 5, "rows_read": 6, "seconds": {"load": 1.0, "write": 2.5}}
    written(staging, status(last_commit=batch, lag_versions=2), actor=TASK, committed_at="2026-11-23T11:00:00.000Z")
    row = written(staging, status(last_commit=batch, lag_versions=1, lag_seconds=7.0), by="monitor")
    assert (row.written_by, row.dag_id) == ("monitor", "dag")
    assert (row.last_batch.committed_at, row.last_batch.seconds) == ("2026-11-23T11:00:00.000Z", 3.5)
    assert [(one.lag_versions, one.lag_seconds) for one in row.samples] == [(2, None), (1, 7.0)]
    newer = written(staging, status(last_commit={**batch, "batch_id": 4}), by="monitor")
    assert newer.last_batch.committed_at is None


def test_the_newest_samples_are_kept(staging):
    for lag in range(KEPT_SAMPLES + 3):
        row = written(staging, status(lag_versions=lag), by="monitor")
    assert [one.lag_versions for one in row.samples] == list(range(3, KEPT_SAMPLES + 3))


def test_the_list_reads_a_file_without_its_samples(staging):
    written(staging, status(lag_versions=1))
    row = parse_row(staging.get(status_key("orders"))[0])
    assert (row.name, hasattr(row, "samples")) == ("orders", False)


@pytest.mark.parametrize("data", [b"", b"{}", b"not json", b'{"format":2,"name":"orders"}', b"\xff"])
def test_a_file_that_is_damaged_or_of_another_format_is_ignored_and_replaced(staging, data):
    staging.put(status_key("orders"), data)
    assert parse_row(data) is None
    assert read_status_file(staging, "orders") is None
    assert written(staging, status()).condition == "waiting"


def test_another_stream_of_the_same_name_does_not_inherit_samples_or_task(staging):
    written(staging, status(lag_versions=9), actor=TASK)
    row = written(staging, status(uuid="other", lag_versions=1), by="monitor")
    assert [one.lag_versions for one in row.samples] == [1]
    assert row.dag_id is None


def test_a_dag_of_the_installation_that_the_stream_has_left_is_not_kept(staging):
    written(staging, status(), actor=TASK)
    assert written(staging, status(deployment="production"), by="monitor").dag_id is None


def test_what_a_stream_waits_for_is_known_until_it_moves(staging):
    at = {"position": "p", "epoch": 1, "lag_versions": 1}
    state = StreamState(name="orders", uuid="u", epoch=1, position="p")
    assert known_row(staging, state) is None
    written(staging, status(**at, waits_for="waits for stream 's1'"))
    row = known_row(staging, state)
    assert waits_for(row, state) == "waits for stream 's1'"
    assert known_row(staging, replace(state, uuid="other")) is None
    for moved in ({"position": "q"}, {"epoch": 2}):
        assert waits_for(row, replace(state, **moved)) is None


def test_what_looks_like_a_credential_is_not_written(staging):
    error = StoppedError("GET https://lake.test/a?X-Amz-Signature=abc123secret was refused", table="t")
    state = StreamState(name="orders", uuid="u", epoch=1)
    failures = failures_after((), RunEnd(error), state, 3, "2026-11-23T12:00:00.000Z")
    written(staging, status(failures=failures, condition="failing", cause=str(error)), actor=TASK)
    data = staging.get(status_key("orders"))[0]
    assert data.count(b"was refused") == 2
    assert b"abc123secret" not in data


@pytest.mark.parametrize(
    ("action", "cause", "command"),
    [
        (Held(why="moving house"), "The stream is on hold: moving house", "fds resume orders --why …"),
        (
            Quarantined(why="a DELETE", version=3, way_on="skip"),
            "The stream is in quarantine",
            "fds skip orders --version 3 --why …",
        ),
    ],
)
def test_a_stream_that_waits_for_a_person_says_what_to_do(bench, log_builder, tmp_path, action, cause, command):
    log_builder.create()
    session, _ = bench.run_once(DeltaAppendSink(str(tmp_path / "sink")))
    session.connected.execute(action)
    connected = session.connected
    row = written(connected.staging, status_of(connected), connected.state)
    assert row.problem.startswith(cause)
    assert row.what_to_do.startswith(command)


def test_the_folder_of_the_files_is_no_stream(bench, log_builder, tmp_path):
    log_builder.create()
    session, _ = bench.run_once(DeltaAppendSink(str(tmp_path / "sink")))
    connected = session.connected
    written(connected.staging, status_of(connected), connected.state)
    assert stream_names(connected.staging) == ["orders"]


def test_a_monitor_writes_each_file_once_in_so_many_rounds_with_one_get_and_one_put(
    bench, log_builder, tmp_path, monkeypatch
):
    log_builder.create()
    session, _ = bench.run_once(DeltaAppendSink(str(tmp_path / "sink")))
    requests = count_requests(monkeypatch)
    watched = StreamMonitor(lambda: session.connected.context)
    written_in = []
    for turn in range(2 * ROUNDS_PER_FILE):
        statuses = watched.poll()
        requests.clear()
        assert watched.write_status_files(statuses, interval_seconds=60) is None
        if requests:
            assert [(one.kind, one.key) for one in requests] == [
                ("get", ".status/orders.json"),
                ("put", ".status/orders.json"),
            ]
            written_in.append(turn)
    assert written_in == [0, ROUNDS_PER_FILE]
    assert read_status_file(session.connected.staging, "orders").next_within_seconds == 60 * ROUNDS_PER_FILE


def test_a_monitor_that_may_not_write_says_why_and_tries_again(bench, log_builder, tmp_path, monkeypatch):
    log_builder.create()
    bench.run_once(DeltaAppendSink(str(tmp_path / "sink")))
    (bench.staging / ".status").write_text("a file, not a folder")
    watched = StreamMonitor(lambda: bench.session().connected.context)
    statuses = watched.poll()
    assert watched.write_status_files(statuses, interval_seconds=60) is not None
    (bench.staging / ".status").unlink()
    assert watched.write_status_files(statuses, interval_seconds=60) is None


def test_the_first_file_is_written_by_those_who_may_not_list(staging, monkeypatch):
    def refused(key):
        raise AccessDeniedError("403", table="t")

    with monkeypatch.context() as patch:
        patch.setattr(staging, "get", refused)
        write_status_file(staging, status(), None, written_by="run")
    assert read_status_file(staging, "orders").condition == "waiting"


def test_a_status_without_a_ledger_is_written_too(staging):
    found = unreadable("orders", "", LedgerError("gone", reason=Reason.LEDGER_LOST))
    row = written(staging, found, by="monitor")
    assert row.problem == "[LEDGER_LOST] gone"


def test_times_are_those_of_the_writer(staging):
    late = NOW + timedelta(minutes=1)
    write_status_file(staging, status(), None, written_by="run", clock=lambda: late)
    assert read_status_file(staging, "orders").written_at == "2026-11-23T12:01:00.000Z"
