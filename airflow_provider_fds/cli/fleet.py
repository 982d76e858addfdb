"""The fleet of a file, for the commands that have ``--all FILE``."""

from __future__ import annotations

import argparse
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from airflow_provider_fds.cli import arguments as common
from airflow_provider_fds.errors import ConfigurationError, FdsError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from airflow_provider_fds.fleet.group import FleetGroup
    from airflow_provider_fds.fleet.value import FleetStream, TablePattern
    from airflow_provider_fds.stream.connect import StreamContext
    from airflow_provider_fds.stream.status import StreamStatus

_S = TypeVar("_S")
_T = TypeVar("_T")

#: Streams that are read at the same time; on an object store the time is spent waiting.
_THREADS: Final = 16


@dataclass(frozen=True)
class FoundPattern:
    """A table pattern, and what it finds now.

    Attributes:
        pattern: The pattern.
        streams: Streams of its tables that the file does not list itself, by name.
        problems: A sentence for each table that cannot have a stream.
    """

    pattern: TablePattern
    streams: tuple[FleetStream, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class FoundGroup:
    """A group of the file with the tables that exist now.

    Attributes:
        group: The group.
        patterns: Its patterns.
    """

    group: FleetGroup
    patterns: tuple[FoundPattern, ...]

    @property
    def streams(self) -> tuple[FleetStream, ...]:
        """The streams that the file lists, in its order, then those that its patterns find."""
        return (*self.group.streams, *(stream for found in self.patterns for stream in found.streams))


def add_file(parser: argparse.ArgumentParser) -> None:
    """Add ``--all FILE``."""
    parser.add_argument(
        "--all", metavar="FILE", dest="file", help="all streams of a file, and the tables that its patterns find"
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
        f"{flag} and --all cannot be combined: the file says it for each stream. Omit {flag}."
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
        raise ConfigurationError(f"missing {', '.join(missing)}; for all streams of a file, give --all FILE instead")


def find_fleet(arguments: argparse.Namespace) -> list[FoundGroup]:
    """Read the file of the arguments, and find the tables of its patterns. Writes nothing.

    Raises:
        ConfigurationError: The file is invalid.
        StorageError: A folder of a pattern cannot be listed.
    """
    from airflow_provider_fds.delta.open import open_storage
    from airflow_provider_fds.fleet.file import read_fleet_file

    options = common.pairs(arguments.storage_option, "--storage-option")
    file = read_fleet_file(arguments.file)
    listed = [stream for group in file.groups for stream in group.streams]
    taken = {stream.name for stream in listed}
    tables = {_place(stream.stream.table) for stream in listed}

    def found(pattern: TablePattern) -> FoundPattern:
        known = pattern.discover(lambda uri: open_storage(uri, options).list_folders(""))
        free = [one for one in known.streams if _place(one.stream.table) not in tables]
        doubled = [
            f"table {one.stream.table} cannot be loaded: the file has another stream {one.name!r}. Give the pattern "
            "another name, or exclude the table."
            for one in free
            if one.name in taken
        ]
        streams = tuple(one for one in free if one.name not in taken)
        taken.update(one.name for one in streams)
        return FoundPattern(pattern, streams, (*known.problems, *doubled))

    return [FoundGroup(group, tuple(map(found, group.patterns))) for group in file.groups]


def _place(table: str) -> str:
    from airflow_provider_fds.delta.open import canonical_uri

    return canonical_uri(table).rstrip("/")


def for_stream(arguments: argparse.Namespace, stream: FleetStream) -> argparse.Namespace:
    """Return a copy of the arguments for one stream: its name, its table, and its staging folder, if it has its own."""
    staging = stream.stream.staging or arguments.staging
    own = {"stream": stream.name, "table": stream.stream.table, "staging": staging}
    return argparse.Namespace(**{**vars(arguments), **own})


def in_threads(work: Callable[[_S], _T], streams: Iterable[_S]) -> list[_T]:
    """Call a function for each stream, in threads, and return the results in the order of the streams."""
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


def statuses(
    arguments: argparse.Namespace, groups: Iterable[FoundGroup], context_of: Callable[[str], StreamContext]
) -> list[StreamStatus]:
    """Return the status of each stream of a fleet, also of those that have not begun. Writes nothing.

    Args:
        arguments: The arguments.
        groups: The fleet.
        context_of: Returns the context for a staging folder.
    """
    from airflow_provider_fds.delta.open import open_storage
    from airflow_provider_fds.stream.status import status_of
    from airflow_provider_fds.stream.statuses import find_table, open_stream, unreadable

    def status(one: FleetStream) -> StreamStatus:
        context = context_of(one.stream.staging or arguments.staging)
        found = find_table(open_storage(context.staging_uri, context.staging_options), one.name)
        try:
            if found is None:
                return _not_begun(one, context)
            if isinstance(found, FdsError):
                raise found
            return status_of(open_stream(context, one.name, *found))
        except FdsError as problem:
            return unreadable(one.name, one.stream.table, problem)

    return in_threads(status, [stream for group in groups for stream in group.streams])


def _not_begun(one: FleetStream, context: StreamContext) -> StreamStatus:
    from airflow_provider_fds.delta.log import DeltaLog
    from airflow_provider_fds.delta.open import open_storage
    from airflow_provider_fds.stream.status import StreamStatus

    log = DeltaLog(open_storage(one.stream.table, context.table_options))
    identity = one.sink.identity()
    sink = {"kind": identity["kind"], "target": one.sink.describe(), "delivery": one.sink.delivery}
    return StreamStatus(
        name=one.name, table=log.table_uri, phase="empty", newest_version=log.latest(), sink=sink, condition="not_begun"
    )


def describe_patterns(groups: Iterable[FoundGroup]) -> list[str]:
    """Return a line for each pattern, with the number of tables that it finds."""
    from airflow_provider_fds.sizes import format_count

    return [
        f"pattern {found.pattern.tables}: {format_count(len(found.streams), 'table')}"
        for group in groups
        for found in group.patterns
    ]


def problems_of(groups: Iterable[FoundGroup]) -> list[str]:
    """Return a sentence for each table that a pattern finds and that cannot be loaded."""
    return [problem for group in groups for found in group.patterns for problem in found.problems]


__all__ = [
    "FoundGroup",
    "FoundPattern",
    "add_file",
    "check_staging",
    "describe_patterns",
    "find_fleet",
    "for_stream",
    "in_threads",
    "no_staging",
    "problems_of",
    "refuse_together",
    "require",
    "statuses",
]
