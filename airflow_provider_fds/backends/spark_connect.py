"""Spark Connect: batches run from the process of the task, on a server that is already running."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_fds.backends.base import Application, ConnectionBackend, Outcome, UserArguments
from airflow_provider_fds.errors import ConfigurationError, ServerLostError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.spark.installation.cache import SparkSetupError
from airflow_provider_fds.spark.installation.install import client_problem
from airflow_provider_fds.spark.runtime.settings import conf_problems, setting_text
from airflow_provider_fds.spark.sessions.connect_job import ConnectJob
from airflow_provider_fds.spark.sessions.connect_server import ConnectServer, ServerUnfitError, ServerUnreachableError
from airflow_provider_fds.stream.attempt.driver_files import DriverFiles, driver_files
from airflow_provider_fds.stream.run.collecting import commit_reported, committing

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_fds.backends.base import SubmitTask
    from airflow_provider_fds.backends.fleet_application import FleetApplication
    from airflow_provider_fds.spark.sessions.connect_fleet import ConnectFleet

log = logging.getLogger(__name__)


@dataclass
class ConnectBackend(ConnectionBackend):
    """A Spark Connect server.

    Attributes:
        server: The server.
        arguments: The user's arguments.
        tell: Called with each line of output for people.
    """

    expects: ClassVar[str] = "its host and port are those of a running server"
    example: ClassVar[str] = (
        "--conn-type spark_connect --conn-host sc://HOST --conn-port 15002 --conn-password TOKEN "
        """--conn-extra '{"use_ssl": true}'"""
    )

    server: ConnectServer
    arguments: UserArguments
    tell: Callable[[str], None] = log.info
    _job: ConnectJob | ConnectFleet | None = field(default=None, init=False, repr=False)

    @classmethod
    def from_connection(
        cls,
        conn_id: str,
        connection: Any,
        arguments: UserArguments,
        task: SubmitTask | None = None,  # noqa: ARG003 - the server does not need it
    ) -> ConnectBackend:
        """Return the backend of a connection of type ``spark_connect``.

        Raises:
            ConfigurationError: The connection has no host, or an invalid one.
        """
        from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook

        if not connection.host:
            raise ConfigurationError(
                f"Spark Connect connection {conn_id!r} has no host. Its host and port are those of the server "
                "(sc://host, 15002 by default), its login is the user id, and its password is the token.",
                reason=Reason.CONNECTION_UNUSABLE,
            )
        try:
            url = SparkConnectHook(conn_id).get_connection_url()
        except ValueError:
            raise ConfigurationError(
                f"Spark Connect connection {conn_id!r} has the host {connection.host!r}, expected a host name, or "
                "sc://host, without a path.",
                reason=Reason.CONNECTION_UNUSABLE,
            ) from None
        return cls(ConnectServer(url, f"connection {conn_id!r}"), arguments)

    @classmethod
    def from_url(cls, url: str, arguments: UserArguments, tell: Callable[[str], None]) -> ConnectBackend:
        """Return the backend of ``--remote``.

        Raises:
            ConfigurationError: The URL is not one of a Spark Connect server.
        """
        if not url.startswith("sc://"):
            raise ConfigurationError(f"--remote must be sc://host:port, got {url.partition('/;')[0]!r}")
        return cls(ConnectServer(url, "--remote"), arguments, tell)

    def check(self) -> None:
        """Refuse arguments that only a driver can have, settings that lose rows, and a server that does not fit.

        A server that does not answer is no reason to fail a run that has nothing to load yet: the job finds that out.

        Raises:
            ConfigurationError: All problems of the configuration, or what is wrong with the server.
        """
        given = self.arguments.for_a_driver()
        problems = conf_problems(self.arguments.conf)
        if given:
            problems.append(
                f"{', '.join(given)} cannot be given with {self.server.name}, which is of type 'spark_connect': "
                "its server is already running. Configure the server that way, or use a connection of type 'spark'"
            )
        if "py_files" in given:
            problems.append(
                "With such a connection, this process imports a transform or function: put its folder on the "
                "worker's PYTHONPATH instead of using py_files"
            )
        if (problem := client_problem()) is not None:
            problems.append(problem)
        if problems:
            raise ConfigurationError(
                *problems, subject=f"Spark job of {self.server.name}", reason=Reason.SPARK_UNUSABLE
            )
        try:
            self.server.check_fit()
        except ServerUnreachableError as error:
            log.warning("Not checked before planning: %s", error)
        except (ServerUnfitError, SparkSetupError) as error:
            raise ConfigurationError(str(error), reason=Reason.SPARK_UNUSABLE) from None

    def run(self, application: Application) -> Outcome:
        """Run the job from this process, and commit each batch as soon as it is reported.

        Raises:
            ServerLostError: The server does not answer; retryable.
            ConfigurationError: The server's setup does not allow the job.
        """
        session, work = application.session, application.work
        job = ConnectJob(
            self.server,
            application.spec_uri,
            files=driver_files(session.connected, application.sink),
            conf={key: setting_text(value) for key, value in self.arguments.conf.items()},
            tell=self.tell,
        )
        self._job = job
        tell = application.on_commit or _ignore
        table = session.stream.table
        try:
            job.work(lambda _: tell(commit_reported(session, work)))
        except ServerUnreachableError as error:
            raise ServerLostError(str(error), error_class=Reason.SPARK_CONNECT_LOST, table=table) from None
        except ServerUnfitError as error:
            raise _unfit(error, table) from None
        return Outcome()

    def run_fleet(self, application: FleetApplication) -> Outcome:
        """Run the jobs of many streams from threads of this process, and commit batches as they are reported.

        Raises:
            ServerLostError: The server does not answer; retryable.
            ConfigurationError: The server's setup does not allow the jobs.
        """
        from airflow_provider_fds.spark.sessions.connect_fleet import ConnectFleet

        # the name of a stream is unique within the fleet
        files = {
            part.session.stream.name: driver_files(part.session.connected, part.sink) for part in application.parts
        }
        self._job = fleet = ConnectFleet(
            self.server,
            application.spec_uri,
            common=DriverFiles.union(files.values()),
            files=files,
            conf={key: setting_text(value) for key, value in self.arguments.conf.items()},
            tell=self.tell,
        )
        try:
            with committing(application.commit):
                fleet.work()
        except ServerUnreachableError as error:
            raise ServerLostError(str(error), error_class=Reason.SPARK_CONNECT_LOST) from None
        except ServerUnfitError as error:
            raise _unfit(error) from None
        return Outcome()

    def cancel(self) -> None:
        """Interrupt the server's work for the job or the fleet."""
        if self._job is not None:
            self._job.kill()

    def in_process(self) -> ConnectBackend:
        """Return this backend: its jobs run in this process anyway."""
        return self


def _unfit(error: ServerUnfitError, table: str | None = None) -> ConfigurationError:
    from airflow_provider_fds.spark.sessions.semantics import ServerDiffersError

    if isinstance(error, ServerDiffersError):
        return ConfigurationError(str(error), table=table, reason=Reason.SPARK_CONNECT_UNFAITHFUL)
    return ConfigurationError(str(error), table=table, reason=Reason.SPARK_UNUSABLE)


def _ignore(_: object) -> None:
    """Ignore a committed batch; it is already in the log."""
