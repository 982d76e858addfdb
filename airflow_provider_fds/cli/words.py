"""Commands by which a person gives a word that goes into the ledger: ``fds accept``, ``acknowledge`` and so on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.cli import arguments as common
from airflow_provider_fds.errors import EXIT_OK, ConfigurationError

if TYPE_CHECKING:
    import argparse


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``accept``, ``acknowledge``, ``resume`` and ``transfer``."""
    parser = commands.add_parser(
        "accept",
        help="take a blocked batch as it is in the sink",
        description="A batch whose rows in the sink are not those that were planned blocks its stream. Compare sink "
        "and source first; this command takes the batch as it is, and the next run goes on.",
    )
    _add_common(parser)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--batch", type=int, metavar="N", help="id of the blocked batch")
    which.add_argument("--interval", metavar="START/END", help="the blocked data interval, as the message names it")
    parser.set_defaults(command=accept)
    parser = commands.add_parser(
        "acknowledge",
        help="let a stream pass a version that it stops before",
        description="A change of the schema takes effect at the version: rows from before it are read with the old "
        "schema, rows from it on with the new one. Any other commit is passed over whole, with the reason on record. "
        "A quarantine before the version ends.",
    )
    _add_common(parser)
    parser.add_argument("--version", type=int, required=True, metavar="N", help="version of the table")
    parser.set_defaults(command=acknowledge)
    parser = commands.add_parser(
        "resume",
        help="let a stream in quarantine try again",
        description="The next run looks at the version again, with the options that the stream has then.",
    )
    _add_common(parser)
    parser.set_defaults(command=resume)
    parser = commands.add_parser(
        "transfer",
        help="give a stream to another Airflow installation",
        description="A stream belongs to one Airflow installation. After a move, give it to the one named by "
        "--deployment. Be sure that the old one does not run it any more.",
    )
    _add_common(parser)
    parser.set_defaults(command=transfer)


def accept(arguments: argparse.Namespace) -> int:
    """Perform ``fds accept``."""
    from airflow_provider_fds.ledger.entries import Accepted

    ledger, actor = common.ledger_of(arguments)
    if arguments.interval is not None:
        ledger.execute(Accepted(interval=arguments.interval, why=arguments.why), actor)
        print(f"{arguments.interval} of stream {arguments.stream!r} is taken as it is in the sink; now clear its task")
        return EXIT_OK
    ledger.execute(Accepted(epoch=ledger.state.epoch, batch_id=arguments.batch, why=arguments.why), actor)
    print(f"batch {arguments.batch} of stream {arguments.stream!r} is taken as it is in the sink; the next run goes on")
    return EXIT_OK


def acknowledge(arguments: argparse.Namespace) -> int:
    """Perform ``fds acknowledge``."""
    from airflow_provider_fds.ledger.entries import Acknowledged
    from airflow_provider_fds.source.offset import Offset

    ledger, actor = common.ledger_of(arguments)
    position = ledger.state.position
    if position is not None and arguments.version < Offset.from_json(position).version:
        raise ConfigurationError(
            f"stream {arguments.stream!r} stands at {position}, behind version {arguments.version}: it has passed it "
            "already, and nothing was done. Take the version from the message of the run that stopped"
        )
    ledger.execute(Acknowledged(version=arguments.version, why=arguments.why), actor)
    print(f"stream {arguments.stream!r} may pass version {arguments.version}; the next run goes on")
    return EXIT_OK


def resume(arguments: argparse.Namespace) -> int:
    """Perform ``fds resume``."""
    from airflow_provider_fds.ledger.entries import Resumed

    ledger, actor = common.ledger_of(arguments)
    was_paused = ledger.state.quarantined is not None or ledger.state.held is not None
    ledger.execute(Resumed(why=arguments.why), actor)
    print(f"stream {arguments.stream!r} " + ("goes on with its next run" if was_paused else "was not in quarantine"))
    return EXIT_OK


def transfer(arguments: argparse.Namespace) -> int:
    """Perform ``fds transfer``."""
    from airflow_provider_fds.ledger.entries import Transferred

    ledger, actor = common.ledger_of(arguments)
    before = ledger.state.deployment
    ledger.execute(Transferred(deployment=arguments.deployment, why=arguments.why), actor)
    print(f"stream {arguments.stream!r} belonged to deployment {before!r}, now to {ledger.state.deployment!r}")
    return EXIT_OK


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stream", metavar="STREAM", help="name of the stream")
    common.add_storage(parser, staging_required=True)
    parser.add_argument("--why", required=True, metavar="TEXT", help="the reason; it stays in the history")
