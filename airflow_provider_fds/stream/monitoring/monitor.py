"""Watches all streams of a staging folder: a round costs little for the streams and tables that did not change."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.errors import FdsError, StorageError
from airflow_provider_fds.stream.monitoring.all_statuses import find_ledger, open_stream, stream_names, unreadable
from airflow_provider_fds.stream.monitoring.driver_progress import read_driver
from airflow_provider_fds.stream.monitoring.status import status_of
from airflow_provider_fds.stream.monitoring.status_file import older, write_status_file
from airflow_provider_fds.stream.monitoring.status_row import list_rows, read_status_file
from airflow_provider_fds.stream.position.unread_files import UnreadFiles

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from airflow_provider_fds.ledger.staging.log import Ledger
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.places import Places
    from airflow_provider_fds.stream.connected_stream import ConnectedStream, StreamContext
    from airflow_provider_fds.stream.monitoring.status import StreamStatus

#: Streams that are read at the same time; on an object store the time is spent waiting.
_THREADS: Final = 16

#: A status file is written in one round of so many.
ROUNDS_PER_FILE: Final = 5


class StreamMonitor:
    """Returns the statuses of all streams of a staging folder, round after round.

    A round writes nothing. :meth:`write_status_files` writes what the page "Delta streams" shows.

    A round lists the status files, in which runs say how they ended, asks the ledger of each stream for a new entry,
    and its table for the next version, with one HEAD. Only if there is one, the table's log is read. Every Nth round
    reads everything, as that finds tables that were deleted or replaced. Between them, the lag of a stream that did not
    change grows with the time.

    Args:
        context: Returns how staging is reached; called at each full round, so that it can look credentials up again.
            The deployment is that of each stream.
        places_for: Returns what finds the table of a stream; ``None``: the places of the context. Called in the thread
            of the caller.
        recheck_every: Every Nth round is a full one, the first one included.
    """

    def __init__(
        self,
        context: Callable[[], StreamContext],
        *,
        places_for: Callable[[StreamState], Places] | None = None,
        recheck_every: int = 20,
    ) -> None:
        self._make_context = context
        self._places_for = places_for
        self._recheck_every = recheck_every
        self._rounds = 0
        self._watched: dict[str, _Watched] = {}
        #: By stream, the number of rounds after which its next file is due.
        self._next_file: dict[str, int] = {}
        self._context: StreamContext | None = None

    def poll(self) -> list[StreamStatus]:
        """Return the status of each stream, by name.

        Raises:
            AccessDeniedError: The staging folder cannot be listed.
            StorageError: Staging did not answer.
        """
        if self._context is None or self._rounds % self._recheck_every == 0:
            self._context = self._make_context()
            for watched in self._watched.values():
                watched.forget()
        context = self._context
        staging = context.open_staging()
        names = stream_names(staging)
        self._watched = {name: self._watched.get(name) or _Watched(name) for name in names}
        with ThreadPoolExecutor(_THREADS) as threads:
            new = [watched for watched in self._watched.values() if watched.connected is None]
            ledgers = list(threads.map(lambda watched: find_ledger(staging, watched.name), new))
            for watched, found in zip(new, ledgers, strict=True):
                watched.open(found, context, self._places_for)
            files = list_rows(staging)
            statuses = list(threads.map(lambda one: one.poll(files.get(one.name)), self._watched.values()))
        self._rounds += 1
        return [status for status in statuses if status is not None]

    def write_status_files(self, statuses: Iterable[StreamStatus], *, interval_seconds: float) -> StorageError | None:
        """Write the status file of each stream, unless one of its last rounds did. One GET and one PUT each.

        Args:
            statuses: Those of the last round.
            interval_seconds: Time between two rounds.

        Returns:
            Why a file could not be written, ``None`` if all were.
        """
        context = self._context
        if context is None:
            return None
        staging = context.open_staging()
        due = [one for one in statuses if self._rounds >= self._next_file.get(one.name, 0)]

        def write(status: StreamStatus) -> StorageError | None:
            try:
                write_status_file(
                    staging,
                    status,
                    self.state_of(status.name),
                    written_by="monitor",
                    next_within_seconds=interval_seconds * ROUNDS_PER_FILE,
                )
            except StorageError as error:
                return error
            self._next_file[status.name] = self._rounds + ROUNDS_PER_FILE
            return None

        with ThreadPoolExecutor(_THREADS) as threads:
            failed = list(threads.map(write, due))
        return next((error for error in failed if error is not None), None)

    def state_of(self, name: str) -> StreamState | None:
        """Return the state of a stream as the last round has read it; ``None`` if it could not be read."""
        watched = self._watched.get(name)
        return None if watched is None or watched.connected is None else watched.connected.state


class _Watched:
    """A stream, its status, and what shows whether that is still true."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.connected: ConnectedStream | None = None
        self._unread = UnreadFiles()
        self._status: StreamStatus | None = None
        self._entry = -1
        self._file: object = None
        self._read_at = 0.0

    def forget(self) -> None:
        """Read everything again at the next poll, except commits whose files are counted."""
        self.connected = self._status = None

    def open(
        self,
        found: Ledger | FdsError | None,
        context: StreamContext,
        places_for: Callable[[StreamState], Places] | None,
    ) -> None:
        """Connect to the table of the ledger that :func:`find_ledger` has found."""
        self._status = None
        if found is None:
            return
        if isinstance(found, FdsError):
            self._status = unreadable(self.name, "", found)
            return
        table = found.state.table
        try:
            if places_for is not None:
                context = replace(context, places=places_for(found.state))
            self.connected = open_stream(context, found)
        except FdsError as problem:
            self._status = unreadable(self.name, table, problem)

    def poll(self, file: object = None) -> StreamStatus | None:
        """Return the status; ``None`` for a folder that is no stream.

        Args:
            file: What identifies the content of its status file.
        """
        connected = self.connected
        if connected is None:
            return self._status
        try:
            if self._status is None or self._has_changed(connected, self._status) or self._has_run(file):
                self._status = status_of(connected, self._unread)
                self._entry, self._read_at, self._file = connected.ledger.n, time.monotonic(), file
                return self._status
        except FdsError as problem:
            self.forget()
            return unreadable(self.name, connected.table.uri, problem)
        status = older(self._status, time.monotonic() - self._read_at)
        if status.driver is None:
            return status
        return replace(status, driver=read_driver(connected.staging, connected.state))

    def _has_changed(self, connected: ConnectedStream, status: StreamStatus) -> bool:
        connected.load()
        if connected.ledger.n != self._entry or status.newest_version is None:
            return True
        return connected.log.probe(status.newest_version + 1)

    def _has_run(self, file: object) -> bool:
        """Whether a run has ended, or a trigger seen what it waits for, according to a status file that has changed."""
        if file == self._file or self._status is None or self.connected is None:
            return False
        self._file = file
        found = read_status_file(self.connected.staging, self.name)
        return found is not None and (found.failures, found.waits_for) != (
            self._status.failures,
            self._status.waits_for,
        )
