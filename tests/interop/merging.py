"""A stream of changes into a merge sink, loaded as in runs: planned by a session, written by the driver's own code."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider_fds.batch.spec import JobSpec
from airflow_provider_fds.ledger.owner import Actor, Owner
from airflow_provider_fds.sinks import DeltaMergeSink
from airflow_provider_fds.spark.application.job_run import run
from airflow_provider_fds.stream import DeltaStream, StreamContext, StreamSession

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import Row, SparkSession

    from airflow_provider_fds.batch.spec import BatchSpec
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream import RunWork


class Runs:
    """Runs of one stream, each with its own session and options.

    Args:
        spark: The session that does the driver's work.
        table: Path of the source.
        folder: For staging and the sink.
        sink: The sink, ``None``: a merge sink by ``id``.
        name: Distinguishes these runs from others of the stream.
        options: Of the merge sink.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: str,
        folder: Path,
        sink: Sink | None = None,
        *,
        name: str = "run",
        **options: Any,
    ) -> None:
        self._spark = spark
        self.table = table
        self.folder = folder
        self._staging = str(folder / "staging")
        self.sink_path = str(folder / "sink")
        self.sink = sink or DeltaMergeSink(self.sink_path, **{"keys": ["id"], **options})
        self._name = name
        self._count = 0

    def session(self, **options: Any) -> StreamSession:
        """Start another run of the stream."""
        self._count += 1
        name = f"{self._name}-{self._count}"
        return StreamSession(
            DeltaStream("merged", table=self.table, **{"read_change_feed": True, **options}),
            StreamContext(
                staging_uri=self._staging,
                deployment="tests",
                actor=Actor(deployment="tests", user="tests", host="tests"),
                owner=Owner(kind="cli", deployment="tests", run_id=name),
                owner_is_running=lambda _owner: False,
            ),
        )

    def load(self, *, applications: int | None = None, max_batches: int = 200, **options: Any) -> list[BatchSpec]:
        """Load everything, or as much as this many Spark applications take; return the batches."""
        session = self.session(**options)
        loaded: list[BatchSpec] = []
        while applications is None or applications > 0:
            work = session.begin(self.sink, max_batches=max_batches)
            if work.status not in ("work", "fence"):
                assert work.status in ("up_to_date", "done"), work
                break
            loaded += self.submit(session, work)
            collected = session.collect(work)
            if collected.failure is not None:
                raise collected.failure
            applications = None if applications is None else applications - 1
        return loaded

    def submit(
        self, session: StreamSession, work: RunWork, change: Callable[[BatchSpec], BatchSpec] | None = None
    ) -> tuple[BatchSpec, ...]:
        """Do what the driver does with the job of ``work``; ``change`` alters the spec of each batch."""
        uri = session.job(work, self.sink)
        storage = session.connected.staging
        job = JobSpec.from_json(storage.get(uri.removeprefix(storage.uri + "/"))[0])
        if change is not None:
            job = replace(job, batches=tuple(map(change, job.batches)))
        run(self._spark, job)
        return job.batches

    def rows(self, *columns: str) -> Counter[Row]:
        """The rows of the sink."""
        return rows_of(self._spark, self.sink_path, *columns)


def rows_of(spark: SparkSession, path: str, *columns: str) -> Counter[Row]:
    """The rows of a table as a multiset."""
    frame = spark.read.format("delta").load(path)
    return Counter(frame.selectExpr(*(columns or sorted(frame.columns))).collect())
