"""``DeltaTableChangeTrigger``: fire an asset's event when a Delta table has new data, for ``AssetWatcher``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.fault_points import reach
from airflow_provider_fds.hooks.settings import poll_interval_seconds
from airflow_provider_fds.hooks.storage import store_kind
from airflow_provider_fds.stream import DeltaStream
from airflow_provider_fds.stream.declaration.delta_stream import text_problems
from airflow_provider_fds.triggers.pacing import note_start, pause_seconds

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Hashable

    from airflow_provider_fds.hooks.places import TableAddress
    from airflow_provider_fds.triggers.table_poll import Tick, Watchers
    from airflow_provider_fds.triggers.watcher_cursor import Cursor

#: Seconds after which a tick is repeated for a watcher that could not process it, because Airflow or storage failed;
#: doubled each time, up to five minutes.
_AGAIN_AFTER_SECONDS: Final = 15.0
#: How often to ask whether a stream has stopped, and may continue.
_LOOK_AGAIN_SECONDS: Final = 60.0


class WatcherArgumentsError(ConfigurationError, TypeError):
    """Arguments that no watcher can have.

    A ``TypeError``, because Airflow's triggerer makes a trigger from what its database has, perhaps from another
    version of FDS, and any other error of that would end all triggers of the process.
    """


class DeltaTableChangeTrigger(BaseEventTrigger):
    """Fires an asset's event when a Delta table has new data. For ``AssetWatcher``, not for tasks.

    All watchers of a table in a triggerer share one poll (Airflow 3.3; in older versions, each watcher polls). An
    unchanged table costs one HEAD per poll. OPTIMIZE, VACUUM, schema changes and empty commits fire nothing. If the
    table does not exist yet, the trigger waits for it. A poll that fails is logged and repeated.

    Where a watcher continues after the triggerer restarts:
        - Airflow 3.3: after the last version whose event is in Airflow's database. The version is recorded in the
          asset's state store. If the triggerer dies after the event but before it records the version, the event is
          repeated once. The first start fires nothing: it records the newest version.
        - With ``stream``, in any Airflow: after the stream's committed position. While the stream is not up to date,
          the watcher fires once for each newest version, and once more after a restart. While the stream is on hold,
          nothing fires; within a minute after ``fds resume`` the watcher fires for what came meanwhile. A stream that
          has reached its end is not started again.
        - Airflow 3.1 and 3.2 without ``stream``: at the newest version. What was committed while no triggerer was
          running fires nothing until the next commit with data.

    Events:
        ``{"table": str, "first_version": int, "last_version": int, "operations": [str], "rows": int | None}``, in
        ``event.extra["payload"]`` of the asset's event. The versions are inclusive: the first and the last with new
        data. ``operations`` are those of the commits, in alphabetical order, as the writers name them. ``rows`` is the
        number of rows in the added files, ``None`` if the log does not record it. An event may arrive twice, and
        Airflow starts one run for several events that arrive while one is queued: a run must read everything since its
        own position.

    The arguments are plain values, because Airflow stores them in its database. They contain no credentials: the
    trigger looks up the connection where it runs.

    Args:
        table: URI or path of the table; with ``catalog_conn_id``, its name. Omit it if ``stream`` is given.
        storage_conn_id: Airflow connection for the table; ``None`` for the environment's credentials.
        catalog_conn_id: Airflow connection of the catalog that knows where the table of this name is.
        stream: The :class:`DeltaStream` that the asset's events start, with ``read="offset"``; its table is watched.
        poll_interval: Seconds between two polls; ``None``: ``[fds] poll_interval`` where the trigger runs. A shared
            poll uses the shortest interval of its watchers.
        name: Name of the cursor in the asset's state store. Only needed if one asset has several watchers of the same
            table.
        obsolete: Arguments stored by an older or newer version of FDS; ignored.

    Raises:
        ConfigurationError: Reports all problems at once; also a ``TypeError``.

    Examples:
        >>> trigger = DeltaTableChangeTrigger(table="s3://lake/orders", storage_conn_id="lake", poll_interval=30)
        >>> trigger.serialize()[1]["table"]
        's3://lake/orders'
    """

    def __init__(
        self,
        *,
        table: str | None = None,
        storage_conn_id: str | None = None,
        catalog_conn_id: str | None = None,
        stream: DeltaStream | str | None = None,
        poll_interval: float | None = None,
        name: str | None = None,
        **obsolete: Any,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        own = {"table": table, "storage_conn_id": storage_conn_id, "catalog_conn_id": catalog_conn_id}
        problems = _address_problems(**own) if stream is None else []
        if stream is not None and any(value is not None for value in own.values()):
            problems.append("stream already has a table and its connections. Omit these arguments, or omit stream.")
        known: Any = stream
        if isinstance(known, DeltaStream):
            problems += _stream_problems(known)
            known = known.to_dict()
        elif isinstance(known, str):
            # what serialize() returned
            known = _decoded(known)
            if known is None:
                problems.append(f"stream must be a DeltaStream, got {stream!r}.")
        elif known is not None:
            problems.append(f"stream must be a DeltaStream, got {known!r}.")
        if poll_interval is not None and not _is_interval(poll_interval):
            problems.append(f"poll_interval must be a number of seconds greater than 0, got {poll_interval!r}.")
        if name is not None and not (isinstance(name, str) and name.strip()):
            problems.append(f"name must be a non-empty string, got {name!r}.")
        if problems:
            raise WatcherArgumentsError(*problems, subject=type(self).__name__)
        self.table = table
        self.storage_conn_id = storage_conn_id
        self.catalog_conn_id = catalog_conn_id
        self.stream: dict[str, Any] | None = known
        self.poll_interval = None if poll_interval is None else float(poll_interval)
        self.name = name
        if obsolete:
            self.log.info(
                "Ignoring the arguments %s of this trigger: they come from another version of FDS.", sorted(obsolete)
            )

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and all arguments that a triggerer needs."""
        return (
            "airflow_provider_fds.triggers.delta_table_change.DeltaTableChangeTrigger",
            {
                "table": self.table,
                "storage_conn_id": self.storage_conn_id,
                **({} if self.catalog_conn_id is None else {"catalog_conn_id": self.catalog_conn_id}),
                # Airflow 3.2 does not decode nested values of a watcher's trigger
                "stream": None if self.stream is None else json.dumps(self.stream, sort_keys=True),
                "poll_interval": self.poll_interval,
                "name": self.name,
            },
        )

    def shared_stream_key(self) -> Hashable | None:
        """Return what the watchers that share a poll have in common: table and connection.

        ``None`` in Airflow 3.1 and 3.2, in which a poll cannot be shared.
        """
        if not hasattr(BaseEventTrigger, "create_shared_stream_producer"):
            return None
        return ("fds", *self._address())

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> Any:
        """Return the poll of a table. Airflow calls this once for all triggers with the same key."""
        from airflow_provider_fds.triggers.table_poll import watchers_of
        from airflow_provider_fds.triggers.table_poll_producer import TablePollProducer

        trigger = cls(**kwargs)
        return TablePollProducer(trigger._address(), watchers_of(trigger.shared_stream_key()))  # own class

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        """Fire for the ticks of a shared poll."""
        from airflow_provider_fds.triggers.table_poll import watchers_of

        watchers = watchers_of(self.shared_stream_key())
        async for event in self._events(shared_stream, watchers):
            yield event

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Poll the table for this watcher alone. Does not end."""
        note_start()
        from airflow_provider_fds.triggers.table_poll import Watchers, ticks

        watchers = Watchers()
        async for event in self._events(ticks(self._address(), watchers), watchers):
            yield event

    async def _events(self, found: AsyncIterator[Tick], watchers: Watchers) -> AsyncIterator[TriggerEvent]:
        cursor = self._cursor()
        failures = 0
        watchers.join(self, self.poll_interval or poll_interval_seconds())
        try:
            async for tick in found:
                try:
                    event = await self._compared(tick, cursor)
                except Exception as error:  # noqa: BLE001  # Airflow would start a watcher that raises again and again
                    self.log.warning(
                        "The watcher of %s could not process version %d: %s: %s",
                        self._address().uri,
                        tick.newest.version,
                        type(error).__name__,
                        error,
                    )
                    failures += 1
                    watchers.ask_in(pause_seconds(_AGAIN_AFTER_SECONDS, failures))
                else:
                    failures = 0
                    if cursor.looks_again:
                        watchers.ask_in(_LOOK_AGAIN_SECONDS)
                    if event is not None:
                        yield event
        finally:
            watchers.leave(self)

    async def _compared(self, tick: Tick, cursor: Cursor) -> TriggerEvent | None:
        """Return the event for what is new since the cursor, if anything with data is."""
        newest = tick.newest
        seen = await cursor.seen(newest)
        change = None if seen is None else await tick.changes.since(seen, newest)
        if seen is None:
            return None
        cursor.move(newest, is_told=change is not None)
        if change is None:
            return None
        reach("watcher.found")
        tick.stored.append(lambda: cursor.store(newest))
        payload = {
            "table": self._address().uri,
            "first_version": change.first_version,
            "last_version": change.last_version,
            "operations": list(change.operations),
            "rows": change.rows,
        }
        return TriggerEvent(payload)  # type: ignore[no-untyped-call]

    def _cursor(self) -> Cursor:
        from airflow_provider_fds.triggers.watcher_cursor import AssetCursor, StreamCursor

        if self.stream is not None:
            return StreamCursor(self.stream)
        # the attribute is new in Airflow 3.3
        return AssetCursor(getattr(self, "asset_state_store", None), self._address().uri, self.name)

    def _address(self) -> TableAddress:
        from airflow_provider_fds.delta.storage.open import canonical_uri
        from airflow_provider_fds.hooks.places import TableAddress

        own = {"table": self.table, "storage_conn_id": self.storage_conn_id, "catalog_conn_id": self.catalog_conn_id}
        given = self.stream or own
        table, catalog = str(given["table"]), given.get("catalog_conn_id")
        return TableAddress(table if catalog else canonical_uri(table), given.get("storage_conn_id"), catalog)


def _decoded(stored: str) -> dict[str, Any] | None:
    """Return a stream from its JSON, ``None`` if it is not one."""
    try:
        stream = json.loads(stored)
    except (ValueError, RecursionError):
        return None
    return stream if isinstance(stream, dict) and isinstance(stream.get("table"), str) else None


def _address_problems(table: object, storage_conn_id: object, catalog_conn_id: object) -> list[str]:
    if table is None:
        return ["needs table=… or stream=…."]
    problems = text_problems("table", table) + _template_problems("table", table)
    if not problems:
        problems += _table_problems(str(table), catalog_conn_id)
    for argument, value in (("storage_conn_id", storage_conn_id), ("catalog_conn_id", catalog_conn_id)):
        if value is not None:
            problems += text_problems(argument, value) + _template_problems(argument, value)
    return problems


def _table_problems(table: str, catalog_conn_id: object) -> list[str]:
    if catalog_conn_id is None:
        return [] if store_kind(table) is not None else [_uri_problem(table)]
    from airflow_provider_fds.catalog.names import TableName

    try:
        TableName.parse(table)
    except ConfigurationError as error:
        return [f"table: {error}"]
    return []


def _uri_problem(table: str) -> str:
    from airflow_provider_fds.delta.storage.open import canonical_uri

    try:
        canonical_uri(table)
    except ConfigurationError as error:
        return f"table: {error}"
    return f"table {table!r} is in a store that FDS cannot read. Use a path or a URI such as s3://bucket/table."


def _stream_problems(stream: DeltaStream) -> list[str]:
    problems = _template_problems("the table of stream", stream.table)
    if stream.reads_by_interval:
        problems.append(
            f"stream {stream.name!r} has read='data_interval' and therefore no position to compare the table with. "
            "Use table=… instead."
        )
    return problems


def _template_problems(argument: str, value: object) -> list[str]:
    if isinstance(value, str) and ("{{" in value or "{%" in value):
        return [
            f"{argument} {value!r} is a template, but Airflow does not render templates in a watcher. Use a literal."
        ]
    return []


def _is_interval(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < float("inf")
