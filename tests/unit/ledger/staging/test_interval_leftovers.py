"""What dead writers of data intervals, and fences, have left: found, and removed once nobody can need it."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.ledger.entries.commit_entries import Committed
from airflow_provider_fds.ledger.entries.epoch_entries import Bound, Created
from airflow_provider_fds.ledger.entries.interval_entries import Boundary, IntervalOpened
from airflow_provider_fds.ledger.entries.request_entries import Requested
from airflow_provider_fds.ledger.intervals import digest_of_parts, interval_folder, interval_name
from airflow_provider_fds.ledger.staging.housekeeping import purge_expired
from airflow_provider_fds.ledger.staging.leftovers import LOOK_EVERY
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.ledger.values import SinkBinding

FILE = "_delta_log/00000000000000000000.json"
DAY = interval_name("2026-01-01T00:00:00.000Z", "2026-01-02T00:00:00.000Z")
FOLDER = interval_folder(DAY)


class Days:
    """A stream of data intervals with one day, and the manifests that planners write before the entry."""

    def __init__(self, make, root):
        self.make = make
        self.storage = LocalStorage(str(root))
        self.now = make.now
        self.ledger = Ledger(self.storage, "orders", clock=lambda: self.now)
        self.execute(
            Created(uuid="u", name="orders", table="file:///t", deployment="prod"),
            *(Boundary(instant=i, version=v, table_id="t") for i, v in zip(DAY.split("/"), (0, 9), strict=True)),
            Bound(epoch=1, sink=SinkBinding(kind="delta_replace", target="file:///s")),
        )

    def execute(self, *commands):
        for command in commands:
            self.ledger.execute(command, self.make.actor)
        self.now += timedelta(hours=1)

    def open(self, generation):
        self.execute(IntervalOpened(interval=DAY, generation=generation, owner=self.make.owner()))

    def manifest(self, generation, name):
        self.storage.put(f"orders/manifests/{FOLDER}/{generation}/{name}/{FILE}", b"{}")

    def plan(self, generation, names):
        batches = tuple(
            self.make.batch(n, manifest=f"manifests/{FOLDER}/{generation}/{name}") for n, name in enumerate(names)
        )
        for name in names:
            self.manifest(generation, name)
        owner = self.make.owner()
        self.execute(self.make.plan(*batches, epoch=generation, interval=DAY))
        return Committed(
            interval=DAY,
            epoch=generation,
            batch_id=batches[-1].batch_id,
            owner=owner,
            attempt_id="t",
            outcome="written",
            digest=digest_of_parts(batches),
            sink_version=generation,
            sink_table_id="s",
            rows=20,
        )

    def left(self):
        folder = self.storage.root / "orders" / "manifests" / FOLDER
        return sorted(str(path.relative_to(folder)) for path in folder.glob("*/*"))

    def purge_expired(self, after=timedelta(0)):
        return purge_expired(self.ledger, self.storage, now=self.now + after)


@pytest.fixture
def days(make, tmp_path):
    return Days(make, tmp_path)


def test_an_orphaned_manifest_is_removed_only_once_its_generation_is_planned(days):
    days.open(1)
    days.manifest(1, "0-lost")
    assert days.purge_expired().leftovers == ()  # its writer may be about to name it
    days.plan(1, ["0-a", "1-b"])
    assert days.purge_expired(LOOK_EVERY).leftovers == (f"manifests/{FOLDER}/1/0-lost",)
    assert days.left() == ["1/0-a", "1/1-b"]


def test_files_of_an_unplanned_generation_are_removed_when_the_next_is_opened(days):
    days.open(1)
    days.execute(days.plan(1, ["0-a"]))
    days.open(2)
    days.manifest(2, "0-dead")
    assert days.purge_expired().leftovers == ()
    days.execute(days.plan(2, ["0-c"]))
    days.open(3)
    days.manifest(3, "0-not-planned-yet")
    assert days.purge_expired(LOOK_EVERY).leftovers == (f"manifests/{FOLDER}/2/0-dead",)
    assert days.left() == ["1/0-a", "2/0-c", "3/0-not-planned-yet"]


def test_planned_and_recently_committed_batches_stay(days):
    days.open(1)
    commit = days.plan(1, ["0-a", "1-b"])
    assert days.purge_expired(timedelta(days=99)).leftovers == ()
    days.execute(commit)
    assert days.purge_expired(timedelta(days=13)).leftovers == ()
    assert days.left() == ["1/0-a", "1/1-b"]
    days.purge_expired(timedelta(days=101))
    assert days.left() == []


@pytest.mark.parametrize("next_entry", [0, 4, 6, 1000])
def test_a_wrong_cleanup_marker_removes_nothing_that_is_planned(days, next_entry):
    days.open(1)
    days.plan(1, ["0-a"])
    days.storage.put(days.ledger.folder.cleaned, b'{"next_entry":%d}' % next_entry)
    days.purge_expired()
    assert days.left() == ["1/0-a"]


def test_the_attempts_of_a_fence_are_removed_once_its_epoch_has_been_open_long_enough(make, tmp_path):
    storage = LocalStorage(str(tmp_path))
    now = make.now
    ledger = Ledger(storage, "orders", clock=lambda: now)
    rewind = Requested(reason="rewind", why="wrong rows")
    for command in (make.create(), make.open(), make.bind(sink=make.user_job), rewind):
        ledger.execute(command, make.actor)
    for name in ("t1.started.json", "t1.json"):
        storage.put(f"{ledger.folder.fence_reports(2)}/{name}", b"{}")
    storage.put(f"{ledger.folder.fence_jobs(2)}/t1-0.job.json", b"{}")
    of_fence, jobs = (tmp_path / "orders" / kind / "2" / "fence" for kind in ("attempts", "jobs"))
    purge_expired(ledger, storage, now=make.now + timedelta(days=99))
    assert len(list(of_fence.iterdir())) == 2  # the epoch is requested: its fence may be under way
    for command in (make.open(2), make.bind(2, sink=make.user_job), make.plan(make.batch(0, 2), epoch=2)):
        ledger.execute(command, make.actor)
    purge_expired(ledger, storage, now=make.now + timedelta(days=13))
    assert len(list(of_fence.iterdir())) == 2
    assert purge_expired(ledger, storage, now=make.now + timedelta(days=15)).fences == (2,)
    assert not of_fence.exists()
    assert not jobs.exists()
    # where entries are read again, its folder is not looked for again
    now += timedelta(days=15)
    ledger.execute(make.commit(0, 2, outcome="user_job"), make.actor)
    storage.put(f"{ledger.folder.fence_reports(2)}/t2.json", b"{}")
    note = json.loads(storage.get(ledger.folder.cleaned)[0])
    storage.put(ledger.folder.cleaned, json.dumps({**note, "next_entry": 0}).encode())
    assert purge_expired(ledger, storage, now=make.now + timedelta(days=16)).fences == ()
