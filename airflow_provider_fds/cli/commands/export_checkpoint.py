"""``fds admin export-checkpoint``: let a Structured Streaming query continue where a stream stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.cli import arguments as common
from airflow_provider_fds.credentials import redacted_uri, secret_part
from airflow_provider_fds.errors import EXIT_OK, ConfigurationError
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    import argparse

    from airflow_provider_fds.cli.command_list import CommandParsers


def add_commands(commands: CommandParsers) -> None:
    """Add ``export-checkpoint``."""
    parser = commands.add_parser(
        "export-checkpoint",
        description="Write the checkpoint of a query that continues at the stream's committed position. The stream "
        "must be held or retired, with nothing planned. Give the options that the stream has; the command prints those "
        "that the query needs.",
    )
    parser.add_argument("stream", metavar="STREAM", help="name of the stream")
    parser.add_argument("path", metavar="PATH", help="new checkpointLocation of the query, URI or path")
    common.add_storage(parser, staging_required=True)
    parser.add_argument(
        "--option",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a source option of the stream, such as ignore_deletes=true; may be repeated",
    )
    parser.add_argument(
        "--any-options",
        action="store_true",
        help="accept options that are not those of the stream's last plan",
    )
    parser.set_defaults(command=export_checkpoint)


def export_checkpoint(arguments: argparse.Namespace) -> int:
    """Perform ``fds admin export-checkpoint``."""
    from airflow_provider_fds.ledger.owner import Owner
    from airflow_provider_fds.stream.actions.export_checkpoint import export_checkpoint as export
    from airflow_provider_fds.stream.connected_stream import ConnectedStream

    if "://" in arguments.path and (part := secret_part(arguments.path)) is not None:
        raise ConfigurationError(
            f"PATH {redacted_uri(arguments.path)} has {part}. Pass credentials through the environment or "
            "--storage-option",
            reason=Reason.URI_HAS_CREDENTIALS,
        )
    ledger, _ = common.ledger_of(arguments)
    arguments.deployment = ledger.state.deployment
    arguments.table = ledger.state.table
    connected = ConnectedStream(
        common.stream_of(arguments), common.context_of(arguments, owner=Owner.of_plan(arguments.deployment))
    )
    target = common.open_folder(arguments, arguments.path)
    found = export(connected, target, any_options=arguments.any_options)
    print(f"{target.uri} continues stream {arguments.stream!r} at {found.offset.to_json()}")
    print(f"start the query with: {found.describe(arguments.table, target.uri)}")
    print(f"the stream can no longer be resumed. To end it for good: fds retire {arguments.stream} --why …")
    return EXIT_OK
