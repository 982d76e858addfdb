"""What a function's tables say of its writes, and what a move makes of it."""

from __future__ import annotations

import json

import pytest

from airflow_provider_fds.batch.report import FenceReport, fence_report_name
from airflow_provider_fds.batch.table_writes import TableWrite, TableWrites
from airflow_provider_fds.batch.transactions import fence_version, txn_app_id, txn_version
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import ConfigurationError, LedgerError
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.sinks import ForeachBatchSink
from airflow_provider_fds.stream.actions.action_builder import ActionBuilder
from airflow_provider_fds.stream.actions.operator_actions import landed_of
from airflow_provider_fds.stream.actions.prepared_action import perform
from airflow_provider_fds.stream.sink_record.function_tables import read_table_writes
from tests.conftest import LogBuilder


class Tables:
    """A stream with three planned batches of a function, and its tables, of hand-made commits."""

    def __init__(self, bench, tmp_path):
        self.bench = bench
        self.tables = {name: LogBuilder(tmp_path / name) for name in ("kept", "gone")}
        for table in self.tables.values():
            table.create()
        writes = {name: str(table.root) for name, table in self.tables.items()}
        self.sink = ForeachBatchSink("jobs.orders:load", writes=writes)
        self.session = bench.session(stream=bench.stream(max_versions_per_batch=1))
        self.work = self.session.begin(self.sink)
        self.uuid = self.session.connected.state.uuid

    def app_id(self, name):
        return txn_app_id(self.uuid, write=name)

    def write(self, name, version, **more):
        table = self.tables[name]
        action = {"txn": {"appId": self.app_id(name), "version": version, "lastUpdated": 1}}
        return table.commit(table.add(f"{name}-{table.version}"), action, **more)

    def reported(self, *batch_ids):
        spec = self.session.job(self.work, self.sink)
        self.bench.report(self.session, self.work, spec, sink_version=None, sink_table_id=None)
        for path in (self.bench.staging / "orders/attempts/1").rglob("*.json"):
            if int(path.parent.name) not in batch_ids:
                path.unlink()

    def builder(self, **more):
        ledger = Ledger(open_storage(str(self.bench.staging)), "orders")
        ledger.find()
        more.setdefault("open_table", open_storage)
        return ActionBuilder(ledger, "a test", owner_runs=lambda _owner: False, **more)

    def replan(self, landed=None, **more):
        builder = self.builder(**more)
        return perform(builder.ledger, builder.replan(landed=landed), self.session.context.actor)

    def fence(self, *names, landed=()):
        """A run that fences the tables, as the driver reports it with what has landed; returns the state after it."""
        session = self.bench.session("run-2", stream=self.bench.stream(max_versions_per_batch=1))
        work = session.begin(self.sink)
        assert work.status == "fence"
        session.job(work, self.sink)
        for name in names:
            self.write(name, fence_version(work.epoch))
        found = {name: TableWrites(self.tables[name].version) for name in names if name in self.tables}
        for name, write in landed:
            found[name] = TableWrites(write.version, (write,))
        report = FenceReport(self.uuid, work.epoch, work.attempt_id, "fenced", writes=tuple(found), tables=found)
        name = f"orders/attempts/{fence_report_name(work.epoch, work.attempt_id)}"
        session.connected.staging.put(name, report.to_json())
        collected = session.collect(work)
        return session.connected.state, collected


@pytest.fixture
def tables(bench, log_builder, tmp_path):
    log_builder.create()
    for _ in range(3):
        log_builder.append(1)
    return Tables(bench, tmp_path)


@pytest.mark.parametrize(
    ("text", "answer"), [("yes", True), ("No", False), ("kept=yes, gone=no", {"kept": True, "gone": False})]
)
def test_an_answer_is_for_all_writes_or_for_each(text, answer):
    assert landed_of(text) == answer


@pytest.mark.parametrize("text", ["perhaps", "kept", "kept=perhaps", "kept=yes,kept=no", "=yes", ""])
def test_an_invalid_answer_is_refused(text):
    with pytest.raises(ValueError, match="expected yes, no, or WRITE="):
        landed_of(text)


def test_a_write_is_found_however_many_commits_came_after_it(tables):
    version = tables.write("kept", txn_version(1, 0))
    for _ in range(250):
        tables.tables["kept"].append(1)
    storage = open_storage(str(tables.tables["kept"].root))
    assert read_table_writes(storage, tables.app_id("kept")).newest == TableWrite(txn_version(1, 0), version)
    assert read_table_writes(storage, tables.app_id("gone")).newest is None
    tables.tables["kept"].commit(operation="RESTORE")
    assert read_table_writes(storage, tables.app_id("kept")).newest.place == "unsure"


def test_batches_that_the_function_has_returned_from_are_not_loaded_again(tables):
    tables.reported(0, 1)
    for batch in range(2):
        for name in ("kept", "gone"):
            tables.write(name, txn_version(1, batch))
    batches = tables.session.connected.state.planned
    move = tables.builder().replan()
    assert move.commands[0].to == {"offset": batches[1].end}
    assert "not loaded again: batches 0 to 1, up to version 2." in move.describe()


def test_a_partly_landed_batch_is_not_discarded_and_the_message_names_every_way_to_continue(tables):
    tables.reported(0)
    for name in ("kept", "gone"):
        tables.write(name, txn_version(1, 0))
    tables.write("kept", txn_version(1, 1))
    with pytest.raises(LedgerError, match="'kept' has landed but 'gone' has not") as refused:
        tables.builder().replan()
    text = str(refused.value)
    for words in ("The next run of the stream finishes", "--landed kept=no,gone=no", "--landed kept=yes,gone=yes"):
        assert words in text
    assert "orders/manifests/1/1-" in text

    batches = tables.session.connected.state.planned
    assert tables.builder().replan(landed=True).commands[0].to == {"offset": batches[1].end}
    assert tables.builder().replan(landed={"kept": False}).commands[0].to == {"offset": batches[0].end}


def test_rows_that_a_restore_may_have_taken_away_are_asked_for(tables):
    tables.write("kept", txn_version(1, 0))
    tables.write("gone", txn_version(1, 0))
    tables.tables["gone"].commit(operation="RESTORE")
    with pytest.raises(ConfigurationError, match=r"--landed gone=yes\|no$"):
        tables.builder().replan()


def test_an_epoch_is_fenced_in_every_named_table(tables):
    tables.replan()
    state, _ = tables.fence("kept", "gone")
    assert (state.phase, state.epoch) == ("open", 2)


def test_a_fence_that_a_table_does_not_have_is_not_believed(tables):
    tables.replan()
    state, collected = tables.fence("kept")
    assert state.phase == "requested"
    assert collected.failure is not None
    assert "exists now, but is not fenced" in str(collected.failure)


def test_a_write_between_request_and_fence_is_refused_until_it_is_asked_again(tables):
    tables.replan()
    version = tables.write("kept", txn_version(1, 0))
    with pytest.raises(LedgerError, match=f"wrote 'kept' of batch 0 .version {version} of"):
        tables.fence("kept", "gone")
    tables.replan(landed={"kept": False, "gone": False}, replaces=True)
    state, _ = tables.fence("kept", "gone")
    assert (state.phase, state.epoch) == ("open", 3)


def test_missing_tables_need_no_fence_and_cause_a_warning(tables, caplog):
    for table in tables.tables.values():
        for version in range(table.version + 1):
            table.path_of(version).unlink()
    tables.replan()
    session = tables.bench.session("run-2", stream=tables.bench.stream(max_versions_per_batch=1))
    work = session.begin(tables.sink)
    report = FenceReport(tables.uuid, 2, work.attempt_id, "sink_missing")
    session.job(work, tables.sink)
    session.connected.staging.put(f"orders/attempts/{fence_report_name(2, work.attempt_id)}", report.to_json())
    session.collect(work)
    assert session.connected.state.phase == "open"
    assert "write 'gone' has no table" in caplog.text


def test_a_restore_removes_only_the_commits_after_its_version(tables):
    storage = open_storage(str(tables.tables["kept"].root))
    first, second = (tables.write("kept", txn_version(1, batch)) for batch in (0, 1))
    restored = tables.tables["kept"].commit(operation="RESTORE", parameters={"version": str(first)})

    found = read_table_writes(storage, tables.app_id("kept"), fence_version(1))
    gone = TableWrite(txn_version(1, 1), second, "gone", restored)
    assert found == TableWrites(restored, (TableWrite(txn_version(1, 0), first), gone), newest=gone, is_new=True)
    assert read_table_writes(storage, tables.app_id("kept"), txn_version(1, 0)) == TableWrites(
        restored, found.writes[1:], found.writes[0], gone
    )
    assert read_table_writes(storage, tables.app_id("kept")).newest == gone

    # a RESTORE to after it, of what a job did meanwhile, keeps it
    tables.tables["kept"].commit(operation="RESTORE", parameters={"version": str(second)})
    assert read_table_writes(storage, tables.app_id("kept"), fence_version(1)).writes[1].place == "there"


def test_a_reported_batch_that_a_table_lacks_is_asked_for(tables):
    tables.reported(0, 1, 2)
    for batch in range(3):
        tables.write("kept", txn_version(1, batch))
    tables.write("gone", txn_version(1, 1))
    # it was called with batch 1, so it had nothing to write of batch 0
    with pytest.raises(
        ConfigurationError, match=r"batch 2 .*'gone' lacks a write that the driver .*--landed gone=yes\|no$"
    ):
        tables.builder().replan()
    end = tables.session.connected.state.planned[2].end
    assert tables.builder().replan(landed={"gone": True}).commands[0].to == {"offset": end}
    # where nobody can read the tables the report is all there is
    assert tables.builder(open_table=None).replan().commands[0].to == {"offset": end}


def test_an_answer_that_contradicts_tables_and_reports_is_refused(tables):
    tables.reported(0, 1, 2)
    for batch in range(3):
        for name in ("kept", "gone"):
            tables.write(name, txn_version(1, batch))
    with pytest.raises(ConfigurationError, match="all planned batches have landed, up to version 3"):
        tables.builder().replan(landed=False)


def test_a_batch_that_the_ledger_does_not_know_keeps_a_replan_from_going_on(tables):
    version = tables.write("gone", txn_version(1, 3))
    with pytest.raises(LedgerError, match=f"'gone' has batch 3 of epoch 1 in version {version} of .* older copy"):
        tables.builder().replan()
    assert "the ledger does not know batch 3 of epoch 1" in tables.builder().rewind(to=0, sink_rows="keep").describe()
    # it was taken out by a RESTORE
    tables.tables["gone"].commit(operation="RESTORE", parameters={"version": str(version - 1)})
    assert tables.builder().replan().commands[0].to is None


def test_a_request_tells_of_no_more_writes_than_the_first_one_since_an_epoch_was_opened(tables):
    tables.replan()
    version = tables.write("kept", txn_version(1, 0))
    for reaches in (False, True):
        builder = tables.builder(replaces=True, **({} if reaches else {"open_table": None}))
        move = builder.rewind(to=0, sink_rows="keep")
        perform(builder.ledger, move, tables.session.context.actor)
        assert builder.ledger.state.request.seen == ()
    assert f"after an earlier request: 'kept' has batch 0 (version {version})" in move.describe()
    with pytest.raises(LedgerError, match="wrote 'kept' of batch 0"):
        tables.fence("kept", "gone")
    # a run has named it, so the next request may have it loaded again
    builder = tables.builder(replaces=True)
    move = builder.rewind(to=0, sink_rows="keep")
    assert f"in the function's tables: 'kept' has batch 0 (version {version}). Their rows" in move.describe()
    perform(builder.ledger, move, tables.session.context.actor)
    assert tables.fence("kept", "gone")[0].phase == "open"


def test_what_a_request_told_of_a_table_is_not_said_of_one_that_was_made_again(tables):
    for batch in range(3):
        tables.write("kept", txn_version(1, batch))
    builder = tables.builder()
    perform(builder.ledger, builder.rewind(to=0, sink_rows="keep"), tables.session.context.actor)
    for version in (2, 3):
        # a driver that is still running has made it again, with a commit of the same version
        tables.tables["kept"].path_of(version).unlink()
    tables.tables["kept"].version = 1
    with pytest.raises(LedgerError, match=r"wrote 'kept' of batch 0 .version 1 of"):
        tables.fence("kept", "gone")


def test_the_run_checks_what_could_not_be_checked_when_the_epoch_was_requested(tables):
    tables.write("kept", txn_version(1, 0))
    builder = tables.builder(open_table=None)
    move = builder.rewind(to=0, sink_rows="keep")
    assert "The table of 'kept' and 'gone' cannot be read from here." in move.describe()
    perform(builder.ledger, move, tables.session.context.actor)
    with pytest.raises(LedgerError, match="wrote 'kept' of batch 0"):
        tables.fence("kept", "gone")


def test_a_write_that_only_the_driver_sees_keeps_the_epoch_from_beginning(tables, tmp_path):
    version = tables.write("kept", txn_version(1, 0))
    commit = tables.tables["kept"].path_of(0)
    commit.rename(tmp_path / "outside")
    commit.symlink_to(tmp_path / "outside")
    builder = tables.builder()
    perform(builder.ledger, builder.rewind(to=0, sink_rows="keep"), tables.session.context.actor)
    landed = (("kept", TableWrite(txn_version(1, 0), version)),)
    with pytest.raises(LedgerError, match=f"wrote 'kept' of batch 0 .version {version} of"):
        tables.fence("kept", "gone", landed=landed)
    # a run has named it
    builder = tables.builder(replaces=True)
    move = builder.rewind(to=0, sink_rows="keep")
    assert f"in the function's tables: 'kept' has batch 0 (version {version}). Their rows" in move.describe()
    perform(builder.ledger, move, tables.session.context.actor)
    assert tables.fence("kept", "gone", landed=landed)[0].phase == "open"


def test_a_report_of_a_write_that_the_function_does_not_make_is_refused(tables):
    tables.replan()
    _, collected = tables.fence("kept", "gone", landed=(("other", TableWrite(txn_version(1, 0), 1)),))
    assert "names 'other', whose tables are unknown" in str(collected.failure)


@pytest.mark.parametrize("is_reported", [False, True])
@pytest.mark.parametrize("reaches", [True, False])
def test_a_batch_that_an_earlier_request_has_loaded_again_counts_as_loaded_only_if_a_person_says_so(
    tables, is_reported, reaches
):
    tables.reported(*((0,) if is_reported else ()))
    for name in ("kept", "gone"):
        tables.write(name, txn_version(1, 0))
    # the person takes its rows out, and says so: by a rewind, or where the function has not returned by an answer
    builder = tables.builder()
    move = builder.rewind(to=0, sink_rows="keep") if is_reported else builder.replan(landed=False)
    perform(builder.ledger, move, tables.session.context.actor)

    again = tables.builder(replaces=True, **({} if reaches else {"open_table": None}))
    with pytest.raises(ConfigurationError, match=r"batch 0 .*--landed kept=yes\|no,gone=yes\|no$"):
        again.replan()
    end = again.ledger.state.closed.planned[0].end
    assert again.replan(landed=True).commands[0].to == {"offset": end}
    assert again.replan(landed=False).commands[0].to is None


def test_a_write_after_a_request_counts_as_loaded_in_the_next_one(tables):
    tables.replan()
    for name in ("kept", "gone"):
        tables.write(name, txn_version(1, 0))
    end = tables.builder().ledger.state.closed.planned[0].end
    assert tables.builder(replaces=True).replan().commands[0].to == {"offset": end}


def take_away(tables, name, how):
    """Take the rows of a table away, as a person or a job does between two runs."""
    table = tables.tables[name]
    if how == "restored":
        table.commit(operation="RESTORE", parameters={"version": "0"})
        return
    if how == "replaced":
        table.commit(operation="CREATE OR REPLACE TABLE AS SELECT")
        return
    newest = table.version
    for version in range(newest + 1):
        table.path_of(version).unlink()
    if how == "made again":
        table.version = -1
        table.create()
        while table.version < newest:
            table.append(1)


@pytest.mark.parametrize("how", ["restored", "replaced", "removed", "made again"])
def test_a_batch_that_a_replan_has_counted_as_loaded_must_be_there_when_the_epoch_begins(tables, how):
    for name in ("kept", "gone"):
        tables.write(name, txn_version(1, 0))
    end = tables.session.connected.state.planned[0].end
    tables.replan()
    assert tables.builder().ledger.state.request.to == {"offset": end}
    take_away(tables, "gone", how)
    fenced = ("kept",) if how == "removed" else ("kept", "gone")
    for _ in range(2):
        with pytest.raises(LedgerError, match="'gone'"):
            tables.fence(*fenced)
    # it is read again
    builder = tables.builder(replaces=True)
    perform(builder.ledger, builder.rewind(to=0, sink_rows="keep"), tables.session.context.actor)
    assert tables.fence(*fenced)[0].phase == "open"


def commit_all(tables):
    """Let the run load and commit the three batches; they are versions 1 to 3 of each table."""
    for batch in range(3):
        for name in ("kept", "gone"):
            tables.write(name, txn_version(1, batch))
    spec = tables.session.job(tables.work, tables.sink)
    tables.bench.report(tables.session, tables.work, spec, sink_version=None, sink_table_id=None)
    for path in (tables.bench.staging / "orders/attempts/1").rglob("*.json"):
        versions = dict.fromkeys(("kept", "gone"), int(path.parent.name) + 1)
        path.write_text(json.dumps({**json.loads(path.read_text()), "tables": versions}))
    assert tables.session.collect(tables.work).failure is None


@pytest.mark.parametrize("begins", [False, True])
@pytest.mark.parametrize("asked", ["replan", "rewind"])
def test_no_epoch_begins_after_committed_rows_that_a_table_lacks_whichever_fence_came_after_them(tables, asked, begins):
    commit_all(tables)
    if begins:
        tables.replan()
        assert tables.fence("kept", "gone")[0].phase == "open"
    restored = tables.tables["gone"].commit(operation="RESTORE", parameters={"version": "1"})
    builder = tables.builder()
    move = builder.replan() if asked == "replan" else builder.rewind(to=3, sink_rows="keep")
    perform(builder.ledger, move, tables.session.context.actor)
    for _ in range(2):
        with pytest.raises(LedgerError, match=rf"{restored} .*gone|gone.* {restored}") as refused:
            tables.fence("kept", "gone")
    if asked == "rewind":
        assert "lacks batch 1 of epoch 1" in str(refused.value)
        assert "`fds rewind orders --replace --to 2 --sink-rows keep --why …`" in str(refused.value)
    builder = tables.builder(replaces=True)
    perform(builder.ledger, builder.rewind(to=2, sink_rows="keep"), tables.session.context.actor)
    assert tables.fence("kept", "gone")[0].phase == "open"


def test_a_batch_does_not_count_as_loaded_by_another_one_of_its_number(tables):
    told = {"fds_write": 1, "stream": "orders", "uuid": tables.uuid, "epoch": 1, "batch_id": 0, "digest": "another"}
    for name in ("kept", "gone"):
        tables.write(name, txn_version(1, 0), userMetadata=json.dumps({**told, "write": name}))
    # where nobody reads the tables, the answer is all there is
    tables.replan(landed=True, open_table=None)
    with pytest.raises(LedgerError, match=r"counts batch 0 as loaded, but .* has another batch of this number"):
        tables.fence("kept", "gone")
