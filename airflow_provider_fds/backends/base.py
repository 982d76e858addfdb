"""The protocol of a Spark backend and its inputs: the user's arguments and an application to run."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from airflow_provider_fds.backends.conf_by_size import ConfBySize, largest_transaction, overriding
from airflow_provider_fds.backends.job_storage import storage_of
from airflow_provider_fds.batch.next_job import next_job_name
from airflow_provider_fds.batch.report import started_name
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.stream.run.collecting import commit_reported, has_done_all

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from airflow_provider_fds.backends.conf_by_size import ConfBySizeArgument
    from airflow_provider_fds.backends.fleet_application import FleetApplication
    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.ledger.facts import SubmittedFacts
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.spark.submission.object_store import JobStorage
    from airflow_provider_fds.spark.submission.submit import SubmitArguments
    from airflow_provider_fds.stream.attempt.result import Collected, RunWork
    from airflow_provider_fds.stream.run.session import StreamSession


logger = logging.getLogger(__name__)

#: Label of the page with the log of a driver that a cluster runs.
DRIVER_LOG: Final = "Driver log"


@dataclass(frozen=True)
class UserArguments:
    """The user's own arguments of spark-submit, rendered; the names are those of ``SparkSubmitOperator``.

    All except ``conf`` set up a driver or its executors. A backend whose Spark is already running refuses the ones that
    :meth:`for_a_driver` returns.
    """

    conf: dict[str, Any] = field(default_factory=dict, repr=False)
    jars: str | None = None
    packages: str | None = None
    exclude_packages: str | None = None
    repositories: str | None = None
    py_files: str | None = None
    files: str | None = None
    archives: str | None = None
    driver_class_path: str | None = None
    driver_memory: str | None = None
    executor_memory: str | None = None
    executor_cores: int | None = None
    total_executor_cores: int | None = None
    num_executors: int | None = None
    env_vars: dict[str, Any] = field(default_factory=dict, repr=False)
    properties_file: str | None = None
    spark_binary: str | None = None
    deploy_mode: str | None = None
    keytab: str | None = None
    principal: str | None = None
    proxy_user: str | None = None
    yarn_queue: str | None = None
    #: FDS's own: settings that depend on the largest batch of an application, added to ``conf``.
    conf_by_size: ConfBySizeArgument | None = field(default=None, repr=False)
    #: FDS's own: a version of Delta instead of the one that it chooses, or ``"provided"``.
    delta_version: str | None = None

    @classmethod
    def of(cls, operator: Any) -> UserArguments:
        """Return the arguments that a ``SparkSubmitOperator`` holds; some of its attributes begin with ``_``."""
        found: dict[str, Any] = {}
        for each in fields(cls):
            value = getattr(operator, each.name if hasattr(operator, each.name) else f"_{each.name}")
            found[each.name] = dict(value or {}) if each.name in ("conf", "env_vars") else value
        return cls(**found)

    def for_application(self, application: Application | FleetApplication) -> UserArguments:
        """Return the arguments for one application, with its own settings and those for its largest batch in ``conf``.

        Raises:
            ConfigurationError: The function that chooses the settings returns none, or some without effect.
        """
        given = replace(self, conf={**application.conf, **self.conf})
        if self.conf_by_size is None:
            return given
        conf = ConfBySize.parse(self.conf_by_size).of(application.largest_bytes)
        if problems := overriding(conf, vars(self)):
            raise ConfigurationError(*problems, subject="result of conf_by_size")
        return replace(given, conf={**given.conf, **conf})

    def for_a_driver(self) -> list[str]:
        """Return the names of the given arguments that need a driver that has not started yet."""
        return [each.name for each in fields(self) if each.name != "conf" and getattr(self, each.name)]


class SubmitTask(Protocol):
    """A task that starts spark-submit: an Airflow task that is a ``SparkSubmitOperator``."""

    def submit(self, arguments: SubmitArguments, context: Any) -> None:
        """Call spark-submit with ``arguments`` and wait for it."""

    def kill_submission(self) -> None:
        """Kill the process that :meth:`submit` started, if any."""

    def application_id(self) -> str | None:
        """Return the id of the application that :meth:`submit` started, if it is known and can be in a history."""

    def yarn_application_id(self) -> str | None:
        """Return the YARN id of the application that :meth:`submit` started, or ``None`` if unknown."""


@dataclass(frozen=True)
class Application:
    """One Spark application of a run.

    Attributes:
        session: The run.
        sink: Where its batches go.
        work: Its batches, or the epoch to fence.
        spec_uri: URI of the job spec, as Spark reads it.
        name: Name that Spark shows.
        context: The context of the Airflow task, ``None`` on the command line.
        conf: Settings for a driver that is started for it; the user's take precedence.
        on_commit: Called with the attempt's progress while Spark is still running; default: write a line to the log.
    """

    session: StreamSession
    sink: Sink
    work: RunWork
    spec_uri: str
    name: str = "fds"
    context: Any = None
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    on_commit: Callable[[Collected], object] | None = None

    @classmethod
    def of_work(
        cls, session: StreamSession, sink: Sink, work: RunWork, spark: SparkBackend, **given: Any
    ) -> Application:
        """Return the application for ``work``: that of a driver which an earlier attempt has left, else a new one.

        Whoever waits for a driver stops it at the end, so that of a fleet with other streams is left alone.

        Args:
            session: The run.
            sink: Where its batches go.
            work: Its work; a driver that was left may have a part of it.
            spark: What runs it.
            given: The other fields.
        """
        left = session.driver.left(work, spark)
        work = work if left is None or _is_shared(session, left) else left
        # a driver that was left has its job
        return cls(session, sink, work, session.job(work, sink) if work.submitted is None else "", **given)

    @property
    def num_bytes(self) -> int:
        """Planned bytes of all its batches."""
        return sum(batch.num_bytes for batch in self.work.batches)

    @property
    def largest_bytes(self) -> int:
        """Planned bytes of its largest transaction, 0 without batches."""
        return largest_transaction(self.session, self.work)

    @property
    def staging(self) -> Storage:
        """The staging folder."""
        return self.session.connected.staging

    @property
    def next_job_key(self) -> str:
        """Where in staging a driver that lingers looks for the job after this one."""
        return f"{self.session.scope.job_folder(self.work)}/{next_job_name(self.attempt_id)}"

    @property
    def begun_key(self) -> str:
        """What is in staging once a driver has worked on the job."""
        first = self.session.scope.transactions(self.work.batches)[0].last.batch_id
        return f"{self.session.scope.reports}/{started_name(self.work.epoch, first, self.attempt_id)}"

    @property
    def attempt_id(self) -> str:
        """The attempt of its work."""
        return self.work.attempt_id

    @property
    def left(self) -> SubmittedFacts | None:
        """The driver that an earlier attempt has started for it, if it is waited for."""
        return self.work.submitted

    @property
    def own_name(self) -> str:
        """Name under which the attempt that has started the driver knows it."""
        return self.attempt_id

    def started(self) -> Application:
        """Return the application with the driver that its ledger has, which was just started."""
        return replace(self, work=self.session.driver.left(self.work) or self.work)

    @property
    def streams(self) -> tuple[str, ...]:
        """Names of the streams whose ledgers have its driver."""
        return (self.session.stream.name,) if self.work.batches else ()

    def record(self, *, cluster: str, address: str, driver: str) -> None:
        """Let the ledger have the driver, as :meth:`~.batch_commits.DriverRecord.write`."""
        if self.work.batches:
            self.session.driver.write(self.work, cluster=cluster, address=address, driver=driver)

    def commit(self) -> bool:
        """Commit what is reported so far, and return whether everything is."""
        collected = commit_reported(self.session, self.work)
        if self.on_commit is not None:
            self.on_commit(collected)
        return len(collected.committed) == len(self.work.batches)

    def has_rest_of_left(self, error: Exception | None) -> bool:
        """Commit what the driver has reported that was left, and has ended; whether another one must do the rest.

        Args:
            error: How it has ended, if that is known.
        """
        if self.left is None or has_done_all(self.session, self.work):
            return False
        ending = error or f"driver {self.left.driver} ended"
        logger.warning("An earlier attempt's %s. Another driver loads the batches that it has left.", ending)
        return True

    def storage(self) -> JobStorage:
        """Return where the application reads and writes."""
        return storage_of(self.session, self.sink)


def _is_shared(session: StreamSession, left: RunWork) -> bool:
    """Whether the driver that was left works for other streams of a fleet, too."""
    # few runs find a driver
    from airflow_provider_fds.fleet.jobs import SHARED, find_spec

    name = session.stream.name
    _, streams = find_spec(session.connected.staging, {(name, left.attempt_id)}) or ("", (name,))
    if streams == (name,):
        return False
    assert left.submitted is not None  # noqa: S101 - it was left
    logger.warning(SHARED, name, left.submitted.driver)
    return True


@dataclass(frozen=True)
class Outcome:
    """How an application ended. Its effects are in its reports and in the sink, not here.

    Attributes:
        error: How Spark failed; ``None`` if it succeeded.
    """

    error: Exception | None = None


class SparkBackend(Protocol):
    """A place where Spark runs the applications of a run, one after the other.

    Each backend serves one run. A backend for an Airflow connection is a :class:`ConnectionBackend`.
    """

    def check(self) -> None:
        """Check everything that can be checked before a batch is planned. Starts no Spark.

        Raises:
            ConfigurationError: Reports all problems at once.
        """

    def run(self, application: Application) -> Outcome:
        """Run an application and wait for its end, committing each batch as soon as it is reported.

        Raises:
            FdsError: Spark could not be started, or this run no longer owns the stream.
        """
        raise NotImplementedError

    def attaches_to(self, cluster: str) -> bool:  # noqa: ARG002 - for backends that can
        """Return whether :meth:`run` can wait for a driver that an earlier attempt has left in this kind of cluster."""
        return False

    @property
    def finds_drivers(self) -> bool:
        """Whether :meth:`working` can find a driver."""
        return False

    def working(self, driver: str) -> tuple[str, str] | None:  # noqa: ARG002 - likewise
        """Return kind and address of the cluster in which a driver of that name works, if it is known to."""
        return None

    def cluster_of_drivers(self) -> dict[str, Any] | None:
        """Return the cluster whose drivers go on without this process, as plain values; ``None``: it must wait."""
        return None

    def start(self, application: Application | FleetApplication) -> Outcome | None:  # noqa: ARG002 - for backends that can
        """Start a driver in :meth:`cluster_of_drivers` without waiting for it; return how that failed, if it did."""
        raise ConfigurationError(f"{type(self).__name__} cannot leave a driver that it has started.")

    def works(
        self,
        application: Application | FleetApplication,  # noqa: ARG002 - likewise
        silent_seconds: float,  # noqa: ARG002 - likewise
    ) -> bool:
        """Return whether a driver that was left may be working; raises if the cluster does not tell for too long."""
        return False

    def lingering(self) -> AbstractContextManager[None]:
        """Return a context in which Spark may stay between two applications of the run, which then lingers.

        Its end, without an error, lets Spark end; after an error, Spark is stopped.
        """
        return nullcontext()

    def run_fleet(self, application: FleetApplication) -> Outcome:  # noqa: ARG002 - for backends that can
        """Run the jobs of many streams in one application and wait for its end, committing batches meanwhile.

        That one stream fails is no failure of the application: the reports of each stream say what became of it.

        Raises:
            FdsError: Spark could not be started.
        """
        raise ConfigurationError(
            f"{type(self).__name__} cannot run the jobs of several streams in one application. Use a connection of "
            "type 'spark' or 'spark_connect', or a task for each stream."
        )

    def apart(self, session: StreamSession, sink: Sink) -> object | None:  # noqa: ARG002 - for backends that set Spark up
        """Return what an application can have one of, and this stream needs; ``None``: it fits beside every other one.

        Raises:
            FdsError: As :meth:`run_fleet`.
        """
        return None

    def cancel(self) -> None:
        """Stop Spark's work for this run; does nothing if nothing runs. May be called in a signal handler."""

    def links(self) -> dict[str, str]:
        """Return pages about the last application: URL by label."""
        return {}

    def in_process(self) -> SparkBackend:
        """Return the backend of this connection that runs the job in this process, for a function in a DAG file.

        Raises:
            ConfigurationError: The connection has no such backend.
        """
        raise ConfigurationError(
            f"{type(self).__name__} runs jobs outside the task's process, so it cannot call a function of the task. "
            "Use a connection of type 'spark' or 'spark_connect', or a ForeachBatchSink."
        )


class ConnectionBackend(SparkBackend, Protocol):
    """A backend that is registered in :data:`~airflow_provider_fds.backends.registry.BACKENDS`.

    Attributes:
        expects: What its connection contains, for the message about a connection of another type.
        example: Arguments of ``airflow connections add`` after the connection's id, for the message about a missing
            connection. What differs from site to site is a placeholder in capitals.
    """

    expects: ClassVar[str]
    example: ClassVar[str]

    @classmethod
    def from_connection(
        cls, conn_id: str, connection: Any, arguments: UserArguments, task: SubmitTask | None
    ) -> ConnectionBackend:
        """Return the backend of a connection. Starts nothing.

        Args:
            conn_id: Name of the connection.
            connection: The Airflow connection.
            arguments: The user's arguments.
            task: The running task; ``None`` for a check without a run.

        Raises:
            ConfigurationError: The connection lacks something.
        """
        raise NotImplementedError
