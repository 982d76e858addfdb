"""Rows are tested before they are written: what fails is counted, left out, or fails the batch, in any kind of sink."""

from __future__ import annotations

import sys
from dataclasses import replace

import deltalake
import pyarrow as pa
import pytest

from airflow_provider_fds.batch.spec import Expectations
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink, ForeachBatchSink
from airflow_provider_fds.spark.writers.rows import expected_rows

MIXED = {"id < 25": "drop", "p = 0": "warn", "name <> 'name 3'": "drop", "id IS NOT NULL": "warn"}


@pytest.fixture
def counted_jobs(monkeypatch):
    """The batches that a job of its own counted."""
    jobs = []
    count = expected_rows.ExpectedRows.count

    def counting(self):
        jobs.append(self)
        return count(self)

    monkeypatch.setattr(expected_rows.ExpectedRows, "count", counting)
    return jobs


def ids(spark, stream):
    return sorted(row["id"] for row in spark.read.format("delta").load(str(stream.sink_path)).collect())


def expecting(stream, expect, *batches, max_rejected=None, **fields):
    return stream.job(*batches, expectations=Expectations(expect, max_rejected), **fields)


def refused(spark, stream, spec):
    code, (report,) = stream.work(spark, spec)
    assert (code, report.outcome, report.retryable) == (11, "failed", False)
    assert not stream.sink_path.exists()
    return report.reason, report.error_message


def test_rows_that_fail_are_dropped_or_kept_and_counted_with_the_write(spark, stream, counted_jobs):
    code, reports = stream.work(spark, expecting(stream, MIXED, *stream.plan()))

    assert (code, {report.outcome for report in reports}) == (0, {"written"}), reports
    assert ids(spark, stream) == [n for n in range(25) if n != 3]
    assert [report.rows_written for report in reports] == [9, 10, 5]
    assert [report.rows_read for report in reports] == [10, 10, 10]
    assert [report.rows_rejected for report in reports] == [1, 0, 5]
    assert [report.failed_rows for report in reports] == [
        {"id < 25": 0, "p = 0": 5, "name <> 'name 3'": 1, "id IS NOT NULL": 0},
        {"id < 25": 0, "p = 0": 5, "name <> 'name 3'": 0, "id IS NOT NULL": 0},
        {"id < 25": 5, "p = 0": 5, "name <> 'name 3'": 0, "id IS NOT NULL": 0},
    ]
    assert counted_jobs == []


def test_a_session_that_changes_plans_counts_the_same(spark, stream, adaptive, counted_jobs):
    sink = DeltaAppendSink(str(stream.sink_path), target_file_size="64m")
    _, reports = stream.work(spark, expecting(stream, MIXED, *stream.plan(), sink=sink))
    assert [(one.rows_written, one.rows_rejected, one.failed_rows["p = 0"]) for one in reports] == [
        (9, 1, 5), (10, 0, 5), (5, 5, 5)
    ]  # fmt: skip
    assert counted_jobs == []


@pytest.mark.parametrize("linger", [None, 60.0])
def test_a_count_that_differs_from_what_was_written_is_made_again(spark, stream, counted_jobs, monkeypatch, linger):
    # as when Spark repeats tasks of a stage, or does not hand over what it counted
    found = iter([expected_rows.RowCounts(20, 2, {}), None])
    monkeypatch.setattr(expected_rows.ExpectedRows, "observed_counts", lambda _self: next(found))
    spec = expecting(stream, MIXED, *stream.plan()[:2], linger_seconds=linger)
    _, reports = stream.work(spark, spec)
    assert [(one.rows_rejected, one.failed_rows["p = 0"]) for one in reports] == [(1, 5), (0, 5)]
    assert len(counted_jobs) == 2


def test_null_passes_as_in_a_check_constraint(spark, stream):
    sink = DeltaAppendSink(str(stream.sink_path), transform="expected_jobs:with_nulls")
    _, (report,) = stream.work(spark, expecting(stream, {"x > 5": "drop"}, stream.plan()[0], sink=sink))
    assert (report.rows_written, report.failed_rows) == (7, {"x > 5": 3})
    assert ids(spark, stream) == [0, 1, 2, 6, 7, 8, 9]


def test_rows_are_tested_as_the_sink_gets_them(spark, stream):
    sink = DeltaAppendSink(
        str(stream.sink_path),
        where="id <> 5",
        transform="expected_jobs:with_nulls",
        columns=["id", "x"],
        constant_columns={"origin": "crm"},
    )
    expect = {
        "id <> 5": "fail",
        "x > 5": "drop",
        "origin = 'crm'": "fail",
        "_commit_version = 0 AND _commit_timestamp < timestamp'2100-01-01 00:00:00'": "fail",
    }
    _, (report,) = stream.work(spark, expecting(stream, expect, stream.plan()[0], sink=sink))
    assert (report.rows_written, report.rows_rejected, report.rows_read) == (7, 2, 10)
    frame = spark.read.format("delta").load(str(stream.sink_path))
    assert frame.columns == ["id", "x", "origin"]


@pytest.fixture(autouse=True)
def jobs(tmp_path, monkeypatch):
    """A module of the user's on the driver's path."""
    (tmp_path / "expected_jobs.py").write_text(
        "CALLS = []\n\n\n"
        "def with_nulls(df):\n    return df.selectExpr('*', 'CASE WHEN id > 2 THEN id END AS x')\n\n\n"
        "def load(df, batch):\n"
        "    CALLS.append((batch.num_rows, sorted(row['id'] for row in df.collect())))\n"
        "    return df.count()\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("expected_jobs", None)


def test_a_batch_with_a_row_that_must_not_be_there_fails_before_anything_is_written(spark, stream):
    reason, message = refused(spark, stream, expecting(stream, {**MIXED, "id <> 4": "fail"}, stream.plan()[0]))
    assert reason == "EXPECTATION_FAILED"
    for part in ("epoch 1, batch 0 was not written", "1 of 10 rows fail 'id <> 4'", "such as (_commit_version=0)"):
        assert part in message
    assert "name 3" not in message


def test_the_error_of_a_merge_names_keys(spark, stream):
    sink = DeltaMergeSink(str(stream.sink_path), keys=["id"])
    _, message = refused(spark, stream, expecting(stream, {"id NOT IN (4, 7)": "fail"}, stream.plan()[0], sink=sink))
    assert (
        "2 of 10 rows fail 'id NOT IN (4, 7)', such as (id=4, _commit_version=0), (id=7, _commit_version=0)" in message
    )


def test_a_batch_with_too_many_rows_to_leave_out_fails_and_one_with_fewer_is_written(spark, stream):
    expect, batches = {"id >= 2": "drop"}, stream.plan()
    reason, message = refused(spark, stream, expecting(stream, expect, batches[0], max_rejected=0.19))
    assert reason == "TOO_MANY_REJECTED"
    assert "keep 2 of 10 rows out of the sink, more than max_rejected=0.19 allows: 2 fail 'id >= 2'" in message
    code, (report, _) = stream.work(spark, expecting(stream, expect, *batches[:2], max_rejected=0.2))
    assert (code, report.rows_rejected) == (0, 2)
    assert ids(spark, stream) == list(range(2, 20))


def test_a_refused_batch_reports_its_counts_and_is_written_if_a_person_lets_it_leave_out_that_many(spark, stream):
    batch = stream.plan()[0]
    for most in (None, 1):
        spec = expecting(stream, {"id >= 2": "drop"}, replace(batch, may_reject=most), max_rejected=0.1)
        _, (report,) = stream.work(spark, spec)
        assert (report.reason, report.rows_tested, report.rows_rejected) == ("TOO_MANY_REJECTED", 10, 2)
        assert report.failed_rows == {"id >= 2": 2}
    spec = expecting(stream, {"id >= 2": "drop"}, replace(batch, may_reject=2), max_rejected=0.1)
    code, (report,) = stream.work(spark, spec)
    assert (code, report.rows_rejected, report.rows_tested) == (0, 2, 0)
    assert ids(spark, stream) == list(range(2, 10))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("amount >= 0", "UNRESOLVED_COLUMN"),
        ("id >=", "PARSE_SYNTAX_ERROR"),
        ("id", "FILTER_NOT_BOOLEAN"),
        ("name", "FILTER_NOT_BOOLEAN"),
        ("count_min_sketch(id, 0.1d, 0.1d, 1) IS NOT NULL", "INVALID_WHERE_CONDITION"),
        ("explode(array(true))", "UNSUPPORTED_GENERATOR"),
        ("no_such_function(id)", "UNRESOLVED_ROUTINE"),
        ("id > 0 AS positive", ""),
        ("id > 0, id < 9", ""),
    ],
)
def test_an_expression_that_is_no_condition_on_a_row_is_refused_before_anything_is_written(spark, stream, text, why):
    reason, message = refused(spark, stream, expecting(stream, {text: "warn"}, stream.plan()[0]))
    assert reason == "EXPECTATION_UNUSABLE"
    assert f"the expectation {text!r} cannot be tested on its rows" in message
    assert "Nothing was written" in message
    assert why in message


def test_a_function_with_results_that_may_differ_is_refused(spark, stream):
    from pyspark.sql.functions import udf

    spark.udf.register("odd_one", udf(lambda n: n % 2 == 1, "boolean").asNondeterministic())
    _, message = refused(spark, stream, expecting(stream, {"odd_one(id)": "drop"}, stream.plan()[0]))
    assert "two evaluations of it may differ" in message


def test_columns_with_hostile_names_are_tested(spark, stream_of_a_copy):
    stream, name = stream_of_a_copy, "a`b'OR'true--"
    rows = pa.table({name: pa.array([1, -1]), "__fds": ["x", "y"]})
    stream.source = stream.folder / "hostile"
    deltalake.write_deltalake(str(stream.source), rows)
    expect = {f"`{name.replace('`', '``')}` > 0": "drop", "`__fds` = 'x;--'": "warn"}
    code, (report,) = stream.work(spark, expecting(stream, expect, stream.plan()[0]))
    assert code == 0, report
    assert (report.rows_written, report.failed_rows) == (1, dict(zip(expect, (1, 2), strict=True)))


def test_a_batch_that_was_committed_but_not_reported_is_counted_by_the_expectations_it_had(spark, stream):
    batch = stream.plan()[0]
    _, (first,) = stream.work(spark, expecting(stream, MIXED, batch))
    # the report is lost, and the declaration was changed meanwhile
    for expect in (MIXED, {"id > 100": "drop"}, {}):
        _, (again,) = stream.work(spark, expecting(stream, expect, batch) if expect else stream.job(batch))
        assert (again.outcome, again.rows_rejected, again.failed_rows) == ("verified", 1, first.failed_rows)
    assert again.rows_written == 9


def test_a_batch_whose_rows_were_not_tested_is_not_counted_by_later_expectations(spark, stream):
    batch = stream.plan()[0]
    stream.work(spark, stream.job(batch))
    _, (again,) = stream.work(spark, expecting(stream, {"id > 100": "drop"}, batch))
    assert (again.outcome, again.rows_rejected, again.failed_rows) == ("verified", 0, {})


def test_rows_that_are_lost_beside_those_that_are_dropped_stop_the_stream(spark, stream):
    batch = stream.plan()[0]
    _, (report,) = stream.work(spark, expecting(stream, MIXED, replace(batch, num_rows=12)))
    assert report.outcome == "mismatch"
    assert "wrote 9 rows, but the source's log counts 12, of which expectations kept 1 out" in report.error_message


def test_a_function_gets_the_rows_that_pass(spark, stream):
    sink = ForeachBatchSink("expected_jobs:load")
    _, (report,) = stream.work(spark, expecting(stream, MIXED, stream.plan()[0], sink=sink))
    from expected_jobs import CALLS

    assert CALLS == [(9, [0, 1, 2, 4, 5, 6, 7, 8, 9])]
    assert (report.rows_written, report.rows_read, report.rows_rejected) == (9, 10, 1)
    assert report.failed_rows["p = 0"] == 5


@pytest.fixture(scope="module")
def changes(tmp_path_factory):
    """Three good rows and a bad one; an update that makes a row bad, and one that makes the bad row good; a delete."""
    path = str(tmp_path_factory.mktemp("changes") / "orders")
    rows = pa.table({"id": [1, 2, 3, 4], "amount": [10, 20, 30, -40]})
    deltalake.write_deltalake(path, rows, configuration={"delta.enableChangeDataFeed": "true"})
    deltalake.DeltaTable(path).update({"amount": "-1"}, predicate="id = 2")
    deltalake.DeltaTable(path).update({"amount": "44"}, predicate="id = 4")
    deltalake.DeltaTable(path).delete("id = 3")
    return path


@pytest.mark.parametrize("versions_per_batch", [1, 10])
def test_a_merge_of_changes_keeps_the_rows_of_the_source_that_satisfy_the_expectation(
    spark, stream, changes, versions_per_batch
):
    stream.source = changes
    stream.options = {"read_change_feed": True, "max_versions_per_batch": versions_per_batch}
    sink = DeltaMergeSink(str(stream.sink_path), keys=["id"])
    code, reports = stream.work(spark, expecting(stream, {"amount >= 0": "drop"}, *stream.plan(), sink=sink))

    assert code == 0, reports
    frame = spark.read.format("delta").load(str(stream.sink_path))
    # key 2 has no row that may be kept: its last good row is not its row any longer
    assert sorted(tuple(row) for row in frame.select("id", "amount").collect()) == [(1, 10), (4, 44)]
    # of the changes, the rows before an update and deleted rows are not tested
    assert sum(report.failed_rows["amount >= 0"] for report in reports) == 2
