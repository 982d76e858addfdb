"""Commands by which a person gives a word that goes into the ledger: ``fds accept``, ``fds transfer``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.cli import arguments as common
from airflow_provider_fds.errors import EXIT_OK

if TYPE_CHECKING:
    import argparse


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add ``accept`` and ``transfer``."""
    parser = commands.add_parser(
        "accept",
        help="take a blocked batch as it is in the sink",
        description="A batch whose rows in the sink are not those that were planned blocks its stream. Compare sink "
        "and source first; this command takes the batch as it is, and the next run goes on.",
    )
    _add_common(parser)
    parser.add_argument("--batch", type=int, required=True, metavar="N", help="id of the blocked batch")
    parser.set_defaults(command=accept)
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
    from airflow_provider_fds.ledger.commands import Accept

    ledger, actor = common.ledger_of(arguments)
    ledger.execute(Accept(epoch=ledger.state.epoch, batch_id=arguments.batch, why=arguments.why), actor)
    print(f"batch {arguments.batch} of stream {arguments.stream!r} is taken as it is in the sink; the next run goes on")
    return EXIT_OK


def transfer(arguments: argparse.Namespace) -> int:
    """Perform ``fds transfer``."""
    from airflow_provider_fds.ledger.commands import Transfer

    ledger, actor = common.ledger_of(arguments)
    before = ledger.state.deployment
    ledger.execute(Transfer(deployment=arguments.deployment, why=arguments.why), actor)
    print(f"stream {arguments.stream!r} belonged to deployment {before!r}, now to {ledger.state.deployment!r}")
    return EXIT_OK


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("stream", metavar="STREAM", help="name of the stream")
    common.add_storage(parser, staging_required=True)
    parser.add_argument("--why", required=True, metavar="TEXT", help="the reason; it stays in the history")
