"""Retires the stream of a table that a pattern no longer finds: ``on_gone="retire"``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.errors import ConfigurationError, FdsError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.stream.actions.action_builder import ActionBuilder
from airflow_provider_fds.stream.actions.prepared_action import perform
from airflow_provider_fds.stream.connected_stream import ConnectedStream
from airflow_provider_fds.stream.run.reporting import is_refused

if TYPE_CHECKING:
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
        _retire(ConnectedStream(stream, context))
    except FdsError as error:
        _log.warning("Stream %s was not retired: %s", stream.name, error)
        return False
    return True


def _retire(connected: ConnectedStream) -> None:
    ledger = connected.ledger
    state = ledger.find()
    if state.phase == "empty" or state.retired is not None:
        return
    if is_refused(connected):
        raise ConfigurationError(
            f"the ledger of stream {state.name!r} is that of table {state.table} in deployment {state.deployment!r}",
            reason=Reason.ACTION_REFUSED,
        )
    perform(ledger, ActionBuilder(ledger, _WHY).retire(), connected.context.actor)


__all__ = ["retire_gone"]
