"""Lines about a batch that takes long, from a Spark Connect server, which reports its stages to the client."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_provider_fds.spark.application.progress import JobProgress

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(scope="session")
def spark(connect_session):
    """Instead of the classic session: one on the server."""
    return connect_session


def test_a_long_batch_says_stage_tasks_bytes_and_the_expected_end(spark, stream, tmp_path, capsys):
    path = str(tmp_path / "few")
    spark.range(0, 4, 1, 4).write.parquet(path)
    batch = replace(stream.plan()[0], num_rows=4, num_bytes=4096)
    # the server reports every 2 s
    slow = spark.read.parquet(path).repartition(8).selectExpr("id", "reflect('java.lang.Thread', 'sleep', 2500L)")
    capsys.readouterr()
    with JobProgress(spark, stream.job(batch), 0.5).batch(0):
        slow.write.format("noop").mode("overwrite").save()
    lines = capsys.readouterr().out.splitlines()
    assert any(" of 8 tasks done" in line for line in lines), lines
    assert any(" read, " in line for line in lines), lines
    assert spark.client._progress_handlers == []
