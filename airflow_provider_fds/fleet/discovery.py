"""The tables of a fleet's patterns when a run begins: which are loaded, which are new, and which are gone.

A pattern's first run starts all the tables that it finds. They are recorded in staging, because later runs must know
which table is new and which one is gone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from airflow_provider_fds.catalog.names import TableName
from airflow_provider_fds.catalog.table import ListedTable
from airflow_provider_fds.checkpoint.registry import place_of
from airflow_provider_fds.delta.damage import DAMAGE, describe
from airflow_provider_fds.errors import ConfigurationError, FdsError, LedgerError, TableNotFoundError
from airflow_provider_fds.fleet.name_glob import NameGlob
from airflow_provider_fds.schemes import comparable, location
from airflow_provider_fds.sizes import format_count

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from airflow_provider_fds.catalog.table import Catalog
    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.fleet.table_pattern import Discovery, TablePattern
    from airflow_provider_fds.fleet.value import FleetStream

_FORMAT: Final = 1
#: Names in a message.
_MOST_NAMES: Final = 10


@dataclass(frozen=True)
class FoundTables:
    """The streams of a fleet's run.

    Attributes:
        streams: The streams to load: those that are declared, then those of the patterns.
        new: Streams of tables that appeared, which the pattern does not start: someone should know.
        gone: Tables that were loaded and are no longer there, by the name of their stream: someone should know.
        retired: Those of them whose streams were retired now; later runs know nothing of them.
        problems: A sentence for each table, or pattern, that cannot be loaded.
        num_found: Number of streams that each pattern has added.
        left_out: For each pattern, the names in its catalog that are none of a table that FDS can read.
    """

    streams: tuple[FleetStream, ...]
    new: tuple[FleetStream, ...] = ()
    gone: tuple[tuple[str, str], ...] = ()
    retired: tuple[tuple[str, str], ...] = ()
    problems: tuple[str, ...] = ()
    num_found: tuple[int, ...] = ()
    left_out: tuple[tuple[str, ...], ...] = ()

    def messages(self) -> list[str]:
        """Return what someone should know: problems, new tables that are not loaded, and tables that are gone."""
        new = [
            f"table {one.stream.table} is new and is not loaded (new_tables='alert'). Declare it as stream "
            f"{one.name!r}, set new_tables='start', or exclude it."
            for one in self.new
        ]
        retired = [
            f"table {table} of stream {name!r} is gone, and the stream was retired" for name, table in self.retired
        ]
        return [*self.problems, *map(str, self.gone_errors().values()), *retired, *new]

    def gone_errors(self) -> dict[str, TableNotFoundError]:
        """Return what is wrong with each table that is gone, by the name of its stream."""
        return {
            name: TableNotFoundError(
                f"table {table} of stream {name!r} is gone: it was loaded, and its folder or its name in the catalog "
                "no longer exists. Restore it, or exclude it from the pattern if that was intended.",
                table=table,
            )
            for name, table in self.gone
        }


def describe_left_out(tables: str, names: Sequence[str]) -> str:
    """Return a sentence on the names that a pattern matches, and that are none of a table that FDS can read."""
    more = ", …" * (len(names) > _MOST_NAMES)
    return (
        f"pattern {tables}: {format_count(len(names), 'name')} left out that FDS cannot read: "
        f"{', '.join(names[:_MOST_NAMES])}{more}. `fds catalog` says what each is"
    )


def find_tables(
    patterns: Iterable[TablePattern],
    declared: Iterable[FleetStream],
    open_folder: Callable[[str], Storage],
    staging: Storage | None,
    fleet: str,
    *,
    catalogs: Callable[[str], Catalog] | None = None,
    elsewhere: Iterable[FleetStream] = (),
    retire: Callable[[FleetStream], bool] | None = None,
    dry_run: bool = False,
) -> FoundTables:
    """Find the tables of a fleet, and record the ones that are started.

    A table that is declared, or found by an earlier pattern, is not loaded a second time. If the folders of a pattern
    cannot be listed, that is a problem, and the tables that are known of it are loaded.

    Args:
        patterns: The fleet's patterns.
        declared: Its streams that are not from a pattern.
        open_folder: Opens a folder, given by URI or path.
        staging: The staging folder, for the record; ``None``, only with ``dry_run``: as if nothing was recorded.
        fleet: Name of the fleet; equal names share a record.
        catalogs: Returns the catalog of a connection; ``None``: no pattern has one.
        elsewhere: Streams of other fleets, whose names, sinks and checkpoints are not free.
        retire: Retires the stream of a table that is gone, and returns whether it has. It is not called if the pattern
            finds no table at all: that is how storage looks that is not mounted. ``None``: no stream is retired.
        dry_run: Whether to return what a run would load now, and to record nothing.

    Raises:
        LedgerError: The record cannot be read.
        StorageError: Staging does not answer.
    """
    declared = tuple(declared)
    patterns = tuple(pattern.without(declared) for pattern in patterns)
    taken = _Taken(declared, elsewhere)
    if not patterns:
        return FoundTables(tuple(taken.streams))
    key = f".fleets/{quote(fleet, safe='')}.tables.json"
    record = {} if staging is None else _read(staging, key)
    before_run = json.dumps(record, sort_keys=True)
    new: list[FleetStream] = []
    gone: list[tuple[str, str]] = []
    retired: list[tuple[str, str]] = []
    problems: list[str] = []
    every = []
    for pattern in patterns:
        known = record.get(_recorded_name(pattern))
        found = _discover(pattern, known or {}, open_folder, catalogs, problems)
        every.append((pattern, known, found))
    # no table that appears takes a name, a sink or a checkpoint from one that is loaded, whichever pattern finds it
    num_found = [taken.add(_loaded(*one), one[0], problems) for one in every]
    for index, (pattern, known, found) in enumerate(every):
        if found is None:
            continue
        if found.is_empty and not known:
            problems.append(_empty_problem(pattern))
        missing, ended = _gone(pattern, known or {}, found, retire)
        gone += missing.items()
        retired += ended.items()
        loaded = _loaded(pattern, known, found)
        others = [one for one in found.streams if one not in loaded and not taken.has(one)]
        fresh = _fresh(others, missing | ended, problems)
        if known is None or pattern.new_tables == "start":
            num_found[index] += taken.add(fresh, pattern, problems)
        elif pattern.new_tables == "alert":
            new += fresh
        started = {one.name: one.stream.table for one in (*loaded, *fresh) if one in loaded or taken.has(one)}
        record[_recorded_name(pattern)] = dict(sorted({**started, **missing}.items()))
    if staging is not None and not dry_run and json.dumps(record, sort_keys=True) != before_run:
        staging.put(key, json.dumps({"format": _FORMAT, "patterns": record}, indent=1).encode())
    left_out = tuple(() if found is None else found.left_out for _, _, found in every)
    return FoundTables(
        tuple(taken.streams), tuple(new), tuple(gone), tuple(retired), tuple(problems), tuple(num_found), left_out
    )


def _loaded(pattern: TablePattern, known: Mapping[str, str] | None, found: Discovery | None) -> list[FleetStream]:
    """Return the streams of known tables; all of them if the pattern's tables cannot be listed."""
    if found is None:
        return [stream for table in (known or {}).values() if (stream := _chosen(pattern, table)) is not None]
    tables = {name: location(table) for name, table in (known or {}).items()}
    return [one for one in found.streams if tables.get(one.name) == location(one.stream.table)]


def _gone(
    pattern: TablePattern,
    known: Mapping[str, str],
    found: Discovery,
    retire: Callable[[FleetStream], bool] | None,
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the known tables that are gone, by stream: those that stay known, and those whose stream was retired."""
    missing: dict[str, str] = {}
    retired: dict[str, str] = {}
    there = {location(one.stream.table) for one in found.streams}
    for name, table in known.items():
        stream = None if location(table) in there else _chosen(pattern, table)
        if stream is not None:
            is_retired = retire is not None and there and retire(stream)
            (retired if is_retired else missing)[name] = table
    return missing, retired


def _fresh(streams: Iterable[FleetStream], gone: Mapping[str, str], problems: list[str]) -> list[FleetStream]:
    """Return the streams of tables that appeared; a problem if a stream is that of a table which is gone."""
    fresh = []
    for one in streams:
        if (table := gone.get(one.name)) is None:
            fresh.append(one)
        else:
            problems.append(
                f"table {one.stream.table} is not loaded: its stream {one.name!r} is that of table {table}, which is "
                "gone. Declare it as a stream with a name of its own."
            )
    return fresh


def _empty_problem(pattern: TablePattern) -> str:
    if pattern.catalog_conn_id is None:
        return (
            f"the tables {pattern.tables!r} match no table. Check the path; a relative one begins at the working "
            "directory."
        )
    return (
        f"the tables {pattern.tables!r} match no table that FDS can read, of those that the catalog of "
        f"{pattern.catalog_conn_id!r} shows. Check the name, and the rights of the connection."
    )


def _recorded_name(pattern: TablePattern) -> str:
    """Return what the record calls a pattern."""
    if pattern.catalog_conn_id is None:
        return f"{comparable(pattern.tables)} {pattern.name or ''}".strip()
    return f"{pattern.catalog_conn_id}:{pattern.tables} {pattern.name or ''}".strip()


def _table(one: FleetStream) -> str:
    """Return what tells the table of a stream from another one: its location, or its name in a catalog."""
    stream = one.stream
    return location(stream.table) if stream.catalog_conn_id is None else f"{stream.catalog_conn_id}:{stream.table}"


class _Taken:
    """The streams of a run so far: each table once, each name once, each sink once, and each checkpoint once."""

    def __init__(self, declared: Iterable[FleetStream], elsewhere: Iterable[FleetStream]) -> None:
        self.streams = list(declared)
        self._tables = {_table(one) for one in self.streams}
        others = [*elsewhere, *self.streams]
        self._names = {one.name: one for one in others}
        self._sinks = {_sink(one): one for one in others}
        self._places = {place_of(one.stream.checkpoint): one for one in others}

    def has(self, one: FleetStream) -> bool:
        return _table(one) in self._tables

    def add(self, streams: Iterable[FleetStream], pattern: TablePattern, problems: list[str]) -> int:
        """Add a pattern's streams of tables that are not loaded yet, and a problem for each that cannot be added.

        Returns:
            How many were added.
        """
        num_streams = len(self.streams)
        for one in streams:
            if self.has(one):
                continue
            clash = self._clash(one, shares_sink=pattern.shares_sink)
            if clash is not None:
                what, other = clash
                problems.append(
                    f"table {one.stream.table} is not loaded: its stream {one.name!r} has {what} of the stream of "
                    f"{other.stream.table}. Give the pattern a name, a sink and a checkpoint that differ, or exclude "
                    "the table."
                )
                continue
            self.streams.append(one)
            self._tables.add(_table(one))
            self._names[one.name] = one
            self._sinks[_sink(one)] = one
            self._places[place_of(one.stream.checkpoint)] = one
        return len(self.streams) - num_streams

    def _clash(self, one: FleetStream, *, shares_sink: bool) -> tuple[str, FleetStream] | None:
        """Return what a stream has in common with another one, and that one; ``None`` if nothing."""
        if (other := self._names.get(one.name)) is not None:
            return "the name", other
        if not shares_sink and (other := self._sinks.get(_sink(one))) is not None:
            return f"the sink {one.sink.describe()}", other
        place = place_of(one.stream.checkpoint)
        if place is not None and (other := self._places.get(place)) is not None:
            return f"the checkpoint {one.stream.checkpoint!r}", other
        return None


def _sink(one: FleetStream) -> tuple[str, str]:
    identity = one.sink.identity()
    kind = identity["kind"]
    # a function may load each stream into a table of its own
    owner = one.name if kind == "foreach_batch" else ""
    return owner or "delta", location(identity["target"])


def _discover(
    pattern: TablePattern,
    known: Mapping[str, str],
    open_folder: Callable[[str], Storage],
    catalogs: Callable[[str], Catalog] | None,
    problems: list[str],
) -> Discovery | None:
    """Return the tables that a pattern finds now, or ``None`` if its folders, or its schema, cannot be listed."""
    tables = set(known.values())
    places = {location(table) for table in tables}

    def list_folders(uri: str) -> Collection[str]:
        return open_folder(uri).list_folders("")

    def is_table(uri: str) -> bool:
        # a stream notices by itself that its log is gone
        return location(uri) in places or next(iter(open_folder(uri).list_after("_delta_log")), None) is not None

    try:
        if pattern.catalog_conn_id is None or catalogs is None:
            found = pattern.discover(list_folders, is_table, places)
        else:
            listed = _listed(catalogs(pattern.catalog_conn_id), NameGlob(pattern.tables).schema, tables)
            found = pattern.discover_listed(listed, tables)
    except FdsError as error:
        loaded = f"The {len(tables)} tables that are known of it are loaded." if tables else "None is loaded."
        problems.append(f"the tables {pattern.tables!r} cannot be listed: {error}. {loaded}")
        return None
    problems += found.problems
    return found


def _listed(catalog: Catalog, schema: TableName, known: Collection[str]) -> list[ListedTable]:
    """Return the tables of a schema, with those of ``known`` that the catalog does not list, but has all the same.

    A catalog may not list what the connection has lost the right to read, which does not mean that it is gone.
    """
    listed = catalog.listed(schema)
    there = {str(one.name) for one in listed}
    hidden = [TableName.parse(name) for name in known if name not in there]
    return [*listed, *(ListedTable(name) for name in hidden if _has(catalog, name))]


def _has(catalog: Catalog, name: TableName) -> bool:
    try:
        catalog.load(name)
    except TableNotFoundError:
        return False
    except FdsError:
        # the run of its stream says what is wrong
        return True
    return True


def _chosen(pattern: TablePattern, table: str) -> FleetStream | None:
    """Return the stream of a recorded table, unless the pattern now excludes the table."""
    try:
        stream = pattern.stream_of(table)
    except ConfigurationError:
        return None
    return stream if pattern.glob.chooses(table, pattern.include, pattern.exclude) else None


def _read(staging: Storage, key: str) -> dict[str, dict[str, str]]:
    try:
        data, _ = staging.get(key)
    except FileNotFoundError:
        return {}
    try:
        value: Any = json.loads(data)
        if value["format"] != _FORMAT:
            raise LedgerError(
                f"{staging.uri}/{key} has the format {value['format']!r}, which a newer FDS wrote; this one reads "
                f"{_FORMAT}. Upgrade FDS here."
            )
        return {
            str(pattern): {str(stream): str(table) for stream, table in tables.items()}
            for pattern, tables in value["patterns"].items()
        }
    except DAMAGE as error:
        raise LedgerError(
            f"{staging.uri}/{key}, the record of the tables that the fleet has found, is damaged ({describe(error)}). "
            "Delete it: the next run then starts all tables that it finds."
        ) from error
