"""In a plan, a log in an object store is listed once, and answers are those of the store all the same."""

from __future__ import annotations

import threading

import obstore
import pytest
from obstore.store import MemoryStore

from airflow_provider_fds.delta.listed_log import listed_once
from airflow_provider_fds.delta.names import LAST_CHECKPOINT, LOG_FOLDER, commit_key, commit_name
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.delta.storage.object_store import ObjectStorage
from airflow_provider_fds.errors import LogGapError, LogRewoundError, LogTruncatedError
from tests.counting_storage import CountingStorage


class Table:
    """A table in an object store, whose requests are noted."""

    def __init__(self, versions):
        self.objects = MemoryStore()
        self.requests = []
        for version in versions:
            self.commit(version)
        counted = CountingStorage(ObjectStorage(self.objects, "s3://b/t", "t"), self.requests)
        self.log = DeltaLog(listed_once(counted))

    def commit(self, version, content=b"{}\n"):
        obstore.put(self.objects, f"t/{commit_key(version)}", content)

    def remove(self, version):
        obstore.delete(self.objects, f"t/{commit_key(version)}")

    def asked(self, question, *args):
        """Return the answer and the kinds of requests that it took."""
        self.requests.clear()
        answer = question(*args)
        return answer, [request.kind for request in self.requests]

    def kinds(self, question, *args):
        return self.asked(question, *args)[1]

    def names(self, after=None):
        return [meta.key.rpartition("/")[2] for meta in self.log.storage.list_after(LOG_FOLDER, after)]


@pytest.fixture
def table():
    return Table(range(10))


def questions(log):
    """What plans and status ask, each with what it takes outside a body."""
    return {
        "is the position there": lambda: log.verify_position(6),
        "does a commit exist": lambda: log.probe(5),
        "when was it written": lambda: log.written_at(9),
        "which commits are there": lambda: [meta.key for meta in log.list_commits(6, 9)],
        "from before a version": lambda: [m.key for m in log.storage.list_after(LOG_FOLDER, f"{6:020d}-")],
    }


def test_in_one_body_the_log_is_listed_once(table):
    outside = {name: table.asked(question) for name, question in questions(table.log).items()}
    assert all(len(kinds) == 1 for _, kinds in outside.values())

    with table.log.one_answer():
        assert table.asked(table.log.verify_position, 5) == (9, ["list_after"])
        inside = {name: table.asked(question) for name, question in questions(table.log).items()}

    assert inside == {name: (answer, []) for name, (answer, _) in outside.items()}


def test_a_body_begins_and_ends_without_knowledge(table):
    with table.log.one_answer():
        table.log.verify_position(5)
        with table.log.one_answer():
            assert not table.kinds(table.log.verify_position, 5)
        assert not table.kinds(table.log.verify_position, 5), "the inner body has ended the outer one"
    assert table.kinds(table.log.verify_position, 5) == ["list_after"]
    with table.log.one_answer():
        assert table.kinds(table.log.verify_position, 5) == ["list_after"]


def test_the_newest_version_is_found_by_two_requests_once(table):
    with table.log.one_answer():
        assert table.asked(table.log.latest) == (9, ["get", "list_after"])
        assert table.asked(table.log.latest) == (9, [])
        assert table.asked(table.log.earliest) == (0, [])
    table.requests.clear()
    obstore.put(table.objects, f"t/{LAST_CHECKPOINT}", b'{"version": 7}')
    with table.log.one_answer():
        assert table.asked(table.log.latest) == (9, ["get", "list_after"])
        assert table.asked(table.log.latest) == (9, [])
        assert table.asked(table.log.earliest) == (0, ["list_after"]), "only the end of the log was listed"


def test_what_lies_before_or_after_the_listing_is_a_request(table):
    with table.log.one_answer():
        table.log.verify_position(5)
        assert table.asked(table.names, commit_name(4)) == ([commit_name(version) for version in range(5, 10)], [])
        assert table.kinds(table.names, commit_name(2)) == ["list_after"]
        assert not table.kinds(table.names, commit_name(2)), "the longer listing is the one that is kept"
        assert table.kinds(table.names, commit_name(9)) == ["list_after"]
        assert table.kinds(table.log.probe, 10) == ["head"]


def test_a_commit_that_comes_later_is_seen_and_the_log_is_listed_again(table):
    with table.log.one_answer():
        table.log.verify_position(5)
        table.commit(10)
        assert table.log.verify_position(5) == 9, "a plan has one newest version"
        assert table.log.probe(10)
        assert table.asked(table.log.verify_position, 5) == (10, ["list_after"])


def test_a_question_that_needs_now_ends_what_is_known(table):
    with table.log.one_answer():
        table.log.verify_position(5)
        table.commit(10)
        table.log.renew()
        assert table.asked(table.log.verify_position, 5) == (10, ["list_after"])


@pytest.mark.parametrize(
    ("gone", "error"), [(range(8), LogTruncatedError), ([6], LogGapError), (range(6, 10), LogRewoundError)]
)
def test_a_commit_that_is_gone_is_explained_by_the_log_as_it_is(table, gone, error):
    with table.log.one_answer():
        table.log.latest()
        for version in gone:
            table.remove(version)
        with pytest.raises(error):
            list(table.log.commits(6, 9))
        assert table.names() == [commit_name(version) for version in range(10) if version not in gone]


@pytest.mark.parametrize("there", [[*range(5), *range(6, 10)], []])
def test_a_log_with_a_hole_or_without_commits_is_listed_anew(there):
    table = Table(there)
    with table.log.one_answer():
        table.names()
        assert table.kinds(table.names) == ["list_after"]


def test_an_empty_commit_is_looked_at_again(table):
    table.commit(10, b"")
    with table.log.one_answer():
        assert table.log.verify_position(5) == 9
        table.commit(10)
        assert table.log.verify_position(5) == 10


def test_a_listing_of_several_requests_is_not_kept():
    table = Table(range(1001))
    with table.log.one_answer():
        assert table.kinds(table.names) == table.kinds(table.names) == ["list_after"]
        table.names(commit_name(0))
        assert not table.kinds(table.names, commit_name(0))


def test_files_after_the_versions_do_not_belong_to_what_is_kept(table):
    obstore.put(table.objects, f"t/{LOG_FOLDER}/{9:020d}.crc", b"{}")
    obstore.put(table.objects, f"t/{LAST_CHECKPOINT}", b"{}")
    with table.log.one_answer():
        table.names()
        assert table.names(commit_name(7)) == [commit_name(8), f"{9:020d}.crc", commit_name(9)]
        assert table.kinds(table.log.storage.head, f"{LOG_FOLDER}/{9:020d}.crc") == ["head"]


def test_a_listing_that_was_broken_off_is_not_kept(table):
    with table.log.one_answer():
        assert len(table.log.list_commits(2, 4)) == 3
        assert table.kinds(table.log.verify_position, 3) == ["list_after"]


def test_another_thread_asks_the_store(table):
    found = []
    with table.log.one_answer():
        table.log.verify_position(5)
        thread = threading.Thread(target=lambda: found.append(table.kinds(table.log.verify_position, 5)))
        thread.start()
        thread.join()
    assert found == [["list_after"]]


def test_a_file_system_and_a_view_of_its_own_are_left_as_they_are(tmp_path, table):
    local = LocalStorage(str(tmp_path))
    assert listed_once(local) is local
    assert listed_once(table.log.storage) is table.log.storage
    assert repr(table.log.storage).startswith("ListedLog(")
