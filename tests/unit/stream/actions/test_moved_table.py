"""A table that its catalog has moved: the stream goes on there once a person accepts it, and only if it is the same."""

from __future__ import annotations

import os
import shutil

import pytest

from airflow_provider_fds.catalog import problems
from airflow_provider_fds.catalog.names import TableName
from airflow_provider_fds.catalog.table import CatalogPlaces, CatalogTable, ListedTable
from airflow_provider_fds.cli.main import main
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import ConfigurationError, LedgerError, TableNotFoundError
from airflow_provider_fds.ledger.owner import Actor
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.places import Paths
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.stream import DeltaStream
from airflow_provider_fds.stream.actions.action_builder import ActionBuilder
from airflow_provider_fds.stream.actions.prepared_action import perform
from airflow_provider_fds.stream.actions.repair import _table_of as table_of
from airflow_provider_fds.stream.actions.repair import inspect
from tests.conftest import LogBuilder

NAME = "sales.orders"
PATHS = Paths()


class Metastore:
    """A catalog of local folders, with their times of creation."""

    title = "Metastore"

    def __init__(self):
        self.entries = {}
        self.num_lists = 0

    def load(self, name):
        if str(name) not in self.entries:
            raise problems.not_found(self.title, name)
        folder, created = self.entries[str(name)]
        return CatalogTable(name, str(folder), created)

    def listed(self, _schema):
        self.num_lists += 1
        return [
            ListedTable(TableName.parse(name), str(folder), created) for name, (folder, created) in self.entries.items()
        ]


@pytest.fixture
def metastore(bench):
    found = Metastore()
    found.entries[NAME] = (bench.table, "1700")
    return found


@pytest.fixture
def begin(bench, metastore, sink):
    """Begins a run of the stream; returns its session and its work."""

    def run(name, table=NAME, max_batches=10, **options):
        stream = DeltaStream("orders", table=table, catalog_conn_id="hive", **{"starting_version": 0, **options})
        session = bench.session(name, stream=stream, places=CatalogPlaces(metastore, lambda _uri: {}))
        return session, session.begin(sink, max_batches=max_batches)

    return run


@pytest.fixture
def load(bench, begin, sink):
    """Lets a run load what it finds first; returns the versions that it has loaded."""

    def run(name, table=NAME, **options):
        session, work = begin(name, table, **options)
        if work.status != "work":
            return []
        bench.report(session, work, session.job(work, sink))
        session.collect(work)
        return [(batch.first_version, batch.last_version) for batch in work.batches]

    return run


@pytest.fixture
def accept(bench):
    """Prepares the acceptance of a folder."""

    def prepare(folder, places=PATHS):
        ledger = Ledger(open_storage(str(bench.staging)), "orders")
        ledger.find()
        return ledger, ActionBuilder(ledger, "the disk was full", places=places).accept(moved_to=str(folder))

    return prepare


@pytest.fixture
def moved(bench, log_builder, metastore, tmp_path):
    """Moves the table to another folder, as a metastore does with one that it manages; returns a builder of its log."""

    def move(name=NAME):
        folder = tmp_path / "elsewhere" / "orders"
        shutil.move(bench.table, folder)
        for commit in (folder / "_delta_log").iterdir():
            # as a copy in an object store has it
            os.utime(commit)
        del metastore.entries[NAME]
        metastore.entries[name] = (folder, "1700")
        there = LogBuilder(folder)
        there.version = log_builder.version
        return there

    return move


def command(message):
    return message.partition("`fds ")[2].partition(" --why")[0].split()


def test_a_stream_goes_on_in_the_new_folder_after_its_last_row(bench, two_appends, load, moved, log_builder, capsys):
    assert load("run-1") == [(0, 2)]
    there = moved()
    there.append(3)
    with pytest.raises(LedgerError, match=r"its catalog has moved that table to .*/elsewhere/orders") as stopped:
        load("run-2")
    assert stopped.value.reason_code == Reason.STREAM_TABLE_CHANGED

    words = [*command(str(stopped.value)), "--staging", str(bench.staging)]
    assert words[:3] == ["accept", "orders", "--moved-to"]
    # the reason is asked for, and nothing is done before --yes
    assert main(words) == 2
    shown = capsys.readouterr().out
    assert f"after:  goes on with the table in {there.uri}" in shown
    assert "The commit before its position is the same in both folders" in shown
    with pytest.raises(LedgerError):
        load("run-3")
    assert main([*words, "--why", "the disk was full", "--yes"]) == 0
    assert main([*words, "--why", "the disk was full", "--yes"]) == 0
    assert "there is nothing to do" in capsys.readouterr().out

    assert load("run-4") == [(3, 3)]
    ledger = Ledger(open_storage(str(bench.staging)), "orders")
    state = ledger.find()
    assert (state.table, state.catalog.name, state.catalog.table_id) == (there.uri, NAME, "1700")
    names = [entry.action for entry in ledger.entries() if entry.action.kind == "named"]
    assert [(one.table or None, one.why or None) for one in names] == [(None, None), (there.uri, "the disk was full")]
    # a ledger that begins again knows it too
    assert table_of(inspect(ledger)) == there.uri


def test_a_name_that_is_gone_names_the_table_that_has_its_files_or_its_id(
    bench, two_appends, begin, load, moved, accept, metastore
):
    load("run-1")
    metastore.entries["sales.other"] = ("/lake/other", "9")
    there = moved("sales.renamed")
    with pytest.raises(TableNotFoundError, match=r"has read is now sales\.renamed$") as gone:
        begin("run-2")
    assert gone.value.reason_code == Reason.CATALOG_TABLE_NOT_FOUND
    assert metastore.num_lists == 1
    # an older one of the same second; then its folder tells the two apart
    metastore.entries["sales.again"] = ("/lake/again", "1700")
    with pytest.raises(TableNotFoundError, match=r"is now one of sales\.renamed, sales\.again$"):
        begin("run-2")
    with pytest.raises(LedgerError, match="fds accept orders --moved-to"):
        begin("run-2", "sales.renamed")
    ledger, asked = accept(there.root)
    perform(ledger, asked, Actor(deployment="test"))
    there.append(3)
    assert load("run-3", "sales.renamed") == [(3, 3)]
    del metastore.entries["sales.renamed"]
    metastore.entries["sales.twice"] = (there.root, "1800")
    with pytest.raises(TableNotFoundError, match=r"has read is now sales\.twice$"):
        begin("run-4", "sales.renamed")


def test_a_name_that_no_stream_has_found_is_not_looked_for(bench, begin, metastore):
    with pytest.raises(TableNotFoundError, match=r"if the table was renamed, use its new name$"):
        begin("run-1", "sales.nope")
    assert metastore.num_lists == 0


def rewrite(folder, version):
    path = folder / "_delta_log" / f"{version:020}.json"
    path.write_text(path.read_text() + "\n")


def another_table(folder, _version):
    shutil.rmtree(folder)
    builder = LogBuilder(folder)
    builder.table_id = "another"
    builder.with_appends(3)


def cut(folder, version):
    (folder / "_delta_log" / f"{version:020}.json").unlink()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (rewrite, "version 2 in .* is not the commit that the stream has read"),
        (cut, "cannot be checked: .* that of version 2, and the log there ends before it"),
        (another_table, "has another table: its id is another"),
    ],
)
def test_a_folder_with_another_history_is_refused(two_appends, load, moved, accept, change, words):
    load("run-1")
    there = moved()
    change(there.root, 2)
    with pytest.raises(ConfigurationError, match=rf"(?s){words}.*Nothing was done") as refused:
        accept(there.root)
    assert refused.value.reason_code == Reason.ACTION_REFUSED


def test_what_cannot_be_checked_is_refused(bench, two_appends, begin, load, moved, accept, tmp_path):
    # inside the first snapshot, half of which is loaded
    load("run-1", max_batches=1, starting_version=None, max_files_per_batch=1)
    there = moved()
    with pytest.raises(ConfigurationError, match=r"inside the snapshot of version 2"):
        accept(there.root)
    with pytest.raises(ConfigurationError, match="cannot be read from here"):
        accept(there.root, places=None)


def test_batches_that_read_the_former_folder_are_discarded_first(log_builder, two_appends, begin, moved, accept, load):
    load("run-1")
    log_builder.append(1)
    begin("run-2")
    there = moved()
    ledger, asked = accept(there.root)
    assert ledger.state.planned
    with pytest.raises(LedgerError, match=r"Discard them first with `fds replan orders --why …`"):
        asked.changes(ledger.state)
    perform(ledger, ActionBuilder(ledger, "it moved").replan(), Actor(deployment="test"))
    _, asked = accept(there.root)
    perform(ledger, asked, Actor(deployment="test"))
    assert ledger.state.table == there.uri


def test_a_stream_without_a_name_is_refused(bench, two_appends, sink, accept, tmp_path):
    bench.load_once(sink)
    with pytest.raises(ConfigurationError, match="has found its table by a URI"):
        accept(tmp_path / "elsewhere")
