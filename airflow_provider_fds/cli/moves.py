"""Commands that move a stream: ``fds rewind``, ``reset``, ``replan``, ``rebind``, ``skip``, ``retire`` and the like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airflow_provider_fds.cli import arguments as common
from airflow_provider_fds.errors import EXIT_OK, ConfigurationError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from airflow_provider_fds.ledger.entries import Owner
    from airflow_provider_fds.stream.moving import Move, Mover

#: Command -> its line in the help, and what it does.
_COMMANDS: Final = {
    "rewind": (
        "let a stream read again from an earlier position on",
        (
            "A new epoch of the stream begins at the version, at the first commit at or after the time, or where "
            "the batch "
            "began. The next run closes the old epoch in the sink first, so that nothing of it lands any more. Rows "
            "that "
            "the sink has already are loaded again: the command shows how many, and the statements that take them out."
        ),
    ),
    "reset": (
        "let a stream begin anew, as its start options say",
        "A new epoch begins like a new stream. Rows that the sink has already are loaded again.",
    ),
    "replan": (
        "give up planned batches, and plan anew from the committed position",
        (
            "The way out of a planned batch that cannot be loaded (too large for the cluster, a file that is gone). "
            "The "
            "next run closes the old epoch in the sink, looks which of the planned batches are there, and goes on "
            "behind them."
        ),
    ),
    "rebind": (
        "let a stream go on into another sink",
        "The stream keeps its position; its next run binds it to the sink it has then. Rows of before stay there.",
    ),
    "skip": (
        "leave out a version",
        "All that it holds, or several (`3-7`) hold, is passed over; the history says so, with the reason.",
    ),
    "retire": (
        "end a stream for good",
        "No run can work the stream any more, and its name cannot be used again. Nothing is removed.",
    ),
}


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands."""
    for name, (text, description) in _COMMANDS.items():
        parser = commands.add_parser(name, help=text, description=description)
        _add_common(parser)
        if name == "rewind":
            target = parser.add_mutually_exclusive_group(required=True)
            target.add_argument("--to-version", type=int, metavar="N", help="first version to read (inclusive)")
            target.add_argument(
                "--to-timestamp",
                metavar="TIME",
                help="read from the first commit at or after it; UTC without a zone",
            )
            target.add_argument("--to-batch", type=int, metavar="N", help="read from where this batch began")
            parser.add_argument(
                "--delete",
                action="store_true",
                help="let the next run delete the rows that are read again, in the transaction that closes the old "
                "epoch; the sink needs provenance",
            )
        if name in ("rewind", "reset"):
            parser.add_argument(
                "--sink",
                choices=("keep", "empty"),
                help="what becomes of the rows in the sink: empty removes all (with scd=2: closes the current ones) in "
                "the transaction that closes the old epoch; needed for a sink that merges",
            )
            parser.add_argument(
                "--force-sink",
                action="store_true",
                help="with --delete or --sink empty: although others have written to the sink",
            )
        if name == "skip":
            parser.add_argument(
                "--version", type=_versions, required=True, metavar="N[-M]", help="version of the table, or several"
            )
        if name in ("rewind", "replan", "rebind"):
            parser.add_argument(
                "--landed",
                type=_landed_of,
                metavar="yes|no|WRITE=yes,WRITE=no",
                help="a job or function of your own: whether the planned batch is in its table, of a function by write",
            )
        if name in ("rewind", "reset", "replan", "rebind"):
            parser.add_argument("--replace", action="store_true", help="instead of a request that waits for its run")
            parser.add_argument(
                "--force",
                action="store_true",
                help="a job or function of your own: it does not run any more, for sure",
            )
        parser.add_argument("--yes", action="store_true", help="do not ask")
        parser.set_defaults(command=move, name=name)
    parser = commands.add_parser(
        "hold",
        help="pause a stream",
        description="Until `fds resume` nothing new is planned, and no epoch that was asked for begins; "
        "what is planned may still be loaded.",
    )
    _add_common(parser)
    parser.set_defaults(command=hold)
    parser = commands.add_parser(
        "adopt",
        help="free planned batches from an owner that is gone",
        description="Planned batches belong to one run. Where that run is gone and nobody can know it (another "
        "machine, an Airflow that is not there any more), this lets the next run take them over.",
    )
    _add_common(parser)
    parser.add_argument("--force", action="store_true", help="although the owner counts as running here")
    parser.set_defaults(command=adopt)


def move(arguments: argparse.Namespace) -> int:
    """Perform ``fds rewind`` and the like: show, ask, write."""
    from airflow_provider_fds.delta.log import DeltaLog
    from airflow_provider_fds.delta.open import open_storage
    from airflow_provider_fds.stream.moving import Mover, is_answered, perform, readable, readable_sink

    ledger, actor = common.ledger_of(arguments)
    if arguments.request_id is not None and is_answered(ledger, arguments.request_id):
        print(f"stream {arguments.stream}: request {arguments.request_id!r} was made before; nothing is done again")
        return EXIT_OK
    options = common.pairs(arguments.storage_option, "--storage-option")
    table = open_storage(ledger.state.table, options)
    mover = Mover(
        ledger,
        arguments.why,
        replaces=getattr(arguments, "replace", False),
        log=readable(DeltaLog(table)),
        sink_log=readable_sink(ledger.state, lambda uri: open_storage(uri, options)),
        owner_is_running=_is_running(arguments),
        open_table=lambda uri: open_storage(uri, common.pairs(arguments.storage_option, "--storage-option")),
    )
    asked = _MOVES[arguments.name](mover, arguments)
    print(asked.words())
    if not arguments.yes and not common.agrees():
        print("nothing was done")
        return EXIT_OK
    print(perform(ledger, asked, actor, arguments.request_id))
    return EXIT_OK


def hold(arguments: argparse.Namespace) -> int:
    """Perform ``fds hold``."""
    from airflow_provider_fds.ledger.entries import Held

    ledger, actor = common.ledger_of(arguments)
    entry = ledger.execute(Held(why=arguments.why), actor, arguments.request_id)
    print(f"stream {arguments.stream!r} " + ("was held already" if entry is None else "is held until `fds resume`"))
    return EXIT_OK


def adopt(arguments: argparse.Namespace) -> int:
    """Perform ``fds adopt``."""
    from airflow_provider_fds.ledger.entries import Claimed
    from airflow_provider_fds.ledger.owner import Owner

    ledger, actor = common.ledger_of(arguments)
    state = ledger.state
    owner = state.owner
    if owner is None:
        print(f"stream {arguments.stream!r} has no planned batches; nothing was done")
        return EXIT_OK
    if _is_running(arguments)(owner):
        raise ConfigurationError(
            f"the planned batches of stream {arguments.stream!r} belong to {owner.words()}, which counts as "
            "running here. If it is gone for sure: --force"
        )
    new = Owner.of_plan(state.deployment)
    ledger.execute(
        Claimed(epoch=state.epoch, owner=new, previous=owner, why=arguments.why), actor, arguments.request_id
    )
    print(f"the next run of stream {arguments.stream!r} takes over {len(state.planned)} planned batches")
    return EXIT_OK


def _rewind(mover: Mover, arguments: argparse.Namespace) -> Move:
    return mover.rewind(
        to_version=arguments.to_version,
        to_timestamp=arguments.to_timestamp,
        to_batch=arguments.to_batch,
        landed=_landed(arguments),
        delete=arguments.delete,
        sink=arguments.sink,
        force_sink=arguments.force_sink,
    )


_MOVES: Final[dict[str, Callable[[Mover, argparse.Namespace], Move]]] = {
    "rewind": _rewind,
    "reset": lambda mover, arguments: mover.reset(sink=arguments.sink, force_sink=arguments.force_sink),
    "replan": lambda mover, arguments: mover.replan(landed=_landed(arguments)),
    "rebind": lambda mover, arguments: mover.rebind(landed=_landed(arguments)),
    "skip": lambda mover, arguments: mover.skip(*arguments.version),
    "retire": lambda mover, _: mover.retire(),
}


def _landed_of(text: str) -> bool | dict[str, bool]:
    from argparse import ArgumentTypeError

    from airflow_provider_fds.stream.function_writes import landed_of

    try:
        return landed_of(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None


def _versions(text: str) -> tuple[int, ...]:
    first, dash, last = text.partition("-")
    return (int(first), int(last)) if dash else (int(first),)


def _landed(arguments: argparse.Namespace) -> bool | dict[str, bool] | None:
    found: bool | dict[str, bool] | None = arguments.landed
    return found


def _is_running(arguments: argparse.Namespace) -> Callable[[Owner], bool]:
    if getattr(arguments, "force", False):
        return lambda _owner: False
    return common.owner_is_running


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stream", metavar="STREAM", help="name of the stream")
    common.add_storage(parser, staging_required=True)
    parser.add_argument("--why", required=True, metavar="TEXT", help="the reason; it stays in the history")
    parser.add_argument("--request-id", metavar="ID", help="name of this request; repeated, it is done once")
