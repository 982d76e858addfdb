"""What must hold between the streams of a file: one position each, one sink each, and no table inside another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from airflow_provider_fds.checkpoint.registry import place_of
from airflow_provider_fds.fleet.glob import FolderGlob, is_chosen
from airflow_provider_fds.fleet.table_pattern import TablePattern
from airflow_provider_fds.fleet.value import FleetStream
from airflow_provider_fds.schemes import location
from airflow_provider_fds.sinks.options import is_template

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from airflow_provider_fds.fleet.streams_file.document import Document, Path
    from airflow_provider_fds.fleet.streams_file.entry import Entry


class _Use(NamedTuple):
    """A table that an entry reads or writes."""

    uri: str
    what: str
    entry: Entry

    def __str__(self) -> str:
        return f"{self.what} {self.uri.removeprefix('file:').rstrip('/')}"


def check_entries(document: Document, entries: list[Entry]) -> None:
    """Add a problem for each pair of entries that cannot be in one file."""
    streams = [entry for entry in entries if isinstance(entry.value, FleetStream)]
    patterns = [entry for entry in entries if isinstance(entry.value, TablePattern)]
    _check_names(document, streams)
    _check_checkpoints(document, streams)
    _check_patterns(document, patterns)
    _check_sinks(document, entries)
    _check_nesting(document, streams)
    for entry in patterns:
        _check_found_sinks(document, entry, streams, patterns)


def check_own_dag(document: Document, entry: Entry, group: Mapping[str, Any]) -> None:
    """Add a problem for an entry that cannot have a DAG of its own, if its group has ``dag_per: stream``."""
    if group.get("dag_per") != "stream":
        return
    value = entry.value
    if isinstance(value, TablePattern):
        document.add(
            _key(document, entry, "tables"),
            f"the group {entry.group!r} has one DAG for each stream, but the tables {value.tables!r} are found when a "
            "run begins. List them with table, or set dag_per: group.",
        )
    elif value.batch_timeout is not None:
        document.add(
            _key(document, entry, "batch_timeout"),
            "batch_timeout has no effect with dag_per: stream, where no stream waits for another. Omit it.",
        )


def _check_names(document: Document, streams: list[Entry]) -> None:
    first: dict[str, Entry] = {}
    for entry in streams:
        name = _stream(entry).name
        other = first.setdefault(name, entry)
        if other is not entry:
            document.add(
                _key(document, entry, "name"),
                f"the stream {name!r} is here a second time, first in {document.place(other.path)}. Each stream has "
                "one position: give one of them another name.",
                (entry.path, other.path),
            )


def _check_checkpoints(document: Document, streams: list[Entry]) -> None:
    first: dict[str, Entry] = {}
    for entry in streams:
        stream = _stream(entry).stream
        place = place_of(stream.checkpoint)
        other = entry if place is None else first.setdefault(place, entry)
        if _stream(other).name != stream.name:
            document.add(
                _key(document, entry, "checkpoint"),
                f"the checkpoint {stream.checkpoint!r} is also that of the stream in {document.place(other.path)}. "
                "Give each stream its own, with a part such as {name}, or use checkpoint: variable.",
                (entry.path, other.path),
            )


def _check_patterns(document: Document, patterns: list[Entry]) -> None:
    first: dict[tuple[str | None, str, str | None], Entry] = {}
    for entry in patterns:
        pattern = _pattern(entry)
        other = first.setdefault((pattern.catalog_conn_id, location(pattern.tables), pattern.name), entry)
        if other is not entry:
            document.add(
                _key(document, entry, "tables"),
                f"the tables {pattern.tables!r} are here a second time, first in {document.place(other.path)}, with "
                "the same names. Keep one of them, or give one another name.",
            )


def _check_sinks(document: Document, entries: list[Entry]) -> None:
    first: dict[tuple[str, str], Entry] = {}
    for entry in entries:
        value = entry.value
        if isinstance(value, TablePattern) and not value.shares_sink:
            continue
        identity = value.sink.identity()
        if identity["kind"] == "foreach_batch" and not value.sink.known_tables:
            # a function may load every stream into a table of its own
            continue
        if isinstance(value, TablePattern) and not entry.shares_sink:
            document.add(
                _key(document, entry, "sink"),
                f"all tables of {value.tables!r} would load into the one sink {identity['target']}. Use a part such as "
                "{table} in its URI, or set shares_sink: true.",
            )
        target = "delta" if identity["kind"].startswith("delta") else identity["kind"]
        other = first.setdefault((target, location(identity["target"])), entry)
        if other is not entry and not (entry.shares_sink and other.shares_sink):
            are_streams = isinstance(entry.value, FleetStream) and isinstance(other.value, FleetStream)
            document.add(
                _key(document, entry, "sink"),
                f"the sink {identity['target']} is also that of the stream in {document.place(other.path)}. Give each "
                "stream its own sink, or set shares_sink: true for both.",
                (entry.path, other.path) if are_streams else (),
            )


def _check_nesting(document: Document, streams: list[Entry]) -> None:
    """Report tables inside each other, and a sink that is a source."""
    uses = []
    for entry in streams:
        stream = _stream(entry)
        source = stream.stream
        # two names in one catalog are compared; what else a name stands for, only its catalog knows
        table = source.table if source.catalog_conn_id is None else source.table_uri
        uses.append(_Use(_folder(table), "table", entry))
        uses += [_Use(_folder(table), "sink", entry) for table in stream.sink.known_tables]
    outer: list[_Use] = []
    for use in sorted((one for one in uses if one.uri), key=lambda one: (one.uri, one.what, one.entry.path[1:])):
        while outer and not use.uri.startswith(outer[-1].uri):
            outer.pop()
        if not outer:
            outer.append(use)
            continue
        around = outer[-1]
        if use.uri != around.uri:
            outer.append(use)
        elif use.what == around.what:
            # two streams of one table may be; one sink of two streams is checked with the sinks
            continue
        document.add(
            _key(document, use.entry, use.what),
            f"the {use} is {'' if use.uri == around.uri else 'inside '}the {around} of the stream in "
            f"{document.place(around.entry.path)}. Each table needs a folder of its own.",
            (use.entry.path, around.entry.path),
        )


def _check_found_sinks(document: Document, entry: Entry, streams: Iterable[Entry], patterns: Iterable[Entry]) -> None:
    """Report sinks that the next run would find as tables of a pattern."""
    pattern = _pattern(entry)
    if pattern.catalog_conn_id is not None:
        # sinks are known by their URIs
        return
    folders = FolderGlob(pattern.tables)
    sinks = [(table, other) for other in streams for table in _stream(other).sink.known_tables]
    for other in patterns:
        sample = _pattern(other).stream_of(_pattern(other).glob.sample())
        sinks += [(table, other) for table in sample.sink.known_tables]
    for table, other in sinks:
        if is_template(table):
            continue
        path = folders.path_of(table)
        if path is None or not is_chosen(path, pattern.include, pattern.exclude):
            continue
        document.add(
            _key(document, other, "sink"),
            f"the sink {table} is one of the tables {pattern.tables!r} in {document.place(entry.path)}, so the next "
            "run would load it as a table. Put sinks into another folder, or exclude them there.",
        )


def _folder(uri: str) -> str:
    """Return a table's location for comparisons, with a slash at its end; empty if it is known only at run time."""
    return "" if is_template(uri) else location(uri) + "/"


def _stream(entry: Entry) -> FleetStream:
    assert isinstance(entry.value, FleetStream)  # noqa: S101  # for the type checker
    return entry.value


def _pattern(entry: Entry) -> TablePattern:
    assert isinstance(entry.value, TablePattern)  # noqa: S101  # for the type checker
    return entry.value


def _key(document: Document, entry: Entry, key: str) -> Path:
    """Return the place of a key of an entry, or of the entry if the defaults have the key."""
    path = (*entry.path, key)
    return path if path in document.places else entry.path
