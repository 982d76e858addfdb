"""What may be thrown away, and what stays."""

from __future__ import annotations

from datetime import timedelta

import pytest

from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.delta.storage.storage import ObjectMeta
from airflow_provider_fds.errors import LedgerError
from airflow_provider_fds.ledger.entries.request_entries import Requested
from airflow_provider_fds.ledger.staging.housekeeping import (
    FOLD_STRIDE,
    Retention,
    purge_expired,
    removable,
    removable_folds,
    removable_snapshots,
)
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.ledger.values import SnapshotRef

TWO = Retention(batches=2, age=timedelta(days=14))
REWIND = Requested(reason="rewind", why="wrong rows")


class Stream:
    """A stream whose entries are a day apart from each other."""

    def __init__(self, make, storage):
        self.make = make
        self.storage = storage
        self.now = make.now
        self.ledger = Ledger(storage, "orders", clock=lambda: self.now)
        self.execute(make.create(), make.open(), make.bind(sink=make.user_job))

    def execute(self, *commands):
        for command in commands:
            self.ledger.execute(command, self.make.actor)
            self.now += timedelta(days=1)

    def commit(self, batch_id, epoch=1, **changes):
        commit = self.make.commit(batch_id, epoch, outcome="user_job", **changes)
        self.execute(commit)

    def batches(self, first, last, epoch=1):
        for b in range(first, last + 1):
            self.execute(self.make.plan(self.make.batch(b, epoch), epoch=epoch))
            self.commit(b, epoch)

    def removable(self, *, after=timedelta(0), **changes):
        arguments = {"retention": TWO, **changes}
        return removable(self.ledger.entries(), self.ledger.state, self.now + after, **arguments)


@pytest.fixture
def stream(make, storage):
    return Stream(make, storage)


def test_a_batch_stays_as_long_as_it_is_new_or_young(stream):
    stream.batches(0, 5)
    assert stream.removable().manifests == ()  # all of it is younger than 14 days
    later = stream.removable(after=timedelta(days=5))
    assert later.manifests == ("manifests/1/0-d0", "manifests/1/1-d1")  # 16 and 14 days after their commit
    assert later.batches == ((1, 0), (1, 1))
    much_later = stream.removable(after=timedelta(days=99))
    assert [b for _, b in much_later.batches] == [0, 1, 2, 3]  # the newest two stay


def test_the_next_time_begins_at_the_first_plan_that_still_has_something(stream):
    stream.batches(0, 5)
    found = stream.removable(after=timedelta(days=99))
    first_kept = next(
        e.n for e in stream.ledger.entries() if e.action.kind == "planned" and e.action.batches[0].batch_id == 4
    )
    assert found.next_entry == first_kept
    rest = removable(stream.ledger.entries(found.next_entry), stream.ledger.state, stream.now + timedelta(days=99), TWO)
    assert (rest.manifests, rest.next_entry) == ((), first_kept)


def test_nothing_that_is_planned_goes_nor_anything_else_of_its_run(make, stream):
    stream.batches(0, 5)
    stream.execute(make.plan(make.batch(6), make.batch(7)))
    assert stream.removable(after=timedelta(days=99)).manifests == ()
    stream.execute(make.claim("r2", previous="r1"))
    assert [b for _, b in stream.removable(after=timedelta(days=99)).batches] == [0, 1, 2, 3]


def test_the_batches_of_closed_epochs_go_once_the_new_one_has_enough(make, stream):
    stream.batches(0, 1)
    stream.execute(make.plan(make.batch(2)), REWIND, make.open(2))
    assert stream.removable(after=timedelta(days=99)).manifests == ()
    stream.batches(0, 2, epoch=2)
    found = stream.removable(after=timedelta(days=99))
    assert found.batches == ((1, 0), (1, 1), (1, 2), (2, 0))  # the one that was never committed, too


def test_the_snapshot_of_the_open_epoch_stays_and_so_do_young_ones(make, stream):
    def at(key, days):
        return ObjectMeta(key, 1, int((stream.now - timedelta(days=days)).timestamp() * 1000))

    snapshot = SnapshotRef(version=0, digest="a", key="snapshots/0-a.parquet", num_files=1, num_bytes=1)
    stream.execute(REWIND, make.open(2, snapshot=snapshot))
    files = [
        at("orders/snapshots/0-a.parquet", 99),
        at("orders/snapshots/0-b.parquet", 99),
        at("orders/snapshots/1-c.parquet", 1),
    ]
    assert removable_snapshots(files, stream.ledger.state, stream.now, TWO) == ("orders/snapshots/0-b.parquet",)


def test_the_snapshot_that_a_requested_epoch_continues_in_stays(make, stream):
    snapshot = SnapshotRef(version=0, digest="a", key="snapshots/0-a.parquet", num_files=1, num_bytes=1)
    begin = make.offset(0, snapshot=True)
    stream.execute(REWIND, make.open(2, start=begin, snapshot=snapshot), Requested(reason="replan", why="again"))
    files = [ObjectMeta("orders/snapshots/0-a.parquet", 1, 0)]
    assert removable_snapshots(files, stream.ledger.state, stream.now, TWO) == ()


def test_the_newest_folds_and_some_older_ones_are_kept():
    numbers = [49, 99, FOLD_STRIDE - 1, 1049, 1099, 1149, 1199, 1249]
    assert removable_folds(numbers) == (49, 99)
    assert removable_folds([1, 2, 3]) == ()


def test_retention_removes_files_but_no_entry(make, tmp_path):
    storage = LocalStorage(str(tmp_path))
    stream = Stream(make, storage)
    stream.batches(0, 5)
    for b in range(6):
        for name in ("00000000000000000000.json", "00000000000000000000.crc"):
            storage.put(f"orders/manifests/1/{b}-d{b}/_delta_log/{name}", b"{}")
        for name in ("t1.started.json", "t1.json"):
            storage.put(f"orders/attempts/1/{b}/{name}", b"{}")
        storage.put(f"orders/jobs/1/{b}/t1-0.job.json", b"{}")
    for _ in range(2):
        found = purge_expired(stream.ledger, storage, now=stream.now + timedelta(days=99), retention=TWO)
        left = {p.relative_to(tmp_path / "orders").parts[:3] for p in tmp_path.rglob("*.json")}
        assert {parts[2] for parts in left if parts[0] == "manifests"} == {"4-d4", "5-d5"}
        assert {parts[2] for parts in left if parts[0] == "attempts"} == {"4", "5"}
        assert {parts[2] for parts in left if parts[0] == "jobs"} == {"4", "5"}
    assert found.batches == found.leftovers == ()  # the second time there was nothing left to do
    assert not (tmp_path / "orders" / "manifests" / "1" / "0-d0").exists()
    again = Ledger(storage, "orders")
    assert again.load(stream.ledger.checkpoint()) == stream.ledger.state
    assert [e.n for e in again.entries()] == list(range(15))


def purged(stream, after, retention=TWO):
    """Purge, and return what was removed and which requests were made."""
    stream.storage.requests.clear()
    found = purge_expired(stream.ledger, stream.storage, now=stream.now + after, retention=retention)
    return found.batches, dict(+stream.storage.requests)


def test_without_anything_to_remove_retention_costs_one_request(stream):
    stream.batches(0, 5)
    purged(stream, timedelta(0))
    for batch in range(6, 9):
        stream.batches(batch, batch)
        batches, requests = purged(stream, timedelta(-6 * batch))
        assert (batches, requests) == ((), {"get": 1})


def test_an_old_batch_is_read_when_it_is_old_and_its_neighbours_are_not(stream):
    stream.batches(0, 20)
    assert (1, 13) in purged(stream, timedelta(hours=23))[0]
    batches, requests = purged(stream, timedelta(hours=46))
    assert batches == ((1, 14),)
    assert requests["get"] == 4  # the note, its plan, its commit, and the next plan, which is too young
    assert purged(stream, timedelta(hours=46)) == ((), {"get": 1})


def test_a_batch_among_the_newest_is_looked_at_when_enough_others_are_committed(stream):
    stream.batches(0, 9)
    long = timedelta(days=99)
    keeps_four = Retention(batches=4, age=timedelta(days=14))
    assert len(purged(stream, long, keeps_four)[0]) == 6
    assert purged(stream, long, keeps_four) == ((), {"get": 1})
    stream.batches(10, 10)
    batches, requests = purged(stream, long - timedelta(days=2), keeps_four)
    assert batches == ((1, 6),)
    assert requests["get"] == 5  # the note, plan and commit of it and of the next batch
    # the day after, a shorter retention is noticed
    assert purged(stream, long + timedelta(days=1), TWO)[0] == ((1, 7), (1, 8))


def test_a_batch_of_a_run_that_works_is_looked_at_when_the_run_has_ended(make, stream):
    stream.batches(0, 4)
    stream.execute(make.plan(make.batch(5), make.batch(6), run="r2"))
    stream.commit(5, run="r2")
    nothing = Retention(batches=0, age=timedelta(days=14))
    long = timedelta(days=99)
    assert [b for _, b in purged(stream, long, nothing)[0]] == [0, 1, 2, 3, 4]
    assert purged(stream, long, nothing) == ((), {"get": 1})
    stream.commit(6, run="r2")
    assert [b for _, b in purged(stream, long - timedelta(days=1), nothing)[0]] == [5, 6]


def test_the_batches_of_a_closed_epoch_are_looked_at_when_the_open_one_has_enough(make, stream):
    stream.batches(0, 1)
    stream.execute(REWIND, make.open(2))
    long = timedelta(days=99)
    assert purged(stream, long)[0] == ()
    stream.batches(0, 0, epoch=2)
    assert purged(stream, long - timedelta(days=2)) == ((), {"get": 1})
    stream.batches(1, 1, epoch=2)
    assert purged(stream, long - timedelta(days=4))[0] == ((1, 0), (1, 1))


def test_folds_are_listed_once_in_many_entries(stream):
    stream.batches(0, 2)
    purged(stream, timedelta(0))
    listed = 0
    for batch in range(3, 63):
        stream.batches(batch, batch)
        stream.ledger.save_fold()
        listed += purged(stream, timedelta(-2 * batch))[1].get("list", 0)
    assert listed == 2
    assert sum("/_checkpoint/" in key for key in stream.storage.objects) < 60


@pytest.mark.parametrize("note", [b"", b"{}", b'{"next_entry":3,"format":2}'])
def test_a_lost_cleanup_marker_costs_only_time(make, tmp_path, note):
    storage = LocalStorage(str(tmp_path))
    stream = Stream(make, storage)
    stream.batches(0, 5)
    storage.put(stream.ledger.folder.cleaned, note)
    found = purge_expired(stream.ledger, storage, now=stream.now + timedelta(days=99), retention=TWO)
    assert len(found.manifests) == 4


@pytest.mark.parametrize(
    "manifest",
    [
        "../../x",
        "../other/manifests/1/0-d0",
        "manifests/../../x",
        "manifests/../manifests/0-d0",
        "manifests/1/../../../x/0-d0",
        "manifests",
        "manifests/1",
        "ledger",
        "/x",
        "manifests//0-d0",
        "attempts/1/0",
    ],
)
def test_retention_removes_nothing_outside_the_stream_whatever_an_entry_names(stream, storage, manifest):
    storage.put("other/manifests/1/0-d0/a", b"")
    storage.put("x/0-d0/a", b"")
    stream.batches(0, 4)
    entry = storage.objects["orders/ledger/00000000000000000003.json"]
    storage.objects["orders/ledger/00000000000000000003.json"] = entry.replace(b"manifests/1/0-d0", manifest.encode())
    before = set(storage.objects)
    with pytest.raises(LedgerError, match="is not a folder in 'manifests/'"):
        purge_expired(Ledger(storage, "orders"), storage, now=stream.now + timedelta(days=90), retention=TWO)
    with pytest.raises(LedgerError, match="is not a folder in 'manifests/'"):
        purge_expired(stream.ledger, storage, now=stream.now + timedelta(days=90), retention=TWO)
    assert set(storage.objects) == before
