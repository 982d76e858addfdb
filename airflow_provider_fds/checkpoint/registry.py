"""The registry of checkpoint stores: the only place that chooses one.

To add a store, write one module with a class that follows
:class:`~airflow_provider_fds.checkpoint.store.StreamCheckpointStore`, and add one line to :data:`STORES`.
"""

from __future__ import annotations

import os.path
from pathlib import Path
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.lazy import load_class

if TYPE_CHECKING:
    from airflow_provider_fds.checkpoint.store import CheckpointStore, StreamCheckpointStore

#: Stores by what a user writes as ``checkpoint`` of a stream, each ``module:class``, loaded when it is used. What
#: follows the colon is given by the user and must not be empty.
STORES: Final[dict[str, str]] = {
    "variable": "airflow_provider_fds.checkpoint.variable:VariableCheckpointStore",
    "asset": "airflow_provider_fds.checkpoint.asset:AssetCheckpointStore",
    "xcom": "airflow_provider_fds.checkpoint.xcom:XComCheckpointStore",
    "file:<path>": "airflow_provider_fds.checkpoint.file:FileCheckpointStore",
}


def checkpoint_problem(checkpoint: object) -> str | None:
    """Return what is wrong with a user's ``checkpoint``, or ``None`` if it names a store. Imports no store."""
    if isinstance(checkpoint, str) and _form(checkpoint) is not None:
        return None
    from difflib import get_close_matches

    *most, last = map(repr, STORES)
    near = get_close_matches(str(checkpoint), list(STORES), n=1, cutoff=0.4)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"checkpoint must be {', '.join(most)} or {last}, got {checkpoint!r}.{hint}"


def checkpoint_store(stream: str, checkpoint: str, table: str = "") -> CheckpointStore:
    """Return the store of a stream that has this ``checkpoint``; :func:`checkpoint_problem` has found nothing wrong.

    Args:
        stream: Name of the stream.
        checkpoint: What the user wrote.
        table: URI of its table.
    """
    form = _form(checkpoint)
    if form is None:
        raise ValueError(checkpoint_problem(checkpoint))
    found: type[StreamCheckpointStore] = load_class(STORES[form])
    return found.for_stream(stream, checkpoint.partition(":")[2] or table)


def place_of(checkpoint: str) -> str | None:
    """Return what two streams must not both have as ``checkpoint``: its place, ``None`` if it has none.

    The other stores have a place for each stream.

    >>> place_of("file:offsets/../orders.json") == place_of("file:orders.json"), place_of("variable")
    (True, None)
    """
    kind, colon, place = checkpoint.partition(":")
    return f"{kind}:{os.path.normpath(Path(place).absolute())}" if colon else None


def _form(checkpoint: str) -> str | None:
    """Return the key of :data:`STORES` whose form a value has, or ``None``."""
    kind, colon, place = checkpoint.partition(":")
    if not colon:
        return kind if kind in STORES else None
    return next((form for form in STORES if form.startswith(f"{kind}:")), None) if place else None
