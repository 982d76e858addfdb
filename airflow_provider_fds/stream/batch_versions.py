"""The versions that batches cover, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.source.offset import Offset

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
    start = Offset.from_json(first.start)
    if not start.is_initial_snapshot:
        return _range(first.first_version, last.last_version)
    end = Offset.from_json(last.end)
    text = f"initial snapshot of version {start.version}"
    num_files = snapshot.num_files if snapshot is not None and snapshot.version == start.version else None
    last_index = end.index if end.is_initial_snapshot else (num_files or 0) - 1
    if last_index >= start.next_index:
        is_one = last_index == start.next_index
        text += f", file {last_index:,}" if is_one else f", files {start.next_index:,} to {last_index:,}"
        text += "" if num_files is None else f" of {num_files:,}"
    elif num_files is None and start.next_index > 0:
        text += f", files from {start.next_index:,} on"
    if last.last_version > start.version:
        text += f", and {_range(start.version + 1, last.last_version)}"
    return text


def _range(first: int, last: int) -> str:
    # an interval without commits ends before it begins
    if last < first:
        return "no versions"
    return f"version {first}" if first == last else f"versions {first} to {last}"


__all__ = ["describe_versions"]
