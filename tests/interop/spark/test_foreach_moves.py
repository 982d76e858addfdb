"""A stream whose function has written a part of a batch is moved by a person: no row lost, none twice."""

from __future__ import annotations

import copy
import itertools
import shutil
import sys
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

import deltalake
import pytest

from airflow_provider_fds.batch.spec import JobSpec
from airflow_provider_fds.batch.transactions import fence_version
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import ConfigurationError, LedgerError
from airflow_provider_fds.ledger.owner import Actor, Owner
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.sinks import ForeachBatchSink
from airflow_provider_fds.spark.application.job_run import run
from airflow_provider_fds.spark.writers import foreach_batch
from airflow_provider_fds.stream import DeltaStream, StreamContext, StreamSession
from airflow_provider_fds.stream.actions.action_builder import ActionBuilder
from airflow_provider_fds.stream.actions.prepared_action import perform
from tests.delta_rows import ids

#: Of the stream.
OPTIONS = {"starting_version": 0, "max_versions_per_batch": 1}

FUNCTION = """
WRITE = {"kept": True, "gone": True}
OPTIONS = []


def load(df, batch):
    rows = df.drop("_commit_version", "_commit_timestamp")
    folder = df.sparkSession.conf.get("spark.test.folder")
    for name in ("kept", "gone"):
        options = batch.txn_options(name)
        OPTIONS.append(options)
        if not WRITE[name]:
            raise KeyError(name)
        rows.write.format("delta").mode("append").options(**options).save(f"{folder}/{name}")
"""


def move_to_new_sink(builder, **given):
    return builder.replan(new_sink=True, **given)


class Streamed:
    """Runs of a stream with a function, and what a person does between them."""

    def __init__(self, spark, folder, source, *, named=("kept", "gone")):
        self.spark, self.folder, self.source = spark, folder, source
        tables = {name: str(folder / name) if name in named else None for name in ("kept", "gone")}
        self.sink = ForeachBatchSink("split_orders:load", writes=tables)
        self.actor = Actor(deployment="test", user="a", host="b")
        self._runs = 0

    @property
    def module(self):
        return sys.modules["split_orders"]

    def session(self):
        self._runs += 1
        owner = Owner(kind="airflow", deployment="test", dag_id="d", run_id=f"r{self._runs}", task_id="t")
        stream = DeltaStream("orders", table=str(self.source), **OPTIONS)
        return StreamSession(
            stream,
            StreamContext(
                staging_uri=str(self.folder / "staging"),
                deployment="test",
                actor=self.actor,
                owner=owner,
                owner_is_running=lambda _owner: False,
            ),
        )

    def run(self, most=1, **writes):
        """One run with the function writing what is said; returns its session and what came of it."""
        self.module.WRITE.update({"kept": True, "gone": True, **writes}) if "split_orders" in sys.modules else None
        session = self.session()
        collected = None
        work = session.begin(self.sink, max_batches=most)
        while work.status in ("fence", "work"):
            self.spec = JobSpec.from_json(self.read(session.job(work, self.sink)))
            run(self.spark, self.spec)
            collected = session.collect(work)
            if work.status == "work":
                break
            work = session.begin(self.sink, max_batches=most)
        return session, collected

    @staticmethod
    def read(uri):
        return Path(unquote(urlsplit(uri).path)).read_bytes()

    def builder(self, *, reaches_tables=True, **more):
        ledger = Ledger(open_storage(str(self.folder / "staging")), "orders")
        ledger.find()
        more.setdefault("owner_runs", lambda _owner: False)
        return ActionBuilder(ledger, "a test", open_table=open_storage if reaches_tables else None, **more)

    def perform(self, builder, move):
        return perform(builder.ledger, move, self.actor)

    def ids(self, name):
        path = self.folder / name
        return ids(path) if path.exists() else []


@pytest.fixture
def streamed(spark, tmp_path, prepared, source_template, monkeypatch):
    """Makes a stream that has had so many runs, each of which has loaded a batch."""
    (tmp_path / "split_orders.py").write_text(FUNCTION)
    monkeypatch.syspath_prepend(str(tmp_path))
    import split_orders  # noqa: F401

    def make(runs, named, folder):
        spark.conf.set("spark.test.folder", str(folder))
        stream = Streamed(spark, folder, source_template, named=named)
        for _ in range(runs):
            stream.run()
        return stream

    def begin(runs=0, named=("kept", "gone")):
        stream = prepared.begin(f"{runs} runs, {' '.join(named)}", partial(make, runs, named))
        spark.conf.set("spark.test.folder", str(stream.folder))
        return stream

    yield begin
    sys.modules.pop("split_orders", None)
    spark.conf.unset("spark.test.folder")


def test_a_half_landed_batch_is_not_replanned_but_finished_by_the_next_run(streamed):
    stream = streamed(runs=1)
    _, failed = stream.run(gone=False)
    assert failed.failure is not None
    assert (stream.ids("kept"), stream.ids("gone")) == (list(range(20)), list(range(10)))

    for answer in (None, {"kept": True, "gone": False}, {"gone": False}):
        with pytest.raises(LedgerError, match=r"of batch 1 .* 'kept' has landed but 'gone' has not"):
            stream.builder().replan(landed=answer)

    stream.run()
    assert (stream.ids("kept"), stream.ids("gone")) == (list(range(20)), list(range(20)))


def test_a_batch_that_has_landed_whole_is_not_loaded_again_by_a_replan(streamed):
    stream = streamed()
    session = stream.session()
    work = session.begin(stream.sink, max_batches=2)
    run(stream.spark, JobSpec.from_json(stream.read(session.job(work, stream.sink))))
    # the run is gone before it collects: both batches are there, and none is committed

    builder = stream.builder()
    stream.perform(builder, builder.replan())
    for _ in range(2):
        stream.run(most=5)
    for name in ("kept", "gone"):
        assert Counter(stream.ids(name)) == Counter(range(30))


def test_a_batch_that_has_not_landed_at_all_is_loaded_by_a_replan_without_a_question(streamed):
    stream = streamed()
    stream.run(kept=False)
    builder = stream.builder()
    stream.perform(builder, builder.replan())
    stream.run(most=5)
    for name in ("kept", "gone"):
        assert Counter(stream.ids(name)) == Counter(range(30))


def test_if_no_table_shows_it_a_person_is_asked_about_each_write(streamed):
    stream = streamed(named=("kept",))
    stream.run(gone=False)
    with pytest.raises(ConfigurationError, match=r"--landed gone=yes\|no$"):
        stream.builder().replan()
    with pytest.raises(ConfigurationError, match=r"--landed kept=yes\|no,gone=yes\|no$"):
        stream.builder(reaches_tables=False).replan()
    with pytest.raises(ConfigurationError, match="names 'other'"):
        stream.builder().replan(landed={"other": True})
    with pytest.raises(LedgerError, match="'kept' has landed but 'gone' has not"):
        stream.builder().replan(landed={"gone": False})
    move = stream.builder().replan(landed={"gone": True})
    assert "may still write 'gone' after this" in move.describe()


def test_an_orphaned_driver_writes_nothing_into_a_named_table_after_the_new_epoch_began(streamed):
    stream = streamed(runs=1)
    stream.run(kept=False)
    (orphaned,) = stream.module.OPTIONS[-1:]
    builder = stream.builder()
    stream.perform(builder, builder.replan())
    session, _ = stream.run()
    state = session.connected.state
    assert state.epoch == 2

    late = stream.spark.range(100, 110).selectExpr("id", "'late' AS name", "0L AS p")
    late.write.format("delta").mode("append").options(**orphaned).save(str(stream.folder / "kept"))

    assert stream.ids("kept") == stream.ids("gone") == list(range(20))
    opened = [entry.action for entry in session.connected.ledger.entries() if entry.action.kind == "opened"]
    fence = fence_version(2)
    assert opened[-1].fence.versions == {f"fds:{state.uuid}#{name}": fence for name in ("kept", "gone")}


def test_rows_that_an_orphaned_driver_wrote_between_answer_and_fence_are_not_loaded_again(streamed):
    stream = streamed(runs=1)
    stream.run(kept=False)
    (orphaned,) = stream.module.OPTIONS[-1:]
    builder = stream.builder()
    stream.perform(builder, builder.replan())
    rows = stream.spark.read.format("delta").load(str(stream.source)).where("id >= 10 AND id < 20")
    rows.write.format("delta").mode("append").options(**orphaned).save(str(stream.folder / "kept"))

    for _ in range(2):
        with pytest.raises(LedgerError, match="a driver of the previous epoch wrote 'kept' of batch 1"):
            stream.run()
    assert (stream.ids("kept"), stream.ids("gone")) == (list(range(20)), list(range(10)))

    # the person takes the rows out, and says so
    take_out(stream, "id >= 10", names=("kept",))
    builder = stream.builder(replaces=True)
    stream.perform(builder, builder.replan(landed={"kept": False, "gone": False}))
    stream.run(most=5)
    for name in ("kept", "gone"):
        assert Counter(stream.ids(name)) == Counter(range(30))


def left_uncollected(stream, batches):
    """Let a run's driver load so many batches, and the run die before it collects; return the job."""
    session = stream.session()
    work = session.begin(stream.sink, max_batches=batches)
    spec = JobSpec.from_json(stream.read(session.job(work, stream.sink)))
    run(stream.spark, spec)
    return spec


def counted(stream):
    return {name: Counter(stream.ids(name)) for name in ("kept", "gone")}


def once(*ranges):
    ids = Counter(itertools.chain(*ranges))
    return {"kept": ids, "gone": ids}


def restore(stream, name, version):
    deltalake.DeltaTable(stream.folder / name).restore(version)


def take_out(stream, condition, names=("kept", "gone")):
    for name in names:
        deltalake.DeltaTable(stream.folder / name).delete(condition)


def test_a_ledger_from_an_older_copy_does_not_take_batches_that_it_does_not_know_for_its_own(streamed):
    stream = streamed(runs=1)
    staging = stream.folder / "staging"
    shutil.copytree(staging, stream.folder / "copy")
    stream.run(most=5)
    shutil.rmtree(staging)
    (stream.folder / "copy").rename(staging)
    _, refused = stream.run()
    assert "SINK_OUT_OF_ORDER" in str(refused.failure)

    for move in (ActionBuilder.replan, move_to_new_sink):
        for landed in (None, True):
            with pytest.raises(LedgerError, match=r"'kept' has batch 2 of epoch 1 in version 2 of .*older copy"):
                move(stream.builder(), landed=landed)
    assert counted(stream) == once(range(30))

    # a rewind says that these rows are there, and the person takes them out
    builder = stream.builder()
    move = builder.rewind(to=1, sink_rows="keep")
    assert "'kept' has batch 1 (version 1), batch 2 (version 2); 'gone' has batch 1 (version 1)" in move.describe()
    assert "the ledger does not know batch 2 of epoch 1" in move.describe()
    take_out(stream, "id >= 10")
    stream.perform(builder, move)
    stream.run(most=5)
    assert counted(stream) == once(range(30))


def test_a_rewind_or_reset_says_which_rows_of_a_batch_on_its_way_are_in_the_tables(streamed):
    stream = streamed(runs=1)
    stream.run(gone=False)
    (orphaned,) = stream.module.OPTIONS[-1:]

    for to in (0, "start"):
        builder = stream.builder()
        move = builder.rewind(to=to, sink_rows="keep")
        assert "1 committed batch (" in move.describe()
        assert "Not committed, but in the function's tables: 'kept' has batch 1 (version 1)." in move.describe()
    stream.perform(builder, move)

    # what was announced is taken out; what comes after the request is found by the next run
    take_out(stream, "true")
    rows = stream.spark.read.format("delta").load(str(stream.source)).where("id >= 10 AND id < 20")
    rows.write.format("delta").mode("append").options(**orphaned).save(str(stream.folder / "gone"))
    for _ in range(2):
        with pytest.raises(LedgerError, match=r"a driver of the previous epoch wrote 'gone' of batch 1 .version 2 of"):
            stream.run()
    take_out(stream, "id >= 10", names=("gone",))
    builder = stream.builder(replaces=True)
    stream.perform(builder, builder.rewind(to=0, sink_rows="keep"))
    stream.run(most=5)
    assert counted(stream) == once(range(30))


def test_a_batch_that_was_restored_away_in_one_table_does_not_count_as_loaded(streamed):
    stream = streamed(runs=1)
    left_uncollected(stream, 1)
    restore(stream, "kept", 0)

    for move in (ActionBuilder.replan, move_to_new_sink):
        with pytest.raises(ConfigurationError, match=r"'kept' was restored .* in version 2\. .*--landed kept=yes\|no$"):
            move(stream.builder())
    with pytest.raises(LedgerError, match="'gone' has landed but 'kept' has not"):
        stream.builder().replan(landed={"kept": False})

    take_out(stream, "id >= 10", names=("gone",))
    builder = stream.builder()
    stream.perform(builder, builder.replan(landed=False))
    stream.run(most=5)
    assert counted(stream) == once(range(30))


def test_a_run_does_not_take_a_batch_for_loaded_that_was_restored_away(streamed):
    stream = streamed(runs=1)
    left_uncollected(stream, 1)
    restore(stream, "kept", 0)
    _, refused = stream.run()
    assert "SINK_REPLACED" in str(refused.failure)
    assert stream.builder().ledger.state.last_batch_id == 0


def test_batches_that_a_driver_has_loaded_and_nobody_collected_are_committed_by_the_next_run(streamed):
    stream = streamed()
    left_uncollected(stream, 2)
    session, collected = stream.run(most=5)
    assert collected.failure is None
    assert session.connected.state.last_batch_id == 1
    stream.run(most=5)
    assert counted(stream) == once(range(30))


def test_a_replan_does_not_continue_after_committed_batches_that_a_table_lacks(streamed):
    stream = streamed(runs=2)
    restore(stream, "kept", 0)
    for move in (ActionBuilder.replan, None, move_to_new_sink):
        if move is not None:
            builder = stream.builder(replaces=move is move_to_new_sink)
            stream.perform(builder, move(builder))
        with pytest.raises(
            LedgerError, match=r"batch 1 was committed, but the table .*kept .* in version 2, .*fds rewind .*--replace"
        ):
            stream.run()
    take_out(stream, "id >= 10", names=("gone",))
    builder = stream.builder(replaces=True)
    stream.perform(builder, builder.rewind(to="batch:1", sink_rows="keep"))
    stream.run(most=5)
    assert counted(stream) == once(range(30))


def test_a_restore_that_keeps_a_batch_does_not_prevent_a_replan(streamed):
    stream = streamed(runs=1)
    left_uncollected(stream, 1)
    take_out(stream, "true", names=("kept",))
    restore(stream, "kept", 1)
    builder = stream.builder()
    stream.perform(builder, builder.replan())
    stream.run(most=5)
    assert counted(stream) == once(range(30))


def test_rows_that_a_zombie_writes_between_two_requests_are_not_read_again_unnoticed(streamed):
    stream = streamed(runs=1)
    session = stream.session()
    work = session.begin(stream.sink, max_batches=1)
    zombie = JobSpec.from_json(stream.read(session.job(work, stream.sink)))
    builder = stream.builder()
    stream.perform(builder, builder.rewind(to=1, sink_rows="keep"))
    run(stream.spark, zombie)

    # the second request is made where nobody reaches the tables, the third where they are
    builder = stream.builder(replaces=True, reaches_tables=False)
    stream.perform(builder, builder.rewind(to=1, sink_rows="keep"))
    builder = stream.builder(replaces=True)
    move = builder.rewind(to=1, sink_rows="keep")
    assert "after an earlier request: 'kept' has batch 1 (version 1); 'gone' has batch 1 (version 1)" in move.describe()
    stream.perform(builder, move)
    with pytest.raises(LedgerError, match=r"wrote 'kept' of batch 1 .version 1 of .* and 'gone' of batch 1"):
        stream.run()
    assert counted(stream) == once(range(20))

    # a replan keeps them, without a further look
    builder = stream.builder(replaces=True)
    stream.perform(builder, builder.replan())
    stream.run(most=5)
    assert counted(stream) == once(range(30))


def elsewhere(stream):
    """Let a stream's runs use a staging folder of their own."""
    session = stream.session

    def of_other_staging():
        context = replace(session().context, staging_uri=str(stream.folder / "other staging"))
        return StreamSession(DeltaStream("orders", table=str(stream.source), **OPTIONS), context)

    stream.session = of_other_staging
    return stream


def test_two_stagings_do_not_load_the_rows_of_one_stream_name_into_the_same_tables(streamed):
    one = streamed()
    two = elsewhere(copy.copy(one))
    session = two.session()
    work = session.begin(two.sink, max_batches=1)
    one.run(most=5)
    run(two.spark, JobSpec.from_json(two.read(session.job(work, two.sink))))
    refused = session.collect(work).failure
    assert "SINK_OF_NAMESAKE" in str(refused)
    assert "Use one staging folder for both" in str(refused)
    assert counted(one) == once(range(30))


def test_a_stream_of_the_same_name_that_writes_at_the_same_moment_is_noticed_after_the_write(streamed):
    one = streamed()
    two = elsewhere(copy.copy(one))
    load = one.module.load

    def after_the_other_one(df, batch):
        one.module.load = load
        two.run()
        load(df, batch)

    one.module.load = after_the_other_one
    _, refused = one.run()
    assert "SINK_OF_NAMESAKE" in str(refused.failure)


def test_a_lost_ledger_is_detected_by_the_writes_of_the_function(streamed):
    stream = streamed(runs=1)
    with pytest.raises(LedgerError, match=r"was written by a stream of this name .*batch 0 of epoch 1\)") as error:
        elsewhere(stream).run()
    assert "fds recover" not in str(error.value)


def with_an_older_ledger(stream):
    """Load a batch, then put the ledger back to before it; the next run plans the rest in one."""
    stream.run()
    staging = stream.folder / "staging"
    shutil.copytree(staging, stream.folder / "copy")
    stream.run()
    shutil.rmtree(staging)
    (stream.folder / "copy").rename(staging)
    session = stream.session
    options = {**OPTIONS, "max_versions_per_batch": 5}
    stream.session = lambda: StreamSession(
        DeltaStream("orders", table=str(stream.source), **options), session().context
    )


@pytest.mark.parametrize("says_its_manifest", [True, False])
def test_a_batch_of_an_older_ledger_with_other_versions_is_not_skipped_in_silence(
    streamed, says_its_manifest, monkeypatch
):
    stream = streamed()
    if not says_its_manifest:
        # as a function that gives userMetadata of its own
        monkeypatch.setattr(foreach_batch, "write_metadata", lambda *_: "mine")
    with_an_older_ledger(stream)
    for _ in range(2):
        _, refused = stream.run(most=5)
        assert "SINK_OUT_OF_ORDER" in str(refused.failure)
        assert "Restore the newest copy of the staging folder" in str(refused.failure)
        for move in (ActionBuilder.replan, move_to_new_sink):
            if says_its_manifest:
                with pytest.raises(
                    LedgerError, match=r"'kept' has another batch 1 of epoch 1 in version 1 .*older copy"
                ):
                    move(stream.builder())
    assert counted(stream) == once(range(20))

    # as the message says
    assert "`fds rewind orders --to 1 --sink-rows keep --why …`" in str(refused.failure)
    take_out(stream, "id >= 10")
    builder = stream.builder()
    stream.perform(builder, builder.rewind(to=1, sink_rows="keep"))
    stream.run(most=5)
    assert counted(stream) == once(range(30))


# -- tables that were restored while nobody moved the stream


def follow_rewind(stream, batch, condition):
    """Take out of the tables what is read again, and rewind to the batch, as a message says."""
    take_out(stream, condition)
    builder = stream.builder()
    stream.perform(builder, builder.rewind(to=f"batch:{batch}", sink_rows="keep"))
    stream.run(most=5)


def test_a_table_restored_to_before_committed_batches_gets_no_further_batch(streamed):
    stream = streamed(runs=2)
    restore(stream, "kept", 0)
    for _ in range(2):
        _, refused = stream.run(most=5)
        assert "SINK_REPLACED" in str(refused.failure)
        assert "`fds rewind orders --to batch:N --sink-rows keep --why …`" in str(refused.failure)
    assert (stream.ids("kept"), stream.ids("gone")) == (list(range(10)), list(range(20)))
    follow_rewind(stream, 1, "id >= 10")
    assert counted(stream) == once(range(30))


def test_a_table_that_is_restored_while_the_function_writes_is_noticed_by_this_run_and_the_next(streamed):
    stream = streamed(runs=2)
    load = stream.module.load

    def restored_meanwhile(df, batch):
        restore(stream, "gone", 0)
        load(df, batch)

    stream.module.load = restored_meanwhile
    _, refused = stream.run()
    stream.module.load = load
    assert "SINK_REPLACED" in str(refused.failure)
    _, refused = stream.run()
    assert "SINK_REPLACED" in str(refused.failure)
    follow_rewind(stream, 1, "id >= 10")
    assert counted(stream) == once(range(30))


def test_a_table_that_is_restored_between_a_replan_and_its_run_keeps_the_epoch_from_beginning(streamed):
    stream = streamed(runs=2)
    builder = stream.builder()
    stream.perform(builder, builder.replan())
    restore(stream, "kept", 0)
    for _ in range(2):
        with pytest.raises(LedgerError, match=r"batch 1 was committed, but the table .*kept .*fds rewind .*--replace"):
            stream.run()
    take_out(stream, "id >= 10", names=("gone",))
    builder = stream.builder(replaces=True)
    stream.perform(builder, builder.rewind(to="batch:1", sink_rows="keep"))
    stream.run(most=5)
    assert counted(stream) == once(range(30))


def test_a_restore_is_noticed_although_the_last_batch_has_not_written_that_table(streamed):
    stream = streamed(runs=2)
    load = stream.module.load

    def only_kept(df, batch):
        rows = df.drop("_commit_version", "_commit_timestamp")
        rows.write.format("delta").mode("append").options(**batch.txn_options("kept")).save(str(stream.folder / "kept"))

    stream.module.load = only_kept
    stream.run()
    stream.module.load = load
    restore(stream, "gone", 0)
    for replaces, move in ((False, ActionBuilder.replan), (True, move_to_new_sink)):
        builder = stream.builder(replaces=replaces)
        stream.perform(builder, move(builder))
        with pytest.raises(LedgerError, match=r"batch 1 was committed, but the table .*gone .* in version 2, "):
            stream.run()


def make_again(stream, name):
    """Make a table at the place of another one, with as many commits as that one may have had."""
    path = stream.folder / name
    stream.spark.range(0).selectExpr("id", "'' AS name", "0L AS p").write.format("delta").save(str(path))
    for version in range(3):
        deltalake.DeltaTable(path).alter.set_table_properties({"a": str(version)}, raise_if_not_exists=False)


def test_a_removed_table_is_not_silently_created_again(streamed):
    stream = streamed(runs=2)
    shutil.rmtree(stream.folder / "gone")
    for is_made_again in (False, True):
        if is_made_again:
            make_again(stream, "gone")
        _, refused = stream.run()
        assert "SINK_MISSING" in str(refused.failure)
        assert "`fds rewind orders --to start --sink-rows keep --why …`" in str(refused.failure)
    builder = stream.builder()
    stream.perform(builder, builder.replan())
    with pytest.raises(
        LedgerError,
        match=r"the table .*gone of write 'gone' was removed.*`fds rewind orders --replace --to start --sink-rows keep",
    ):
        stream.run()

    take_out(stream, "true", names=("kept",))
    builder = stream.builder(replaces=True)
    stream.perform(builder, builder.rewind(to="start", sink_rows="keep"))
    stream.run(most=5)
    assert counted(stream) == once(range(30))


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("is_fenced", [False, True])
def test_a_table_that_is_removed_while_the_function_writes_is_noticed(streamed, is_fenced, dies):
    stream = streamed(runs=1)
    if is_fenced:
        builder = stream.builder()
        stream.perform(builder, builder.replan())
    load = stream.module.load

    def removed_meanwhile(df, batch):
        shutil.rmtree(stream.folder / "gone")
        if not dies:
            make_again(stream, "gone")
        load(df, batch)
        if dies:
            raise KeyError("dies")

    stream.module.load = removed_meanwhile
    _, refused = stream.run()
    stream.module.load = load
    assert dies or "SINK_MISSING" in str(refused.failure)
    _, refused = stream.run()
    assert "SINK_MISSING" in str(refused.failure)
    state = stream.builder().ledger.state
    assert (state.epoch, state.last_batch_id) == ((2, None) if is_fenced else (1, 0))


def test_a_table_that_is_removed_between_a_replan_and_its_run_keeps_the_epoch_from_beginning(streamed):
    stream = streamed(runs=1)
    builder = stream.builder()
    stream.perform(builder, builder.replan())
    shutil.rmtree(stream.folder / "gone")
    for is_made_again in (False, True):
        if is_made_again:
            make_again(stream, "gone")
        with pytest.raises(
            LedgerError, match=r"write 'gone' was removed.*`fds rewind orders --replace --to start .*--why …`"
        ):
            stream.run()


def test_a_rewind_to_after_batches_that_a_table_lacks_does_not_begin(streamed):
    stream = streamed(runs=3)
    restore(stream, "kept", 0)
    take_out(stream, "id >= 20", names=("gone",))
    builder = stream.builder()
    stream.perform(builder, builder.rewind(to="batch:2", sink_rows="keep"))
    for _ in range(2):
        with pytest.raises(
            LedgerError,
            match=r"kept.* lacks batch 1 of epoch 1, .*`fds rewind orders --replace --to 1 --sink-rows keep --why …`",
        ):
            stream.run()
    take_out(stream, "id >= 10", names=("gone",))
    builder = stream.builder(replaces=True)
    stream.perform(builder, builder.rewind(to=1, sink_rows="keep"))
    stream.run(most=5)
    assert counted(stream) == once(range(30))


def test_a_rewind_that_omits_rows_of_a_missing_table_does_not_begin(streamed):
    stream = streamed(runs=2)
    shutil.rmtree(stream.folder / "gone")
    take_out(stream, "id >= 10", names=("kept",))
    builder = stream.builder()
    stream.perform(builder, builder.rewind(to="batch:1", sink_rows="keep"))
    for is_made_again in (True, False):
        if is_made_again:
            make_again(stream, "gone")
        with pytest.raises(
            LedgerError,
            match=r"write 'gone' was removed.* lacks batch 0 .*Mount or restore it; .*rewind orders --replace --to 0 ",
        ):
            stream.run()
        shutil.rmtree(stream.folder / "gone", ignore_errors=True)
    take_out(stream, "true", names=("kept",))
    builder = stream.builder(replaces=True)
    stream.perform(builder, builder.rewind(to=0, sink_rows="keep"))
    stream.run(most=5)
    assert counted(stream) == once(range(30))


def test_a_restore_is_noticed_at_the_fence_where_only_the_driver_can_read_the_table(streamed):
    stream = streamed(runs=2)
    restore(stream, "kept", 0)
    commit = stream.folder / "kept" / "_delta_log" / f"{0:020}.json"
    commit.rename(stream.folder / "outside")
    commit.symlink_to(stream.folder / "outside")
    builder = stream.builder()
    stream.perform(builder, builder.replan())
    for _ in range(2):
        with pytest.raises(LedgerError, match=r"batch 1 was committed, but the table .*kept .* in version 2, "):
            stream.run()


def test_a_driver_that_makes_a_missing_table_after_the_new_epoch_began_is_found_before_the_next_batch(streamed):
    stream = streamed()
    session = stream.session()
    work = session.begin(stream.sink, max_batches=1)
    zombie = JobSpec.from_json(stream.read(session.job(work, stream.sink)))
    builder = stream.builder()
    stream.perform(builder, builder.rewind(to="start", sink_rows="keep"))
    stream.run(kept=False)
    stream.module.WRITE["kept"] = True
    run(stream.spark, zombie)

    for _ in range(2):
        _, refused = stream.run()
        assert "EPOCH_NOT_CLOSED" in str(refused.failure)
        assert "has batch 0 of epoch 1 of write '" in str(refused.failure)
    # as the message says
    take_out(stream, "true")
    builder = stream.builder()
    stream.perform(builder, builder.replan())
    stream.run(most=5)
    assert counted(stream) == once(range(30))
