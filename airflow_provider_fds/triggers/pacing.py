"""How often the triggers of a process poll, and how many of them at once."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Final
from weakref import WeakKeyDictionary

#: Maximum number of polls that all triggers of a process run at once.
_POLLS_AT_ONCE: Final = 64
#: A refused poll is repeated after the poll interval, doubled each time, up to this many seconds.
_LONGEST_BACKOFF_SECONDS: Final = 300.0
#: Poll intervals vary by this fraction, so that a thousand triggers do not all poll at once.
_JITTER: Final = 0.1
#: Airflow's triggerer takes the events of its triggers once in so many seconds, and begins new ones right after that.
_TICK_SECONDS: Final = 1.0
#: How long before that a poll begins, so that what it finds is taken then. All that are due begin together: to wake the
#: process costs more than a poll.
_LEAD_SECONDS: Final = 0.15
#: A pause that ends at a tick is at least so long.
_SHORTEST_SECONDS: Final = 0.5

_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
#: When the triggerer was last seen to take events, by the clock of the event loop.
_last_tick = 0.0


def poll_slot() -> asyncio.Semaphore:
    """Return the semaphore of this process (strictly, of its event loop, since a semaphore belongs to one)."""
    loop = asyncio.get_running_loop()
    if loop not in _slots:
        _slots[loop] = asyncio.Semaphore(_POLLS_AT_ONCE)
    return _slots[loop]


def note_start() -> None:
    """Note that the triggerer begins a trigger now, for :func:`pause_seconds`."""
    global _last_tick  # noqa: PLW0603  # of the process, as the triggerer is
    _last_tick = time.monotonic()


def pause_seconds(poll_interval: float, refusals: int) -> float:
    """Return how long to pause before the next poll, from now on: until just before the triggerer takes events.

    A poll right after that would wait a second for the task to be resumed. The triggerer's ticks are somewhat longer
    than a second, so that only the next ones after :func:`note_start` are met.

    Args:
        poll_interval: Seconds between two polls.
        refusals: How many polls in a row were refused.
    """
    spread = 1 + random.uniform(-_JITTER, _JITTER)  # noqa: S311  # no secret
    pause = poll_interval * spread
    if refusals:
        longest = max(poll_interval, _LONGEST_BACKOFF_SECONDS)
        pause = min(poll_interval * 2.0 ** (min(refusals, 60) - 1), longest) * spread
    if poll_interval < _TICK_SECONDS:
        return pause
    # the clock of the event loop
    now = time.monotonic()
    due = _last_tick - _LEAD_SECONDS + round((now + pause - _last_tick) / _TICK_SECONDS) * _TICK_SECONDS
    return due - now if due - now >= _SHORTEST_SECONDS else due - now + _TICK_SECONDS
