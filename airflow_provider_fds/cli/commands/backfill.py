"""``fds backfill``: load a range of a stream's table, and leave the stream's position alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.cli import arguments as common
from airflow_provider_fds.cli.commands.run import add_loading, load
from airflow_provider_fds.cli.sink import sink_of
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    import argparse

    from airflow_provider_fds.cli.command_list import CommandParsers
    from airflow_provider_fds.ledger.state import StreamState


def add_commands(commands: CommandParsers) -> None:
    """Add ``backfill``."""
    parser = commands.add_parser(
        "backfill",
        description=(
            "Load the versions from --start to --end into the sink as a separate bounded stream, named after the "
            "stream and the range. The position of the stream does not move. The same command continues an "
            "interrupted range and does nothing for a finished one."
        ),
    )
    parser.add_argument("stream", metavar="STREAM", help="name of the stream whose table is loaded")
    common.add_storage(parser, staging_required=True)
    parser.add_argument(
        "--start",
        default="earliest",
        metavar="VERSION|TIME",
        help='first version (inclusive), a time, or "earliest" (default: %(default)s); times without a zone are UTC',
    )
    parser.add_argument(
        "--end",
        default="live_start",
        metavar="VERSION|TIME",
        help='last version (inclusive), a time, or "live_start", the version just before the one at which the stream '
        "began (default: %(default)s)",
    )
    parser.add_argument(
        "--table", metavar="URI", help="URI of the source table; only needed if the stream has no ledger"
    )
    parser.add_argument(
        "--option",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a source option, such as max_files_per_batch=100; may be repeated",
    )
    add_loading(parser, sink="default: the sink of the stream")
    parser.set_defaults(command=backfill)


def backfill(arguments: argparse.Namespace) -> int:
    """Perform ``fds backfill``."""
    from airflow_provider_fds.ledger.staging.log import Ledger

    live = Ledger(common.open_folder(arguments, arguments.staging), arguments.stream).find()
    if live.phase == "empty" and arguments.table is None:
        raise ConfigurationError(
            f"there is no stream {arguments.stream!r} in {arguments.staging}, so its table is unknown. Check the "
            "name and the staging folder, or set --table",
            reason=Reason.STREAM_NOT_FOUND,
        )
    arguments.table = arguments.table or live.table
    sink = sink_of(arguments, None if arguments.sink or arguments.sink_postgres else _known_sink(live))
    stream = common.stream_of(arguments).backfill(start=arguments.start, end=arguments.end)
    if arguments.checkpoint:
        arguments.checkpoint = stream.checkpoint.removeprefix("file:")
    return load(arguments, stream, sink)


def _known_sink(live: StreamState) -> dict[str, str]:
    """Return what the ledger knows of the sink of the live stream.

    Raises:
        ConfigurationError: The stream has no sink.
    """
    if live.sink is None or live.sink.is_user_job:
        raise ConfigurationError(f"stream {live.name!r} is not bound to a sink. Set --sink", table=live.table or None)
    return {"kind": live.sink.kind, "uri": live.sink.target, "function": live.sink.target}
