"""How often the triggers of a process poll, and how many of them at once."""

from __future__ import annotations

import asyncio
import math
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
#: Those that are due in the same step of so many seconds begin together: to wake the process costs more than a poll.
_TOGETHER_SECONDS: Final = 0.25
#: A pause of fewer of them is not made longer.
_FEWEST_STEPS: Final = 10

_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


def poll_slot() -> asyncio.Semaphore:
    """Return the semaphore of this process (strictly, of its event loop, since a semaphore belongs to one)."""
    loop = asyncio.get_running_loop()
    if loop not in _slots:
        _slots[loop] = asyncio.Semaphore(_POLLS_AT_ONCE)
    return _slots[loop]


def pause_seconds(poll_interval: float, refusals: int) -> float:
    """Return how long to pause before the next poll, from now on.

    Args:
        poll_interval: Seconds between two polls.
        refusals: How many polls in a row were refused.
    """
    spread = 1 + random.uniform(-_JITTER, _JITTER)  # noqa: S311  # no secret
    pause = poll_interval * spread
    if refusals:
        longest = max(poll_interval, _LONGEST_BACKOFF_SECONDS)
        pause = min(poll_interval * 2.0 ** (min(refusals, 60) - 1), longest) * spread
    if pause < _FEWEST_STEPS * _TOGETHER_SECONDS:
        return pause
    # the clock of the event loop
    now = time.monotonic()
    return math.ceil((now + pause) / _TOGETHER_SECONDS) * _TOGETHER_SECONDS - now
