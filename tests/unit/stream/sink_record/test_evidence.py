"""What a report must agree with before its batch counts as done: batch, attempt, plan, and the sink's own log."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.batch.report import LandedBatch
from airflow_provider_fds.errors import AccessDeniedError, BatchFailedError, VerificationError
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.sinks import DeltaAppendSink, ForeachBatchSink
from airflow_provider_fds.stream import connected_stream as connect
from tests.unit.stream.epochs.test_epoch_start import leave_fence, load_all, move
from tests.unit.stream.run.test_interval_session import leave_reports, minutes, session_of

if TYPE_CHECKING:
    from tests.unit.stream.conftest import Bench


def collected(bench: Bench, sink: Any, **changes: Any) -> Any:
    """Return what comes of a run whose driver has written its batch, and reported this of it."""
    session = bench.session()
    work = session.begin(sink)
    bench.report(session, work, session.job(work, sink))
    edit_reports(bench, **changes)
    assert session.collect(work, is_running=True).failure is None
    return session, session.collect(work)


def edit_reports(bench: Bench, **changes: Any) -> None:
    for path in bench.staging.glob("*/attempts/**/*.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def edit_commit(sink: DeltaAppendSink, version: int, old: str, new: str) -> None:
    from pathlib import Path

    path = Path(sink.uri) / "_delta_log" / f"{version:020}.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"uuid": "another"}, "uuid is 'another'"),
        ({"epoch": 2}, "epoch is 2, expected 1"),
        ({"batch_id": 1}, "batch_id is 1, expected 0"),
        ({"manifest_digest": "another"}, "manifest_digest is 'another'"),
        ({"attempt_id": "another"}, "attempt_id is 'another'"),
        ({"outcome": "fine"}, "has the outcome 'fine'"),
        ({"outcome": "mismatch", "uuid": "another"}, "uuid is 'another'"),
        ({"format": 2}, "has format 2"),
        ({"sink_version": "1"}, "has the sink_version '1'"),
        ({"sink_version": None}, "names no version of the sink"),
        ({"sink_version": -1}, "has the sink_version '-1'"),
        ({"rows_written": 50.5}, "has the rows_written '50.5'"),
        ({"seconds": {"write": "long"}}, "has the seconds 'long'"),
        ({"seconds": {"write": -1}}, "has the seconds '-1'"),
        ({"rows_written": 0}, "version 1 of the sink has 50 rows, but the report says 0"),
        ({"outcome": "verified", "rows_written": 0}, "version 1 of the sink has 50 rows, but the report says 0"),
        ({"sink_version": 0}, "version 0 of the sink is not this batch"),
        ({"sink_version": 7}, "the sink has no version 7"),
    ],
)
def test_a_report_of_another_batch_attempt_or_commit_moves_nothing(bench, two_appends, sink, changes, why):
    session, found = collected(bench, sink, **changes)

    assert found.committed == ()
    assert isinstance(found.failure, BatchFailedError)
    assert why in str(found.failure)
    assert found.failure.retryable
    assert session.connected.state.last_batch_id is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('\\"digest\\":\\"', '\\"digest\\":\\"0'),
        ('\\"uuid\\":\\"', '\\"uuid\\":\\"0'),
        ('\\"epoch\\":1', '\\"epoch\\":2'),
        ('\\"batch_id\\":0', '\\"batch_id\\":1'),
        ('\\"fds\\":1', '\\"fds\\":2'),
        ('"version":4294967297', '"version":4294967298'),
        ('{"commitInfo":', '{"commitInfo":['),
    ],
)
def test_a_commit_of_the_sink_that_is_not_the_batch_does_not_count_as_evidence_of_it(
    bench, two_appends, sink, old, new
):
    session = bench.session()
    work = session.begin(sink)
    bench.report(session, work, session.job(work, sink))
    edit_commit(sink, 1, old, new)

    found = session.collect(work)

    assert found.committed == ()
    assert "does not match the sink" in str(found.failure)


def test_a_retry_that_finds_the_batch_in_the_sink_commits_it_after_a_forged_report(bench, two_appends, sink):
    session, found = collected(bench, sink, rows_written=0)
    assert found.failure is not None

    work = session.begin(sink, retry=True)
    spec = session.job(work, sink)
    bench.report(session, work, spec, outcome="verified", sink_version=1)
    assert [batch.batch_id for batch in session.collect(work).committed] == [0]


def test_a_report_of_no_rows_blocks_the_batch_where_rows_were_planned_and_the_sink_has_none(bench, two_appends, sink):
    session = bench.session()
    work = session.begin(sink)
    bench.report(session, work, session.job(work, sink), outcome="verified", rows_written=0)

    with pytest.raises(VerificationError, match="The plan has 50 rows, but the sink's version 1 has 0"):
        session.collect(work)


def test_where_the_worker_may_not_read_the_sink_the_report_alone_counts_and_its_rows_are_compared(
    bench, two_appends, sink, monkeypatch, caplog
):
    real = connect.ConnectedStream.open_sink

    class Closed:
        def __init__(self, storage: Any) -> None:
            self.uri = storage.uri

        def get(self, key: str) -> Any:
            raise AccessDeniedError(f"{key}: 403")

    session = bench.session(stream=bench.stream(max_versions_per_batch=1))
    work = session.begin(sink)
    bench.report(session, work, session.job(work, sink))
    second = bench.session("run-2", stream=bench.stream("other", allow_overlap=True))
    of_second = second.begin(sink)
    bench.report(second, of_second, second.job(of_second, sink), rows_written=0)
    monkeypatch.setattr(connect.ConnectedStream, "open_sink", lambda self, uri: Closed(real(self, uri)))
    with caplog.at_level(logging.WARNING):
        assert len(session.collect(work).committed) == 2
    (said,) = [
        record.getMessage() for record in caplog.records if "report of the Spark driver alone" in record.getMessage()
    ]
    assert "403" in said

    with pytest.raises(VerificationError, match="has 0"):
        second.collect(of_second)


def test_only_the_report_of_a_user_function_counts_because_it_has_no_log(bench, two_appends):
    session, found = collected(bench, ForeachBatchSink("jobs:load"), rows_written=3)
    assert [batch.batch_id for batch in found.committed] == [0]
    assert session.result().rows == 3


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"epoch": 2}, "epoch is 2, expected 1"),
        ({"manifest_digest": "another"}, "manifest_digest is 'another'"),
        ({"rows_written": 0}, "the report says 0"),
        ({"sink_version": 0}, "is not this batch"),
    ],
)
def test_the_report_of_a_data_interval_is_bound_to_it_too(bench, log_builder, sink, changes, why):
    log_builder.create()
    for _ in range(4):
        log_builder.append(1)
    session = session_of(bench, minutes(1, 3))
    work = session.begin(sink)
    leave_reports(bench, session, work, sink)
    edit_reports(bench, **changes)

    found = session.collect(work)

    assert (found.committed, why in str(found.failure)) == ((), True)


def test_a_commit_of_another_interval_does_not_count_as_evidence(bench, log_builder, sink):
    log_builder.create()
    for _ in range(4):
        log_builder.append(1)
    session = session_of(bench, minutes(1, 3))
    work = session.begin(sink)
    leave_reports(bench, session, work, sink)
    edit_commit(sink, 1, '\\"interval\\":\\"2024', '\\"interval\\":\\"2023')

    assert "is not this batch" in str(session.collect(work).failure)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"uuid": "another"}, "belongs to another stream, epoch or attempt"),
        ({"epoch": 3}, "belongs to another stream, epoch or attempt"),
        ({"attempt_id": "another"}, "belongs to another stream, epoch or attempt"),
        ({"outcome": "written"}, "has the outcome 'written'"),
        ({"sink_version": "4"}, "has the sink_version '4'"),
        ({"landed": [{"epoch": 1}]}, "the landed of the fence report has missing"),
        ({"sink_version": 1}, "version 1 of the sink is not this fence"),
        ({"sink_version": 9}, "the sink has no version 9"),
    ],
)
def test_the_report_of_a_fence_opens_no_epoch_unless_the_sink_has_the_fence(bench, two_appends, sink, changes, why):
    load_all(bench, sink, "run-1")
    move(bench, "replan")
    session = bench.session("run-2")
    work = session.begin(sink)
    leave_fence(bench, session, session.job(work, sink))
    (report,) = bench.staging.glob("orders/attempts/2/fence/*.json")
    report.write_text(json.dumps({**json.loads(report.read_text()), **changes}))

    assert why in str(session.collect(work).failure)
    assert session.connected.load().phase == "requested"


def test_a_batch_that_a_report_says_has_landed_before_the_fence_is_looked_up_in_the_sink(bench, log_builder, sink):
    log_builder.create()
    log_builder.append(1)
    load_all(bench, sink, "run-1")
    log_builder.append(1)
    planned = bench.session("run-2").begin(sink).batches[0]
    move(bench, "replan")
    session = bench.session("run-3")
    work = session.begin(sink)
    job = leave_fence(bench, session, session.job(work, sink))
    (path,) = bench.staging.glob("orders/attempts/2/fence/*.json")
    landed = LandedBatch(epoch=1, batch_id=1, end=planned.end, digest=planned.digest, sink_version=1)
    path.write_text(json.dumps({**json.loads(path.read_text()), "landed": [landed.__dict__]}))

    assert "version 1 of the sink is not batch 1 of epoch 1" in str(session.collect(work).failure)
    assert job.fence is not None
    ledger = Ledger(session.connected.staging, "orders")
    assert ledger.find().phase == "requested"
