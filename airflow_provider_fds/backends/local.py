"""spark-submit on this machine, as a child of this process: the backend of ``fds run``."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.backends.base import Application, Outcome, SparkBackend, UserArguments
from airflow_provider_fds.backends.fleet_application import FleetApplication
from airflow_provider_fds.backends.job_storage import vended_credentials
from airflow_provider_fds.backends.lingering_driver import LingeringDriver
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.spark.installation.cache import SparkSetupError
from airflow_provider_fds.spark.installation.install import brought_delta_problems, java_problem, spark_problem
from airflow_provider_fds.spark.installation.own_spark import OwnSpark, choose_spark, own_delta_problems
from airflow_provider_fds.spark.runtime.settings import FLEET_CONF, master_problem
from airflow_provider_fds.spark.submission import launch
from airflow_provider_fds.stream.run.collecting import collecting, committing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream.run.session import StreamSession

#: Lines of a Spark that ended without a word of the job.
_LAST_LINES: Final = 15


class SparkEndedError(Exception):
    """Spark ended before the job could say how; the message has its exit code and its last lines."""


@dataclass
class LocalBackend(SparkBackend):
    """The Spark of the installed pyspark or the user's own, in client mode.

    An exception that ends the wait also ends Spark.
    """

    master: str
    arguments: UserArguments
    tell: Callable[[str], None]
    _end: Callable[[], object] | None = field(default=None, init=False, repr=False)
    _lingering: LingeringDriver | None = field(default=None, init=False, repr=False)

    def check(self) -> None:
        """Refuse a machine on which Spark cannot start, and incompatible versions."""
        if (problem := master_problem(self.master)) is not None:
            raise ConfigurationError(problem, reason=Reason.SPARK_UNUSABLE)
        conf, delta_version = self.arguments.conf, self.arguments.delta_version
        brought = [conf.get(name) for name in ("spark.jars.packages", "spark.jars", "spark.driver.extraClassPath")]
        spark = self._own_spark()
        if spark is not None:
            problems = own_delta_problems(spark, brought, delta_version)
        else:
            problems = [problem for problem in (java_problem(), spark_problem()) if problem is not None]
            problems += [] if delta_version else brought_delta_problems(*brought)
        if problems:
            raise ConfigurationError(*problems, subject="Spark on this machine", reason=Reason.SPARK_UNUSABLE)

    def _own_spark(self) -> OwnSpark | None:
        try:
            return choose_spark(self.master, self.arguments.spark_binary)
        except SparkSetupError as error:
            raise ConfigurationError(
                str(error), subject="Spark on this machine", reason=Reason.SPARK_UNUSABLE
            ) from error

    def run(self, application: Application) -> Outcome:
        """Run spark-submit, and commit batches as they are reported."""
        if self._lingering is not None and application.work.batches:
            return self._lingering.run(application)
        with collecting(application.session, application.work, application.on_commit, end=self.cancel) as was_ended:
            return self._run(application, self._conf(application), was_ended)

    def lingering(self) -> LingeringDriver:
        """Let spark-submit stay, and take the next job of the run."""
        self._lingering = LingeringDriver(self._start, self.cancel)
        return self._lingering

    def _start(self, application: Application | FleetApplication) -> Outcome:
        return self._run(application, self._conf(application), threading.Event())

    def _conf(self, application: Application | FleetApplication) -> dict[str, Any]:
        shared = FLEET_CONF if isinstance(application, FleetApplication) else {}
        return {**shared, **application.conf, **self.arguments.conf}

    def run_fleet(self, application: FleetApplication) -> Outcome:
        """Run spark-submit for the jobs of many streams, and commit batches as they are reported."""
        if self._lingering is not None:
            return self._lingering.run(application)
        with committing(application.commit, end=self.cancel) as was_ended:
            return self._run(application, self._conf(application), was_ended)

    def apart(self, session: StreamSession, sink: Sink) -> object | None:
        """Return the credentials of a catalog with which Spark reads the table of a stream, if it does."""
        try:
            given = self.arguments
            return vended_credentials(session, sink, given.conf, given.properties_file, self._own_spark)
        except SparkSetupError as error:
            raise ConfigurationError(str(error), reason=Reason.SPARK_UNUSABLE) from error

    def _run(
        self, application: Application | FleetApplication, conf: Mapping[str, Any], was_ended: threading.Event
    ) -> Outcome:
        lines: deque[str] = deque(maxlen=_LAST_LINES)

        def tell(line: str) -> None:
            lines.append(line)
            self.tell(line)

        try:
            code = launch.run_locally(
                application.spec_uri,
                master=self.master,
                conf=conf,
                on_line=tell,
                on_start=self._started,
                storage=application.storage(),
                num_bytes=application.num_bytes,
                own_spark=self._own_spark(),
                delta_version=self.arguments.delta_version,
            )
        except SparkSetupError as error:
            raise ConfigurationError(str(error), reason=Reason.SPARK_UNUSABLE) from error
        if code in launch.SAID_BY_THE_JOB or was_ended.is_set():
            return Outcome()
        return Outcome(SparkEndedError("\n    ".join([f"Spark-submit ended with exit code {code}:", *lines])))

    def cancel(self) -> None:
        """End spark-submit, its JVM and its Python driver, as an exception that ends the wait does, too."""
        if self._end is not None:
            self._end()

    def _started(self, end: Callable[[], object]) -> None:
        self._end = end
