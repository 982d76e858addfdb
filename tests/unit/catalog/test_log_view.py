"""A log whose newest commits only the catalog knows: what a reader sees of it, rule by rule of the Delta protocol."""

from __future__ import annotations

import asyncio
import json
import random
import threading
import uuid

import pytest

from airflow_provider_fds.catalog.log_view import CatalogLogView, LogTip, StagedCommit
from airflow_provider_fds.delta.names import LAST_CHECKPOINT, LOG_FOLDER, commit_key
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.errors import (
    ConfigurationError,
    LogGapError,
    StorageError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from tests.counting_storage import CountingStorage

TABLE_ID = "fd48870d-cc8d-4fe7-8c5a-abe64c051cb3"
MANAGED = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["catalogManaged"],
        "writerFeatures": ["catalogManaged", "inCommitTimestamp"],
    },
    "configuration": {"io.unitycatalog.tableId": TABLE_ID, "delta.enableInCommitTimestamps": "true"},
}


class Managed:
    """A table of which versions 3 to 5 are staged, beside lost and half-written commits, and its catalog."""

    def __init__(self, builder, *, published=3, latest=5):
        self.builder = builder
        protocol = {"protocol": MANAGED["protocol"]}
        builder.commit(protocol, builder.metadata(configuration=MANAGED["configuration"]), inCommitTimestamp=1_000)
        for _ in range(latest):
            self.append()
        self.staged = builder.log / "_staged_commits"
        self.staged.mkdir()
        self.requests = []
        self.asked = 0
        self.tip = LogTip(latest, {})
        for version in range(published, latest + 1):
            self.stage(version)
        self.lose(latest)
        self.lose(latest + 1)
        self.answers = []

    def append(self):
        """Publish a commit with the time that the protocol demands; the file's own means nothing."""
        builder, version = self.builder, self.builder.version + 1
        return builder.commit(builder.add(f"part-{version:05d}-00000.parquet"), inCommitTimestamp=1_000 + version)

    def stage(self, version):
        """Move a commit to the staged ones, and let the catalog name it."""
        path = self.builder.path_of(version)
        name = f"{version:020d}.{uuid.uuid4()}.json"
        path.rename(self.staged / name)
        commit = StagedCommit(version, name, (self.staged / name).stat().st_size, 1_700_000_000_000)
        self.tip = LogTip(max(version, self.tip.latest), {**self.tip.staged, version: commit})

    def commit(self):
        """Commit the next version through the catalog."""
        version = self.append()
        self.stage(version)
        return version

    def lose(self, version):
        (self.staged / f"{version:020d}.{uuid.uuid4()}.json").write_text('{"add":')

    def publish(self, version, *, tell=False, keep=True):
        """Publish a staged commit."""
        source = self.staged / self.tip.staged[version].name
        self.builder.path_of(version).write_bytes(source.read_bytes())
        if not keep:
            source.unlink()
        if tell:
            self.tip = LogTip(self.tip.latest, {v: c for v, c in self.tip.staged.items() if v != version})

    def ask(self):
        self.asked += 1
        answer = self.answers.pop(0) if self.answers else self.tip
        if isinstance(answer, Exception):
            raise answer
        return answer

    def view(self, tip=None, *, is_new=False, **changes):
        """Return a view whose answer has served a question already, unless it is new."""
        folder = CountingStorage(LocalStorage(str(self.builder.root)), self.requests)
        view = CatalogLogView(folder, tip or self.tip, self.ask, **{"table_id": TABLE_ID, **changes})
        if not is_new:
            view.renew()
        return view

    def log(self, tip=None):
        return DeltaLog(self.view(tip))


@pytest.fixture
def table(log_builder):
    return Managed(log_builder)


class Arrivals:
    """A lock that says how many have come to it."""

    def __init__(self):
        self.seen = threading.Semaphore(0)
        self.lock = threading.Lock()

    def __enter__(self):
        self.seen.release()
        self.lock.acquire()

    def __exit__(self, *error):
        self.lock.release()


def adds(commit):
    return [action.add.path for action in commit.actions if action.add is not None]


def test_the_catalog_says_what_the_newest_version_is(table):
    log = table.log()
    assert (log.latest(), log.latest(2), log.latest(5), log.earliest()) == (5, 5, 5, 0)
    assert log.state_at(5).metadata.id == table.builder.table_id
    assert [commit.version for commit in log.commits(0, 5)] == [0, 1, 2, 3, 4, 5]
    assert [adds(commit) for commit in log.commits(4, 5)] == [
        [f"part-0000{version}-00000.parquet"] for version in (4, 5)
    ]


@pytest.mark.parametrize("is_async", [False, True])
def test_a_poll_is_one_question_to_the_catalog_and_none_to_storage(table, is_async):
    log = table.log()
    found = asyncio.run(log.probe_async(6)) if is_async else log.probe(6)
    assert (found, table.asked, table.requests) == (False, 1, [])
    table.commit()
    found = asyncio.run(log.probe_async(6)) if is_async else log.probe(6)
    assert (found, table.asked, table.requests) == (True, 2, [])
    assert log.latest(5) == 6


def test_a_named_commit_is_read_from_its_staged_file_even_if_it_is_published(table):
    table.builder.path_of(3).write_text('{"commitInfo":{"note":"must not be read"}}\n')
    assert adds(table.log().commit(3)) == ["part-00003-00000.parquet"]
    assert len(list(table.view().list_after(LOG_FOLDER))) == 6


def test_nothing_after_the_latest_version_counts(table):
    (table.builder.log / f"{6:020d}.json").write_text('{"commitInfo":{}}\n')
    for name in (f"{6:020d}.checkpoint.parquet", f"{6:020d}.crc", f"{2:020d}.{6:020d}.compacted.json"):
        (table.builder.log / name).write_text("x")
    (table.builder.log / f"{3:020d}.{5:020d}.compacted.json").write_text("x")
    (table.builder.root / LAST_CHECKPOINT).write_text('{"version":6,"size":1}')
    view = table.view()
    names = [meta.key.rpartition("/")[2] for meta in view.list_after(LOG_FOLDER)]
    assert [name for name in names if name.startswith(f"{6:020d}") or f"{6:020d}" in name] == []
    assert f"{3:020d}.{5:020d}.compacted.json" in names
    for key in (commit_key(6), f"{LOG_FOLDER}/{6:020d}.checkpoint.parquet", LAST_CHECKPOINT):
        with pytest.raises(FileNotFoundError):
            view.get(key)
    assert view.head(commit_key(6)) is None
    assert DeltaLog(view).latest() == 5


def test_a_pointer_to_a_checkpoint_of_a_known_version_counts(table):
    (table.builder.root / LAST_CHECKPOINT).write_text('{"version":4,"size":1}')
    assert json.loads(table.view().get(LAST_CHECKPOINT)[0])["version"] == 4


def test_staged_files_that_the_catalog_does_not_name_are_not_there(table):
    view = table.view()
    key = f"{LOG_FOLDER}/_staged_commits/{next(table.staged.iterdir()).name}"
    assert list(view.list_after(f"{LOG_FOLDER}/_staged_commits")) == []
    assert view.head(key) is None
    with pytest.raises(FileNotFoundError):
        view.get(key)


@pytest.mark.parametrize("read", ["get", "stream", "open"])
@pytest.mark.parametrize("tell", [False, True])
def test_a_staged_file_that_was_cleaned_up_is_read_from_its_published_copy(table, read, tell):
    view = table.view()
    expected = (table.staged / table.tip.staged[3].name).read_bytes()
    table.publish(3, tell=tell, keep=False)
    found = getattr(view, read)(commit_key(3))
    if read == "open":
        with found as file:
            content = file.read()
    else:
        content = found[0] if read == "get" else b"".join(found)
    assert (content, table.asked) == (expected, 1)


def test_a_staged_commit_has_one_etag_by_which_it_is_recognised(table):
    view = table.view()
    listed = {meta.key: meta.etag for meta in view.list_after(LOG_FOLDER)}
    key = commit_key(4)
    assert listed[key] == view.head(key).etag == view.get(key)[1].etag == table.tip.staged[4].name


def test_a_staged_file_under_a_new_name_is_found(table):
    view = table.view()
    old = table.tip.staged[3]
    new = StagedCommit(3, f"{3:020d}.{uuid.uuid4()}.json", old.size_bytes, 0)
    (table.staged / old.name).rename(table.staged / new.name)
    table.tip = LogTip(5, {**table.tip.staged, 3: new})
    assert len(view.get(commit_key(3))[0]) == old.size_bytes


def test_a_staged_file_that_is_gone_and_never_published_is_the_usual_error(table):
    (table.staged / table.tip.staged[4].name).unlink()
    with pytest.raises(StorageError, match=r"version 4 of .* was not found, but a later listing contains it"):
        list(table.log().commits(3, 5))


def test_a_hole_is_looked_at_again_and_then_the_usual_error(table):
    table.builder.path_of(1).unlink()
    with pytest.raises(LogGapError, match="version 1 is missing"):
        table.log().verify_position(1)


def test_a_hole_in_a_stale_answer_is_filled_by_the_next(table):
    stale = LogTip(5, {version: commit for version, commit in table.tip.staged.items() if version != 4})
    log = table.log(stale)
    assert log.storage.head(commit_key(4)).etag == table.tip.staged[4].name
    table.answers = [stale]
    assert [meta.key for meta in log.list_commits(3, 5)] == [commit_key(version) for version in (3, 4, 5)]


@pytest.mark.parametrize("with_later_name", [False, True])
def test_a_log_that_ends_before_the_latest_version_is_not_believed(table, with_later_name):
    if with_later_name:
        (table.builder.root / LAST_CHECKPOINT).write_text("{}")
    (table.staged / table.tip.staged[5].name).unlink()
    table.tip = LogTip(5, {version: commit for version, commit in table.tip.staged.items() if version != 5})
    with pytest.raises(StorageError, match=r"ends at version 4, but the catalog says .* 5") as caught:
        table.log().latest()
    assert caught.value.retryable


def test_the_answer_of_a_resolve_serves_the_question_that_comes_next(table):
    log = DeltaLog(table.view(is_new=True))
    assert (log.latest(), table.asked) == (5, 0)
    assert (log.probe(6), table.asked) == (False, 1)
    table.commit()
    # the answer of a look that found a version serves the listing after it
    assert (log.latest(5), table.asked) == (6, 2)
    assert (log.latest(), table.asked) == (6, 3)


def test_one_answer_serves_a_whole_plan_and_ends_with_it(table):
    log = table.log()
    with log.one_answer():
        assert log.latest() == 5
        table.commit()
        with log.one_answer():
            assert (log.latest(5), log.verify_position(3), len(log.list_commits(0, 5))) == (5, 5, 6)
        assert log.state_at(5).version == 5
        assert table.asked == 1
        log.renew()
        assert (log.latest(5), table.asked) == (6, 2)
    table.commit()
    assert log.latest(6) == 7


def test_other_threads_ask_for_themselves(table):
    log = table.log()
    with log.one_answer():
        assert log.latest() == 5
        table.commit()
        thread = threading.Thread(target=lambda: log.probe(6))
        thread.start()
        thread.join()
        assert table.asked == 2


def test_a_hole_ends_the_one_answer(table):
    stale = LogTip(5, {version: commit for version, commit in table.tip.staged.items() if version != 4})
    log = table.log(stale)
    table.answers = [stale]
    with log.one_answer():
        assert log.verify_position(3) == 5
        assert table.asked == 2
        table.publish(4, tell=True, keep=False)
        assert [commit.version for commit in log.commits(3, 5)] == [3, 4, 5]


def test_an_older_answer_is_stale_and_the_newer_one_stays(table):
    old = table.tip
    log = table.log()
    table.commit()
    assert log.latest(5) == 6
    table.answers = [old]
    assert log.latest(6) == 6
    table.answers = [old, old]
    before = table.asked
    assert log.latest(6) == 6
    assert table.asked == before + 2


def test_an_answer_that_fails_raises_and_the_next_is_used(table):
    log = table.log()
    table.answers = [StorageError("busy")]
    with pytest.raises(StorageError, match="busy"):
        log.latest(5)
    table.commit()
    assert log.latest(5) == 6


def test_callers_at_the_same_moment_share_an_answer(table):
    inside, go_on = threading.Event(), threading.Event()
    asked = []

    def ask():
        asked.append(1)
        inside.set()
        assert go_on.wait(10)
        return table.tip

    view = CatalogLogView(LocalStorage(str(table.builder.root)), table.tip, ask, table_id=TABLE_ID)
    view.renew()
    view._lock = arrivals = Arrivals()
    found = []
    threads = [threading.Thread(target=lambda: found.append(view.head(commit_key(6)))) for _ in range(8)]
    threads[0].start()
    assert inside.wait(10)
    for thread in threads[1:]:
        thread.start()
    for _ in threads:
        assert arrivals.seen.acquire(timeout=10)
    go_on.set()
    for thread in threads:
        thread.join(10)
    # those that came while the catalog was being asked need a newer answer, all of them the same one
    assert (found, len(asked)) == ([None] * 8, 2)


@pytest.mark.parametrize("seed", range(25))
def test_any_mix_of_commits_publishing_clean_up_and_stale_answers_is_read_exactly(tmp_path, seed):
    happens = random.Random(seed)
    log = tmp_path / LOG_FOLDER
    (log / "_staged_commits").mkdir(parents=True)
    staged, tips, latest = {}, [], -1

    def content(version):
        return f'{{"commitInfo":{{"txnId":"{version}"}}}}\n'.encode()

    def step():
        nonlocal latest
        if latest < 1 or not staged or happens.random() < 0.5:
            latest += 1
            commit = StagedCommit(latest, f"{latest:020d}.{uuid.uuid4()}.json", len(content(latest)), 1)
            (log / "_staged_commits" / commit.name).write_bytes(content(latest))
            (log / "_staged_commits" / f"{latest:020d}.{uuid.uuid4()}.json").write_text("lost")
            staged[latest] = commit
        else:
            commit = staged.pop(min(staged))
            (log / f"{commit.version:020d}.json").write_bytes(content(commit.version))
            if happens.random() < 0.6:
                (log / "_staged_commits" / commit.name).unlink()

    def ask():
        if happens.random() < 0.5:
            step()
        tips.append(LogTip(latest, dict(staged)))
        return tips[-2] if happens.random() < 0.2 else tips[-1]

    for _ in range(5):
        step()
    tips.append(LogTip(latest, dict(staged)))
    view = CatalogLogView(LocalStorage(str(tmp_path)), tips[0], ask, table_id=TABLE_ID)
    newest = -1
    for _ in range(8):
        step()
        newest, before = DeltaLog(view).latest(newest), newest
        assert newest >= before
        assert [commit.version for commit in DeltaLog(view).commits(0, newest)] == list(range(newest + 1))
        assert all(view.get(commit_key(version))[0] == content(version) for version in range(newest + 1))
    assert newest >= 1


def test_the_folder_of_another_table_is_refused(table):
    with pytest.raises(ConfigurationError, match=rf"the catalog's id is other, and version 5 has {TABLE_ID}") as caught:
        DeltaLog(table.view(table_id="other")).state_at(5)
    assert caught.value.reason_code == "CATALOG_TABLE_UNREADABLE"


def test_by_path_it_is_refused(table):
    with pytest.raises(UnsupportedFeatureError, match="only a catalog knows its newest commits") as caught:
        DeltaLog(LocalStorage(str(table.builder.root))).state_at(2)
    assert "Give its name in the catalog" in str(caught.value)
    assert "DROP FEATURE" not in str(caught.value)


def test_a_folder_without_log_is_no_table(table, tmp_path):
    view = CatalogLogView(LocalStorage(str(tmp_path / "none")), table.tip, table.ask, table_id=TABLE_ID)
    with pytest.raises(TableNotFoundError):
        DeltaLog(CatalogLogView(view, LogTip(0, {}), lambda: LogTip(0, {}), table_id=TABLE_ID)).latest()


def test_all_else_is_the_folder_s(table):
    view = table.view()
    assert view.put_if_absent("x/a", b"1")
    view.put("x/b", b"2")
    assert [meta.key for meta in view.list_after("x")] == ["x/a", "x/b"]
    assert "x" in view.list_folders("")
    view.delete("x/a")
    view.remove_unfinished("x", 0)
    view.delete_folder("x")
    assert list(view.list_after("x")) == []
    assert view.beside(table.builder.uri).uri == table.builder.uri
    assert repr(view) == f"CatalogLogView({table.builder.uri!r}, latest=5)"
