"""``fds admin import-checkpoint``: continue where a Structured Streaming query stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.cli import arguments as common
from airflow_provider_fds.cli.confirmation import add_confirmation, confirmed

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from airflow_provider_fds.cli.command_list import CommandParsers


def add_commands(commands: CommandParsers) -> None:
    """Add ``import-checkpoint``."""
    parser = commands.add_parser(
        "import-checkpoint",
        description="Read the position of a stopped query from its checkpoint folder and create a stream that starts "
        "there. The folder is only read, never changed. Give the stream the options that the query had.",
    )
    parser.add_argument("checkpoint_folder", metavar="CHECKPOINT", help="checkpointLocation of the query, URI or path")
    common.add_stream(parser)
    common.add_storage(parser, staging_required=True)
    add_confirmation(parser)
    parser.set_defaults(command=import_checkpoint)


def import_checkpoint(arguments: argparse.Namespace) -> int:
    """Perform ``fds admin import-checkpoint``."""
    from airflow_provider_fds.delta.reader.log import DeltaLog
    from airflow_provider_fds.ledger.owner import Owner
    from airflow_provider_fds.source.offset import describe_position
    from airflow_provider_fds.source.streaming_checkpoint import read_streaming_checkpoint
    from airflow_provider_fds.stream.actions.prepared_action import PreparedAction
    from airflow_provider_fds.stream.run.session import StreamSession

    stream = common.stream_of(arguments)
    log = DeltaLog(common.open_table(arguments, stream.table))
    table_id = log.state_at(log.latest()).metadata.id
    found = read_streaming_checkpoint(common.open_folder(arguments, arguments.checkpoint_folder), table_id)
    notes = ["No row is loaded or removed by this command, and the checkpoint is only read."]
    if found.unfinished_batch_id is not None:
        notes.append(
            f"WARNING batch {found.unfinished_batch_id} of the query was started but not finished. The stream reads "
            "its rows: if the query's sink already has them and the stream writes to the same sink, remove them there"
        )
    session = StreamSession(stream, common.context_of(arguments, owner=Owner.of_plan(arguments.deployment)))
    preview = PreparedAction(
        stream.name,
        (),
        f"the query has finished its batch {found.batch_id}",
        f"a new stream of {stream.table} at {describe_position(found.offset.to_json())}",
        tuple(notes),
    )

    def act() -> Iterator[str]:
        session.ensure_open(start=found.offset)
        position = found.offset.describe()
        yield f"stream {stream.name!r} starts at {position}, the end of batch {found.batch_id} of the query"

    return confirmed(arguments, preview.describe(), act)
