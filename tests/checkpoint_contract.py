"""The contract of every checkpoint store: one list of checks, run against each store in its environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from airflow_provider_fds.errors import CheckpointError
from airflow_provider_fds.ledger.position import Checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_fds.checkpoint.store import CheckpointStore

OFFSET = '{"sourceVersion":1,"reservoirId":"r","reservoirVersion":9,"index":-1,"isStartingVersion":false}'
MINE = Checkpoint(stream="orders", uuid="u1", deployment="prod", n=7, digest="ab", epoch=1, batch_id=2, offset=OFFSET)
NEWER = msgspec.structs.replace(MINE, n=8, digest="cd", batch_id=3)
CREATED = msgspec.structs.replace(MINE, n=0, batch_id=None, offset=None)


def check_home(store: CheckpointStore, overwrite: Callable[[str], None]) -> None:
    """Raise ``AssertionError`` if ``store``, which is empty, violates the contract of a checkpoint store.

    Args:
        store: The store of stream ``orders``.
        overwrite: Writes a text without the store, as a person would.
    """
    assert store.read() is None, "an empty home has no checkpoint"
    for checkpoint in (CREATED, MINE, NEWER):
        store.write(checkpoint)
        assert store.read() == checkpoint, "what was written is read"
    store.write(MINE)
    assert store.read() == MINE, "a writer that was overtaken may write later: the ledger is read on from there"

    overwrite(msgspec.json.format(NEWER.to_json()))
    assert store.read() == NEWER, "a value that was exported and imported is spaced out, and the same"
    store.write(NEWER)

    for text in ("", "42", "somebody's note", '{"offset": 3}'):
        overwrite(text)
        refused = _refusal(store)
        assert store.home in refused, refused
        assert "does not contain an FDS checkpoint" in refused, refused
        assert "fds recover" in refused, refused
    overwrite(msgspec.structs.replace(MINE, format=2).to_json())
    assert "format 2" in _refusal(store)

    store.write(NEWER)
    assert store.read() == NEWER, "a value that is none is written over"
    assert store.discard, "a person is told how to remove the value"


def _refusal(store: CheckpointStore) -> str:
    try:
        found = store.read()
    except CheckpointError as refused:
        return str(refused)
    raise AssertionError(f"a value that is no checkpoint was read as {found!r}")
