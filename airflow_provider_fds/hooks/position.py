"""The position of a stream, for sensors and triggers, which only read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.connected_stream import ConnectedStream
from airflow_provider_fds.stream.polling.poll import PollResult
from airflow_provider_fds.stream.position.stream_end import finished_reason
from airflow_provider_fds.stream.run.quarantine import pause_of

if TYPE_CHECKING:
    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.stream import DeltaStream
    from airflow_provider_fds.stream.connected_stream import StreamContext


class Standing(NamedTuple):
    """The position of a stream, and whether it may continue.

    Attributes:
        position: The committed offset, or ``None`` if the stream was never opened.
        pause: Why the stream pauses until a person decides, or ``None`` if it may continue.
        found: What a run must do even if the table has nothing new, or ``None`` if there is nothing.
        table: Storage of the table, which was opened to compare it with the ledger.
        is_stopped: Whether it stops until a person decides, also if the next run is to ask that person.
    """

    position: Offset | None
    pause: str | None = None
    found: PollResult | None = None
    table: Storage | None = None
    is_stopped: bool = False


def read_standing(stream: DeltaStream, stream_context: StreamContext) -> Standing:
    """Return the position of a stream. Blocks; writes nothing.

    The checkpoint says where to start reading the ledger. The rest of the ledger is then read, because a person's
    request (a rewind, a hold) is only in the ledger until the next run. This normally takes one request to Airflow and
    three to staging.

    Raises:
        CheckpointError: The checkpoint cannot be read, or does not belong to the ledger.
        LedgerError: The stream belongs to another Airflow installation or table, or has been retired.
        StorageError: Staging does not answer.
    """
    connected = ConnectedStream(stream, stream_context)
    state = connected.load()
    if state.phase == "requested" and state.request is not None and state.held is None:
        why = f"epoch {state.epoch} was requested by a {state.request.asked} ({state.request.why})"
        return Standing(None, found=PollResult(connected.log.latest(), reason=why))
    position = None if state.position is None else Offset.from_json(state.position)
    stop = state.quarantined
    if stop is not None and state.held is None and stream.options.on_violation == "ask":
        found = PollResult(connected.log.latest(), reason=f"the run asks what to do at version {stop.version}")
        return Standing(position, found=found, table=connected.table, is_stopped=True)
    pause = pause_of(state)
    if state.ended is not None and (reason := finished_reason(connected)) is not None:
        # from the ledger alone: the commits that determined its end may be gone
        found = PollResult(state.ended.version, reason=reason, is_finished=True)
        return Standing(position, pause, found, connected.table, is_stopped=pause is not None)
    return Standing(position, pause, table=connected.table, is_stopped=pause is not None)
