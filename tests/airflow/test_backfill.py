"""Backfills in real runs: rows through Airflow and Spark, by time, beside a live stream."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

BEGIN = datetime(2025, 12, 1, tzinfo=UTC)

LIVE = """
from airflow.sdk import DAG
from airflow_provider_fds import DeltaIngestOperator, DeltaStream, DeltaAppendSink

with DAG("live", schedule=None):
    DeltaIngestOperator(
        task_id="load",
        stream=DeltaStream("orders_since_2026", table="{lake}/orders", starting_timestamp="2026-01-01"{more}),
        sink=DeltaAppendSink("{lake}/since_2026/orders"),
        on_no_data="succeed",
    )
"""


def fill(lake) -> None:
    """One row a commit: versions 0 to 5 an hour apart from ``BEGIN``, versions 6 and 7 in 2026."""
    for version in range(8):
        lake.append("orders", version)
        when = BEGIN + timedelta(hours=version) if version < 6 else datetime(2026, 1, version, tzinfo=UTC)
        path = lake.root / "orders" / "_delta_log" / f"{version:020d}.json"
        os.utime(path, (when.timestamp(), when.timestamp()))


def loaded(lake) -> list[int]:
    return lake.ids("since_2026/orders")


def test_ranges_by_time_land_once_beside_the_live_stream(installation, on_server, lake, monkeypatch):
    monkeypatch.setenv("FDS_EXAMPLE_LAKE", lake.uri)
    fill(lake)
    live = installation.add(LIVE.format(lake=lake.uri, more=""))
    assert installation.run(live).xcom("load")["rows"] == 2
    assert loaded(lake) == [6, 7]
    backfill = installation.add_example("orders_backfill")

    def run(start: str, end: str):
        return installation.run(backfill, run_conf={"start": start, "end": end})

    # between two commits, and exactly on one
    with on_server():
        between = run("2025-12-01T01:30:00", "2025-12-01T03:00:00Z")
    assert between.xcom("load")["stream"].startswith("orders_since_2026.bf.")
    assert loaded(lake) == [2, 3, 6, 7]
    # before the first commit, in another zone
    assert run("2020-01-01", "2025-12-01T02:59:00+01:00").xcom("load")["rows"] == 2
    assert loaded(lake) == [0, 1, 2, 3, 6, 7]
    # exactly on a commit, up to the version before the live stream
    assert run("2025-12-01 04:00:00", "live_start").xcom("load")["last_version"] == 5
    assert loaded(lake) == list(range(8))

    # the same range again, in another spelling: finished
    assert run("2025-12-01T01:30:00Z", "2025-12-01T04:00:00+01:00").state("load") == "skipped"
    # a version of another range, or of the live stream, would be duplicated
    assert run("2025-12-01T03:00:00", "2025-12-01T04:00:00").state("load") == "failed"
    assert run("5", "6").state("load") == "failed"
    # the position of the live stream is where it was, and a start changed now is reported, not followed
    assert installation.run(live).xcom("load") is None
    changed = installation.add(LIVE.format(lake=lake.uri, more="").replace("2026-01-01", "2025-12-01"))
    lake.append("orders", 8)
    result = installation.run(changed).xcom("load")
    assert (result["rows"], loaded(lake)) == (1, list(range(9)))
    (warning,) = result["warnings"]
    assert "starting_timestamp='2025-12-01' has no effect" in warning
    assert "began at version 6" in warning
