"""Epochs as a model: requests in any number and order, fences that remove rows, a sink that is missing, and zombies.

The ledger, its decisions and the judgement of what has landed are the real ones. The sink keeps Delta's promises: a
transaction that is not above the newest one of its application is skipped, a table is created by one writer. Each
access to the sink is a step of its own; hypothesis interleaves the steps of runs, of drivers that were left behind, and
of people. Whatever it does, a row is in the sink twice only if a person who asked for an epoch was shown the batch that
holds it, and the run that is left in peace ends with all rows, or names what a person has to decide.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from airflow_provider_fds.batch.report import FenceEvidence, LandedBatch, RemovedRows
from airflow_provider_fds.batch.transactions import fence_version, txn_version
from airflow_provider_fds.errors import FdsError
from airflow_provider_fds.ledger.entries.request_entries import Requested, Shown
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.ledger.values import Fence, Removal
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.actions.prepared_action import perform
from airflow_provider_fds.stream.actions.recovery import SinkAccount, recovery
from airflow_provider_fds.stream.actions.repair import inspect, repair
from airflow_provider_fds.stream.epochs.sink_before import left_out, requests_between
from airflow_provider_fds.stream.epochs.unseen_batches import as_seen, unseen_batches
from tests.unit.ledger.models import LastState, Process, Processes, batches_of_a_version, explore

#: The source has so many versions, one row each.
LAST_VERSION = 4

#: What a rewind asks for: where it begins, and what its fence removes.
REWINDS = (
    (0, None),
    (0, Removal(what="all")),
    (0, Removal(what="rows", from_version=0)),
    (2, None),
    (2, Removal(what="rows", from_version=2)),
)


@dataclass
class Commit:
    """One commit of the sink.

    Attributes:
        version: The row it brings, or ``None`` for a fence.
        removes: From which version of the source on it removes the rows of the commits before it.
        removed_to: Newest version whose rows were removed, of a fence that found none.
    """

    transaction: int
    key: tuple[int, int] | None = None
    digest: str = ""
    version: int | None = None
    removes: int | None = None
    removed_to: int | None = None


class Epochs(Processes, RuleBasedStateMachine):
    """One stream, its sink, and everybody who touches them."""

    def __init__(self, make):
        super().__init__()
        self.make = make
        self.storage = make.Storage()
        self._last_state = LastState(self.storage, lambda: self.ledger().state)
        self.sink = None
        self.processes = []
        self.told = set()
        #: What the sink had when its log was last asked; a rewind says that the history lacks it.
        self.recovered = set()
        self.runs = 0
        self.shown_to_person = False
        self.execute(make.create(), make.actor)
        self.execute(make.open(), make.actor)
        self.execute(make.bind(), make.actor)

    # -- the ledger

    def ledger(self):
        ledger = Ledger(self.storage, "orders", clock=lambda: self.make.now)
        ledger.find()
        return ledger

    @property
    def state(self):
        return self._last_state()

    def execute(self, command, actor):
        return Ledger(self.storage, "orders", clock=lambda: self.make.now).execute(command, actor)

    # -- the sink

    @property
    def newest(self):
        return max((commit.transaction for commit in self.sink or ()), default=None)

    def live(self):
        """The commits whose rows are there."""
        rows = []
        for version, commit in enumerate(self.sink or ()):
            if commit.removes is not None:
                rows = [(at, row) for at, row in rows if row.version < commit.removes]
            elif commit.version is not None:
                rows.append((version, commit))
        return rows

    def commit(self, commit):
        """Commit, unless Delta skips it."""
        if self.sink is None:
            self.sink = []
        if (self.newest or -1) < commit.transaction:
            self.sink.append(commit)

    # -- what processes do

    def driver(self, batches, epoch, name):
        """Work the batches off, as the real one does; each look and each write is a step."""
        found = []
        for batch in batches:
            transaction = txn_version(epoch, batch.batch_id)
            yield
            is_missing = self.sink is None
            if not self.holds(epoch, batch) and self.newest != batch.prev_txn_version:
                if batch.prev_txn_version is None and (self.newest or 0) < fence_version(epoch):
                    self.sink_appeared(epoch)
                return
            yield
            first = Offset.from_json(batch.start).version
            row = Commit(transaction, (epoch, batch.batch_id), batch.digest, first)
            if not (is_missing and self.sink is not None):
                # who saw no table creates it, or fails
                self.commit(row)
            yield
            if not self.holds(epoch, batch):
                return
            found.append(batch)
            self.collect(epoch, batch, name)

    def holds(self, epoch, batch):
        return any((c.key, c.digest) == ((epoch, batch.batch_id), batch.digest) for c in self.sink or ())

    def collect(self, epoch, batch, name):
        version = next(v for v, c in enumerate(self.sink) if c.key == (epoch, batch.batch_id))
        command = self.make.commit(batch.batch_id, epoch=epoch, run=name, digest=batch.digest, sink_version=version)
        self.try_to(command)

    def try_to(self, command):
        try:
            return self.execute(command, self.make.actor)
        except FdsError:
            return None

    def sink_appeared(self, epoch):
        state = self.state
        if state.phase == "open" and state.epoch == epoch:
            to = {"offset": state.position}
            self.try_to(Requested(reason="sink_appeared", why="test", closes=epoch, to=to, is_automatic=True))

    def fence(self, state):
        """Close the epochs in the sink, judge what has landed, and open the epoch or show why not."""
        epoch, wanted, removal = state.epoch, fence_version(state.epoch), state.request.removal
        while True:
            yield
            if self.sink is None:
                self.open(state, Fence(status="sink_missing"), ())
                return
            if (self.newest or 0) > wanted:
                return
            if self.newest == wanted:
                break
            removed_to = None
            if removal is not None:
                removed_to = len(self.sink) - 1
                first = removal.from_version or 0
                if any(row.version >= first for _, row in self.live()):
                    self.commit(Commit(wanted, removes=first))
                yield
            # an append without rows; after a removal that found nothing, it says up to where that looked
            self.commit(Commit(wanted, removed_to=removed_to))
        at, fence = next((v, c) for v, c in enumerate(self.sink) if c.transaction == wanted)
        removed_to = at - 1 if fence.removes is not None else fence.removed_to
        committed = -1 if state.closed.sink_version is None else state.closed.sink_version
        removed = [
            RemovedRows(c.transaction >> 32, v, "rows", c.removes)
            for v, c in enumerate(self.sink[:at])
            if c.removes is not None and v > committed
        ]
        known = max(committed, -1 if removed_to is None else removed_to, *(one.sink_version for one in removed), -1)
        newest = max((c.transaction for c in self.sink[:at]), default=None)
        evidence = FenceEvidence(newest=newest, removed=tuple(removed))
        landed = [
            LandedBatch(*c.key, self.make.offset(c.version + 1), c.digest, v)
            for v, c in enumerate(self.sink[:at])
            if c.key is not None and v > known
        ]
        yield
        done = Fence(status="done", versions={"fds:u1": wanted}, sink_version=at, removal=removal)
        assert self.state.epoch >= epoch
        self.open(state, done, landed, evidence)

    def open(self, state, fence, landed, evidence=None):
        """The run's word; it read the request before it went to the sink."""
        start = Offset.from_json(state.request.to["offset"])
        requests = requests_between(self.ledger().entries(), state)
        if left_out(state, evidence, start, requests) is not None:
            return
        unseen = unseen_batches(state, landed, start)
        if unseen:
            self.try_to(Shown(epoch=state.epoch, batches=tuple(map(as_seen, unseen))))
            return
        command = self.make.open(state.epoch, version=start.version, fence=fence)
        self.try_to(command)

    # -- rules

    def start(self, steps):
        process = Process(steps)
        self.processes.append(process)
        self.step(process)
        return process

    def a_run(self):
        """Fence or plan what is there to be done, and start Spark for it; ``None`` if there is nothing."""
        state = self.state
        self.runs += 1
        name = f"r{self.runs}"
        if state.phase == "requested":
            return self.start(self.fence(state))
        if state.planned:
            claim = self.make.claim(name, previous=state.owner.run_id, epoch=state.epoch)
            self.execute(claim, self.make.actor)
        else:
            first = Offset.from_json(state.position).version
            if first >= LAST_VERSION:
                return None
            versions = range(first, min(first + 2, LAST_VERSION))
            batches = batches_of_a_version(self.make, state, name, versions)
            self.execute(self.make.plan(*batches, run=name, epoch=state.epoch), self.make.actor)
        state = self.state
        return self.start(self.driver(state.planned, state.epoch, name))

    @precondition(lambda self: len(self.running()) < 4)
    @rule()
    def a_run_starts(self):
        self.a_run()

    @precondition(lambda self: len(self.running()) < 4)
    @rule()
    def a_run_reaches_its_end(self):
        process = self.a_run()
        if process is not None:
            self.advance(process, 1000)

    @precondition(lambda self: self.running())
    @rule(data=st.data(), count=st.integers(1, 9))
    def a_process_goes_on(self, data, count):
        self.advance(data.draw(st.sampled_from(self.running())), count)

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def a_process_is_killed(self, data):
        data.draw(st.sampled_from(self.running())).is_done = True

    @rule(rewind=st.sampled_from(REWINDS))
    def a_person_rewinds(self, rewind):
        self.ask(*rewind)

    @precondition(lambda self: len(self.running()) < 4)
    @rule(
        looked=st.integers(0, 3),
        rewinds=st.lists(st.sampled_from(REWINDS), min_size=1, max_size=3),
        fenced=st.integers(0, 3),
    )
    def a_driver_is_left_behind_and_goes_on_while_the_epoch_is_closed(self, looked, rewinds, fenced):
        zombie = self.a_run()
        if zombie is None:
            return
        self.advance(zombie, looked)
        for rewind in rewinds:
            self.ask(*rewind)
        fence = self.a_run()
        self.advance(fence, fenced)
        self.advance(zombie, 1000)
        self.advance(fence, 1000)

    @precondition(lambda self: len(self.running()) < 4)
    @rule(asked=st.sampled_from(REWINDS), fenced=st.integers(1, 5), instead=st.sampled_from(REWINDS))
    def a_fence_is_killed_and_another_request_takes_the_place_of_its_own(self, asked, fenced, instead):
        while (process := self.a_run()) is not None and self.state.phase == "open" and not self.state.request:
            self.advance(process, 1000)
            if self.state.planned:
                break
        self.ask(*asked)
        fence = self.a_run()
        if fence is not None:
            self.advance(fence, fenced)
            fence.is_done = True
        self.ask(*instead)

    @precondition(lambda self: self.sink)
    @rule(data=st.data(), lost=st.booleans())
    def entries_become_unreadable_and_a_person_recovers(self, data, lost):
        keys = [key for key in self.storage.objects if "/ledger/" in key]
        whole = {key: self.storage.objects[key] for key in keys}
        for key in keys:
            if "_checkpoint" in key:
                del self.storage.objects[key]
        entries = [key for key in keys if "_checkpoint" not in key]
        count = data.draw(st.integers(1, min(3, len(entries))))
        for key in data.draw(st.permutations(entries))[:count]:
            if lost and key != entries[-1]:
                del self.storage.objects[key]
            else:
                self.storage.objects[key] = b"?"
        ledger = Ledger(self.storage, "orders", clock=lambda: self.make.now)
        try:
            found = repair(
                ledger,
                inspect(ledger),
                self.account(),
                table=self.make.table,
                deployment="prod",
                is_sink_named=True,
            )
            found.perform(ledger, self.make.person)
        except FdsError:
            # the sink cannot tell: the ledger is put back from a copy
            self.storage.objects |= whole
            return
        self.recovered = {commit.key for commit in self.sink}
        assert self.state.epoch > max((commit.transaction >> 32 for commit in self.sink), default=0)

    @precondition(lambda self: self.state.request is not None and self.state.request.reason == "recover")
    @rule()
    def a_person_recovers_what_landed_since(self):
        ledger = self.ledger()
        try:
            move = recovery(ledger, self.account(), table=self.make.table, deployment="prod", why="test")
        except FdsError:
            return
        if move is not None:
            perform(ledger, move, self.make.person)
            self.recovered = {commit.key for commit in self.sink}

    def account(self):
        """What the sink says of the stream."""
        newest, epoch, broke_at = None, 0, None
        for version, commit in enumerate(self.sink):
            epoch = max(epoch, commit.transaction >> 32)
            if commit.removes is not None:
                broke_at = version
            if commit.key is not None:
                newest, broke_at = (version, commit), None
        if newest is None:
            return None
        version, commit = newest
        return SinkAccount(
            uri=self.make.sink.target,
            uuid="u1",
            epoch=epoch,
            batch_epoch=commit.key[0],
            batch_id=commit.key[1],
            end=self.make.offset(commit.version + 1),
            digest=commit.digest,
            version=version,
            broke_at=broke_at,
        )

    def ask(self, first, removal):
        state = self.state
        position = state.position if state.closed is None else state.closed.position
        if Offset.from_json(position).version < first:
            # a rewind goes back only
            return
        committed = {
            (entry.action.epoch, entry.action.batch_id)
            for entry in self.ledger().entries()
            if entry.action.kind == "committed"
        }
        seen = state.shown
        request = Requested(
            reason="rewind",
            why="test",
            closes=state.epoch,
            to={"offset": self.make.offset(first)},
            replaces=True,
            seen=seen,
            removal=removal,
        )
        self.execute(request, self.make.person)
        self.told |= self.recovered | committed | {(batch.epoch, batch.batch_id) for batch in seen}

    # -- what must always hold

    @invariant()
    def a_row_is_there_twice_only_if_a_person_was_shown_its_batch(self):
        rows = {}
        for _, commit in self.live():
            for other in rows.setdefault(commit.version, []):
                older = min(other.key, commit.key)
                assert older[0] < max(other.key, commit.key)[0], f"{commit.key} and {other.key} in one epoch"
                assert older in self.told, f"version {commit.version} is duplicated, {older} was never shown"
            rows[commit.version].append(commit)

    @invariant()
    def transactions_only_rise(self):
        seen = [commit.transaction for commit in self.sink or ()]
        assert seen == sorted(set(seen))

    def teardown(self):
        for process in self.running():
            process.is_done = True
        for _ in range(6 * LAST_VERSION):
            before = self.state
            process = self.a_run()
            if process is not None:
                self.advance(process, 1000)
            self.a_row_is_there_twice_only_if_a_person_was_shown_its_batch()
            state = self.state
            if process is None:
                break
            if state.phase == "requested" and state.epoch == before.epoch:
                # the run has named batches, or rows that are missing: a person has all loaded anew
                self.ask(0, Removal(what="all"))
        else:
            raise AssertionError(f"the stream is stuck: {self.state}")
        assert {commit.version for _, commit in self.live()} == set(range(LAST_VERSION))


def test_whatever_is_requested_a_row_is_there_twice_only_if_a_person_was_shown_it(make):
    explore(lambda: Epochs(make), examples=120, steps=25)
