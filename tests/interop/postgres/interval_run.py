"""A run of one data interval into PostgreSQL, as `DeltaIngestOperator` performs it, without Airflow.

``python -m tests.interop.postgres.interval_run <table> <staging> <remote> append|replace <start> <end>``; the
environment says where the database is.
"""

from __future__ import annotations

import sys
from datetime import datetime

from airflow_provider_fds.backends.base import Application, UserArguments
from airflow_provider_fds.backends.registry import command_line_backend
from airflow_provider_fds.cli.arguments import process_owner
from airflow_provider_fds.errors import FdsError
from airflow_provider_fds.ledger.owner import Actor
from airflow_provider_fds.sinks import PostgresSink
from airflow_provider_fds.stream import DeltaStream, StreamContext
from airflow_provider_fds.stream.position.data_interval import DataInterval
from airflow_provider_fds.stream.run.session import StreamSession


def main(arguments: list[str]) -> int:
    """Load the interval; no other run is assumed to be active."""
    table, staging, remote, mode, start, end = arguments
    sink = PostgresSink("public.orders", mode=mode, provenance=True)
    session = StreamSession(
        DeltaStream("days", table=table, staging=staging, read="data_interval"),
        StreamContext(
            staging_uri=staging,
            deployment="tests",
            actor=Actor(deployment="tests", user="a test"),
            owner=process_owner("tests"),
            owner_is_running=lambda _: False,
        ),
        DataInterval(datetime.fromisoformat(start), datetime.fromisoformat(end)),
    )
    backend = command_line_backend(None, remote, UserArguments(), print)
    work = session.begin(sink)
    if work.status == "work":
        error = backend.run(Application(session, sink, work, session.job(work, sink))).error
        collected = session.collect(work, spark_failed=error is not None)
        if collected.failure is not None:
            print(collected.failure)
            return collected.failure.exit_code
    print(session.result())
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except FdsError as error:
        # as `fds` does
        print(error)
        sys.exit(error.exit_code)
