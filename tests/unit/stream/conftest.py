"""Fixtures of the stream room: sessions of different runs on a hand-made log, and the reports a driver would leave."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.batch.spec import JobSpec, TryReport, report_name
from airflow_provider_fds.delta.open import open_storage
from airflow_provider_fds.ledger.entries import Actor, Owner
from airflow_provider_fds.stream import DeltaStream, StreamSession, Surroundings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow_provider_fds.stream import RunWork

SINK_ID = "99999999-0000-0000-0000-000000000000"


class Bench:
    """A table, a staging folder, and runs that work on a stream between them."""

    def __init__(self, table: Path, staging: Path) -> None:
        self.table = table
        self.staging = staging
        self.running: set[str] = set()
        self.sink_version = 0

    def stream(self, name: str = "orders", **options: Any) -> DeltaStream:
        return DeltaStream(name, table=str(self.table), **{"starting_version": 0, **options})

    def session(
        self, run: str = "run-1", *, stream: DeltaStream | None = None, deployment: str = "test", **around: Any
    ) -> StreamSession:
        owner = Owner(kind="airflow", deployment=deployment, dag_id="dag", run_id=run, task_id="ingest")
        return StreamSession(
            stream or self.stream(),
            Surroundings(
                staging_uri=str(self.staging),
                deployment=deployment,
                actor=Actor(deployment=deployment, dag_id="dag", run_id=run, task_id="ingest", try_number=1),
                owner=around.pop("owner", owner),
                owner_is_running=lambda other: other.run_id in self.running,
                **around,
            ),
        )

    def report(self, session: StreamSession, work: RunWork, spec: str, **changes: Any) -> None:
        """Leave the reports of a driver that wrote every batch of the job."""
        storage = open_storage(str(self.staging))
        job = JobSpec.from_json(storage.get(spec.removeprefix(storage.uri + "/"))[0])
        for batch in job.batches:
            self.sink_version += 1
            report = TryReport(
                **{
                    "uuid": batch.uuid,
                    "epoch": batch.epoch,
                    "batch_id": batch.batch_id,
                    "manifest_digest": batch.manifest_digest,
                    "try_id": job.try_id,
                    "outcome": "written",
                    "sink_version": self.sink_version,
                    "sink_table_id": SINK_ID,
                    "rows_planned": batch.num_rows,
                    "rows_written": batch.num_rows,
                    **changes,
                }
            )
            name = report_name(batch.epoch, batch.batch_id, job.try_id)
            storage.put(f"{session.stream.name}/tries/{name}", report.to_json())


@pytest.fixture
def bench(log_builder: Any, tmp_path: Path) -> Bench:
    return Bench(log_builder.root, tmp_path / "staging")


@pytest.fixture
def two_appends(log_builder: Any) -> Callable[[], int]:
    log_builder.create()
    log_builder.append(2)
    return log_builder.append(3)
