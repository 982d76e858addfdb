"""Entries as bytes: golden files of every kind, and what cannot be read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from airflow_provider_fds.errors import LedgerError
from airflow_provider_fds.ledger.entries.action import KINDS, BaseAction, register
from airflow_provider_fds.ledger.entries.commit_entries import Accepted, Blocked, Committed
from airflow_provider_fds.ledger.entries.entry import Entry, digest_of
from airflow_provider_fds.ledger.entries.epoch_entries import Bound, Created, Ended, Forked, Named, Opened, StartKept
from airflow_provider_fds.ledger.entries.fold import Fold
from airflow_provider_fds.ledger.entries.interval_entries import Boundary, IntervalOpened
from airflow_provider_fds.ledger.entries.operator_entries import (
    Acknowledged,
    Held,
    Quarantined,
    Resumed,
    Retired,
    Transferred,
)
from airflow_provider_fds.ledger.entries.plan_entries import Advanced, Claimed, Planned
from airflow_provider_fds.ledger.entries.protocol import decide, evolve
from airflow_provider_fds.ledger.entries.request_entries import Requested, Shown
from airflow_provider_fds.ledger.measures import Measures
from airflow_provider_fds.ledger.owner import Actor
from airflow_provider_fds.ledger.position import Checkpoint, describe_checkpoint
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.ledger.values import (
    Acknowledgement,
    EventTime,
    Fence,
    GivenUp,
    Origin,
    PassedSchema,
    Recovered,
    Removal,
    SeenBatch,
    Skipped,
    SnapshotRef,
)
from airflow_provider_fds.source.offset import Offset

GOLDEN = Path(__file__).parents[3] / "golden" / "ledger"
WHERE = "s3://staging/orders/ledger/00000000000000000003.json"


def every_action(make):
    skipped = (Skipped(version=1, operation="OPTIMIZE", reason="no data change"),)
    start, end = make.offset(0), make.offset(3, 4)
    snapshot = SnapshotRef(
        version=0,
        digest="5f2e",
        key="snapshots/0-5f2e.parquet",
        num_files=12,
        num_bytes=34_567,
        timestamp_ms=1_704_067_200_000,
    )
    passed = (PassedSchema(version=2, changes=("+ more: string",), allowed_by="default"),)
    times = EventTime(
        min="2026-01-01T00:00:00.000000Z", max="2026-01-02T00:00:00.000999Z", seen="2026-01-02T00:00:00.000000Z"
    )
    batch = make.batch(
        0,
        end=end,
        skipped=skipped,
        log_checksum="sum0",
        log_etags="tags0",
        schema_changes=passed,
        event_time=times,
        where="`id` > 5",
    )
    fence = Fence(
        status="done",
        versions={"fds:u1": 8589934592, "fds:u1#dim": 8589934592},
        sink_version=17,
        sink_table_id=make.sink_id,
        removal=Removal(what="rows", from_version=1),
        removed_rows=20,
        lacks_committed=True,
        warnings=("another writer took out rows",),
    )
    seen = (SeenBatch(epoch=1, batch_id=4, digest="d4", sink_version=16, write="kept"),)
    measures = Measures(
        rows_read=25, files_written=2, bytes_written=4096, seconds={"check": 0.25, "load": 0.5, "write": 1.5}
    )
    owner, interval = make.owner(), "2026-11-19T00:00:00.000Z/2026-11-20T00:00:00.000Z"
    origin = Origin(
        stream="orders",
        uuid="u1",
        epoch=2,
        offset=start,
        snapshot=snapshot,
        meaning_digest="m1",
        last_commit_sha256="ab",
        range_options={"starting_version": 0},
        acknowledged=(Acknowledgement(version=7, who="ann@desk", why="read it", skip=True),),
    )
    return [
        Created(
            uuid="u1",
            name="orders",
            table=make.table,
            deployment="prod",
            recovered=Recovered(
                epoch=3,
                position=end,
                sink=make.sink,
                after=5,
                snapshot=snapshot,
                meaning_digest="m1",
                held="maintenance",
                acknowledged=(Acknowledgement(version=7, who="ann@desk", why="read it", skip=True),),
                origin=origin,
                given_up=(GivenUp(n=2, sha256="5e", why="is damaged"),),
            ),
        ),
        Forked(uuid="u2", name="audit", table=make.table, deployment="prod", origin=origin),
        Opened(
            epoch=2,
            start=start,
            table_id=make.table_id,
            snapshot=snapshot,
            fence=fence,
            landed=4,
            last_commit_sha256="ab",
            meaning_digest="m1",
            continues=True,
            range_options={"starting_version": 0, "ending_version": 9},
        ),
        Bound(epoch=1, sink=make.sink, table_id=make.sink_id),
        Planned(
            epoch=1,
            owner=owner,
            target=9,
            batches=(batch,),
            options_digest="o1",
            meaning_digest="m1",
            skipped=(Skipped(version=5, operation="DELETE", reason="skip_versions"),),
            schema_changes=(PassedSchema(version=6, changes=("+ most: string",), allowed_by="default"),),
            left_out=(2,),
        ),
        Claimed(epoch=1, interval=interval, owner=owner, previous=make.owner("r0"), why="state is failed"),
        make.submit(has_ended=True),
        Committed(
            epoch=1,
            batch_id=0,
            owner=owner,
            attempt_id="t1",
            outcome="written",
            digest="d0",
            end=end,
            sink_version=18,
            sink_table_id=make.sink_id,
            rows=20,
            last_commit_sha256="sha0",
            measures=measures,
        ),
        Advanced(
            epoch=1,
            owner=owner,
            start=start,
            end=end,
            first_version=0,
            last_version=3,
            skipped=skipped,
            log_digest="log3",
            last_commit_sha256="sha3",
            schema_changes=passed,
        ),
        Blocked(
            epoch=1,
            batch_id=0,
            attempt_id="t1",
            reason="rows differ",
            rows_planned=20,
            rows_written=19,
            sink_version=18,
            sink_table_id=make.sink_id,
            owner=owner,
        ),
        Accepted(epoch=1, batch_id=0, why="counted by hand"),
        Requested(
            epoch=2,
            reason="rewind",
            why="wrong rows",
            position=end,
            to={"starting_version": 1},
            seen=seen,
            removal=Removal(what="all", is_forced=True),
            closes=1,
            replaces=True,
        ),
        Shown(epoch=2, batches=seen),
        Quarantined(why="column dropped", version=7, schema_version=7, can_be_acknowledged=False, operation="DELETE"),
        Held(why="maintenance"),
        Resumed(why="done"),
        Acknowledged(version=7, why="read it", skip=True),
        Boundary(instant="2026-11-20T00:00:00.000Z", version=41, table_id="t1"),
        IntervalOpened(
            interval=interval,
            generation=1,
            first_version=30,
            last_version=40,
            owner=owner,
            previous=make.owner("r0"),
        ),
        Ended(epoch=1, instant="2024-01-01T00:03:30.000Z", version=3),
        StartKept(epoch=1, options={"starting_version": 7}),
        Named(connection="unity", name="main.sales.orders", table_id="0b1c"),
        Transferred(previous="prod", deployment="prod2", why="moved"),
        Retired(why="no longer needed"),
    ]


def test_there_is_a_golden_file_for_every_kind_of_entry(make):
    assert set(KINDS) == {path.stem.partition(".")[0] for path in GOLDEN.glob("*.json")}
    assert {action.kind for action in every_action(make)} <= set(KINDS)


@pytest.mark.parametrize("golden", sorted(GOLDEN.glob("*.json")), ids=lambda path: path.stem)
def test_a_golden_file_has_every_field_of_its_kind_and_is_read_and_written_unchanged(golden):
    entry = Entry.from_json(golden.read_bytes(), where=WHERE)
    assert type(entry.action) is KINDS[golden.stem.partition(".")[0]]
    assert entry.to_json() == golden.read_bytes()


# D40
def test_every_entry_is_written_as_in_its_golden_file_and_read_from_it(make):
    for action in every_action(make):
        entry = make.entry(3, action, request_id="q1" if action.kind == "requested" else None)
        golden = (GOLDEN / f"{action.kind}.json").read_bytes()
        assert entry.to_json() == golden, action.kind
        assert Entry.from_json(golden, where=WHERE) == entry


def test_a_committed_batch_has_the_rows_that_failed_its_expectations(make):
    entry = Entry.from_json((GOLDEN / "committed.expectations.json").read_bytes(), where=WHERE)
    before = Entry.from_json((GOLDEN / "committed.json").read_bytes(), where=WHERE).action.measures
    measures = entry.action.measures
    assert (measures.rows_rejected, measures.failed_rows) == (5, {"amount >= 0": 5, "name IS NOT NULL": 0})
    assert (before.rows_rejected, before.failed_rows) == (0, {})
    total = measures.plus(before).plus(measures)
    assert (total.rows_rejected, total.failed_rows) == (10, {"amount >= 0": 10, "name IS NOT NULL": 0})


def test_entries_from_before_some_of_their_fields_existed_are_read(make):
    later = {
        "created": ("recovered",),
        "opened": ("meaning_digest", "continues", "range_options"),
        "acknowledged": ("skip",),
        "committed": ("interval", "measures"),
        "blocked": ("owner",),
        "requested": ("seen", "removal", "closes", "replaces"),
        "interval_opened": ("owner", "previous"),
        "planned": ("interval", "skipped", "schema_changes", "left_out"),
    }
    for kind, names in later.items():
        old = json.loads((GOLDEN / f"{kind}.json").read_bytes())
        for name in names:
            del old["action"][name]
        read = Entry.from_json(json.dumps(old).encode(), where=WHERE).action
        assert not any(getattr(read, name) for name in names)


def test_a_recovered_ledger_from_before_entries_could_be_given_up_is_read():
    later = ("after", "snapshot", "meaning_digest", "held", "acknowledged", "given_up")
    old = json.loads((GOLDEN / "created.json").read_bytes())
    for name in later:
        del old["action"]["recovered"][name]
    read = Entry.from_json(json.dumps(old).encode(), where=WHERE).action.recovered
    assert not any(getattr(read, name) for name in later)


def test_planned_batches_from_before_contents_were_compared_are_read():
    later = ("log_checksum", "log_etags")
    old = json.loads((GOLDEN / "planned.json").read_bytes())
    for name in later:
        del old["action"]["batches"][0][name]
    (read,) = Entry.from_json(json.dumps(old).encode(), where=WHERE).action.batches
    assert [getattr(read, name) for name in later] == ["", ""]


def test_an_entry_is_one_line_of_json(make):
    for action in every_action(make):
        data = make.entry(3, action).to_json()
        assert b"\n" not in data
        assert json.loads(data)["action"]["kind"] == action.kind


def test_maps_are_written_in_one_order(make):
    one = Opened(epoch=2, start="", table_id="t", fence=Fence(versions={"a": 1, "b": 2}))
    two = Opened(epoch=2, start="", table_id="t", fence=Fence(versions={"b": 2, "a": 1}))
    assert make.entry(1, one).to_json() == make.entry(1, two).to_json()


def test_the_digest_of_an_entry_is_short_and_of_its_bytes():
    assert digest_of(b"{}") == "44136fa355b3678a1146ad16f7e8649e"


# D40
def test_an_entry_of_another_format_names_the_version_that_wrote_it(make):
    raw = json.loads(make.entry(3, Held(why="x")).to_json()) | {"format": 3, "writer": "7.1.0"}
    for entry in (raw, raw | {"action": {"kind": "teleported"}}):
        with pytest.raises(
            LedgerError, match=r"00003\.json has format 3, written by FDS 7\.1\.0.*reads formats up to 2"
        ):
            Entry.from_json(json.dumps(entry).encode(), where=WHERE)


def test_an_unknown_action_is_never_ignored(make):
    raw = json.loads(make.entry(3, Held(why="x")).to_json()) | {"action": {"kind": "teleported"}, "writer": "0.9"}
    with pytest.raises(LedgerError, match=r"written by FDS 0\.9, cannot be read.*teleported.*never skips an entry"):
        Entry.from_json(json.dumps(raw).encode(), where=WHERE)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"format":1', b"null", b"\xff"])
def test_a_damaged_entry_is_reported(data):
    with pytest.raises(LedgerError, match=r"00003\.json is damaged.*restore"):
        Entry.from_json(data, where=WHERE)


def test_fields_of_later_versions_are_ignored(make):
    raw = json.loads(make.entry(3, Held(why="x")).to_json()) | {"mood": "good"}
    assert Entry.from_json(json.dumps(raw).encode(), where=WHERE).action == Held(why="x")


def test_an_actor_reads_as_people_write_it(make):
    assert make.actor.describe() == "task ingest of DAG orders, run r1 (try 1)"
    assert make.person.describe() == "ann@desk"
    assert (
        Actor(deployment="prod", dag_id="d", run_id="r", task_id="t", map_index=2).describe()
        == "task t[2] of DAG d, run r"
    )
    assert make.owner(kind="cli", run_id="ann@desk:77").describe() == "fds ann@desk:77"


def test_a_damaged_fold_or_one_of_another_format_is_ignored(make):
    fold = Fold(n=-1, digest="", state=make.opened())
    raw = json.loads(fold.to_json())
    assert Fold.from_json(fold.to_json()) == fold
    assert Fold.from_json(json.dumps(raw | {"format": 99}).encode()) is None
    assert Fold.from_json(b"{") is None


def test_the_checkpoint_of_a_fold_shows_the_committed_batch_and_offset(make):
    state = make.opened(make.plan(make.batch(0), make.batch(1)), make.commit(0))
    assert Fold(n=4, digest="ab", state=state).checkpoint() == Checkpoint(
        position="version 0 of s3://lake/orders, 2026-11-20T12:30:15Z, 20 rows in the last batch",
        stream="orders",
        uuid="u1",
        deployment="prod",
        n=4,
        digest="ab",
        epoch=1,
        batch_id=0,
        offset=make.offset(1),
    )


@pytest.mark.parametrize(
    ("position", "words"),
    [
        (None, "nothing of t yet"),
        (Offset.after(-1, "i"), "before version 0 of t, 2026-11-22T06:35:13Z"),
        (Offset("i", 9, 12, is_initial_snapshot=False), "version 9 of t, 13 files of it, 2026-11-22T06:35:13Z"),
        (
            Offset("i", 9, 12, is_initial_snapshot=True),
            "initial snapshot of version 9 of t, 13 files, 2026-11-22T06:35:13Z",
        ),
    ],
)
def test_the_words_of_a_position_say_how_far_it_is(position, words):
    offset = None if position is None else position.to_json()
    assert describe_checkpoint("t", offset, moved_at="2026-11-22T06:35:13.250Z") == words


def test_actions_are_immutable_values():
    for module in {sys.modules[kind.__module__] for kind in KINDS.values()}:
        for name in dir(module):
            cls = getattr(module, name)
            if isinstance(cls, type) and issubclass(cls, msgspec.Struct):
                assert cls.__struct_config__.frozen, name


@pytest.fixture
def noted(monkeypatch):
    """A kind of entry that only this test knows: one class, decorated."""
    monkeypatch.setattr("airflow_provider_fds.ledger.entries.action.KINDS", kinds := dict(KINDS))
    monkeypatch.setattr("airflow_provider_fds.ledger.entries.entry.KINDS", kinds)

    @register
    class Noted(BaseAction, frozen=True, kw_only=True, tag="only_in_this_test"):
        subject: ClassVar[str] = "noting {0.text}"

        text: str

        def decide(self, state):
            return None if state.retired is not None else self

        def apply(self, state):
            return state.with_acknowledged(Acknowledgement(version=7, who="x", why=self.text))

    return Noted


def test_a_new_kind_of_entry_is_one_class(make, noted):
    entry = make.entry(3, noted(text="read it"), request_id="q1")
    state = make.opened()
    assert decide(state, entry.action) is entry.action
    after = evolve(state, entry)
    assert [(word.version, word.why) for word in after.acknowledged] == [(7, "read it")]
    assert [known.kind for known in after.answered] == ["only_in_this_test"]
    assert Entry.from_json(entry.to_json(), where=WHERE) == entry
    with pytest.raises(LedgerError, match=r"is damaged.*`text`"):
        Entry.from_json(entry.to_json().replace(b'"text"', b'"texts"'), where=WHERE)


def test_an_entry_of_a_new_kind_is_written_to_a_ledger_and_read_from_it(make, noted):
    staging = make.Storage()
    ledger = Ledger(staging, "orders", deployment="prod")
    ledger.execute(Created(uuid="u1", name="orders", table=make.table, deployment="prod"), make.actor)
    ledger.execute(noted(text="read it"), make.person, "q1")
    again = Ledger(staging, "orders")
    assert [word.why for word in again.find().acknowledged] == ["read it"]
    assert [entry.action.kind for entry in again.entries()] == ["created", "only_in_this_test"]


def test_two_kinds_of_entry_cannot_have_one_name(noted):
    with pytest.raises(TypeError, match="Other and Noted have the same kind 'only_in_this_test'"):

        @register
        class Other(BaseAction, frozen=True, kw_only=True, tag="only_in_this_test"):
            subject: ClassVar[str] = "x"


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("opened", "snapshots/0-5f2e.parquet", "../other/snapshots/0-5f2e.parquet"),
        ("opened", "snapshots/0-5f2e.parquet", "snapshots/../ledger"),
        ("planned", "manifests/1/0-d0", "../../x"),
        ("interval_opened", "2026-11-19T00:00:00.000Z/2026-11-20T00:00:00.000Z", ".."),
        ("claimed", "2026-11-19T00:00:00.000Z/2026-11-20T00:00:00.000Z", "../../x"),
        ("planned", '"interval":null', '"interval":"../../x"'),
        ("committed", '"interval":null', '"interval":".."'),
    ],
)
def test_an_entry_that_names_something_outside_the_folder_of_its_stream_is_refused(make, kind, field, value):
    data = make.entry(3, next(action for action in every_action(make) if action.kind == kind)).to_json()
    assert field.encode() in data
    with pytest.raises(LedgerError, match="FDS does not write such an entry"):
        Entry.from_json(data.replace(field.encode(), value.encode()), where=WHERE)


def test_a_plan_without_batches_is_refused(make):
    data = make.entry(3, next(action for action in every_action(make) if action.kind == "planned")).to_json()
    found = msgspec.json.decode(data)
    found["action"]["batches"] = []
    with pytest.raises(LedgerError, match="a plan by offset must have at least one batch"):
        Entry.from_json(msgspec.json.encode(found), where=WHERE)


@pytest.mark.parametrize(
    "data", [b'{"format":1,"writer":"\xff"}', b'{"x":' + b"[" * 100_000], ids=["no UTF-8", "nested"]
)
def test_bytes_that_cannot_be_decoded_are_an_error_that_names_the_entry(data):
    with pytest.raises(LedgerError, match="memory://x/3 is damaged"):
        Entry.from_json(data, where="memory://x/3")


def test_a_fold_that_is_not_utf_8_is_not_used(caplog):
    assert Fold.from_json(b'{"format":5,"n":1,"digest":"\xff","state":{}}') is None
    assert "cannot be read and is not used" in caplog.text


#: One thread is stopped while msgspec prepares the types of entries, and another one reads entries.
TWO_THREADS = """
import sys, threading
from pathlib import Path
from airflow_provider_fds.ledger.entries.entry import Entry

entries = [path.read_bytes() for path in Path(sys.argv[1]).glob("**/ledger/*.json")]
stopped, read = threading.Event(), threading.Event()

def stop(frame, event, argument):
    prepared = next(iter(frame.f_locals.values()), None)
    if frame.f_code.co_name == "get_class_annotations" and prepared.__module__.endswith("ledger.values"):
        sys.setprofile(None)
        stopped.set()
        read.wait(1)

def first():
    sys.setprofile(stop)
    Entry.from_json(entries[0], where="x")
    sys.setprofile(None)

thread = threading.Thread(target=first)
thread.start()
assert stopped.wait(60)
for entry in entries:
    Entry.from_json(entry, where="x")
read.set()
thread.join()
print("read", len(entries) > 50)
"""


def test_threads_may_read_their_first_entries_at_the_same_moment():
    folder = Path(__file__).parents[3] / "golden" / "folders" / "0.2.0"
    done = subprocess.run([sys.executable, "-c", TWO_THREADS, folder], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "read True\n"), done.stderr
