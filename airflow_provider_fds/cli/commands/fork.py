"""``fds fork``: a new stream that continues where another one is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_fds.cli import arguments as common
from airflow_provider_fds.cli.catalogs import add_catalog
from airflow_provider_fds.cli.confirmation import add_confirmation, confirmed
from airflow_provider_fds.cli.sink import add_sink, sink_of
from airflow_provider_fds.errors import EXIT_OK

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from airflow_provider_fds.cli.command_list import CommandParsers


def add_commands(commands: CommandParsers) -> None:
    """Add ``fork``."""
    parser = commands.add_parser(
        "fork",
        description="Create the stream NAME at the committed position of the stream SOURCE, for a second sink or to "
        "replace SOURCE. SOURCE is only read, never changed. Repeating the command does nothing. Run NAME with the "
        "options that SOURCE has.",
    )
    parser.add_argument("source", metavar="SOURCE", help="name of the stream to continue")
    parser.add_argument("name", metavar="NAME", help="name of the new stream")
    common.add_storage(parser, staging_required=True, default_deployment="that of SOURCE")
    add_catalog(parser, of_ledger=True)
    add_sink(parser, "the new stream is bound to it (default: the one that its first run uses)")
    parser.add_argument(
        "--allow-overlap",
        action="store_true",
        help="bind it to the sink of SOURCE even if SOURCE is not retired",
    )
    parser.add_argument("--why", metavar="TEXT", default="fds fork", help="the reason; recorded in the history")
    add_confirmation(parser)
    parser.set_defaults(command=fork)


def fork(arguments: argparse.Namespace) -> int:
    """Perform ``fds fork``."""
    from airflow_provider_fds.ledger.owner import Owner
    from airflow_provider_fds.ledger.staging.log import Ledger
    from airflow_provider_fds.source.offset import describe_position
    from airflow_provider_fds.stream.actions.prepared_action import PreparedAction, describe_standing
    from airflow_provider_fds.stream.declaration.delta_stream import DeltaStream
    from airflow_provider_fds.stream.epochs.fork import origin_of, refuse_sink_of_origin
    from airflow_provider_fds.stream.epochs.opening import ensure_bound, ensure_created
    from airflow_provider_fds.stream.known_tables import source_name
    from airflow_provider_fds.stream.run.session import StreamSession

    staging = common.open_folder(arguments, arguments.staging)
    source = common.ledger_of(arguments, arguments.source)[0].state
    arguments.deployment = arguments.deployment or source.deployment
    places = common.places_for(arguments, source)
    table, catalog = source_name(source, places)
    stream = DeltaStream(
        arguments.name,
        table=table,
        catalog_conn_id=catalog,
        staging=arguments.staging,
        fork_of=arguments.source,
        allow_overlap=arguments.allow_overlap,
    )
    named = (arguments.sink, arguments.sink_catalog, arguments.sink_postgres)
    has_sink = any(name is not None for name in named) or arguments.sink_option
    sink = sink_of(arguments) if has_sink else None
    context = common.context_of(arguments, owner=Owner.of_plan(arguments.deployment), sink=sink)
    session = StreamSession(stream, replace(context, places=places))
    before = Ledger(staging, stream.name).find()

    def act() -> Iterator[str]:
        ensure_created(session.connected, sink, why=arguments.why)
        state = session.ensure_open(sink)
        if sink is not None:
            refuse_sink_of_origin(session.connected, sink)
            state = ensure_bound(session.connected, sink, user_job=False)
        offset = describe_position(state.origin.offset if state.origin is not None else state.epoch_start)
        if before.phase == "open" and before.sink == state.sink:
            yield f"stream {stream.name!r} is already a fork of {source.name!r}, from {offset}; nothing was done"
            return
        yield f"stream {stream.name!r} is a fork of {source.name!r} and starts at {offset}"
        if state.sink is not None:
            yield f"it is bound to {state.sink.describe()}"

    if before.phase == "open" and (sink is None or before.sink is not None):
        print("\n".join(act()))
        return EXIT_OK
    position = origin_of(session.connected)[1] if before.phase == "empty" else None
    refuse_sink_of_origin(session.connected, sink)
    preview = PreparedAction(
        stream.name,
        (),
        "does not exist" if before.phase == "empty" else describe_standing(before),
        f"a fork of {source.name}" + ("" if position is None else f", which starts at {position.describe()}"),
        (
            f"Its sink: {'the one that its first run uses' if sink is None else sink.describe()}.",
            f"It loads the rows after that position. Stream {source.name} and the rows in its sink stay as they are.",
        ),
    )
    return confirmed(arguments, preview.describe(), act)
