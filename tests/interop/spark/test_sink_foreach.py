"""A function of the user gets each batch; what it writes with the batch's options lands once, however often it runs."""

from __future__ import annotations

import re
import sys
from dataclasses import replace

import pytest

from airflow_provider_fds.batch.report import report_name
from airflow_provider_fds.sinks import DeltaAppendSink, ForeachBatchSink

FUNCTIONS = """
import json

CALLS = []


def load(df, batch):
    CALLS.append((batch.batch_id, batch.first_version, batch.last_version))
    rows = df.drop("_commit_version", "_commit_timestamp")
    folder = df.sparkSession.conf.get("spark.test.folder")
    for name in ("bronze", "errors"):
        part = rows.where(f"p = {int(name == 'errors')}")
        part.write.format("delta").mode("append").options(**batch.txn_options(name)).save(f"{folder}/{name}")
    return 10


def half(df, batch):
    rows = df.drop("_commit_version", "_commit_timestamp")
    folder = df.sparkSession.conf.get("spark.test.folder")
    rows.write.format("delta").mode("append").options(**batch.txn_options("bronze")).save(f"{folder}/bronze")
    options = batch.txn_options("errors")
    if df.sparkSession.conf.get("spark.test.half") == "true":
        raise KeyError("half")
    rows.write.format("delta").mode("append").options(**options).save(f"{folder}/errors")


def leaking(df, batch):
    df.sparkSession.conf.set("spark.databricks.delta.write.txnVersion", "7")


def lenient(df, batch):
    df.sparkSession.conf.set("spark.sql.files.ignoreCorruptFiles", "true")


def undeclared(df, batch):
    batch.txn_options("silver")


def twice(df, batch):
    batch.txn_options("bronze")
    batch.txn_options("bronze")


def broken(df, batch):
    raise KeyError("colour")


def quits(df, *batch):
    raise SystemExit(0)


def without_batch(df):
    pass


def by_name(df, batch):
    rows = df.select("id")
    rows.write.format("delta").mode("append").options(**batch.txn_options("saved")).saveAsTable("fds_saved")
    rows.writeTo("fds_appended").options(**batch.txn_options("appended")).append()
"""


@pytest.fixture
def functions(spark, tmp_path, monkeypatch):
    (tmp_path / "orders_load.py").write_text(FUNCTIONS)
    monkeypatch.syspath_prepend(str(tmp_path))
    spark.conf.set("spark.test.folder", str(tmp_path))
    yield tmp_path / "orders_load.py"
    sys.modules.pop("orders_load", None)
    spark.conf.unset("spark.test.folder")


def sink_of(name, *writes):
    return ForeachBatchSink(f"orders_load:{name}", writes=writes)


def ids(spark, folder):
    return sorted(row["id"] for row in spark.read.format("delta").load(str(folder)).select("id").collect())


def test_each_batch_is_handed_over_and_lands_once_even_if_its_report_was_lost(spark, stream, functions):
    sink = sink_of("load", "bronze", "errors")
    batches = stream.plan()[:2]
    spec = stream.job(*batches, sink=sink)
    code, reports = stream.work(spark, spec)
    assert (code, [report.outcome for report in reports]) == (0, ["written", "written"])
    assert [(report.rows_written, report.sink_version) for report in reports] == [(10, None)] * 2
    calls = sys.modules["orders_load"].CALLS
    assert calls == [(0, 0, 0), (1, 1, 1)]

    # the report of batch 1 is lost, as if the driver had died in front of it; that of batch 0 is known to a later
    # attempt
    (stream.reports / report_name(1, 1, spec.attempt_id)).unlink()
    code, reports = stream.work(spark, stream.job(*batches, sink=sink))
    assert (code, [report.outcome for report in reports]) == (0, ["verified", "written"])
    assert calls == [(0, 0, 0), (1, 1, 1), (1, 1, 1)]
    assert ids(spark, stream.folder / "bronze") == list(range(0, 20, 2))
    assert ids(spark, stream.folder / "errors") == list(range(1, 20, 2))


def test_tables_of_a_catalog_get_each_batch_once_even_if_its_report_was_lost(spark, stream, functions):
    tables = ("fds_saved", "fds_appended")
    spark.sql(f"CREATE TABLE fds_appended (id LONG) USING delta LOCATION '{functions.parent / 'appended'}'")
    try:
        for _ in range(2):
            spec = stream.job(*stream.plan()[:2], sink=sink_of("by_name", "saved", "appended"))
            code, reports = stream.work(spark, spec)
            assert (code, [report.outcome for report in reports]) == (0, ["written", "written"])
            for number in range(2):
                (stream.reports / report_name(1, number, spec.attempt_id)).unlink()
        for table in tables:
            assert sorted(row["id"] for row in spark.table(table).collect()) == list(range(20)), table
    finally:
        for table in tables:
            spark.sql(f"DROP TABLE IF EXISTS {table}")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("leaking", "left spark.databricks.delta.write.txnVersion set in the session"),
        ("lenient", "spark.sql.files.ignoreCorruptFiles=true (was false)"),
        ("undeclared", "txn_options('silver'): the sink declares 'bronze'"),
        ("twice", "txn_options('bronze') was called twice in one batch"),
        ("broken", "function orders_load:broken failed at line 45 of "),
        ("missing", "there is no 'missing' in "),
        (
            "without_batch",
            "orders_load.py has the parameters (df), but is called with (df, batch): too many positional",
        ),
    ],
)
def test_a_function_that_would_lose_rows_or_fails_is_named(spark, stream, functions, name, expected):
    code, (report,) = stream.work(spark, stream.job(stream.plan()[0], sink=sink_of(name, "bronze")))
    assert (code, report.error_class, report.retryable) == (11, "USER_FUNCTION_FAILED", False)
    assert expected in report.error_message
    assert spark.conf.get("spark.databricks.delta.write.txnVersion", None) is None
    assert spark.conf.get("spark.sql.files.ignoreCorruptFiles") == "false"


@pytest.mark.parametrize(
    "sink", [ForeachBatchSink("orders_load:quits"), DeltaAppendSink("{}/sink", transform="orders_load:quits")]
)
def test_a_function_that_ends_the_process_has_not_loaded_the_batch(spark, stream, functions, sink):
    if isinstance(sink, DeltaAppendSink):
        sink = replace(sink, uri=sink.uri.format(stream.folder))
    code, (report,) = stream.work(spark, stream.job(stream.plan()[0], sink=sink))
    assert (code, report.outcome) == (10, "failed")
    assert re.search(r"orders_load:quits failed at line \d+ of .*, in quits: SystemExit: 0", report.error_message)


def named(stream, name, *writes):
    return ForeachBatchSink(f"orders_load:{name}", writes={write: str(stream.folder / write) for write in writes})


def lose_report(stream, spec, batch):
    (stream.reports / report_name(batch.epoch, batch.batch_id, spec.attempt_id)).unlink()


def test_a_named_table_that_forgets_transactions_too_soon_is_refused_before_the_function_is_called(
    spark, stream, functions
):
    """Without its table's name the batch doubled: what FDS does not know it cannot check, and says so."""
    spark.sql(
        f"CREATE TABLE delta.`{stream.folder / 'errors'}` (id LONG, name STRING, p LONG) USING delta "
        "TBLPROPERTIES ('delta.setTransactionRetentionDuration' = 'interval 1 hour')"
    )
    sink = named(stream, "load", "bronze", "errors")
    code, (report,) = stream.work(spark, stream.job(stream.plan()[0], sink=sink))

    assert (code, report.error_class, report.retryable) == (11, "SINK_FORGETS_BATCHES", False)
    assert "errors has delta.setTransactionRetentionDuration = 'interval 1 hour'" in report.error_message
    assert sys.modules["orders_load"].CALLS == []


def test_a_repeated_batch_lands_once_although_a_checkpoint_has_dropped_its_transactions(spark, stream, functions):
    sink = named(stream, "load", "bronze", "errors")
    batch = stream.plan()[0]
    spec = stream.job(batch, sink=sink)
    assert stream.work(spark, spec)[0] == 0
    lose_report(stream, spec, batch)
    for name in ("bronze", "errors"):
        forget_transactions(spark, f"delta.`{stream.folder / name}`")

    code, (report,) = stream.work(spark, stream.job(batch, sink=sink))

    assert (code, report.outcome) == (0, "written")
    assert ids(spark, stream.folder / "bronze") == list(range(0, 10, 2))
    assert ids(spark, stream.folder / "errors") == list(range(1, 10, 2))


def forget_transactions(spark, table):
    """Let a log checkpoint be written while the table keeps transactions for no time, and unset that again."""
    forget = "'delta.setTransactionRetentionDuration' = 'interval 0 seconds', 'delta.checkpointInterval' = '1'"
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({forget})")
    spark.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('delta.setTransactionRetentionDuration')")


def test_a_repeated_batch_reports_the_landed_write_and_makes_the_missing_one(spark, stream, functions, capsys):
    sink = named(stream, "half", "bronze", "errors")
    batch = stream.plan()[0]
    spark.conf.set("spark.test.half", "true")
    try:
        code, (failed,) = stream.work(spark, stream.job(batch, sink=sink))
        assert (code, failed.outcome) == (11, "failed")
        capsys.readouterr()
        spark.conf.set("spark.test.half", "false")
        code, (report,) = stream.work(spark, stream.job(batch, sink=sink))
    finally:
        spark.conf.unset("spark.test.half")

    assert (code, report.outcome) == (0, "written")
    said = capsys.readouterr().out
    assert f"write 'bronze' is in file:{stream.folder}/bronze, by an earlier attempt; it is not written again" in said
    assert "WARNING" not in said
    for name in ("bronze", "errors"):
        assert ids(spark, stream.folder / name) == list(range(10))


def test_a_write_that_delta_would_skip_for_a_later_transaction_is_refused(spark, stream, functions):
    sink = named(stream, "load", "bronze", "errors")
    batches = stream.plan()
    assert stream.work(spark, stream.job(batches[1], sink=sink))[0] == 0
    code, (report,) = stream.work(spark, stream.job(batches[0], sink=sink))

    assert (code, report.error_class) == (11, "SINK_OUT_OF_ORDER")
    assert len(sys.modules["orders_load"].CALLS) == 1


def test_writes_without_a_table_are_named_once_in_the_log(spark, stream, functions, capsys):
    writes = {"bronze": str(stream.folder / "bronze"), "errors": None}
    sink = ForeachBatchSink("orders_load:load", writes=writes)
    assert stream.work(spark, stream.job(*stream.plan()[:2], sink=sink))[0] == 0
    (warning,) = [line for line in capsys.readouterr().out.splitlines() if "WARNING" in line]
    assert "writes 'errors' to tables that FDS does not know" in warning


def test_insert_into_ignores_the_options_unless_the_format_is_given(spark, tmp_path):
    found = {}
    for name in ("plain", "delta"):
        spark.sql(f"CREATE TABLE inserted_{name} (id LONG) USING delta LOCATION '{tmp_path / name}'")
        try:
            for _ in range(2):
                writer = spark.range(3).write.options(txnAppId="a", txnVersion="1")
                (writer.format("delta").mode("append") if name == "delta" else writer).insertInto(f"inserted_{name}")
            found[name] = ids(spark, tmp_path / name)
        finally:
            spark.sql(f"DROP TABLE inserted_{name}")
    assert found == {"plain": [0, 0, 1, 1, 2, 2], "delta": [0, 1, 2]}
