"""The failure of a stream's last run, as its status file keeps it: for people, nothing else is decided by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from airflow_provider_fds.command_hints import with_stream
from airflow_provider_fds.credentials import redacted
from airflow_provider_fds.errors import FdsError, StreamBusyError
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.state import StreamState

#: Longest text of a status file, in characters.
LONGEST: Final = 4_000
#: Newest failures that are kept of a stream of data intervals, whose runs fail one by one.
_KEPT: Final = 20


class RunEnd(NamedTuple):
    """How a run ended.

    Attributes:
        error: Why it failed; ``None`` if it did not.
        will_retry: Whether Airflow starts another attempt by itself.
        interval: The data interval of the run, ``None`` for a stream by offset.
        waits_for: What the newest data wait for, if it has seen that.
    """

    error: Exception | None = None
    will_retry: bool = False
    interval: str | None = None
    waits_for: str | None = None

    @property
    def is_none(self) -> bool:
        """Whether the run gave way to another one, so that it says nothing about the stream."""
        return isinstance(self.error, StreamBusyError) or isinstance(
            getattr(self.error, "__cause__", None), StreamBusyError
        )


class RunFailure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why the runs of a stream fail.

    Attributes:
        reason_code: One of :class:`~.reasons.Reason`.
        why: The message.
        since: When the first of the runs that failed in a row ended: ISO 8601, UTC.
        at: When the last of them ended.
        runs: Number of them; each attempt of a task counts. None of them, nor anybody between them, has moved the
            stream.
        will_retry: Whether Airflow starts another attempt by itself.
        version: Version of the table that it is about.
        operation: ``commitInfo.operation`` of that version.
        interval: The data interval of the run, ``None`` for a stream by offset.
        uuid: The stream.
        epoch: Its epoch when the run ended.
        position: Its position then.
        entry: Number of the newest entry of its ledger then.
    """

    reason_code: str
    why: str
    since: str
    at: str
    runs: int = 1
    will_retry: bool = False
    version: int | None = None
    operation: str | None = None
    interval: str | None = None
    uuid: str = ""
    epoch: int = 0
    position: str | None = None
    entry: int = -1

    def applies(self, state: StreamState, entry: int) -> bool:
        """Whether this is still the last thing that happened: no newer run has begun to load, and nobody has acted.

        Args:
            state: The stream's state.
            entry: Number of the newest entry of its ledger.
        """
        if self.uuid != state.uuid:
            return False
        if self.interval is None:
            return self.entry == entry
        record = next((one for one in state.intervals if one.interval == self.interval), None)
        return record is None or not record.is_done

    def counts(self, state: StreamState, entry: int) -> bool:
        """Whether the next failure is one more in a row: nothing was committed, and nobody has moved the stream."""
        if self.interval is not None:
            return self.applies(state, entry)
        return (self.uuid, self.epoch, self.position) == (state.uuid, state.epoch, state.position)


def failures_after(
    before: tuple[RunFailure, ...], end: RunEnd | None, state: StreamState, entry: int, now: str
) -> tuple[RunFailure, ...]:
    """Return the failures of a stream that count, the newest last; :func:`failure_of` returns the one that applies.

    Args:
        before: Those that its status file has.
        end: How a run has just ended; ``None`` if none has.
        state: The stream's state.
        entry: Number of the newest entry of its ledger.
        now: The time: ISO 8601, UTC.
    """
    known = tuple(one for one in before if one.counts(state, entry))
    if end is None or end.is_none:
        return known
    others = tuple(one for one in known if one.interval != end.interval)
    if end.error is None:
        return others
    last = next((one for one in known if one.interval == end.interval), None)
    known_error = end.error if isinstance(end.error, FdsError) else None
    # the reason has a field of its own
    said = str(end.error).removeprefix(f"[{getattr(known_error, 'reason_code', '')}] ")
    why = with_stream(said, state.name) if known_error is not None else f"{type(end.error).__name__}: {said}"
    failure = RunFailure(
        reason_code=Reason.INTERNAL_ERROR.value if known_error is None else known_error.reason_code,
        why=redacted(why)[:LONGEST],
        since=now,
        at=now,
        will_retry=end.will_retry,
        version=None if known_error is None else known_error.version,
        operation=None if known_error is None else known_error.operation,
        interval=end.interval,
        uuid=state.uuid,
        epoch=state.epoch,
        position=state.position,
        entry=entry,
    )
    if last is not None:
        failure = replace(failure, since=last.since, runs=last.runs + 1)
    return (*others, failure)[-_KEPT:]


def failure_of(failures: tuple[RunFailure, ...], state: StreamState, entry: int) -> RunFailure | None:
    """Return the newest failure since which nothing has happened."""
    return next((one for one in reversed(failures) if one.applies(state, entry)), None)
