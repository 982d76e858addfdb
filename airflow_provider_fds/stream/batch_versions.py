"""The versions that planned batches cover, in words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from airflow_provider_fds.batch.version_ranges import describe_covered

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


__all__ = ["describe_versions"]
