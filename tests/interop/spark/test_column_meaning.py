"""A name of the source that comes to mean another column is refused until the names of the sink have moved, too."""

from __future__ import annotations

import re
import shutil

import pytest

from airflow_provider_fds.cli.main import main
from airflow_provider_fds.errors import BatchRejectedError, SchemaMismatchError
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink
from airflow_provider_fds.stream.planning.sink_columns import SinkColumns
from tests.interop.merging import Runs, rows_of

PROPERTIES = "'delta.columnMapping.mode' = 'name', 'delta.enableChangeDataFeed' = 'true'"
FOLLOW = {"starting_version": 0, "on_schema_change": {"rename": "follow", "drop": "follow"}}
SWAP = ("RENAME COLUMN {0} TO t", "RENAME COLUMN {1} TO {0}", "RENAME COLUMN t TO {1}")

ACKNOWLEDGED = {"starting_version": 0, "accepted_schema_version": 100}


def swap(one, other):
    return tuple(statement.format(one, other) for statement in SWAP)


#: What happens to the source, and what the updates that follow set. What comes at once concerns other columns each:
#: ``tests/unit/test_column_meaning.py`` has each kind alone.
CHANGES = {
    "swapped": (swap("x", "y"), "x = 'new'"),
    "fields_swapped": (
        ("RENAME COLUMN s.x TO t", "RENAME COLUMN s.y TO x", "RENAME COLUMN s.t TO y"),
        "s.x = 'new'",
    ),
    "dropped_and_swapped": (("DROP COLUMN a", "ADD COLUMNS (a STRING)", *swap("x", "y")), "a = 'new', x = 'new'"),
    "key_swapped": (swap("id", "n"), "x = 'new'"),
    "all_at_once": (
        (
            *("DROP COLUMN a", "ADD COLUMNS (a STRING)"),
            *("DROP COLUMN c", "RENAME COLUMN b TO c"),
            *("RENAME COLUMN s.x TO t", "RENAME COLUMN s.y TO x", "RENAME COLUMN s.t TO y"),
            *("DROP COLUMN r.x", "ADD COLUMNS (r.x STRING)"),
            *swap("p", "d"),
            *swap("n", "q"),
            "RENAME COLUMN e TO z",
        ),
        "a = 'new', c = 'new', s.x = 'new', r.x = 'new', p = 'new', z = 'new'",
    ),
}


@pytest.fixture(scope="module")
def template(spark, tmp_path_factory):
    """Three rows, each column with other values."""
    path = tmp_path_factory.mktemp("meaning") / "source"
    fields = "STRUCT<x: STRING, y: STRING>"
    columns = f"id LONG, n LONG, q LONG, x STRING, y STRING, s {fields}, p STRING, r {fields}"
    columns += "".join(f", {name} STRING" for name in "abcde")
    spark.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta PARTITIONED BY (p) TBLPROPERTIES ({PROPERTIES})")
    values = ", ".join(
        f"({n}, {n + 10}, {n + 20}, 'x{n}', 'y{n}', named_struct('x', 'sx{n}', 'y', 'sy{n}'), 'p', "
        f"named_struct('x', 'rx{n}', 'y', 'ry{n}'), 'a{n}', 'b{n}', 'c{n}', 'd{n}', 'e{n}')"
        for n in (1, 2, 3)
    )
    spark.sql(f"INSERT INTO delta.`{path}` VALUES {values}")
    return path


@pytest.fixture
def source(template, tmp_path):
    """A copy of the template."""
    return str(shutil.copytree(template, tmp_path / "source"))


@pytest.fixture
def swapped(spark, template, prepared):
    """Runs into a merge sink: it has the rows of the template, and two names of the source have been swapped since."""

    def make(folder):
        runs = Runs(spark, str(shutil.copytree(template, folder / "source")), folder)
        runs.load(**FOLLOW)
        change(spark, runs.table, "swapped")
        return runs

    return prepared.begin("swapped", make)


def change(spark, source, kind):
    statements, update = CHANGES[kind]
    for statement in statements:
        spark.sql(f"ALTER TABLE delta.`{source}` {statement}")
    key = "n" if kind == "key_swapped" else "id"
    spark.sql(f"UPDATE delta.`{source}` SET {update} WHERE {key} = 2")


def statements_in(error):
    return re.findall(r"^  (ALTER TABLE .*);$", str(error), re.MULTILINE)


def refused(runs, **options):
    """Load, and be refused without a job; return the statements of the error."""
    session = runs.session(**(options or FOLLOW))
    with pytest.raises(SchemaMismatchError) as caught:
        session.begin(runs.sink)
    return statements_in(caught.value)


def assert_alike(spark, runs, source):
    """The sink has the rows of the source; it may have more columns and fields."""
    columns = [name for name in spark.read.format("delta").load(source).columns if name not in "rs"]
    columns += [f"{name}.{field} AS {name}{field}" for name in "rs" for field in "xy"]
    assert runs.rows(*columns) == rows_of(spark, source, *columns)


@pytest.mark.parametrize("kind", ["swapped", "key_swapped", "all_at_once"])
def test_a_merge_is_refused_until_the_names_of_the_sink_have_moved_too(spark, source, tmp_path, kind):
    options = {"sequence_by": "n", "partition_by": ["p"], "properties": {"delta.columnMapping.mode": "name"}}
    runs = Runs(spark, source, tmp_path, **(options if kind == "all_at_once" else {}))
    runs.load(**FOLLOW)
    before = runs.rows()
    change(spark, source, kind)
    statements = refused(runs)
    assert runs.rows() == before
    for statement in statements:
        spark.sql(statement)
    runs.load(**FOLLOW)
    assert_alike(spark, runs, source)
    # once it is put right, nothing is compared any longer
    spark.sql(f"DELETE FROM delta.`{source}` WHERE id IS NOT NULL")
    (batch,) = runs.load(**FOLLOW)
    assert batch.columns == {}


@pytest.mark.parametrize("sink", ["append", "history"])
def test_other_sinks_are_refused_too(spark, source, tmp_path, sink):
    path = str(tmp_path / "sink")
    declared = DeltaAppendSink(path) if sink == "append" else DeltaMergeSink(path, keys=["id"], scd=2)
    runs = Runs(spark, source, tmp_path, declared)
    runs.load(**FOLLOW)
    change(spark, source, "dropped_and_swapped")
    for statement in refused(runs):
        spark.sql(statement)
    runs.load(**FOLLOW)
    current = "_is_current" if sink == "history" else "_change_type = 'update_postimage'"
    found = spark.read.format("delta").load(path).where(f"{current} AND id = 2").select("x", "y", "a").collect()
    assert found == spark.read.format("delta").load(source).where("id = 2").select("x", "y", "a").collect()


@pytest.mark.parametrize("reads_sink", [True, False])
@pytest.mark.parametrize("sink", ["append", "merge"])
def test_names_that_move_back_within_a_run_are_refused_again(spark, template, prepared, monkeypatch, sink, reads_sink):
    # an append sink has the rows as they were
    options = FOLLOW if sink == "merge" else {**FOLLOW, "read_change_feed": False}

    def make(folder):
        declared = DeltaAppendSink(str(folder / "sink")) if sink == "append" else None
        runs = Runs(spark, str(shutil.copytree(template, folder / "source")), folder, declared)
        runs.load(**options)
        for number in (4, 5):
            for statement in swap("x", "y"):
                spark.sql(f"ALTER TABLE delta.`{runs.table}` {statement}")
            values = f"{number}, {number}, {number}, 'x{number}', 'y{number}', named_struct('x', 'a', 'y', 'b'), 'p'"
            spark.sql(f"INSERT INTO delta.`{runs.table}` (id, n, q, x, y, s, p) VALUES ({values})")
        return runs

    runs = prepared.begin(f"moved back, {sink}", make)
    for statement in refused(runs, **options):
        spark.sql(statement)
    if not reads_sink:
        monkeypatch.setattr(SinkColumns, "_sink_state", lambda _self, _sink: None)
    # the names fit the first of two batches, and no longer the second
    if reads_sink:
        assert len(runs.load(**options, applications=1)) == 1
        statements = refused(runs, **options)
    else:
        with pytest.raises(BatchRejectedError) as caught:
            runs.load(**options)
        assert [row.x for row in spark.read.format("delta").load(runs.sink_path).where("id = 5").collect()] == []
        statements = statements_in(caught.value)
    for statement in statements:
        spark.sql(statement)
    runs.load(**options)
    assert_alike(spark, runs, runs.table)


def test_a_change_that_a_person_acknowledged_is_refused_too(spark, source, tmp_path):
    runs = Runs(spark, source, tmp_path)
    runs.load(starting_version=0)
    change(spark, source, "swapped")
    assert len(refused(runs, **ACKNOWLEDGED)) == 4


def test_the_driver_refuses_where_the_worker_cannot_read_the_sink(spark, swapped, monkeypatch):
    monkeypatch.setattr(SinkColumns, "_sink_state", lambda _self, _sink: None)
    runs = swapped
    with pytest.raises(SchemaMismatchError) as caught:
        runs.load(**FOLLOW)
    statements = statements_in(caught.value)
    assert len(statements) == 4
    for statement in statements:
        spark.sql(statement)
    runs.load(**FOLLOW)
    assert_alike(spark, runs, runs.table)


def test_a_key_that_is_another_column_needs_another_table(spark, source, tmp_path):
    runs = Runs(spark, source, tmp_path)
    runs.load(**FOLLOW)
    spark.sql(f"ALTER TABLE delta.`{source}` DROP COLUMN id")
    spark.sql(f"ALTER TABLE delta.`{source}` ADD COLUMNS (id LONG)")
    spark.sql(f"UPDATE delta.`{source}` SET id = n")
    with pytest.raises(SchemaMismatchError, match=r"no values of the new key id.*`fds replan STREAM --new-sink"):
        runs.session(**FOLLOW).begin(runs.sink)


def test_a_column_that_the_sink_dropped_as_well_can_be_added_anew(spark, source, tmp_path):
    runs = Runs(spark, source, tmp_path, merge_schema=True, properties={"delta.columnMapping.mode": "name"})
    runs.load(**ACKNOWLEDGED)
    for table in (source, runs.sink_path):
        spark.sql(f"ALTER TABLE delta.`{table}` DROP COLUMN x")
    change(spark, source, "fields_swapped")
    for statement in refused(runs, **ACKNOWLEDGED):
        spark.sql(statement)
    runs.load(**ACKNOWLEDGED)
    spark.sql(f"ALTER TABLE delta.`{source}` ADD COLUMNS (x STRING)")
    spark.sql(f"UPDATE delta.`{source}` SET x = 'new' WHERE id = 1")
    runs.load(**ACKNOWLEDGED)
    assert_alike(spark, runs, source)


def recover(runs):
    """Lose the ledger, rebuild it from the sink, and fence it."""
    shutil.rmtree(runs.folder / "staging")
    places = ("--staging", str(runs.folder / "staging"), "--sink", runs.sink_path, "--table", runs.table)
    assert main(["recover", "merged", *places, "--deployment", "tests", "--yes"]) == 0
    # the first run closes the old epoch
    runs.load(applications=1, **FOLLOW)


def test_a_recovered_stream_is_refused_a_name_that_the_sink_has_of_a_dropped_column(spark, source, tmp_path):
    runs = Runs(spark, source, tmp_path)
    runs.load(**FOLLOW)
    spark.sql(f"ALTER TABLE delta.`{source}` DROP COLUMN x")
    spark.sql(f"UPDATE delta.`{source}` SET y = 'new' WHERE id = 1")
    runs.load(**FOLLOW)
    recover(runs)
    spark.sql(f"ALTER TABLE delta.`{source}` ADD COLUMNS (x STRING)")
    spark.sql(f"UPDATE delta.`{source}` SET x = 'new' WHERE id = 2")
    statements = refused(runs)
    assert [statement.partition("` ")[2] for statement in statements[1:]] == [
        "RENAME COLUMN `x` TO `x_old`",
        "ADD COLUMNS (`x` string)",
    ]
    for statement in statements:
        spark.sql(statement)
    runs.load(**FOLLOW)
    assert_alike(spark, runs, source)


@pytest.mark.parametrize("is_put_right", ["before", "after"])
def test_a_recovered_stream_knows_what_the_sink_renamed_after_its_newest_batch(spark, swapped, is_put_right):
    runs = swapped
    statements = refused(runs)
    for statement in statements if is_put_right == "before" else ():
        spark.sql(statement)
    recover(runs)
    if is_put_right == "after":
        assert refused(runs) == statements
        for statement in statements:
            spark.sql(statement)
    runs.load(**FOLLOW)
    assert_alike(spark, runs, runs.table)


def test_a_batch_that_a_replan_found_in_the_sink_counts(spark, source, tmp_path):
    options = {"starting_version": 0, "on_schema_change": {"drop": "follow"}}
    runs = Runs(spark, source, tmp_path, merge_schema=True)
    runs.load(**options)
    spark.sql(f"ALTER TABLE delta.`{source}` ADD COLUMNS (w STRING)")
    spark.sql(f"UPDATE delta.`{source}` SET w = 'old'")
    session = runs.session(**options)
    runs.submit(session, session.begin(runs.sink))
    # the run ends before it commits what is in the sink
    places = ("--staging", str(tmp_path / "staging"), "--deployment", "tests")
    assert main(["replan", "merged", *places, "--why", "test", "--yes"]) == 0
    runs.load(applications=1, **options)
    for statement in ("DROP COLUMN w", "ADD COLUMNS (w STRING)"):
        spark.sql(f"ALTER TABLE delta.`{source}` {statement}")
    spark.sql(f"UPDATE delta.`{source}` SET w = 'new' WHERE id = 2")
    for statement in refused(runs, **options):
        spark.sql(statement)
    runs.load(**options)
    assert_alike(spark, runs, source)


@pytest.mark.parametrize("reads_sink", [True, False])
def test_rows_that_are_read_again_from_before_a_move_are_refused(spark, swapped, monkeypatch, reads_sink):
    """The sink has the later names already, so the batch of before has another column under them."""
    runs = swapped
    for statement in refused(runs):
        spark.sql(statement)
    before = runs.rows()
    places = ("--staging", str(runs.folder / "staging"), "--deployment", "tests")
    words = ("--to", "0", "--sink-rows", "keep", "--why", "test", "--yes")
    assert main(["rewind", "merged", *words, *places]) == 0
    if reads_sink:
        assert len(runs.load(**FOLLOW, applications=1)) == 0
        statements = refused(runs)
    else:
        monkeypatch.setattr(SinkColumns, "_sink_state", lambda _self, _sink: None)
        with pytest.raises(SchemaMismatchError) as caught:
            runs.load(**FOLLOW)
        statements = statements_in(caught.value)
    assert runs.rows() == before
    assert len(statements) == 4
    if reads_sink:
        for statement in statements:
            spark.sql(statement)
        runs.load(**FOLLOW, max_batches=1, applications=1)
        for statement in refused(runs):
            spark.sql(statement)
        runs.load(**FOLLOW)
        assert_alike(spark, runs, runs.table)
