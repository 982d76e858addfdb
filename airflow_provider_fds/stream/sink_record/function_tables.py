"""What the logs of a function's tables show of its writes: which have landed, and whether their rows still exist."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.batch.sink.table_account import account
from airflow_provider_fds.batch.table_writes import NO_TABLE
from airflow_provider_fds.batch.transactions import fence_version, txn_app_id
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.reader.replay import transactions
from airflow_provider_fds.errors import (
    AccessDeniedError,
    ConfigurationError,
    RequestRefusedError,
    TableNotFoundError,
)
from airflow_provider_fds.stream.sink_record.sink_commits import newest_commits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_provider_fds.batch.table_writes import TableWrites
    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.errors import FdsError
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.ledger.values import SinkBinding

logger = logging.getLogger(__name__)

#: Higher than every transaction.
_NEWEST: Final = 1 << 63


def read_table_writes(storage: Storage, app_id: str, floor: int = _NEWEST - 1) -> TableWrites:
    """Return the transactions of a write later than ``floor`` (exclusive), all read from one version of the table.

    Args:
        storage: The table's folder.
        app_id: Transaction application id of the write.
        floor: Transaction of the last committed batch, or of the fence after it. Only the newest one by default.
    """
    log = DeltaLog(storage)
    try:
        newest, earliest = log.latest(), log.earliest()
    except TableNotFoundError:
        return NO_TABLE
    commits = newest_commits(log, earliest, newest, lambda commit: commit.transactions.get(app_id, _NEWEST) <= floor)
    is_hidden = not any(app_id in commit.transactions for commit in commits)
    known = transactions(log, newest, [app_id]).get(app_id) if is_hidden else None
    return account(commits, app_id, known, floor)


def read_tables(
    state: StreamState,
    open_table: Callable[[str], Storage],
    unreadable: tuple[type[FdsError], ...] = (AccessDeniedError, ConfigurationError, RequestRefusedError),
) -> dict[str, TableWrites]:
    """Return what the named tables of the stream's function have after the last commit, by the write's name.

    Args:
        state: The stream's state.
        open_table: Opens the folder of a table.
        unreadable: Errors for which a table is left out; by default those of a worker that cannot read it.
    """
    sink, found = state.sink or state.fence_sink, {}
    for name, uri in ({} if sink is None else tables_in_order(sink)).items():
        try:
            found[name] = read_table_writes(open_table(uri), txn_app_id(state.uuid, write=name), floor_of(state))
        except unreadable as error:
            logger.warning("Stream %s: the table %s cannot be read from here: %s", state.name, uri, error)
    return found


def gone_tables(state: StreamState, found: Mapping[str, TableWrites]) -> list[str]:
    """Return the writes whose table lacks what the stream has written to it; ``found`` as in :func:`read_tables`."""
    committed = state.tables if state.closed is None else state.closed.tables
    # the tables as the requested epoch was to continue after their uncommitted batches
    counted = {} if state.request is None else state.request.table_versions
    return [
        name
        for name, of in found.items()
        if (name in committed and of.is_another(committed[name]))
        or (name in counted and (of.version < counted[name] or (of.is_new and all(w.is_fence for w in of.writes))))
    ]


def floor_of(state: StreamState) -> int:
    """Return the transaction up to which a function's writes are committed or fenced off."""
    of = state if state.closed is None else state.closed
    return max(of.prev_txn_version or 0, fence_version(of.epoch))


def tables_in_order(sink: SinkBinding) -> dict[str, str]:
    """Return the tables of a function by the names of their writes, in the order in which the writes were declared."""
    names = (app_id.partition("#")[2] for app_id in sink.app_ids)
    return {name: sink.tables[name] for name in names if name in sink.tables}
