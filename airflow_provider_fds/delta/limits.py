"""How long storage is waited for, and how often it is asked again: every limit, in one place.

The client of the object stores repeats by itself, with growing pauses that are spread at random: any request that was
answered with 408, 429 or 5xx, or whose connection broke; a request that changes nothing, or overwrites, also after no
answer at all; a body that broke off, from the byte where it did. What it does not repeat is repeated here: the pages
of a listing that broke off, and a write-once put without an answer (it may have been done, so what is there is read
first). What storage refuses is never repeated.
"""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any, Final

#: The HTTP client. ``read_timeout`` is the longest silence; ``timeout`` the longest time for one whole request, far
#: above it, because a slow link that still delivers is no fault. What a user's options say goes before.
CLIENT: Final[dict[str, Any]] = {
    "connect_timeout": "5s",
    "read_timeout": "20s",
    "timeout": "15m",
}

#: How the client repeats. No attempt begins later than ``retry_timeout`` after the first one.
RETRY: Final[dict[str, Any]] = {
    "max_retries": 10,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2},
}

#: What the client does not repeat is tried so many times.
TRIES: Final = 4

#: About so long is waited before the second attempt, twice as long before each further one.
PAUSE_SECONDS: float = 0.2


def pause_seconds(attempt: int) -> float:
    """Return how long to wait before another attempt (from 1), spread at random so that tasks do not meet again."""
    return random.uniform(0.5, 1.5) * PAUSE_SECONDS * 2.0 ** (attempt - 1)  # noqa: S311  # no secret is made of it


__all__ = ["CLIENT", "PAUSE_SECONDS", "RETRY", "TRIES", "pause_seconds"]
