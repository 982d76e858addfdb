"""A stream that follows changes of the schema: what the rows before and after each change become in the sink."""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from airflow_provider_fds.errors import SchemaChangedError
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink, DeltaReplaceSink, ForeachBatchSink
from tests.interop.merging import Runs, rows_of

PROPERTIES = (
    "'delta.columnMapping.mode' = 'name', 'delta.enableTypeWidening' = 'true', 'delta.enableChangeDataFeed' = 'true'"
)
CHANGES = {
    "add": ("ADD COLUMNS (more STRING)", "(3, 'three', 'x'), (4, NULL, NULL)"),
    "widen": ("ALTER COLUMN id TYPE BIGINT", "(3000000000, 'three'), (4, NULL)"),
    "rename": ("RENAME COLUMN name TO label", "(3, 'three'), (4, NULL)"),
    "drop": ("DROP COLUMN name", "(3), (4)"),
}


@pytest.fixture(scope="module")
def template(spark, tmp_path_factory):
    """Makes a source once: two rows, a change of its schema, two rows."""

    @cache
    def make(kind):
        path = tmp_path_factory.mktemp(kind) / "source"
        source = f"delta.`{path}`"
        change, values = CHANGES[kind]
        spark.sql(f"CREATE TABLE {source} (id INT, name STRING) USING delta TBLPROPERTIES ({PROPERTIES})")
        spark.sql(f"INSERT INTO {source} VALUES (1, 'one'), (2, 'two')")
        spark.sql(f"ALTER TABLE {source} {change}")
        spark.sql(f"INSERT INTO {source} VALUES {values}")
        return path

    return make


@pytest.fixture
def changed(stream, template):
    """Gives the stream such a source; returns the batches of a stream that follows the change."""

    def begin(kind):
        stream.source = stream.folder / "source"
        shutil.copytree(template(kind), stream.source)
        stream.options = {"on_schema_change": {kind: "follow"}}
        before, after = stream.plan()
        assert (before.last_version, after.first_version) == (1, 2)
        return before, after

    return begin


def load(spark, stream, sink, *batches):
    code, reports = stream.work(spark, stream.job(*batches, sink=sink))
    assert (code, {report.outcome for report in reports}) == (0, {"written"}), reports
    return spark.read.format("delta").load(str(stream.sink_path))


def rows(frame, *columns):
    return Counter(tuple(row) for row in frame.select(*(columns or frame.columns)).collect())


def source_of(spark, stream):
    return spark.read.format("delta").load(str(stream.source))


@pytest.mark.parametrize("kind", ["add", "widen"])
def test_a_followed_addition_or_wider_type_leaves_the_sink_like_its_source(spark, stream, changed, kind):
    batches = changed(kind)
    properties = {"delta.enableTypeWidening": "true"}
    sink = DeltaAppendSink(str(stream.sink_path), merge_schema=True, properties=properties)
    frame = load(spark, stream, sink, *batches)
    assert frame.dtypes == source_of(spark, stream).dtypes
    assert rows(frame) == rows(source_of(spark, stream))


def test_a_followed_rename_goes_into_a_new_column_and_the_old_one_keeps_its_rows(spark, stream, changed):
    batches = changed("rename")
    frame = load(spark, stream, DeltaAppendSink(str(stream.sink_path), merge_schema=True), *batches)
    assert rows(frame, "id", "name", "label") == Counter(
        [(1, "one", None), (2, "two", None), (3, None, "three"), (4, None, None)]
    )
    both = frame.selectExpr("id", "coalesce(label, name) AS label")
    assert rows(both) == rows(source_of(spark, stream))


def test_a_rename_that_the_sink_made_too_leaves_it_like_its_source(spark, stream, changed):
    before, after = changed("rename")
    sink = DeltaAppendSink(str(stream.sink_path), properties={"delta.columnMapping.mode": "name"})
    code, (report,) = stream.work(spark, stream.job(before, sink=sink))
    assert code == 0
    code, (failed,) = stream.work(spark, stream.job(after, sink=sink, **stream.after(report)))
    assert (code, failed.error_class) == (11, "SINK_SCHEMA_MISMATCH")
    assert "has columns label that the sink" in failed.error_message

    spark.sql(f"ALTER TABLE delta.`{stream.sink_path}` RENAME COLUMN name TO label")
    code, _ = stream.work(spark, stream.job(after, sink=sink, **stream.after(report)))
    assert code == 0
    assert rows(spark.read.format("delta").load(str(stream.sink_path))) == rows(source_of(spark, stream))


def test_a_followed_drop_leaves_the_column_in_the_sink_with_null_in_later_rows(spark, stream, changed):
    batches = changed("drop")
    frame = load(spark, stream, DeltaAppendSink(str(stream.sink_path)), *batches)
    assert rows(frame, "id", "name") == Counter([(1, "one"), (2, "two"), (3, None), (4, None)])
    assert rows(frame, "id") == rows(source_of(spark, stream))


def test_a_merge_after_a_followed_addition_leaves_the_sink_like_its_source(spark, stream, changed):
    changed("add")
    spark.sql(f"UPDATE delta.`{stream.source}` SET more = 'new' WHERE id = 1")
    spark.sql(f"DELETE FROM delta.`{stream.source}` WHERE id = 4")
    stream.options = {"on_schema_change": {"add": "follow"}, "read_change_feed": True}
    sink = DeltaMergeSink(str(stream.sink_path), keys=["id"], merge_schema=True)
    frame = load(spark, stream, sink, *stream.plan())
    assert (
        rows(frame)
        == rows(source_of(spark, stream))
        == Counter([(1, "one", "new"), (2, "two", None), (3, "three", "x")])
    )


@pytest.mark.parametrize("scd", [1, 2])
def test_a_merge_after_a_followed_drop_keeps_the_last_value_of_rows_that_it_updates(spark, stream, changed, scd):
    changed("drop")
    spark.sql(f"ALTER TABLE delta.`{stream.source}` ADD COLUMNS (n INT)")
    spark.sql(f"UPDATE delta.`{stream.source}` SET n = 1 WHERE id = 1")
    stream.options = {"on_schema_change": {"drop": "follow"}, "read_change_feed": True}
    sink = DeltaMergeSink(str(stream.sink_path), keys=["id"], merge_schema=True, scd=scd)
    frame = load(spark, stream, sink, *stream.plan())
    if scd == 2:
        frame = frame.where("_is_current")
    kept = "one" if scd == 1 else None
    assert rows(frame, "id", "name", "n") == Counter([(1, kept, 1), (2, "two", None), (3, None, None), (4, None, None)])


def test_a_merge_whose_key_is_renamed_names_the_key(spark, stream):
    stream.source = stream.folder / "source"
    spark.sql(f"CREATE TABLE delta.`{stream.source}` (id INT, name STRING) USING delta TBLPROPERTIES ({PROPERTIES})")
    spark.sql(f"INSERT INTO delta.`{stream.source}` VALUES (1, 'one')")
    spark.sql(f"ALTER TABLE delta.`{stream.source}` RENAME COLUMN id TO number")
    spark.sql(f"INSERT INTO delta.`{stream.source}` VALUES (2, 'two')")
    stream.options = {"on_schema_change": {"rename": "follow"}}
    code, (_, report) = stream.work(
        spark, stream.job(*stream.plan(), sink=DeltaMergeSink(str(stream.sink_path), keys=["id"]))
    )
    assert (code, report.error_class) == (11, "SINK_SCHEMA_MISMATCH")
    assert "needs the columns id" in report.error_message


def test_a_new_column_stays_out_of_a_sink_that_lists_its_columns(spark, stream, changed):
    batches = changed("add")
    frame = load(spark, stream, DeltaAppendSink(str(stream.sink_path), columns=("id", "name")), *batches)
    assert rows(frame) == Counter([(1, "one"), (2, "two"), (3, "three"), (4, None)])


def test_an_interval_with_a_followed_rename_is_one_transaction_with_the_columns_of_both(spark, stream, changed):
    before, after = changed("rename")
    interval = replace(
        before,
        interval="2026-01-01T00:00:00.000Z/2026-01-02T00:00:00.000Z",
        batch_id=1,
        end=after.end,
        last_version=after.last_version,
        num_rows=4,
        prev_txn_version=None,
        more_manifests=(after.manifest,),
    )
    sink = DeltaReplaceSink(str(stream.sink_path), provenance=True, replace_where="_source_version >= 0")
    frame = load(spark, stream, sink, interval)
    assert rows(frame, "id", "name", "label") == Counter(
        [(1, "one", None), (2, "two", None), (3, None, "three"), (4, None, None)]
    )
    assert len(stream.sink_commits()) == 1


def test_a_history_after_a_followed_rename_has_each_value_under_the_name_of_its_time(spark, stream, changed):
    changed("rename")
    spark.sql(f"UPDATE delta.`{stream.source}` SET label = 'uno' WHERE id = 1")
    stream.options = {"on_schema_change": {"rename": "follow"}, "read_change_feed": True}
    sink = DeltaMergeSink(str(stream.sink_path), keys=["id"], merge_schema=True, scd=2)
    frame = load(spark, stream, sink, *stream.plan()).where("id = 1")
    assert rows(frame, "name", "label", "_is_current") == Counter([("one", None, False), (None, "uno", True)])


def test_a_merge_after_a_rename_is_refused_until_the_sink_has_the_new_name(spark, stream, changed):
    before, after = changed("rename")
    sink = DeltaMergeSink(str(stream.sink_path), keys=["id"], properties={"delta.columnMapping.mode": "name"})
    code, (report,) = stream.work(spark, stream.job(before, sink=sink))
    assert code == 0
    code, (failed,) = stream.work(spark, stream.job(after, sink=sink, **stream.after(report)))
    assert (code, failed.error_class) == (11, "SINK_SCHEMA_MISMATCH")
    spark.sql(f"ALTER TABLE delta.`{stream.sink_path}` RENAME COLUMN name TO label")
    assert stream.work(spark, stream.job(after, sink=sink, **stream.after(report)))[0] == 0
    assert rows(spark.read.format("delta").load(str(stream.sink_path))) == rows(source_of(spark, stream))


FUNCTION = """
SEEN = []


def load(rows, batch):
    SEEN.append([name for name in rows.columns if not name.startswith("_")])
    return rows.count()
"""


def test_a_function_gets_each_batch_with_the_columns_of_its_time(spark, stream, changed, tmp_path, monkeypatch):
    module = "schema_of_its_time"
    (tmp_path / f"{module}.py").write_text(FUNCTION)
    monkeypatch.syspath_prepend(str(tmp_path))
    batches = changed("rename")
    code, _ = stream.work(spark, stream.job(*batches, sink=ForeachBatchSink(f"{module}:load")))
    assert code == 0
    assert sys.modules[module].SEEN == [["id", "name"], ["id", "label"]]


def overwritten(spark, path, old, new):
    """A table with a change feed whose rows are overwritten: those with even keys stay, with values of another type."""
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id {old}, v {old}) USING delta "
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    )
    spark.range(6).selectExpr(f"CAST(id AS {old}) AS id", f"CAST(id AS {old}) AS v").write.format("delta").mode(
        "append"
    ).save(path)
    rows = spark.range(0, 8, 2).selectExpr(f"CAST(id AS {new}) AS id", f"CAST(id + 100 AS {new}) AS v")
    rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(path)


def test_a_merge_of_an_overwrite_with_another_type_stops_before_it_and_begins_anew(spark, tmp_path):
    path = str(tmp_path / "source")
    overwritten(spark, path, "INT", "STRING")
    runs = Runs(spark, path, tmp_path)
    (batch,) = runs.load(starting_version=0, accepted_schema_version=9)
    assert (batch.last_version, sum(runs.rows().values())) == (1, 6)
    with pytest.raises(SchemaChangedError, match="version 2 overwrites the table with other types"):
        runs.load(starting_version=0, accepted_schema_version=9)
    anew = Runs(spark, path, tmp_path / "anew")
    anew.load()
    assert anew.rows() == rows_of(spark, path)


def test_a_merge_of_an_overwrite_with_a_wider_type_ends_as_its_source_is(spark, tmp_path):
    path = str(tmp_path / "source")
    overwritten(spark, path, "INT", "BIGINT")
    runs = Runs(spark, path, tmp_path, merge_schema=True, properties={"delta.enableTypeWidening": "true"})
    runs.load(starting_version=0, accepted_schema_version=9)
    assert runs.rows() == rows_of(spark, path)
