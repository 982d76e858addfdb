"""Epochs after the first: requested, fenced in the sink, opened; on a hand-made log, with the reports Spark would "
"leave."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import deltalake
import pytest

from airflow_provider_fds.batch.report import FenceEvidence, FenceReport, LandedBatch, RemovedRows, fence_report_name
from airflow_provider_fds.batch.spec import JobSpec
from airflow_provider_fds.delta.names import commit_key
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import (
    BatchFailedError,
    BatchRejectedError,
    ConfigurationError,
    LedgerError,
    LogRewoundError,
    LogTruncatedError,
    SchemaChangedError,
    UnsupportedFeatureError,
)
from airflow_provider_fds.ledger.entries.commit_entries import Committed
from airflow_provider_fds.ledger.entries.epoch_entries import Opened
from airflow_provider_fds.ledger.entries.operator_entries import Acknowledged
from airflow_provider_fds.ledger.entries.refusals import EpochClosedError
from airflow_provider_fds.ledger.entries.request_entries import Requested
from airflow_provider_fds.ledger.owner import Actor
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.ledger.values import Fence, SeenBatch
from airflow_provider_fds.sinks import DeltaAppendSink
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.actions.action_builder import ActionBuilder
from airflow_provider_fds.stream.actions.prepared_action import perform
from tests.moves import requested
from tests.unit.stream.conftest import FUTURE, SINK_ID, UNREADABLE, leave_fence_commit

if TYPE_CHECKING:
    from airflow_provider_fds.stream import RunWork, StreamSession
    from tests.unit.stream.conftest import Bench

PERSON = Actor(deployment="test", user="ann", host="desk")


def ledger_of(bench: Bench) -> Ledger:
    ledger = Ledger(open_storage(str(bench.staging)), "orders")
    ledger.find()
    return ledger


def move(bench: Bench, name: str, *, replaces: bool = False, **arguments: Any) -> str:
    ledger = ledger_of(bench)
    builder = ActionBuilder(ledger, "a test", replaces=replaces, owner_runs=lambda owner: owner.run_id in bench.running)
    if name in ("rewind", "reset"):
        arguments.setdefault("sink_rows", "keep")
    return perform(ledger, requested(builder, name, **arguments), PERSON)


def ask(bench: Bench, *names: str, is_held: bool = False) -> None:
    """Ask for one epoch after the other; none of them begins."""
    for number, name in enumerate(names):
        move(bench, name, replaces=number > 0)
        if is_held:
            move(bench, "hold")
    if is_held:
        move(bench, "resume")


def fence_with(bench: Bench, sink: DeltaAppendSink, run: str, *landed: LandedBatch) -> None:
    """A run that fences the requested epoch, and finds batches in the sink."""
    session = bench.session(run)
    work = session.begin(sink)
    assert work.status == "fence"
    leave_fence(bench, session, session.job(work, sink), landed=landed)
    assert session.collect(work).failure is None


def load_all(bench: Bench, sink: DeltaAppendSink, run: str, **kw: Any) -> StreamSession:
    session = bench.session(run, **kw)
    while (work := session.begin(sink)).status in ("work", "fence"):
        spec = session.job(work, sink)
        if work.status == "fence":
            leave_fence(bench, session, spec)
        else:
            bench.report(session, work, spec)
        assert session.collect(work).failure is None
    return session


def leave_fence(bench: Bench, session: StreamSession, spec: str, **changes: Any) -> JobSpec:
    """Leave the report of a driver that wrote the fence."""
    storage = open_storage(str(bench.staging))
    job = JobSpec.from_json(storage.get(spec.removeprefix(storage.uri + "/"))[0])
    assert job.fence is not None
    landed = [batch.sink_version for batch in changes.get("landed", ())]
    bench.sink_version = max([bench.sink_version, *landed]) + 1
    report = FenceReport(
        uuid=job.fence.uuid,
        epoch=job.fence.epoch,
        attempt_id=job.attempt_id,
        outcome="fenced",
        sink_version=bench.sink_version,
        sink_table_id=SINK_ID,
    )
    name = fence_report_name(job.fence.epoch, job.attempt_id)
    report = replace(report, **changes)
    storage.put(f"{session.stream.name}/attempts/{name}", report.to_json())
    if report.outcome == "fenced":
        leave_fence_commit(job, report)
    return job


def leave_restore(bench: Bench, sink: DeltaAppendSink, version: int) -> None:
    """Leave a commit that puts the sink back to a version."""
    bench.sink_version += 1
    info = {"operation": "RESTORE", "operationParameters": {"version": version}}
    open_storage(sink.uri).put(commit_key(bench.sink_version), json.dumps({"commitInfo": info}).encode())


def test_a_stream_that_is_held_begins_no_epoch_before_it_is_resumed(bench, two_appends, sink):
    load_all(bench, sink, "run-1")
    move(bench, "hold")
    move(bench, "rewind", to=2)

    held = bench.session("run-2").begin(sink)
    assert (held.status, "`fds resume orders" in held.reason) == ("paused", True)

    move(bench, "resume")
    assert bench.session("run-2").begin(sink).status == "fence"


def test_a_rewound_stream_reads_again_from_the_version_in_a_new_epoch_after_a_fence(bench, two_appends, sink):
    load_all(bench, sink, "run-1")
    move(bench, "rewind", to=2)
    session = bench.session("run-2")

    work = session.begin(sink)
    job = leave_fence(bench, session, session.job(work, sink))

    assert work.status == "fence"
    assert (job.fence.epoch, job.fence.txn_version, job.sink_version) == (2, 2 << 32, 1)
    session.collect(work)
    work = session.begin(sink)
    assert [(b.first_version, b.batch_id, b.prev_txn_version) for b in work.batches] == [(2, 0, 2 << 32)]
    bench.report(session, work, session.job(work, sink))
    session.collect(work)
    assert session.result().epoch == 2
    assert session.connected.state.sink_version == 3


def test_a_stream_of_a_restored_table_is_rewound_to_the_version_that_comes_next(bench, log_builder, sink):
    log_builder.create()
    for _ in range(3):
        log_builder.append(1)
    load_all(bench, sink, "run-1")
    (log_builder.log / f"{3:020d}.json").unlink()
    with pytest.raises(
        LogRewoundError, match=r"--to 3 --sink-rows keep\|delete\|empty --why …` continues after version 2"
    ):
        bench.session("run-2").begin(sink)

    move(bench, "rewind", to=3)
    load_all(bench, sink, "run-3")
    log_builder.version = 2
    log_builder.append(1)
    session = load_all(bench, sink, "run-4")

    assert session.result().rows == 10


@pytest.mark.parametrize("name", ["rewind", "reset", "replan", "rebind"])
def test_nothing_of_a_closed_epoch_is_committed(bench, two_appends, sink, name):
    late = bench.session("run-1")
    work = late.begin(sink)
    spec = late.job(work, sink)
    move(bench, name)
    bench.report(late, work, spec)

    with pytest.raises(EpochClosedError, match="epoch 1, which was closed"):
        late.collect(work)


def test_a_replan_continues_after_the_planned_batches_that_are_in_the_sink(bench, log_builder, sink):
    log_builder.create()
    for _ in range(3):
        log_builder.append(1)
    stream = bench.stream(max_versions_per_batch=1)
    planned = bench.session(stream=stream).begin(sink).batches
    move(bench, "replan")
    session = bench.session("run-2", stream=stream)
    work = session.begin(sink)
    first = planned[0]
    landed = LandedBatch(epoch=1, batch_id=0, end=first.end, digest=first.digest, sink_version=0)
    leave_fence(bench, session, session.job(work, sink), landed=(landed,))
    session.collect(work)

    again = session.begin(sink)

    assert [b.first_version for b in again.batches] == [b.first_version for b in planned[1:]]
    assert session.connected.state.epoch_start == first.end


@pytest.mark.parametrize("name", ["rewind", "reset"])
def test_a_batch_that_lands_during_a_rewind_request_is_not_read_again_unnoticed(bench, log_builder, sink, name):
    target = {"to": 1} if name == "rewind" else {}
    log_builder.create()
    log_builder.append(1)
    load_all(bench, sink, "run-1")
    log_builder.append(1)
    planned = bench.session("run-2").begin(sink).batches[0]
    move(bench, name, **target)
    session = bench.session("run-3")
    landed = LandedBatch(epoch=1, batch_id=1, end=planned.end, digest=planned.digest, sink_version=2)
    work = session.begin(sink)
    leave_fence(bench, session, session.job(work, sink), landed=(landed,))

    with pytest.raises(
        LedgerError,
        match=r"batch 1 of epoch 1 \(version 2\).*rows again and load them twice.*without them is 1",
    ) as refused:
        session.collect(work)
    form = "orders --replace" if name == "rewind" else "orders --to start --replace"
    assert f"`fds rewind {form}" in str(refused.value)
    assert ledger_of(bench).state.phase == "requested"

    # taken out, and asked again: the next run goes on
    leave_restore(bench, sink, 1)
    move(bench, name, replaces=True, **target)
    work = session.begin(sink)
    leave_fence(bench, session, session.job(work, sink))
    session.collect(work)
    assert ledger_of(bench).state.phase == "open"


def test_a_version_that_was_skipped_after_the_sink_had_its_rows_is_reported(bench, log_builder, sink):
    log_builder.create()
    log_builder.append(1)
    planned = bench.session("run-1").begin(sink).batches[0]
    move(bench, "replan")
    ledger_of(bench).execute(Acknowledged(version=1, why="wrong rows", skip=True, of="rows"), PERSON)
    fence_with(bench, sink, "run-2", LandedBatch(1, 0, planned.end, planned.digest, 1))
    (warning,) = ledger_of(bench).state.sink_warnings
    assert warning.startswith("version 1 was skipped after the sink had its rows, with batch 0")


@pytest.mark.parametrize(
    "requests", [("rewind",), ("rewind", "rewind"), ("reset", "rewind", "rewind"), ("rebind", "rewind")]
)
@pytest.mark.parametrize("is_held", [False, True])
def test_no_number_of_requests_rereads_a_batch_that_no_person_was_shown(bench, log_builder, sink, requests, is_held):
    log_builder.create()
    log_builder.append(1)
    planned = bench.session("run-1").begin(sink).batches[0]
    ask(bench, *requests, is_held=is_held)
    landed = LandedBatch(epoch=1, batch_id=0, end=planned.end, digest=planned.digest, sink_version=0)

    with pytest.raises(LedgerError, match=r"batch 0 of epoch 1 \(version 0\).*rows again and load them twice"):
        fence_with(bench, sink, "run-2", landed)
    assert ledger_of(bench).state.phase == "requested"


def test_a_request_after_the_batch_was_shown_lets_exactly_that_one_be_read_again(bench, log_builder, sink):
    log_builder.create()
    log_builder.append(1)
    log_builder.append(1)
    one, two = bench.session("run-1", stream=bench.stream(max_versions_per_batch=1)).begin(sink).batches[:2]
    move(bench, "rewind", to=0)
    shown = LandedBatch(epoch=1, batch_id=0, end=one.end, digest=one.digest, sink_version=0)
    later = LandedBatch(epoch=1, batch_id=1, end=two.end, digest=two.digest, sink_version=5)
    with pytest.raises(LedgerError, match="batch 0 of epoch 1"):
        fence_with(bench, sink, "run-2", shown)

    move(bench, "rewind", to=0, replaces=True)
    request = ledger_of(bench).state.request
    assert [(b.epoch, b.batch_id, b.digest, b.sink_version) for b in request.seen] == [(1, 0, one.digest, 0)]
    with pytest.raises(LedgerError, match="batch 1 of epoch 1") as refused:
        fence_with(bench, sink, "run-3", shown, later)
    assert "batch 0" not in str(refused.value)

    move(bench, "rewind", to=0, replaces=True)
    fence_with(bench, sink, "run-4", shown, later)
    assert ledger_of(bench).state.phase == "open"
    assert ledger_of(bench).state.shown == ()


def test_the_same_batch_in_another_version_of_the_sink_is_another_one(bench, log_builder, sink):
    log_builder.create()
    log_builder.append(1)
    planned = bench.session("run-1").begin(sink).batches[0]
    landed = LandedBatch(epoch=1, batch_id=0, end=planned.end, digest=planned.digest, sink_version=0)
    move(bench, "rewind", to=0)
    with pytest.raises(LedgerError, match="version 0"):
        fence_with(bench, sink, "run-2", landed)
    move(bench, "rewind", to=0, replaces=True)

    with pytest.raises(LedgerError, match="version 5"):
        fence_with(bench, sink, "run-3", replace(landed, sink_version=5))


def test_a_batch_shown_again_is_recorded_once(bench, log_builder, sink):
    log_builder.create()
    log_builder.append(1)
    planned = bench.session("run-1").begin(sink).batches[0]
    landed = LandedBatch(epoch=1, batch_id=0, end=planned.end, digest=planned.digest, sink_version=0)
    move(bench, "rewind", to=0)
    for run in ("run-2", "run-3"):
        with pytest.raises(LedgerError, match="rows again and load them twice"):
            fence_with(bench, sink, run, landed)

    assert [e.action.kind for e in ledger_of(bench).entries()].count("shown") == 1


def test_a_request_that_refers_to_what_was_never_shown_is_refused(bench, log_builder, sink):
    log_builder.create()
    log_builder.append(1)
    bench.session("run-1").begin(sink)
    seen = (SeenBatch(epoch=1, batch_id=0, digest="d", sink_version=0),)

    with pytest.raises(LedgerError, match="refers to batches in the sink that no run has reported"):
        ledger_of(bench).execute(Requested(reason="rewind", why="test", seen=seen), PERSON)


def test_a_blocked_batch_that_was_shown_by_a_replan_may_be_read_again_by_a_rewind(bench, two_appends, sink):
    session = bench.session()
    work = session.begin(sink)
    bench.report(session, work, session.job(work, sink), rows_written=49, outcome="mismatch")
    with pytest.raises(Exception, match="rows"):
        session.collect(work)
    batch = work.batches[0]
    landed = LandedBatch(epoch=1, batch_id=0, end=batch.end, digest=batch.digest, sink_version=1)
    move(bench, "replan")
    with pytest.raises(LedgerError, match="its verification failed"):
        fence_with(bench, sink, "run-2", landed)

    move(bench, "rewind", to=0, replaces=True)
    fence_with(bench, sink, "run-3", landed)
    assert ledger_of(bench).state.phase == "open"


# -- rows that the fence removes


def test_the_fence_job_names_what_to_remove_and_the_ledger_records_what_it_removed(bench, two_appends, sink):
    load_all(bench, sink, "run-1")
    move(bench, "rewind", to=2, sink_rows="delete", force_sink=True)
    session = bench.session("run-2")
    work = session.begin(sink)
    job = leave_fence(bench, session, session.job(work, sink), removed_rows=30)
    session.collect(work)

    fence = job.fence
    assert (fence.removes, fence.from_version, fence.is_forced, fence.closed_at_ms) == ("rows", 2, True, None)
    opened = [e.action for e in ledger_of(bench).entries() if e.action.kind == "opened"][-1]
    assert (opened.fence.removal.from_version, opened.fence.removed_rows) == (2, 30)


def test_an_epoch_does_not_begin_where_its_rows_were_not_removed(bench, two_appends, sink):
    load_all(bench, sink, "run-1")
    move(bench, "rewind", to="start", sink_rows="empty")
    session = bench.session("run-2")
    work = session.begin(sink)
    job = leave_fence(bench, session, session.job(work, sink), has_removed=False)

    assert job.fence.removes == "all"
    with pytest.raises(LedgerError, match=r"another statement closed the epochs before epoch 2 .* in version 2"):
        session.collect(work)
    assert ledger_of(bench).state.phase == "requested"


def test_an_epoch_whose_fence_is_another_statement_does_not_begin_before_everything_is_read_again(
    bench, two_appends, sink
):
    load_all(bench, sink, "run-1")
    unknown = FenceEvidence(newest=2 << 32, removed=(RemovedRows(2, 2),))
    for run, again in (("run-2", False), ("run-3", True)):
        move(bench, "reset", replaces=again)
        session = bench.session(run)
        work = session.begin(sink)
        leave_fence(bench, session, session.job(work, sink), evidence=unknown)
        if again:
            session.collect(work)
        else:
            with pytest.raises(LedgerError, match=r"another statement .* version 2 .* Restore version 1 of the sink"):
                session.collect(work)
    assert ledger_of(bench).state.phase == "open"


def test_an_older_run_that_does_not_know_removals_cannot_open_the_epoch(bench, two_appends, sink):
    session = load_all(bench, sink, "run-1")
    move(bench, "rewind", to="start", sink_rows="empty")
    state = session.connected.load()
    fence = Fence(status="done", versions={state.fence_sink.app_ids[0]: 2 << 32}, sink_version=9)
    table_id = Offset.from_json(state.closed.position).table_id

    with pytest.raises(LedgerError, match="but the fence removed None"):
        session.connected.execute(Opened(epoch=2, start=Offset(table_id, 0).to_json(), table_id=table_id, fence=fence))


def test_a_batch_that_made_the_missing_sink_requests_an_epoch_by_itself_once(bench, two_appends, sink):
    session = bench.session()
    works = [(each, each.begin(sink)) for each in (session, bench.session())]
    for each, work in works:
        bench.report(
            each, work, each.job(work, sink), outcome="failed", reason="SINK_APPEARED", error_message="it appeared"
        )
        failure = each.collect(work).failure
        assert (failure.retryable, "Epoch 2 is requested" in str(failure)) == (True, True)

    entries = list(ledger_of(bench).entries())
    (request,) = [entry.action for entry in entries if entry.action.kind == "requested"]
    assert (request.reason, request.is_automatic) == ("sink_appeared", True)
    with pytest.raises(LedgerError, match=r"cannot request another rewind to start.*sink_appeared"):
        move(bench, "rewind", to="start")
    fence_with(bench, sink, "run-3")
    assert ledger_of(bench).state.position == request.to["offset"]


def test_a_rebind_back_to_a_sink_closes_the_epochs_there_before_it_writes(
    bench, log_builder, two_appends, sink, tmp_path
):
    load_all(bench, sink, "run-1")
    move(bench, "replan", new_sink=True)
    away = DeltaAppendSink(str(tmp_path / "away"))
    load_all(bench, away, "run-2")
    move(bench, "replan", new_sink=True)
    fence_with(bench, away, "run-3")
    log_builder.append(1)
    work = bench.session("run-4").begin(sink)
    assert (work.status, work.epoch) == ("fence", 4)
    load_all(bench, sink, "run-4")
    assert (ledger_of(bench).state.epoch, ledger_of(bench).state.last_batch_id) == (4, 0)


def test_a_blocked_batch_must_leave_the_sink_before_it_is_planned_again(bench, two_appends, sink):
    session = bench.session()
    work = session.begin(sink)
    bench.report(session, work, session.job(work, sink), rows_written=49, outcome="mismatch")
    with pytest.raises(Exception, match="rows"):
        session.collect(work)
    move(bench, "replan")
    second = bench.session("run-2")
    fence = second.begin(sink)
    batch = work.batches[0]
    landed = LandedBatch(epoch=1, batch_id=0, end=batch.end, digest=batch.digest, sink_version=1)
    leave_fence(bench, second, second.job(fence, sink), landed=(landed,))

    with pytest.raises(LedgerError, match="restore version 0 of the sink, the last without it"):
        second.collect(fence)
    leave_restore(bench, sink, 0)
    leave_fence(bench, second, second.job(fence, sink))
    second.collect(fence)
    assert [b.first_version for b in second.begin(sink).batches] == [0]


def test_a_replanned_stream_still_stops_before_a_change_of_the_schema(bench, two_appends, log_builder, sink):
    load_all(bench, sink, "run-1")
    log_builder.commit(log_builder.metadata([log_builder.field("id", "string")]), operation="CHANGE COLUMN")
    log_builder.append(1)
    move(bench, "replan")

    with pytest.raises(SchemaChangedError):
        load_all(bench, sink, "run-2")


def test_a_rewind_to_a_batch_begins_where_it_began_within_its_version(bench, log_builder, sink):
    log_builder.create()
    log_builder.append(5)
    stream = bench.stream(max_files_per_batch=2)
    load_all(bench, sink, "run-1", stream=stream)
    said = move(bench, "rewind", to="batch:1")

    session = load_all(bench, sink, "run-2", stream=stream)

    assert "version 1, 2 files in" in said
    assert session.result().files == 3
    assert Offset.from_json(session.connected.state.epoch_start).next_index == 2


def test_a_rewind_into_a_version_under_options_that_count_its_files_otherwise_is_refused(bench, log_builder, sink):
    log_builder.create()
    log_builder.append(5)
    load_all(bench, sink, "run-1", stream=bench.stream(max_files_per_batch=2))
    move(bench, "rewind", to="batch:1")

    with pytest.raises(LedgerError, match="options that decide which files of a version count were changed"):
        load_all(bench, sink, "run-2", stream=bench.stream(max_files_per_batch=2, skip_versions="9"))


def test_a_rewind_to_a_time_begins_at_the_first_commit_at_or_after_it(bench, log_builder, sink):
    log_builder.create()
    log_builder.append(1, timestamp_ms=1_704_067_200_000)
    log_builder.append(1, timestamp_ms=1_704_153_600_000)
    load_all(bench, sink, "run-1")
    move(bench, "rewind", to="2024-01-01T12:00:00Z")

    assert load_all(bench, sink, "run-2").result().first_version == 2


def test_a_reset_stream_begins_as_its_options_say(bench, two_appends, sink):
    load_all(bench, sink, "run-1")
    move(bench, "rewind", to="start")

    session = load_all(bench, sink, "run-2")

    assert (session.result().first_version, session.result().files) == (0, 5)


def test_a_reset_stream_without_start_options_freezes_a_snapshot_of_now(bench, two_appends, log_builder, sink):
    stream = bench.stream(starting_version=None)
    load_all(bench, sink, "run-1", stream=stream)
    log_builder.append(4)
    move(bench, "rewind", to="start")

    session = load_all(bench, sink, "run-2", stream=stream)

    assert session.result().files == 9
    assert session.connected.state.snapshot.version == 3


def test_a_replan_in_the_middle_of_a_snapshot_continues_in_the_same_frozen_snapshot(
    bench, two_appends, log_builder, sink
):
    stream = bench.stream(starting_version=None, max_files_per_batch=2)
    session = bench.session(stream=stream)
    work = session.begin(sink, max_batches=1)
    bench.report(session, work, session.job(work, sink))
    session.collect(work)
    frozen = session.connected.state.snapshot
    session.begin(sink, max_batches=1)
    log_builder.append(1)
    move(bench, "replan")

    second = bench.session("run-2", stream=stream)
    fence = second.begin(sink)
    leave_fence(bench, second, second.job(fence, sink))
    second.collect(fence)

    assert second.connected.state.snapshot == frozen
    assert [b.num_files for b in second.begin(sink, max_batches=2).batches] == [2, 2]


def test_a_rebound_stream_fences_the_old_sink_and_continues_into_the_new_one(
    bench, two_appends, log_builder, sink, tmp_path
):
    load_all(bench, sink, "run-1")
    log_builder.append(1)
    move(bench, "replan", new_sink=True)
    other = DeltaAppendSink(str(tmp_path / "other"))
    session = bench.session("run-2")
    work = session.begin(other)
    job = leave_fence(bench, session, session.job(work, other))
    session.collect(work)
    work = session.begin(other)

    assert job.sink["uri"].endswith("/sink")
    assert session.connected.state.sink.target.endswith("/other")
    assert [(b.first_version, b.prev_txn_version) for b in work.batches] == [(3, None)]


def test_a_missing_sink_needs_no_fence_and_is_created_by_the_first_batch(bench, two_appends, sink):
    load_all(bench, sink, "run-1")
    move(bench, "rewind", to="start")
    session = bench.session("run-2")
    work = session.begin(sink)
    shutil.rmtree(sink.uri)
    leave_fence(bench, session, session.job(work, sink), outcome="sink_missing", sink_version=None, sink_table_id=None)
    session.collect(work)

    state = session.connected.state
    assert (state.phase, state.sink_table_id, state.prev_txn_version) == ("open", None, None)


@pytest.mark.parametrize(("retryable", "error"), [(True, BatchFailedError), (False, BatchRejectedError)])
def test_a_fence_that_failed_opens_nothing(bench, two_appends, sink, retryable, error):
    load_all(bench, sink, "run-1")
    move(bench, "rewind", to="start")
    session = bench.session("run-2")
    work = session.begin(sink)
    leave_fence(
        bench,
        session,
        session.job(work, sink),
        outcome="failed",
        error_class="Broken",
        error_message="no disk",
        retryable=retryable,
    )

    failure = session.collect(work).failure

    assert type(failure) is error
    assert "Broken: no disk" in str(failure)
    assert session.begin(sink).status == "fence"


def test_a_fence_without_a_report_is_tried_again(bench, two_appends, sink):
    load_all(bench, sink, "run-1")
    move(bench, "rewind", to="start")
    session = bench.session("run-2")
    work = session.begin(sink)
    session.job(work, sink)

    assert "without a report" in str(session.collect(work).failure)


def test_two_runs_that_fence_the_same_epoch_open_it_once(bench, two_appends, sink):
    load_all(bench, sink, "run-1")
    move(bench, "rewind", to="start")
    one, two = bench.session("run-2"), bench.session("run-3")
    works = [(session, session.begin(sink)) for session in (one, two)]
    for session, work in works:
        leave_fence(bench, session, session.job(work, sink))
    for session, work in works:
        assert session.collect(work).failure is None

    kinds = [entry.action.kind for entry in ledger_of(bench).entries()]
    assert kinds.count("opened") == 2


def test_planning_without_spark_says_who_opens_a_requested_epoch(bench, two_appends, sink):
    load_all(bench, sink, "run-1")
    move(bench, "rewind", to="start")

    with pytest.raises(LedgerError, match="Only a run with Spark and the sink can begin it"):
        bench.session("run-2").begin(None, user_job=True)


def test_a_start_that_is_gone_can_be_replaced_by_another_request(bench, log_builder, sink):
    log_builder.create()
    for _ in range(4):
        log_builder.append(1)
    load_all(bench, sink, "run-1")
    move(bench, "rewind", to="batch:0")
    deltalake.DeltaTable(str(log_builder.root)).create_checkpoint()
    log_builder.clean_up_before(3)
    with pytest.raises(LogTruncatedError):
        load_all(bench, sink, "run-2")

    with pytest.raises(LedgerError, match="cannot request another rewind"):
        move(bench, "rewind", to=3)
    move(bench, "rewind", to=3, replaces=True)

    session = load_all(bench, sink, "run-3")
    assert (session.result().epoch, session.result().first_version) == (3, 3)


def test_a_bounded_read_of_a_version_whose_commit_is_gone_opens_no_epoch(bench, log_builder, sink):
    log_builder.with_appends(4)
    deltalake.DeltaTable(str(log_builder.root), version=2).create_checkpoint()
    log_builder.clean_up_before(3)
    bounded = {"starting_version": None, "version_as_of": 2}

    with pytest.raises(ConfigurationError, match="its commit is gone"):
        bench.load_once(sink, "run-1", bench.stream(**bounded))
    assert ledger_of(bench).state.position is None
    assert bench.load_once(sink, "run-2", bench.stream(**bounded | {"version_as_of": 3})).batches[0].num_files == 3


def test_the_same_request_is_made_once(bench, two_appends, sink):
    load_all(bench, sink, "run-1")
    ledger = ledger_of(bench)
    for _ in range(2):
        builder = ActionBuilder(ledger_of(bench), "a test")
        perform(ledger, builder.rewind(to="start", sink_rows="keep"), PERSON, request_id="dag-run-7")

    assert ledger_of(bench).state.epoch == 2


def test_a_command_of_the_old_epoch_is_refused_while_the_new_one_waits(bench, two_appends, sink):
    session = bench.session()
    work: RunWork = session.begin(sink)
    batch = work.batches[0]
    ledger_of(bench).execute(Requested(reason="reset", why="test", to={"start": "options"}), PERSON)

    with pytest.raises(EpochClosedError):
        session.connected.execute(
            Committed(
                epoch=1,
                batch_id=0,
                owner=session.context.owner,
                attempt_id="late",
                outcome="written",
                digest=batch.digest,
                sink_version=1,
                sink_table_id=SINK_ID,
                rows=1,
            )
        )


def _created_anew(log_builder: Any) -> Any:
    shutil.rmtree(log_builder.root)
    anew = type(log_builder)(log_builder.root)
    anew.table_id = "99999999-2222-3333-4444-555555555555"
    return anew


def test_a_rewind_to_a_batch_of_a_former_table_is_refused_before_it_removes_rows_of_the_table_now(
    bench, log_builder, sink
):
    log_builder.with_appends(3)
    load_all(bench, sink, "run-1", stream=bench.stream(max_versions_per_batch=1))
    _created_anew(log_builder).with_appends(9)
    move(bench, "rewind", to="start")
    load_all(bench, sink, "run-2", stream=bench.stream(max_versions_per_batch=100))

    for sink_rows in ("delete", "empty", "keep"):
        with pytest.raises(ConfigurationError, match=r"is of the table with the id 11111111.*Use --to start"):
            move(bench, "rewind", to="batch:2", sink_rows=sink_rows)


def test_a_rewind_to_a_snapshot_that_is_not_kept_is_refused(bench, log_builder, sink):
    log_builder.with_appends(5)
    stream = bench.stream(starting_version=None)
    load_all(bench, sink, "run-1", stream=stream)
    move(bench, "rewind", to=2)
    fence_with(bench, sink, "run-2")

    with pytest.raises(ConfigurationError, match=r"snapshot of version 5, which is not kept: .* Use --to start"):
        move(bench, "rewind", to="batch:0", sink_rows="empty")


def test_a_rewind_to_a_time_that_turns_out_to_leave_rows_unread_does_not_begin(bench, log_builder, sink):
    log_builder.create()
    for day in range(1, 6):
        log_builder.append(1, timestamp_ms=1_704_067_200_000 + day * 86_400_000)
    first = bench.stream(starting_version=None, max_files_per_batch=1)
    session = bench.session("run-1", stream=first)
    work = session.begin(sink, max_batches=1)
    bench.report(session, work, session.job(work, sink))
    session.collect(work)
    # the log cannot be read from where the person is
    move(bench, "rewind", to="2024-01-04T12:00:00Z")

    session = bench.session("run-2", stream=first)
    work = session.begin(sink)
    leave_fence(bench, session, session.job(work, sink))
    with pytest.raises(LedgerError, match="has not read the rest of that snapshot, which version 4 does not contain"):
        session.collect(work)


def test_a_rewind_to_a_time_after_the_position_does_not_begin(bench, log_builder, sink):
    log_builder.create()
    log_builder.append(1, timestamp_ms=1_704_067_200_000)
    load_all(bench, sink, "run-1")
    for day in range(1, 6):
        log_builder.append(1, timestamp_ms=1_704_067_200_000 + day * 86_400_000)
    move(bench, "rewind", to="2024-01-04T12:00:00Z")

    with pytest.raises(LedgerError, match="beginning of version 2, and the beginning of version 5 is later; a rewind"):
        load_all(bench, sink, "run-2")


@pytest.mark.parametrize("leave", UNREADABLE)
def test_a_rewind_that_removes_rows_reads_again_what_lies_before_commits_that_cannot_be_read(
    bench, log_builder, sink, leave
):
    log_builder.with_appends(4)
    load_all(bench, sink, "run-1")
    first = leave(log_builder)
    move(bench, "rewind", to=2, sink_rows="delete")

    session = bench.session("run-2")
    work = session.begin(sink)
    job = leave_fence(bench, session, session.job(work, sink), removed_rows=30)
    assert (job.fence.removes, session.collect(work).failure) == ("rows", None)
    work = session.begin(sink)
    assert [(b.first_version, b.last_version) for b in work.batches] == [(2, first - 1)]


def test_nothing_is_removed_for_an_epoch_that_cannot_begin(bench, log_builder, sink):
    log_builder.with_appends(4)
    load_all(bench, sink, "run-1")
    move(bench, "rewind", to="start", sink_rows="empty")
    log_builder.commit({"protocol": FUTURE}, operation="ADD FEATURE")

    session = bench.session("run-2", stream=bench.stream(starting_version=None))
    work = session.begin(sink)
    with pytest.raises(UnsupportedFeatureError):
        session.job(work, sink)
