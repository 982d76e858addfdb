"""What requires attention, if a stream does not continue on its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider_fds.errors import FdsError
    from airflow_provider_fds.ledger.state import StreamState


def attention_of(state: StreamState, problem: FdsError | None) -> dict[str, Any]:
    """Return the ``attention`` of :class:`~.status.StreamStatus` for a stream that needs attention.

    Args:
        state: The state of its ledger.
        problem: Why its table or its ledger cannot be read; ``None`` if they can.
    """
    if problem is not None:
        return attention_of_problem(state.name, problem)
    name = state.name
    blocked = state.blocked or next((one.blocked for one in reversed(state.intervals) if one.blocked is not None), None)
    if blocked is not None:
        scope = f"--batch {blocked.batch_id}" if blocked.interval is None else f"--interval {blocked.interval}"
        return _attention(
            f"{blocked.interval or ''}:{blocked.epoch}:{blocked.batch_id}",
            f"batch {blocked.batch_id} is blocked until someone compares the sink with the source: {blocked.reason}",
            f"fds accept {name} {scope} --why …",
        )
    found = state.quarantined
    if found is None:
        return _attention("", "the stream needs attention", f"fds explain {name}")
    can_pass = found.version is not None and found.can_be_acknowledged
    action = f"fds acknowledge {name} --version {found.version} --why …" if can_pass else f"fds resume {name} --why …"
    begun = {"begun": state.quarantined_at}
    return _attention(str(found.version), found.why, action, version=found.version, operation=found.operation) | begun


def attention_of_problem(name: str, problem: FdsError) -> dict[str, Any]:
    """Return the ``attention`` of a stream whose table or ledger cannot be read."""
    return _attention(
        problem.reason_code,
        str(problem),
        f"fds explain {name}",
        version=problem.version,
        operation=problem.operation,
    )


def _attention(
    key: str, why: str, action: str, *, version: int | None = None, operation: str | None = None
) -> dict[str, Any]:
    return {"key": key, "why": why, "action": action, "version": version, "operation": operation}


__all__ = ["attention_of", "attention_of_problem"]
