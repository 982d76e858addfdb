"""``fds status`` and ``fds explain``: one stream in detail, or all streams of a staging folder as a table."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.cli import arguments as common
from airflow_provider_fds.cli.catalogs import add_catalog
from airflow_provider_fds.cli.messages import STAGING_NEEDED
from airflow_provider_fds.command_hints import staging_option
from airflow_provider_fds.errors import EXIT_ATTENTION, EXIT_OK, ConfigurationError
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    import argparse

    from airflow_provider_fds.cli.command_list import CommandParsers
    from airflow_provider_fds.stream.connected_stream import ConnectedStream
    from airflow_provider_fds.stream.monitoring.status import StreamStatus

#: Width of the labels of a status.
_LABEL: Final = 17


def add_commands(commands: CommandParsers) -> None:
    """Add ``status`` and ``explain``."""
    parser = commands.add_parser(
        "status",
        epilog="The exit code is 1 if a stream needs attention (of one STREAM: for none of the reasons with a code of "
        "their own), or lags longer than --lagging. --watch: press q or Ctrl-C to quit; without a terminal it prints a "
        "line for each stream whose state or lag in versions has changed, as `fds monitor` does, and a round costs one "
        "request for each table that has not changed. It writes nothing.",
    )
    parser.add_argument(
        "stream",
        metavar="STREAM",
        nargs="?",
        help="name of a stream; without it, all streams of the staging folder, one per line",
    )
    parser.add_argument("-f", "--file", metavar="FILE", help="all streams that a file of streams declares")
    parser.add_argument("--full", action="store_true", help="with STREAM: the state of its ledger, as JSON")
    parser.add_argument("--watch", action="store_true", help="all streams live on the terminal")
    parser.add_argument(
        "--lagging",
        metavar="DURATION",
        type=common.duration,
        help="of all streams, only those that need attention, or whose oldest unread version is older than this, such "
        "as 90s, 10m, 2h or 1d",
    )
    common.add_storage(parser, staging_required=True, may_be_in_file=True)
    add_catalog(parser, of_ledger=True)
    parser.add_argument(
        "--output",
        choices=("text", "json", "prometheus"),
        default="text",
        help="prometheus: for all streams (default: %(default)s)",
    )
    common.add_interval(parser, default=timedelta(seconds=5), examples="5s or 1m")
    parser.set_defaults(command=status)
    parser = commands.add_parser("explain")
    parser.add_argument("stream", metavar="STREAM", help="name of the stream")
    common.add_storage(parser, staging_required=True)
    add_catalog(parser, of_ledger=True)
    parser.add_argument("--output", choices=("text", "json"), default="text", help="default: %(default)s")
    parser.set_defaults(command=explain)


def status(arguments: argparse.Namespace) -> int:
    """Perform ``fds status``."""
    if arguments.file is None:
        from airflow_provider_fds.cli.fleet import fleet

        fleet.require(arguments, [("staging", STAGING_NEEDED)])
    of_all = {
        "--file": arguments.file is not None,
        "--watch": arguments.watch,
        "--lagging": arguments.lagging is not None,
        "--output prometheus": arguments.output == "prometheus",
    }
    given = [name for name, is_given in of_all.items() if is_given]
    if arguments.stream is not None and given:
        raise ConfigurationError(f"{given[0]} is for all streams: omit the STREAM {arguments.stream!r}")
    if arguments.watch and len(given) > 1:
        raise ConfigurationError(f"--watch shows all streams of the staging folder: omit {given[0]}")
    if arguments.full and arguments.stream is None:
        raise ConfigurationError("--full needs the name of a STREAM")
    if arguments.watch:
        from airflow_provider_fds.cli.commands.watch import watch

        return watch(arguments)
    return _all(arguments) if arguments.stream is None else _one(arguments)


def explain(arguments: argparse.Namespace) -> int:
    """Perform ``fds explain``."""
    from airflow_provider_fds.stream.monitoring import explanation

    found = explanation.explain(
        _connected(arguments), partial(common.owner_runs, arguments), partial(common.has_dag, arguments)
    )
    if arguments.output == "json":
        print(json.dumps(found.to_dict()))
        return found.exit_code
    print(f"{found.name}: {found.condition.replace('_', ' ')}. {found.cause}")
    if found.evidence:
        print("\nEvidence:", *found.evidence, sep="\n  ")
    if found.commands:
        where = staging_option(arguments.staging)
        commands = [command if "--dry-run" in command else f"{command} {where}" for command, _ in found.commands]
        width = max(map(len, commands))
        # the effect is a comment, so that the whole line can be pasted into a shell
        lines = [f"{line:{width}}  # {effect}" for line, (_, effect) in zip(commands, found.commands, strict=True)]
        print("\nRun one of:" if len(lines) > 1 else "\nRun:", *lines, sep="\n  ")
    return found.exit_code


def _connected(arguments: argparse.Namespace) -> ConnectedStream:
    """Return the stream, of any owner."""
    from airflow_provider_fds.ledger.owner import Owner
    from airflow_provider_fds.stream.monitoring.all_statuses import open_stream

    ledger, _ = common.ledger_of(arguments)
    context = common.context_of(arguments, owner=Owner.of_plan(ledger.state.deployment))
    return open_stream(replace(context, places=common.places_for(arguments, ledger.state)), ledger)


def _one(arguments: argparse.Namespace) -> int:
    from airflow_provider_fds.stream.monitoring.status import status_of

    if arguments.full:
        import msgspec

        print(json.dumps(msgspec.to_builtins(common.ledger_of(arguments)[0].state), indent=2))
        return EXIT_OK
    found = status_of(_connected(arguments))
    if arguments.output == "json":
        print(json.dumps(found.to_dict()))
    else:
        from airflow_provider_fds.cli.status_text import describe_status
        from airflow_provider_fds.cli.terminal import fitted

        for label, text in describe_status(found):
            # the reason of a quarantine has several lines
            print(fitted(f"{label:{_LABEL}}{text}", _LABEL))
    return found.exit_code


def _all(arguments: argparse.Namespace) -> int:
    from airflow_provider_fds.cli.stream_table import plain_table, rich_table
    from airflow_provider_fds.cli.terminal import rich_console
    from airflow_provider_fds.stream.monitoring.metrics import exposition

    found, notes, problems = _of_file(arguments) if arguments.file is not None else (_of_staging(arguments), [], [])
    limit: timedelta | None = arguments.lagging
    bad = [
        one
        for one in found
        if one.needs_attention or (limit is not None and (one.lag_seconds or 0) > limit.total_seconds())
    ]
    shown = found if limit is None else bad
    if arguments.output == "json":
        for one in shown:
            print(json.dumps(one.to_dict()))
    elif arguments.output == "prometheus":
        print(exposition(shown), end="")
    elif shown:
        console = rich_console(on_stdout=True)
        if console is None:
            print(plain_table(shown))
        else:
            console.print(rich_table(shown, console.width))
        for one in shown:
            if one.problem is not None:
                print(f"{one.name}: [{one.reason_code}] {one.problem}", file=sys.stderr)
    else:
        none_bad = f"none of the {len(found)} streams needs attention or lags that long"
        print(none_bad if found else f"no streams found in {arguments.file or arguments.staging}")
    if arguments.output == "text":
        print(*notes, sep="\n", end="\n" if notes else "")
    for problem in problems:
        print(problem, file=sys.stderr)
    return EXIT_ATTENTION if bad or problems else EXIT_OK


def _of_staging(arguments: argparse.Namespace) -> list[StreamStatus]:
    from airflow_provider_fds.delta.storage.local import LocalStorage
    from airflow_provider_fds.ledger.owner import Owner
    from airflow_provider_fds.stream.monitoring.all_statuses import all_statuses

    context = common.context_of(arguments, owner=Owner.of_plan(arguments.deployment))
    found = list(all_statuses(context, partial(common.places_for, arguments)))
    folder = context.open_staging()
    if not found and isinstance(folder, LocalStorage) and not folder.root.exists():
        raise ConfigurationError(
            f"there is no folder {arguments.staging}. Check --staging; the first run of a stream makes the folder",
            reason=Reason.STREAM_NOT_FOUND,
        )
    return found


def _of_file(arguments: argparse.Namespace) -> tuple[list[StreamStatus], list[str], list[str]]:
    """Return the statuses, a line for each pattern, and what someone should know about their tables."""
    from airflow_provider_fds.cli.fleet import fleet
    from airflow_provider_fds.ledger.owner import Owner

    groups = list(fleet.find_fleet(arguments, dry_run=True))
    fleet.check_staging(arguments, [stream for group in groups for stream in group.streams])
    context = common.context_of(arguments, owner=Owner.of_plan(arguments.deployment))
    found = fleet.statuses(arguments, groups, context)
    return found, fleet.describe_patterns(groups), fleet.messages_of(groups)
