"""``--sink`` and ``--sink-option``: the sink of the commands that load one stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airflow_provider_fds.cli import arguments as common
from airflow_provider_fds.errors import ConfigurationError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Collection, Mapping

    from airflow_provider_fds.sinks import Sink

_OPTION: Final = "--sink-option"
#: Fields of a sink that it does not set, and what to do.
_NOT_HERE: Final = {
    "uri": ". Use --sink",
    "storage_conn_id": ": it names a connection of Airflow, which the command line does not read. Use --storage-option "
    "or the environment",
    "catalog_conn_id": ". Use --sink-catalog",
    "conn_id": ": it names a connection of Airflow, which the command line does not read. The environment says where "
    "the database is (PGHOST, PGSERVICE, PGPASSFILE …)",
    "table": ". Use --sink-postgres",
}


def add_sink(parser: argparse.ArgumentParser, about: str) -> None:
    """Add the arguments of the sink; ``about`` is what the help adds about ``--sink``."""
    parser.add_argument("--sink", metavar="URI", help=f"Delta table to load into, or its name; {about}")
    parser.add_argument(
        "--sink-catalog",
        metavar="URI",
        help="catalog that has the name --sink, as for --catalog; a table that it does not have is created with "
        f"{_OPTION} create=yes",
    )
    parser.add_argument(
        "--sink-postgres",
        metavar="SCHEMA.TABLE",
        help="table of PostgreSQL to load into, instead of --sink; the environment says where the database is, as for "
        "psql (PGHOST, PGDATABASE, PGSERVICE, PGPASSFILE …)",
    )
    parser.add_argument(
        _OPTION,
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="an argument of the sink, such as provenance=yes, kind=delta_merge or keys=id,region; a sink of "
        "kind=foreach_batch has function=pkg.module:name instead of --sink; may be repeated",
    )


def sink_of(arguments: argparse.Namespace, known: Mapping[str, str] | None = None) -> Sink:
    """Return the sink that the arguments describe.

    Args:
        arguments: The arguments.
        known: Fields of the sink if ``--sink`` is not given.

    Raises:
        ConfigurationError: It is not described in full, or the command line cannot have such a sink.
    """
    from airflow_provider_fds.fleet.streams_file.fields import sink_keys
    from airflow_provider_fds.fleet.streams_file.sink_fields import DEFAULT_KIND, sink_of_options

    given = common.pairs(arguments.sink_option, _OPTION)
    if len(given) < len(arguments.sink_option):
        raise ConfigurationError(f"{_OPTION} has a key twice. Write a list as KEY=FIRST,SECOND")
    for key, way_on in _NOT_HERE.items():
        if key in given:
            raise ConfigurationError(f"{_OPTION} has no key {key!r}{way_on}")
    if arguments.sink_postgres is not None:
        given = {"kind": "postgres", **given, "table": arguments.sink_postgres}
    if arguments.sink_catalog is not None:
        if arguments.sink is None:
            raise ConfigurationError("--sink-catalog needs --sink, the name of a table in it")
        given["catalog_conn_id"] = arguments.sink_catalog
    if arguments.sink is None and arguments.sink_postgres is None and known is not None:
        kept = ("kind", *sink_keys(given.get("kind", known["kind"])))
        given = {**{key: value for key, value in known.items() if key in kept}, **given}
    if arguments.sink is not None:
        given["uri"] = arguments.sink
    kind = given.get("kind", DEFAULT_KIND)
    _check_place(arguments, kind, given, sink_keys(kind))
    return sink_of_options(given, _OPTION)


def _check_place(arguments: argparse.Namespace, kind: str, given: Mapping[str, str], keys: Collection[str]) -> None:
    """Refuse arguments that say twice where the rows go, or not at all."""
    if arguments.sink is not None and arguments.sink_postgres is not None:
        raise ConfigurationError("--sink and --sink-postgres cannot be combined. Omit one of them")
    if kind == "foreach_batch" and arguments.sink is not None:
        raise ConfigurationError(f"--sink and {_OPTION} kind=foreach_batch cannot be combined. Omit --sink")
    for key, flag in (("uri", "--sink"), ("table", "--sink-postgres")):
        if key in keys and key not in given:
            raise ConfigurationError(f"missing {flag}, the table of a sink of kind {kind}")
