"""Where a requested epoch begins, as a table: what the ledger, the log and the sink say, and what is decided.

The flow around it, from a request to the entry ``opened``, is in ``test_epoch_start.py``.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from airflow_provider_fds.batch.report import FenceEvidence, FenceReport, LandedBatch, RemovedRows
from airflow_provider_fds.batch.table_writes import NO_TABLE, TableWrite, TableWrites
from airflow_provider_fds.batch.transactions import fence_version, txn_version
from airflow_provider_fds.ledger.entries.commit_entries import Blocked
from airflow_provider_fds.ledger.entries.epoch_entries import Created, Forked
from airflow_provider_fds.ledger.entries.protocol import decide as allowed
from airflow_provider_fds.ledger.entries.protocol import evolve
from airflow_provider_fds.ledger.entries.request_entries import Requested, Shown
from airflow_provider_fds.ledger.state import StreamState
from airflow_provider_fds.ledger.values import Fence, Origin, Recovered, Removal, SinkBinding, SnapshotRef
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.source.options.options import SourceOptions
from airflow_provider_fds.source.planning.start import SnapshotStart
from airflow_provider_fds.stream.epochs.epoch_start import Facts, decide, needs_history, options_to_resolve
from airflow_provider_fds.stream.epochs.unseen_batches import as_seen
from tests.unit.ledger.conftest import Make

MAKE = Make()
#: A stream that has committed batch 0 as version 1 of its sink, and planned batches 1 and 2 after it.
LOADED = (
    MAKE.create(),
    MAKE.open(),
    MAKE.bind(),
    MAKE.plan(MAKE.batch(0), MAKE.batch(1), MAKE.batch(2)),
    MAKE.commit(0),
)
FUNCTION = SinkBinding(
    kind="foreach_batch", target="dag.py:load", app_ids=("fds:u1#orders",), tables={"orders": "s3://lake/a"}
)
#: The same with a function that writes one table.
CALLED = (
    *LOADED[:2],
    MAKE.bind(sink=FUNCTION),
    LOADED[3],
    MAKE.commit(0, sink_version=None, sink_table_id=None, tables={"orders": 1}),
)
FROZEN = SnapshotRef(version=5, digest="s", key="snapshots/s", num_files=9, num_bytes=9)
#: Batch 0 is the beginning of the initial snapshot of version 5, and batch 1 what follows in it.
WITHIN = (
    MAKE.create(),
    MAKE.open(
        start=MAKE.offset(5, snapshot=True),
        snapshot=SnapshotRef(version=5, digest="s", key="snapshots/s", num_files=9, num_bytes=9),
    ),
    MAKE.bind(),
    MAKE.plan(
        MAKE.batch(0, start=MAKE.offset(5, snapshot=True), end=MAKE.offset(5, 3, snapshot=True)),
        MAKE.batch(1, start=MAKE.offset(5, 3, snapshot=True), end=MAKE.offset(5, 6, snapshot=True)),
    ),
    MAKE.commit(0),
)
#: A lost ledger: epoch 1 had loaded batches 0 to 2, and epoch 2, after a rewind to the start, batch 0 again.
LOST = Created(
    uuid="u1",
    name="orders",
    table=MAKE.table,
    deployment="prod",
    recovered=Recovered(
        epoch=2,
        position=MAKE.offset(1),
        sink=SinkBinding(kind="delta_append", target="s3://lake/sink", app_ids=("fds:u1",)),
    ),
)
COMMITTED = TableWrite(txn_version(1, 0), 1)
FENCED = TableWrite(fence_version(2), 3)


def asked(reason: str, to: dict[str, Any] | None = None, **more: Any) -> Requested:
    return Requested(reason=reason, why="a test", to=to, **more)


REPLAN = asked("replan")
REWIND = asked("rewind", {"starting_version": 0})
TO_1 = asked("rewind", {"starting_version": 1}, replaces=True)


def landed(batch_id: int, *, digest: str | None = None, epoch: int = 1, version: int = 2) -> LandedBatch:
    return LandedBatch(epoch, batch_id, MAKE.offset(batch_id + 1), digest or f"d{batch_id}", version)


#: What the sink has of these.
REWOUND = (*(landed(n, version=n + 1) for n in range(3)), landed(0, epoch=2, version=5))


def snapshot(version: int) -> SnapshotRef:
    return SnapshotRef(version=version, digest="s", key="snapshots/s", num_files=9, num_bytes=9)


def facts(*commands: Any, start: Any = None, found: Any = (), evidence: Any = None, **more: Any) -> Facts:
    """What is known after the commands, with a fence that has found batches and what the sink's log shows."""
    state, entries = StreamState(name="orders"), []
    for n, command in enumerate(commands):
        action = allowed(state, command)
        assert action is not None, command
        entries.append(MAKE.entry(n, action))
        state = evolve(state, entries[-1])
    fence = more.pop("fence", Fence(status="done", sink_version=5))
    report = None
    if state.epoch > 1:
        report = FenceReport("u1", state.epoch, "a", "fenced", landed=tuple(found), evidence=evidence)
    known = Facts(state=state, fence=fence, report=report, tables=more.get("tables", {}), resolved=start)
    return Facts(
        state=state,
        fence=fence,
        report=report,
        tables=known.tables,
        resolved=start,
        # only what is asked for: no case passes because it has read more
        history=entries if needs_history(known) else (),
    )


def at(version: int, index: int = -100, *, is_snapshot: bool = False) -> Offset:
    return Offset(MAKE.table_id, version, index, is_snapshot)


ORIGIN = Origin(stream="live", uuid="u0", epoch=3, offset=MAKE.offset(7, 2), meaning_digest="m0")

OPENS = {
    "a new stream begins with a snapshot": (
        facts(MAKE.create(), start=SnapshotStart(3, MAKE.table_id)),
        {"start": SnapshotStart(3, MAKE.table_id), "follows_options": True},
    ),
    "a new stream begins where its options say": (
        facts(MAKE.create(), start=at(2)),
        {"start": at(2), "follows_options": True},
    ),
    "a start in the future is waited for": (facts(MAKE.create()), {"start": None, "follows_options": True}),
    "a new stream begins at the start that it was given": (
        facts(Created(uuid="u1", name="orders", table=MAKE.table, deployment="prod", start=MAKE.offset(4))),
        {"start": at(4), "is_kept": True, "follows_options": True},
    ),
    "a fork begins where its origin is": (
        facts(Forked(uuid="u1", name="orders", table=MAKE.table, deployment="prod", origin=ORIGIN)),
        {"start": at(7, 2), "is_kept": True, "continues": True, "meaning_digest": "m0", "origin": ORIGIN},
    ),
    "a replan continues at the position": (
        facts(*LOADED, REPLAN),
        {"start": at(1), "is_kept": True, "continues": True},
    ),
    "a replan continues after the planned batches that have landed": (
        facts(*LOADED, REPLAN, found=[landed(1), landed(2)]),
        {"start": at(3), "is_kept": True, "continues": True},
    ),
    "a replan continues after a batch that an earlier epoch planned at the position": (
        facts(
            *LOADED,
            REPLAN,
            MAKE.open(2, 1, fence=Fence(status="sink_missing")),
            asked("replan"),
            found=[landed(1)],
            fence=Fence(status="done", sink_version=9),
        ),
        {"start": at(2), "is_kept": True, "continues": True},
    ),
    "a rewind begins at its version": (facts(*LOADED, REWIND, start=at(0)), {"start": at(0)}),
    "a rewind may read a batch again that its person was shown": (
        facts(
            *LOADED,
            REWIND,
            Shown(epoch=2, batches=(as_seen(landed(1)),)),
            asked("rewind", {"starting_version": 0}, replaces=True, seen=(as_seen(landed(1)),)),
            start=at(0),
            found=[landed(1)],
        ),
        {"start": at(0)},
    ),
    "a reset begins as the options say": (
        facts(*LOADED, asked("reset", {"start": "options"}), start=at(0)),
        {"start": at(0), "follows_options": True},
    ),
    "a rewind to a batch begins within its version, counted by the same options": (
        facts(*LOADED, asked("rewind", {"offset": MAKE.offset(0, 2), "meaning_digest": "m1"})),
        {"start": at(0, 2), "is_kept": True, "meaning_digest": "m1"},
    ),
    "a sink that appeared is no new beginning": (
        facts(
            *LOADED,
            asked("replan"),
            MAKE.open(2, 1, continues=True, fence=Fence(status="done", versions={"fds:u1": 2 << 32}, sink_version=5)),
            asked("sink_appeared", {"offset": MAKE.offset(1)}, is_automatic=True),
        ),
        {"start": at(1), "is_kept": True, "continues": True},
    ),
    "a recovered stream continues after the newest batch, although an epoch before a rewind had read further": (
        facts(LOST, found=REWOUND),
        {"start": at(1), "is_kept": True},
    ),
    "a replan within a snapshot continues in the frozen one": (
        facts(
            MAKE.create(),
            MAKE.open(start=MAKE.offset(3, snapshot=True), snapshot=snapshot(3)),
            MAKE.bind(),
            asked("replan"),
        ),
        {"start": at(3, is_snapshot=True), "is_kept": True, "snapshot": snapshot(3)},
    ),
    "a removal of an unopened epoch is repeated by a reset": (
        facts(
            *LOADED,
            asked("rewind", {"start": "options"}),
            asked("reset", {"start": "options"}, replaces=True),
            start=at(2),
            evidence=FenceEvidence(newest=2 << 32, removed=(RemovedRows(2, 2),)),
        ),
        {"start": at(2), "follows_options": True},
    ),
    "a person who removes the rows need not know of a hidden batch": (
        facts(
            *LOADED,
            asked("reset", {"start": "options"}, removal=Removal(what="all", is_forced=True)),
            start=at(0),
            evidence=FenceEvidence(newest=txn_version(1, 1), is_cut=True),
        ),
        {"start": at(0), "follows_options": True},
    ),
    "the tables of a function have what counts as loaded": (
        facts(
            *CALLED, REPLAN, tables={"orders": TableWrites(3, (FENCED,), COMMITTED, FENCED)}, fence=Fence(status="done")
        ),
        {"start": at(1), "is_kept": True, "continues": True},
    ),
}

REFUSED = {
    "a replan, and the sink was removed": (
        facts(*LOADED, REPLAN, fence=Fence(status="sink_missing")),
        "its last commit in the sink is version 1, but the sink was removed, so committed rows may be missing",
        (),
    ),
    "a replan, and the sink is a new one": (
        facts(*LOADED, REPLAN, fence=Fence(status="done", sink_version=1)),
        "but the sink was at version 0 before the fence.*committed rows may be missing",
        (),
    ),
    "a replan, and the sink has forgotten a transaction": (
        facts(*LOADED, REPLAN, evidence=FenceEvidence()),
        "the newest transaction of the stream in the sink is None: it was restored from a copy",
        (),
    ),
    "a replan, and the sink was restored": (
        facts(*LOADED, REPLAN, evidence=FenceEvidence(newest=txn_version(1, 0), broken_at=3)),
        "version 3 of the sink restored it to an earlier version or to a time, or replaced it",
        (),
    ),
    "a replan, and a batch has landed that nobody planned": (
        facts(*LOADED, REPLAN, found=[landed(7, digest="another", version=4)]),
        "batch 7 of epoch 1 is in the sink as version 4, but the ledger does not know its manifest another",
        (7,),
    ),
    "a replan, and a batch of another number has this manifest": (
        facts(*LOADED, REPLAN, found=[landed(2, digest="d1")]),
        "batch 2 of epoch 1 is in the sink as version 2, but the ledger does not know its manifest d1",
        (2,),
    ),
    "a replan, and the blocked batch is in the sink": (
        facts(
            *LOADED,
            Blocked(epoch=1, batch_id=1, owner=MAKE.owner(), attempt_id="t1", reason="49 rows"),
            REPLAN,
            found=[landed(1)],
        ),
        "its verification failed: 49 rows.*restore version 1 of the sink, the last without it",
        (1,),
    ),
    "a rewind before batches that landed late": (
        facts(*LOADED, REWIND, start=at(0), found=[landed(1), landed(2, version=3)]),
        r"the sink has batches 1 to 2 of epoch 1 \(versions 2 to 3\).*load them twice.*without them is 1",
        (1, 2),
    ),
    "a recovery before a batch that landed later": (
        facts(LOST, found=[*REWOUND, landed(1, epoch=2, version=6)]),
        r"the sink has batch 1 of epoch 2 \(version 6\).*continue after them: `fds recover orders",
        (1,),
    ),
    "a rewind whose person was shown another batch": (
        facts(
            *LOADED,
            REWIND,
            Shown(epoch=2, batches=(as_seen(landed(1)),)),
            asked("rewind", {"starting_version": 0}, replaces=True, seen=(as_seen(landed(1)),)),
            start=at(0),
            found=[landed(1, version=4)],
        ),
        r"the sink has batch 1 of epoch 1 \(version 4\)",
        (1,),
    ),
    "a rewind after a batch that a RESTORE removed": (
        facts(
            *LOADED,
            asked("rewind", {"starting_version": 1}),
            start=at(1),
            evidence=FenceEvidence(newest=txn_version(1, 0), broken_at=3, restored_to=0),
        ),
        "version 3 of the sink restored it to version 0, so it lacks batch 0 of epoch 1.*--to 0 ",
        (),
    ),
    "a rewind to the version of a snapshot whose rows a RESTORE removed": (
        facts(
            *WITHIN,
            asked("rewind", {"starting_version": 5}),
            start=at(5),
            evidence=FenceEvidence(newest=txn_version(1, 0), broken_at=3, restored_to=0),
        ),
        "lacks batch 0 of epoch 1, which starts at the snapshot of version 5, 0 .*--to batch:0 --sink-rows keep --why",
        (),
    ),
    "a rewind, and another statement has the transaction of an earlier fence": (
        facts(*LOADED, REWIND, TO_1, start=at(1), evidence=FenceEvidence(newest=2 << 32, removed=(RemovedRows(2, 2),))),
        "another statement .* version 2 .* Restore version 1 of the sink",
        (),
    ),
    "a replan, and another statement has the transaction of an earlier fence": (
        facts(
            *LOADED,
            REPLAN,
            asked("replan", replaces=True),
            evidence=FenceEvidence(newest=2 << 32, removed=(RemovedRows(2, 2),)),
        ),
        "another statement .* version 2 .* Restore version 1 of the sink",
        (),
    ),
    "a rewind after rows that an epoch removed which never began": (
        facts(
            *LOADED,
            asked("rewind", {"starting_version": 0}, removal=Removal(what="rows", from_version=0)),
            TO_1,
            start=at(1),
            evidence=FenceEvidence(newest=2 << 32, removed=(RemovedRows(2, 3, "rows", 0),)),
        ),
        "the fence of epoch 2 removed rows from the sink in version 3.*no epoch has read them again",
        (),
    ),
    "a rewind after rows that such an epoch may have removed, in a log that was cleaned up": (
        facts(*LOADED, REWIND, TO_1, start=at(1), evidence=FenceEvidence(newest=2 << 32, is_cut=True)),
        "the fence of epoch 2 removed rows from the sink, or may have",
        (),
    ),
    "a position in another snapshot": (
        facts(*LOADED, asked("rewind", {"offset": MAKE.offset(3, 1, snapshot=True)})),
        "is in the snapshot of version 3, but the last epoch began with another snapshot",
        (),
    ),
    "a rewind, and log cleanup has hidden what landed": (
        facts(*LOADED, REWIND, start=at(0), evidence=FenceEvidence(newest=txn_version(1, 2), is_cut=True)),
        "batch 2 of epoch 1 and possibly earlier batches are in the sink, although it was never committed",
        (2,),
    ),
    "a replan, and the table of a function is gone": (
        facts(*CALLED, REPLAN, tables={"orders": NO_TABLE}, fence=Fence(status="done")),
        "the table s3://lake/a of write 'orders' was removed, restored from a copy",
        (),
    ),
    "a replan, and the table of a function was restored": (
        facts(
            *CALLED,
            REPLAN,
            tables={"orders": TableWrites(4, (), TableWrite(txn_version(1, 0), 1, "gone", 2), FENCED)},
            fence=Fence(status="done"),
        ),
        "batch 0 was committed, but the table s3://lake/a of write 'orders' was later restored or replaced",
        (),
    ),
    "a rewind after a batch that the table of a function has lost": (
        facts(
            *CALLED,
            asked("rewind", {"starting_version": 1}),
            start=at(1),
            tables={"orders": TableWrites(4, (), COMMITTED, FENCED, broken_at=2, restored_to=0)},
        ),
        "version 2 of s3://lake/a restored it to version 0, so it lacks batch 0 of epoch 1",
        (),
    ),
    "a rewind before what a driver wrote late into the table of a function": (
        facts(
            *CALLED,
            REWIND,
            start=at(0),
            tables={"orders": TableWrites(4, (TableWrite(txn_version(1, 1), 2), FENCED), COMMITTED, FENCED)},
        ),
        r"a driver of the previous epoch wrote 'orders' of batch 1 \(version 2 of s3://lake/a\)",
        (1,),
    ),
}

RESOLVED = {
    "those of a new stream": (facts(MAKE.create()), {"starting_version": "earliest"}),
    "those of a reset stream": (
        facts(*LOADED, asked("reset", {"start": "options"})),
        {"starting_version": "earliest"},
    ),
    "a version instead of them": (facts(*LOADED, REWIND), {"starting_version": 0}),
    "a time instead of them": (
        facts(*LOADED, asked("rewind", {"starting_timestamp": "2026-01-01"})),
        {"starting_timestamp": "2026-01-01", "starting_version": None},
    ),
    "none for a fork": (OPENS["a fork begins where its origin is"][0], None),
    "none for a given start": (OPENS["a new stream begins at the start that it was given"][0], None),
    "none for a replan": (facts(*LOADED, REPLAN), None),
    "none for a position": (facts(*LOADED, asked("rewind", {"offset": MAKE.offset(0)})), None),
}


@pytest.mark.parametrize("case", OPENS)
def test_an_epoch_begins_there(case):
    known, expected = OPENS[case]
    opening = decide(known)
    empty = dict.fromkeys(("start", "snapshot", "meaning_digest", "origin", "refusal"))
    wanted = {**empty, "is_kept": False, "continues": False, "follows_options": False, **expected}
    assert {name: getattr(opening, name) for name in wanted} == wanted


@pytest.mark.parametrize("case", REFUSED)
def test_an_epoch_does_not_begin_and_the_message_says_why_and_which_batches_it_names(case):
    known, message, shown = REFUSED[case]
    opening = decide(known)
    assert opening.start is None
    assert opening.refusal is not None
    assert re.search(message, str(opening.refusal.error)), str(opening.refusal.error)
    assert tuple(batch.batch_id for batch in opening.refusal.shown) == shown


@pytest.mark.parametrize("case", RESOLVED)
def test_the_log_is_asked_only_for_a_start_that_the_ledger_does_not_have(case):
    known, expected = RESOLVED[case]
    options = options_to_resolve(known.state, SourceOptions(starting_version="earliest"))
    assert (options and {name: getattr(options, name) for name in expected}) == expected


def test_the_history_is_read_only_if_a_rule_needs_it():
    assert not any(facts(*LOADED, *more).history for more in ((), (REPLAN,), (REWIND,)))
    assert not facts(*LOADED, REPLAN, found=[landed(1)]).history
    assert facts(*LOADED, REPLAN, found=[landed(1, digest="another")]).history
    assert facts(*LOADED, REWIND, evidence=FenceEvidence(broken_at=3, restored_to=0)).history
