"""The ledger in staging: loading from a checkpoint, finding it, writing, and what it costs in requests."""

from __future__ import annotations

import json
import logging
from datetime import timedelta

import pytest
from msgspec.structs import replace

from airflow_provider_fds.delta.storage.client_limits import TRIES
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.errors import (
    AccessDeniedError,
    CheckpointError,
    ConfigurationError,
    LedgerError,
    StorageError,
    StreamBusyError,
    UnreadableEntryError,
)
from airflow_provider_fds.ledger.entries.operator_entries import Held, Resumed, Transferred
from airflow_provider_fds.ledger.entries.request_entries import Requested
from airflow_provider_fds.ledger.layout import StreamFolder
from airflow_provider_fds.ledger.staging.log import FOLD_EVERY, Ledger
from airflow_provider_fds.ledger.state import KEPT_RUNS

FOLDER = StreamFolder("orders")


@pytest.fixture
def new_ledger(make, storage):
    """Return a maker of ledgers on one storage, each as another process would have it."""
    return lambda **changes: Ledger(storage, "orders", **{"clock": lambda: make.now, **changes})


@pytest.fixture
def write(make, new_ledger):
    """Write a stream with ``batches`` committed batches; return its ledger at the head."""

    def written(batches=3, *, fold=True, runs=1):
        ledger = new_ledger()
        for command in (make.create(), make.open(), make.bind()):
            ledger.execute(command, make.actor)
        for b in range(batches):
            run = f"r{b * runs // max(batches, 1)}"
            ledger.execute(make.plan(make.batch(b), run=run), make.actor)
            ledger.execute(make.commit(b, run=run), make.actor)
        if fold:
            ledger.save_fold()
        return ledger

    return written


# -- requests


def test_a_run_that_starts_at_the_head_costs_three_gets(write, new_ledger, storage):
    writer = write()
    storage.requests.clear()
    assert new_ledger().load(writer.checkpoint()) == writer.state
    assert dict(storage.requests) == {"get": 3}  # fold, its entry, "no next entry"


def test_a_checkpoint_that_is_behind_costs_a_get_per_entry_it_lacks(make, write, new_ledger, storage):
    writer = write()
    checkpoint = writer.checkpoint()
    writer.execute(make.plan(make.batch(3)), make.actor)
    writer.execute(make.commit(3), make.actor)
    storage.requests.clear()
    assert new_ledger().load(checkpoint) == writer.state
    assert dict(storage.requests) == {"get": 3 + 2}


def test_a_checkpoint_without_its_fold_costs_a_list_and_the_entries_since_the_fold_before(
    make, write, new_ledger, storage
):
    writer = write()
    writer.execute(make.plan(make.batch(3)), make.actor)
    writer.execute(make.commit(3), make.actor)
    storage.requests.clear()
    assert new_ledger().load(writer.checkpoint()) == writer.state
    # no fold of its own; LIST; the fold before it and its entry; two entries; "no next entry"
    assert dict(storage.requests) == {"get": 1 + 2 + 2 + 1, "list": 1}


def test_without_a_checkpoint_the_ledger_is_found_by_two_lists(make, write, new_ledger, storage):
    writer = write()
    storage.requests.clear()
    assert new_ledger().find() == writer.state
    assert dict(storage.requests) == {"list": 2, "get": 2}  # fold and its entry


def test_a_stream_that_is_new_costs_two_lists(new_ledger, storage):
    assert new_ledger().load(None).phase == "empty"
    assert dict(storage.requests) == {"list": 2}


def test_an_entry_costs_one_put_and_a_refusal_one_look(make, write, new_ledger, storage):
    ledger = new_ledger()
    ledger.load(write().checkpoint())
    storage.requests.clear()
    ledger.execute(make.plan(make.batch(3)), make.actor)
    assert dict(storage.requests) == {"put_if_absent": 1}
    storage.requests.clear()
    with pytest.raises(LedgerError):
        ledger.execute(make.commit(9), make.actor)
    assert ledger.execute(make.commit(0), make.actor) is None
    assert dict(storage.requests) == {"get": 2}


def test_an_entry_that_could_not_be_read_back_is_not_written(make, write, new_ledger, storage):
    ledger = write()
    before = dict(storage.objects)
    with pytest.raises(UnreadableEntryError, match="which was not written"):
        ledger.execute(Held(why=4711), make.person)
    assert storage.objects == before
    ledger.execute(Held(why="4711"), make.person)
    assert new_ledger().find().held.why == "4711"


def test_a_checkpoint_that_is_far_behind_catches_up_from_the_newest_fold(make, write, new_ledger, storage):
    writer = write()
    old = writer.checkpoint()
    for i in range(200):
        writer.execute(Held(why="w") if i % 2 == 0 else Resumed(why="w"), make.actor)
    ledger = new_ledger()
    storage.requests.clear()
    assert ledger.load(old) == writer.state
    assert ledger.n == old.n + 200
    assert storage.requests["get"] < 130


# -- the checkpoint in Airflow


def test_an_absent_checkpoint_is_caught_up_with_a_warning(write, new_ledger, caplog):
    writer = write()
    with caplog.at_level(logging.WARNING):
        assert new_ledger().load(None) == writer.state
    assert "checkpoint of stream 'orders' is missing" in caplog.text


def test_a_stream_that_has_committed_nothing_needs_no_checkpoint_yet(write, new_ledger, caplog):
    write(batches=0)
    with caplog.at_level(logging.WARNING):
        assert new_ledger().load(None).phase == "open"
    assert caplog.text == ""


def test_a_checkpoint_of_any_earlier_entry_leads_to_the_same_state(make, new_ledger, write):
    writer, checkpoints = new_ledger(), []
    for command in (make.create(), make.open(), make.bind(), make.plan(make.batch(0)), make.commit(0)):
        writer.execute(command, make.actor)
        checkpoints.append(writer.checkpoint())
        writer.save_fold()
    for checkpoint in checkpoints:
        assert new_ledger().load(checkpoint) == writer.state


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"digest": "0" * 32}, ["has digest", "fds recover orders"]),
        ({"uuid": "u9"}, ["uuid u9", "the ledger belongs to u1", "fds recover orders"]),
        (
            {"deployment": "test"},
            ["'test'", "'prod'", "`fds recover orders`", "also run `fds transfer orders --deployment test"],
        ),
        ({"n": 77}, ["names entry 77", "ends at entry 8", "fds recover orders"]),
        ({"n": -1}, ["fds recover orders"]),
        ({"stream": "customers"}, ["belongs to stream 'customers'", "fds recover orders"]),
        ({"epoch": 2}, ["was edited", "epoch is 2, but 1 in entry 8", "fds rewind orders", "fds recover orders"]),
        ({"batch_id": 1}, ["batch_id is 1, but 2 in entry 8"]),
        ({"offset": "{}"}, ["offset is '{}'"]),
        ({"offset": None}, ["offset is None"]),
    ],
)
def test_a_checkpoint_that_disagrees_with_the_ledger_is_an_error_that_names_the_command(
    write, new_ledger, changes, words
):
    checkpoint = replace(write().checkpoint(), **changes)
    with pytest.raises(CheckpointError) as refused:
        new_ledger().load(checkpoint)
    message = str(refused.value)
    assert [
        w
        for w in ["stream 'orders'" if "stream" not in changes else "", "memory://staging", *words]
        if w not in message
    ] == []


def test_a_checkpoint_whose_ledger_is_gone_is_an_error(write, new_ledger, storage):
    checkpoint = write().checkpoint()
    storage.objects.clear()
    with pytest.raises(CheckpointError, match=r"the ledger has no entry: the ledger was lost.*fds recover orders"):
        new_ledger().load(checkpoint)


def test_a_fold_that_outlived_its_ledger_is_not_used(write, new_ledger, storage):
    checkpoint = write().checkpoint()
    for key in [k for k in storage.objects if "_checkpoint" not in k]:
        del storage.objects[key]
    with pytest.raises(CheckpointError, match="the ledger was lost"):
        new_ledger().load(checkpoint)
    assert new_ledger().find().phase == "empty"


@pytest.mark.parametrize("damage", [b"", b"{", b'{"format":99}'])
def test_a_damaged_fold_costs_time_only(write, new_ledger, storage, damage):
    writer = write()
    storage.objects[FOLDER.fold(writer.n)] = damage
    assert new_ledger().load(writer.checkpoint()) == writer.state
    assert new_ledger().find() == writer.state


@pytest.mark.parametrize("fate", ["damaged", "lost", "foreign"])
def test_without_the_newest_fold_only_the_entries_since_the_one_before_it_are_read(
    make, write, new_ledger, storage, fate
):
    writer = write()
    for number in range(60):
        writer.execute(Held(why="wait") if number % 2 == 0 else Resumed(why="go"), make.person)
    writer.save_fold()
    newest, older = FOLDER.fold(writer.n), FOLDER.fold(49)
    assert {newest, older} <= storage.objects.keys()
    if fate == "lost":
        del storage.objects[newest]
    else:
        storage.objects[newest] = b"{" if fate == "damaged" else storage.objects[older]
    storage.requests.clear()
    assert new_ledger().load(writer.checkpoint()) == writer.state
    assert storage.requests["get"] <= 6 + writer.n - 49


def test_a_checkpoint_from_before_a_transfer_is_only_behind(make, write, new_ledger):
    checkpoint = write().checkpoint()
    builder = replace(make.person, deployment="prod2")
    new_ledger().execute(Transferred(deployment="prod2", why="moved"), builder)
    assert new_ledger(deployment="prod2").load(checkpoint).deployment == "prod2"
    with pytest.raises(LedgerError, match=r"'prod2', but this one is 'prod'.*fds transfer orders"):
        new_ledger(deployment="prod").load(checkpoint)


def test_a_copy_of_the_database_in_a_test_installation_cannot_work_the_stream(make, write, new_ledger):
    checkpoint = write().checkpoint()
    with pytest.raises(LedgerError, match=r"'prod', but this one is 'test'"):
        new_ledger(deployment="test").load(checkpoint)
    looking = new_ledger()
    looking.load(checkpoint)
    with pytest.raises(LedgerError, match=r"'prod', but this one is 'test'"):
        looking.execute(Held(why="x"), replace(make.person, deployment="test"))


# -- entries


def test_a_missing_entry_is_found(write, new_ledger, storage):
    write(fold=False)
    del storage.objects[FOLDER.entry(4)]
    with pytest.raises(LedgerError, match=r"00004\.json is missing, although entry 8 exists.*fds recover orders"):
        new_ledger().find()


def test_an_entry_under_another_number_is_found(write, new_ledger, storage):
    write(fold=False)
    storage.objects[FOLDER.entry(4)] = storage.objects[FOLDER.entry(5)]
    with pytest.raises(LedgerError, match=r"00004\.json says it is number 5"):
        new_ledger().find()


def test_other_files_among_the_entries_are_ignored(write, new_ledger, storage):
    writer = write()
    for name in ("00000000000000000099.json.tmp", "README", "7.json", "000000000000000000099.json"):
        storage.objects[f"{FOLDER.entries}/{name}"] = b"?"
    assert new_ledger().find() == writer.state


def test_entries_can_be_read_from_any_number_on(write):
    ledger = write()
    assert [e.n for e in ledger.entries()] == list(range(9))
    assert [e.n for e in ledger.entries(7)] == [7, 8]
    assert [e.action.kind for e in ledger.entries(7)] == ["planned", "committed"]


def test_entries_hold_the_writers_clock_and_a_random_id(make, write):
    first, second = list(write().entries())[:2]
    assert first.time == "2026-11-20T12:30:15.250Z"
    assert len(first.id) == 32
    assert first.id != second.id


def test_a_ledger_without_an_entry_has_no_checkpoint(new_ledger):
    ledger = new_ledger()
    with pytest.raises(LedgerError, match="no ledger in memory://staging"):
        ledger.checkpoint()


def test_folds_are_written_now_and_then(make, write, storage):
    write(batches=FOLD_EVERY, fold=False)
    assert [k for k in sorted(storage.objects) if "_checkpoint" in k] == [FOLDER.fold(49), FOLDER.fold(99)]


def test_an_existing_fold_is_not_written_again(write, new_ledger, storage):
    writer = write()
    storage.requests.clear()
    writer.save_fold()
    reader = new_ledger()
    reader.load(writer.checkpoint())
    reader.save_fold()
    assert storage.requests["put"] == 0


def test_a_fold_that_cannot_be_written_stops_nothing(make, write, storage):
    ledger = write(fold=False)
    storage.fail["put"] = 9
    ledger.save_fold()
    assert ledger.execute(make.plan(make.batch(3)), make.actor).n == 9


# -- writing


# D29
def test_a_writer_that_was_overtaken_decides_again_on_what_is_there_now(make, write, new_ledger):
    first = write()
    second = new_ledger()
    second.load(first.checkpoint())
    first.execute(make.plan(make.batch(3)), make.actor)
    with pytest.raises(StreamBusyError, match="run r1"):
        second.execute(make.plan(make.batch(3), run="r2"), make.actor)
    assert second.state == first.state


def test_a_writer_whose_request_was_overtaken_by_something_harmless_writes_after_it(make, write, new_ledger):
    first = write()
    second = new_ledger()
    second.load(first.checkpoint())
    first.execute(Held(why="pause"), make.person)
    assert second.execute(Requested(reason="rewind", why="x"), make.person).n == 10


def test_the_cause_of_a_refusal_may_be_gone_meanwhile(make, write, new_ledger):
    first = write()
    first.execute(Held(why="pause"), make.person)
    stale = new_ledger()
    stale.find()
    first.execute(Resumed(why="go"), make.person)
    assert stale.execute(make.plan(make.batch(3)), make.actor).action.kind == "planned"
    assert first.execute(Held(why="again"), make.person) is not None


def test_a_lost_response_is_read_back_by_its_id(make, write, storage):
    ledger = write()
    storage.lose_response["put_if_absent"] = 1
    entry = ledger.execute(make.plan(make.batch(3)), make.actor)
    assert (entry.n, ledger.n) == (9, 9)
    assert [e.id for e in ledger.entries(9)] == [entry.id]


def test_a_request_that_never_arrived_is_sent_again(make, write, storage):
    ledger = write()
    storage.fail["put_if_absent"] = TRIES - 1
    assert ledger.execute(make.plan(make.batch(3)), make.actor).n == 9


def test_a_client_that_repeats_by_itself_does_not_lose_its_own_entry(make, write, storage):
    ledger = write()
    put = storage.put_if_absent
    storage.put_if_absent = lambda key, data: put(key, data) and put(key, data)  # first answer lost, second "exists"
    assert ledger.execute(make.plan(make.batch(3)), make.actor).n == 9


def test_a_store_that_does_not_answer_at_all_is_a_retryable_error(make, write, storage):
    ledger = write()
    storage.fail["put_if_absent"] = 99
    with pytest.raises(
        StorageError, match=r"it is unknown whether entry .*00009\.json \(planned\) was written"
    ) as failed:
        ledger.execute(make.plan(make.batch(3)), make.actor)
    assert failed.value.retryable
    storage.fail.clear()
    assert ledger.execute(make.plan(make.batch(3)), make.actor).n == 9


def test_reads_that_fail_are_repeated(write, new_ledger, storage):
    writer = write()
    storage.fail["get"] = TRIES - 1
    assert new_ledger().load(writer.checkpoint()) == writer.state
    storage.fail["get"] = TRIES
    with pytest.raises(StorageError):
        new_ledger().load(writer.checkpoint())


def test_a_persons_request_has_a_name_and_a_repeated_one_is_the_same(make, write, new_ledger):
    ledger = write()
    rewind = Requested(reason="rewind", why="x")
    entry = ledger.execute(rewind, make.person, request_id="q1")
    assert new_ledger().execute(rewind, make.person, request_id="q1") == entry
    assert ledger.n == entry.n
    with pytest.raises(LedgerError, match="request id 'q1' was already used, for 'requested'"):
        ledger.execute(Held(why="x"), make.person, request_id="q1")
    with pytest.raises(LedgerError, match="not opened"):
        ledger.execute(rewind, make.person, request_id="q2")


# -- the self-test


def test_a_store_that_ignores_the_condition_is_detected_before_the_stream_is_created(make, new_ledger, storage):
    storage.honours_condition = False
    with pytest.raises(ConfigurationError, match=r"memory://staging of stream 'orders'.*does not honour put-if-absent"):
        new_ledger().execute(make.create(), make.actor)
    assert storage.objects == {}


def test_a_store_that_refuses_but_still_overwrites_is_detected_too(new_ledger, storage):
    put = storage.put_if_absent

    def put_if_absent(key, data):
        is_new = put(key, data)
        storage.objects[key] = data
        return is_new

    storage.put_if_absent = put_if_absent
    with pytest.raises(ConfigurationError, match="does not honour put-if-absent"):
        new_ledger().self_test()


def test_the_self_test_leaves_nothing_and_survives_lost_responses(new_ledger, storage):
    storage.lose_response["put_if_absent"] = 2
    new_ledger().self_test()
    assert storage.objects == {}


def test_a_staging_that_is_not_writable_says_what_to_do(make, new_ledger, storage):
    def denied(key, data):
        raise AccessDeniedError("403")

    storage.put_if_absent = denied
    with pytest.raises(
        AccessDeniedError, match=r"memory://staging of stream 'orders' cannot be used: 403.*\[fds\] staging"
    ):
        new_ledger().execute(make.create(), make.actor)


# -- runs of long ago


def test_an_old_run_is_found_in_the_entries(make, write, storage):
    ledger = write(batches=KEPT_RUNS + 5, runs=KEPT_RUNS + 5)
    assert ledger.state.run_of(make.owner("r2")) is None
    record = ledger.find_run(make.owner("r2"))
    assert (record.first_batch_id, record.last_batch_id, record.rows) == (2, 2, 20)
    assert ledger.find_run(make.owner("nobody")) is None


def test_a_run_is_not_looked_for_where_it_cannot_be(make, write, storage):
    young, old = write(), None
    storage.requests.clear()
    assert young.find_run(make.owner("nobody")) is None
    assert dict(storage.requests) == {}  # the state has forgotten no run yet
    storage.objects.clear()
    old = write(batches=KEPT_RUNS + 5, runs=KEPT_RUNS + 5)
    storage.requests.clear()
    assert old.find_run(make.owner("nobody"), since=make.now + timedelta(days=2)) is None
    assert dict(storage.requests) == {"get": 1}


# -- a real file system


def test_the_ledger_is_in_its_documented_place(make, tmp_path):
    ledger = Ledger(LocalStorage(str(tmp_path)), "orders", clock=lambda: make.now)
    ledger.load(None)
    ledger.execute(make.create(), make.actor)
    ledger.execute(make.open(), make.actor)
    ledger.save_fold()
    files = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
    assert files == [FOLDER.entry(0), FOLDER.entry(1), FOLDER.fold(1)]
    assert json.loads((tmp_path / files[0]).read_text())["action"]["kind"] == "created"
    again = Ledger(LocalStorage(str(tmp_path)), "orders")
    assert again.load(ledger.checkpoint()) == ledger.state
    assert again.uri == (tmp_path / "orders").as_uri()


def test_the_ledger_of_another_stream_is_refused_in_a_folder_that_was_renamed_or_copied(make, storage):
    Ledger(storage, "orders").execute(make.create(), make.actor)
    storage.objects |= {key.replace("orders/", "copy/", 1): data for key, data in storage.objects.items()}
    with pytest.raises(LedgerError, match="belongs to stream 'orders', not 'copy'"):
        Ledger(storage, "copy").find()
