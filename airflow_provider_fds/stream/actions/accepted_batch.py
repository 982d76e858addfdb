"""A person's word on a batch: as it is in the sink, or without the rows that expectations keep out of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.ledger.entries.commit_entries import Accepted

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.facts import BlockedFacts
    from airflow_provider_fds.ledger.state import StreamState


def accept_batch(state: StreamState, batch: int, why: str) -> tuple[Accepted, str, tuple[str, ...]]:
    """Return the entry that accepts a batch, what follows in words, and notes.

    Args:
        state: The state of the stream.
        batch: Id of the batch that is blocked, or that the stream is in quarantine for.
        why: The reason.
    """
    stop = None if state.quarantined is None else state.quarantined.batch
    if not stop or stop.batch_id != batch:
        command = Accepted(epoch=state.epoch, batch_id=batch, why=why)
        return command, f"accepts batch {batch} as it is in the sink", describe_blocked(state.blocked)
    command = Accepted(epoch=stop.epoch, batch_id=batch, why=why, digest=stop.digest, rejected=stop.rejected)
    after = f"loads batch {batch} without the {stop.rejected:,} of {stop.rows:,} rows that expectations keep out"
    where = "These rows are left out for good"
    if stop.rejects:
        where = f"Rows that fail an expectation with the action 'reject' go to {stop.rejects}, the others are left out"
    limit = f"This holds for this batch alone, and for no more rows; max_rejected={stop.max_rejected:g} stays"
    return command, after, (f"{where}.", f"{limit}.")


def describe_blocked(blocked: BlockedFacts | None) -> tuple[str, ...]:
    """Return the rows of a blocked batch in words."""
    if blocked is None:
        return ()
    return (f"{blocked.reason}. Planned rows: {blocked.rows_planned}, written: {blocked.rows_written}.",)
