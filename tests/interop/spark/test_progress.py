"""Lines about a batch that takes long, from a real Spark: stages, tasks, rows and bytes so far."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from airflow_provider_fds.spark.application.job_run import run
from airflow_provider_fds.spark.application.progress import JobProgress, tell_ui_address

#: A stage of four tasks, which takes seconds on two cores.
SLOW = "reflect('java.lang.Thread', 'sleep', 1500L)"


def work_slowly(spark, folder):
    rows = spark.read.parquet(str(folder)).repartition(4).selectExpr("id", SLOW)
    rows.write.format("noop").mode("overwrite").save()
    # on a busy machine the last tasks end together: a line after them has all rows
    time.sleep(1)


@pytest.fixture
def files(spark, tmp_path):
    spark.range(0, 4000, 1, 4).write.parquet(str(tmp_path / "rows"))
    return tmp_path / "rows"


def lines_of(spark, stream, files, capsys, body=work_slowly, note=None):
    batch = replace(stream.plan()[0], num_rows=4, num_bytes=4096)
    capsys.readouterr()
    with JobProgress(spark, stream.job(batch), 0.3).batch(0, note):
        body(spark, files)
    return capsys.readouterr().out.splitlines()


def test_a_stage_that_ends_before_the_first_line_counts(spark, stream, tmp_path, capsys):
    small(spark, tmp_path / "few")

    def read_at_once(spark, folder):
        assert spark.read.parquet(str(folder)).count() == 4
        time.sleep(1)

    lines = lines_of(spark, stream, tmp_path / "few", capsys, read_at_once)
    assert any("4 rows" in line and " read, " in line for line in lines), lines


def small(spark, path):
    spark.range(0, 4, 1, 4).write.mode("overwrite").parquet(str(path))


def test_a_long_batch_says_stage_tasks_rows_and_the_expected_end(spark, stream, tmp_path, capsys):
    small(spark, tmp_path / "few")
    notes = []
    lines = lines_of(spark, stream, tmp_path / "few", capsys, note=notes.append)
    assert any(note.startswith("stage ") and " of 4 tasks done" in note for note in notes), notes
    assert lines
    assert all(line.startswith("FDS batch 0 (1 of 1, version 0, 4 rows in 1 file of 4 KiB): ") for line in lines)
    assert any(" of 4 tasks done" in line for line in lines), lines
    assert any("4 rows and " in line and " read, " in line and "rows/s" in line for line in lines), lines
    assert any("expected end in " in line for line in lines), lines


def test_a_batch_that_is_short_is_not_mentioned_and_costs_next_to_nothing(spark, stream, capsys):
    spec = stream.job(stream.plan()[0])
    progress = JobProgress(spark, spec)
    began = time.monotonic()
    for _ in range(100):
        with progress.batch(0):
            pass
    assert (time.monotonic() - began) / 100 < 0.005
    code, (report,) = stream.work(spark, spec)
    assert (code, report.outcome) == (0, "written")
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("FDS batch")]
    assert line.startswith("FDS batch 0 written: 10 rows")


def test_a_job_with_a_short_interval_tells_about_its_batches(spark, stream, capsys):
    assert run(spark, stream.job(*stream.plan()), progress_seconds=0.05) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if " of 3, version " in line]
    assert told
    assert "10 rows in 1 file of " in told[0]


def test_the_ui_is_off_and_no_address_is_told(spark, capsys):
    tell_ui_address(spark)
    assert capsys.readouterr().out == ""
