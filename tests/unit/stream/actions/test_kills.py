"""Every operation of a person, killed at each of its writes: it has happened or it has not, and a repetition completes.

Files are real; a kill is an exception that nothing catches, before or after the write of one file. What Spark writes is
killed in tests/chaos.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, Final

import pytest

from airflow_provider_fds.cli.main import main
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import UnreadableEntryError, VerificationError
from airflow_provider_fds.ledger.entries.operator_entries import Held, Quarantined
from airflow_provider_fds.ledger.layout import StreamFolder
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.source.streaming_checkpoint import write_streaming_checkpoint
from tests.unit.stream.actions.test_recovery import Sink

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.stream import DeltaStream

#: What creates, changes or removes an object in a folder.
_WRITES: Final = ("put", "put_if_absent", "put_file", "delete", "delete_folder")


class KilledError(BaseException):
    """Ends the process as a kill does: nothing cleans up after it."""


class Place:
    """A table, a staging folder with a loaded and a planned batch, and the commands that a person gives."""

    def __init__(self, bench: Any, sink: Any, tmp_path: Path, log_builder: Any, monkeypatch: Any) -> None:
        self.bench, self.sink, self.tmp_path, self.log_builder = bench, sink, tmp_path, log_builder
        self._monkeypatch = monkeypatch
        for _ in range(4):
            log_builder.append(2)
        self.staging = str(bench.staging)
        self.stream: DeltaStream = bench.stream(max_files_per_batch=2)

    def begin(self) -> None:
        """Load versions 1 and 2 and plan version 3."""
        self.bench.run_once(self.sink, "run-1", self.stream, max_batches=2)
        self.bench.session("run-1", stream=self.stream).begin(self.sink, max_batches=1)

    def fds(self, *words: str, staging: str | None = None) -> None:
        deployment = () if "--deployment" in words else ("--deployment", "test")
        assert main([*words, "--staging", staging or self.staging, *deployment]) == 0

    def killed_at(self, write: int, *, is_before: bool, work: Callable[[], None]) -> bool:
        """Do some work that is killed at a write, counted from 0; return whether it came that far."""
        count = -1
        with self._monkeypatch.context() as patch:
            for name in _WRITES:
                real = getattr(LocalStorage, name)

                def counted(storage: Any, *arguments: Any, real: Any = real) -> Any:
                    nonlocal count
                    count += 1
                    if count == write and is_before:
                        raise KilledError
                    done = real(storage, *arguments)
                    if count == write:
                        raise KilledError
                    return done

                patch.setattr(LocalStorage, name, counted)
            try:
                work()
            except KilledError:
                return True
        return False

    def state(self, name: str = "orders", staging: str | None = None) -> StreamState | None:
        storage = open_storage(staging or self.staging)
        # an imported stream does not exist before its oldest entry does
        return Ledger(storage, name).find() if storage.head(StreamFolder(name).entry(0)) else None


@pytest.fixture
def place(bench: Any, sink: Any, tmp_path: Path, log_builder: Any, monkeypatch: Any) -> Place:
    log_builder.create()
    return Place(bench, sink, tmp_path, log_builder, monkeypatch)


def summary(state: StreamState | None) -> tuple[Any, ...] | None:
    """Return what decides which rows the next run reads, and whether it may."""
    if state is None:
        return None
    request = None if state.request is None else (state.request.reason, state.request.to, state.request.removal)
    start = state.given_start if state.position is None else state.position
    if state.closed is None and state.origin is not None and state.position is None:
        start = state.origin.offset
    return (
        state.epoch,
        request,
        start,
        len(state.planned),
        None if state.owner is None else (state.owner.kind, state.owner.only_plans),
        state.deployment,
        state.held,
        state.quarantined,
        state.retired,
        state.acknowledged,
        None if state.blocked is None else state.blocked.batch_id,
    )


class Operation:
    """An operation with the situation before it."""

    def __init__(self, *words: str, why: bool = True, before: Callable[[Place], None] = Place.begin) -> None:
        # with its id, a request that was made is not made again
        self.words = (*words, "--why", "a test", "--request-id", "r1") if why else words
        self.before = before
        self.name = "orders"

    def perform(self, place: Place) -> None:
        place.fds(*(word.format(table=place.log_builder.root, tmp=place.tmp_path) for word in self.words))

    def state(self, place: Place) -> StreamState | None:
        return place.state(self.name)

    def is_harmless(self, state: StreamState | None) -> bool:
        """Whether a state between before and after loads nothing."""
        return False


class Imported(Operation):
    """A ledger that another deployment exported, into an empty staging folder."""

    def perform(self, place: Place) -> None:
        place.fds(*(word.format(tmp=place.tmp_path) for word in self.words), staging=str(place.tmp_path / "there"))

    def state(self, place: Place) -> StreamState | None:
        return place.state(staging=str(place.tmp_path / "there"))

    def is_harmless(self, state: StreamState | None) -> bool:
        # the copied ledger, before it is transferred: held, and of the other deployment
        return state is not None and state.held is not None and state.deployment == "test"


class Recovered(Operation):
    """A ledger that is begun again after what the sink has."""

    def __init__(self, before: Callable[[Place], None]) -> None:
        super().__init__(
            *("recover", "orders", "--sink", "{tmp}/recovered", "--table", "{table}", "--yes"), why=False, before=before
        )

    def state(self, place: Place) -> StreamState | None:
        try:
            return super().state(place)
        except UnreadableEntryError:
            return None


class Cloned(Operation):
    def state(self, place: Place) -> StreamState | None:
        return place.state("audit")


def a_query(place: Place) -> None:
    """Leave the checkpoint of a query that has read up to version 2."""
    folder = open_storage(str(place.tmp_path / "query"))
    write_streaming_checkpoint(folder, Offset(place.log_builder.table_id, 3))


def decided(*actions: Any) -> Callable[[Place], None]:
    def decide(place: Place) -> None:
        place.begin()
        connected = place.bench.session("person", stream=place.stream).connected
        connected.load()
        for action in actions:
            connected.execute(action)

    return decide


def exported(place: Place) -> None:
    decided(Held(why="a move"))(place)
    place.fds("admin", "export", "orders", str(place.tmp_path / "orders.fds"))


def before_a_schema(place: Place) -> None:
    """Stop the stream before version 3, which changes the schema."""
    place.log_builder.version = 2
    place.log_builder.commit(place.log_builder.metadata([place.log_builder.field("other")]))
    place.bench.run_once(place.sink, "run-1", place.stream)
    connected = place.bench.session("person", stream=place.stream).connected
    connected.load()
    connected.execute(Quarantined(why="x", version=3, way_on="accept"))


def blocked(place: Place) -> None:
    """Report fewer rows of version 1 than were planned."""
    session = place.bench.session("run-1", stream=place.stream)
    work = session.begin(place.sink, max_batches=1)
    place.bench.report(session, work, session.job(work, place.sink), rows_written=1)
    with pytest.raises(VerificationError):
        session.collect(work)


def with_a_lost_ledger(place: Place) -> None:
    Sink(place.tmp_path / "recovered").load(place.bench, "run-1", batches=2)
    shutil.rmtree(place.bench.staging)


def with_an_unreadable_entry(place: Place) -> None:
    Sink(place.tmp_path / "recovered").load(place.bench, "run-1", batches=2)
    folder = place.bench.staging / "orders" / "ledger"
    shutil.rmtree(folder / "_checkpoint", ignore_errors=True)
    min(folder.glob("*.json")).write_bytes(b"\xff")


def in_a_snapshot(place: Place) -> None:
    place.stream = place.bench.stream(starting_version=None, max_files_per_batch=1)
    place.bench.run_once(place.sink, "run-1", place.stream, max_batches=2)


OPERATIONS: Final = {
    "import-checkpoint": Operation(
        "admin", "import-checkpoint", "{tmp}/query", "{table}", "--stream", "orders", "--yes", why=False, before=a_query
    ),
    "import": Imported(
        "admin", "import", "{tmp}/orders.fds", "--deployment", "new", "--yes", why=False, before=exported
    ),
    "fork": Cloned("fork", "orders", "audit", "--sink", "{tmp}/audit", "--yes", why=False, before=in_a_snapshot),
    "rewind": Operation("rewind", "orders", "--to", "1", "--sink-rows", "keep", "--yes"),
    "rewind to start": Operation("rewind", "orders", "--to", "start", "--sink-rows", "keep", "--yes"),
    "replan": Operation("replan", "orders", "--yes"),
    "replan with a new sink": Operation("replan", "orders", "--new-sink", "--yes"),
    "skip": Operation("skip", "orders", "--version", "4", "--yes"),
    "skip several": Operation("skip", "orders", "--version", "3-4", "--yes", before=before_a_schema),
    "accept": Operation("accept", "orders", "--version", "3", "--yes", before=before_a_schema),
    "accept a batch": Operation("accept", "orders", "--batch", "0", "--yes", before=blocked),
    "recover a lost ledger": Recovered(before=with_a_lost_ledger),
    "recover an unreadable entry": Recovered(before=with_an_unreadable_entry),
    "hold": Operation("hold", "orders"),
    "resume": Operation("resume", "orders", before=decided(Held(why="x"))),
    "unlock": Operation("unlock", "orders", "--yes"),
    "transfer": Operation("transfer", "orders", "--deployment", "new", "--yes"),
    "retire": Operation("retire", "orders", "--yes", before=in_a_snapshot),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_killed_operation_has_happened_or_not_and_its_repetition_completes_it(name, place, tmp_path, monkeypatch):
    operation = OPERATIONS[name]
    operation.before(place)
    shutil.copytree(tmp_path, kept := tmp_path.with_name(tmp_path.name + " kept"))
    before = summary(operation.state(place))
    operation.perform(place)
    after = summary(operation.state(place))
    assert after != before
    kills = 0
    for write in range(100):
        for is_before in (True, False):
            shutil.rmtree(tmp_path)
            shutil.copytree(kept, tmp_path)
            if not place.killed_at(write, is_before=is_before, work=lambda: operation.perform(place)):
                assert kills
                return
            kills += 1
            found = operation.state(place)
            assert summary(found) in (before, after) or operation.is_harmless(found), (write, is_before)
            operation.perform(place)
            assert summary(operation.state(place)) == after, (write, is_before)
    raise AssertionError("the operation does not end")


@pytest.mark.parametrize("write", range(4))
def test_a_run_after_a_killed_import_of_a_checkpoint_reads_nothing_that_the_query_has_read(place, write):
    a_query(place)
    operation = OPERATIONS["import-checkpoint"]
    assert place.killed_at(write, is_before=False, work=lambda: operation.perform(place))
    if place.state() is None:
        return
    session = place.bench.session("run-1", stream=place.bench.stream(starting_version=None))
    work = session.begin(place.sink)
    assert [Offset.from_json(batch.start).version for batch in work.batches][:1] == [3]
    operation.perform(place)
