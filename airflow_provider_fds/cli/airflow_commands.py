"""``airflow fds …``: the ``fds`` command with the settings of this Airflow installation (Airflow 3.2 and newer).

Airflow imports this module whenever the ``airflow`` command starts, so it imports nothing of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse

    from airflow_provider_fds.catalog.table import Catalog
    from airflow_provider_fds.ledger.owner import Owner


def airflow_commands() -> list[Any]:
    """Return the commands that are added to ``airflow``."""
    from argparse import REMAINDER

    from airflow.cli import cli_config

    # it has no types
    make_argument: Any = cli_config.Arg
    words = make_argument(("arguments",), nargs=REMAINDER, metavar="COMMAND …", help="a command of fds")
    return [
        cli_config.ActionCommand(
            name="fds",
            help="Inspect and manage the streams of FDS",
            description="The fds command with the staging folder and the deployment of this installation (section "
            "fds of its configuration). `airflow fds help` lists the commands, `airflow fds status --help` shows the "
            "arguments of one of them.",
            func=run_fds,
            args=(words,),
        )
    ]


def run_fds(given: argparse.Namespace) -> None:
    """Perform a command of ``fds``, and end the process with its exit code."""
    import os
    import sys

    from airflow_provider_fds.cli.main import main

    for name, value in _settings().items():
        os.environ.setdefault(name, value)
    arguments = ["--help"] if given.arguments in ([], ["help"]) else given.arguments
    sys.exit(
        main(
            arguments,
            program="airflow fds",
            airflow_owner_is_running=_is_running,
            airflow_has_dag=_has_dag,
            airflow_catalog=_catalog,
            airflow_database=_grant_database,
        )
    )


def _is_running(owner: Owner) -> bool:
    from airflow_provider_fds.hooks.settings import deployment
    from airflow_provider_fds.ui.owners import owner_runs

    return bool(owner_runs(deployment())(owner))


def _has_dag(dag_id: str) -> bool:
    from airflow_provider_fds.ui.dags import KnownDags

    return KnownDags().has(dag_id)


def _catalog(conn_id: str) -> Catalog:
    from airflow_provider_fds.hooks.catalogs import catalog_of

    return catalog_of(conn_id)


def _grant_database(conn_id: str | None) -> None:
    from airflow_provider_fds.hooks.databases import grant_database

    grant_database(conn_id)


def _settings() -> dict[str, str]:
    """Return the settings of the section ``[fds]`` as ``fds`` reads them, in the environment."""
    from contextlib import suppress

    from airflow_provider_fds.errors import ConfigurationError
    from airflow_provider_fds.hooks.settings import deployment, staging_uri

    found = {"AIRFLOW__FDS__DEPLOYMENT": deployment()}
    # none is configured: the command asks for --staging
    with suppress(ConfigurationError):
        found["AIRFLOW__FDS__STAGING"] = staging_uri(None, "")
    return found
