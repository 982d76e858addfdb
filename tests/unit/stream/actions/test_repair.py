"""A ledger with entries that cannot be read: `fds recover` names them, and begins it again after what the sink has."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.cli.main import main
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import FdsError, LedgerError, UnreadableEntryError, VerificationError
from airflow_provider_fds.ledger.entries import epoch_entries, operator_entries
from airflow_provider_fds.ledger.entries.entry import Entry
from airflow_provider_fds.ledger.owner import Actor
from airflow_provider_fds.ledger.staging.access import answer
from airflow_provider_fds.ledger.staging.housekeeping import purge_expired
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.actions.recovery import ask_sink, recovery
from airflow_provider_fds.stream.actions.repair import inspect, repair
from tests.unit.stream.actions.test_recovery import Sink, recover, rewind_to, state_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.stream.conftest import Bench

ACTOR = Actor(deployment="test", user="ann", host="desk")


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    return Sink(tmp_path / "sink")


@pytest.fixture
def loaded(bench: Bench, log_builder: Any, sink: Sink) -> Sink:
    """Three versions are loaded, in a batch each; entries 0 to 6: created, opened, bound, planned, 3 committed."""
    log_builder.create()
    for _ in range(3):
        log_builder.append(1)
    sink.load(bench, "run-1")
    return sink


def entries_of(bench: Bench) -> list[Path]:
    return sorted((bench.staging / "orders" / "ledger").glob("*.json"))


def forget_folds(bench: Bench) -> None:
    shutil.rmtree(bench.staging / "orders" / "ledger" / "_checkpoint", ignore_errors=True)


def damage(bench: Bench, *numbers: int, data: bytes = b"\xff\x00") -> None:
    forget_folds(bench)
    for n in numbers:
        entries_of(bench)[n].write_bytes(data)


def command(bench: Bench, capsys: Any, *words: str) -> tuple[int, str]:
    code = main([*words, "--staging", str(bench.staging)])
    told = capsys.readouterr()
    return code, told.out + told.err


def goes_on(bench: Bench, sink: Sink, log_builder: Any, *, versions: int = 3) -> None:
    """Assert that the next run asks for a fence, and where the epoch goes on after it."""
    log_builder.append(1)
    work = bench.session("run-9").begin(sink.value)
    assert work.status == "fence"
    assert Offset.from_json(state_of(bench).request.to["offset"]).version == versions + 1


@pytest.mark.parametrize("numbers", [(0,), (3,), (6,), (0, 3, 6), (0, 1, 2, 3, 4, 5, 6)])
def test_a_ledger_with_unreadable_entries_continues_after_what_the_sink_has(
    bench, loaded, log_builder, capsys, numbers
):
    before = state_of(bench)
    damage(bench, *numbers)
    with pytest.raises(LedgerError, match=r"is damaged.*`fds recover orders`"):
        bench.session("run-2").begin(loaded.value)

    code, told = recover(bench, loaded, capsys)

    assert code == 0
    for n in numbers:
        assert f"entry {n} of 0 to 6 cannot be read: is damaged: its 2 bytes are not an entry" in told
    assert "batch 2 of epoch 1 in version 3, up to the beginning of version 4" in told
    assert f"Lost: the decisions of entry {', '.join(map(str, numbers))}, " in told
    state = state_of(bench)
    assert (state.uuid, state.table, state.deployment) == (before.uuid, before.table, "test")
    assert state.sink == before.sink
    assert state.needs_fence
    # any of them may have asked for an epoch
    assert state.epoch == 1 + len(numbers) + 1
    goes_on(bench, loaded, log_builder)


@pytest.mark.parametrize("numbers", [(2,), (0, 1, 2), (3, 5)])
def test_missing_entries_are_found_and_filled_so_that_no_writer_takes_their_numbers(
    bench, loaded, log_builder, capsys, numbers
):
    forget_folds(bench)
    for path in [entries_of(bench)[n] for n in numbers]:
        path.unlink()

    code, told = recover(bench, loaded, capsys)

    assert code == 0
    assert [f"entry {n} of 0 to 6 cannot be read: is missing" in told for n in numbers] == [True] * len(numbers)
    assert len(entries_of(bench)) == 8
    goes_on(bench, loaded, log_builder)


def test_the_readable_part_of_a_damaged_entry_is_shown(bench, loaded, capsys):
    entry = json.loads(entries_of(bench)[5].read_bytes())
    entry["action"]["rows"] = "many"
    damage(bench, 5, data=json.dumps(entry, separators=(",", ":")).encode())

    _, told = recover(bench, loaded, capsys)

    assert "its bytes look like `committed` of batch 1, epoch 1" in told
    assert "before it: 5 entries (1 created, 1 opened, 1 bound, 1 planned, 1 committed), up to batch 0 of" in told
    assert "after it:  1 entries (1 committed), up to batch 2 of epoch 1, which ends at the beginning of" in told


@pytest.mark.parametrize("change", [{"format": 3}, {"writer": "7.1.0", "action": {"kind": "teleported"}}])
@pytest.mark.parametrize("with_damage", [False, True])
def test_an_entry_of_a_newer_version_is_not_given_up(bench, loaded, capsys, change, with_damage):
    newer = json.loads(entries_of(bench)[4].read_bytes()) | change
    damage(bench, 4, data=json.dumps(newer).encode())
    if with_damage:
        damage(bench, 2)
    before = {path: path.read_bytes() for path in entries_of(bench)}

    code, told = recover(bench, loaded, capsys)

    assert code == 2
    assert "00004.json" in told
    assert "Install" in told
    assert {path: path.read_bytes() for path in entries_of(bench)} == before


def test_a_repaired_ledger_is_read_whole_by_runs_history_and_moves(bench, loaded, log_builder, capsys):
    damage(bench, 3)
    recover(bench, loaded, capsys)
    forget_folds(bench)
    purge_expired(ledger_of(bench), open_storage(str(bench.staging)), now=datetime.now(UTC) + timedelta(days=30))

    code, told = command(bench, capsys, "history", "orders")
    assert code == 0
    assert "WARNING ledger entry" in told
    assert "instead of unreadable entry 3" in told
    assert command(bench, capsys, "status", "orders")[0] == 0
    assert "The history lacks batches" in rewind_to(bench, 1, capsys)
    code, told = command(
        bench, capsys, "rewind", "orders", "--to", "batch:0", "--sink-rows", "keep", "--why", "w", "--yes"
    )
    assert (code, "no batch 0" in told) == (2, True)


def test_a_damaged_entry_before_a_later_fold_stops_no_run_and_is_only_left_out_of_the_history(bench, loaded, capsys):
    state = state_of(bench)
    checkpoint = Ledger(open_storage(str(bench.staging)), "orders")
    checkpoint.find()
    checkpoint.save_fold()
    entries_of(bench)[3].write_bytes(b"")

    assert state_of(bench) == state
    code, told = recover(bench, loaded, capsys)
    assert code == 0
    assert "entry 3 of 0 to 6 cannot be read" in told
    assert "a fold of a later entry has its effect" in told
    assert len(entries_of(bench)) == 7
    assert command(bench, capsys, "history", "orders")[0] == 0
    code, told = command(
        bench, capsys, "rewind", "orders", "--to", "batch:1", "--sink-rows", "keep", "--why", "w", "--yes"
    )
    assert (code, "no batch 1" in told) == (2, True)
    assert "The history lacks batches" in rewind_to(bench, 1, capsys)


@pytest.mark.parametrize("n", [0, 3, 6])
def test_a_checkpoint_from_before_the_repair_only_lags(bench, loaded, capsys, n):
    reader = Ledger(open_storage(str(bench.staging)), "orders")
    checkpoint = next(found.checkpoint() for found in folds(bench) if found.n == n)
    damage(bench, 3)
    recover(bench, loaded, capsys)
    for _ in range(2):
        assert reader.load(checkpoint) == state_of(bench)
        forget_folds(bench)


def folds(bench: Bench) -> list[Any]:
    from airflow_provider_fds.ledger.entries.fold import Fold
    from airflow_provider_fds.ledger.state import StreamState

    found = [Fold(n=-1, digest="", state=StreamState(name="orders"))]
    for path in entries_of(bench):
        data = path.read_bytes()
        found.append(found[-1].plus(Entry.from_json(data, where=path.name), data))
    return found


def test_a_repair_that_is_called_again_asks_for_nothing_more(bench, loaded, capsys):
    damage(bench, 3)
    recover(bench, loaded, capsys)
    entries = entries_of(bench)
    code, told = recover(bench, loaded, capsys)

    assert code == 0
    assert "cannot be read, skipped" in told
    assert entries_of(bench) == entries


def test_a_repair_that_dies_at_any_access_is_finished_by_the_next(bench, loaded, capsys, tmp_path):
    forget_folds(bench)
    entries_of(bench)[2].write_bytes(b"{")
    for path in [entries_of(bench)[n] for n in (1, 4)]:
        path.unlink()
    shutil.copytree(bench.staging, tmp_path / "copy")
    done = 0
    while True:
        shutil.rmtree(bench.staging)
        shutil.copytree(tmp_path / "copy", bench.staging)
        is_whole = repair_up_to(bench, loaded, done)
        code, _ = recover(bench, loaded, capsys)
        assert code == 0
        state = state_of(bench)
        assert (state.phase, state.epoch, state.sink.kind) == ("requested", 5, "delta_append")
        assert len(entries_of(bench)) == 8
        if is_whole:
            break
        done += 1
    assert done > 3


def repair_up_to(bench: Bench, sink: Sink, accesses: int) -> bool:
    """Begin a ledger again, and stop after so many accesses; say whether it came to its end."""
    storage = open_storage(str(bench.staging))
    ledger = Ledger(storage, "orders")
    found = worked_out(ledger, sink)
    steps = ledger.begin_again_steps(found.created, ACTOR, after=found.after, missing=found.missing)
    result = None
    for _ in range(accesses):
        try:
            result = answer(steps.send(result), storage)
        except StopIteration:
            return True
    return False


def worked_out(ledger: Ledger, sink: Sink) -> Any:
    account = ask_sink(open_storage(sink.value.uri), "orders")
    return repair(ledger, inspect(ledger), account, table="t", deployment="test", is_sink_named=True)


def test_a_ledger_that_another_writer_changes_meanwhile_is_read_again(bench, loaded):
    writer = Ledger(open_storage(str(bench.staging)), "orders")
    writer.find()
    damage(bench, 3)
    ledger = Ledger(open_storage(str(bench.staging)), "orders")
    found = worked_out(ledger, loaded)
    writer.execute(operator_entries.Held(why="w"), ACTOR)

    with pytest.raises(LedgerError, match="was written in the meantime"):
        found.perform(ledger, ACTOR)
    again = worked_out(ledger, loaded)
    assert again.created.recovered.held == "w"
    again.perform(ledger, ACTOR)
    assert state_of(bench).held.why == "w"


def test_a_run_that_had_read_the_ledger_before_is_refused_after_the_repair(bench, loaded, log_builder, capsys):
    session = bench.session("run-2", stream=bench.stream(max_versions_per_batch=1))
    session.begin(loaded.value)
    log_builder.append(1)
    damage(bench, 3)
    recover(bench, loaded, capsys)

    stale = session.connected.ledger
    with pytest.raises(FdsError, match="epoch"):
        stale.execute(epoch_entries.Ended(epoch=1, instant="2024-01-01T00:00:00.000Z", version=1), ACTOR)
    assert stale.state.epoch == state_of(bench).epoch


def test_a_batch_that_lands_after_the_sink_was_asked_is_recovered_by_asking_again(bench, loaded, log_builder, capsys):
    damage(bench, 0, 3)
    recover(bench, loaded, capsys)
    landed = json.loads(loaded.builder.path_of(3).read_text().splitlines()[0])
    told = json.loads(landed["commitInfo"]["userMetadata"])
    end = json.loads(told["end"]) | {"reservoirVersion": 5}
    told |= {"batch_id": 3, "end": json.dumps(end), "digest": "d"}
    loaded.builder.commit(loaded.builder.add("late.parquet"), userMetadata=json.dumps(told))

    code, text = recover(bench, loaded, capsys)

    assert code == 0
    assert "continues at the beginning of version 5" in text
    assert (
        recovery(
            ledger_of(bench), ask_sink(open_storage(loaded.value.uri), "orders"), table="t", deployment="test", why="w"
        )
        is None
    )


def ledger_of(bench: Bench) -> Ledger:
    ledger = Ledger(open_storage(str(bench.staging)), "orders")
    ledger.find()
    return ledger


@pytest.mark.parametrize(
    ("damaged", "words"),
    [
        ("a sink that was restored", "was restored or replaced at version 4"),
        ("a sink without a batch", "the sink has no batch of the stream"),
        ("an older sink", "batch 2 of epoch 1 was committed, but the newest that the sink"),
    ],
)
def test_a_sink_without_the_evidence_is_refused_and_nothing_is_written(bench, loaded, capsys, tmp_path, damaged, words):
    sink = loaded
    if "restored" in damaged:
        sink.builder.commit(operation="RESTORE")
    elif "older" in damaged:
        sink.builder.path_of(3).unlink()
    else:
        sink = Sink(tmp_path / "another")
    damage(bench, 3)

    code, told = recover(bench, sink, capsys)

    assert (code, words in told) == (2, True)
    assert len(entries_of(bench)) == 7


def test_a_checkpoint_that_is_ahead_of_the_sink_is_trusted(bench, loaded, capsys, tmp_path):
    ledger = ledger_of(bench)
    path = tmp_path / "checkpoint.json"
    path.write_text(ledger.checkpoint().to_json())
    damage(bench, 4, 5, 6)
    loaded.builder.path_of(3).unlink()

    code, told = recover(bench, loaded, capsys, "--checkpoint", str(path))

    assert (code, "batch 2 of epoch 1 was committed" in told) == (2, True)


def test_a_batch_whose_verification_failed_does_not_count_as_loaded(bench, loaded, log_builder, capsys):
    log_builder.append(1)
    session = bench.session("run-2")
    work = session.begin(loaded.value)
    spec = session.job(work, loaded.value)
    bench.report(session, work, spec, rows_written=0, sink_table_id=loaded.builder.table_id)
    with pytest.raises(VerificationError):
        session.collect(work)
    damage(bench, 3)

    code, told = recover(bench, loaded, capsys)

    assert (code, "its verification failed" in told) == (2, True)


def test_a_stream_within_its_snapshot_continues_there_if_the_frozen_list_is_left(
    bench, log_builder, sink, capsys, monkeypatch
):
    log_builder.create()
    for _ in range(3):
        log_builder.append(1)
    stream = bench.stream(starting_version=None, max_files_per_batch=1)
    monkeypatch.setattr(bench, "stream", lambda **_options: stream)
    sink.load(bench, "run-1", batches=1)
    damage(bench, 3)
    code, told = recover(bench, sink, capsys)
    assert code == 0, told
    state = state_of(bench)
    assert state.closed.snapshot is not None
    assert recover(bench, sink, capsys)[0] == 0
    assert bench.session("run-2").begin(sink.value).status == "fence"


def test_readable_decisions_of_people_are_kept(bench, loaded, capsys, log_builder):
    ledger = ledger_of(bench)
    for word in (
        operator_entries.Held(why="month's end"),
        operator_entries.Acknowledged(version=7, why="read it", skip=True),
        operator_entries.Acknowledged(version=4, why="read it"),
        # the stream has passed it, but a rewind may read it again
        operator_entries.Acknowledged(version=0, why="read it"),
    ):
        ledger.execute(word, ACTOR)
    for _ in range(2):
        damage(bench, 3)
        recover(bench, loaded, capsys)
    state = state_of(bench)
    assert state.held.why == "month's end"
    assert [(word.version, word.skip) for word in state.acknowledged] == [(7, True), (4, False), (0, False)]
    assert {word.table_id for word in state.acknowledged} == {log_builder.table_id}, "another table has others"


def test_a_stream_that_has_ended_is_not_begun_again(bench, loaded, capsys):
    ledger_of(bench).execute(operator_entries.Retired(why="w"), ACTOR)
    damage(bench, 3)
    code, told = recover(bench, loaded, capsys)
    assert (code, "has ended for good" in told) == (2, True)


def test_the_sink_has_to_be_named_where_the_ledger_may_not_know_it(bench, loaded, capsys):
    damage(bench, 1, 3)
    words = ("recover", "orders", "--deployment", "test", "--yes")
    code, told = command(bench, capsys, *words)
    assert (code, "Name the sink that it last wrote to" in told) == (2, True)


def test_a_file_with_a_number_that_fds_never_gives_is_named(bench, loaded, capsys):
    forget_folds(bench)
    (bench.staging / "orders" / "ledger" / "99999999999999999999.json").write_bytes(b"{}")
    code, told = recover(bench, loaded, capsys)
    assert (code, "has a file for entry 99999999999999999999" in told) == (2, True)


def test_an_entry_restored_after_the_repair_changes_nothing(bench, loaded, capsys):
    original = entries_of(bench)[3].read_bytes()
    damage(bench, 3)
    recover(bench, loaded, capsys)
    state = state_of(bench)
    forget_folds(bench)
    entries_of(bench)[3].write_bytes(original)
    assert state_of(bench) == state


def test_damage_that_is_found_by_a_run_names_the_entry_and_the_command(bench, loaded):
    damage(bench, 3)
    with pytest.raises(UnreadableEntryError) as refused:
        bench.session("run-2").begin(loaded.value)
    assert refused.value.n == 3
    assert not refused.value.is_newer
