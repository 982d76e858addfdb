"""Fixtures for streams: sessions of different runs on a handmade log, and the reports that a driver would leave."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.batch.report import AttemptReport, report_name
from airflow_provider_fds.batch.sink.commit_metadata import commit_metadata, fence_metadata
from airflow_provider_fds.batch.spec import JobSpec
from airflow_provider_fds.batch.transactions import txn_version
from airflow_provider_fds.delta.names import commit_key
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.ledger.owner import Actor, Owner
from airflow_provider_fds.sinks import DeltaAppendSink
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream import DeltaStream, StreamContext, StreamSession, TablePoller
from airflow_provider_fds.stream.run.limits import Limits

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from airflow_provider_fds.batch.report import FenceReport
    from airflow_provider_fds.batch.spec import BatchSpec
    from airflow_provider_fds.stream import RunWork

SINK_ID = "99999999-0000-0000-0000-000000000000"

#: The protocol of a table with a reader feature that FDS does not know.
FUTURE = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["future"], "writerFeatures": ["future"]}


def _leave_unknown_feature(builder: Any) -> int:
    first: int = builder.commit({"protocol": FUTURE}, operation="ADD FEATURE")
    builder.append()
    return first


def _leave_torn_commit(builder: Any) -> int:
    first: int = builder.append()
    builder.write_raw(first, builder.path_of(first).read_bytes()[:-20])
    return first


#: Functions that end a log with commits that FDS cannot read, and return the version of the first of them.
UNREADABLE = (_leave_unknown_feature, _leave_torn_commit)


class Bench:
    """A table, a staging folder, and runs that share a stream."""

    def __init__(self, table: Path, staging: Path) -> None:
        self.table = table
        self.staging = staging
        self.running: set[str] = set()
        self.sink_version = 0

    def stream(self, name: str = "orders", **options: Any) -> DeltaStream:
        return DeltaStream(name, table=str(self.table), **{"starting_version": 0, **options})

    def session(
        self, run: str = "run-1", *, stream: DeltaStream | None = None, deployment: str = "test", **context: Any
    ) -> StreamSession:
        owner = Owner(kind="airflow", deployment=deployment, dag_id="dag", run_id=run, task_id="ingest")
        return StreamSession(
            stream or self.stream(),
            StreamContext(
                staging_uri=str(self.staging),
                deployment=deployment,
                actor=Actor(deployment=deployment, dag_id="dag", run_id=run, task_id="ingest", try_number=1),
                owner=context.pop("owner", owner),
                owner_is_running=lambda other: other.run_id in self.running,
                **context,
            ),
        )

    def limited(self, run: str = "run-1", *, stream: DeltaStream | None = None, **limits: Any) -> StreamSession:
        """Return a run that works off its stream within limits."""
        session = self.session(run, stream=stream)
        session.limit(Limits(**limits))
        return session

    def poller(self, stream: DeltaStream) -> TablePoller:
        """Poll the table from the committed position of ``stream``."""
        connected = self.session("sensor", stream=stream).connected
        connected.load()
        position = connected.ledger.checkpoint().offset
        return TablePoller(
            stream, LocalStorage(str(self.table)), None if position is None else Offset.from_json(position)
        )

    def run_once(
        self, sink: Any, run: str = "run-1", stream: DeltaStream | None = None, **begin: Any
    ) -> tuple[StreamSession, RunWork]:
        """Let a run load what it finds first; return its session and that work."""
        session = self.session(run, stream=stream)
        work = session.begin(sink, **begin)
        if work.status == "work":
            self.report(session, work, session.job(work, sink))
            session.collect(work)
        return session, work

    def load_once(self, sink: Any, run: str = "run-1", stream: DeltaStream | None = None, **begin: Any) -> RunWork:
        """Let a run load what it finds first; return that work."""
        return self.run_once(sink, run, stream, **begin)[1]

    def report(self, session: StreamSession, work: RunWork, spec: str, **changes: Any) -> None:
        """Leave the reports of a driver that wrote every batch of the job, and its commits."""
        storage = open_storage(str(self.staging))
        job = JobSpec.from_json(storage.get(spec.removeprefix(storage.uri + "/"))[0])
        for batch in job.batches:
            self.sink_version += 1
            report = AttemptReport(
                **{
                    "uuid": batch.uuid,
                    "epoch": batch.epoch,
                    "batch_id": batch.batch_id,
                    "manifest_digest": batch.manifest_digest,
                    "attempt_id": job.attempt_id,
                    "outcome": "written",
                    "sink_version": self.sink_version,
                    "sink_table_id": SINK_ID,
                    "rows_planned": batch.num_rows,
                    "rows_written": batch.num_rows,
                    **changes,
                }
            )
            name = report_name(batch.epoch, batch.batch_id, job.attempt_id)
            storage.put(f"{session.stream.name}/attempts/{name}", report.to_json())
            leave_commit(job, batch, report)


def leave_commit(job: JobSpec, batch: BatchSpec, report: AttemptReport) -> None:
    """Leave the commit that a driver with this report has made in the sink, unless it exists."""
    if report.outcome == "failed" or "uri" not in job.sink or report.sink_version is None:
        return
    metrics = {} if report.rows_written is None else {"numOutputRows": str(report.rows_written)}
    info = {
        "operation": "MERGE" if job.sink["kind"] == "delta_merge" else "WRITE",
        "operationMetrics": metrics,
        "userMetadata": commit_metadata(batch, job.attempt_id, {}, job.sink["kind"]),
    }
    leave_lines(job, report.sink_version, info, {"appId": batch.txn_app_id, "version": batch.txn_version})


def leave_fence_commit(job: JobSpec, report: FenceReport) -> None:
    """Leave the commits that a driver with this fence report has found in the sink, and the one it has made."""
    fence = job.fence
    assert fence is not None
    assert report.sink_version is not None
    for batch in report.landed:
        told = {"fds": 1, "stream": fence.stream, "uuid": fence.uuid, "epoch": batch.epoch, "batch_id": batch.batch_id}
        told |= {"end": batch.end, "digest": batch.digest}
        info = {"operation": "WRITE", "userMetadata": json.dumps(told)}
        txn = {"appId": fence.txn_app_id, "version": txn_version(batch.epoch, batch.batch_id)}
        leave_lines(job, batch.sink_version, info, txn)
    key = commit_key(report.sink_version)
    info = {"operation": "WRITE", "userMetadata": fence_metadata(fence, job.attempt_id)}
    # in a table restored from a copy, the version may exist
    open_storage(job.sink["uri"]).delete(key)
    leave_lines(job, report.sink_version, info, {"appId": fence.txn_app_id, "version": fence.txn_version})


def leave_lines(job: JobSpec, version: int, info: dict[str, Any], txn: dict[str, Any]) -> None:
    """Leave a commit with these two actions in the sink of the job, unless one exists."""
    sink = open_storage(job.sink["uri"])
    if version and sink.head(commit_key(0)) is None:
        created = [
            {"commitInfo": {"operation": "CREATE TABLE"}},
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
            {"metaData": {"id": SINK_ID, "schemaString": '{"type":"struct","fields":[]}'}},
        ]
        sink.put(commit_key(0), _lines(created))
    sink.put_if_absent(commit_key(version), _lines([{"commitInfo": info}, {"txn": txn}]))


def _lines(actions: list[dict[str, Any]]) -> bytes:
    return "\n".join(json.dumps(action, separators=(",", ":")) for action in actions).encode()


@pytest.fixture
def bench(log_builder: Any, tmp_path: Path) -> Bench:
    return Bench(log_builder.root, tmp_path / "staging")


@pytest.fixture
def sink(tmp_path: Path) -> DeltaAppendSink:
    return DeltaAppendSink(str(tmp_path / "sink"))


@pytest.fixture
def two_appends(log_builder: Any) -> Callable[[], int]:
    log_builder.create()
    log_builder.append(2)
    return log_builder.append(3)
