"""Reads many objects in order, some ahead of the consumer."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from airflow_provider_fds.delta.storage.storage import ObjectMeta, Storage

#: Maximum held ahead, whatever the window: 64 commits of 16 MiB would be 1 GiB.
AHEAD_BYTES: Final = 32 << 20


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
    pool = ThreadPoolExecutor(window, thread_name_prefix="fds-read-ahead")
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


def _next(metas: Iterator[ObjectMeta]) -> tuple[ObjectMeta | None, Exception | None]:
    # a listing that fails ahead of the consumer must not hide what was listed before
    try:
        return next(metas, None), None
    except Exception as error:  # noqa: BLE001 - raised again when its turn comes
        return None, error
