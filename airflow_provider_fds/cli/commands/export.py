"""``fds admin export``, ``fds admin import``: move a stream to another staging folder, of another deployment."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_fds.cli import arguments as common
from airflow_provider_fds.cli.confirmation import add_confirmation, confirmed
from airflow_provider_fds.errors import EXIT_OK, ConfigurationError, LedgerError
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from airflow_provider_fds.cli.command_list import CommandParsers
    from airflow_provider_fds.ledger.entries.action import BaseAction
    from airflow_provider_fds.ledger.state import StreamState


def add_commands(commands: CommandParsers) -> None:
    """Add ``export`` and ``import``."""
    parser = commands.add_parser(
        "export",
        description="Write the ledger of a held stream to a file. `fds admin import` continues the stream from it in "
        "another staging folder, with its history, its position and its identity in the sink.",
    )
    parser.add_argument("stream", metavar="STREAM", help="name of the stream")
    parser.add_argument("file", metavar="FILE", help="new local file")
    common.add_storage(parser, staging_required=True)
    parser.set_defaults(command=export)
    parser = commands.add_parser(
        "import",
        description="Write the ledger in a file to this staging folder, and transfer the stream to --deployment. Its "
        "next run closes the epoch of the old deployment in the sink, so that the old one can load nothing more. The "
        "stream stays on hold until `fds resume`. If the command is interrupted, run it again.",
    )
    parser.add_argument("file", metavar="FILE", help="file that `fds admin export` wrote")
    common.add_storage(parser, staging_required=True)
    parser.add_argument("--why", metavar="TEXT", default="fds admin import", help="the reason; recorded in the history")
    add_confirmation(parser)
    parser.set_defaults(command=import_)


def export(arguments: argparse.Namespace) -> int:
    """Perform ``fds admin export``."""
    from airflow_provider_fds.ledger.staging.archive import write_archive

    ledger, _ = common.ledger_of(arguments)
    _refuse_running(ledger.state)
    contents = write_archive(ledger, Path(arguments.file))
    print(
        f"stream {contents.stream!r} of deployment {contents.deployment!r}, uuid {contents.uuid}, was written to "
        f"{arguments.file}: ledger entries 0 to {contents.n}"
    )
    print(f"import it with: fds admin import {arguments.file} --staging URI --deployment NAME")
    print(f"do not resume stream {contents.stream!r} here: {_what_if_both_run(ledger.state)}")
    return EXIT_OK


def _what_if_both_run(state: StreamState) -> str:
    if state.sink is None or (state.sink.is_fenced and not state.reads_by_interval):
        return "once the other one runs, the sink refuses what this one loads"
    return "nothing closes its epoch, so both would load the same rows"


def _refuse_running(state: StreamState) -> None:
    """Refuse to export a stream that may go on here, or whose batches a user's code may still load."""
    problem = None
    if state.retired is not None:
        problem = "is retired, so no deployment can continue it"
    elif state.held is None:
        problem = f"may continue here. Stop it first: `fds hold {state.name} --why …`"
    elif state.planned and state.sink is not None and state.sink.is_user_defined:
        problem = (
            f"has {len(state.planned)} planned batches for {state.sink.describe()}. Resume it, run it until they are "
            "committed, then hold it again"
        )
    elif (interval := _interval_in_progress(state)) is not None:
        # the manifests are not in the file, and only a sink that replaces has its intervals planned again
        problem = (
            f"has planned batches of the data interval {interval}, which is never planned again. Resume it, run the "
            "interval until it is loaded, then hold the stream again"
        )
    if problem is not None:
        raise ConfigurationError(
            f"stream {state.name!r} {problem}.", table=state.table, reason=Reason.EXPORT_NOT_AVAILABLE
        )


def _interval_in_progress(state: StreamState) -> str | None:
    """Return a data interval whose planned batches only this staging folder can load, or ``None``."""
    if state.sink is not None and state.sink.replaces:
        return None
    return next((record.interval for record in state.intervals if record.planned), None)


def import_(arguments: argparse.Namespace) -> int:
    """Perform ``fds admin import``."""
    from msgspec.structs import replace

    from airflow_provider_fds.ledger.entries.operator_entries import Transferred
    from airflow_provider_fds.ledger.staging.archive import LedgerArchive
    from airflow_provider_fds.ledger.staging.log import Ledger
    from airflow_provider_fds.source.offset import describe_position
    from airflow_provider_fds.stream.actions.action_builder import ActionBuilder
    from airflow_provider_fds.stream.actions.prepared_action import PreparedAction, is_answered
    from airflow_provider_fds.stream.known_tables import open_source, readable, readable_sink

    archive = LedgerArchive.read(Path(arguments.file))
    name = archive.contents.stream
    request_id = f"import {archive.sha256[:32]} to {arguments.deployment}"
    open_table = partial(common.open_table, arguments)
    staging = common.open_folder(arguments, arguments.staging)
    ledger = Ledger(staging, name)
    with suppress(LedgerError):
        # an interrupted import cannot be read
        if ledger.find().phase != "empty" and is_answered(ledger, request_id):
            print(f"stream {name!r} was already imported from {arguments.file}; nothing was done")
            return EXIT_OK
    contents = archive.contents
    preview = PreparedAction(
        name,
        (),
        f"of deployment {contents.deployment!r}, ledger entries 0 to {contents.n} in {arguments.file}",
        f"of deployment {arguments.deployment!r}, in {staging.uri}, on hold until `fds resume`",
        (
            f"It reads {contents.table}. No row is loaded or removed by this command.",
            "The next run closes the epoch of the old deployment in the sink, and continues after the sink's batches.",
        ),
    )

    def act() -> Iterator[str]:
        ledger.self_test()
        written = archive.put_into(staging)
        state = ledger.find()
        if ledger.n > contents.n:
            raise ConfigurationError(
                f"stream {name!r} in {staging.uri} has continued since it was exported: its ledger has entries up to "
                f"{ledger.n}, but {arguments.file} only up to {contents.n}. There is nothing to import",
                table=state.table,
                reason=Reason.STREAM_ALREADY_BEGUN,
            )
        actor = common.person(arguments.deployment)
        why = f"{arguments.why} (from {contents.deployment!r}, SHA-256 {archive.sha256[:12]}…)"
        position = state.position
        command: BaseAction = Transferred(deployment=arguments.deployment, why=why)
        if state.phase == "open":
            builder = ActionBuilder(
                ledger,
                why,
                log=readable(open_source(ledger, common.places_for(arguments, state))),
                sink_log=readable_sink(state, open_table),
                open_table=open_table,
            )
            # with the transfer, in one entry: no run of this installation works in the epoch of the other one
            (request,) = builder.replan().commands
            command = replace(request, deployment=arguments.deployment)
        ledger.execute(command, actor, request_id)
        where = "" if position is None else f" at {describe_position(position)}"
        yield f"stream {name!r} continues here{where}: {written} ledger entries were written to {staging.uri}"
        yield (
            f"it belongs to deployment {arguments.deployment!r} and is on hold; to start it: fds resume {name} --why …"
        )

    return confirmed(arguments, preview.describe(), act)
