"""A run of an interval replaces rows of its own stream, and none of another stream in the same sink."""

from __future__ import annotations

import shutil
from dataclasses import replace
from uuid import uuid4

import pytest

from airflow_provider_fds.sinks import DeltaAppendSink, DeltaReplaceSink
from airflow_provider_fds.spark.writers.delta_replace_writer import DeltaReplaceWriter

DAY = "2026-01-01T00:00:00.000Z/2026-01-02T00:00:00.000Z"

#: What a run replaces: more than what its stream wrote.
FORMS = {
    "partitions": {"dynamic_partition_overwrite": True},
    "predicate": {"replace_where": "id >= 0"},
    "versions": {"replace_where": "_source_version BETWEEN 0 AND 9"},
    "text": {"replace_where": "name LIKE 'name%' AND _source_version BETWEEN 0 AND 9"},
}


def ids(spark, stream):
    return sorted(row["id"] for row in spark.read.format("delta").load(str(stream.sink_path)).select("id").collect())


def interval(batch, generation=1):
    return replace(batch, interval=DAY, epoch=generation, batch_id=0, prev_txn_version=None)


def of_another(batch, name="theirs", **changes):
    return replace(batch, stream=name, uuid=str(uuid4()), prev_txn_version=None, **changes)


@pytest.fixture
def their_source(spark, stream, tmp_path):
    """A stream of another table, with five rows, and the same sink."""
    theirs = type(stream)(tmp_path / "theirs", tmp_path / "customers")
    rows = spark.range(100, 105, 1, 1).selectExpr("id", "concat('name ', id) AS name", "id % 2 AS p")
    rows.write.format("delta").save(str(theirs.source))
    theirs.sink_path = stream.sink_path
    return theirs


@pytest.mark.parametrize("other", ["offset", "interval", "table"])
def test_a_replacement_that_may_match_rows_of_another_stream_is_refused(spark, stream, their_source, other):
    first, second, _ = stream.plan()
    path, common = str(stream.sink_path), {"provenance": True, "partition_by": ["p"]}
    theirs = of_another(their_source.plan()[0] if other == "table" else first)
    sink = DeltaAppendSink(path, **common)
    if other == "interval":
        theirs = interval(theirs)
        sink = DeltaReplaceSink(path, replace_where="id < 10", **common)
    assert stream.work(spark, stream.job(theirs, sink=sink))[0] == 0
    before = ids(spark, stream)
    for form, replaces in FORMS.items():
        mine = DeltaReplaceSink(path, **replaces, **common)
        code, reports = stream.work(spark, stream.job(interval(second), sink=mine))
        assert (code, reports[-1].error_class, reports[-1].retryable) == (11, "SINK_SHARED", False), form
        if (form, other) != ("versions", "table"):
            for part in ("'theirs' has loaded version 0 ", "Nothing was written", "allow_overlap=True"):
                assert part in reports[-1].error_message, form
            copy = str(stream.folder / f"sink for {form}")
            shutil.copytree(path, copy)
            allowed = stream.job(interval(second), sink=replace(mine, uri=copy), allow_overlap=True)
            assert stream.work(spark, allowed)[0] == 0, form
    assert ids(spark, stream) == before


@pytest.mark.parametrize("apart", ["constant", "constant_partition", "column"])
def test_streams_whose_rows_differ_in_a_column_replace_only_their_own(spark, stream, apart):
    path = str(stream.sink_path)

    def sink(number):
        if apart == "column":
            return DeltaReplaceSink(path, where=f"p = {number}", replace_where=f"id >= 0 AND p = {number}")
        common = {"constant_columns": {"origin": "ab"[number]}}
        if apart == "constant":
            own = f"origin = '{'ab'[number]}' AND id >= 0"
            return DeltaReplaceSink(path, replace_where=own, **common)
        return DeltaReplaceSink(path, partition_by=["origin"], dynamic_partition_overwrite=True, **common)

    first, second, third = stream.plan()
    theirs = of_another(second)
    for generation, mine in enumerate((first, third, first), 1):
        assert stream.work(spark, stream.job(interval(mine, generation), sink=sink(0)))[0] == 0
        assert stream.work(spark, stream.job(interval(theirs, generation), sink=sink(1)))[0] == 0
    assert ids(spark, stream) == ([0, 2, 4, 6, 8, 11, 13, 15, 17, 19] if apart == "column" else list(range(20)))


def test_an_appending_stream_with_another_constant_keeps_its_rows(spark, stream):
    first, second, _ = stream.plan()
    path = str(stream.sink_path)
    theirs = DeltaAppendSink(path, constant_columns={"origin": "b"})
    assert stream.work(spark, stream.job(of_another(first), sink=theirs))[0] == 0
    mine = DeltaReplaceSink(path, constant_columns={"origin": "a"}, replace_where="origin = 'a'")
    assert stream.work(spark, stream.job(interval(second), sink=mine))[0] == 0
    assert ids(spark, stream) == list(range(20))


def test_the_first_run_is_refused_rows_outside_of_its_predicate_too(spark, stream):
    sink = DeltaReplaceSink(str(stream.sink_path), replace_where="id < 5")
    code, (report,) = stream.work(spark, stream.job(interval(stream.plan()[0]), sink=sink))
    assert (code, report.error_class) == (11, "ROWS_OUTSIDE_INTERVAL")
    assert not (stream.sink_path / "_delta_log").exists()


def test_rows_that_another_stream_wrote_after_the_look_are_told(spark, stream):
    first, second, third = stream.plan()
    path = str(stream.sink_path)
    sink = DeltaReplaceSink(path, replace_where="id >= 0", provenance=True)
    assert stream.work(spark, stream.job(interval(first), sink=sink))[0] == 0
    again = interval(second, generation=2)
    writer = DeltaReplaceWriter(spark, sink, stream.job(again, sink=sink), {})
    assert writer.find(again) is None
    assert stream.work(spark, stream.job(of_another(third), sink=DeltaAppendSink(path, provenance=True)))[0] == 0
    landed = writer.append(spark.read.format("delta").load(again.manifest), again)
    (warning,) = [text for text in landed.warnings if "'theirs'" in text]
    # their registration comes before their batch
    assert "version 2 " in warning
    assert "may have removed its rows" in warning
