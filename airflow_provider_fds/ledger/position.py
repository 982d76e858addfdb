"""The checkpoint: the value kept in Airflow (or a file) that records the position of a stream.

It is a checkpoint *of the ledger*: the ledger decides; the checkpoint shows the position to people and tells a run
where to start reading.
"""

from __future__ import annotations

from typing import Final

import msgspec

from airflow_provider_fds.delta.damage import DAMAGE, describe
from airflow_provider_fds.errors import CheckpointError, ConfigurationError
from airflow_provider_fds.sizes import format_count
from airflow_provider_fds.source.offset import Offset

#: Version of the checkpoint's JSON.
CHECKPOINT_FORMAT: Final = 1


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The position of a stream.

    Attributes:
        position: The position in words, for people; no decision depends on it. ``None`` in older values.
        stream: Name of the stream.
        uuid: Id of the stream, assigned when it was created.
        deployment: The Airflow installation that owns it.
        n: Number of the last ledger entry included in this value.
        digest: Digest of that entry.
        epoch: The stream's epoch.
        batch_id: Last committed batch of the epoch, or ``None`` if the epoch has no committed batch.
        offset: Committed offset (Delta streaming offset JSON, inclusive), or ``None`` while the epoch is not opened.
    """

    # first, so that people see it first
    position: str | None = None
    format: int = CHECKPOINT_FORMAT
    stream: str
    uuid: str
    deployment: str
    n: int
    digest: str
    epoch: int
    batch_id: int | None
    offset: str | None

    def to_json(self) -> str:
        """Return the checkpoint as JSON on one line."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str | bytes, *, home: str) -> Checkpoint:
        """Read a checkpoint; ``home`` describes where it was found, for the message.

        Raises:
            CheckpointError: It has another format, or is not a checkpoint.
        """
        try:
            found = _DECODER.decode(text)
            if found.format == CHECKPOINT_FORMAT and found.offset is not None:
                Offset.from_json(found.offset)
        except (*DAMAGE, ConfigurationError) as error:
            shown = text if isinstance(text, str) else text.decode(errors="replace")
            raise CheckpointError(
                f"{home} does not contain an FDS checkpoint ({describe(error)}): {shown[:_SHOWN]!r}. Only FDS may "
                "write it: restore it from the ledger with `fds recover STREAM`, with --airflow, or with --checkpoint "
                "FILE if it is a file; move a position with `fds rewind STREAM --to N --why …`"
            ) from error
        if found.format != CHECKPOINT_FORMAT:
            raise CheckpointError(
                f"{home} contains a checkpoint of stream {found.stream!r} in format {found.format}, but this FDS "
                f"reads format {CHECKPOINT_FORMAT}. Install the version that wrote it, or run `fds recover "
                f"{found.stream}` to write it again from the ledger"
            )
        return found


_SHOWN: Final = 200
_DECODER: Final = msgspec.json.Decoder(Checkpoint)


def describe_checkpoint(
    table: str, position: str | None, *, moved_at: str | None = None, rows: int | None = None
) -> str:
    """Return a position in words.

    Args:
        table: URI of the table.
        position: Committed offset (inclusive), or ``None`` if there is none.
        moved_at: When it was committed, ISO 8601, UTC; left out if ``None``.
        rows: Rows of the last committed batch; left out if ``None``.

    >>> offset = Offset.after(366, "t").to_json()
    >>> describe_checkpoint("s3://lake/orders", offset, moved_at="2026-11-22T06:35:13.250Z", rows=336776)
    'version 366 of s3://lake/orders, 2026-11-22T06:35:13Z, 336,776 rows in the last batch'
    """
    if position is None:
        return f"nothing of {table} yet"
    offset = Offset.from_json(position)
    if offset.is_initial_snapshot:
        where = f"initial snapshot of version {offset.version} of {table}, {format_count(offset.next_index, 'file')}"
    elif offset.next_index > 0:
        where = f"version {offset.version} of {table}, {format_count(offset.next_index, 'file')} of it"
    elif offset.version == 0:
        where = f"before version 0 of {table}"
    else:
        where = f"version {offset.version - 1} of {table}"
    when = "" if moved_at is None else f", {moved_at.partition('.')[0].removesuffix('Z')}Z"
    return f"{where}{when}" if rows is None else f"{where}{when}, {format_count(rows, 'row')} in the last batch"


def watermark_at(position: str | None, watermark: str | None) -> str | None:
    """Return the watermark to be shown at a position: none in an initial snapshot, whose rows come in no order of time.

    Args:
        position: Committed offset.
        watermark: The latest event time that is committed.
    """
    if watermark is None or position is None or Offset.from_json(position).is_initial_snapshot:
        return None
    return watermark
