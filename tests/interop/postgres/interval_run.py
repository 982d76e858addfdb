"""A run of one data interval into PostgreSQL.

``python -m tests.interop.postgres.interval_run <table> <staging> <remote> append|replace <start> <end>``; the
environment says where the database is.
"""

from __future__ import annotations

import sys

from airflow_provider_fds.backends.base import Application, UserArguments
from airflow_provider_fds.backends.registry import command_line_backend
from airflow_provider_fds.sinks import PostgresSink
from airflow_provider_fds.stream import DeltaStream
from tests.interval_run import load_interval


def main(arguments: list[str]) -> int:
    """Load the interval."""
    table, staging, remote, mode, start, end = arguments
    sink = PostgresSink("public.orders", mode=mode, provenance=True)
    stream = DeltaStream("days", table=table, staging=staging, read="data_interval")
    backend = command_line_backend(None, remote, UserArguments(), print)

    def run(session, work):
        return backend.run(Application(session, sink, work, session.job(work, sink))).error is not None

    return load_interval(stream, sink, start, end, "tests", run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
