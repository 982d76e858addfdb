"""Versions that a person skipped, and a snapshot, which has the rows of all versions up to its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airflow_provider_fds.errors import LedgerError
from airflow_provider_fds.ledger.rewind_options import sink_rows_option
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.state import StreamState

#: Number of versions that the message names.
_SHOWN: Final = 5


def refuse_skipped(state: StreamState, version: int | None, table_id: str | None) -> None:
    """Refuse to begin with a snapshot that has rows of versions which a person skipped, unless a person said so.

    Args:
        state: State of the stream.
        version: The version of the snapshot, ``None`` if it is not known yet.
        table_id: ``metaData.id`` of the table, ``None`` if its log cannot be read from here.

    Raises:
        LedgerError: Names the skipped versions, and how to load the table with or without their rows.
    """
    words = state.acknowledged if table_id is None else state.decisions_on(table_id)
    of_people = {one.version for one in words if one.skip}
    skipped = sorted(one for one in of_people if version is None or one <= version)
    if not skipped or (state.request is not None and state.request.loads_skipped is True):
        return
    which = ", ".join(map(str, skipped[:_SHOWN])) + (", …" if len(skipped) > _SHOWN else "")
    snapshot = "a snapshot of the table" if version is None else f"the snapshot of version {version}"
    rows, all_rows = sink_rows_option(state.sink), sink_rows_option(state.sink, to_start=True)
    raise LedgerError(
        f"stream {state.name!r}: {snapshot} may have rows of skipped versions ({which}), which it cannot leave out. To "
        f"load them: `fds rewind {state.name}{all_rows} --to start --load-skipped --why …` (--replace if it is "
        f"requested already); to load the history without them: `fds rewind {state.name}{rows} --to 0 --why …`",
        table=state.table,
        reason=Reason.SKIPPED_IN_SNAPSHOT,
    )
