"""A run of one data interval with the warm Spark.

``python -m tests.chaos.interval_run <port> <table> <sink> <staging> <stream> append|replace <start> <end>``
"""

from __future__ import annotations

import sys

from airflow_provider_fds.sinks import DeltaAppendSink, DeltaReplaceSink, DeltaSink
from airflow_provider_fds.stream import DeltaStream
from tests.chaos.warm_spark import run_in
from tests.interval_run import load_interval


def main(arguments: list[str]) -> int:
    """Load the interval."""
    port, table, sink_uri, staging, name, kind, start, end = arguments
    sink: DeltaSink = DeltaReplaceSink(sink_uri, provenance=True) if kind == "replace" else DeltaAppendSink(sink_uri)
    stream = DeltaStream(name, table=table, staging=staging, read="data_interval")

    def run(session, work):
        run_in(int(port))(session.job(work, sink))
        return False

    return load_interval(stream, sink, start, end, "chaos", run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
