"""``evolve``: what each entry makes of the state, and what the next batch is built on."""

from __future__ import annotations

import msgspec
import pytest

from airflow_provider_fds.batch.transactions import fence_version, txn_version
from airflow_provider_fds.ledger.entries.commit_entries import Accepted, Blocked, Committed
from airflow_provider_fds.ledger.entries.interval_entries import Boundary, IntervalOpened
from airflow_provider_fds.ledger.entries.operator_entries import (
    Acknowledged,
    Held,
    Quarantined,
    Resumed,
    Retired,
    Transferred,
)
from airflow_provider_fds.ledger.entries.protocol import evolve
from airflow_provider_fds.ledger.entries.request_entries import Requested
from airflow_provider_fds.ledger.measures import Measures
from airflow_provider_fds.ledger.state import KEPT_REQUESTS, KEPT_RUNS, StreamState
from airflow_provider_fds.ledger.values import Fence, Removal, SinkBinding, SnapshotRef

REWIND = Requested(reason="rewind", why="wrong rows")


def test_creating_a_stream_requests_its_first_epoch(make):
    state = make.state(make.create())
    assert (state.phase, state.epoch, state.uuid, state.table, state.deployment) == (
        "requested",
        1,
        "u1",
        make.table,
        "prod",
    )
    assert state.position is None


def test_an_epoch_opens_at_its_start(make):
    snapshot = SnapshotRef(version=3, digest="s", key="snapshots/3-s.parquet", num_files=9, num_bytes=9)
    state = make.state(make.create(), make.open(start=make.offset(3, snapshot=True), snapshot=snapshot))
    start = make.offset(3, snapshot=True)
    assert (state.phase, state.epoch_start, state.position, state.last_txn_end) == ("open", start, start, start)
    assert (state.snapshot, state.table_id, state.next_batch_id) == (snapshot, make.table_id, 0)
    assert (state.prev_txn_version, state.last_batch_id, state.owner) == (None, None, None)


def test_a_plan_moves_nothing_but_the_next_batch_id(make):
    state = make.opened(make.plan(make.batch(0), make.batch(1), target=9))
    assert (state.position, state.next_batch_id, state.first_uncommitted) == (make.offset(0), 2, 0)
    assert (state.owner, state.run.target) == (make.owner(), 9)
    assert state.next_prev_txn_version == txn_version(1, 1)


def test_a_commit_moves_the_position_and_what_the_next_batch_builds_on(make):
    state = make.opened(make.plan(make.batch(0), make.batch(1)), make.commit(0))
    assert (state.position, state.last_txn_end) == (make.offset(1), make.offset(1))
    assert (state.first_uncommitted, state.last_batch_id, state.next_batch_id) == (1, 0, 2)
    assert (state.prev_txn_version, state.sink_version, state.sink_table_id) == (txn_version(1, 0), 1, make.sink_id)
    assert (state.last_commit_sha256, state.last_committed.batch_id) == ("sha0", 0)


def test_a_stretch_without_data_moves_the_position_and_not_the_end_of_the_last_transaction(make):
    state = make.opened(make.plan(make.batch(0)), make.commit(0), make.advance(1, 7))
    assert (state.position, state.last_txn_end) == (make.offset(8), make.offset(1))
    assert (state.prev_txn_version, state.last_batch_id, state.last_commit_sha256) == (txn_version(1, 0), 0, "sha7")


def test_batches_for_the_driver_are_chained_by_after_over_commits_without_data(make):
    planned = [
        make.batch(0, start=make.offset(8), end=make.offset(9)),
        make.batch(1, start=make.offset(9), end=make.offset(10)),
    ]
    state = make.opened(make.advance(0, 7), make.plan(*planned))
    first, second = state.specs("s3a://staging/orders")
    assert (first.after, first.start, first.end) == (make.offset(0), make.offset(8), make.offset(9))
    assert (second.after, second.start) == (make.offset(9), make.offset(9))
    assert (first.prev_txn_version, second.prev_txn_version) == (None, first.txn_version)
    assert first.manifest == "s3a://staging/orders/manifests/1/0-d0"
    assert (first.txn_app_id, first.manifest_digest, first.num_rows) == ("fds:u1", "d0", 20)


def test_a_run_is_one_record_from_its_first_plan_to_its_last_commit(make):
    state = make.opened(
        make.plan(make.batch(0), make.batch(1), target=5),
        make.commit(0),
        make.commit(1),
        make.advance(2, 2),
        make.plan(make.batch(2, start=make.offset(3), end=make.offset(4), first_version=3, last_version=3), target=5),
        make.commit(2),
    )
    record = state.run_of(make.owner())
    assert len(state.runs) == 1
    assert (record.target, record.batches, record.first_batch_id, record.last_batch_id) == (5, 3, 0, 2)
    assert (record.start, record.end, record.first_version, record.last_version) == (
        make.offset(0),
        make.offset(4),
        0,
        3,
    )
    assert (record.num_files, record.num_bytes, record.rows, record.sink_version) == (6, 6000, 60, 3)


def test_measurements_of_a_run_are_sums_and_unknown_if_one_batch_lacks_them(make):
    first = Measures(rows_read=25, files_written=1, bytes_written=100, seconds={"check": 0.25, "write": 1.5})
    second = Measures(rows_read=5, files_written=2, bytes_written=50, seconds={"write": 0.5, "verify": 0.125})
    batches = make.plan(make.batch(0), make.batch(1), make.batch(2))
    state = make.opened(batches, make.commit(0, measures=first), make.commit(1, measures=second))
    assert state.run.measures == Measures(
        rows_read=30, files_written=3, bytes_written=150, seconds={"check": 0.25, "write": 2.0, "verify": 0.125}
    )
    assert state.last_committed.measures == second
    state = make.opened(batches, make.commit(0, measures=first), make.commit(1))
    assert state.run.measures == Measures(seconds=first.seconds)


def test_rows_of_a_run_are_unknown_if_one_batch_did_not_say(make):
    state = make.opened(make.plan(make.batch(0), make.batch(1)), make.commit(0, rows=None), make.commit(1))
    assert state.run.rows is None


def test_a_run_that_takes_over_has_a_record_of_its_own_and_plans_to_a_target_of_its_own(make):
    state = make.opened(make.plan(make.batch(0), run="r0", target=3), make.claim("r1", previous="r0"))
    assert (state.owner, state.run.target) == (make.owner("r1"), None)
    after = make.opened(
        make.plan(make.batch(0), run="r0", target=3),
        make.claim("r1", previous="r0"),
        make.commit(0),
        make.plan(make.batch(1), target=8),
    )
    assert [(r.owner.run_id, r.target, r.batches) for r in after.runs] == [("r0", 3, 0), ("r1", 8, 1)]


def test_a_run_that_only_moved_over_commits_without_data_is_known_too(make):
    state = make.opened(make.advance(0, 3))
    assert (state.run.owner, state.run.batches, state.run.target) == (make.owner(), 0, None)


def test_the_state_keeps_the_newest_runs_only(make):
    commands = []
    for b in range(KEPT_RUNS + 3):
        commands += [make.plan(make.batch(b), run=f"r{b}"), make.commit(b, run=f"r{b}")]
    state = make.opened(*commands)
    assert [r.owner.run_id for r in state.runs] == [f"r{b}" for b in range(3, KEPT_RUNS + 3)]


def test_a_request_closes_the_epoch_at_once(make):
    blocked = Blocked(epoch=1, batch_id=1, owner=make.owner(), attempt_id="t", reason="rows differ")
    state = make.opened(make.plan(make.batch(0), make.batch(1)), make.commit(0), blocked, REWIND)
    assert (state.phase, state.epoch, state.request.reason) == ("requested", 2, "rewind")
    assert (state.request.position, state.position) == (make.offset(1), None)
    assert (state.planned, state.owner, state.blocked, state.next_batch_id) == ((), None, None, 0)
    assert (state.sink, state.fence_sink, state.last_committed.batch_id) == (make.sink, make.sink, 0)


def test_an_epoch_after_a_fence_builds_on_the_fence(make):
    fence = Fence(status="done", versions={"fds:u1": fence_version(2)}, sink_version=9)
    state = make.opened(make.plan(make.batch(0)), make.commit(0), REWIND, make.open(2, version=5, fence=fence))
    assert (state.phase, state.epoch, state.position, state.next_batch_id) == ("open", 2, make.offset(5), 0)
    assert (state.prev_txn_version, state.sink_version, state.sink_table_id) == (fence_version(2), 9, make.sink_id)
    assert (state.request, state.fence_sink, state.last_batch_id) == (None, None, None)


def test_an_epoch_whose_sink_is_missing_creates_it_again(make):
    missing = Fence(status="sink_missing")
    state = make.opened(make.plan(make.batch(0)), make.commit(0), REWIND, make.open(2, fence=missing))
    assert (state.prev_txn_version, state.sink_version, state.sink_table_id) == (None, None, None)
    assert state.sink == make.sink


def test_a_rebind_leaves_the_sink_and_binds_again(make):
    fence = Fence(status="done", versions={"fds:u1": fence_version(2)}, sink_version=9)
    rebind = Requested(reason="rebind", why="new bucket")
    state = make.opened(make.plan(make.batch(0)), make.commit(0), rebind, make.open(2, version=1, fence=fence))
    assert (state.sink, state.sink_table_id, state.sink_version, state.prev_txn_version) == (None, None, None, None)


def test_what_feeds_the_columns_of_the_sink_is_known_from_the_commit_on_until_the_sink_is_left_or_empty(make):
    batch = make.batch(0, columns={"id": "c1", "x": "c2"})
    assert make.opened(make.plan(batch)).columns == {}
    loaded = [make.plan(batch, make.batch(1)), make.commit(0), make.commit(1)]
    known = make.opened(*loaded)
    assert (known.columns, known.columns_since, known.sink_version) == ({"id": "c1", "x": "c2"}, 1, 2)
    (spec,) = make.opened(*loaded, make.plan(make.batch(2, columns={"x": "c3"}))).specs("s3://staging")
    assert (spec.columns, spec.fed, spec.fed_since) == ({"x": "c3"}, known.columns, 1)

    done = Fence(status="done", versions={"fds:u1": fence_version(2)}, sink_version=9)
    assert make.opened(*loaded, REWIND, make.open(2, fence=done)).columns == known.columns
    assert make.opened(*loaded, REWIND, make.open(2, fence=Fence(status="sink_missing"))).columns == {}
    emptied = Removal(what="all")
    request = Requested(reason="reset", why="again", removal=emptied)
    fence = msgspec.structs.replace(done, removal=emptied)
    assert make.opened(*loaded, request, make.open(2, fence=fence)).columns == {}
    rebind = [Requested(reason="rebind", why="new bucket"), make.open(2, version=2, fence=done)]
    assert make.opened(*loaded, *rebind, make.bind(2)).columns == {}


def test_holds_and_quarantines_end_when_a_person_decides(make):
    both = [Held(why="pause"), Quarantined(why="schema", version=7)]
    assert make.opened(*both).held.why == "pause"
    resumed = make.opened(*both, Resumed(why="ok"))
    assert (resumed.held, resumed.quarantined) == (None, None)
    acknowledged = make.opened(*both, Acknowledged(version=7, why="read"))
    assert acknowledged.quarantined is None
    assert [(word.version, word.why) for word in acknowledged.acknowledged] == [(7, "read")]
    earlier = make.opened(*both, Acknowledged(version=6, why="read"))
    assert earlier.quarantined.version == 7


def test_an_accepted_batch_is_blocked_no_more_until_it_is_committed(make):
    blocked = Blocked(epoch=1, batch_id=0, owner=make.owner(), attempt_id="t", reason="rows differ", rows_written=19)
    commands = [make.plan(make.batch(0)), blocked, Accepted(epoch=1, batch_id=0, why="counted")]
    state = make.opened(*commands)
    assert (state.blocked, state.accepted.rows_written) == (None, 19)
    assert make.opened(*commands, make.commit(0)).accepted is None


def test_a_transfer_and_the_end_of_a_stream_are_remembered(make):
    state = make.opened(Transferred(deployment="prod2", why="moved"), Retired(why="done"))
    assert (state.deployment, state.retired.why) == ("prod2", "done")


def test_entries_of_data_intervals_do_not_move_an_offset_stream(make):
    state = make.opened()
    for action in (
        Boundary(instant="2026-11-20T00:00:00.000Z", version=4),
        IntervalOpened(interval="a/b", generation=1, first_version=0, last_version=3),
        make.plan(make.batch(0), interval="a/b"),
        Committed(
            interval="a/b",
            epoch=1,
            batch_id=0,
            owner=make.owner(),
            attempt_id="t",
            outcome="written",
            digest="d0",
            sink_version=1,
            sink_table_id="s",
            rows=1,
        ),
    ):
        after = evolve(state, make.entry(9, action))
        assert (after.position, after.planned, after.runs) == (state.position, state.planned, state.runs)


def test_named_requests_are_remembered_up_to_a_number(make):
    state = make.opened()
    for n in range(KEPT_REQUESTS + 2):
        state = evolve(state, make.entry(n, Held(why="x"), request_id=f"q{n}"))
    assert len(state.answered) == KEPT_REQUESTS
    assert (state.answered[-1].request_id, state.answered[-1].kind) == (f"q{KEPT_REQUESTS + 1}", "held")


def test_the_state_survives_its_json(make):
    state = make.opened(make.plan(make.batch(0), make.batch(1)), make.commit(0), Held(why="x"))
    assert msgspec.json.decode(msgspec.json.encode(state), type=StreamState) == state


def test_a_state_cannot_be_changed(make):
    with pytest.raises(AttributeError):
        make.opened().epoch = 7


def test_the_tables_of_a_function_are_known_from_commits_and_again_from_a_fence(make):
    app_ids = ("fds:u1#kept", "fds:u1#gone")
    tables = {"kept": "s3://lake/kept", "gone": "s3://lake/gone"}
    sink = SinkBinding(kind="foreach_batch", target="jobs:load", app_ids=app_ids, tables=tables)
    commit = {"sink_version": None, "sink_table_id": None}
    state = make.state(
        make.create(),
        make.open(),
        make.bind(sink=sink),
        make.plan(make.batch(0), make.batch(1)),
        make.commit(0, tables={"kept": 3, "gone": 7}, **commit),
        # the function need not write each table
        make.commit(1, tables={"kept": 4}, **commit),
    )
    assert state.tables == {"kept": 4, "gone": 7}
    state = evolve(state, make.entry(6, Requested(reason="replan", why="again", epoch=2)))
    assert state.closed.tables == {"kept": 4, "gone": 7}
    fence = Fence(status="done", versions={"fds:u1#kept": fence_version(2)})
    state = evolve(state, make.entry(7, make.open(epoch=2, version=2, fence=fence)))
    assert state.tables == {"kept": 0}
