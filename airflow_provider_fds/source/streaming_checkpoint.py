"""Reads and writes the position of a Structured Streaming query in its checkpoint folder.

``offsets/<n>`` is what batch ``n`` reads up to, written before the batch; ``commits/<n>`` records that it is done
(Spark's ``OffsetSeqLog`` and ``CommitLog``, both format ``v1``: a line with the format, then JSON, one line per
source).
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.source.offset import METADATA_INDEXES, Offset

if TYPE_CHECKING:
    from airflow_provider_fds.delta.storage.storage import Storage

_FORMAT: Final = "v1"
_NO_OFFSET: Final = "-"


@dataclass(frozen=True, slots=True)
class StreamingPosition:
    """The position of a query in one table.

    Attributes:
        offset: Everything up to and including it is in the query's sink.
        batch_id: The query's last finished batch.
        unfinished_batch_id: A later batch that was begun: all, some or none of its rows may be in the query's sink.
            Usually ``None``.
    """

    offset: Offset
    batch_id: int
    unfinished_batch_id: int | None


def read_streaming_checkpoint(checkpoint: Storage, table_id: str) -> StreamingPosition:
    """Return the position of a query in the table with the id ``table_id``.

    Args:
        checkpoint: The query's checkpoint folder.
        table_id: ``metaData.id`` of the table.

    Raises:
        ConfigurationError: The folder is not a checkpoint or has another format; its query has finished no batch, does
            not read the table or reads it twice, or is in the middle of a schema change.
        StorageError: Storage does not answer.
    """
    begun, done = _numbers(checkpoint, "offsets"), _numbers(checkpoint, "commits")
    if not begun:
        raise ConfigurationError(
            f"{checkpoint.uri} is not a checkpoint of a streaming query: it has no offsets/<number>. Give the folder "
            "that the query uses as checkpointLocation"
        )
    if not done:
        raise ConfigurationError(
            f"the query of {checkpoint.uri} has not finished a batch, so it has no position yet. Let it run once, "
            "or start a stream with the query's start options"
        )
    batch_id = max(done)
    if batch_id not in begun:
        raise ConfigurationError(
            f"{checkpoint.uri} is incomplete: batch {batch_id} is committed, but offsets/{batch_id} is missing. "
            "Copy the whole folder"
        )
    offset = _offset_of(checkpoint, batch_id, table_id)
    later = [number for number in begun if number > batch_id]
    return StreamingPosition(offset, batch_id, min(later) if later else None)


def write_streaming_checkpoint(checkpoint: Storage, offset: Offset) -> None:
    """Write the checkpoint of a query whose last finished batch ends at ``offset``, where the next one begins.

    There are two batches that end there. When a query restarts, Spark asks Delta for its last batch once more; without
    a batch before it, Delta would look up where that began, which fails for version 0 and reads the table's state
    before any other. A batch without rows needs no look. The folder must be empty; the newest offset is written last.

    Raises:
        StorageError: Storage does not answer; what was written must be removed.
    """
    about_batch = {"batchWatermarkMs": 0, "batchTimestampMs": int(time.time() * 1000), "conf": {}}
    offsets = [_FORMAT, json.dumps(about_batch, separators=(",", ":")), offset.to_json()]
    commits = [_FORMAT, '{"nextBatchWatermarkMs":0}']
    for key, lines in (
        ("metadata", [json.dumps({"id": str(uuid4())}, separators=(",", ":"))]),
        ("commits/0", commits),
        ("commits/1", commits),
        ("offsets/0", offsets),
        ("offsets/1", offsets),
    ):
        checkpoint.put(key, "\n".join(lines).encode())


def _numbers(checkpoint: Storage, folder: str) -> set[int]:
    # the folder also has checksums (.0.crc) and temporary files
    names = (meta.key.rpartition("/")[2] for meta in checkpoint.list_after(folder))
    return {int(name) for name in names if name.isdecimal()}


def _offset_of(checkpoint: Storage, batch_id: int, table_id: str) -> Offset:
    where = f"{checkpoint.uri}/offsets/{batch_id}"
    version, *lines = checkpoint.get(f"offsets/{batch_id}")[0].decode().splitlines()
    if version.strip() != _FORMAT:
        raise ConfigurationError(f"{where} has the format {version!r}; this version of FDS reads {_FORMAT!r}")
    # the first line is about the batch; a source that has not begun is a dash
    found = [Offset.from_json(line) for line in lines[1:] if "reservoirId" in line and line.strip() != _NO_OFFSET]
    ours = [offset for offset in found if offset.table_id == table_id]
    if not ours:
        ids = ", ".join(sorted({offset.table_id for offset in found})) or "none"
        raise ConfigurationError(
            f"the query of {checkpoint.uri} does not read the table with id {table_id}: its Delta tables have the "
            f"ids {ids}. Check the table's URI; a table that was created again has another id"
        )
    if len(ours) > 1:
        raise ConfigurationError(
            f"the query of {checkpoint.uri} reads the table with id {table_id} {len(ours)} times, so it is "
            "unknown which position is meant: " + ", ".join(offset.to_json() for offset in ours)
        )
    (offset,) = ours
    if offset.index in METADATA_INDEXES:
        raise ConfigurationError(
            f"the query of {checkpoint.uri} stopped in the middle of a schema change at version {offset.version} "
            "(schemaTrackingLocation). Start the query once more so that it applies the change, then import it"
        )
    return offset
