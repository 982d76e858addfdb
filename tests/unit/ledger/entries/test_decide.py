"""``decide`` as tables: each command in each phase of a stream, and what each refusal says."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from airflow_provider_fds.batch.transactions import fence_version, txn_version
from airflow_provider_fds.errors import LedgerError, SinkError, StreamBusyError
from airflow_provider_fds.ledger.entries.commit_entries import Accepted, Blocked
from airflow_provider_fds.ledger.entries.epoch_entries import Ended, Named, Opened
from airflow_provider_fds.ledger.entries.operator_entries import (
    Acknowledged,
    Held,
    Quarantined,
    Resumed,
    Retired,
    Transferred,
)
from airflow_provider_fds.ledger.entries.plan_entries import Claimed
from airflow_provider_fds.ledger.entries.protocol import decide, evolve
from airflow_provider_fds.ledger.entries.refusals import EpochClosedError, StreamMovedError
from airflow_provider_fds.ledger.entries.request_entries import Requested, Shown
from airflow_provider_fds.ledger.owner import Owner
from airflow_provider_fds.ledger.values import Fence, SeenBatch, SinkBinding, SnapshotRef

REWIND = Requested(reason="rewind", why="wrong rows")

PHASES = (
    "empty",
    "created",
    "open",
    "planned",
    "other's",
    "committed",
    "held",
    "quarantined",
    "blocked",
    "requested",
    "retired",
)


def test_a_version_that_was_read_is_not_skipped_while_an_epoch_is_requested(make):
    loaded = (make.create(), make.open(), make.bind(), make.plan(make.batch(0), make.batch(1)), make.commit(0))
    skip = Acknowledged(version=0, why="wrong rows", skip=True, of="rows")
    replan = Requested(reason="replan", why="x")
    with pytest.raises(LedgerError, match="continues at the beginning of version 1 and has already read version 0"):
        decide(make.state(*loaded, replan), skip)
    assert decide(make.state(*loaded, replan), replace(skip, version=1)) is not None
    for to in ({"starting_version": 0}, {"offset": make.offset(0)}, {"start": "options"}):
        assert decide(make.state(*loaded, replace(replan, reason="rewind", to=to)), skip) is not None


def test_a_version_in_the_snapshot_is_taken_out_of_the_sink_by_no_rewind(make):
    snapshot = SnapshotRef(version=5, digest="a", key="snapshots/5-a", num_files=1, num_bytes=1)
    state = make.state(make.create(), make.open(start=make.offset(5, snapshot=True), snapshot=snapshot), make.bind())
    for version in (3, 5):
        with pytest.raises(LedgerError, match="came with the snapshot of version 5, of which no version") as refused:
            decide(state, Acknowledged(version=version, why="wrong rows", skip=True, of="rows"))
        assert "rewind" not in str(refused.value)


def block(make, **changes):
    return Blocked(
        **{
            "epoch": 1,
            "batch_id": 0,
            "owner": make.owner(),
            "attempt_id": "t1",
            "reason": "rows differ",
            "rows_planned": 20,
            "rows_written": 19,
            "sink_version": 1,
            "sink_table_id": make.sink_id,
            **changes,
        }
    )


def phase(make, name):
    planned = make.plan(make.batch(0), make.batch(1))
    return {
        "empty": make.state,
        "created": lambda: make.state(make.create()),
        "open": make.opened,
        "planned": lambda: make.opened(planned),
        "other's": lambda: make.opened(make.plan(make.batch(0), make.batch(1), run="r0")),
        "committed": lambda: make.opened(planned, make.commit(0), make.commit(1)),
        "held": lambda: make.opened(planned, Held(why="pause")),
        "quarantined": lambda: make.opened(Quarantined(why="schema", version=7)),
        "blocked": lambda: make.opened(planned, block(make)),
        "requested": lambda: make.opened(planned, make.commit(0), REWIND),
        "retired": lambda: make.opened(Retired(why="done")),
    }[name]()


# what comes of a command, by phase in the order of PHASES:
#   a word = kind of the entry, "." = already so, nothing is written, an error class = refused with it
L, B, M, E, S = LedgerError, StreamBusyError, StreamMovedError, EpochClosedError, SinkError
TABLE = {
    "create": ("created", ".", ".", ".", ".", ".", ".", ".", ".", ".", L),
    "open": (L, "opened", ".", ".", ".", ".", ".", ".", ".", E, L),
    "bind": (L, L, ".", ".", ".", ".", ".", ".", ".", E, L),
    "bind another sink": (L, L, S, S, S, S, S, S, S, E, L),
    "plan 0": (L, L, "planned", M, B, M, L, L, L, E, L),
    "plan 2": (L, L, M, M, B, "planned", L, L, L, E, L),
    "claim": (L, L, M, ".", "claimed", M, ".", M, ".", E, L),
    "submit": (L, L, M, "submitted", B, M, "submitted", M, "submitted", E, L),
    "commit 0": (L, L, L, "committed", B, ".", "committed", L, L, ".", L),
    "commit 1": (L, L, L, L, L, ".", L, L, L, E, L),
    "advance 0": (L, L, "advanced", M, B, M, L, L, L, E, L),
    "end": (L, L, "ended", "ended", "ended", "ended", "ended", "ended", "ended", E, L),
    "block": (L, L, L, "blocked", B, L, "blocked", L, ".", E, L),
    "accept": (L, L, L, L, L, L, L, L, "accepted", E, L),
    "rewind": (L, L, "requested", "requested", "requested", "requested", "requested", "requested", "requested", L, L),
    "lost position": (
        L,
        L,
        "requested",
        "requested",
        "requested",
        "requested",
        "requested",
        "requested",
        "requested",
        ".",
        L,
    ),
    "hold": (L, "held", "held", "held", "held", "held", ".", "held", "held", "held", L),
    "resume": (L, ".", ".", ".", ".", ".", "resumed", "resumed", ".", ".", L),
    "quarantine": (
        L,
        "quarantined",
        "quarantined",
        "quarantined",
        "quarantined",
        "quarantined",
        "quarantined",
        ".",
        "quarantined",
        "quarantined",
        L,
    ),
    "acknowledge": (L, *["acknowledged"] * 9, L),
    "name": (L, *["named"] * 9, L),
    "move": (L, "named", "named", L, L, "named", L, "named", L, "named", L),
    "transfer": (L, *["transferred"] * 9, L),
    "retire": (L, "retired", "retired", L, L, "retired", L, "retired", L, L, "."),
}


def command(make, name):
    return {
        "create": lambda: make.create(uuid="u2"),
        "open": make.open,
        "bind": make.bind,
        "bind another sink": lambda: make.bind(sink=SinkBinding(kind="delta_append", target="s3://lake/other")),
        "plan 0": lambda: make.plan(make.batch(0)),
        "plan 2": lambda: make.plan(make.batch(2)),
        "claim": lambda: make.claim("r1", previous="r0"),
        "submit": make.submit,
        "commit 0": lambda: make.commit(0),
        "commit 1": lambda: make.commit(1),
        "advance 0": lambda: make.advance(0, 4),
        "end": lambda: Ended(epoch=1, instant="2024-01-01T00:03:30.000Z", version=3),
        "block": lambda: block(make),
        "accept": lambda: Accepted(epoch=1, batch_id=0, why="counted by hand"),
        "rewind": lambda: REWIND,
        "lost position": lambda: Requested(
            reason="lost_position", why="version 3 is gone", closes=1, is_automatic=True
        ),
        "hold": lambda: Held(why="maintenance"),
        "resume": lambda: Resumed(why="done"),
        "quarantine": lambda: Quarantined(why="schema", version=7),
        "acknowledge": lambda: Acknowledged(version=7, why="read it"),
        "name": lambda: Named(connection="unity", name="main.sales.orders", table_id="u1"),
        "move": lambda: Named(connection="unity", name="main.sales.orders", table="s3://lake/moved", why="full"),
        "transfer": lambda: Transferred(deployment="prod2", why="moved"),
        "retire": lambda: Retired(why="no longer needed"),
    }[name]()


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("phase_name", PHASES)
def test_what_comes_of_each_command_in_each_phase(make, name, phase_name):
    expected = TABLE[name][PHASES.index(phase_name)]
    state = phase(make, phase_name)
    if isinstance(expected, str):
        action = decide(state, command(make, name))
        assert (action.kind if action else ".") == expected
        return
    with pytest.raises(expected) as refused:
        decide(state, command(make, name))
    assert type(refused.value) is expected
    message = str(refused.value)
    assert "stream 'orders'" in message
    if phase_name != "empty":
        assert make.table in message
        assert refused.value.table == make.table


def test_an_entry_as_it_is_written_has_nothing_left_to_derive(make):
    for name, expected in TABLE.items():
        for phase_name, kind in zip(PHASES, expected, strict=True):
            if not isinstance(kind, str) or kind == ".":
                continue
            state = phase(make, phase_name)
            written = decide(state, command(make, name))
            assert decide(state, written) == written, (name, phase_name)


@pytest.mark.parametrize(
    ("phase_name", "name", "words"),
    [
        ("empty", "commit 0", ["no ledger", "fds recover orders"]),
        ("created", "plan 0", ["epoch 1 was requested", "next run", "fds status orders"]),
        ("requested", "plan 0", ["epoch 1", "rewind (wrong rows)", "epoch 2", "fds history orders"]),
        ("requested", "rewind", ["rewind: wrong rows", "not opened"]),
        ("held", "plan 0", ["held (pause)", "fds resume orders"]),
        ("quarantined", "plan 0", ["before version 7 (schema)", "fds accept orders --version 7"]),
        ("blocked", "commit 0", ["rows differ", "20", "19", "fds accept orders --batch 0", "fds replan orders"]),
        ("retired", "plan 0", ["retired", "done", "another name"]),
        ("other's", "plan 0", ["batches 0 to 1", "run r0", "fds unlock orders"]),
        ("open", "bind another sink", ["s3://lake/bronze", "s3://lake/other", "fds replan orders --new-sink"]),
        ("planned", "commit 1", ["the next batch in order is 0", "fds status orders"]),
        ("committed", "block", ["batch 0 is already committed"]),
        ("open", "block", ["nothing is planned", "next batch to plan is 0"]),
        ("open", "accept", ["no batch is blocked", "fds status orders"]),
    ],
)
def test_a_refusal_says_what_was_found_and_the_command_to_run(make, phase_name, name, words):
    with pytest.raises(LedgerError if name != "bind another sink" else SinkError) as refused:
        decide(phase(make, phase_name), command(make, name))
    assert [word for word in words if word not in str(refused.value)] == []


def test_a_refusal_names_the_owner_of_the_batches(make):
    with pytest.raises(StreamBusyError) as refused:
        decide(phase(make, "other's"), make.plan(make.batch(2)))
    assert refused.value.owner == "task ingest of DAG orders, run r0"
    assert refused.value.retryable


def test_a_stream_name_stays_with_its_table(make):
    with pytest.raises(LedgerError, match=r"reads s3://lake/orders, not s3://lake/customers.*another name"):
        decide(make.opened(), make.create(table="s3://lake/customers"))


def test_another_installation_gets_an_error_with_both_names_and_the_transfer_command(make):
    with pytest.raises(LedgerError, match=r"'prod', but this one is 'test'.*fds transfer orders"):
        decide(make.opened(), make.create(deployment="test"))


# -- epochs and fences


def test_a_later_epoch_opens_only_after_its_fence(make):
    state = make.opened(REWIND)
    fence = Fence(status="done", versions={"fds:u1": fence_version(2)}, sink_version=9)
    for wrong in (Fence(), Fence(status="done"), Fence(status="done", versions={"fds:u1": fence_version(1)})):
        with pytest.raises(
            LedgerError, match=rf"version {fence_version(2)} closes the earlier epochs in delta_append s3://lake/bronze"
        ):
            decide(state, make.open(2, fence=wrong))
    assert decide(state, make.open(2, fence=fence)).fence == fence
    assert decide(state, make.open(2, fence=Fence(status="sink_missing"))).kind == "opened"


def test_an_epoch_of_a_user_job_or_without_a_sink_needs_no_fence(make):
    unbound = make.state(make.create(), make.open(), REWIND)
    user_job = make.state(make.create(), make.open(), make.bind(sink=make.user_job), REWIND)
    assert decide(unbound, make.open(2)).kind == "opened"
    assert decide(user_job, make.open(2)).kind == "opened"


def test_a_function_may_declare_more_writes_and_no_fewer(make):
    def function(*writes):
        app_ids = tuple(f"fds:u1#{write}" for write in writes)
        return SinkBinding(kind="foreach_batch", target="orders:load", app_ids=app_ids)

    state = make.state(make.create(), make.open(), make.bind(sink=function()))
    for writes in (("a",), ("a", "b")):
        action = decide(state, make.bind(sink=function(*writes)))
        assert action.sink == function(*writes)
        state = evolve(state, make.entry(9, action))
    assert decide(state, make.bind(sink=function("a", "b"))) is None
    for writes in ((), ("b",), ("a", "c")):
        words = rf"load \(writes: a, b\) and cannot write to .* \(writes: {', '.join(writes) or 'none'}\)"
        with pytest.raises(SinkError, match=words):
            decide(state, make.bind(sink=function(*writes)))
    other = SinkBinding(kind="foreach_batch", target="orders:other", app_ids=function("a", "b", "c").app_ids)
    with pytest.raises(SinkError, match="orders:other"):
        decide(state, make.bind(sink=other))


def test_a_second_request_says_how_to_make_it_in_place_of_the_first(make):
    with pytest.raises(LedgerError, match="shows the request, and `--replace` replaces it with this one"):
        decide(make.opened(REWIND), REWIND)


def test_only_the_first_request_tells_of_a_functions_writes(make):
    first, later = (SeenBatch(epoch=1, batch_id=n, digest="", sink_version=n, write="kept") for n in (0, 1))
    state = make.opened(replace(REWIND, seen=(first,)))
    assert decide(state, replace(REWIND, replaces=True, seen=(first,))).seen == (first,)
    with pytest.raises(StreamMovedError, match="that no run has reported"):
        decide(state, replace(REWIND, replaces=True, seen=(first, later)))
    shown = evolve(state, make.entry(9, Shown(epoch=2, batches=(later,))))
    assert decide(shown, replace(REWIND, replaces=True, seen=(first, later))).seen == (first, later)
    with pytest.raises(StreamMovedError, match="that no run has reported"):
        # a table that FDS writes shows its batches to a run
        decide(make.opened(), replace(REWIND, seen=(replace(first, write=""),)))


def test_a_rebind_fences_the_sink_it_leaves(make):
    state = make.opened(Requested(reason="rebind", why="new bucket"))
    with pytest.raises(LedgerError, match="s3://lake/bronze"):
        decide(state, make.open(2))


def test_the_start_must_be_of_the_table(make):
    state = make.state(make.create())
    with pytest.raises(LedgerError, match="but the table has id another"):
        decide(state, Opened(epoch=1, start=make.offset(0), table_id="another"))


def test_an_epoch_that_was_never_requested_is_refused(make):
    with pytest.raises(LedgerError, match="for epoch 5, but the stream is in epoch 1"):
        decide(make.opened(), make.plan(make.batch(0, 5), epoch=5))


def test_an_automatic_request_does_not_close_an_epoch_it_has_not_seen(make):
    state = make.state(make.create(), make.open(), REWIND, make.open(2))
    automatic = Requested(reason="lost_position", why="gone", closes=1, is_automatic=True)
    assert decide(state, automatic) is None
    with pytest.raises(EpochClosedError):
        decide(state, Requested(reason="rewind", why="mine", closes=1))


# -- plans


@pytest.mark.parametrize(
    ("batches", "error", "words"),
    [
        ([], LedgerError, "must have at least one batch"),
        ([(1, {})], StreamMovedError, "begins with batch 1, but the next batch in order is 0"),
        ([(0, {"start": 1})], StreamMovedError, "starts at"),
        ([(0, {}), (2, {})], LedgerError, "but batch 1 is next in order"),
        ([(0, {}), (1, {"start": 2, "end": 3})], LedgerError, "before it ends at"),
        # case 17
        ([(0, {"end": 0})], LedgerError, "not after its start"),
        (
            [(0, {"prev_txn_version": 7})],
            LedgerError,
            "expects transaction 7 in the sink, but the previous one is None",
        ),
        ([(0, {}), (1, {"prev_txn_version": 7})], LedgerError, f"previous one is {txn_version(1, 0)}"),
    ],
)
def test_a_plan_that_breaks_the_chain_is_refused(make, batches, error, words):
    def made(batch_id, changes):
        return make.batch(batch_id, **{k: make.offset(v) if k in ("start", "end") else v for k, v in changes.items()})

    with pytest.raises(error, match=words):
        decide(make.opened(), make.plan(*(made(*b) for b in batches)))


def test_a_plan_for_another_table_is_refused(make):
    other = make.batch(0).end.replace(make.table_id, "other")
    with pytest.raises(LedgerError, match="table with id other, but the stream reads"):
        decide(make.opened(), make.plan(make.batch(0, end=other)))


def test_a_run_keeps_the_target_of_its_first_plan(make):
    state = make.opened(make.plan(make.batch(0), target=5), make.commit(0))
    with pytest.raises(LedgerError, match=r"fixed version 5 as its target .* version 9"):
        decide(state, make.plan(make.batch(1), target=9))
    assert decide(state, make.plan(make.batch(1), target=5)).target == 5
    assert decide(state, make.plan(make.batch(1), target=9, run="r2")).target == 9


def test_options_that_change_what_an_index_means_wait_for_the_end_of_the_version(make):
    inside = make.opened(make.plan(make.batch(0, end=make.offset(3, 4))), make.commit(0))
    following = make.batch(1, start=make.offset(3, 4), end=make.offset(4))
    with pytest.raises(LedgerError, match=r"inside version 3 \(after file 4\).*fds rewind orders --to 3"):
        decide(inside, make.plan(following, meaning_digest="m2"))
    assert decide(inside, make.plan(following)).kind == "planned"
    between = make.opened(make.plan(make.batch(0)), make.commit(0))
    assert decide(between, make.plan(make.batch(1), meaning_digest="m2")).kind == "planned"


def test_no_option_changes_what_an_index_of_a_frozen_snapshot_means(make):
    start = make.offset(3, snapshot=True)
    snapshot = SnapshotRef(version=3, digest="s", key="snapshots/3-s.parquet", num_files=9, num_bytes=9)
    inside = make.state(
        make.create(),
        make.open(start=start, snapshot=snapshot),
        make.bind(),
        make.plan(make.batch(0, start=start, end=make.offset(3, 4, snapshot=True))),
        make.commit(0),
    )
    following = make.batch(1, start=make.offset(3, 4, snapshot=True), end=make.offset(4))
    assert decide(inside, make.plan(following, meaning_digest="m2")).kind == "planned"


# -- owners


def test_a_driver_is_remembered_until_its_end_the_next_plan_or_a_person_frees_its_batches(make):
    planned = make.plan(make.batch(0), make.batch(1))
    found = make.opened(planned, make.submit())
    assert (found.submitted.driver, found.submitted.batch_id) == ("driver-20261120123015-0000", 1)
    assert decide(found, make.submit()) is None
    # the end of an earlier driver is not that of the last one
    assert decide(found, make.submit(attempt_id="t0", has_ended=True)) is None
    kept = (make.commit(0), make.claim("r2", previous="r1"))
    assert make.opened(planned, make.submit(), *kept).submitted == found.submitted
    over = make.opened(planned, make.submit(), make.commit(0), make.submit(has_ended=True))
    assert over.submitted is None
    assert decide(over, make.submit(has_ended=True)) is None
    next_plan = (make.commit(0), make.commit(1), make.plan(make.batch(2)))
    assert make.opened(planned, make.submit(), *next_plan).submitted is None
    freed = Claimed(epoch=1, owner=Owner.of_plan("prod"), previous=make.owner(), why="the driver is gone")
    assert make.opened(planned, make.submit(), freed).submitted is None


def test_a_claim_of_batches_that_a_third_run_has_claimed_is_refused(make):
    state = make.opened(make.plan(make.batch(0), run="r0"), make.claim("r2", previous="r0"))
    with pytest.raises(StreamBusyError, match="run r2"):
        decide(state, make.claim("r1", previous="r0"))


def test_held_and_blocked_batches_are_not_taken_over(make):
    planned = make.plan(make.batch(0), run="r0")
    held = make.opened(planned, Held(why="pause"))
    blocked = make.opened(planned, block(make, owner=make.owner("r0")))
    for state in (held, blocked):
        with pytest.raises(LedgerError, match=r"held|blocked"):
            decide(state, make.claim("r1", previous="r0"))


def test_the_zombie_of_an_owner_that_was_replaced_cannot_commit(make):
    state = make.opened(make.plan(make.batch(0), run="r0"), make.claim("r1", previous="r0"))
    with pytest.raises(StreamBusyError, match="run r1"):
        decide(state, make.commit(0, run="r0"))
    assert decide(state, make.commit(0, run="r1")).kind == "committed"


def test_the_three_task_form_is_another_owner_than_a_single_task(make):
    assert make.owner() != make.owner(is_three_task=True)
    assert make.owner() != make.owner(map_index=3)


# -- commits and their sink


def test_a_commit_takes_end_and_source_digest_from_the_plan(make):
    committed = decide(phase(make, "planned"), make.commit(0))
    assert (committed.end, committed.last_commit_sha256) == (make.offset(1), "sha0")
    assert not committed.was_accepted


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"digest": "other"}, LedgerError, "digest d1, but the report names 'other'"),
        (
            {"outcome": "user_job"},
            LedgerError,
            "bound to delta_append s3://lake/bronze, but the commit is of kind 'user_job'",
        ),
        ({"sink_version": None}, LedgerError, "does not say which version"),
        ({"sink_table_id": None}, LedgerError, "does not say which version"),
        ({"sink_table_id": "other"}, SinkError, "table id is other, but the ledger has 99999999"),
        ({"sink_version": 1}, SinkError, "version 1, but an earlier commit is in version 1"),
    ],
)
def test_a_commit_must_fit_plan_and_sink(make, changes, error, words):
    state = make.opened(make.plan(make.batch(0), make.batch(1)), make.commit(0))
    with pytest.raises(error, match=words):
        decide(state, make.commit(1, **changes))


def test_a_commit_of_a_user_job_needs_no_sink_version(make):
    state = make.state(make.create(), make.open(), make.bind(sink=make.user_job), make.plan(make.batch(0)))
    committed = decide(state, make.commit(0, outcome="user_job", sink_version=None, sink_table_id=None, rows=None))
    assert committed.outcome == "user_job"
    with pytest.raises(LedgerError, match="the user job"):
        decide(state, make.commit(0))


def test_a_plan_without_a_sink_cannot_be_committed(make):
    state = make.state(make.create(), make.open(), make.plan(make.batch(0)))
    with pytest.raises(LedgerError, match="not bound to a sink"):
        decide(state, make.commit(0))


def test_a_batch_of_a_closed_epoch_that_was_committed_in_time_stays_committed(make):
    state = make.opened(make.plan(make.batch(0), make.batch(1)), make.commit(0), REWIND)
    assert decide(state, make.commit(0)) is None
    with pytest.raises(EpochClosedError) as refused:
        decide(state, make.commit(1))
    assert (refused.value.epoch, refused.value.newest_epoch) == (1, 2)


def test_a_bound_sink_that_was_replaced_is_refused(make):
    state = make.opened(make.plan(make.batch(0)), make.commit(0))
    with pytest.raises(SinkError, match="table id is other"):
        decide(state, make.bind(table_id="other"))
    assert decide(state, make.bind(table_id=make.sink_id)) is None


# -- what a person accepts


def test_an_accepted_mismatch_can_be_committed_and_is_not_blocked_again(make):
    state = make.opened(make.plan(make.batch(0)), block(make), Accepted(epoch=1, batch_id=0, why="counted"))
    assert decide(state, block(make)) is None
    assert decide(state, block(make, rows_written=3)).kind == "blocked"
    assert decide(state, make.commit(0, rows=19)).was_accepted
    assert decide(state, Accepted(epoch=1, batch_id=0, why="again")) is None


def test_a_range_that_was_already_advanced_is_not_changed(make):
    state = make.opened(make.advance(0, 4))
    assert decide(state, make.advance(0, 4)) is None
    with pytest.raises(StreamMovedError):
        decide(state, make.advance(0, 9))


def test_a_claim_is_a_value(make):
    assert make.claim("r1", "r0") == Claimed(
        epoch=1, owner=make.owner("r1"), previous=make.owner("r0"), why="state is failed"
    )
