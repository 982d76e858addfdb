"""The whole way of a batch as a model: ledger, driver and sink, each access to staging or sink a step of its own.

The ledger is the real one. The driver does what the real one does (look, write, look again), and the sink keeps
Delta's promises about transactions: a version that is not above the newest of its application is skipped where a write
begins, and refused where another one committed meanwhile. Hypothesis interleaves the steps, kills runs with or without
their Spark, lets them stand still, tries them again under the same name, and rewinds the stream. Whatever it does,
each batch of each epoch lands once, as planned, and nothing of a closed epoch lands any more.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule

from airflow_provider_fds.batch.transactions import fence_version, txn_version
from airflow_provider_fds.errors import StorageError
from airflow_provider_fds.ledger.staging.access import Get, Put, PutIfAbsent, answer
from airflow_provider_fds.ledger.values import Fence
from airflow_provider_fds.source.offset import Offset
from tests.unit.ledger.models import explore
from tests.unit.ledger.test_writers import LAST_VERSION, Writer, Writers


@dataclass(frozen=True)
class SinkLook:
    """Read the sink's history."""


@dataclass(frozen=True)
class SinkCommit:
    """Commit to the sink what was written since ``read`` commits were there."""

    read: int
    transaction: int
    facts: dict[str, Any]


class Protocol(Writers):
    """Runs with a Spark each, on a model of the sink."""

    def __init__(self, make):
        super().__init__(make)
        self.sink = []
        self.attempts = 0

    # -- programs

    def planned(self, state, name):
        """The next stretch; runs differ in how many batches they plan, and in what they take into one."""
        command = super().planned(state, name)
        if command is None or not hasattr(command, "batches"):
            return command
        batches = command.batches[: 1 + len(name) % 2]
        previous = state.next_prev_txn_version
        chained = []
        for batch in batches:
            chained.append(
                self.make.batch(
                    batch.batch_id,
                    state.epoch,
                    start=batch.start,
                    end=batch.end,
                    prev_txn_version=previous,
                    digest=batch.digest,
                )
            )
            previous = txn_version(state.epoch, batch.batch_id)
        return self.make.plan(*chained, run=name, epoch=state.epoch)

    def load(self, name, ledger, execute):
        if ledger.state.planned:
            yield from self.submit(name, ledger.state.specs("x"), execute)
            self.checkpoints.append(ledger.checkpoint())

    def submit(self, name, specs, execute):
        """Submit the planned batches, and commit what the driver has reported."""
        self.attempts += 1
        attempt = f"t{self.attempts}"
        yield from self.driver(specs, attempt)
        for spec in specs:
            found = yield Get(f"orders/attempts/{spec.epoch}/{spec.batch_id}/{attempt}")
            if found is None:
                return
            yield from execute(
                self.make.commit(
                    spec.batch_id,
                    epoch=spec.epoch,
                    run=name,
                    digest=spec.manifest_digest,
                    sink_version=int(found),
                )
            )

    def driver(self, specs, attempt):
        """What the driver does: stop at the first batch that is not its turn."""
        for spec in specs:
            version = self.where(spec, (yield SinkLook()))
            if version is None:
                seen = yield SinkLook()
                if self.newest(seen) != spec.prev_txn_version:
                    return
                # Delta reads the table anew where the write begins
                begun = yield SinkLook()
                if (self.newest(begun) or -1) < spec.txn_version:
                    facts = {"spec": spec, "attempt": attempt}
                    yield SinkCommit(len(begun), spec.txn_version, facts)
                version = self.where(spec, (yield SinkLook()))
            if version is None:
                return
            yield Put(f"orders/attempts/{spec.epoch}/{spec.batch_id}/{attempt}", str(version).encode())

    def open(self, ledger, execute):
        """Close the old epochs in the sink, then open."""
        epoch, fence = ledger.state.epoch, Fence()
        if ledger.state.fence_sink is not None:
            wanted = fence_version(epoch)
            while True:
                seen = yield SinkLook()
                if (self.newest(seen) or -1) >= wanted:
                    break
                yield SinkCommit(len(seen), wanted, {})
            fence = Fence(status="done", versions={"fds:u1": wanted}, sink_version=len(seen) - 1)
        yield from execute(self.make.open(epoch, version=0, fence=fence))

    # -- the sink

    @staticmethod
    def newest(commits):
        return max((commit.transaction for commit in commits), default=None)

    @staticmethod
    def where(spec, commits):
        """Version of the sink that holds the batch with this digest."""
        for version, commit in enumerate(commits):
            found = commit.facts.get("spec")
            if found is not None and (found.epoch, found.batch_id) == (spec.epoch, spec.batch_id):
                return version if found.manifest_digest == spec.manifest_digest else None
        return None

    def answer(self, access):
        match access:
            case SinkLook():
                return tuple(self.sink)
            case SinkCommit():
                # all are of one application, so whatever came since is a conflict
                if len(self.sink) == access.read:
                    self.sink.append(access)
                return None
        return answer(access, self.storage)

    # -- rules

    @precondition(lambda self: self.started and sum(not w.is_done for w in self.writers) < 4)
    @rule(data=st.data())
    def a_run_is_tried_again(self, data):
        """Under the same name, whether its first attempt is gone or not."""
        names = sorted({w.name for w in self.writers if w.name.startswith("r")})
        if names:
            name = data.draw(st.sampled_from(names))
            self.ended.discard(name)
            self.writers.append(Writer(name, self.run(name, data.draw(st.sampled_from(self.checkpoints)))))

    def loading(self):
        return [w for w in self.writers if not w.is_done and isinstance(w.access, SinkLook | SinkCommit)]

    @precondition(lambda self: self.loading())
    @rule(data=st.data())
    def a_run_is_taken_for_dead_while_its_spark_goes_on(self, data):
        self.ended.add(data.draw(st.sampled_from(self.loading())).name)

    @precondition(lambda self: self.loading())
    @rule(data=st.data())
    def a_writer_stands_still_before_it_commits_and_a_retry_finishes(self, data):
        writer = data.draw(st.sampled_from(self.loading()))
        while not writer.is_done and not isinstance(writer.access, SinkCommit):
            self.step(writer)
        self.ended.add(writer.name)
        self.to_the_end(self.start_run(data.draw(st.sampled_from(self.checkpoints))))
        self.to_the_end(writer)

    # -- what must always hold

    @invariant()
    def each_batch_lands_once_as_planned_and_nothing_of_a_closed_epoch(self):
        self.entries_are_one_gapless_chain()
        planned = {
            (entry.action.epoch, batch.batch_id): batch
            for entry in self.entries
            if entry.action.kind == "planned"
            for batch in entry.action.batches
        }
        starts = {entry.action.epoch: entry.action.start for entry in self.entries if entry.action.kind == "opened"}
        highest, after, landed = -1, dict(starts), set()
        for commit in self.sink:
            assert commit.transaction > highest, "the sink has a transaction out of order"
            highest = commit.transaction
            spec = commit.facts.get("spec")
            if spec is None:
                continue
            key = (spec.epoch, spec.batch_id)
            assert key not in landed, f"batch {key} is in the sink twice"
            landed.add(key)
            assert planned[key].digest == spec.manifest_digest
            assert spec.after == after[spec.epoch], "the chain in the sink has a gap"
            after[spec.epoch] = spec.end
        for entry in self.entries:
            if entry.action.kind == "committed":
                assert (entry.action.epoch, entry.action.batch_id) in landed, "committed, and not in the sink"

    def teardown(self):
        """Whatever happened: runs that are left in peace reach the end, and then all rows of the epoch are there."""
        super().teardown()
        self.each_batch_lands_once_as_planned_and_nothing_of_a_closed_epoch()
        covered = []
        for entry in self.entries:
            if getattr(entry.action, "epoch", None) == self.state.epoch:
                if entry.action.kind == "committed":
                    batches = [c.facts["spec"] for c in self.sink if c.facts.get("spec") is not None]
                    (spec,) = [
                        s for s in batches if (s.epoch, s.batch_id) == (entry.action.epoch, entry.action.batch_id)
                    ]
                    covered += range(Offset.from_json(spec.start).version, Offset.from_json(spec.end).version)
                elif entry.action.kind == "advanced":
                    covered += range(entry.action.first_version, entry.action.last_version + 1)
        assert covered == list(range(LAST_VERSION))


def test_whatever_runs_and_their_sparks_do_each_batch_lands_once(make):
    explore(lambda: Protocol(make), examples=60, steps=30)


def to_write(machine, writer, count):
    """Let the writer come to its write number ``count``, from 0; ``False`` if it has not so many."""
    while not writer.is_done:
        if isinstance(writer.access, PutIfAbsent | SinkCommit | Put):
            if count == 0:
                return True
            count -= 1
        machine.step(writer)
    return False


@pytest.mark.parametrize("fate", ["killed", "stands still", "response lost"])
def test_all_pairs_of_writes_of_two_runs(make, fate):
    """One run stops before each of its writes, a second is killed before each of its own, a third finishes."""
    pairs = 0
    for first in itertools.count():
        for second in itertools.count():
            machine = Protocol(make)
            one = machine.start_run(None)
            if not to_write(machine, one, first):
                assert pairs > 50
                return
            machine.ended.add(one.name)
            if fate == "killed":
                one.steps.close()
                one.is_done = True
            elif fate == "response lost":
                machine.answer(one.access)
                one.advance(lambda one=one: one.steps.throw(StorageError("no answer")))
            other = machine.start_run(None)
            is_there = to_write(machine, other, second)
            other.steps.close()
            other.is_done = True
            machine.ended.add(other.name)
            machine.to_the_end(machine.start_run(None))
            if not one.is_done:
                machine.to_the_end(one)
            machine.each_batch_lands_once_as_planned_and_nothing_of_a_closed_epoch()
            pairs += 1
            if not is_there:
                machine.teardown()
                break
