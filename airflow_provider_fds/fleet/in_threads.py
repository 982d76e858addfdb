"""The same work for many streams at once, in threads that mostly wait for storage."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_Item = TypeVar("_Item")

#: Streams that are worked on at the same time; they mostly wait for storage.
THREADS: Final = 16


def each(threads: int, work: Callable[[_Item], None], items: Sequence[_Item]) -> None:
    """Call ``work`` for each item, in at most so many threads; it must not raise."""
    if len(items) < 2:  # noqa: PLR2004  # a thread for one item gains nothing
        for item in items:
            work(item)
        return
    pool = ThreadPoolExecutor(min(threads, len(items)), thread_name_prefix="fds-fleet")
    try:
        for _ in pool.map(work, items):
            pass
    finally:
        # a task that is killed begins nothing more
        pool.shutdown(cancel_futures=True)
