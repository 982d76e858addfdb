"""``fds recover``: shows what sink, ledger, checkpoint and Airflow record of a stream, and makes them agree."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_fds.checkpoint.variable import variable_key
from airflow_provider_fds.cli import arguments as common
from airflow_provider_fds.cli.confirmation import confirmed
from airflow_provider_fds.errors import EXIT_OK, CheckpointError
from airflow_provider_fds.fault_points import reach

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from airflow_provider_fds.ledger.staging.log import Ledger
    from airflow_provider_fds.stream.actions.recovery_survey import ReadableCheckpoint


def recover(arguments: argparse.Namespace) -> int:
    """Perform ``fds recover``."""
    from airflow_provider_fds.hooks.metadata import MetadataVariable
    from airflow_provider_fds.ledger.staging.log import Ledger
    from airflow_provider_fds.stream.actions.recovery_survey import fits, survey

    ledger = Ledger(common.open_folder(arguments, arguments.staging), arguments.stream)
    found = survey(
        ledger,
        arguments.why,
        open_table=partial(common.open_table, arguments),
        grant_database=getattr(arguments, "airflow_database", None) or (lambda _conn_id: None),
        deployment=arguments.deployment,
        sink_uri=arguments.sink,
        table=arguments.table,
        checkpoint=_checkpoint(arguments),
    )
    print("\n".join(found.lines))
    _show_checkpoints(arguments, ledger)
    change = found.prepare()
    steps = [] if change is None else [change.describe()]
    if arguments.checkpoint is not None:
        steps.append(f"checkpoint {arguments.checkpoint} is written again from the ledger")
    if arguments.airflow and (change is not None or not fits(MetadataVariable(arguments.stream), ledger)):
        steps.append("the Airflow Variable is removed if it does not match the ledger; the next run writes it")
    if not steps:
        what = "can be read" if found.account is None else "matches the sink"
        print(f"the ledger {what}; there is nothing to do")
        return EXIT_OK

    def act() -> Iterator[str]:
        if change is not None:
            yield found.perform(change, common.person(found.owner_of(change)))
        yield from _settle_checkpoints(arguments, ledger)

    return confirmed(arguments, "\n".join(steps), act)


def _checkpoint(arguments: argparse.Namespace) -> ReadableCheckpoint | None:
    """Return the requested checkpoint store, or ``None`` if none was requested."""
    from airflow_provider_fds.checkpoint.file import FileCheckpointStore
    from airflow_provider_fds.hooks.metadata import MetadataVariable

    if arguments.checkpoint is not None:
        return FileCheckpointStore(Path(arguments.checkpoint))
    return MetadataVariable(arguments.stream) if arguments.airflow else None


def _show_checkpoints(arguments: argparse.Namespace, ledger: Ledger) -> None:
    from airflow_provider_fds.checkpoint.file import FileCheckpointStore

    if arguments.checkpoint is not None:
        print(f"checkpoint: {_describe_checkpoint(FileCheckpointStore(Path(arguments.checkpoint)), ledger)}")
    elif not arguments.airflow:
        print("checkpoint: not checked (--checkpoint FILE, --airflow)")
    if arguments.airflow:
        _show_airflow(arguments.stream, ledger)


def _settle_checkpoints(arguments: argparse.Namespace, ledger: Ledger) -> Iterator[str]:
    """Write the checkpoint file, remove a Variable that contradicts the ledger, and say so."""
    from airflow_provider_fds.checkpoint.file import FileCheckpointStore
    from airflow_provider_fds.hooks.metadata import MetadataVariable
    from airflow_provider_fds.stream.actions.recovery_survey import fits

    if arguments.checkpoint is not None:
        path = Path(arguments.checkpoint)
        path.unlink(missing_ok=True)
        reach("recover.between")
        FileCheckpointStore(path).write(ledger.checkpoint())
        yield f"checkpoint {path} was written from ledger entry {ledger.n}"
    elif not arguments.airflow:
        yield (
            f"delete the Airflow Variable {variable_key(arguments.stream)} if it does not match (--airflow does "
            "so); the next run writes it again"
        )
    if not arguments.airflow:
        return
    variable = MetadataVariable(arguments.stream)
    if not fits(variable, ledger):
        variable.remove()
        yield f"{variable.home} was removed; the next run writes it from ledger entry {ledger.n}"


def _show_airflow(stream: str, ledger: Ledger) -> None:
    from airflow_provider_fds.hooks.metadata import MetadataVariable, newest_event
    from airflow_provider_fds.source.offset import describe_position

    print(f"variable:   {_describe_checkpoint(MetadataVariable(stream), ledger)}")
    event = newest_event(stream)
    if event is None:
        print("event:      none of this stream")
        return
    print(
        f"event:      epoch {event.epoch}, up to batch {event.last_batch_id}, {describe_position(event.end)}; "
        f"{event.when:%Y-%m-%d %H:%M:%S} UTC by {event.run}"
    )


def _describe_checkpoint(store: ReadableCheckpoint, ledger: Ledger) -> str:
    from airflow_provider_fds.source.offset import describe_position

    try:
        found = store.read()
    except CheckpointError as error:
        return str(error)
    if found is None:
        return "none"
    words = f"entry {found.n}, epoch {found.epoch}, {describe_position(found.offset)}"
    if ledger.n < 0:
        return words
    try:
        ledger.load(found)
    except CheckpointError as error:
        return f"{words}; {error}"
    return f"{words}, as in the ledger"
