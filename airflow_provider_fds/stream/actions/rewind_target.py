"""Where a rewind leads: what a person named with ``--to``, checked against position, log and ledger."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from airflow_provider_fds.delta.moments import parse_timestamp
from airflow_provider_fds.delta.reader.timestamps import CommitTimestamps
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.ledger.entries.plan_entries import Planned
from airflow_provider_fds.ledger.rewind_options import rewind_problem, sink_rows_option
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.source.offset import Offset, describe_position
from airflow_provider_fds.stream.position.changed_start import start_options

if TYPE_CHECKING:
    from airflow_provider_fds.delta.reader.log import DeltaLog
    from airflow_provider_fds.ledger.staging.log import Ledger
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.ledger.values import PlannedBatch, SinkBinding, SnapshotRef

#: The start options of the stream.
START: Final = "start"
_NUMBER: Final = re.compile(r"(-?)([0-9]{1,18})")


def parse_target(value: object) -> int | str:
    """Return a target of ``--to`` in its plain form: a version as a number, all else as text.

    >>> parse_target("3"), parse_target("batch:3"), parse_target(" start ")
    (3, 'batch:3', 'start')

    Raises:
        ValueError: It is no version, no time, no batch and not the start.
    """
    text = str(value).strip()
    if _NUMBER.fullmatch(text):
        return int(text)
    if text == START or batch_of(text) is not None:
        return text
    try:
        parse_timestamp(text)
    except ConfigurationError as error:
        forms = "must be a version (12), a time (2026-01-31T06:00:00Z), a batch (batch:7) or start"
        raise ValueError(f"{forms}: {error}") from None
    return text


def batch_of(target: int | str) -> int | None:
    """Return the id of the batch that a target names, ``None`` if it names none."""
    kind, _, number = str(target).partition(":")
    return int(number) if kind == "batch" and number.isascii() and number.isdecimal() else None


def is_time(target: int | str) -> bool:
    """Return whether a target, as :func:`parse_target` returns it, is a time."""
    return isinstance(target, str) and target != START and batch_of(target) is None


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a rewind leads.

    Attributes:
        reason: The kind of the request in the ledger.
        to: As in the request, if nothing is removed; what is removed needs the version of ``start``.
        after: Where the new epoch begins, in words.
        start: Where the stream continues (exclusive); ``None``: from its very beginning, or at an unknown version.
        is_known: Whether ``start`` is known here.
    """

    reason: Literal["rewind", "reset"]
    to: dict[str, Any]
    after: str
    start: Offset | None
    is_known: bool = True


def destination_of(target: int | str, ledger: Ledger, log: DeltaLog | None) -> Destination:
    """Return where a target leads.

    Args:
        target: As :func:`parse_target` returns it.
        ledger: The stream's ledger, read to its head.
        log: The source's log; ``None`` if it cannot be reached from here.

    Raises:
        ConfigurationError: It is later than the position, the log no longer has it, or there is no such batch.
    """
    state = ledger.state
    closed = state if state.closed is None else state.closed
    position = None if closed.position is None else Offset.from_json(closed.position)
    if target == START:
        return Destination("reset", {"start": "options"}, _describe_start(state), None)
    if (batch_id := batch_of(target)) is not None:
        return _at_batch(ledger, closed.snapshot, batch_id, position)
    version = _version_at(state.name, log, str(target)) if is_time(target) else int(target)
    if version is None:
        after = f"reads from the first commit at or after {target} on"
        return Destination("rewind", {"starting_timestamp": target}, after, None, is_known=False)
    _check_version(state.name, state.sink, log, version)
    to = {"starting_timestamp": target} if is_time(target) else {"starting_version": version}
    start = Offset("" if position is None else position.table_id, version)
    if problem := rewind_problem(state.name, position, start):
        raise ConfigurationError(problem, reason=Reason.ACTION_REFUSED)
    return Destination("rewind", to, f"reads from version {version} on", start)


def known_start_options(state: StreamState) -> dict[str, Any] | None:
    """Return the start options of the stream's last run, ``None`` if an older ledger does not record them."""
    if state.start_kept is not None:
        return state.start_kept
    return None if state.range_options is None else start_options(state.range_options)


def _describe_start(state: StreamState) -> str:
    options = known_start_options(state)
    if options is None:
        return "begins at the start options of its next run, like a new stream"
    if not options:
        return "begins with a new snapshot of the table, not its history, unless its next run has a start option"
    shown = ", ".join(f"{name}={value}" for name, value in options.items())
    return f"begins at its start options ({shown}), unless its next run has others"


def _at_batch(ledger: Ledger, snapshot: SnapshotRef | None, batch_id: int, position: Offset | None) -> Destination:
    planned, batch = _planned_batch(ledger, batch_id)
    start = Offset.from_json(batch.start)
    name = ledger.state.name
    problem = rewind_problem(name, position, start)
    if problem is None and start.is_initial_snapshot and (snapshot is None or snapshot.version != start.version):
        problem = (
            f"stream {name!r}: batch {batch_id} of epoch {planned.epoch} is of the snapshot of version "
            f"{start.version}, which is not kept: the last epoch did not begin with it. Use --to start for a new "
            "snapshot, or --to N"
        )
    if problem is not None:
        raise ConfigurationError(problem, reason=Reason.ACTION_REFUSED)
    after = f"reads from {describe_position(batch.start)} on, where batch {batch_id} of epoch {planned.epoch} began"
    return Destination("rewind", {"offset": batch.start, "meaning_digest": planned.meaning_digest}, after, start)


def _version_at(name: str, log: DeltaLog | None, text: str) -> int | None:
    """Return the first version at or after a time, or ``None`` if the log cannot be reached from here.

    Raises:
        ConfigurationError: No commit is that young.
    """
    if log is None:
        return None
    found = CommitTimestamps(log).at_or_after(parse_timestamp(text))
    if found is None:
        raise ConfigurationError(
            f"stream {name!r}: {log.table_uri} has no commit at or after {text}; a rewind can only move backwards",
            reason=Reason.ACTION_REFUSED,
        )
    return found


def _check_version(name: str, sink: SinkBinding | None, log: DeltaLog | None, version: int) -> None:
    """Refuse a version that the log no longer has, and what is no version."""
    if version < 0:
        raise ConfigurationError(
            f"stream {name!r}: {version} is not a version; the first version of a table is 0",
            reason=Reason.ACTION_REFUSED,
        )
    if log is not None and version < (earliest := log.earliest()):
        raise ConfigurationError(
            f"stream {name!r}: version {version} of {log.table_uri} was removed; the oldest commit in the log is "
            f"{earliest}. Rewind to that version, or run `fds rewind "
            f"{name}{sink_rows_option(sink, to_start=True)} --to start --why …` to begin with a snapshot",
            reason=Reason.ACTION_REFUSED,
        )


def _planned_batch(ledger: Ledger, batch_id: int) -> tuple[Planned, PlannedBatch]:
    """Return the batch of the newest epoch that has one of this id, and the entry that planned it.

    Raises:
        ConfigurationError: The batch does not exist, or a newer one may be in an entry that cannot be read.
    """
    name = ledger.state.name
    found: tuple[Planned, PlannedBatch] | None = None
    expected = 0
    is_known = True
    for entry in ledger.entries():
        is_known = is_known and entry.n == expected
        expected = entry.n + 1
        if isinstance(entry.action, Planned):
            is_known = is_known or any(b.batch_id == batch_id for b in entry.action.batches)
            batches = (b for b in entry.action.batches if b.batch_id == batch_id)
            found = next(((entry.action, batch) for batch in batches), found)
    if found is None:
        raise ConfigurationError(
            f"stream {name!r} has no batch {batch_id}; see `fds history {name}`", reason=Reason.ACTION_REFUSED
        )
    if not is_known:
        raise ConfigurationError(
            f"stream {name!r}: entries of its ledger are missing or cannot be read, and may have planned a later "
            f"batch {batch_id} than the known one. Name a version: --to N",
            reason=Reason.ACTION_REFUSED,
        )
    return found
