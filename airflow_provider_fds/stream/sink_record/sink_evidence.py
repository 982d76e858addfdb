"""Where the evidence of a sink is: in its log, in the account of a database, or nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from airflow_provider_fds.stream.sink_record.evidence import SinkLog

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.values import SinkBinding
    from airflow_provider_fds.sinks import PostgresSink, Sink
    from airflow_provider_fds.stream.connected_stream import ConnectedStream
    from airflow_provider_fds.stream.sink_record.evidence import Evidence


def evidence_of(connected: ConnectedStream, sink: Sink | None) -> Evidence | None:
    """Return the evidence of a sink, or ``None`` if FDS itself writes no table."""
    if sink is not None and sink.target == "database_table":
        from airflow_provider_fds.stream.sink_record.database_evidence import DatabaseEvidence

        return DatabaseEvidence(connected, cast("PostgresSink", sink))
    uri = None if sink is None else sink.table_uri
    return None if uri is None else SinkLog(connected, uri)


def evidence_of_bound(connected: ConnectedStream, bound: SinkBinding) -> Evidence:
    """Return the evidence of a sink that a stream is or was bound to, and that is no function."""
    if bound.has_log:
        return SinkLog(connected, bound.target)
    found = evidence_of(connected, bound.sink())
    assert found is not None  # noqa: S101  # a bound sink is a table
    return found
