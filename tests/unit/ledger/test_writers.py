"""Several writers on one ledger, each access to storage a step of its own.

Hypothesis interleaves the steps, kills writers between any two of them, loses requests and responses, and lets
requests arrive late. Whatever it does, the entries must be one gapless chain.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from airflow_provider_fds.batch.transactions import fence_version, txn_version
from airflow_provider_fds.errors import FdsError, StorageError, StreamBusyError
from airflow_provider_fds.ledger.entries.entry import Entry
from airflow_provider_fds.ledger.entries.operator_entries import Held, Resumed
from airflow_provider_fds.ledger.entries.protocol import evolve
from airflow_provider_fds.ledger.entries.request_entries import Requested
from airflow_provider_fds.ledger.layout import parse_numbered_name
from airflow_provider_fds.ledger.staging.access import Put, PutIfAbsent, answer
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.ledger.state import StreamState
from airflow_provider_fds.ledger.values import Fence
from airflow_provider_fds.source.offset import Offset
from tests.unit.ledger.models import explore

#: Runs write at most so many batches, so that examples stay short.
LAST_VERSION = 12


class Writer:
    """A process: its program is a procedure of single accesses."""

    def __init__(self, name, steps):
        self.name = name
        self.steps = steps
        self.access = None
        self.is_done = False
        self.advance(lambda: next(self.steps))

    def advance(self, resume):
        try:
            self.access = resume()
        except StopIteration:
            self.is_done = True
        except FdsError:
            self.is_done = True  # refused, or storage did not answer: the process ends, a retry is a new one


class Writers(RuleBasedStateMachine):
    """Runs, people and a store that is not always kind."""

    def __init__(self, make):
        super().__init__()
        self.make = make
        self.storage = make.Storage()
        self.writers = []
        self.late = []
        self.started = 0
        self.entries = []
        self.state = StreamState(name="orders")
        self.told = {}
        self.checkpoints = [None]
        self.ended = set()

    # -- programs

    def run(self, name, checkpoint):
        """A run as an operator does it: create, open, bind, take over or plan, load, commit."""
        make, ledger = self.make, Ledger(self.storage, "orders", clock=lambda: self.make.now)
        owner = make.owner(name)

        def execute(command):
            entry = yield from ledger.execute_steps(command, make.actor)
            self.tell(entry)
            return entry

        state = yield from ledger.load_steps(checkpoint)
        if state.phase == "empty":
            yield from execute(make.create(uuid=name))
        if ledger.state.phase == "requested":
            yield from self.open(ledger, execute)
        if ledger.state.sink is None:
            yield from execute(make.bind(ledger.state.epoch))
        for _ in range(2):
            state = ledger.state
            if state.phase != "open":
                break  # its last commit was there already, and behind it a new epoch was asked for
            if state.planned and state.owner != owner:
                if state.owner.run_id not in self.ended:
                    raise StreamBusyError("runs", owner=state.owner.describe())
                yield from execute(make.claim(name, previous=state.owner.run_id, epoch=state.epoch))
            elif not state.planned:
                command = self.planned(state, name)
                if command is None:
                    break
                yield from execute(command)
            yield from self.load(name, ledger, execute)
        yield Put(ledger.folder.fold(ledger.n), ledger._head.to_json())

    def load(self, name, ledger, execute):
        """Commit the planned batches, one after the other."""
        state = ledger.state
        for batch in state.planned:
            yield from execute(
                self.make.commit(
                    batch.batch_id,
                    epoch=state.epoch,
                    run=name,
                    digest=batch.digest,
                    sink_version=(ledger.state.sink_version or 0) + 1,
                )
            )
            self.checkpoints.append(ledger.checkpoint())

    def open(self, ledger, execute):
        state = ledger.state
        fence = Fence()
        if state.fence_sink is not None:
            version = fence_version(state.epoch)
            fence = Fence(status="done", versions={"fds:u": version}, sink_version=(state.sink_version or 0) + 1)
        yield from execute(self.make.open(state.epoch, version=0, fence=fence))

    def planned(self, state, name):
        """The next stretch: every third version has no data."""
        make, version = self.make, Offset.from_json(state.position).version
        if version >= LAST_VERSION:
            return None
        if version % 3 == 2:
            return make.advance(version, version, epoch=state.epoch, run=name)
        batches, prev = [], state.prev_txn_version
        for offset in range(2 - version % 3):
            batch_id = state.next_batch_id + offset
            batches.append(
                make.batch(
                    batch_id,
                    state.epoch,
                    start=make.offset(version + offset),
                    end=make.offset(version + offset + 1),
                    prev_txn_version=prev,
                    digest=f"{name}-{batch_id}",
                )
            )
            prev = txn_version(state.epoch, batch_id)
        return make.plan(*batches, run=name, epoch=state.epoch)

    def person(self, name, command):
        ledger = Ledger(self.storage, "orders", clock=lambda: self.make.now)
        yield from ledger.find_steps()
        self.tell((yield from ledger.execute_steps(command, self.make.person, request_id=name)))

    def tell(self, entry):
        """A writer was told that its entry is in the ledger."""
        if entry is not None:
            assert self.told.setdefault(entry.n, entry) == entry

    # -- rules

    @initialize(is_new=st.booleans())
    def a_stream_that_is_new_or_has_run(self, is_new):
        if not is_new:
            self.to_the_end(self.start_run(None))

    @precondition(lambda self: sum(not w.is_done for w in self.writers) < 3)
    @rule(data=st.data(), pauses=st.sampled_from(["at once", "before it writes"]))
    def a_run_starts(self, data, pauses):
        writer = self.start_run(data.draw(st.sampled_from(self.checkpoints)))
        if pauses == "before it writes":
            self.to_the_next_write(writer)

    @precondition(lambda self: self.state.phase == "open")
    @rule(request=st.sampled_from([Requested(reason="rewind", why="again"), Held(why="pause")]))
    def a_person_asks(self, request):
        for command in (request, Resumed(why="go")):
            self.started += 1
            self.writers.append(Writer(f"q{self.started}", self.person(f"q{self.started}", command)))
            self.to_the_end(self.writers[-1])

    def running(self, data):
        return data.draw(st.sampled_from([w for w in self.writers if not w.is_done]))

    is_anyone_running = precondition(lambda self: any(not w.is_done for w in self.writers))

    def step(self, writer):
        result = self.answer(writer.access)
        writer.advance(lambda: writer.steps.send(result))
        if writer.is_done:
            self.ended.add(writer.name)

    @is_anyone_running
    @rule(data=st.data(), count=st.integers(1, 4))
    def a_writer_makes_steps(self, data, count):
        writer = self.running(data)
        for _ in range(count):
            if not writer.is_done:
                self.step(writer)

    def to_the_next_write(self, writer):
        while not writer.is_done:
            self.step(writer)
            if isinstance(writer.access, PutIfAbsent):
                return

    def to_the_end(self, writer):
        while not writer.is_done:
            self.step(writer)

    def start_run(self, checkpoint):
        self.started += 1
        name = f"r{self.started}"
        self.writers.append(Writer(name, self.run(name, checkpoint)))
        return self.writers[-1]

    @is_anyone_running
    @rule(data=st.data())
    def a_writer_comes_to_where_it_is_about_to_write(self, data):
        self.to_the_next_write(self.running(data))

    @is_anyone_running
    @rule(data=st.data())
    def a_writer_comes_to_its_end(self, data):
        self.to_the_end(self.running(data))

    @is_anyone_running
    @rule(data=st.data())
    def a_writer_is_killed(self, data):
        writer = self.running(data)
        writer.steps.close()
        writer.is_done = True
        self.ended.add(writer.name)

    @is_anyone_running
    @rule(data=st.data(), is_taken_for_dead=st.booleans())
    def a_writer_is_overtaken(self, data, is_taken_for_dead):
        """While it stands still another run does all its work, and may take over; then it goes on: a zombie."""
        zombie = self.running(data)
        if is_taken_for_dead:
            self.ended.add(zombie.name)
        self.to_the_end(self.start_run(data.draw(st.sampled_from(self.checkpoints))))
        self.to_the_end(zombie)

    @is_anyone_running
    @rule(data=st.data(), fate=st.sampled_from(["request lost", "response lost", "late"]))
    def an_access_gets_no_answer(self, data, fate):
        writer = self.running(data)
        if fate == "response lost":
            self.answer(writer.access)
        elif fate == "late" and isinstance(writer.access, PutIfAbsent):
            self.late.append(writer.access)
        writer.advance(lambda: writer.steps.throw(StorageError("no answer")))

    @precondition(lambda self: self.late)
    @rule()
    def a_late_request_arrives(self):
        self.answer(self.late.pop(0))

    def answer(self, access):
        return answer(access, self.storage)

    # -- what must always hold

    @invariant()
    def entries_are_one_gapless_chain(self):
        folder = "orders/ledger"
        numbers = [parse_numbered_name(m.key.rsplit("/", 1)[-1]) for m in self.storage.list_after(folder)]
        assert numbers == list(range(len(numbers)))
        for n in numbers[: len(self.entries)][-1:]:
            assert self.storage.objects[f"{folder}/{n:020d}.json"] == self.entries[n].to_json()
        for n in numbers[len(self.entries) :]:
            entry = Entry.from_json(self.storage.objects[f"{folder}/{n:020d}.json"], where=str(n))
            assert entry.n == n
            self.check_chain(entry)
            self.state = evolve(self.state, entry)
            self.entries.append(entry)

    @invariant()
    def what_a_writer_was_told_is_there(self):
        for n, entry in self.told.items():
            assert self.entries[n] == entry

    def check_chain(self, entry):
        state, action = self.state, entry.action
        match action.kind:
            case "planned":
                assert (state.phase, state.planned, state.held) == ("open", (), None)
                assert action.epoch == state.epoch
                assert action.batches[0].start == state.position
                expected = [state.next_batch_id + i for i in range(len(action.batches))]
                assert [b.batch_id for b in action.batches] == expected
                previous = action.batches[0].start
                for batch, spec in zip(action.batches, evolve(state, entry).specs("x"), strict=True):
                    assert batch.start == previous
                    assert spec.after == (state.last_txn_end if batch == action.batches[0] else previous)
                    previous = batch.end
            case "committed":
                assert (state.phase, action.epoch) == ("open", state.epoch)
                assert action.batch_id == state.planned[0].batch_id == state.first_uncommitted
                assert action.owner == state.owner
                assert Offset.from_json(state.position) < Offset.from_json(action.end)
            case "advanced":
                assert (state.phase, state.planned, action.start) == ("open", (), state.position)
                assert Offset.from_json(action.start) < Offset.from_json(action.end)
            case "opened":
                assert (state.phase, action.epoch) == ("requested", state.epoch)
            case "requested":
                assert action.epoch == state.epoch + 1
            case "created":
                assert entry.n == 0

    def let_go_on(self, ledger):
        """Decide as a person whatever the stream waits for."""
        if ledger.state.held is not None:
            ledger.execute(Resumed(why="go"), self.make.person)

    def teardown(self):
        """Whatever happened: the next run that is left in peace takes over and reaches the end."""
        self.entries_are_one_gapless_chain()
        for writer in self.writers:
            writer.steps.close()
            self.ended.add(writer.name)
        for attempt in range(2 * LAST_VERSION):
            ledger = Ledger(self.storage, "orders")
            state = ledger.find()
            assert state == self.state
            self.let_go_on(ledger)
            writer = Writer(f"last{attempt}", self.run(f"last{attempt}", self.checkpoints[-1]))
            self.to_the_end(writer)
            self.entries_are_one_gapless_chain()
            if self.state.phase == "open" and Offset.from_json(self.state.position).version >= LAST_VERSION:
                return
        pytest.fail(f"the stream is stuck at {json.dumps(self.state.position)}")


def test_whatever_writers_and_storage_do_the_ledger_is_one_gapless_chain(make):
    explore(lambda: Writers(make), examples=40, steps=30)


@pytest.mark.parametrize("fate", ["killed", "request lost", "response lost"])
def test_a_run_that_fails_at_any_access_is_finished_by_the_next(make, fate):
    """Every access of a whole run, one after the other, as the point of failure."""
    point = 0
    while True:
        machine = Writers(make)
        writer = Writer("r1", machine.run("r1", None))
        for _ in range(point):
            if not writer.is_done:
                machine.step(writer)
        if writer.is_done:
            break
        if fate == "killed":
            writer.steps.close()
        else:
            if fate == "response lost":
                machine.answer(writer.access)
            writer.advance(lambda writer=writer: writer.steps.throw(StorageError("no answer")))
            machine.to_the_end(writer)
        machine.ended.add("r1")
        machine.teardown()
        committed = [e.action.batch_id for e in machine.entries if e.action.kind == "committed"]
        assert committed == list(range(8))
        point += 1
    assert point > 10
