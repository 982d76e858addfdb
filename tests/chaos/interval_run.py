"""A run of one data interval, as `DeltaIngestOperator` performs it, without Airflow and with the warm Spark.

``python -m tests.chaos.interval_run <port> <table> <sink> <staging> <stream> append|replace <start> <end>``
"""

from __future__ import annotations

import sys
from datetime import datetime

from airflow_provider_fds.cli.arguments import process_owner
from airflow_provider_fds.errors import FdsError
from airflow_provider_fds.ledger.owner import Actor
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaReplaceSink, DeltaSink
from airflow_provider_fds.stream import DeltaStream, StreamContext
from airflow_provider_fds.stream.position.data_interval import DataInterval
from airflow_provider_fds.stream.run.session import StreamSession
from tests.chaos.warm_spark import run_in


def main(arguments: list[str]) -> int:
    """Load the interval; no other run is assumed to be active."""
    port, table, sink_uri, staging, name, kind, start, end = arguments
    sink: DeltaSink = DeltaReplaceSink(sink_uri, provenance=True) if kind == "replace" else DeltaAppendSink(sink_uri)
    session = StreamSession(
        DeltaStream(name, table=table, staging=staging, read="data_interval"),
        StreamContext(
            staging_uri=staging,
            deployment="chaos",
            actor=Actor(deployment="chaos", user="a test"),
            owner=process_owner("chaos"),
            owner_is_running=lambda _: False,
        ),
        DataInterval(datetime.fromisoformat(start), datetime.fromisoformat(end)),
    )
    work = session.begin(sink)
    if work.status == "work":
        run_in(int(port))(session.job(work, sink))
        collected = session.collect(work)
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
