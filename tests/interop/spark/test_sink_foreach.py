"""A function of the user gets each batch; what it writes with the batch's options lands once, however often it runs."""

from __future__ import annotations

import sys

import pytest

from airflow_provider_fds.batch.spec import report_name
from airflow_provider_fds.sinks import ForeachBatchSink

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

    # the report of batch 1 is lost, as if the driver had died in front of it; that of batch 0 is known to a later try
    (stream.reports / report_name(1, 1, spec.try_id)).unlink()
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
                (stream.reports / report_name(1, number, spec.try_id)).unlink()
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
        ("twice", "txn_options('bronze') was asked for twice in one batch"),
        ("broken", "function orders_load:broken failed at line 35 of "),
        ("missing", "there is no 'missing' in "),
        (
            "without_batch",
            "orders_load.py has the parameters (df), but is called with (df, batch): too many positional",
        ),
    ],
)
def test_a_function_that_would_lose_rows_or_fails_is_named(spark, stream, functions, name, expected):
    code, (report,) = stream.work(spark, stream.job(stream.plan()[0], sink=sink_of(name, "bronze")))
    assert (code, report.error_class, report.retryable) == (11, "UserFunction", False)
    assert expected in report.error_message
    assert spark.conf.get("spark.databricks.delta.write.txnVersion", None) is None
    assert spark.conf.get("spark.sql.files.ignoreCorruptFiles") == "false"


def test_insert_into_ignores_the_options_unless_it_is_told_the_format(spark, tmp_path):
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
