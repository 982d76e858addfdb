"""Where a rewind leads: the version or the batch that a person named, checked against position, log and ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.delta.moments import parse_timestamp
from airflow_provider_fds.delta.reader.timestamps import CommitTimestamps
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.ledger.plan_entries import Planned
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.source.offset import describe_position

if TYPE_CHECKING:
    from airflow_provider_fds.delta.reader.log import DeltaLog
    from airflow_provider_fds.ledger.log import Ledger
    from airflow_provider_fds.ledger.values import PlannedBatch
    from airflow_provider_fds.source.offset import Offset


def version_at(name: str, log: DeltaLog | None, text: str) -> int | None:
    """Return the first version at or after a time, or ``None`` if the log cannot be reached from here.

    Raises:
        ConfigurationError: The text is not a time, or no commit is that young.
    """
    try:
        instant = parse_timestamp(text)
    except ValueError as error:
        raise ConfigurationError(
            f"stream {name!r}: invalid time to rewind to: {error}", reason=Reason.ACTION_REFUSED
        ) from error
    if log is None:
        return None
    found = CommitTimestamps(log).at_or_after(instant)
    if found is None:
        raise ConfigurationError(
            f"stream {name!r}: {log.table_uri} has no commit at or after {text}; a rewind can only move backwards",
            reason=Reason.ACTION_REFUSED,
        )
    return found


def check_version(name: str, log: DeltaLog | None, position: Offset | None, version: int) -> None:
    """Refuse a version after the position, or one that the log no longer has, and what is no version."""
    if version < 0:
        raise ConfigurationError(
            f"stream {name!r}: {version} is not a version; the first version of a table is 0",
            reason=Reason.ACTION_REFUSED,
        )
    if position is not None and version > position.version:
        raise ConfigurationError(
            f"stream {name!r} is at {describe_position(position.to_json())}, and version {version} is later; a rewind "
            f"can only move backwards. To skip a version: `fds skip {name} --version N --why …`",
            reason=Reason.ACTION_REFUSED,
        )
    if log is not None and version < (earliest := log.earliest()):
        raise ConfigurationError(
            f"stream {name!r}: version {version} of {log.table_uri} was removed; the oldest commit in the log is "
            f"{earliest}. Rewind to that version, or run `fds reset {name} --sink-rows keep|empty --why …` to "
            "begin with a snapshot",
            reason=Reason.ACTION_REFUSED,
        )


def planned_batch(ledger: Ledger, batch_id: int) -> tuple[Planned, PlannedBatch]:
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
            f"batch {batch_id} than the known one. Name a version: --to-version N",
            reason=Reason.ACTION_REFUSED,
        )
    return found
