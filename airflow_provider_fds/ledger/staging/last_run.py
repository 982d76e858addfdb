"""What one owner did last, found in the newest runs of the state or, if they are all newer, in the entries."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.errors import UnreadableEntryError
from airflow_provider_fds.ledger.entries.entry import iso_time
from airflow_provider_fds.ledger.entries.epoch_entries import Created
from airflow_provider_fds.ledger.state import KEPT_RUNS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from airflow_provider_fds.ledger.entries.fold import Fold
    from airflow_provider_fds.ledger.owner import Owner
    from airflow_provider_fds.ledger.records import RunRecord
    from airflow_provider_fds.ledger.staging.access import Steps
    from airflow_provider_fds.ledger.staging.reading import LedgerReader

#: Clocks of writers differ; an entry's time may be off by this much.
_CLOCK_TOLERANCE: Final = timedelta(days=1)

_log: Final = logging.getLogger(__name__)


def last_run(reader: LedgerReader, head: Fold, owner: Owner, since: datetime | None) -> Steps[RunRecord | None]:
    """Return what ``owner`` did last, or ``None`` if nothing; see :meth:`.Ledger.find_run`.

    Args:
        reader: Reads the stream's ledger.
        head: The fold of its head.
        owner: The run.
        since: A time, with a zone, before which the run cannot have worked; ``None`` if unknown.
    """
    known = _newest_of(head.state.runs, owner)
    if known is not None or len(head.state.runs) < KEPT_RUNS:
        return known
    earliest = None if since is None else iso_time(since - _CLOCK_TOLERANCE)
    for n in range(head.n, -1, -1):
        try:
            found = yield from reader.entry(n)
        except UnreadableEntryError as damage:
            _log.warning("Cannot tell what %s has done: %s", owner.describe(), damage)
            return None
        # nothing is known of the time before the ledger was begun again
        if found is None or isinstance(found[0].action, Created):
            return None
        if earliest is not None and found[0].time < earliest:
            return None
        if getattr(found[0].action, "owner", None) == owner:
            return _newest_of((yield from reader.up_to(n)).state.runs, owner)
    return None


def _newest_of(runs: Sequence[RunRecord], owner: Owner) -> RunRecord | None:
    return next((run for run in reversed(runs) if run.owner == owner), None)
