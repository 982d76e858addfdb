"""Which tables of a pattern a run loads, as tables appear and go."""

from __future__ import annotations

import shutil

import pytest

from airflow_provider_fds.catalog import problems
from airflow_provider_fds.catalog.names import TableName
from airflow_provider_fds.catalog.table import ListedTable
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import LedgerError, StorageError
from airflow_provider_fds.fleet.discovery import find_tables
from airflow_provider_fds.fleet.positions import KnownPositions
from airflow_provider_fds.fleet.table_pattern import TablePattern
from airflow_provider_fds.fleet.value import FleetStream
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


@pytest.mark.parametrize("new_tables", ["start", "alert"])
def test_a_known_table_is_loaded_when_another_one_would_have_the_name_of_its_stream(lake, new_tables):
    lake.create("crm/a", "crm/b")
    pattern = lake.pattern(tables=f"{lake.root}/raw/crm*/*", name="{table}", new_tables=new_tables)
    crm, retired = f"{lake.root}/raw/crm", []

    def find():
        return find_tables(
            [pattern], [], lake.open, lake.staging, "dag.load", retire=lambda one: retired.append(one.name) or True
        )

    find()
    lake.create("crm_old/a", "crm_older/a")
    for _ in range(2):
        found = find()
        assert [one.stream.table for one in found.streams] == [f"{crm}/a", f"{crm}/b"]
        assert (found.gone, found.retired, found.new, retired) == ((), (), (), [])
        (message,) = found.messages()
        assert f"stream 'a' loads table {crm}/a and cannot load {crm}_old/a, {crm}_older/a too. Declare" in message
    lake.drop("crm/b")
    assert find().retired == (("b", f"{crm}/b"),)


def test_a_table_that_appears_takes_no_sink_from_one_that_is_loaded(lake):
    shutil.rmtree(lake.root / "raw")
    lake.create("crm/a", "crm/b")
    pattern = {"tables": f"{lake.root}/raw/*/*", "name": "{schema}.{table}"}
    lake.find(**pattern)
    lake.create("acc/a")
    for _ in range(2):
        found = lake.find(**pattern)
        assert names(found.streams) == ["crm.a", "crm.b"]
        (message,) = found.messages()
        assert "raw/acc/a is not loaded: its stream 'acc.a' has the sink" in message


@pytest.mark.parametrize("name", ["{table}", "{schema}.{table}"])
def test_a_table_that_appears_takes_nothing_from_one_that_a_later_pattern_has_loaded(lake, name):
    lake.create("zz/a", "aa/b")
    patterns = [lake.pattern(tables=f"{lake.root}/raw/{folder}*/*", name=name) for folder in ("aa", "zz")]
    lake.find(patterns=patterns)
    lake.create("aa/a")
    for _ in range(2):
        found = lake.find(patterns=patterns)
        assert {one.stream.table for one in found.streams} == {f"{lake.root}/raw/zz/a", f"{lake.root}/raw/aa/b"}
        assert found.num_found == (1, 1)
        (message,) = found.messages()
        assert "raw/aa/a is not loaded: its stream" in message


@pytest.mark.parametrize("new_tables", ["start", "alert", "ignore"])
def test_another_table_does_not_go_on_as_the_stream_of_one_that_is_gone(lake, new_tables):
    lake.create("crm/a", "crm/b")
    pattern = lake.pattern(tables=f"{lake.root}/raw/*/*", name="{table}", new_tables=new_tables)
    lake.find(patterns=[pattern])
    lake.drop("crm/a")
    lake.create("erp/a")
    for _ in range(2):
        found = lake.find(patterns=[pattern])
        assert ([one.name for one in found.streams], found.gone) == (["b"], (("a", f"{lake.root}/raw/crm/a"),))
        assert any("erp/a is not loaded: its stream 'a' is that of table" in message for message in found.messages())


def test_a_table_is_known_under_each_name_of_its_folder(lake):
    lake.find()
    found = lake.find(tables=f"file://{lake.root}/raw/*", new_tables="ignore")
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


def test_the_positions_of_no_fleet_are_kept_in_the_record_of_another_one(lake):
    lake.find()
    assert lake.staging.head(KnownPositions(lake.staging, "dag.load.tables", "prod").key) is None


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


class Schema:
    """A catalog with one schema, ``sales``; views and hidden tables are in the dicts by their names."""

    def __init__(self, *tables):
        self.tables = dict.fromkeys(tables, "")
        self.hidden = set()
        self.is_down = False

    def listed(self, schema):
        if self.is_down:
            raise problems.unavailable("the catalog", schema, "it is down")
        assert schema.parts == ("sales",)
        found = [TableName(("sales", name)) for name in sorted(self.tables) if name not in self.hidden]
        return [ListedTable(name, problem=self.tables[name.parts[1]]) for name in found]

    def load(self, name):
        if name.parts[1] in self.hidden:
            raise problems.denied("the catalog", name, "no", "Grant it")
        if name.parts[1] not in self.tables:
            raise problems.not_found("the catalog", name)


class Names(Lake):
    """What a run of a fleet finds in a catalog."""

    def __init__(self, root, schema):
        super().__init__(root)
        self.schema = schema

    def find(self, *declared, patterns=None, **changes):
        by_name = {"tables": "sales.*", "catalog_conn_id": "hive", **changes}
        return find_tables(
            patterns or [self.pattern(**by_name)], declared, self.open, self.staging, "dag.load",
            catalogs={"hive": self.schema}.__getitem__,
        )  # fmt: skip


@pytest.fixture
def schema():
    return Schema("orders", "lines")


@pytest.fixture
def names_lake(tmp_path, schema):
    return Names(tmp_path, schema)


def test_the_tables_of_a_schema_are_found_and_recorded_by_their_names(names_lake, schema):
    schema.tables["v"] = "sales.v is a view"
    found = names_lake.find()
    assert [(one.name, one.stream.table, one.stream.catalog_conn_id) for one in found.streams] == [
        ("lines", "sales.lines", "hive"), ("orders", "sales.orders", "hive")
    ]  # fmt: skip
    assert (found.messages(), found.left_out, names_lake.opened) == ([], (("sales.v",),), [])
    # a table appears; another one is dropped, and a view has the name of a third
    schema.tables |= {"late": "", "lines": "sales.lines is a view"}
    del schema.tables["orders"]
    found = names_lake.find(new_tables="alert")
    # what became of it is for the run of its stream to say
    assert (names(found.streams), names(found.new), found.gone) == (
        ["lines"], ["late"], (("orders", "sales.orders"),)
    )  # fmt: skip
    gone, new = found.messages()
    assert "table sales.orders of stream 'orders' is gone" in gone
    assert "table sales.late is new and is not loaded" in new


def test_names_are_chosen_as_paths_are_in_any_case(names_lake):
    assert names(names_lake.find(tables="sales.ORD*", name="{table}").streams) == ["orders"]
    assert names(names_lake.find(exclude=["LINE*"]).streams) == ["orders"]
    assert names(names_lake.find(include=["lines"]).streams) == ["lines"]
    declared = {"stream": {"name": "mine", "table": "sales.Orders", "catalog_conn_id": "hive"}, "sink": {"uri": "/x"}}
    assert names(names_lake.find(FleetStream.from_dict(declared)).streams) == ["mine", "lines"]
    elsewhere = {**declared["stream"], "catalog_conn_id": "unity"}
    other = FleetStream.from_dict({**declared, "stream": elsewhere})
    assert names(names_lake.find(other).streams) == ["mine", "lines", "orders"]


def test_a_catalog_that_is_down_leaves_the_tables_that_are_known(names_lake, schema):
    names_lake.find()
    schema.is_down = True
    found = names_lake.find()
    assert (names(found.streams), found.gone) == (["lines", "orders"], ())
    (message,) = found.messages()
    assert "'sales.*' cannot be listed" in message
    assert "The 2 tables that are known of it are loaded" in message


def test_a_table_that_the_catalog_no_longer_shows_to_the_connection_is_not_gone(names_lake, schema):
    names_lake.find()
    schema.hidden.add("orders")
    retired = []
    found = find_tables(
        [names_lake.pattern(tables="sales.*", catalog_conn_id="hive")], [], names_lake.open, names_lake.staging,
        "dag.load", catalogs={"hive": schema}.__getitem__, retire=lambda one: retired.append(one.name) or True,
    )  # fmt: skip
    assert (names(found.streams), found.gone, retired) == (["lines", "orders"], (), [])


def test_a_pattern_that_the_catalog_has_no_table_for_is_a_problem(names_lake, schema):
    schema.tables = {"v": "sales.v is a view"}
    (message,) = names_lake.find().messages()
    assert "match no table that FDS can read, of those that the catalog of 'hive' shows" in message
