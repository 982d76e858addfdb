"""``fds recover``: what sink, ledger, checkpoint and Airflow say of a stream; the best is written into the others."""

from __future__ import annotations

import getpass
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from airflow_provider_fds.checkpoint.variable import variable_key
from airflow_provider_fds.cli import arguments as common
from airflow_provider_fds.errors import EXIT_OK, CheckpointError, ConfigurationError, UnreadableEntryError
from airflow_provider_fds.fault_points import reach

if TYPE_CHECKING:
    import argparse

    from airflow_provider_fds.ledger.log import Ledger
    from airflow_provider_fds.ledger.position import Checkpoint
    from airflow_provider_fds.stream.move import Move
    from airflow_provider_fds.stream.recovery import SinkAccount
    from airflow_provider_fds.stream.repair import LedgerDamage

    class _Readable(Protocol):
        def read(self) -> Checkpoint | None: ...


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``recover``."""
    parser = commands.add_parser(
        "recover",
        help="show what sink, ledger, checkpoint and Airflow record about a stream, and repair it",
        description="Show what the sink's commits, the ledger in staging, the checkpoint and (--airflow) Airflow's "
        "asset events record. A ledger that was lost (use --table to name the source), is older than the sink, or has "
        "unreadable entries continues after the last batch in the sink. Unreadable entries are listed with what is "
        "lost. A checkpoint file that is missing or does not match is written again from the ledger; a Variable that "
        "does not match is removed, and the next run writes it.",
    )
    parser.add_argument("stream", metavar="STREAM", help="name of the stream")
    common.add_storage(parser, staging_required=True)
    parser.add_argument("--sink", metavar="URI", help="the sink to read (default: the one in the ledger)")
    parser.add_argument("--table", metavar="URI", help="the source, for a stream without a ledger")
    parser.add_argument("--checkpoint", metavar="FILE", help="file that holds the committed offset")
    parser.add_argument(
        "--airflow", action="store_true", help="also read the Variable and the asset events from Airflow's database"
    )
    parser.add_argument("--why", default="fds recover", metavar="TEXT", help="the reason; recorded in the history")
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    parser.set_defaults(command=recover)


def recover(arguments: argparse.Namespace) -> int:
    """Perform ``fds recover``."""
    from airflow_provider_fds.delta.open import open_storage
    from airflow_provider_fds.ledger.log import Ledger
    from airflow_provider_fds.ledger.owner import Actor
    from airflow_provider_fds.stream.move import describe_position, perform
    from airflow_provider_fds.stream.recovery import ask_checkpoint, ask_sink
    from airflow_provider_fds.stream.repair import inspect

    options = common.pairs(arguments.storage_option, "--storage-option")
    ledger = Ledger(open_storage(arguments.staging, options), arguments.stream)
    damage = inspect(ledger)
    try:
        state = ledger.find()
    except UnreadableEntryError as error:
        if error.is_newer:
            raise
        return _repair(arguments, ledger, damage)
    if state.phase == "empty":
        print("ledger:     there is none")
    else:
        position = state.position or (state.closed.position if state.closed is not None else None)
        print(f"ledger:     entry {ledger.n}, epoch {state.epoch}, {describe_position(position)}")
    _show_damage(damage)
    if any(one.n > damage.begun_again for one in damage.unreadable):
        print("            a fold of a later entry has what it came to: only its line of the history is lost")
    target = arguments.sink or (state.sink.target if state.sink is not None else None)
    account = None
    if target:
        sink = open_storage(target, options)
        account = ask_sink(sink, arguments.stream, state.uuid or None)
        if account is None and state.phase == "empty" and (checkpoint := _checkpoint(arguments)) is not None:
            account = ask_checkpoint(sink, checkpoint)
        print(f"sink:       {account.describe() if account is not None else 'has no batch of this stream'}")
    _show_checkpoints(arguments, ledger)
    move = _move(arguments, ledger, account)
    if move is not None:
        print(move.describe())
        if not arguments.yes and not common.agrees():
            print("nothing was done")
            return EXIT_OK
        actor = Actor(
            deployment=state.deployment or arguments.deployment, user=getpass.getuser(), host=socket.gethostname()
        )
        reach("recover.before")
        print(perform(ledger, move, actor))
    _settle_checkpoints(arguments, ledger, agreed=arguments.yes or move is not None)
    return EXIT_OK


def _repair(arguments: argparse.Namespace, ledger: Ledger, damage: LedgerDamage) -> int:
    """Begin a ledger again that cannot be read, after what its sink has."""
    from airflow_provider_fds.delta.open import canonical_uri, open_storage
    from airflow_provider_fds.ledger.owner import Actor
    from airflow_provider_fds.stream.recovery import ask_sink
    from airflow_provider_fds.stream.repair import known_sink, known_uuid, repair

    print("ledger:     cannot be read")
    _show_damage(damage)
    target = arguments.sink or known_sink(damage)
    account = None
    if target:
        options = common.pairs(arguments.storage_option, "--storage-option")
        account = ask_sink(open_storage(target, options), arguments.stream, known_uuid(damage))
        print(f"sink:       {account.describe() if account is not None else 'has no batch of this stream'}")
    _show_checkpoints(arguments, ledger)
    found = repair(
        ledger,
        damage,
        account,
        table=canonical_uri(arguments.table) if arguments.table else None,
        deployment=arguments.deployment,
        is_sink_named=arguments.sink is not None,
        checkpoint=_checkpoint(arguments),
    )
    print(found.describe())
    if not arguments.yes and not common.agrees():
        print("nothing was done")
        return EXIT_OK
    actor = Actor(deployment=found.created.deployment, user=getpass.getuser(), host=socket.gethostname())
    reach("recover.before")
    print(found.perform(ledger, actor))
    _settle_checkpoints(arguments, ledger, agreed=True)
    return EXIT_OK


def _show_damage(damage: LedgerDamage) -> None:
    for line in damage.describe():
        print(f"            {line}")


def _checkpoint(arguments: argparse.Namespace) -> Checkpoint | None:
    """Return the checkpoint that was asked for, ``None`` if there is none that can be read."""
    from airflow_provider_fds.checkpoint.file import FileCheckpointStore
    from airflow_provider_fds.hooks.metadata import MetadataVariable

    store: _Readable | None = None
    if arguments.checkpoint is not None:
        store = FileCheckpointStore(Path(arguments.checkpoint))
    elif arguments.airflow:
        store = MetadataVariable(arguments.stream)
    try:
        return None if store is None else store.read()
    except CheckpointError:
        return None


def _move(arguments: argparse.Namespace, ledger: Ledger, account: SinkAccount | None) -> Move | None:
    """Return what brings the ledger to where the sink is, ``None`` if it is there."""
    from airflow_provider_fds.delta.open import canonical_uri
    from airflow_provider_fds.stream.recovery import recovery

    state = ledger.state
    if state.phase == "empty" and account is None and arguments.sink and arguments.table:
        raise ConfigurationError(
            f"stream {arguments.stream!r} has no ledger in {arguments.staging}, and nothing was done: the commits of "
            f"{arguments.sink} name no batch of it, and its newest transaction is not that of a checkpoint. If log "
            "cleanup removed the commits, name the checkpoint (--checkpoint FILE, or --airflow); otherwise restore a "
            "copy of the staging folder, or load everything under another name of the stream into an empty sink"
        )
    if state.phase == "empty" and (account is None or not arguments.table):
        raise ConfigurationError(
            f"stream {arguments.stream!r} has no ledger in {arguments.staging}, and nothing was done. If staging is "
            "another folder, name it; if it was lost, name the sink and the source: --sink URI --table URI"
        )
    if account is None:
        return None
    return recovery(
        ledger,
        account,
        table=canonical_uri(arguments.table) if arguments.table else state.table,
        deployment=state.deployment or arguments.deployment,
        why=arguments.why,
    )


def _show_checkpoints(arguments: argparse.Namespace, ledger: Ledger) -> None:
    from airflow_provider_fds.checkpoint.file import FileCheckpointStore

    if arguments.checkpoint is not None:
        print(f"checkpoint: {_describe_checkpoint(FileCheckpointStore(Path(arguments.checkpoint)), ledger)}")
    elif not arguments.airflow:
        print("checkpoint: not asked (--checkpoint FILE, --airflow)")
    if arguments.airflow:
        _show_airflow(arguments.stream, ledger)


def _settle_checkpoints(arguments: argparse.Namespace, ledger: Ledger, *, agreed: bool) -> None:
    """Write the checkpoint file, and remove a Variable that contradicts the ledger."""
    from airflow_provider_fds.checkpoint.file import FileCheckpointStore
    from airflow_provider_fds.hooks.metadata import MetadataVariable

    if arguments.checkpoint is not None:
        path = Path(arguments.checkpoint)
        path.unlink(missing_ok=True)
        reach("recover.between")
        FileCheckpointStore(path).write(ledger.checkpoint())
        print(f"checkpoint {path} is written from ledger entry {ledger.n}")
    elif not arguments.airflow:
        print(
            f"an Airflow Variable {variable_key(arguments.stream)} that does not fit: delete it (--airflow does), the "
            "next run writes it anew"
        )
    if not arguments.airflow:
        return
    variable = MetadataVariable(arguments.stream)
    if not _fits(variable, ledger) and (agreed or common.agrees()):
        variable.remove()
        print(f"{variable.home} is removed; the next run writes it from ledger entry {ledger.n}")


def _show_airflow(stream: str, ledger: Ledger) -> None:
    from airflow_provider_fds.hooks.metadata import MetadataVariable, newest_event
    from airflow_provider_fds.stream.move import describe_position

    print(f"variable:   {_describe_checkpoint(MetadataVariable(stream), ledger)}")
    event = newest_event(stream)
    if event is None:
        print("event:      there is none of this stream")
        return
    print(
        f"event:      epoch {event.epoch}, up to batch {event.last_batch_id}, {describe_position(event.end)}; "
        f"{event.when:%Y-%m-%d %H:%M:%S} UTC by {event.run}"
    )


def _describe_checkpoint(store: _Readable, ledger: Ledger) -> str:
    from airflow_provider_fds.stream.move import describe_position

    try:
        found = store.read()
    except CheckpointError as error:
        return str(error)
    if found is None:
        return "there is none"
    words = f"entry {found.n}, epoch {found.epoch}, {describe_position(found.offset)}"
    if ledger.n < 0:
        return words
    try:
        ledger.load(found)
    except CheckpointError as error:
        return f"{words}; {error}"
    return f"{words}, as the ledger has it"


def _fits(store: _Readable, ledger: Ledger) -> bool:
    """Whether the checkpoint is absent or consistent with the ledger."""
    try:
        found = store.read()
        if found is not None:
            ledger.load(found)
    except CheckpointError:
        return False
    return True
