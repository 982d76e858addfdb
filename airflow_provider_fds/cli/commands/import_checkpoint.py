"""``fds admin import-checkpoint``: continue where a Structured Streaming query stopped."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from airflow_provider_fds.cli import arguments as common
from airflow_provider_fds.errors import EXIT_OK

if TYPE_CHECKING:
    import argparse

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
    parser.set_defaults(command=import_checkpoint)


def import_checkpoint(arguments: argparse.Namespace) -> int:
    """Perform ``fds admin import-checkpoint``."""
    from airflow_provider_fds.delta.reader.log import DeltaLog
    from airflow_provider_fds.delta.storage.open import open_storage
    from airflow_provider_fds.ledger.owner import Owner
    from airflow_provider_fds.source.streaming_checkpoint import read_streaming_checkpoint
    from airflow_provider_fds.stream.run.session import StreamSession

    options = common.pairs(arguments.storage_option, "--storage-option")
    stream = common.stream_of(arguments)
    log = DeltaLog(open_storage(stream.table, options))
    table_id = log.state_at(log.latest()).metadata.id
    found = read_streaming_checkpoint(open_storage(arguments.checkpoint_folder, options), table_id)
    context = common.context_of(arguments, owner=Owner.of_plan(arguments.deployment))
    session = StreamSession(stream, context)
    session.ensure_open(start=found.offset)
    print(f"stream {stream.name!r} starts at {found.offset.to_json()}, the end of batch {found.batch_id} of the query")
    if found.unfinished_batch_id is not None:
        print(
            f"WARNING batch {found.unfinished_batch_id} of the query was started but not finished. The stream "
            "reads its rows: if the query's sink already has them and the stream writes to the same sink, remove "
            "them there",
            file=sys.stderr,
        )
    return EXIT_OK
