"""The driver that a cluster runs for the planned batches of a run, as the ledger has it (docs/clusters.md)."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from threading import RLock
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from airflow_provider_fds.errors import FdsError
from airflow_provider_fds.ledger.plan_entries import Submitted

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.facts import SubmittedFacts
    from airflow_provider_fds.stream.attempt.result import RunWork
    from airflow_provider_fds.stream.run.scope import Scope


class DriverRecord:
    """Writes which driver works on the batches of a run, and finds the one that an earlier attempt has left.

    Args:
        scope: What the run covers.

    Attributes:
        lock: Held while the run writes entries: a driver that lingers is started beside the thread that commits.
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self.lock = RLock()

    def write(self, work: RunWork, *, cluster: str, address: str, driver: str) -> None:
        """Record that a cluster has started a driver for ``work``; arguments as in :class:`SubmittedFacts`.

        Raises:
            LedgerError: The batches belong to another run by now.
        """
        self._execute(
            Submitted(
                epoch=work.epoch,
                interval=self._scope.interval,
                owner=self._scope.connected.context.owner,
                attempt_id=work.attempt_id,
                batch_id=work.batches[-1].batch_id,
                cluster=cluster,
                address=address,
                driver=driver,
            )
        )

    def left(self, work: RunWork) -> RunWork | None:
        """Return the part of ``work`` on which the driver of an earlier attempt works, ``None`` if there is none.

        It is the work of that attempt, so whoever takes it commits what the driver reports.
        """
        found = self._of(work)
        if found is None:
            return None
        batches = tuple(batch for batch in work.batches if batch.batch_id <= found.batch_id)
        is_more = work.is_more or len(batches) < len(work.batches)
        return replace(work, batches=batches, attempt_id=found.attempt_id, is_more=is_more, submitted=found)

    def ended(self, work: RunWork) -> None:
        """Record that the driver of the batches has ended, unless all batches of its job are committed."""
        found = self._of(work)
        if found is not None:
            # without it, the next attempt asks the cluster in vain
            with suppress(FdsError):
                self._execute(Submitted(owner=self._scope.connected.context.owner, has_ended=True, **asdict(found)))

    def _of(self, work: RunWork) -> SubmittedFacts | None:
        """Return the driver that was started for uncommitted batches of the epoch of ``work``."""
        if not work.batches:
            return None
        record = self._scope.record
        found = record.submitted
        is_for = found is not None and found.epoch == work.epoch and record.planned
        return found if found is not None and is_for and record.planned[0].batch_id <= found.batch_id else None

    def _execute(self, submitted: Submitted) -> None:
        with self.lock:
            self._scope.connected.execute(submitted)


__all__ = ["DriverRecord"]
