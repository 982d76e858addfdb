"""Aligned streams on real Spark and Delta: whatever their event times are, each row is in its sink once."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa

from airflow_provider_fds.ledger.owner import Actor, Owner
from airflow_provider_fds.sinks import DeltaAppendSink
from airflow_provider_fds.spark.application.job_run import run
from airflow_provider_fds.stream import DeltaStream, StreamContext, StreamSession
from tests.interop.spark.test_epochs import Desk

if TYPE_CHECKING:
    from airflow_provider_fds.stream import RunWork

#: Event times of the commits of two tables, in hours; the second table has a gap.
HOURS = {"orders": (0, 1, 2, 3, 4, 5, 6, 7), "payments": (0, 1, 2, 3, 9)}


def load(spark, folder, name, number) -> tuple[RunWork, int]:
    """One run of a stream; return its work, and the version that the stream is at."""
    (other,) = HOURS.keys() - {name}
    stream = DeltaStream(
        name,
        table=str(folder / name),
        starting_version=0,
        event_time_column="ts",
        align_with=[other],
        max_drift="2h",
        max_versions_per_batch=2,
    )
    desk = Desk(spark, folder, name)
    desk.sink = DeltaAppendSink(str(folder / f"{name}_sink"))
    owner = Owner(kind="airflow", deployment="test", dag_id="d", run_id=f"r{number}", task_id="t")
    actor = Actor(deployment="test", dag_id="d", run_id=owner.run_id, task_id="t", try_number=1)
    context = StreamContext(
        staging_uri=desk.staging, deployment="test", actor=actor, owner=owner, owner_is_running=lambda _owner: False
    )
    session = StreamSession(stream, context)
    work = session.begin(desk.sink)
    if work.status == "work":
        run(spark, desk.submit(session, work))
        assert session.collect(work).failure is None
    return work, max((batch.last_version for batch in work.batches), default=-1)


def test_two_streams_move_through_event_time_together_and_lose_nothing(spark, tmp_path):
    schema = pa.schema({"id": pa.int32(), "ts": pa.timestamp("us", tz="UTC")})
    for name, hours in HOURS.items():
        # version 0 has no rows
        deltalake.write_deltalake(tmp_path / name, schema.empty_table())
        for number, hour in enumerate(hours):
            row = {"id": number, "ts": datetime(2026, 1, 1, hour, tzinfo=UTC)}
            deltalake.write_deltalake(tmp_path / name, pa.Table.from_pylist([row], schema), mode="append")
    found = [
        (name, load(spark, tmp_path, name, number)[1])
        for number, name in enumerate(("orders", "payments", "orders", "payments", "orders", "orders", "payments"))
    ]
    # 2 hours beyond the slowest; orders then waits until payments, the slowest, has passed its gap
    assert found == [
        ("orders", 1),
        ("payments", 3),
        ("orders", 5),
        ("payments", 5),
        ("orders", 8),
        ("orders", -1),
        ("payments", -1),
    ]
    for name in HOURS:
        rows = spark.read.format("delta").load(str(tmp_path / f"{name}_sink"))
        expected = spark.read.format("delta").load(str(tmp_path / name))
        assert Counter(map(tuple, rows.collect())) == Counter(map(tuple, expected.collect()))
