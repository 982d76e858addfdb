"""The Delta transactions of a stream: their application ids and versions. Standard library only, Python 3.9 syntax."""
# The driver may run Python 3.9, so the annotations stay in its syntax.
# ruff: noqa: UP045

from __future__ import annotations

import re
from typing import Optional

#: ``fds:<uuid>``, then a data interval or the name of a write.
_APP_ID = re.compile(r"fds:([^:#]+)")


def txn_app_id(uuid: str, interval: Optional[str] = None, write: Optional[str] = None) -> str:
    """Return the Delta transaction application id of a stream.

    Args:
        uuid: The stream's.
        interval: One of its data intervals (``<start>/<end>``), ``None``: the stream reads by offset.
        write: Name of one of several writes of a batch, ``None``: the batch is one write.
    """
    return "fds:" + uuid + ("" if interval is None else ":" + interval) + ("" if write is None else "#" + write)


def stream_uuid(app_id: str) -> Optional[str]:
    """Return the uuid in a transaction application id of :func:`txn_app_id`, or ``None`` for other ids."""
    match = _APP_ID.match(app_id)
    return None if match is None else match[1]


def txn_version(epoch: int, batch_id: int) -> int:
    """Return ``T(e, b) = e * 2^32 + b + 1``, which increases with the batches of an epoch and with the epochs."""
    return (epoch << 32) + batch_id + 1


def fence_version(epoch: int) -> int:
    """Return ``F(e) = e * 2^32``: above every transaction of the epochs before ``e``, below all of ``e``."""
    return epoch << 32


def txn_epoch(transaction: int) -> int:
    """Return the epoch of the transaction of a batch or fence: the inverse of :func:`txn_version`."""
    return transaction >> 32


def txn_batch_id(transaction: int) -> int:
    """Return the batch of a transaction, -1 for a fence: the inverse of :func:`txn_version`."""
    return transaction - fence_version(txn_epoch(transaction)) - 1
