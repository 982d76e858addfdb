"""The cursor of a table's watcher: in the state store of its assets, or the position of a stream."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Protocol

from asgiref.sync import sync_to_async

from airflow_provider_fds.hooks.position import read_standing
from airflow_provider_fds.hooks.stream_context import reading_context
from airflow_provider_fds.stream import DeltaStream
from airflow_provider_fds.stream.polling.table_changes import SeenVersion

if TYPE_CHECKING:
    from collections.abc import Mapping


class Cursor(Protocol):
    """What a watcher compares a table with.

    Attributes:
        looks_again: Whether to ask again although the table has no new version: a person may decide meanwhile.
    """

    looks_again: bool

    async def seen(self, newest: SeenVersion) -> SeenVersion | None:
        """Return the version up to which the consumer was notified or has read; ``None`` if it must not start now.

        Args:
            newest: The newest version of the table, from which a cursor that is not kept anywhere starts.
        """

    def move(self, to: SeenVersion, *, is_told: bool) -> None:
        """Record that everything up to a version was compared, and whether an event tells of it.

        The event may not be stored yet.
        """

    async def store(self, at: SeenVersion) -> None:
        """Keep a version, now that its event is stored."""


class StreamCursor:
    """The committed position of a stream. It moves when a run commits; the watcher stores nothing.

    Args:
        stream: The stream, as returned by :meth:`DeltaStream.to_dict`.
    """

    def __init__(self, stream: Mapping[str, Any]) -> None:
        self._stream = dict(stream)
        self._told: SeenVersion | None = None
        self._is_stopped = False
        self.looks_again = False

    async def seen(self, newest: SeenVersion) -> SeenVersion | None:
        """Return the last version that the stream has read whole; ``None`` if told, while it pauses, or at its end."""
        if newest == self._told and not self.looks_again:
            return None
        return await sync_to_async(self._unread, thread_sensitive=False)(newest)

    def move(self, to: SeenVersion, *, is_told: bool) -> None:
        """Report each version once in the lifetime of this process, and again after a person's decision."""
        self._told = to
        # the run may come to a stop
        self.looks_again = is_told

    async def store(self, at: SeenVersion) -> None:
        """The stream's own runs store its position."""

    def _unread(self, newest: SeenVersion) -> SeenVersion | None:
        stream = DeltaStream.from_dict(self._stream)
        standing = read_standing(stream, reading_context(stream))
        was_stopped, self._is_stopped = self._is_stopped, standing.is_stopped
        if was_stopped and not standing.is_stopped:
            self._told = None
        position = standing.position
        is_open = position is None or position.is_initial_snapshot
        read = SeenVersion(-1 if is_open or position is None else position.version - 1)
        self.looks_again = standing.is_stopped or (newest == self._told and read.version < newest.version)
        is_finished = standing.found is not None and standing.found.is_finished
        return None if standing.pause is not None or is_finished or newest == self._told else read


class AssetCursor:
    """A value in the store of the watched assets (Airflow 3.3), or only in memory where there is no store.

    Args:
        store: The trigger's ``asset_state_store``, or ``None``.
        table: Canonical URI of the table.
        name: Name of the cursor, for several ones on the same table and asset.
    """

    def __init__(self, store: Any, table: str, name: str | None) -> None:
        self._stores = _stores_of(store)
        self._table = table
        self._key = cursor_key(table, name)
        self.looks_again = False
        self._seen: SeenVersion | None = None

    async def seen(self, newest: SeenVersion) -> SeenVersion | None:
        """Return the stored version, at first ``newest``, and from then on what :meth:`move` was told."""
        if self._seen is None:
            # the oldest one: a trigger that several assets share fires for all of them
            values = [await store.aget(self._key) for store in self._stores]
            found = [SeenVersion.from_dict(value) for value in values if isinstance(value, dict) and "version" in value]
            if not found:
                # what comes from now on must not be lost, even if no event was fired before
                await self.store(newest)
            self._seen = min(found, key=lambda one: one.version, default=newest)
        return self._seen

    def move(self, to: SeenVersion, *, is_told: bool) -> None:  # noqa: ARG002  # as the protocol has it
        """Continue from a version in this process."""
        self._seen = to

    async def store(self, at: SeenVersion) -> None:
        """Write a version to the store of each asset."""
        for store in self._stores:
            await store.aset(self._key, {"table": self._table, **at.to_dict()})


def cursor_key(table: str, name: str | None) -> str:
    """Return the key of a cursor in an asset's store; URIs can be longer than a key."""
    digest = hashlib.sha256(f"{table}\n{name or ''}".encode()).hexdigest()[:16]
    return f"fds_cursor_{digest}"


def _stores_of(store: Any) -> list[Any]:
    """Return the store of each asset of a trigger. Airflow shares a trigger between assets if its arguments agree."""
    if store is None:
        return []
    # a trigger is not told its assets, and the mapping cannot be iterated
    stores = [*getattr(store, "_by_name", {}).values(), *getattr(store, "_by_uri", {}).values()]
    return stores or [store]
