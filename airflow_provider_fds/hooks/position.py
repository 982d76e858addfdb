"""The committed position of a stream, for those who only look."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.connect import ConnectedStream
from airflow_provider_fds.stream.poll import position_of
from airflow_provider_fds.stream.quarantine import pause_of

if TYPE_CHECKING:
    from airflow_provider_fds.stream import DeltaStream
    from airflow_provider_fds.stream.connect import Surroundings


def read_pause(stream: DeltaStream, around: Surroundings) -> str | None:
    """Return why the stream goes no further until a person has looked, ``None`` if it may go on. Blocking.

    Only a stream with ``on_violation="quarantine"`` is asked for: the ledger has to be read for it.

    Raises:
        StorageError: Staging does not answer.
    """
    if stream.options.on_violation != "quarantine":
        return None
    return pause_of(ConnectedStream(stream, around).load())


def read_position(stream: DeltaStream, around: Surroundings) -> Offset | None:
    """Return the committed offset of a stream, ``None`` if it was never opened. Blocking; writes nothing.

    The checkpoint answers, one request to Airflow. Where it is absent (before the first run, or deleted) the ledger
    in staging does.

    Raises:
        CheckpointError: The checkpoint cannot be read, or does not belong to the ledger.
        StorageError: Staging does not answer.
    """
    checkpoint = around.checkpoints.read() if around.checkpoints is not None else None
    if checkpoint is not None:
        return position_of(checkpoint)
    position = ConnectedStream(stream, around).load().position
    return None if position is None else Offset.from_json(position)
