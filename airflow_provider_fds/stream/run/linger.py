"""A run that lingers: once it has loaded everything, it polls the table and stays for what comes next."""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.durations import format_duration
from airflow_provider_fds.errors import FdsError
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.monitoring.status import status_of
from airflow_provider_fds.stream.monitoring.status_file import write_status_file
from airflow_provider_fds.stream.polling.alignment import table_poller
from airflow_provider_fds.stream.run.quarantine import pause_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_fds.stream.connected_stream import ConnectedStream
    from airflow_provider_fds.stream.polling.poll import TablePoller

logger = logging.getLogger(__name__)

#: Time between two polls of the table: on a file system, where one is a system call, and on a store: a HEAD.
_LOCAL_POLL_SECONDS: Final = 0.1
_POLL_SECONDS: Final = 0.5
#: Time between two looks at the ledger for what a person has asked for: one LIST.
LOOK_SECONDS: Final = 5.0
#: After a poll that was refused, the next one waits twice as long, up to this.
_LONGEST_PAUSE_SECONDS: Final = 60.0
#: How much longer Spark waits for a job than its run waits for data.
_DRIVER_SECONDS: Final = 60.0
_HOUR_SECONDS: Final = 3600.0
#: Time between two status files.
SHOW_SECONDS: Final = 30.0


class Hourly:
    """Calls a function, but at most once an hour, and not in the first one.

    Args:
        act: The function.
    """

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act
        self._due = time.monotonic() + _HOUR_SECONDS

    def __call__(self) -> None:
        """Call the function if it is due."""
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _HOUR_SECONDS
            self._act()


@dataclass
class Linger:
    """How long a run stays without data, and how it waits.

    Attributes:
        seconds: It ends when nothing has come for this long.
        poll_seconds: Time between two polls of the table; ``None``: 0.1 on a file system, else 0.5.
        ends_at_ms: It ends at this time in any case (milliseconds since the epoch); ``None``: no limit.
        needs_data: Whether it stays only once it has loaded something: without data it waits elsewhere.
        is_over: Set by :meth:`end`.
    """

    seconds: float
    poll_seconds: float | None = None
    ends_at_ms: int | None = None
    needs_data: bool = False
    is_over: bool = field(default=False, init=False)
    _shown_at: float = field(default=-math.inf, init=False, repr=False)

    @classmethod
    def of(cls, stays: timedelta | None, *, ends_at_ms: int | None = None, needs_data: bool = False) -> Linger | None:
        """Return how a run lingers that stays for so long without data; ``None``: it does not linger."""
        return None if stays is None else cls(stays.total_seconds(), ends_at_ms=ends_at_ms, needs_data=needs_data)

    @property
    def driver_seconds(self) -> float:
        """How long Spark waits for the next job, before it takes its worker for gone."""
        return self.seconds + _DRIVER_SECONDS

    def end(self) -> None:
        """Let the run end as if its time was over; may be called in a signal handler."""
        self.is_over = True

    def wait(self, connected: ConnectedStream, *, in_vain: int = 0) -> bool:
        """Wait until there is something to load; return ``False`` if the run is to end.

        It ends without data in its time, when the stream is finished, and when a person holds the stream or asks for
        another epoch. A poll that is refused is repeated, as a store may be away for a while.

        Args:
            connected: The stream of the run, with nothing planned.
            in_vain: How often in a row the run has found nothing to load when the wait was over; it then pauses first.
        """
        until = time.monotonic() + self.seconds
        self.adapt(is_local=connected.table.is_file_system)
        found = self._polled(connected, until, in_vain)
        if found is not None:
            return found and not self._is_called_off(connected)
        self.log_end(f"Stream {connected.stream.name}")
        return False

    def log_end(self, subject: str) -> None:
        """Log that nothing has come in time."""
        if not self.is_over:
            logger.info(
                "%s: nothing new for %s; the run ends.", subject, format_duration(timedelta(seconds=self.seconds))
            )

    def adapt(self, *, is_local: bool) -> None:
        """Choose the time between two polls by where the tables are, unless it was given."""
        if self.poll_seconds is None:
            self.poll_seconds = _LOCAL_POLL_SECONDS if is_local else _POLL_SECONDS

    def _polled(self, connected: ConnectedStream, until: float, in_vain: int) -> bool | None:
        """Poll until there is something to load (``True``), or there will not be (``False``); ``None``: in time."""
        look_at = time.monotonic() + LOOK_SECONDS
        poller: TablePoller | None = None
        refusals = in_vain
        while not self.is_late(until):
            self._show(connected)
            if refusals:
                self.pause(self.pause_seconds(refusals))
            try:
                poller = poller or _poller(connected)
                if (found := poller.poll_blocking()) is not None:
                    return not found.is_finished
                if time.monotonic() >= look_at:
                    look_at = time.monotonic() + LOOK_SECONDS
                    if self._is_called_off(connected):
                        return False
                refusals = 0
                self.pause(self.pause_seconds(0))
            except FdsError as error:
                if not error.retryable:
                    # the next plan says it
                    return True
                refusals += 1
                logger.warning("Stream %s: a poll was refused, FDS tries again: %s", connected.stream.name, error)
        return None

    def _show(self, connected: ConnectedStream) -> None:
        """Write from time to time that the run is there, for those who watch the stream. Never raises."""
        if time.monotonic() < self._shown_at + SHOW_SECONDS:
            return
        self._shown_at = time.monotonic()
        show_live(connected, 2 * SHOW_SECONDS)

    def pause_seconds(self, refusals: int) -> float:
        """Return the time before the next poll, the longer the more often one was refused or in vain."""
        return min((self.poll_seconds or _POLL_SECONDS) * 2.0 ** min(refusals, 30), _LONGEST_PAUSE_SECONDS)

    def pause(self, seconds: float) -> None:
        """Pause, but not after :meth:`end`."""
        until = time.monotonic() + seconds
        while not self.is_over and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, self.poll_seconds or _POLL_SECONDS))

    def is_late(self, until: float) -> bool:
        """Whether the run is to end: at this time of the monotonic clock, at its limit, or after :meth:`end`."""
        is_past = self.ends_at_ms is not None and time.time() * 1000 >= self.ends_at_ms
        return self.is_over or is_past or time.monotonic() >= until

    @staticmethod
    def _is_called_off(connected: ConnectedStream) -> bool:
        """Whether a person wants something else of the stream than that this run goes on."""
        state = connected.load()
        if (why := pause_of(state)) is not None:
            logger.info("%s", why)
            return True
        if state.phase != "open":
            logger.info("Stream %s: epoch %d was requested; the run ends before it.", state.name, state.epoch)
            return True
        return False


def show_live(connected: ConnectedStream, next_within_seconds: float) -> None:
    """Write the status file of a stream whose run lingers. Never raises.

    Args:
        connected: The stream, loaded.
        next_within_seconds: When the run writes the next one at the latest; then it counts as gone.
    """
    try:
        status = status_of(connected, seen_live=True)
        write_status_file(
            connected.staging, status, connected.state, written_by="run", next_within_seconds=next_within_seconds
        )
    except FdsError as error:
        logger.warning("Stream %s: its status was not written: %s", connected.stream.name, error)


def _poller(connected: ConnectedStream) -> TablePoller:
    """Return a poller of the run's table from its position on."""
    position = connected.state.position
    offset = None if position is None else Offset.from_json(position)
    return table_poller(connected.stream, connected.context, offset, connected.table)
