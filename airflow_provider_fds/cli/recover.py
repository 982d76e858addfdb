"""``fds recover``: what sink, ledger and checkpoint say of a stream, and the best of them written into the others."""

from __future__ import annotations

import getpass
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_fds.cli import arguments as common
from airflow_provider_fds.errors import EXIT_OK, CheckpointError, ConfigurationError

if TYPE_CHECKING:
    import argparse

    from airflow_provider_fds.ledger.log import Ledger


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``recover``."""
    parser = commands.add_parser(
        "recover",
        help="show what sink, ledger and checkpoint say of a stream, and repair it",
        description="Shows what the sink's commits, the ledger in staging and the checkpoint say. A ledger that was "
        "lost (--table names the source then), or is older than the sink, is continued behind the last batch that "
        "the sink has; a checkpoint that is lost or does not fit is written from the ledger.",
    )
    parser.add_argument("stream", metavar="STREAM", help="name of the stream")
    common.add_storage(parser, staging_required=True)
    parser.add_argument("--sink", metavar="URI", help="the sink to ask (default: the one in the ledger)")
    parser.add_argument("--table", metavar="URI", help="the source, for a stream without a ledger")
    parser.add_argument("--checkpoint", metavar="FILE", help="file that holds the committed offset")
    parser.add_argument("--why", default="fds recover", metavar="TEXT", help="the reason; it stays in the history")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.set_defaults(command=recover)


def recover(arguments: argparse.Namespace) -> int:
    """Perform ``fds recover``."""
    from airflow_provider_fds.delta.open import canonical_uri, open_storage
    from airflow_provider_fds.ledger.entries import Actor
    from airflow_provider_fds.ledger.log import Ledger
    from airflow_provider_fds.stream.moving import perform, position_words
    from airflow_provider_fds.stream.recovery import ask_sink, recovery

    options = common.pairs(arguments.storage_option, "--storage-option")
    ledger = Ledger(open_storage(arguments.staging, options), arguments.stream)
    state = ledger.find()
    if state.phase == "empty":
        print("ledger:     there is none")
    else:
        position = state.position or (state.closed.position if state.closed is not None else None)
        print(f"ledger:     entry {ledger.n}, epoch {state.epoch}, {position_words(position)}")
    target = arguments.sink or (state.sink.target if state.sink is not None else None)
    account = None
    if target:
        account = ask_sink(open_storage(target, options), arguments.stream, state.uuid or None)
        print(f"sink:       {account.words() if account is not None else 'has no batch of this stream'}")
    print(f"checkpoint: {_checkpoint_words(arguments.checkpoint, ledger)}")
    if state.phase == "empty" and (account is None or not arguments.table):
        raise ConfigurationError(
            f"stream {arguments.stream!r} has no ledger in {arguments.staging}, and nothing was done. If staging is "
            "another "
            "folder, name it; if it was lost, name the sink and the source: --sink URI --table URI"
        )
    deployment = state.deployment or arguments.deployment
    move = None
    if account is not None:
        table = canonical_uri(arguments.table) if arguments.table else state.table
        move = recovery(ledger, account, table=table, deployment=deployment, why=arguments.why)
    if move is not None:
        print(move.words())
        if not arguments.yes and not common.agrees():
            print("nothing was done")
            return EXIT_OK
        print(perform(ledger, move, Actor(deployment=deployment, user=getpass.getuser(), host=socket.gethostname())))
    if arguments.checkpoint:
        _write_checkpoint(Path(arguments.checkpoint), ledger)
    else:
        print(f"an Airflow Variable fds.{arguments.stream} that does not fit: delete it, the next run writes it anew")
    return EXIT_OK


def _checkpoint_words(path: str | None, ledger: Ledger) -> str:
    if path is None:
        return "not asked (--checkpoint FILE)"
    from airflow_provider_fds.checkpoint.file import FileCheckpointStore
    from airflow_provider_fds.stream.moving import position_words

    try:
        found = FileCheckpointStore(Path(path)).read()
    except CheckpointError as error:
        return str(error)
    if found is None:
        return "there is none"
    words = f"entry {found.n}, epoch {found.epoch}, {position_words(found.offset)}"
    if ledger.n < 0:
        return words
    try:
        ledger.load(found)
    except CheckpointError as error:
        return f"{words}; {error}"
    return f"{words}, as the ledger has it"


def _write_checkpoint(path: Path, ledger: Ledger) -> None:
    from airflow_provider_fds.checkpoint.file import FileCheckpointStore

    path.unlink(missing_ok=True)
    FileCheckpointStore(path).write(ledger.checkpoint())
    print(f"checkpoint {path} is written from ledger entry {ledger.n}")
