"""Start options that have no effect, because the stream has begun: the position is kept, and every run says so."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.delta.moments import parse_timestamp
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.ledger.entries.epoch_entries import StartKept
from airflow_provider_fds.ledger.rewind_options import sink_rows_option
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.source.offset import Offset

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.source.options.options import SourceOptions
    from airflow_provider_fds.stream.connected_stream import ConnectedStream

logger = logging.getLogger(__name__)

_START: Final = ("starting_version", "starting_timestamp")

#: The options that say which versions a stream reads.
_RANGE: Final = (*_START, "ending_version", "ending_timestamp", "version_as_of", "timestamp_as_of")


def range_options(options: SourceOptions) -> dict[str, Any]:
    """Return the given options of start and end, as the ledger records them when an epoch is opened."""
    return _given(options, _RANGE)


def start_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of :func:`range_options` that say where a stream begins."""
    return {name: value for name, value in options.items() if name in _START}


def end_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of :func:`range_options` that say where a stream ends, or that it reads one version."""
    return {name: value for name, value in options.items() if name not in _START}


def changed_start(state: StreamState, options: SourceOptions) -> dict[str, Any]:
    """Return the start options if the stream has begun with other ones; empty if they are the same or none is given.

    A ledger from before the options were recorded is judged by the start of its first epoch, if that is conclusive.
    """
    given = _given(options, _START)
    if not given or state.epoch_start is None:
        return {}
    if state.range_options is not None:
        return {} if _same(given, state.range_options) else given
    if state.epoch > 1:
        return {}
    start = Offset.from_json(state.epoch_start)
    version = options.starting_version
    is_other = start.is_initial_snapshot or (isinstance(version, int) and version != start.version)
    return given if is_other else {}


def describe_changed_start(state: StreamState, given: dict[str, Any]) -> str:
    """Return what the option is, where the stream began, and the two ways to read other versions."""
    option, value = next(iter(given.items()))
    shown = f"{option}={value!r}"
    start = Offset.from_json(state.epoch_start or "")
    where = "the snapshot of version" if start.is_initial_snapshot else "version"
    which = "" if state.epoch == 1 else f" in epoch {state.epoch}"
    rows = sink_rows_option(state.sink)
    rewind = f"`fds rewind {state.name}{rows} --to N --why …`"
    if option == "starting_timestamp":
        rewind = f"`fds rewind {state.name}{rows} --to TIME --why …`"
    return (
        f"{shown} has no effect: stream {state.name!r} began at {where} {start.version}{which} and continues from "
        f"its position. Restore or omit the option. To read from there again, use {rewind}; to load older versions "
        f"without moving the position, use `fds backfill {state.name} --start TIME`, or stream.backfill(start=…, "
        "end='live_start') in a DAG"
    )


def keep_start(connected: ConnectedStream, state: StreamState) -> StreamState:
    """Say that start options have no effect if the stream began with others, and record it for `fds status`.

    Raises:
        ConfigurationError: They have no effect, and ``on_changed_start`` is ``"fail"``.
    """
    if state.epoch_start is None:
        return state
    options = connected.stream.options
    changed = changed_start(state, options)
    if changed != (state.start_kept or {}):
        state = connected.execute(StartKept(epoch=state.epoch, options=changed))
    if not changed:
        return state
    message = describe_changed_start(state, changed)
    if options.on_changed_start == "fail":
        raise ConfigurationError(f"{message}.", table=connected.table.uri, reason=Reason.START_CHANGED)
    if connected.start_note != message:
        connected.start_note = message
        logger.warning("%s", message)
    return state


def start_note(connected: ConnectedStream) -> str | None:
    """Return what was said about start options that have no effect: in this session, or else by the last run."""
    state = connected.state
    if connected.start_note is not None or state.start_kept is None or state.epoch_start is None:
        return connected.start_note
    return describe_changed_start(state, state.start_kept)


def _given(options: SourceOptions, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(options, name)) is not None}


def _same(given: dict[str, Any], recorded: dict[str, Any]) -> bool:
    before = {name: recorded[name] for name in _START if name in recorded}
    return {name: _plain(name, value) for name, value in given.items()} == {
        name: _plain(name, value) for name, value in before.items()
    }


def _plain(name: str, value: Any) -> Any:
    return parse_timestamp(value) if name.endswith("timestamp") else value
