"""How long a request to storage may take, and how often it is retried.

The object store client itself retries, with growing, randomised pauses: any request that was answered with 408, 429 or
5xx, or whose connection broke; a request that changes nothing, or overwrites, also after no answer at all; an
interrupted body, from the byte where it broke off. What it does not retry is retried here: the pages of an interrupted
listing, and a write-once put without an answer (it may have succeeded, so the object is read first). A request that
storage refuses is never retried.
"""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any, Final

#: Settings of the HTTP client. ``read_timeout`` is the longest silence; ``timeout``, the longest time for one whole
#: request, is far longer, because a slow link that still delivers is not a fault. A user's options take precedence.
CLIENT: Final[dict[str, Any]] = {
    "connect_timeout": "5s",
    "read_timeout": "20s",
    "timeout": "15m",
}

#: How the client retries. No attempt begins later than ``retry_timeout`` after the first one.
RETRY: Final[dict[str, Any]] = {
    "max_retries": 10,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2},
}

#: Number of attempts for requests that the client does not retry.
TRIES: Final = 4

#: Approximate wait before the second attempt; it doubles before each further one.
PAUSE_SECONDS: float = 0.2


def pause_seconds(attempt: int) -> float:
    """Return how long to wait before another attempt (from 1), randomised so that tasks do not collide again."""
    return random.uniform(0.5, 1.5) * PAUSE_SECONDS * 2.0 ** (attempt - 1)  # noqa: S311  # no secret is made of it
