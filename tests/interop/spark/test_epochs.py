"""Epochs on real Spark and Delta: whatever is asked for, in whatever order, each row of the source is in the sink once.

Each test plays a person's requests, runs, and zombies: drivers that were started and write later than they should.
"""

from __future__ import annotations

import shutil
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import deltalake
import pyarrow as pa
import pytest

from airflow_provider_fds.batch.sink.sink_commit import parse_commit
from airflow_provider_fds.batch.spec import JobSpec
from airflow_provider_fds.batch.transactions import fence_version, txn_app_id
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import BatchFailedError, BatchRejectedError, ConfigurationError, FdsError, LedgerError
from airflow_provider_fds.ledger.owner import Actor, Owner
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink
from airflow_provider_fds.spark.application.job_run import run
from airflow_provider_fds.stream import DeltaStream, StreamContext, StreamSession
from airflow_provider_fds.stream.actions.action_builder import ActionBuilder
from airflow_provider_fds.stream.actions.prepared_action import perform
from airflow_provider_fds.stream.actions.recovery import ask_sink, recovery
from tests.moves import requested

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_provider_fds.batch.sink.sink_commit import SinkCommit
    from airflow_provider_fds.checkpoint.file import FileCheckpointStore
    from airflow_provider_fds.ledger.entries.entry import Entry
    from airflow_provider_fds.sinks import DeltaSink
    from airflow_provider_fds.stream import RunWork
    from tests.interop.spark.conftest import Prepared

PERSON = Actor(deployment="test", user="ann", host="desk")


class Desk:
    """A source, a sink, and a person who moves the stream between them. Every commit of the source has ten rows."""

    def __init__(self, spark: SparkSession, folder: Path, name: str = "orders") -> None:
        self.spark = spark
        self.name = name
        self.folder = folder
        self.source = str(folder / "orders")
        self.staging = str(folder / "staging")
        self.path = str(folder / "sink é")
        self.sink: DeltaSink = DeltaAppendSink(self.path, provenance=True)
        self.options: dict[str, Any] = {"starting_version": 0, "max_versions_per_batch": 1}
        self.checkpoints: FileCheckpointStore | None = None
        self._runs = 0

    @property
    def table(self) -> str:
        return f"delta.`{self.path}`"

    def append(self, first: int, count: int = 10) -> None:
        ids = range(first, first + count)
        table = pa.table({"id": list(ids), "name": [f"name {number}" for number in ids]})
        deltalake.write_deltalake(self.source, table, mode="append")

    def restore(self, version: int) -> None:
        """Restore the sink to a version, as RESTORE of Spark does."""
        deltalake.DeltaTable(self.path).restore(version)

    def recreate(self, first: int, count: int) -> None:
        """Make another table in the place of the source."""
        shutil.rmtree(self.source)
        self.append(first, count)

    def session(self) -> StreamSession:
        """The next run; the ones before it are taken for dead."""
        self._runs += 1
        owner = Owner(kind="airflow", deployment="test", dag_id="d", run_id=f"r{self._runs}", task_id="t")
        actor = Actor(deployment="test", dag_id="d", run_id=owner.run_id, task_id="t", try_number=1)
        context = StreamContext(
            staging_uri=self.staging, deployment="test", actor=actor, owner=owner,
            owner_is_running=lambda _owner: False, checkpoints=self.checkpoints,
        )  # fmt: skip
        return StreamSession(DeltaStream(self.name, table=self.source, **self.options), context)

    def submit(self, session: StreamSession, work: RunWork) -> JobSpec:
        uri = session.job(work, self.sink)
        return JobSpec.from_json(Path(unquote(urlsplit(uri).path)).read_bytes())

    def load(self, max_batches: int = 200) -> StreamSession:
        """One run, until it is up to date."""
        session = self.session()
        while (work := session.begin(self.sink, max_batches=max_batches)).status in ("fence", "work"):
            run(self.spark, self.submit(session, work))
            collected = session.collect(work)
            if collected.failure is not None:
                raise collected.failure
            if work.status == "work" and max_batches < 200:
                break
        return session

    def zombie(self) -> JobSpec:
        """The driver of a run that has planned, and stands still before it looks into the sink."""
        session = self.session()
        work = session.begin(self.sink)
        assert work.status == "work"
        return self.submit(session, work)

    def builder(self, **kw: Any) -> ActionBuilder:
        sink_log = DeltaLog(open_storage(self.path)) if Path(self.path).exists() else None
        return ActionBuilder(self.ledger(), "a test", log=DeltaLog(open_storage(self.source)), sink_log=sink_log, **kw)

    def move(self, name: str, *, replaces: bool = False, request_id: str | None = None, **arguments: Any) -> str:
        """Ask for a move as ``fds`` does; return what is shown before it is made."""
        builder = self.builder(replaces=replaces)
        if name in ("rewind", "reset"):
            arguments.setdefault("sink_rows", "keep")
        asked = requested(builder, name, **arguments)
        perform(builder.ledger, asked, PERSON, request_id)
        return asked.describe()

    def ledger(self) -> Ledger:
        ledger = Ledger(open_storage(self.staging), self.name)
        ledger.find()
        return ledger

    def entries(self, kind: str) -> list[Entry]:
        return [entry for entry in self.ledger().entries() if entry.action.kind == kind]

    def ids(self) -> list[int]:
        return sorted(deltalake.DeltaTable(self.path).to_pyarrow_table(columns=["id"]).column("id").to_pylist())

    @classmethod
    def with_ten_rows(cls, spark: SparkSession, folder: Path) -> Desk:
        """Return a desk with ten rows in the sink, and twenty more in the source."""
        desk = cls(spark, folder)
        desk.append(0)
        desk.load()
        desk.append(10)
        desk.append(20)
        return desk

    @classmethod
    def with_all_rows(cls, spark: SparkSession, folder: Path) -> Desk:
        """Return a desk whose two runs have loaded ten rows, and then the other twenty."""
        desk = cls.with_ten_rows(spark, folder)
        desk.load()
        return desk

    @classmethod
    def with_all_rows_uncommitted(cls, spark: SparkSession, folder: Path) -> Desk:
        """Return a desk whose second run died when its rows had landed_desk, before it committed them."""
        desk = cls.with_ten_rows(spark, folder)
        run(spark, desk.zombie())
        return desk

    def typed(self, statement: str, epoch: int = 2) -> None:
        """Run a statement under the transaction that closes the epochs before another one, as FDS once printed them."""
        app_id, version = (f"spark.databricks.delta.write.txn{name}" for name in ("AppId", "Version"))
        settings = {app_id: txn_app_id(self.ledger().state.uuid), version: fence_version(epoch)}
        for name, value in settings.items():
            self.spark.sql(f"SET {name}={value}").collect()
        self.spark.sql(statement.format(self.table)).collect()
        for name in settings:
            self.spark.sql(f"RESET {name}").collect()


@pytest.fixture
def desk(spark: SparkSession, prepared: Prepared) -> Desk:
    """Ten rows are in the sink, and twenty more in the source."""
    return prepared.begin("ten rows", partial(Desk.with_ten_rows, spark))


@pytest.fixture
def full_desk(spark: SparkSession, prepared: Prepared) -> Desk:
    """All thirty rows are in the sink."""
    return prepared.begin("all rows", partial(Desk.with_all_rows, spark))


@pytest.fixture
def landed_desk(spark: SparkSession, prepared: Prepared) -> Desk:
    """All thirty rows are in the sink; the ledger knows of ten."""
    return prepared.begin("all rows uncommitted", partial(Desk.with_all_rows_uncommitted, spark))


EACH_ONCE = list(range(30))


# -- batches that land after the request


@pytest.mark.parametrize("requests", [1, 3])
def test_a_batch_that_lands_after_several_requests_is_not_read_again_unnoticed(desk, spark, requests):
    late = desk.zombie()
    for number in range(requests):
        desk.move("rewind", to=0, replaces=number > 0)
    run(spark, late)

    with pytest.raises(
        LedgerError,
        match=r"batches 1 to 2 of epoch 1 \(versions 1 to 2\).*rows again and load them twice",
    ):
        desk.load()
    assert desk.ids() == EACH_ONCE
    assert [b.batch_id for b in desk.entries("shown")[0].action.batches] == [1, 2]

    said = desk.move("rewind", to=0, replaces=True, sink_rows="delete")
    desk.load()
    assert "batch 1 of epoch 1 (version 1), batch 2 of epoch 1 (version 2)" in said
    assert desk.ids() == EACH_ONCE


def test_a_request_made_before_the_batch_was_shown_does_not_let_it_be_read_again(desk, spark):
    late = desk.zombie()
    desk.move("rewind", to=0)
    session = desk.session()
    work = session.begin(desk.sink)
    run(spark, late)
    # the request comes between the fence of the first one and the word of what landed
    run(spark, desk.submit(session, work))
    desk.move("rewind", to=0, replaces=True)
    session.collect(work)

    with pytest.raises(LedgerError, match="rows again and load them twice"):
        desk.load()
    assert desk.ids() == EACH_ONCE


def test_a_batch_that_was_shown_is_kept_by_a_replan(desk, spark):
    late = desk.zombie()
    desk.move("rewind", to=0)
    desk.move("rewind", to=0, replaces=True)
    run(spark, late)
    with pytest.raises(LedgerError, match="`fds replan orders --replace"):
        desk.load()

    desk.move("replan", replaces=True)
    desk.append(30)
    desk.load()
    assert desk.ids() == list(range(40))


def test_a_zombie_after_a_recovered_ledger_is_not_read_again(desk, spark):
    entries, copy = Path(desk.staging, "orders", "ledger"), desk.folder / "copy"
    shutil.copytree(entries, copy)
    desk.move("rewind", to=1)
    desk.load(max_batches=1)
    late = desk.zombie()
    shutil.rmtree(entries)
    shutil.copytree(copy, entries)
    # the ledger is in epoch 1, the sink knows epoch 2
    recover(desk)
    run(spark, late)
    assert desk.ids() == EACH_ONCE

    with pytest.raises(LedgerError, match=r"batch 1 of epoch 2 .*`fds recover orders"):
        desk.load()
    assert desk.ids() == EACH_ONCE
    assert desk.ledger().state.epoch == 3
    recover(desk)
    desk.append(30)
    desk.load()
    assert desk.ids() == list(range(40))


# -- a sink that was missing at the fence


@pytest.mark.parametrize("way", ["remove", "keep"])
def test_a_zombie_that_makes_the_missing_sink_is_found_fenced_and_judged(spark, tmp_path, way):
    desk = Desk(spark, tmp_path)
    desk.append(0)
    desk.append(10)
    late = desk.zombie()
    desk.move("rewind", to="start")
    session = desk.session()
    work = session.begin(desk.sink)
    run(spark, desk.submit(session, work))
    session.collect(work)
    assert desk.entries("opened")[-1].action.fence.status == "sink_missing"
    run(spark, late)
    assert desk.ids() == list(range(20))

    with pytest.raises(BatchFailedError, match=r"was missing when the epoch began.*Epoch 3 is requested") as found:
        desk.load()
    assert (found.value.reason_code, found.value.retryable) == ("SINK_APPEARED", True)
    requested = desk.entries("requested")[-1].action
    assert (requested.reason, requested.epoch, requested.is_automatic) == ("sink_appeared", 3, True)
    with pytest.raises(
        LedgerError,
        match=r"batches 0 to 1 of epoch 1 \(versions 0 to 1\).*rows again and load them twice",
    ):
        desk.load()

    if way == "remove":
        desk.move("rewind", to="start", replaces=True, sink_rows="empty")
    else:
        desk.move("replan", replaces=True)
    desk.append(20)
    desk.load()
    assert desk.ids() == EACH_ONCE
    assert desk.load().begin(desk.sink).status == "up_to_date"


def test_a_zombie_that_makes_the_sink_and_nothing_of_it_is_read_again_is_passed_without_a_person(spark, tmp_path):
    desk = Desk(spark, tmp_path)
    desk.append(0)
    late = desk.zombie()
    desk.append(10)
    desk.load()
    desk.move("rewind", to=1)
    shutil.rmtree(desk.path)
    session = desk.session()
    work = session.begin(desk.sink)
    run(spark, desk.submit(session, work))
    session.collect(work)
    # it does not know that there was a sink
    run(spark, late)

    with pytest.raises(BatchFailedError, match="Epoch 3 is requested"):
        desk.load()
    desk.load()
    assert desk.ids() == list(range(20))


# -- the fence removes the rows


def test_a_rewind_with_delete_has_each_row_once(full_desk):
    said = full_desk.move("rewind", to=1, sink_rows="delete")
    full_desk.load()

    assert full_desk.ids() == EACH_ONCE
    assert "The next run deletes the rows with _source_version >= 1" in said
    fence = full_desk.entries("opened")[-1].action.fence
    assert (fence.removal.what, fence.removal.from_version, fence.removed_rows) == ("rows", 1, 20)
    assert "DELETE" in operations(full_desk)[3]
    assert transaction(full_desk, 3) == fence_version(2)


def test_a_rewind_with_delete_is_right_although_a_zombie_lands_first(desk, spark):
    late = desk.zombie()
    desk.move("rewind", to=0, sink_rows="delete")
    run(spark, late)
    desk.load()

    assert desk.ids() == EACH_ONCE


@pytest.mark.parametrize("moment", ["before the statement", "after the statement"])
def test_rows_of_a_zombie_that_lands_while_the_fence_works_are_not_lost_or_duplicated(desk, spark, monkeypatch, moment):
    late = desk.zombie()
    desk.move("rewind", to=1, sink_rows="delete")
    point = "fence.commit.before" if moment == "before the statement" else "fence.commit.after"
    landed = []

    def reach(name, *_):
        if name == point and not landed:
            landed.append(run(spark, late))

    monkeypatch.setattr("airflow_provider_fds.spark.fence.close_epochs.reach", reach)
    # no row of version 1 or later is there: the statement alone makes no commit
    if moment == "after the statement":
        with pytest.raises(LedgerError, match="rows again and load them twice"):
            desk.load()
        desk.move("rewind", to=1, replaces=True, sink_rows="delete")
    desk.load()

    assert landed
    assert desk.ids() == EACH_ONCE


def test_a_fence_that_died_after_its_delete_is_found_by_the_next_run(full_desk, spark):
    full_desk.move("rewind", to=1, sink_rows="delete", request_id="ticket 7")
    session = full_desk.session()
    run(spark, full_desk.submit(session, session.begin(full_desk.sink)))
    before = len(operations(full_desk))
    full_desk.move("hold")
    full_desk.move("resume")
    session = full_desk.session()
    work = session.begin(full_desk.sink)
    run(spark, full_desk.submit(session, work))

    assert len(operations(full_desk)) == before
    session.collect(work)
    assert full_desk.ledger().state.phase == "open"
    full_desk.load()
    assert full_desk.ids() == EACH_ONCE


def test_a_second_fence_for_the_same_rows_deletes_nothing_twice_and_is_a_fence(full_desk):
    full_desk.move("rewind", to=1, sink_rows="delete")
    full_desk.load(max_batches=1)
    full_desk.move("rewind", to=1, sink_rows="delete")
    full_desk.load()

    assert full_desk.ids() == EACH_ONCE


def test_a_request_with_delete_that_is_repeated_under_its_name_is_one_request(full_desk):
    for _ in range(2):
        builder = full_desk.builder()
        perform(builder.ledger, builder.rewind(to=1, sink_rows="delete"), PERSON, "ticket 7")
    assert full_desk.ledger().state.epoch == 2
    full_desk.load()
    assert full_desk.ids() == EACH_ONCE


@pytest.mark.parametrize("kind", ["partitioned", "with a change data feed", "clustered"])
def test_rows_are_removed_from_sinks_of_every_layout(spark, tmp_path, kind):
    desk = Desk(spark, tmp_path)
    layout = {
        "partitioned": {"partition_by": ["_source_version"]},
        "with a change data feed": {"properties": {"delta.enableChangeDataFeed": "true"}},
        "clustered": {"cluster_by": ["id"]},
    }[kind]
    desk.sink = DeltaAppendSink(desk.path, provenance=True, **layout)
    for first in (0, 10, 20):
        desk.append(first)
    desk.load()
    desk.move("rewind", to=1, sink_rows="delete")
    desk.load()

    assert desk.ids() == EACH_ONCE


@pytest.mark.parametrize("is_reachable", [True, False])
def test_removing_rows_of_an_append_only_sink_is_refused_with_an_alternative(full_desk, is_reachable):
    full_desk.spark.sql(f"ALTER TABLE {full_desk.table} SET TBLPROPERTIES ('delta.appendOnly' = 'true')")
    if is_reachable:
        with pytest.raises(
            ConfigurationError, match=r"--sink-rows delete is not available: the sink .* has delta.appendOnly=true"
        ):
            full_desk.move("rewind", to=1, sink_rows="delete")
        return
    ask_without_the_sink(full_desk, to=1, sink_rows="delete")
    with pytest.raises(BatchRejectedError, match=r"SINK_APPEND_ONLY.*has delta.appendOnly=true.*nothing was removed"):
        full_desk.load()
    assert full_desk.ids() == EACH_ONCE
    full_desk.spark.sql(f"ALTER TABLE {full_desk.table} UNSET TBLPROPERTIES ('delta.appendOnly')")
    full_desk.load()
    assert full_desk.ids() == EACH_ONCE


@pytest.mark.parametrize("is_reachable", [True, False])
def test_a_sink_without_provenance_cannot_tell_the_rows(spark, tmp_path, is_reachable):
    desk = Desk(spark, tmp_path)
    desk.sink = DeltaAppendSink(desk.path)
    desk.append(0)
    desk.load()
    if is_reachable:
        with pytest.raises(ConfigurationError, match="has no column _source_version"):
            desk.move("rewind", to=0, sink_rows="delete")
        return
    ask_without_the_sink(desk, to=0, sink_rows="delete")
    with pytest.raises(BatchRejectedError, match=r"has no column _source_version.*`fds rewind orders --replace"):
        desk.load()
    desk.move("rewind", to=0, replaces=True, sink_rows="empty")
    desk.load()
    assert desk.ids() == list(range(10))


def test_rows_that_were_written_before_provenance_are_not_overlooked(spark, tmp_path):
    desk = Desk(spark, tmp_path)
    desk.sink = DeltaAppendSink(desk.path)
    desk.append(0)
    desk.load()
    desk.sink = DeltaAppendSink(desk.path, provenance=True, merge_schema=True)
    desk.append(10)
    desk.load()
    desk.move("rewind", to=0, sink_rows="delete")

    with pytest.raises(BatchRejectedError, match="_source_version NULL"):
        desk.load()
    assert desk.ids() == list(range(20))


def test_rows_of_others_are_not_removed_unless_it_is_forced(full_desk):
    other = "SELECT id + 100 AS id, 'other' AS name, 7L AS _source_version, current_timestamp() AS _source_timestamp"
    full_desk.spark.sql(f"{other} FROM range(3)").write.format("delta").mode("append").save(full_desk.path)
    others = r"version 3 of the sink .* \(WRITE\) was not written by stream 'orders'.*--force-sink"
    with pytest.raises(ConfigurationError, match=rf"--sink-rows delete is not available: {others}"):
        full_desk.move("rewind", to=1, sink_rows="delete")
    ask_without_the_sink(full_desk, to=1, sink_rows="delete")
    with pytest.raises(BatchRejectedError, match=rf"SINK_SHARED: {others}"):
        full_desk.load()
    assert full_desk.ids() == [*EACH_ONCE, 100, 101, 102]

    full_desk.move("rewind", to="start", replaces=True, sink_rows="empty", force_sink=True)
    full_desk.load()
    assert full_desk.ids() == EACH_ONCE


def test_maintenance_of_the_sink_does_not_count_as_another_writer(full_desk):
    for statement in ("OPTIMIZE {}", "ALTER TABLE {} SET TBLPROPERTIES ('a' = 'b')", "DELETE FROM {} WHERE id = 5"):
        full_desk.spark.sql(statement.format(full_desk.table))
    full_desk.move("rewind", to=0, sink_rows="delete")
    full_desk.load()
    assert full_desk.ids() == EACH_ONCE


def test_a_recreated_source_has_other_versions_than_the_rows_in_the_sink(full_desk):
    ask = full_desk.move("rewind", to=1, sink_rows="delete")
    assert "deletes" in ask
    full_desk.recreate(100, 5)

    with pytest.raises(
        LedgerError, match=r"is now another table .*`fds rewind orders --to start --replace --sink-rows empty"
    ):
        full_desk.load()
    assert full_desk.ids() == EACH_ONCE
    full_desk.move("rewind", to="start", replaces=True, sink_rows="empty")
    full_desk.load()
    assert full_desk.ids() == list(range(100, 105))


# -- statements under the transaction of a fence that FDS did not write

FOREIGN = r"another statement closed the epochs before epoch 2 .* version 3 of the sink"


@pytest.mark.parametrize(
    ("statement", "sink_rows", "way"),
    [
        ("DELETE FROM {} WHERE _source_version >= 2", "delete", "restore"),
        ("DELETE FROM {} WHERE _source_version >= 1", "keep", "restore"),
        ("DELETE FROM {}", "keep", "reset"),
        ("INSERT INTO {} SELECT 0L, 'x', 0L, now()", "keep", "restore"),
    ],
)
def test_no_epoch_begins_after_a_statement_whose_effect_is_unknown(full_desk, statement, sink_rows, way):
    full_desk.move("rewind", to=2, sink_rows=sink_rows)
    full_desk.typed(statement)
    left = full_desk.ids()
    with pytest.raises(LedgerError, match=FOREIGN):
        full_desk.load()
    # rows from before the position may be missing
    full_desk.move("rewind", to=2, sink_rows="keep", replaces=True)
    with pytest.raises(LedgerError, match=FOREIGN):
        full_desk.load()
    assert full_desk.ids() == left

    if way == "reset":
        full_desk.move("rewind", to="start", sink_rows="empty", replaces=True)
    else:
        full_desk.restore(2)
        # the sink's log has had rows of another writer
        is_forced = statement.startswith("INSERT")
        full_desk.move("rewind", to=2, sink_rows="delete", force_sink=is_forced, replaces=True)
    full_desk.load()
    assert full_desk.ids() == EACH_ONCE


def test_a_statement_under_the_transaction_of_a_fence_changes_nothing_once_the_run_has_begun(full_desk):
    full_desk.move("rewind", to=1)
    full_desk.load()
    twice = full_desk.ids()
    full_desk.typed("DELETE FROM {} WHERE _source_version >= 1")

    assert full_desk.ids() == twice
    assert Counter(twice) == {number: 2 if number >= 10 else 1 for number in range(30)}


def test_a_statement_under_the_transaction_of_a_fence_is_found_among_many_commits(full_desk, monkeypatch):
    monkeypatch.setattr("airflow_provider_fds.spark.sink_log.history._MOST_FILES", 0)
    full_desk.move("rewind", to=1)
    full_desk.typed("DELETE FROM {} WHERE _source_version >= 1")

    with pytest.raises(LedgerError, match=FOREIGN):
        full_desk.load()


def test_a_foreign_delete_after_a_fence_is_named_by_the_next_run(full_desk):
    full_desk.move("rewind", to=1, sink_rows="delete")
    full_desk.load()
    full_desk.spark.sql(f"DELETE FROM {full_desk.table} WHERE id >= 25")
    version = len(operations(full_desk)) - 1
    full_desk.append(30)
    full_desk.load()

    (warning,) = full_desk.entries("committed")[-1].action.measures.warnings
    assert f"version {version} of the sink" in warning
    assert "(DELETE), by another writer, removed rows" in warning


@pytest.mark.parametrize("name", ["replan", "rewind"])
def test_no_epoch_begins_after_a_statement_whose_commit_log_cleanup_removed(full_desk, name):
    to = {"to": 2, "sink_rows": "keep"} if name == "rewind" else {}
    full_desk.move(name, **to)
    full_desk.typed("DELETE FROM {} WHERE id >= 15")
    others = [number for first in (100, 200, 300) for number in write_as_another(full_desk, first)]
    clean_up_log(full_desk, before=5)
    again = "which rows it removed.* everything again: `fds rewind orders .*--sink-rows empty .*--why"
    for _ in range(2):
        with pytest.raises(FdsError, match=again) as refused:
            full_desk.load()
        assert not getattr(refused.value, "retryable", False)
        assert full_desk.ids() == [*range(15), *others]
        full_desk.move(name, replaces=True, **to)
    full_desk.move("rewind", to="start", sink_rows="empty", force_sink=True, replaces=True)
    full_desk.load()
    assert full_desk.ids() == EACH_ONCE


# -- sinks that merge


def merging(desk: Desk, **kw: Any) -> None:
    desk.sink = DeltaMergeSink(desk.path, keys=["id"], **kw)
    desk.options = {}


def test_a_merging_sink_of_a_recreated_source_is_emptied_by_the_fence(spark, tmp_path):
    desk = Desk(spark, tmp_path)
    merging(desk)
    desk.append(0, 50)
    desk.load()
    desk.recreate(0, 5)
    with pytest.raises(
        ConfigurationError, match=r"Say what becomes of its rows: .*--sink-rows empty .*--sink-rows keep"
    ):
        desk.builder().rewind(to="start")

    said = desk.move("rewind", to="start", sink_rows="empty")
    desk.load()

    assert desk.ids() == list(range(5))
    assert "The next run empties the sink" in said


def test_a_merging_sink_that_is_kept_says_that_keys_stay(spark, tmp_path):
    desk = Desk(spark, tmp_path)
    merging(desk)
    desk.append(0, 50)
    desk.load()
    desk.recreate(0, 5)
    said = desk.move("rewind", to="start", sink_rows="keep")
    desk.load()

    assert desk.ids() == list(range(50))
    assert "a row whose key the source no longer has stays" in said


def test_the_current_rows_of_a_history_are_closed_and_the_history_stays(spark, tmp_path):
    desk = Desk(spark, tmp_path)
    merging(desk, scd=2)
    desk.append(0, 10)
    desk.load()
    desk.recreate(0, 5)
    desk.move("rewind", to="start", sink_rows="empty")
    desk.load()

    rows = spark.read.format("delta").load(desk.path)
    assert sorted(row["id"] for row in rows.where("_is_current").collect()) == list(range(5))
    closed = rows.where("NOT _is_current").collect()
    assert sorted(row["id"] for row in closed) == list(range(10))
    assert all(row["_valid_from"] <= row["_valid_to"] for row in closed)
    # no key holds twice at one time
    starts = {row["id"]: row["_valid_from"] for row in rows.where("_is_current").collect()}
    assert all(row["_valid_to"] <= starts[row["id"]] for row in closed if row["id"] in starts)
    assert desk.entries("opened")[-1].action.fence.removed_rows == 10


def test_a_rewind_of_a_merging_sink_empties_it_only_where_all_of_it_is_read_again(spark, tmp_path):
    desk = Desk(spark, tmp_path)
    merging(desk)
    desk.options = {"starting_version": 0}
    desk.append(0)
    desk.load()
    desk.append(10)
    desk.load()
    with pytest.raises(ConfigurationError, match="the sink has rows that are not read again"):
        desk.move("rewind", to=1, sink_rows="empty")
    with pytest.raises(ConfigurationError, match="Say what becomes of its rows"):
        desk.builder().rewind(to=1)

    desk.move("rewind", to=0, sink_rows="empty")
    desk.load()
    assert desk.ids() == list(range(20))


def test_a_run_with_another_sink_does_not_empty_the_one_of_the_stream(spark, tmp_path):
    desk = Desk(spark, tmp_path)
    merging(desk, scd=2)
    desk.append(0)
    desk.load()
    desk.move("rewind", to="start", sink_rows="empty")
    desk.sink = DeltaAppendSink(desk.path)

    with pytest.raises(Exception, match="cannot write to delta_append"):
        desk.load()
    assert desk.ids() == list(range(10))


# -- a request in the place of another one, and sinks that others have changed


@pytest.mark.parametrize("removed_by", ["the fence", "a reset"])
def test_rows_that_an_unopened_epoch_removed_are_not_left_out(full_desk, removed_by):
    if removed_by == "a reset":
        full_desk.move("rewind", to="start", sink_rows="empty")
    else:
        full_desk.move("rewind", to=1, sink_rows="delete")
    # the run dies before it opens the epoch
    fence_and_die(full_desk)
    assert len(full_desk.ids()) < 30
    if removed_by == "the fence":
        full_desk.move("rewind", to=2, sink_rows="delete", replaces=True)
    else:
        full_desk.move("replan", replaces=True)

    again = "fds rewind orders .*--to start" if removed_by == "a reset" else "fds rewind orders .*--replace --to 1 "
    with pytest.raises(LedgerError, match=rf"epoch 2 removed rows .*{again}"):
        full_desk.load()
    if removed_by == "a reset":
        full_desk.move("rewind", to="start", replaces=True)
    else:
        full_desk.move("rewind", to=1, replaces=True)
    full_desk.load()
    assert full_desk.ids() == EACH_ONCE


def test_a_requested_removal_that_was_never_made_does_not_bind_the_next_request(full_desk):
    full_desk.move("rewind", to=1, sink_rows="delete")
    full_desk.move("replan", replaces=True)
    full_desk.append(30)
    full_desk.load()

    assert full_desk.ids() == list(range(40))


def test_no_replan_continues_after_a_statement_whose_effect_is_unknown(full_desk):
    full_desk.typed("DELETE FROM {} WHERE _source_version >= 1")
    for replaces in (False, True):
        full_desk.move("replan", replaces=replaces)
        with pytest.raises(LedgerError, match=FOREIGN):
            full_desk.load()

    full_desk.restore(2)
    full_desk.move("replan", replaces=True)
    full_desk.load()
    assert full_desk.ids() == EACH_ONCE


@pytest.mark.parametrize("name", ["replan", "rewind"])
def test_batches_that_a_restore_has_kept_are_still_there(landed_desk, name):
    write_as_another(landed_desk)
    landed_desk.restore(2)
    assert landed_desk.ids() == EACH_ONCE

    if name == "replan":
        landed_desk.move("replan")
        landed_desk.load()
    else:
        landed_desk.move("rewind", to=1)
        with pytest.raises(
            LedgerError,
            match=r"batches 1 to 2 of epoch 1 \(versions 1 to 2\).*rows again and load them twice",
        ):
            landed_desk.load()
    assert landed_desk.ids() == EACH_ONCE


@pytest.mark.parametrize("by", ["version", "time", "replacement", "copy"])
def test_a_replan_does_not_continue_after_batches_that_the_sink_lacks(desk, spark, by):
    others = []
    if by == "copy":
        shutil.copytree(desk.path, desk.folder / "copy")
    desk.load()
    if by == "version":
        spark.sql(f"RESTORE TABLE {desk.table} TO VERSION AS OF 0")
    elif by == "time":
        at = spark.sql(f"DESCRIBE HISTORY {desk.table}").where("version = 0").collect()[0]["timestamp"]
        spark.sql(f"RESTORE TABLE {desk.table} TO TIMESTAMP AS OF '{at}'")
    elif by == "replacement":
        spark.sql(f"CREATE OR REPLACE TABLE {desk.table} USING delta AS SELECT * FROM {desk.table} WHERE id < 10")
    else:
        shutil.rmtree(desk.path)
        shutil.copytree(desk.folder / "copy", desk.path)
        for first in (100, 200, 300):
            others += write_as_another(desk, first)
    assert desk.ids() == [*range(10), *others]

    desk.move("replan")
    lost = r"(lacks? .*committed|committed rows may be missing).*`fds rewind orders .*--replace"
    with pytest.raises(LedgerError, match=lost):
        desk.load()
    desk.move("rewind", to=1, replaces=True)
    desk.load()
    assert desk.ids() == [*EACH_ONCE, *others]


def test_a_rewind_does_not_leave_out_batches_that_a_restore_took(full_desk):
    # a person restores the version that the first rewind names, and asks for another one
    full_desk.move("rewind", to=1)
    full_desk.restore(0)
    full_desk.move("rewind", to=2, replaces=True)
    with pytest.raises(LedgerError, match=r"lacks batch 1 of epoch 1, .*`fds rewind orders --replace --to 1 "):
        full_desk.load()
    full_desk.move("rewind", to=1, replaces=True)
    full_desk.load()
    assert full_desk.ids() == EACH_ONCE


def test_a_restore_to_the_last_committed_batch_and_a_replan_load_the_rest_again(landed_desk):
    landed_desk.restore(0)
    landed_desk.move("replan")
    landed_desk.load()

    assert landed_desk.ids() == EACH_ONCE


@pytest.mark.parametrize("name", ["replan", "rewind"])
def test_batches_whose_commits_log_cleanup_removed_are_not_read_again_unnoticed(landed_desk, name):
    others = [number for first in (100, 200, 300) for number in write_as_another(landed_desk, first)]
    clean_up_log(landed_desk, before=5)

    landed_desk.move(name, **({"to": 1} if name == "rewind" else {}))
    with pytest.raises(LedgerError, match=r"batch 2 of epoch 1 .*log cleanup removed"):
        landed_desk.load()
    assert landed_desk.ids() == [*EACH_ONCE, *others]

    landed_desk.move("rewind", to=1, sink_rows="delete", force_sink=True, replaces=True)
    landed_desk.load()
    assert [number for number in landed_desk.ids() if number < 100] == EACH_ONCE


@pytest.mark.parametrize("requests", [("rebind",), ("rebind", "replan")])
def test_a_stream_that_is_bound_to_the_same_sink_again_continues(landed_desk, requests):
    for number, name in enumerate(requests):
        landed_desk.move(name, replaces=number > 0)
    landed_desk.load()
    landed_desk.append(30)
    landed_desk.load()

    assert landed_desk.ids() == list(range(40))


# -- helpers


def fence_and_die(desk: Desk) -> None:
    """Run the fence of the requested epoch, and leave its report unread."""
    session = desk.session()
    run(desk.spark, desk.submit(session, session.begin(desk.sink)))


def write_as_another(desk: Desk, first: int = 100) -> list[int]:
    """Append three rows as another job does; return their ids."""
    ids = [first, first + 1, first + 2]
    rows = {"id": ids, "name": ["other"] * 3, "_source_version": [0] * 3, "_source_timestamp": [datetime.now(UTC)] * 3}
    deltalake.write_deltalake(desk.path, pa.table(rows), mode="append")
    return ids


def clean_up_log(desk: Desk, *, before: int) -> None:
    """Write a log checkpoint, and remove the commits before a version as log cleanup does."""
    deltalake.DeltaTable(desk.path).create_checkpoint()
    for log in Path(desk.path, "_delta_log").glob("*"):
        number = log.name.lstrip(".").partition(".")[0]
        if number.isdigit() and int(number) < before and "checkpoint" not in log.name:
            log.unlink()


def recover(desk: Desk) -> None:
    ledger = desk.ledger()
    account = ask_sink(open_storage(desk.path), "orders")
    move = recovery(ledger, account, table=ledger.state.table, deployment="test", why="a test")
    perform(ledger, move, PERSON)


def ask_without_the_sink(desk: Desk, **arguments: Any) -> None:
    """Ask where the sink cannot be reached from."""
    builder = ActionBuilder(desk.ledger(), "a test")
    perform(builder.ledger, builder.rewind(**arguments), PERSON)


def commits(desk: Desk) -> list[SinkCommit]:
    logs = sorted(Path(desk.path, "_delta_log").glob("*.json"))
    return [parse_commit(version, log.read_bytes()) for version, log in enumerate(logs)]


def operations(desk: Desk) -> list[str]:
    return [commit.operation for commit in commits(desk)]


def transaction(desk: Desk, version: int) -> int | None:
    return next(iter(commits(desk)[version].transactions.values()), None)
