"""What a run says of itself."""

from __future__ import annotations

from airflow_provider_fds.batch.spec import TryReport
from airflow_provider_fds.stream.result import told


def report(**fields: object) -> TryReport:
    return TryReport("uuid", 1, 0, "digest", "try", **{"outcome": "written", **fields})  # type: ignore[arg-type]


def test_what_an_application_has_done_is_one_line_with_rows_files_bytes_and_seconds() -> None:
    first = {"rows_planned": 1000, "rows_written": 900, "files_written": 1, "bytes_written": 2048}
    second = {"rows_planned": 500, "rows_written": 500, "files_written": 2, "bytes_written": 1024}
    reports = [
        report(**first, seconds={"look": 0.25, "write": 1.0, "total": 1.3}),
        report(**second, seconds={"look": 0.25, "write": 2.0, "total": 2.3}),
        report(outcome="failed", seconds={"total": 9.0}),
    ]
    assert told(reports) == (
        "1,500 rows in, 1,400 rows out in 3 files of 3,072 bytes, 3.6 s in Spark (look 0.5, write 3.0)"
    )


def test_what_is_not_known_of_one_batch_is_not_known_of_all() -> None:
    assert told([report(rows_written=1), report()]).startswith("unknown rows in, unknown rows out")
