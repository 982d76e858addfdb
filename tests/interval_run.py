"""A run of one data interval, as `DeltaIngestOperator` performs it, without Airflow, in a process of its own."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from airflow_provider_fds.cli.arguments import process_owner
from airflow_provider_fds.errors import FdsError
from airflow_provider_fds.ledger.owner import Actor
from airflow_provider_fds.stream import DeltaStream, StreamContext
from airflow_provider_fds.stream.position.data_interval import DataInterval
from airflow_provider_fds.stream.run.session import StreamSession

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream.attempt.result import RunWork


def load_interval(
    stream: DeltaStream,
    sink: Sink,
    start: str,
    end: str,
    deployment: str,
    run: Callable[[StreamSession, RunWork], bool],
) -> int:
    """Load an interval, and return the exit code that ``fds`` would have; no other run is assumed to be active.

    Args:
        stream: The stream, with its staging.
        sink: Where its rows go.
        start: Start of the interval (inclusive), ISO 8601.
        end: Its end (exclusive).
        deployment: Name of the installation.
        run: Lets Spark do the work, and returns whether Spark failed.
    """
    try:
        return _load(stream, sink, DataInterval(*map(datetime.fromisoformat, (start, end))), deployment, run)
    except FdsError as error:
        print(error)
        return error.exit_code


def _load(
    stream: DeltaStream,
    sink: Sink,
    interval: DataInterval,
    deployment: str,
    run: Callable[[StreamSession, RunWork], bool],
) -> int:
    assert stream.staging is not None
    context = StreamContext(
        staging_uri=stream.staging,
        deployment=deployment,
        actor=Actor(deployment=deployment, user="a test"),
        owner=process_owner(deployment),
        owner_is_running=lambda _: False,
    )
    session = StreamSession(stream, context, interval)
    work = session.begin(sink)
    if work.status == "work":
        collected = session.collect(work, spark_failed=run(session, work))
        if collected.failure is not None:
            print(collected.failure)
            return collected.failure.exit_code
    print(session.result())
    return 0
