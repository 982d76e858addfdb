"""Retires the stream of a table that a pattern no longer finds: ``on_gone="retire"``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.errors import ConfigurationError, FdsError
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.stream.actions.action_builder import ActionBuilder
from airflow_provider_fds.stream.actions.prepared_action import perform

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.stream.connected_stream import StreamContext
    from airflow_provider_fds.stream.declaration.delta_stream import DeltaStream

_log: Final = logging.getLogger(__name__)
_WHY: Final = "its table is gone (on_gone='retire')"


def retire_gone(stream: DeltaStream, context: StreamContext) -> bool:
    """Retire a stream, unless it has not begun or was retired before. Why it cannot be retired is a warning.

    Returns:
        Whether the name has no stream that could go on.
    """
    try:
        _retire(stream, context)
    except FdsError as error:
        _log.warning("Stream %s was not retired: %s", stream.name, error)
        return False
    return True


def _retire(stream: DeltaStream, context: StreamContext) -> None:
    ledger = Ledger(context.open_staging(), stream.name, deployment=context.deployment)
    state = ledger.find()
    if state.phase == "empty" or state.retired is not None:
        return
    if state.deployment != context.deployment or not _is_of(state, stream):
        raise ConfigurationError(
            f"the ledger of stream {state.name!r} is that of table {state.table} in deployment {state.deployment!r}",
            reason=Reason.ACTION_REFUSED,
        )
    perform(ledger, ActionBuilder(ledger, _WHY).retire(), context.actor)


def _is_of(state: StreamState, stream: DeltaStream) -> bool:
    """Whether a ledger is that of a stream; its table is gone, so its catalog no longer says where it was."""
    if stream.catalog_conn_id is None:
        return state.table == stream.table_uri
    return state.catalog is not None and state.catalog.name.casefold() == stream.table.casefold()
