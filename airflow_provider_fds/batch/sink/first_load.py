"""Whether a sink has only rows of the initial snapshot that a stream is loading into it, by the sink's own log.

Then a key of the snapshot that the sink already has is there twice in the source. Standard library only, Python 3.9
syntax.
"""
# The driver may run Python 3.9, so the annotations stay in its syntax.
# ruff: noqa: UP035, UP045

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional, Sequence

from airflow_provider_fds.batch.sink.loaded_streams import Piece, pieces
from airflow_provider_fds.batch.sink.sink_commit import brings_rows, leaves_no_rows

if TYPE_CHECKING:
    from airflow_provider_fds.batch.sink.sink_commit import SinkCommit
    from airflow_provider_fds.batch.spec import BatchSpec


def snapshot_of(batch: BatchSpec) -> Optional[Piece]:
    """Return the files of an initial snapshot that a batch has, or ``None`` if it has only commits."""
    return next((piece for piece in pieces(batch.start, batch.end, -1) if piece.is_snapshot), None)


def has_only_snapshot(commits: Sequence[SinkCommit], batch: BatchSpec) -> Optional[bool]:
    """Whether all rows of a sink are of the snapshot of a batch, from files before those of the batch.

    Args:
        commits: The newest commits of the sink without a gap, newest first.
        batch: The batch, which has not landed.

    Returns:
        ``None`` if earlier commits tell.
    """
    later = snapshot_of(batch)
    if later is None:
        return False
    for commit in commits:
        told: Any = commit.metadata or {}
        removes = told.get("removes")
        if removes is not None:
            # anyone may write any value there
            if isinstance(removes, dict) and removes.get("what") == "all":
                return True
        elif leaves_no_rows(commit):
            return True
        elif told.get("uuid") == batch.uuid and "batch_id" in told:
            own = pieces(str(told.get("start")), told["end"], commit.version)
            if len(own) != 1 or not _precedes(own[0], later):
                return False
            later = own[0]
        elif commit.is_restore or brings_rows(commit):
            return False
        if commit.version == 0:
            return True
    return None


def _precedes(piece: Piece, later: Piece) -> bool:
    """Whether a piece is of the same snapshot as a later one, and has none of its files."""
    is_same = (piece.table_id, piece.end[0]) == (later.table_id, later.end[0])
    return piece.is_snapshot and is_same and piece.end <= later.start
