"""The incidents of a stream, recorded in staging, so that each is reported once, whichever task finds it.

The open incidents are a numbered list of JSON files below ``<stream>/alerts``. The next number is written only if it
is free, so that of two writers one wins and the other reads again.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from msgspec.structs import replace

from airflow_provider_fds.delta.damage import DAMAGE
from airflow_provider_fds.errors import StorageError
from airflow_provider_fds.ledger.layout import StreamFolder, parse_numbered_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.stream.monitoring.alerts import Alert, Found

#: Version of the JSON of a list.
_FORMAT: Final = 1
#: How long one process may take to notify, before another one takes over.
LEASE_SECONDS: Final = 600.0
#: Maximum number of attempts to report an incident, if notifiers fail or processes die.
MOST_ATTEMPTS: Final = 10
#: Older lists that are kept, so that a slow writer does not find its number free again.
_KEPT: Final = 16

_log: Final = logging.getLogger(__name__)
_T = TypeVar("_T")


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """An open incident.

    Attributes:
        state: The state, one of :data:`~.alerts.STATES`.
        key: What makes it differ from the next incident with the same state.
        entry: Number of the last ledger entry when it was detected.
        since: When it was detected, ISO 8601, UTC.
        told: Notifiers that have been called.
        is_told: Whether all notifiers of one task have been called.
        is_emitted: Whether a task has emitted its asset event.
        attempts: Number of attempts to call notifiers, including interrupted ones.
        claimed_until: Until when one process is notifying, in seconds since the epoch; 0 if none is.
        tried_at: When a process last began to notify, likewise.
    """

    state: str
    key: str
    entry: int
    since: str
    table: str = ""
    why: str = ""
    action: str = ""
    version: int | None = None
    operation: str | None = None
    told: tuple[str, ...] = ()
    is_told: bool = False
    is_emitted: bool = False
    attempts: int = 0
    claimed_until: float = 0.0
    tried_at: float = 0.0

    @property
    def identity(self) -> tuple[str, str, int]:
        """What identifies it among the incidents of its stream."""
        return self.state, self.key, self.entry

    def is_of(self, alert: Alert) -> bool:
        """Whether an alert is about this incident: not if its state has ended and begun again since."""
        return (self.state, self.key) == (alert.state, alert.key) and (alert.begun is None or self.entry >= alert.begun)

    def is_due(self, now: float, pause: float = 0.0) -> bool:
        """Whether its notifiers must be called.

        Args:
            now: Seconds since the epoch.
            pause: Seconds between two attempts.
        """
        is_free = self.claimed_until <= now and (not self.attempts or self.tried_at + pause <= now)
        return not self.is_told and is_free and self.attempts < MOST_ATTEMPTS


class _Book(msgspec.Struct, frozen=True, kw_only=True):
    format: int = _FORMAT
    incidents: tuple[Incident, ...] = ()


_DECODER: Final = msgspec.json.Decoder(_Book)


class IncidentLog:
    """The incidents of one stream.

    Args:
        staging: Storage of the staging folder.
        stream: Name of the stream.
        clock: Returns seconds since the epoch.
    """

    def __init__(self, staging: Storage, stream: str, clock: Callable[[], float] = time.time) -> None:
        self._staging = staging
        self._folder = StreamFolder(stream)
        self._clock = clock
        #: The open incidents as last read or written.
        self.last: tuple[Incident, ...] = ()

    def open(self) -> tuple[Incident, ...]:
        """Return the open incidents. Costs one LIST, and one GET if there has ever been one.

        Raises:
            StorageError: Staging did not answer.
        """
        self.last = self._read()[1]
        return self.last

    def observe(self, found: Found, *, fresh_entry: int | None = None) -> tuple[Incident, ...]:
        """Begin and end incidents according to a status, and return the open ones. Writes only if one has changed.

        Args:
            found: The states that apply according to the status.
            fresh_entry: Number of the entry with which the caller has begun a quarantine: an incident of an earlier
                entry is a different one.

        Raises:
            StorageError: Staging did not answer.
        """

        def change(incidents: tuple[Incident, ...]) -> tuple[tuple[Incident, ...], tuple[Incident, ...]]:
            after = self._after(incidents, found, fresh_entry)
            return after, after

        return self._change(change)

    def claim(self, found: Found, *, fresh_entry: int | None = None) -> tuple[Incident, ...]:
        """Like :meth:`observe`; return the incidents whose notifiers only this caller now calls.

        The caller ends with :meth:`settle`. If it dies before, a later check takes over after :data:`LEASE_SECONDS`.
        """

        def change(incidents: tuple[Incident, ...]) -> tuple[tuple[Incident, ...], tuple[Incident, ...]]:
            now = self._clock()
            after = self._after(incidents, found, fresh_entry)
            claimed = tuple(
                replace(one, attempts=one.attempts + 1, tried_at=now, claimed_until=now + LEASE_SECONDS)
                for one in after
                if one.is_due(now)
            )
            by_identity = {one.identity: one for one in claimed}
            return tuple(by_identity.get(one.identity, one) for one in after), claimed

        return self._change(change)

    def settle(self, incident: Incident, told: Sequence[str], *, is_told: bool) -> None:
        """Record which notifiers of a claimed incident were called, and whether these are all."""

        def change(incidents: tuple[Incident, ...]) -> tuple[tuple[Incident, ...], None]:
            return tuple(
                replace(one, told=tuple(told), is_told=is_told, claimed_until=0.0)
                if one.identity == incident.identity
                else one
                for one in incidents
            ), None

        self._change(change)

    def emit(self) -> tuple[Incident, ...]:
        """Return the open incidents without an asset event, which only this caller now emits."""

        def change(incidents: tuple[Incident, ...]) -> tuple[tuple[Incident, ...], tuple[Incident, ...]]:
            due = tuple(one for one in incidents if not one.is_emitted)
            return tuple(one if one.is_emitted else replace(one, is_emitted=True) for one in incidents), due

        return self._change(change)

    def _after(self, incidents: tuple[Incident, ...], found: Found, fresh_entry: int | None) -> tuple[Incident, ...]:
        """Return the open incidents after a status."""
        kept = {
            (one.state, one.key): one
            for one in incidents
            if not (one.state == "quarantined" and fresh_entry is not None and one.entry < fresh_entry)
        }
        after = [one for one in incidents if not found.ends(one.state, one.key)]
        known = ((alert, kept.get((alert.state, alert.key))) for alert in found.alerts)
        after += [one if one is not None and one.is_of(alert) else self._incident(alert) for alert, one in known]
        return tuple(after)

    def _incident(self, alert: Alert) -> Incident:
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self._clock()))
        return Incident(
            state=alert.state,
            key=alert.key,
            entry=alert.entry,
            since=since,
            table=alert.table,
            why=alert.why,
            action=alert.action,
            version=alert.version,
            operation=alert.operation,
        )

    def _change(self, change: Callable[[tuple[Incident, ...]], tuple[tuple[Incident, ...], _T]]) -> _T:
        while True:
            n, before = self._read()
            after, result = change(before)
            self.last = after
            if set(after) == set(before):
                return result
            data = msgspec.json.encode(_Book(incidents=after))
            if self._staging.put_if_absent(self._folder.incidents(n + 1), data):
                self._remove(n - _KEPT)
                return result

    def _remove(self, n: int) -> None:
        """Remove an old list. One that stays does no harm, and what was written counts."""
        if n < 0:
            return
        try:
            self._staging.delete(self._folder.incidents(n))
        except StorageError as error:
            _log.info("%s/%s was not removed: %s", self._staging.uri, self._folder.incidents(n), error)

    def _read(self) -> tuple[int, tuple[Incident, ...]]:
        found = self._staging.list_after(self._folder.alerts)
        numbers = (parse_numbered_name(one.key.rpartition("/")[2]) for one in found)
        n = max((number for number in numbers if number is not None), default=-1)
        if n < 0:
            return n, ()
        key = self._folder.incidents(n)
        try:
            book = _DECODER.decode(self._staging.get(key)[0])
        except FileNotFoundError:
            # newer lists were written meanwhile, and this one was removed
            return self._read()
        except DAMAGE as error:
            _log.warning("%s/%s cannot be read (%s): its incidents are reported again.", self._staging.uri, key, error)
            return n, ()
        return n, book.incidents
