"""Descriptions of the versions that planned batches cover."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from airflow_provider_fds.batch.version_ranges import describe_covered
from airflow_provider_fds.sizes import format_bytes, format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_fds.ledger.values import PlannedBatch, SnapshotRef


def describe_versions(batches: Sequence[PlannedBatch], snapshot: SnapshotRef | None = None) -> str:
    """Return what consecutive batches cover: files of the initial snapshot, versions of the table, or both.

    Args:
        batches: The batches, in order, at least one.
        snapshot: The frozen snapshot of their epoch, which knows its number of files.
    """
    first, last = batches[0], batches[-1]
    begins_in = json.loads(first.start)["reservoirVersion"]
    num_files = snapshot.num_files if snapshot is not None and snapshot.version == begins_in else None
    return describe_covered(first.start, last.end, first.first_version, last.last_version, num_files)


def describe_plan(batches: Sequence[PlannedBatch], snapshot: SnapshotRef | None = None) -> str:
    """Return what consecutive batches cover, with rows, files, bytes, and their numbers.

    Args:
        batches: The batches, in order, at least one.
        snapshot: See :func:`describe_versions`.
    """
    counts = [batch.num_rows for batch in batches]
    known = [count for count in counts if count is not None]
    rows = format_count(sum(known), "row") if len(known) == len(counts) else "an unknown number of rows"
    files = format_count(sum(batch.num_files for batch in batches), "file")
    size = format_bytes(sum(batch.num_bytes for batch in batches))
    first, last = batches[0].batch_id, batches[-1].batch_id
    which = f"batch {first}" if first == last else f"batches {first} to {last}"
    return f"{describe_versions(batches, snapshot)}, {rows} in {files} of {size}, as {which}"
