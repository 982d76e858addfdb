"""What a run says of itself."""

from __future__ import annotations

from airflow_provider_fds.batch.report import AttemptReport
from airflow_provider_fds.stream.attempt.result import RunResult, describe_reports


def report(**fields: object) -> AttemptReport:
    return AttemptReport("uuid", 1, 0, "digest", "attempt", **{"outcome": "written", **fields})  # type: ignore[arg-type]


def test_the_result_of_an_application_is_one_line_with_rows_files_bytes_and_seconds() -> None:
    first = {"rows_read": 1000, "rows_written": 900, "files_written": 1, "bytes_written": 2048}
    second = {"rows_read": 500, "rows_written": 500, "files_written": 2, "bytes_written": 1024}
    reports = [
        report(**first, seconds={"check": 0.25, "write": 1.0, "total": 1.3}),
        report(**second, seconds={"check": 0.25, "write": 2.0, "total": 2.3}),
        report(outcome="failed", seconds={"total": 9.0}),
    ]
    assert describe_reports(reports) == (
        "1,500 rows in, 1,400 rows out in 3 files of 3 KiB, 3.6 s in Spark (check 0.5, write 3.0)"
    )


def result(**fields: object) -> RunResult:
    known = {"rows": 900, "files": 2, "bytes": 4096, "sink_version": 7}
    where = {
        "stream": "orders",
        "epoch": 1,
        "batches": 2,
        "first_batch_id": 0,
        "last_batch_id": 1,
        "start": "",
        "end": "",
    }
    return RunResult(**{**where, "first_version": 3, "last_version": 4, **known, **fields})


def test_a_run_is_one_line_with_rows_in_and_out_files_bytes_versions_and_seconds_in_the_order_of_the_phases() -> None:
    seconds = {"commit": 0.1, "check": 0.25, "plan": 0.5, "spark": 9.0, "write": 2.0}
    words = result(rows_read=1000, files_written=1, bytes_written=2048, seconds=seconds).describe()
    assert words == (
        "Stream orders: committed batches 0 to 1 of epoch 1, versions 3 to 4, 1,000 rows in from 2 files of 4 KiB, "
        "900 rows out in 1 file of 2 KiB, sink version 7; seconds: plan 0.5, spark 9.0, check 0.2, "
        "write 2.0, commit 0.1."
    )


def test_the_result_of_a_job_without_measurements_says_unknown() -> None:
    words = result(rows=None).describe()
    assert "unknown rows in from 2 files of 4 KiB, unknown rows out in unknown files of unknown bytes" in words
    assert words.endswith("sink version 7.")


def test_a_number_that_one_batch_lacks_is_unknown_for_the_run() -> None:
    assert describe_reports([report(rows_written=1), report()]).startswith("unknown rows in, unknown rows out")
