"""What a move says of rows that stay in the sink: the version without them, and the commands that remove them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.batch.transactions import fence_version
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.ledger.entries.request_entries import Requested
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.ledger.values import Fence
from airflow_provider_fds.sinks import DeltaAppendSink
from airflow_provider_fds.stream.actions.action_builder import ActionBuilder
from tests.unit.ledger.conftest import Make
from tests.unit.stream.epochs.test_epoch_start import load_all, move

if TYPE_CHECKING:
    from tests.unit.stream.conftest import Bench

LAST = "The last version of the sink without them"


def load(bench: Bench, sink: DeltaAppendSink, run: str, **options: Any) -> None:
    load_all(bench, sink, run, stream=bench.stream(**options))


def builder(bench: Bench) -> ActionBuilder:
    ledger = Ledger(open_storage(str(bench.staging)), "orders")
    ledger.find()
    return ActionBuilder(ledger, "a test")


@pytest.fixture
def two_batches(bench: Bench, log_builder: Any, sink: DeltaAppendSink) -> Bench:
    """Versions 1 and 2 in batch 0, sink version 1; versions 3 and 4 in batch 1, sink version 2; 10 rows each."""
    log_builder.create()
    for _ in range(4):
        log_builder.append(1)
    load(bench, sink, "run-1", max_versions_per_batch=2)
    return bench


def test_a_rewind_into_a_batch_names_no_version_without_rows_that_are_not_read_again(two_batches):
    said = builder(two_batches).rewind(to=4, sink_rows="keep").describe()

    assert "1 committed batch (up to 20 rows) is read again, only the last part of one of them" in said
    assert LAST not in said
    assert "`fds rewind orders --replace --to 4 --sink-rows delete --why …` (with provenance)" in said
    assert "`fds rewind orders --to start --replace --sink-rows empty --why …`" in said


def test_a_rewind_to_where_a_batch_began_names_the_last_version_without_it(two_batches):
    for said in (
        builder(two_batches).rewind(to=3, sink_rows="keep").describe(),
        builder(two_batches).rewind(to="batch:1", sink_rows="keep").describe(),
    ):
        assert "1 committed batch (20 rows) is read again. Their rows stay in the sink" in said
        assert f"{LAST} is 1." in said
        assert "--to 3 --sink-rows delete" in said
        assert "DELETE FROM" not in said
        assert "RESTORE" not in said


def test_no_version_of_the_sink_is_without_the_batch_that_made_it(bench, log_builder, sink):
    log_builder.create()
    log_builder.append(1)
    bench.sink_version = -1  # the first commit of the sink is its version 0
    load(bench, sink, "run-1")

    said = builder(bench).rewind(to="batch:0", sink_rows="keep").describe()

    assert LAST not in said
    assert "`fds rewind orders --to start --replace --sink-rows empty --why …`" in said


def test_no_version_is_named_that_lacks_older_rows_which_were_loaded_later(two_batches, sink):
    move(two_batches, "rewind", to=2)
    load(two_batches, sink, "run-2", max_versions_per_batch=1)

    # versions 3 and 4 are in sink version 2 (epoch 1), version 2 in a later one
    said = builder(two_batches).rewind(to=3, sink_rows="keep").describe()

    assert LAST not in said
    assert "--to 3 --sink-rows delete" in said


def test_rows_of_a_snapshot_are_not_identified_by_their_version(bench, log_builder, sink):
    log_builder.create()
    log_builder.append(2)
    log_builder.append(2)
    load(bench, sink, "run-1", starting_version=None, max_files_per_batch=3)

    said = builder(bench).rewind(to=2, sink_rows="keep").describe()

    assert LAST not in said
    assert "--sink-rows delete" not in said
    assert "`fds rewind orders --to start --replace --sink-rows empty --why …`" in said


def test_a_batch_that_began_within_a_version_is_not_identified_by_its_version(bench, log_builder, sink):
    log_builder.create()
    log_builder.append(4)
    load(bench, sink, "run-1", max_files_per_batch=2)

    said = builder(bench).rewind(to="batch:1", sink_rows="keep").describe()

    assert f"{LAST} is 1." in said
    assert "--sink-rows delete" not in said


@pytest.fixture
def counted_batch() -> Ledger:
    """Versions 0 to 2 in sink versions 0, 1 and 3; the one of version 1 was never committed, a replan counted it."""
    make = Make()
    storage = make.Storage()

    def ledger() -> Ledger:
        found = Ledger(storage, "orders", clock=lambda: make.now)
        found.find()
        return found

    fence = Fence(status="done", versions={"fds:u1": fence_version(2)}, sink_version=2, sink_table_id=make.sink_id)
    third = make.batch(
        0, 2, start=make.offset(2), end=make.offset(3), first_version=2, last_version=2, prev=fence_version(2)
    )
    for action in (
        make.create(),
        make.open(),
        make.bind(table_id=make.sink_id),
        make.plan(make.batch(0), make.batch(1)),
        make.commit(0, sink_version=0),
        Requested(reason="replan", why="a test", closes=1),
        make.open(2, version=2, fence=fence, landed=1, continues=True),
        make.plan(third, epoch=2),
        make.commit(0, epoch=2, sink_version=3),
    ):
        ledger().execute(action, make.actor)
    return ledger()


def test_a_batch_that_a_replan_counted_as_loaded_is_among_the_rows_that_are_read_again(counted_batch):
    said = ActionBuilder(counted_batch, "a test").rewind(to=1, sink_rows="keep").describe()

    assert "2 committed batches (40 rows) are read again" in said
    # the version before the commit of version 2 has the rows of version 1
    assert LAST not in said
    assert "--to 1 --sink-rows delete" in said


def test_the_last_version_is_without_a_batch_after_the_one_that_a_replan_counted_as_loaded(counted_batch):
    said = ActionBuilder(counted_batch, "a test").rewind(to=2, sink_rows="keep").describe()

    assert "1 committed batch (20 rows) is read again" in said
    assert f"{LAST} is 2." in said


@pytest.mark.parametrize(
    ("first", "sink_rows", "to", "says"),
    [
        (1, "empty", 1, "2 committed batches (40 rows) are read again"),
        (3, "delete", 1, "2 committed batches (40 rows) are read again"),
        (3, "delete", 3, "1 committed batch (20 rows) is read again"),
        (3, "keep", 3, "2 committed batches (40 rows) are read again"),
    ],
)
def test_rows_that_an_earlier_rewind_removed_are_not_counted_again(
    bench, log_builder, tmp_path, first, sink_rows, to, says
):
    sink = DeltaAppendSink(str(tmp_path / "sink"), provenance=True)
    log_builder.create()
    for _ in range(4):
        log_builder.append(1)
    load(bench, sink, "run-1", max_versions_per_batch=2, starting_version=1)
    move(bench, "rewind", to=first, sink_rows=sink_rows)
    load(bench, sink, "run-2", max_versions_per_batch=2, starting_version=1)

    assert says in builder(bench).rewind(to=to, sink_rows="keep").describe()
