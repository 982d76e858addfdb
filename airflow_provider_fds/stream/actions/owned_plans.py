"""Planned batches and their owner: what is known of the run that may still load them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_fds.sizes import format_batches, format_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_fds.ledger.owner import Owner
    from airflow_provider_fds.ledger.staging.log import Ledger
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.ledger.values import PlannedBatch


@dataclass(frozen=True, slots=True)
class OwnedPlan:
    """Planned batches and their owner.

    Attributes:
        epoch: Epoch of the batches, or generation of the interval.
        interval: The data interval, ``None`` for a stream that reads by offset.
        owner: The owner.
        batches: The batches.
    """

    epoch: int
    interval: str | None
    owner: Owner
    batches: tuple[PlannedBatch, ...]

    @property
    def subject(self) -> str:
        """The batches in words."""
        return "the planned batches" if self.interval is None else f"the planned batches of interval {self.interval}"


def plans_with_owner(state: StreamState) -> tuple[OwnedPlan, ...]:
    """Return what is planned and not committed."""
    found = [
        OwnedPlan(record.generation, record.interval, record.owner, record.planned)
        for record in state.intervals
        if record.planned and record.owner is not None
    ]
    if state.owner is not None:
        found.append(OwnedPlan(state.epoch, None, state.owner, state.planned))
    return tuple(found)


def describe_batches(batches: Sequence[PlannedBatch]) -> str:
    """Return how many planned batches there are, and how many rows, if the table's statistics say so."""
    rows = [batch.num_rows for batch in batches if batch.num_rows is not None]
    counted = f" ({format_count(sum(rows), 'row')})" if rows and len(rows) == len(batches) else ""
    return format_batches(len(batches)) + counted


def describe_owner(ledger: Ledger, plan: OwnedPlan, *, runs: bool | None) -> str:
    """Return what is known of the owner of planned batches: since when it has them, and its last sign of life.

    Args:
        ledger: The stream's ledger.
        plan: The batches.
        runs: Whether the owner is running, ``None`` if that cannot be known from here.
    """
    subject, owner = plan.subject.capitalize(), plan.owner
    if owner.only_plans:
        return f"{subject} belong to no run: a command planned or released them."
    signs = [entry for entry in ledger.entries() if getattr(entry.action, "owner", None) == owner]
    times = ""
    if signs:
        last = f"ledger entry {signs[-1].n} ({signs[-1].action.kind}) {signs[-1].describe_writing()}"
        times = f", which took them {signs[0].describe_writing()}; its last sign of life is {last}"
    verdict = {
        True: "It is running.",
        False: "It is no longer running.",
        None: "Whether it is running cannot be seen from here: make sure that it is not.",
    }[runs]
    return f"{subject} belong to {owner.describe()}{times}. {verdict}"
