"""What writers that died have left: found, and removed once nobody can need it."""

from __future__ import annotations

import os
from datetime import timedelta
from functools import partial

import pytest

from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.ledger.entries.request_entries import Requested
from airflow_provider_fds.ledger.staging.housekeeping import Retention, purge_expired, removable
from airflow_provider_fds.ledger.staging.leftovers import LOOK_EVERY, manifest_folders, orphans
from airflow_provider_fds.ledger.staging.log import Ledger

FILES = ("00000000000000000000.json", "00000000000000000000.crc")
TWO = Retention(batches=2, age=timedelta(days=14))


class Staging:
    """A stream in a folder: its ledger, and the manifests that planners write before the entry that names them."""

    def __init__(self, make, root):
        self.make = make
        self.root = root / "orders"
        self.storage = LocalStorage(str(root))
        self.now = make.now
        self.ledger = Ledger(self.storage, "orders", clock=lambda: self.now)
        self.execute(make.create(), make.open(), make.bind(sink=make.user_job))

    def execute(self, *commands):
        for command in commands:
            self.ledger.execute(command, self.make.actor)
        self.now += timedelta(hours=1)

    def manifest(self, epoch, name, files=FILES):
        for file in files:
            self.storage.put(f"orders/manifests/{epoch}/{name}/_delta_log/{file}", b"{}")

    def plan(self, *batch_ids, epoch=1):
        for b in batch_ids:
            self.manifest(epoch, f"{b}-d{b}")
        self.execute(self.make.plan(*(self.make.batch(b, epoch) for b in batch_ids), epoch=epoch))

    def commit(self, *batch_ids, epoch=1):
        for b in batch_ids:
            self.execute(self.make.commit(b, epoch, outcome="user_job"))

    def batches(self, first, last, epoch=1):
        for b in range(first, last + 1):
            self.plan(b, epoch=epoch)
            self.commit(b, epoch=epoch)

    def left(self):
        return sorted(f"{p.parent.name}/{p.name}" for p in self.root.glob("manifests/*/*"))

    def purge_expired(self, after=timedelta(0), retention=None):
        return purge_expired(self.ledger, self.storage, now=self.now + after, retention=retention or TWO)


@pytest.fixture
def staging(make, tmp_path):
    return Staging(make, tmp_path)


def test_an_orphaned_manifest_is_removed_only_once_its_batch_is_decided(staging):
    staging.plan(0)
    staging.commit(0)
    staging.manifest(1, "1-lost")
    assert staging.purge_expired().leftovers == ()  # its writer may be about to name it
    staging.plan(1)
    assert staging.purge_expired(LOOK_EVERY).leftovers == ("manifests/1/1-lost",)
    assert staging.left() == ["1/0-d0", "1/1-d1"]


def test_each_manifest_of_a_dead_plan_is_removed_once_its_number_is_taken(staging):
    for b in range(5):
        staging.manifest(1, f"{b}-dead", FILES[1:])  # died within the last: no commit file yet
    staging.plan(0, 1)
    staging.commit(0)
    assert staging.purge_expired().leftovers == ("manifests/1/0-dead", "manifests/1/1-dead")
    staging.commit(1)
    staging.plan(2, 3, 4)
    assert staging.purge_expired(LOOK_EVERY).leftovers == tuple(f"manifests/1/{b}-dead" for b in (2, 3, 4))
    assert staging.left() == [f"1/{b}-d{b}" for b in range(5)]


def test_planned_and_young_files_stay_however_many_others_there_are(staging):
    staging.batches(0, 3)
    staging.plan(4, 5)
    for b in range(6):
        staging.manifest(1, f"{b}-other")
    found = staging.purge_expired()
    assert found.leftovers == tuple(f"manifests/1/{b}-other" for b in range(6))
    assert staging.left() == [f"1/{b}-d{b}" for b in range(6)]


def test_with_an_old_batch_all_its_leftovers_are_removed(staging):
    staging.batches(0, 5)
    for b in range(6):
        staging.manifest(1, f"{b}-other")
    assert staging.purge_expired(timedelta(days=99)).manifests == tuple(f"manifests/1/{b}-d{b}" for b in range(4))
    assert staging.left() == ["1/4-d4", "1/5-d5"]
    staging.manifest(1, "2-zombie")  # a planner that stood still for three months
    assert staging.purge_expired(timedelta(days=101)).leftovers == ("manifests/1/2-zombie",)
    assert staging.left() == ["1/4-d4", "1/5-d5"]


def test_files_of_a_closed_epoch_are_removed_with_it(make, staging):
    staging.batches(0, 1)
    staging.plan(2)
    staging.manifest(1, "3-never-planned")
    staging.execute(Requested(reason="rewind", why="wrong rows"), make.open(2))
    assert staging.purge_expired(timedelta(days=99)).leftovers == ()
    staging.batches(0, 3, epoch=2)
    found = staging.purge_expired(timedelta(days=101))
    assert set(found.manifests) == {
        "manifests/1/0-d0",
        "manifests/1/1-d1",
        "manifests/1/2-d2",
        "manifests/2/0-d0",
        "manifests/2/1-d1",
    }
    assert found.leftovers == ("manifests/1/3-never-planned",)
    assert staging.left() == ["2/2-d2", "2/3-d3"]


def test_names_that_are_no_manifests_of_batches_stay(staging):
    staging.batches(0, 5)
    for epoch, name in (("20260101T000000Z", "0-d0"), ("1", "notes"), ("x", "0-a")):
        staging.manifest(epoch, name)
    staging.purge_expired(timedelta(days=99))
    assert staging.left() == ["1/4-d4", "1/5-d5", "1/notes", "20260101T000000Z/0-d0", "x/0-a"]


def test_leftovers_are_searched_for_once_a_day(staging):
    staging.batches(0, 1)
    staging.purge_expired()
    staging.manifest(1, "0-other")
    assert staging.purge_expired(timedelta(hours=23)).leftovers == ()
    assert staging.purge_expired(timedelta(hours=24)).leftovers == ("manifests/1/0-other",)


@pytest.mark.parametrize("next_entry", [0, 4, 7, 1000])
def test_a_wrong_cleanup_marker_removes_nothing_that_is_kept(staging, next_entry):
    staging.batches(0, 3)
    staging.plan(4)
    staging.storage.put(staging.ledger.folder.cleaned, b'{"next_entry":%d}' % next_entry)
    staging.purge_expired(retention=Retention(batches=100))
    assert staging.left() == [f"1/{b}-d{b}" for b in range(5)]


def test_probes_and_half_written_files_go_after_a_day(staging):
    staging.batches(0, 1)
    folder = staging.ledger.folder
    half = f".0-abc.parquet.4711.{'0' * 16}.tmp"
    left = [folder.probe("dead"), f"{folder.snapshots}/{half}", f"{folder.entries}/{half}", f"{folder.folds}/{half}"]
    foreign = [f"{folder.snapshots}/.keep", f"{folder.snapshots}/.notes.tmp"]
    for key in (*left, *foreign):
        path = staging.storage.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"1")
        os.utime(path, ns=(int(staging.now.timestamp() * 1e9),) * 2)
    there = partial(map, lambda key: (staging.storage.root / key).exists())
    staging.purge_expired(timedelta(hours=23))
    assert all(there(left))
    staging.purge_expired(timedelta(hours=48))
    assert not any(there(left))
    assert all(there(foreign))


def test_folders_are_named_by_epoch_and_batch(staging):
    staging.plan(0, 1)
    staging.manifest(1, "0-other")
    assert manifest_folders(staging.storage, staging.ledger.folder) == {
        (1, 0): {"manifests/1/0-d0", "manifests/1/0-other"},
        (1, 1): {"manifests/1/1-d1"},
    }


def test_a_search_for_the_named_manifest_reads_no_further_than_its_entry(staging):
    staging.batches(0, 9)
    staging.manifest(1, "1-other")
    read = []

    def entries():
        for entry in staging.ledger.entries():
            read.append(entry.n)
            yield entry

    state = staging.ledger.state
    found = orphans(manifest_folders(staging.storage, staging.ledger.folder), entries(), state, lambda _batch: False)
    assert found == ("manifests/1/1-other",)
    assert len(read) == 6  # created, opened, bound, planned 0, committed 0, planned 1


def test_a_run_that_is_not_finished_and_the_open_epoch_lose_nothing(make, staging):
    staging.batches(0, 5)
    staging.plan(6, 7)
    found = removable(staging.ledger.entries(), staging.ledger.state, staging.now + timedelta(days=99), TWO)
    assert found.manifests == ()
    staging.purge_expired(timedelta(days=99))
    assert staging.left() == [f"1/{b}-d{b}" for b in range(8)]
