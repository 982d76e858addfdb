"""The sink's log as Spark reads it: many commits at once, and the transactions that a log checkpoint keeps."""

from __future__ import annotations

import json

import pytest

from airflow_provider_fds.spark.sink_log import history as of_sink
from airflow_provider_fds.spark.sink_log.history import SinkLog


@pytest.fixture
def sink(spark, tmp_path):
    """A table with a path that a glob would not find, and commits of every kind that matters."""
    path = tmp_path / "sink [a] é %20"
    for version in range(3):
        rows = spark.range(5).write.format("delta").mode("append").option("userMetadata", json.dumps({"fds": 1}))
        rows.option("txnAppId", "fds:u").option("txnVersion", version).save(str(path))
    table = f"delta.`{path}`"
    spark.sql(f"DELETE FROM {table} WHERE id = 1")
    spark.sql(f"OPTIMIZE {table}")
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.checkpointPolicy' = 'classic')")
    spark.range(1).write.format("delta").mode("overwrite").save(str(path))
    return path


def test_many_commits_are_judged_as_few_are(spark, sink, monkeypatch):
    few = SinkLog(spark, f"file:{sink}").history(None)
    monkeypatch.setattr(of_sink, "_MOST_FILES", 0)
    assert SinkLog(spark, f"file:{sink}").history(None) == few
    assert [commit.removes_rows for commit in few.commits] == [True, False, False, True, False, False, False]
    assert few.commits[1].properties == {"delta.checkpointPolicy": "classic"}
    assert few.commits[0].parameters["mode"] == "Overwrite"


@pytest.mark.parametrize("policy", ["classic", "v2"])
def test_transactions_outlive_the_commits_that_brought_them(spark, sink, policy):
    spark.sql(
        f"ALTER TABLE delta.`{sink}` SET TBLPROPERTIES ('delta.checkpointPolicy' = '{policy}', "
        "'delta.checkpointInterval' = '1')"
    )
    spark.range(1).write.format("delta").mode("append").option("txnAppId", "fds:v").option("txnVersion", 7).save(
        str(sink)
    )
    folder = sink / "_delta_log"
    assert list(folder.glob(f"{8:020}.checkpoint*"))
    for version in range(8):
        (folder / f"{version:020}.json").unlink()
    log = SinkLog(spark, f"file:{sink}")
    assert log.history(None).oldest_version == 8
    assert log.transactions() == {"fds:u": 2, "fds:v": 7}
