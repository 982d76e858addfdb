"""The commands that change a stream, built from :mod:`airflow_provider_fds.stream.actions.operator_actions`."""

from __future__ import annotations

from argparse import ArgumentTypeError
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_provider_fds.cli import arguments as common
from airflow_provider_fds.cli.catalogs import add_catalog
from airflow_provider_fds.cli.commands.recover import recover
from airflow_provider_fds.cli.confirmation import add_confirmation, confirmed
from airflow_provider_fds.errors import EXIT_OK
from airflow_provider_fds.stream.actions.operator_actions import ACTIONS, Argument

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator

    from airflow_provider_fds.cli.command_list import CommandParsers
    from airflow_provider_fds.stream.actions.operator_actions import OperatorAction


def add_commands(commands: CommandParsers) -> None:
    """Add a command for each action."""
    for action in ACTIONS.values():
        parser = commands.add_parser(action.name, description=action.description)
        parser.add_argument("stream", metavar="STREAM", help="name of the stream")
        common.add_storage(parser, staging_required=True)
        add_catalog(parser, of_ledger=True)
        # an action that asks also asks for the reason
        why: dict[str, Any] = (
            {"required": not action.asks} if action.needs_ledger else {"default": f"fds {action.name}"}
        )
        parser.add_argument("--why", metavar="TEXT", help="the reason; recorded in the history", **why)
        if action.needs_ledger:
            parser.add_argument(
                "--request-id",
                metavar="ID",
                help="identifies this request; a request repeated with the same id is performed only once",
            )
        if action.asks:
            add_confirmation(parser)
        groups: dict[str, argparse._MutuallyExclusiveGroup] = {}
        for argument in action.arguments:
            place: argparse._ActionsContainer = parser
            if argument.excludes is not None:
                if argument.excludes not in groups:
                    groups[argument.excludes] = parser.add_mutually_exclusive_group(required=True)
                place = groups[argument.excludes]
            _add(place, argument)
        parser.set_defaults(command=act if action.needs_ledger else recover, name=action.name)


def act(arguments: argparse.Namespace) -> int:
    """Perform an action."""
    from airflow_provider_fds.stream.actions.action_builder import ActionBuilder
    from airflow_provider_fds.stream.actions.prepared_action import is_answered, perform
    from airflow_provider_fds.stream.known_tables import open_source, readable, readable_sink

    action: OperatorAction = ACTIONS[arguments.name]
    ledger, actor = common.ledger_of(arguments)
    if arguments.request_id is not None and is_answered(ledger, arguments.request_id):
        print(f"stream {arguments.stream}: request {arguments.request_id!r} was already made; nothing is done again")
        return EXIT_OK
    open_table = partial(common.open_table, arguments)
    places = common.places_for(arguments, ledger.state)
    builder = ActionBuilder(
        ledger,
        arguments.why or "",
        log=readable(open_source(ledger, places)),
        sink_log=readable_sink(ledger.state, open_table),
        owner_runs=partial(common.owner_runs, arguments),
        open_table=open_table,
        places=places,
        deployment=arguments.deployment,
    )
    # the parser has already parsed the values
    values = ((argument, getattr(arguments, _spelling(argument))) for argument in action.arguments)
    given = {a.name: value for a, value in values if value is not None and (a.kind != "flag" or value)}
    asked = action.prepare(builder, given)

    def write() -> Iterator[str]:
        yield perform(ledger, asked.because(arguments.why), actor, arguments.request_id)

    if action.asks and asked.changes(ledger.state):
        return confirmed(arguments, asked.describe(), write)
    print(asked.describe_unchanged() if action.asks else next(write()))
    return EXIT_OK


def _add(place: argparse._ActionsContainer, argument: Argument) -> None:
    flag = "--" + _spelling(argument).replace("_", "-")
    if argument.kind == "flag":
        place.add_argument(flag, action="store_true", help=argument.help)
        return
    more: dict[str, Any] = {"required": True} if argument.is_required else {}
    if argument.choices:
        more["choices"] = argument.choices
    place.add_argument(flag, type=_reader(argument), metavar=argument.metavar, help=argument.help, **more)


def _spelling(argument: Argument) -> str:
    return argument.spelling or argument.name


def _reader(argument: Argument) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        try:
            return argument.parse(text)
        except ValueError as error:
            raise ArgumentTypeError(str(error)) from None

    return read
