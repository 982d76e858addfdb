"""Spark inside the task: the JVM is a child of this process, so that the job can call a function of the DAG file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_fds.backends.base import Application, Outcome, SparkBackend, UserArguments
from airflow_provider_fds.backends.spark_master import SparkMaster, application_arguments, check_master, submitted
from airflow_provider_fds.errors import ConfigurationError, FdsError
from airflow_provider_fds.fault_points import reach
from airflow_provider_fds.hooks.settings import cache_dir
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.spark.sessions.session_job import SessionJob
from airflow_provider_fds.stream.run.collecting import commit_reported

if TYPE_CHECKING:
    from airflow_provider_fds.spark.installation.own_spark import OwnSpark


@dataclass(frozen=True)
class SessionMaster(SparkMaster):
    """A master whose driver is always that of the installed pyspark, in client mode."""

    def own_spark(self, given: UserArguments) -> OwnSpark | None:  # noqa: ARG002
        """Return ``None``: a session of this process uses the installed pyspark."""
        return None


@dataclass
class SessionBackend(SparkBackend):
    """The Spark of the installed pyspark, in client mode, started inside this process for each application."""

    given_master: SparkMaster
    arguments: UserArguments
    _job: SessionJob | None = field(default=None, init=False, repr=False)

    @property
    def master(self) -> SessionMaster:
        """Where the executors run."""
        given = self.given_master
        return SessionMaster(given.conn_id, given.master, given.deploy_mode, given.binary)

    def check(self) -> None:
        """Refuse what only spark-submit supports, and check machine, versions and settings.

        Raises:
            ConfigurationError: Reports all problems at once.
        """
        problems = []
        master = self.master
        names = [name for name in self.arguments.for_a_driver() if name != "conf_by_size"]
        if names:
            problems.append(
                f"{', '.join(names)} cannot be given: Spark is started inside the task, not by spark-submit. Use "
                "settings in conf instead (spark.jars, spark.driver.memory …)"
            )
        if master.deploy_mode not in (None, "client"):
            problems.append(
                f"connection {master.conn_id!r} has deploy-mode {master.deploy_mode!r}: the driver of a function "
                "is this task's process. Omit it, or use 'client'"
            )
        if master.binary is not None and not names:
            problems.append(
                f"connection {master.conn_id!r} names a spark-submit (spark-binary), but this task uses the Spark "
                "of the installed pyspark. Use a connection without spark-binary"
            )
        if problems:
            raise ConfigurationError(
                *problems, subject=f"Spark session of connection {master.conn_id!r}", reason=Reason.SPARK_UNUSABLE
            )
        check_master(master, self.arguments)

    def run(self, application: Application) -> Outcome:
        """Run the job in this process, and commit each batch as soon as it is reported."""
        made = application_arguments(self.master, application, self.arguments)
        reach("submit.before")
        try:
            with submitted(self.master, made, cache_dir()) as arguments:
                self._job = job = SessionJob(arguments, application.spec_uri, application.name)
                job.work(lambda _: commit_reported(application.session, application.work))
        except FdsError:
            raise
        except Exception as error:  # noqa: BLE001  # however Spark ended, the reports say what it has done
            return Outcome(AirflowException(f"{type(error).__name__}: {error}"))
        reach("submit.after")
        return Outcome()

    def cancel(self) -> None:
        """End the JVM."""
        if self._job is not None:
            self._job.kill()

    def in_process(self) -> SparkBackend:
        """Return this backend."""
        return self
