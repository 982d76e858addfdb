"""Runs of data intervals as a model: ledger, driver and sink, each access to staging or sink a step of its own.

As in ``test_protocol.py``, with intervals instead of an offset: they run in any order and side by side, the log gives
each run another answer to where an instant lies, and runs of one interval are killed, stand still and are cleared.
Whatever happens, no version is in two intervals and none in neither, and in the end the sink has the rows of each
interval once: written once where it appends, as the last generation planned them where it replaces.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from airflow_provider_fds.batch.transactions import txn_version
from airflow_provider_fds.errors import StreamBusyError
from airflow_provider_fds.ledger.entries.commit_entries import Committed
from airflow_provider_fds.ledger.entries.epoch_entries import Bound
from airflow_provider_fds.ledger.entries.interval_entries import Boundary, IntervalOpened
from airflow_provider_fds.ledger.entries.plan_entries import Claimed
from airflow_provider_fds.ledger.intervals import digest_of_parts, interval_name
from airflow_provider_fds.ledger.staging.access import Get, Put, answer
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.ledger.values import SinkBinding
from tests.unit.ledger.models import explore
from tests.unit.ledger.test_writers import Writer, Writers

DAYS = 3
#: Where the log says that a day begins, give or take one: file times are not what they were after a copy.
FIRST_VERSION = (0, 3, 3, 6)


def instant(day: int) -> str:
    return f"2026-01-{day + 1:02d}T00:00:00.000Z"


def interval(day: int) -> str:
    return interval_name(instant(day), instant(day + 1))


@dataclass(frozen=True)
class SinkLook:
    """Read the sink's history of one interval."""

    interval: str


@dataclass(frozen=True)
class SinkCommit:
    """Write rows of an interval, if since ``read`` commits of it no other came."""

    read: int
    interval: str
    transaction: int
    digest: str
    versions: tuple[int, ...]


class IntervalProtocol(Writers):
    """Runs of three neighbouring days."""

    def __init__(self, make, kind):
        super().__init__(make)
        self.kind = kind
        self.replaces = kind == "delta_replace"
        self.sink = []
        self.attempts = 0
        self.days = {}
        self.shifts = [0]

    # -- programs

    def run(self, name, checkpoint):
        """A run as an operator does it: create, resolve, bind, open, plan or take over, load, commit."""
        del checkpoint
        make, ledger = self.make, Ledger(self.storage, "orders", clock=lambda: self.make.now)
        day = self.days.setdefault(name, self.started % DAYS)
        owner, what = make.owner(name), interval(day)

        def execute(command):
            self.tell((yield from ledger.execute_steps(command, make.actor)))

        def gone(record):
            if record is None or record.is_done or record.owner in (None, owner):
                return None
            if record.owner.run_id not in self.ended:
                raise StreamBusyError("runs", owner=record.owner.describe())
            return record.owner

        yield from ledger.load_steps(None)
        if ledger.state.phase == "empty":
            yield from execute(make.create(uuid=name))
        for border in (day, day + 1):
            if all(known.instant != instant(border) for known in ledger.state.boundaries):
                found = max(0, FIRST_VERSION[border] + self.shifts[(2 * self.attempts + border) % len(self.shifts)])
                command = Boundary(instant=instant(border), version=found, table_id=make.table_id)
                yield from execute(command)
        if ledger.state.sink is None:
            binding = SinkBinding(kind=self.kind, target="s3://lake/bronze", app_ids=("fds:u",))
            yield from execute(Bound(epoch=1, sink=binding, table_id=None))
        record = ledger.state.interval(what)
        if self.replaces or record is None or not record.is_planned:
            generation = 1 if record is None else record.generation + (1 if record.is_planned else 0)
            previous = gone(record)
            yield from execute(IntervalOpened(interval=what, generation=generation, owner=owner, previous=previous))
            record = ledger.state.interval(what)
            batches = self.batches(record, name)
        elif record.is_done:
            return
        else:
            previous, batches = gone(record), record.planned
        if not record.is_planned:
            plan = make.plan(*batches, run=name, epoch=record.generation, interval=what, target=record.last_version)
            yield from execute(plan)
        elif record.owner != owner:
            claim = Claimed(epoch=record.generation, interval=what, owner=owner, previous=previous, why="it is gone")
            yield from execute(claim)
        yield from self.load_interval(ledger, what, owner, execute)
        yield Put(ledger.folder.fold(ledger.n), ledger._head.to_json())

    def batches(self, record, name):
        """A batch per version, each run with manifests of its own."""
        versions = range(record.first_version, record.last_version + 1)
        made = [
            self.make.batch(
                number,
                record.generation,
                first_version=version,
                last_version=version,
                digest=f"{name}-{record.generation}-{version}",
            )
            for number, version in enumerate(versions)
        ]
        if made or not self.replaces:
            return tuple(made)
        # what a day without commits replaces is replaced by nothing
        first = record.first_version
        nothing = {"first_version": first, "last_version": first - 1, "num_files": 0}
        return (self.make.batch(0, **nothing, digest=f"{name}-{record.generation}-nothing"),)

    def load_interval(self, ledger, what, owner, execute):
        self.attempts += 1
        attempt = f"t{self.attempts}"
        record = ledger.state.interval(what)
        writes = [record.planned] if self.replaces else [(batch,) for batch in record.planned]
        writes = [parts for parts in writes if parts]
        for parts in writes:
            yield from self.driver(record, parts, attempt)
        for parts in writes:
            found = yield Get(f"orders/attempts/{record.generation}/{parts[-1].batch_id}/{attempt}")
            if found is None:
                return
            yield from execute(
                Committed(
                    interval=what,
                    epoch=record.generation,
                    batch_id=parts[-1].batch_id,
                    owner=owner,
                    attempt_id=attempt,
                    outcome="written",
                    digest=digest_of_parts(parts),
                    sink_version=int(found),
                    sink_table_id=self.make.sink_id,
                    rows=20,
                )
            )

    def driver(self, record, parts, attempt):
        """What the driver does with one transaction: look, write, look again, report."""
        digest, transaction = digest_of_parts(parts), txn_version(record.generation, parts[-1].batch_id)
        seen = yield SinkLook(record.interval)
        version = where(seen, transaction, digest)
        if version is None:
            begun = yield SinkLook(record.interval)
            if max((commit.transaction for commit in begun), default=-1) < transaction:
                versions = tuple(v for part in parts for v in range(part.first_version, part.last_version + 1))
                yield SinkCommit(len(begun), record.interval, transaction, digest, versions)
            version = where((yield SinkLook(record.interval)), transaction, digest)
        if version is not None:
            key = f"orders/attempts/{record.generation}/{parts[-1].batch_id}/{attempt}"
            yield Put(key, str(version).encode())

    def answer(self, access):
        match access:
            case SinkLook():
                return tuple(commit for commit in self.sink if commit.interval == access.interval)
            case SinkCommit():
                if sum(commit.interval == access.interval for commit in self.sink) == access.read:
                    self.sink.append(access)
                return None
        return answer(access, self.storage)

    # -- rules

    @precondition(lambda _: False)
    @rule()
    def a_person_asks(self):
        """Not here: requests are for streams with an offset."""

    @initialize(is_new=st.booleans(), shifts=st.lists(st.integers(-1, 1), min_size=5, max_size=5))
    def a_stream_that_is_new_or_has_run(self, is_new, shifts):
        self.shifts = shifts
        if not is_new:
            self.to_the_end(self.start_run(None))

    @Writers.is_anyone_running
    @rule(data=st.data(), is_taken_for_dead=st.booleans())
    def a_writer_is_overtaken(self, data, is_taken_for_dead):
        """While it stands still another run of its day does all its work, and may take over; then it goes on."""
        zombie = self.running(data)
        if is_taken_for_dead:
            self.ended.add(zombie.name)
        self.days[f"r{self.started + 1}"] = self.days[zombie.name]
        self.to_the_end(self.start_run(None))
        self.to_the_end(zombie)

    @precondition(lambda self: self.days and sum(not w.is_done for w in self.writers) < 4)
    @rule(data=st.data())
    def a_run_is_tried_again_or_cleared(self, data):
        """Under the same name, whether its first attempt is gone or not."""
        name = data.draw(st.sampled_from(sorted(self.days)))
        self.ended.discard(name)
        self.writers.append(Writer(name, self.run(name, None)))

    def loading(self):
        return [w for w in self.writers if not w.is_done and isinstance(w.access, SinkLook | SinkCommit)]

    @precondition(lambda self: self.loading())
    @rule(data=st.data())
    def a_writer_stands_still_before_it_commits_and_others_finish(self, data):
        writer = data.draw(st.sampled_from(self.loading()))
        while not writer.is_done and not isinstance(writer.access, SinkCommit):
            self.step(writer)
        self.ended.add(writer.name)
        for _ in range(DAYS):
            self.to_the_end(self.start_run(None))
        self.to_the_end(writer)

    # -- what must always hold

    def check_chain(self, entry):
        state, action = self.state, entry.action
        match action.kind:
            case "boundary":
                assert action.instant not in [known.instant for known in state.boundaries]
            case "interval_opened":
                record = state.interval(action.interval)
                assert action.generation == (0 if record is None else record.generation) + 1
                assert self.replaces or action.generation == 1
            case "committed":
                record = state.interval(action.interval)
                assert (record.generation, record.owner) == (action.epoch, action.owner)
                landed = [commit for commit in self.sink if commit.interval == action.interval]
                transaction = txn_version(action.epoch, action.batch_id)
                assert where(landed, transaction, action.digest) is not None, "committed, and not in the sink"

    @invariant()
    def transactions_of_an_interval_go_up_and_days_do_not_overlap(self):
        newest = {}
        for commit in self.sink:
            assert newest.get(commit.interval, -1) < commit.transaction
            newest[commit.interval] = commit.transaction
        versions = [known.version for known in self.state.boundaries]
        assert versions == sorted(versions)

    def teardown(self):
        """Whatever happened: a run of each day that is left in peace loads it, and all rows are there once."""
        for writer in self.writers:
            writer.steps.close()
            self.ended.add(writer.name)
        for _ in range(2 * DAYS):
            writer = self.start_run(None)
            self.to_the_end(writer)
            self.ended.add(writer.name)
        self.entries_are_one_gapless_chain()
        self.transactions_of_an_interval_go_up_and_days_do_not_overlap()
        rows = []
        for day in range(DAYS):
            record = self.state.interval(interval(day))
            assert record is not None
            assert record.is_done, f"day {day} is stuck"
            commits = [commit for commit in self.sink if commit.interval == interval(day)]
            if self.replaces:
                commits = commits[-1:]
                assert commits[0].transaction >> 32 == record.generation
            rows += [version for commit in commits for version in commit.versions]
        first, last = (known.version for known in (self.state.boundaries[0], self.state.boundaries[-1]))
        assert sorted(rows) == list(range(first, last))


def where(commits, transaction, digest):
    """Position of the commit of this transaction, if it holds what has this digest."""
    found = [n for n, commit in enumerate(commits) if (commit.transaction, commit.digest) == (transaction, digest)]
    return found[0] if found else None


@pytest.mark.parametrize("kind", ["delta_append", "delta_replace"])
def test_whatever_runs_of_intervals_do_each_interval_has_its_rows_once(make, kind):
    explore(lambda: IntervalProtocol(make, kind), examples=25, steps=30)
