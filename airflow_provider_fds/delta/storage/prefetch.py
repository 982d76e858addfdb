"""Reads many objects in order, some ahead of the consumer, and performs accesses that do not depend on each other."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future, ThreadPoolExecutor

    from airflow_provider_fds.delta.storage.storage import ObjectMeta, Storage

#: Maximum held ahead, whatever the window: 64 commits of 16 MiB would be 1 GiB.
AHEAD_BYTES: Final = 32 << 20
#: Accesses that are under way at the same time.
AT_ONCE: Final = 16
#: Fewer accesses follow each other, without a thread.
_FEW: Final = 2

_Item = TypeVar("_Item")
_Found = TypeVar("_Found")


def read_ahead(
    storage: Storage, metas: Iterator[ObjectMeta], *, window: int, whole_up_to_bytes: int
) -> Iterator[tuple[ObjectMeta, bytes | None]]:
    """Yield the content of the objects in the given order, or ``None`` for those above ``whole_up_to_bytes``.

    From an object store, up to ``window`` objects, of at most :data:`AHEAD_BYTES` in total, are being read at any time.
    Files are read one by one: a disk answers faster than a thread wakes up. Errors of ``metas`` and ``Storage.get`` are
    raised when their object is reached. The ``etag`` is that of the content, not that of the listing.
    """
    if storage.is_file_system:
        for meta in metas:
            if meta.size_bytes > whole_up_to_bytes:
                yield meta, None
                continue
            content, found = storage.get(meta.key)
            yield (meta if meta.etag == found.etag else meta._replace(etag=found.etag)), content
        return
    under_way: deque[tuple[ObjectMeta, Future[tuple[bytes, ObjectMeta]] | None]] = deque()
    ahead_bytes = 0
    upcoming, failure = _next(metas)
    # threads, not an event loop: the client waits outside the interpreter, and futures across loops cost twice the CPU
    pool = _threads(window)
    try:
        while under_way or upcoming is not None:
            while upcoming is not None and (
                not under_way or (len(under_way) < window and ahead_bytes + upcoming.size_bytes <= AHEAD_BYTES)
            ):
                reading = None
                if upcoming.size_bytes <= whole_up_to_bytes:
                    reading = pool.submit(storage.get, upcoming.key)
                    ahead_bytes += upcoming.size_bytes
                under_way.append((upcoming, reading))
                upcoming, failure = _next(metas)
            meta, future = under_way.popleft()
            data = None
            if future is not None:
                content, found = future.result()
                data = content
                ahead_bytes -= meta.size_bytes
                meta = meta if meta.etag == found.etag else meta._replace(etag=found.etag)
            yield meta, data
        if failure is not None:
            raise failure
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def get_all(storage: Storage, keys: Sequence[str]) -> list[bytes | None]:
    """Return the contents of objects, ``None`` for one that does not exist; from an object store at the same time."""

    def get(key: str) -> bytes | None:
        try:
            return storage.get(key)[0]
        except FileNotFoundError:
            return None

    if storage.is_file_system or len(keys) < _FEW:
        return [get(key) for key in keys]
    with _threads(AT_ONCE) as pool:
        return list(pool.map(get, keys))


def in_windows(
    items: Sequence[_Item], read: Callable[[_Item], _Found], *, window: int
) -> Iterator[tuple[_Item, Callable[[], _Found]]]:
    """Yield each item, in order, with a function that returns ``read(item)`` or raises its error.

    Args:
        items: The items.
        read: Reads what belongs to an item; called in other threads, and safe for that.
        window: Number of items that are read at the same time first, ahead of the consumer; then twice as many, up to
            16. One who stops at the first item has caused few reads of later ones if it is 1. 0: each item is read when
            it is asked for, in the thread of the caller.
    """
    if not window or len(items) < _FEW:
        yield from ((item, partial(read, item)) for item in items)
        return
    first = 0
    with _threads(AT_ONCE) as pool:
        while chosen := items[first : first + window]:
            for item, future in [(item, pool.submit(read, item)) for item in chosen]:
                yield item, future.result
            first, window = first + window, min(2 * window, AT_ONCE)


def _threads(number: int) -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(number, thread_name_prefix="fds-read-ahead")


def _next(metas: Iterator[ObjectMeta]) -> tuple[ObjectMeta | None, Exception | None]:
    # a listing that fails ahead of the consumer must not hide what was listed before
    try:
        return next(metas, None), None
    except Exception as error:  # noqa: BLE001 - raised again when its turn comes
        return None, error
