"""The requests of a stream whose function writes two named tables, as a model: each access to a table is a step.

Ledger, actions and what is read from the tables are the real ones. Drivers, the fence and Delta's promises about
transactions are modelled, as in ``test_epoch_protocol``. Hypothesis leaves drivers behind, lets time pass between
what a person is shown and what that person agrees to, hides the tables from some requests, and restores tables.
Whatever it does, no row is lost, and a row is in a table twice only if a person was told of the first one.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from airflow_provider_fds.batch.report import AttemptReport
from airflow_provider_fds.batch.transactions import fence_version, txn_app_id, txn_version
from airflow_provider_fds.delta.names import commit_key
from airflow_provider_fds.errors import FdsError
from airflow_provider_fds.ledger.entries.request_entries import Shown
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.ledger.values import Fence, SinkBinding
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.actions.action_builder import ActionBuilder
from airflow_provider_fds.stream.actions.prepared_action import perform
from airflow_provider_fds.stream.epochs.tables_before import as_seen, late_writes, lost_writes
from airflow_provider_fds.stream.sink_record.function_tables import floor_of, read_table_writes
from tests.unit.ledger.models import LastState, Process, Processes, batches_of_a_version, explore

#: The source has so many versions, one row each.
LAST_VERSION = 3
NAMES = ("kept", "gone")
MOVES = {
    "replan": lambda builder: builder.replan(),
    "rewind to 0": lambda builder: builder.rewind(to=0, sink_rows="keep"),
    "rewind to 1": lambda builder: builder.rewind(to=1, sink_rows="keep"),
    "reset": lambda builder: builder.rewind(to="start", sink_rows="keep"),
}


class Table:
    """A table with a real log, and the rows that each of its versions has: (version of the source, epoch, batch)."""

    def __init__(self, make):
        self.storage = make.Storage()
        self.versions = []
        self.keys = {}
        self.transactions = []
        self.deleted_at = -1
        self.commit([], "CREATE TABLE")

    @property
    def rows(self):
        return self.versions[-1]

    def commit(self, rows, operation, transaction=None, **parameters):
        actions = [{"commitInfo": {"operation": operation, "operationParameters": parameters}}]
        if transaction is not None:
            actions.append({"txn": {"appId": transaction[0], "version": transaction[1]}})
            self.transactions.append((len(self.versions), transaction[1]))
        self.storage.put(commit_key(len(self.versions)), "\n".join(map(json.dumps, actions)).encode())
        self.versions.append(rows)

    @property
    def newest(self):
        return max((transaction for _, transaction in self.transactions), default=-1)

    def write(self, app_id, transaction, row=None):
        """Append, unless Delta skips it."""
        if self.newest < transaction:
            if row is not None:
                self.keys[len(self.versions)] = row[1:]
            self.commit([*self.rows, *([] if row is None else [row])], "WRITE", (app_id, transaction))

    def delete(self, keeps):
        self.deleted_at = len(self.versions)
        self.commit([row for row in self.rows if keeps(row)], "DELETE")

    def has(self, transaction):
        """Whether the rows of a transaction are there; ``None`` if it never was."""
        at = next((version for version, found in self.transactions if found == transaction), None)
        return None if at is None else self.keys.get(at) in [row[1:] for row in self.rows]


@dataclass
class Preview:
    """A move as a person was shown it."""

    builder: object
    move: object
    told: frozenset


class Functions(Processes, RuleBasedStateMachine):
    """One stream, its tables, and everybody who touches them."""

    def __init__(self, make):
        super().__init__()
        self.make = make
        self.staging = make.Storage()
        self._last_state = LastState(self.staging, lambda: self.ledger.state)
        self.tables = {name: Table(make) for name in NAMES}
        self.app_ids = {name: txn_app_id("u1", write=name) for name in NAMES}
        self.processes, self.told, self.shown, self.runs = [], set(), None, 0
        sink = SinkBinding(
            kind="foreach_batch",
            target="jobs:load",
            app_ids=tuple(self.app_ids.values()),
            tables={name: f"memory://{name}" for name in NAMES},
        )
        for command in (make.create(), make.open(), make.bind(sink=sink)):
            self.execute(command)

    # -- the ledger

    @property
    def ledger(self):
        ledger = Ledger(self.staging, "orders", clock=lambda: self.make.now)
        ledger.find()
        return ledger

    @property
    def state(self):
        return self._last_state()

    def execute(self, command):
        return self.ledger.execute(command, self.make.actor)

    def try_to(self, command):
        try:
            return self.execute(command)
        except FdsError:
            return None

    def open_table(self, uri):
        return self.tables[uri.removeprefix("memory://")].storage

    # -- what processes do

    def driver(self, batches, epoch, name):
        """Call the function with each batch, as the real driver does; each look and each write is a step."""
        for batch in batches:
            transaction = txn_version(epoch, batch.batch_id)
            folder = self.ledger.folder.attempt_reports(epoch, batch.batch_id)
            yield
            if any(table.has(transaction) is False for table in self.tables.values()):
                # restored since an earlier attempt
                return
            if not list(self.staging.list_after(folder)):
                if any(table.newest > transaction for table in self.tables.values()):
                    return
                row = (batch.first_version, epoch, batch.batch_id)
                for write, table in self.tables.items():
                    yield
                    table.write(self.app_ids[write], transaction, row)
                yield
                if any(table.newest > transaction for table in self.tables.values()):
                    return
                report = AttemptReport("u1", epoch, batch.batch_id, batch.digest, name, "written")
                self.staging.put(f"{folder}/{name}.json", report.to_json())
            yield
            self.try_to(
                self.make.commit(
                    batch.batch_id, epoch=epoch, run=name, digest=batch.digest, sink_version=None, sink_table_id=None
                )
            )

    def fence(self, state):
        """Close the epochs in each table, and open the epoch or show why not."""
        wanted = fence_version(state.epoch)
        for name, table in self.tables.items():
            yield
            table.write(self.app_ids[name], wanted)
            if table.newest > wanted:
                return
        yield
        state = self.state
        if state.phase != "requested" or fence_version(state.epoch) != wanted:
            return
        table_writes = {
            name: read_table_writes(table.storage, self.app_ids[name], floor_of(state))
            for name, table in self.tables.items()
        }
        to = state.request.to
        start = state.closed.position if to is None else to.get("offset")
        begins = Offset.from_json(start) if start else Offset(state.table_id, to.get("starting_version", 0))
        if lost_writes(state, table_writes, dict.fromkeys(NAMES, "a table"), begins) is not None:
            return
        if late := late_writes(state, table_writes, begins):
            seen = (as_seen(name, write, state.closed.epoch, state.closed.planned) for name, write in late)
            self.try_to(Shown(epoch=state.epoch, batches=tuple(seen)))
            return
        fence = Fence(status="done", versions=dict.fromkeys(self.app_ids.values(), wanted))
        self.try_to(self.make.open(state.epoch, version=begins.version, fence=fence))

    # -- rules

    def a_run(self):
        """Fence or plan what is there to be done, and start Spark for it; ``None`` if there is nothing."""
        state = self.state
        self.runs += 1
        name = f"r{self.runs}"
        if state.phase == "requested":
            process = Process(self.fence(state))
        else:
            if state.planned:
                self.execute(self.make.claim(name, previous=state.owner.run_id, epoch=state.epoch))
            else:
                first = Offset.from_json(state.position).version
                if first >= LAST_VERSION:
                    return None
                versions = range(first, min(first + 2, LAST_VERSION))
                batches = batches_of_a_version(self.make, state, name, versions)
                self.execute(self.make.plan(*batches, run=name, epoch=state.epoch))
            process = Process(self.driver(self.state.planned, state.epoch, name))
        self.processes.append(process)
        self.step(process)
        return process

    @precondition(lambda self: len(self.running()) < 3)
    @rule(count=st.sampled_from([1, 3, 1000]))
    def a_run_starts(self, count):
        self.advance(self.a_run(), count)

    @precondition(lambda self: self.running())
    @rule(data=st.data(), count=st.integers(1, 6))
    def a_process_goes_on(self, data, count):
        self.advance(data.draw(st.sampled_from(self.running())), count)

    @precondition(lambda self: self.running())
    @rule(data=st.data())
    def a_process_is_killed(self, data):
        data.draw(st.sampled_from(self.running())).is_done = True

    @rule(kind=st.sampled_from(sorted(MOVES)), reaches=st.sampled_from([True, True, False]))
    def a_person_is_shown_a_move(self, kind, reaches):
        builder = ActionBuilder(
            self.ledger,
            "test",
            replaces=True,
            owner_runs=lambda _owner: False,
            open_table=self.open_table if reaches else None,
        )
        try:
            move = MOVES[kind](builder)
        except FdsError:
            # half landed, restored, or further than the position; or nobody knows, and the person does not either
            return
        self.shown = Preview(builder, move, frozenset(self.told_of(move)))

    def told_of(self, move):
        """Return the writes that the preview says are read again."""
        for note in move.notes:
            if not note.startswith("Not committed, but in the function's tables"):
                continue
            for name, listed in re.findall(r"'(\w+)' has ([^;]*)", note):
                for batch_id, version in re.findall(r"batch (\d+) \(version (\d+)", listed):
                    key = self.tables[name].keys[int(version)]
                    assert key[1] == int(batch_id)
                    yield name, key

    @precondition(lambda self: self.shown is not None)
    @rule()
    def a_person_agrees(self):
        shown, self.shown = self.shown, None
        committed = self.committed()
        try:
            perform(shown.builder.ledger, shown.move, self.make.person)
        except FdsError:
            return
        self.told |= shown.told | {(name, key) for name in NAMES for key in committed}

    @precondition(lambda self: len(self.running()) < 2)
    @rule(
        looked=st.integers(0, 6),
        kinds=st.lists(st.sampled_from(sorted(MOVES)), min_size=1, max_size=3),
        steps=st.integers(0, 4),
    )
    def a_driver_is_left_behind_and_goes_on_between_requests(self, looked, kinds, steps):
        zombie = self.a_run()
        self.advance(zombie, looked)
        for kind in kinds:
            self.a_person_is_shown_a_move(kind, reaches=True)
            if self.shown is not None:
                self.a_person_agrees()
            self.advance(zombie, steps)
        self.advance(self.a_run(), 1000)
        self.advance(zombie, 1000)

    @precondition(lambda self: not self.running())
    @rule(name=st.sampled_from(NAMES), data=st.data())
    def a_person_restores_a_table_to_a_version_with_all_that_was_committed(self, name, data):
        table, oldest = self.tables[name], self.oldest_with_all_that_was_committed(name)
        committed = self.committed()
        kept = {row for row in table.rows if (row[1], row[2]) in committed}
        # an earlier restore may have left versions without rows that a later one brought back
        versions = [one for one in range(oldest, len(table.versions) - 1) if kept <= set(table.versions[one])]
        assume(versions)
        version = data.draw(st.sampled_from(versions))
        table.commit(table.versions[version], "RESTORE", version=str(version))

    def oldest_with_all_that_was_committed(self, name):
        table, floor = self.tables[name], floor_of(self.state)
        oldest = max((version for version, found in table.transactions if found <= floor), default=0)
        return max(oldest, table.deleted_at)

    @precondition(lambda self: not self.running() and self.state.phase == "open")
    @rule(name=st.sampled_from(NAMES), looked=st.integers(4, 12))
    def a_table_loses_uncommitted_batches_between_a_replan_and_its_run(self, name, looked):
        driver = self.a_run()
        assume(driver is not None)
        self.advance(driver, looked)
        driver.is_done = True
        self.a_person_is_shown_a_move("replan", reaches=True)
        if self.shown is not None:
            self.a_person_agrees()
        table, oldest = self.tables[name], self.oldest_with_all_that_was_committed(name)
        if oldest < len(table.versions) - 1:
            table.commit(table.versions[oldest], "RESTORE", version=str(oldest))
        self.advance(self.a_run(), 1000)

    @precondition(lambda self: not self.running() and self.state.phase == "open")
    @rule()
    def a_person_takes_a_batch_out_and_says_so(self):
        state = self.state
        assume(state.planned)
        self.take_out_what_is_planned()
        self.shown = None
        ledger = self.ledger
        builder = ActionBuilder(ledger, "test", owner_runs=lambda _owner: False, open_table=self.open_table)
        try:
            move = builder.replan(landed=False)
        except FdsError as error:
            # all of them were reported: that they were taken out has to be said by a rewind
            assert "have landed" in str(error) or " is at " in str(error)  # noqa: PT017
            move = builder.rewind(to=Offset.from_json(state.position).version)
        perform(ledger, move, self.make.person)

    def take_out_what_is_planned(self):
        state = self.state
        reported = [
            batch.batch_id
            for batch in state.planned
            if list(self.staging.list_after(self.ledger.folder.attempt_reports(state.epoch, batch.batch_id)))
        ]
        is_all = len(reported) == len(state.planned) or any(
            table.has(txn_version(state.epoch, batch_id)) is not True
            for table in self.tables.values()
            for batch_id in reported
        )
        first = state.planned[0].batch_id if is_all else state.planned[len(reported)].batch_id
        for table in self.tables.values():
            table.delete(lambda row: row[1] != state.epoch or row[2] < first)

    def committed(self):
        """Return the batches that were committed, or counted as loaded by the request that closed their epoch."""
        found, planned = set(), []
        for action in (entry.action for entry in self.ledger.entries()):
            if action.kind == "planned":
                planned += [(action.epoch, batch.batch_id, Offset.from_json(batch.end)) for batch in action.batches]
            elif action.kind == "committed":
                found.add((action.epoch, action.batch_id))
            elif action.kind == "opened":
                start = Offset.from_json(action.start)
                found |= {
                    (epoch, batch_id) for epoch, batch_id, end in planned if epoch < action.epoch and end <= start
                }
        return found

    # -- what must always hold

    @invariant()
    def a_row_is_there_twice_only_if_a_person_was_told_of_the_first_one(self):
        for name, table in self.tables.items():
            found = {}
            for version, *key in table.rows:
                for older in found.setdefault(version, []):
                    assert (name, older) in self.told, f"version {version} is twice in {name}, {older} was not told"
                found[version].append(tuple(key))

    @invariant()
    def every_row_before_the_position_is_there(self):
        state = self.state
        if state.phase == "open":
            for name, table in self.tables.items():
                there = {version for version, *_ in table.rows}
                lost = set(range(Offset.from_json(state.position).version)) - there
                assert not lost, f"versions {lost} are lost in {name}"

    def teardown(self):
        for process in self.running():
            process.is_done = True
        for _ in range(8 * LAST_VERSION):
            before = self.state
            process = self.a_run()
            self.advance(process, 1000)
            if process is None:
                break
            state = self.state
            if state.phase == "requested" or (before.phase, before.position) == (state.phase, state.position):
                # the run has named writes, or a table that was restored: a person has all loaded anew
                for table in self.tables.values():
                    table.delete(lambda _row: False)
                ledger = self.ledger
                builder = ActionBuilder(
                    ledger, "t", replaces=True, owner_runs=lambda _owner: False, open_table=self.open_table
                )
                self.shown = Preview(builder, builder.rewind(to=0, sink_rows="keep"), frozenset())
                self.a_person_agrees()
        else:
            raise AssertionError(f"the stream is stuck: {self.state}")
        self.a_row_is_there_twice_only_if_a_person_was_told_of_the_first_one()
        self.every_row_before_the_position_is_there()


def test_whatever_is_requested_no_row_is_lost_or_written_again_without_a_message(make):
    explore(lambda: Functions(make), examples=60, steps=20)
