"""The fleet of a file, for the commands that have ``--file FILE``."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from airflow_provider_fds.cli import arguments as common
from airflow_provider_fds.cli.catalogs import catalog_called
from airflow_provider_fds.errors import ConfigurationError, FdsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from airflow_provider_fds.catalog.table import Catalog
    from airflow_provider_fds.fleet.discovery import FoundTables
    from airflow_provider_fds.fleet.streams_file.group import FleetGroup
    from airflow_provider_fds.fleet.value import FleetStream
    from airflow_provider_fds.stream.connected_stream import StreamContext
    from airflow_provider_fds.stream.monitoring.status import StreamStatus

_S = TypeVar("_S")
_T = TypeVar("_T")

#: Streams that are read at the same time; on an object store the time is spent waiting.
_THREADS: Final = 16


class FoundGroup(NamedTuple):
    """A group of the file with the tables that exist now.

    Attributes:
        group: The group.
        name: The name under which its fleet remembers its tables and their positions.
        tables: The streams that the file lists, in its order, then those that its patterns find.
    """

    group: FleetGroup
    name: str
    tables: FoundTables

    @property
    def streams(self) -> tuple[FleetStream, ...]:
        """The streams that a run loads."""
        return self.tables.streams


def add_file(parser: argparse.ArgumentParser) -> None:
    """Add ``--file FILE``."""
    parser.add_argument(
        "-f", "--file", metavar="FILE", help="all streams of a file, and the tables that its patterns find"
    )


def refuse_together(arguments: argparse.Namespace, given: Iterable[tuple[str, str]]) -> None:
    """Refuse arguments of one stream together with a file, which has them.

    Args:
        arguments: The arguments; ``file`` is set.
        given: Name and flag of each argument that cannot be combined.

    Raises:
        ConfigurationError: Names all of them.
    """
    problems = [
        f"{flag} and --file cannot be combined: the file says it for each stream. Omit {flag}."
        for name, flag in given
        if getattr(arguments, name, None)
    ]
    if problems:
        raise ConfigurationError(*problems, subject="arguments")


def require(arguments: argparse.Namespace, needed: Iterable[tuple[str, str]]) -> None:
    """Refuse a command about one stream that lacks arguments, which a file would have.

    Raises:
        ConfigurationError: Names all that are missing.
    """
    missing = [flag for name, flag in needed if not getattr(arguments, name, None)]
    if missing:
        raise ConfigurationError(f"missing {', '.join(missing)}; for all streams of a file, give --file FILE instead")


def find_fleet(
    arguments: argparse.Namespace, *, dry_run: bool, retire: Callable[[FleetStream], bool] | None = None
) -> Iterator[FoundGroup]:
    """Read the file of the arguments, and yield each of its groups with the tables that its patterns find then.

    Args:
        arguments: The arguments.
        dry_run: Whether to return what a run would load, and to write nothing. A run records the tables in staging.
        retire: Retires the stream of a table that is gone, for groups that want that.

    Raises:
        ConfigurationError: The file is invalid, has several groups but the run lingers, or a run has no staging folder.
        LedgerError: The record of the tables cannot be read.
        StorageError: Staging does not answer.
    """
    from airflow_provider_fds.fleet.streams_file.file import read_fleet_file

    groups = read_fleet_file(arguments.file).groups
    if getattr(arguments, "linger", None) is not None and len(groups) > 1:
        raise ConfigurationError(
            f"--linger is for a file with one group, and {arguments.file} has {len(groups)}: "
            f"{', '.join(group.name for group in groups)}. `fds run` loads them one after the other, so the others "
            "would wait. Give each group a file and an `fds run` of its own."
        )
    found: list[FleetStream] = []
    for group in groups:
        others = [stream for other in groups if other is not group for stream in other.streams]
        wanted = retire if group.on_gone == "retire" else None
        tables = _tables_of(arguments, group, [*others, *found], wanted, dry_run=dry_run)
        found += tables.streams[len(group.streams) :]
        yield FoundGroup(group, _name(arguments, group), tables)


def _tables_of(
    arguments: argparse.Namespace,
    group: FleetGroup,
    elsewhere: Iterable[FleetStream],
    retire: Callable[[FleetStream], bool] | None,
    *,
    dry_run: bool,
) -> FoundTables:
    from airflow_provider_fds.fleet.discovery import find_tables

    folders = [*(pattern.staging for pattern in group.patterns), arguments.staging]
    staging = next((folder for folder in folders if folder), None)
    if staging is None and group.patterns and not dry_run:
        raise no_staging(f"pattern {group.patterns[0].tables!r}")
    return find_tables(
        group.patterns,
        group.streams,
        partial(common.open_folder, arguments),
        None if staging is None else common.open_folder(arguments, staging),
        _name(arguments, group),
        catalogs=partial(_catalog_of, arguments, group),
        elsewhere=elsewhere,
        retire=retire,
        dry_run=dry_run,
    )


def _catalog_of(arguments: argparse.Namespace, group: FleetGroup, conn_id: str) -> Catalog:
    """Return the catalog that stands for a connection of the file. Raises as :func:`.catalog_called`."""
    tables = ", ".join(one.tables for one in group.patterns if one.catalog_conn_id == conn_id)
    return catalog_called(arguments, _catalog(arguments) or conn_id, f"the tables {tables}")


def _catalog(arguments: argparse.Namespace) -> str | None:
    found: str | None = getattr(arguments, "catalog", None)
    return found


def _name(arguments: argparse.Namespace, group: FleetGroup) -> str:
    return f"{Path(arguments.file).stem}.{group.name}"


def for_stream(arguments: argparse.Namespace, stream: FleetStream) -> argparse.Namespace:
    """Return a copy of the arguments for one stream: its name, its table, and its staging folder, if it has its own."""
    staging = stream.stream.staging or arguments.staging
    conn_id = stream.stream.catalog_conn_id
    catalog = None if conn_id is None else _catalog(arguments) or conn_id
    own = {"stream": stream.name, "table": stream.stream.table, "staging": staging, "catalog": catalog}
    return argparse.Namespace(**{**vars(arguments), **own})


def in_threads(work: Callable[[_S], _T], streams: Iterable[_S]) -> list[_T]:
    """Call a function for each stream, in threads, and return the results in the order of the streams."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(_THREADS) as threads:
        return list(threads.map(work, streams))


def check_staging(arguments: argparse.Namespace, streams: Iterable[FleetStream]) -> None:
    """Refuse a fleet in which a stream has no staging folder.

    Raises:
        ConfigurationError: Names the first one.
    """
    for stream in streams:
        if not (stream.stream.staging or arguments.staging):
            raise no_staging(f"stream {stream.name!r}")


def no_staging(what: str) -> ConfigurationError:
    """Return the error about a stream or a pattern without a staging folder."""
    return ConfigurationError(
        f"{what} has no staging folder. Give --staging, set AIRFLOW__FDS__STAGING, or set staging in the defaults of "
        "the file"
    )


def statuses(arguments: argparse.Namespace, groups: Iterable[FoundGroup], shared: StreamContext) -> list[StreamStatus]:
    """Return the status of each stream of a fleet, also of those that have not begun. Writes nothing.

    Args:
        arguments: The arguments.
        groups: The fleet.
        shared: The context, but for what each stream has of its own.
    """
    from airflow_provider_fds.stream.monitoring.all_statuses import find_ledger, open_stream, unreadable
    from airflow_provider_fds.stream.monitoring.status import status_of

    def status(one: FleetStream) -> StreamStatus:
        context = replace(shared, staging_uri=one.stream.staging or arguments.staging)
        found = find_ledger(context.open_staging(), one.name)
        try:
            context = replace(context, places=common.places_of(for_stream(arguments, one)))
            if found is None:
                return _not_begun(one, context)
            if isinstance(found, FdsError):
                raise found
            return status_of(open_stream(context, found))
        except FdsError as problem:
            return unreadable(one.name, one.stream.table, problem)

    return in_threads(status, [stream for group in groups for stream in group.streams])


def _not_begun(one: FleetStream, context: StreamContext) -> StreamStatus:
    from airflow_provider_fds.delta.reader.log import DeltaLog
    from airflow_provider_fds.stream.monitoring.status import StreamStatus

    log = DeltaLog(context.open_table(one.stream.table))
    identity = one.sink.identity()
    sink = {"kind": identity["kind"], "target": one.sink.describe(), "delivery": one.sink.delivery}
    return StreamStatus(
        name=one.name, table=log.table_uri, phase="empty", newest_version=log.latest(), sink=sink, condition="not_begun"
    )


def describe_patterns(groups: Iterable[FoundGroup]) -> list[str]:
    """Return a line for each pattern, with the number of tables that it finds."""
    from airflow_provider_fds.fleet.discovery import describe_left_out
    from airflow_provider_fds.sizes import format_count

    lines = []
    for found in groups:
        tables = found.tables
        for number, (pattern, count) in enumerate(zip(found.group.patterns, tables.num_found, strict=True)):
            lines.append(f"pattern {pattern.tables}: {format_count(count, 'table')}")
            if names := tables.left_out[number]:
                lines.append(describe_left_out(pattern.tables, names))
    return lines


def messages_of(groups: Iterable[FoundGroup]) -> list[str]:
    """Return a sentence for each table of a pattern that is gone, is new and not loaded, or cannot be loaded."""
    return [message for found in groups for message in found.tables.messages()]
