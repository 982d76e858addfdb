"""Which tables of a pattern a run loads, as tables appear and go."""

from __future__ import annotations

import shutil

import pytest

from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import LedgerError, StorageError
from airflow_provider_fds.fleet.discovery import find_tables
from airflow_provider_fds.fleet.value import FleetStream, TablePattern
from tests.counting_storage import CountingStorage


class Lake:
    """A folder of tables, and what a run of a fleet finds there."""

    def __init__(self, root):
        self.root = root
        self.requests = []
        self.staging = CountingStorage(open_storage(str(root / "staging")), self.requests)
        self.opened = []
        self.broken = False

    def create(self, *names):
        for name in names:
            (self.root / "raw" / name / "_delta_log").mkdir(parents=True)
            (self.root / "raw" / name / "_delta_log" / f"{0:020}.json").write_text("{}")

    def drop(self, name):
        shutil.rmtree(self.root / "raw" / name)

    def open(self, uri):
        if self.broken:
            raise StorageError("the store does not answer")
        self.opened.append(uri.removeprefix(str(self.root)))
        return open_storage(uri)

    def pattern(self, **changes):
        given = {"tables": f"{self.root}/raw/*", "sink": {"uri": f"{self.root}/bronze/{{table}}"}, **changes}
        return TablePattern.from_dict(given)

    def find(self, *declared, patterns=None, **changes):
        return find_tables(patterns or [self.pattern(**changes)], declared, self.open, self.staging, "dag.load")


@pytest.fixture
def lake(tmp_path):
    found = Lake(tmp_path)
    found.create("a", "b")
    return found


def names(streams):
    return [one.name for one in streams]


def test_a_table_that_appears_is_started(lake):
    assert names(lake.find().streams) == ["a", "b"]
    lake.create("c")
    found = lake.find()
    assert (names(found.streams), found.messages()) == (["a", "b", "c"], [])


def test_a_table_that_appears_is_an_alert_until_someone_decides(lake):
    assert names(lake.find(new_tables="alert").streams) == ["a", "b"]
    lake.create("c")
    for _ in range(2):
        found = lake.find(new_tables="alert")
        assert (names(found.streams), names(found.new)) == (["a", "b"], ["c"])
        (message,) = found.messages()
        assert "raw/c is new and is not loaded" in message
    declared = FleetStream.from_dict(
        {"stream": {"name": "other", "table": f"{lake.root}/raw/c"}, "sink": {"uri": "/other"}}
    )
    assert (names(lake.find(declared, new_tables="alert").streams), lake.find(declared, new_tables="alert").new) == (
        ["other", "a", "b"],
        (),
    )
    assert lake.find(new_tables="alert", exclude=["c"]).messages() == []
    assert names(lake.find(new_tables="start").streams) == ["a", "b", "c"]
    assert names(lake.find(new_tables="alert").streams) == ["a", "b", "c"]


def test_a_table_that_appears_may_be_ignored(lake):
    lake.find(new_tables="ignore")
    lake.create("c")
    found = lake.find(new_tables="ignore")
    assert (names(found.streams), found.messages()) == (["a", "b"], [])


def test_the_first_run_of_an_empty_folder_is_one(lake):
    lake.drop("a")
    lake.drop("b")
    assert lake.find(new_tables="alert").streams == ()
    lake.create("c")
    assert names(lake.find(new_tables="alert").new) == ["c"]


def test_a_table_that_is_gone_is_an_alert_in_every_run(lake):
    lake.find()
    lake.drop("a")
    for _ in range(2):
        found = lake.find()
        assert names(found.streams) == ["b"]
        assert found.gone == (("a", f"{lake.root}/raw/a"),)
        (message,) = found.messages()
        assert "raw/a of stream 'a' is gone" in message
    assert lake.find(exclude=["a"]).messages() == []
    # excluded once, it is forgotten
    assert lake.find().messages() == []


def test_a_table_that_comes_back_is_loaded_again(lake):
    lake.find(new_tables="alert")
    lake.drop("a")
    lake.find(new_tables="alert")
    lake.create("a")
    found = lake.find(new_tables="alert")
    assert (names(found.streams), found.messages()) == (["a", "b"], [])


def test_declared_tables_and_earlier_patterns_come_first(lake):
    declared = FleetStream.from_dict({"stream": {"name": "mine", "table": f"{lake.root}/raw/a"}, "sink": {"uri": "/m"}})
    found = lake.find(
        declared, patterns=[lake.pattern(name="first_{table}", include=["b"]), lake.pattern(name="all_{table}")]
    )
    assert (names(found.streams), found.messages()) == (["mine", "first_b"], [])


def test_a_name_or_sink_of_another_stream_is_a_problem_of_the_table_alone(lake):
    declared = FleetStream.from_dict({"stream": {"name": "a", "table": "/elsewhere"}, "sink": {"uri": "/elsewhere2"}})
    found = lake.find(declared)
    assert names(found.streams) == ["a", "b"]
    assert "has the name of the stream of /elsewhere" in found.problems[0]
    declared = FleetStream.from_dict(
        {"stream": {"name": "x", "table": "/elsewhere"}, "sink": {"uri": f"{lake.root}/bronze/b"}}
    )
    found = lake.find(declared)
    assert names(found.streams) == ["x", "a"]
    assert "has the sink" in found.problems[0]


def test_a_checkpoint_file_of_another_stream_is_a_problem_of_the_table_alone(lake):
    checkpoint = f"file:{lake.root}/a"
    declared = FleetStream.from_dict(
        {"stream": {"name": "c", "table": "/lake/c", "checkpoint": checkpoint}, "sink": {"uri": "/bronze/c"}}
    )
    found = lake.find(declared, checkpoint=f"file:{lake.root}/{{table}}")
    assert names(found.streams) == ["c", "b"]
    (problem,) = found.problems
    assert f"its stream 'a' has the checkpoint '{checkpoint}' of the stream of /lake/c" in problem


def test_tables_may_share_a_sink(lake):
    assert names(lake.find(sink={"uri": "/all"}).streams) == ["a", "b"]


def test_a_store_that_does_not_answer_holds_up_no_known_table(lake):
    lake.find()
    lake.broken = True
    found = lake.find()
    assert names(found.streams) == ["a", "b"]
    assert "cannot be listed: the store does not answer. The 2 tables that are known of it" in found.problems[0]
    lake.broken = False
    assert lake.find().messages() == []


def test_a_known_table_costs_no_request_and_an_unchanged_record_is_not_written(lake):
    lake.find()
    lake.opened.clear()
    lake.requests.clear()
    lake.find()
    assert lake.opened == ["/raw"]
    assert [request.kind for request in lake.requests] == ["get"]


def test_a_dry_run_records_nothing(lake):
    for _ in range(2):
        found = find_tables([lake.pattern(new_tables="alert")], [], lake.open, lake.staging, "f", dry_run=True)
        assert names(found.streams) == ["a", "b"]
    assert {request.kind for request in lake.requests} == {"get"}


def test_fleets_have_records_of_their_own(lake):
    lake.find()
    lake.create("c")
    found = find_tables([lake.pattern(new_tables="alert")], [], lake.open, lake.staging, "other")
    assert names(found.streams) == ["a", "b", "c"]


def test_without_patterns_nothing_is_read(lake):
    assert find_tables([], [], lake.open, lake.staging, "f").streams == ()
    assert lake.requests == []


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"{", "is damaged"), (b'{"format": 1}', "is damaged"), (b'{"format": 2}', "which a newer FDS wrote")],
)
def test_a_record_that_cannot_be_read_is_an_error(lake, data, message):
    lake.staging.put(".fleets/dag.load.tables.json", data)
    with pytest.raises(LedgerError, match=message):
        lake.find()


def test_a_declared_table_is_no_problem_of_the_pattern_whatever_its_name(lake):
    lake.create("not a name")
    declared = FleetStream.from_dict(
        {"stream": {"name": "mine", "table": f"file://{lake.root}/raw/not%20a%20name"}, "sink": {"uri": "/m"}}
    )
    found = lake.find(declared)
    assert (names(found.streams), found.messages()) == (["mine", "a", "b"], [])


def test_a_pattern_without_any_table_is_a_problem_and_one_whose_tables_are_left_out_is_none(lake):
    found = lake.find(tables=f"{lake.root}/rwa/*")
    assert (found.streams, len(found.messages())) == ((), 1)
    assert "rwa/*' match no table. Check the path" in found.messages()[0]
    assert lake.find(tables=f"{lake.root}/*/*", exclude=["*"]).messages() == []
