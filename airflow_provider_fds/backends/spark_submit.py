"""spark-submit, started by the task as ``SparkSubmitOperator`` starts it."""

from __future__ import annotations

import logging
import threading
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.apache.spark.hooks.spark_submit import ALLOWED_SPARK_BINARIES
from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_fds.backends.base import DRIVER_LOG, Application, ConnectionBackend, Outcome, UserArguments
from airflow_provider_fds.backends.job_storage import vended_credentials
from airflow_provider_fds.backends.lingering_driver import LingeringDriver
from airflow_provider_fds.backends.spark_master import SparkMaster, application_arguments, check_master, submitted
from airflow_provider_fds.backends.spark_session import SessionBackend
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.fault_points import reach
from airflow_provider_fds.hooks.settings import cache_dir, spark_history_url
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.spark.installation.cache import SparkSetupError
from airflow_provider_fds.spark.runtime.settings import FLEET_CONF
from airflow_provider_fds.stream.run.collecting import collecting, committing

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from airflow_provider_fds.backends.base import SubmitTask
    from airflow_provider_fds.backends.cluster_driver import ClusterDriver
    from airflow_provider_fds.backends.fleet_application import FleetApplication
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream.run.session import StreamSession

logger = logging.getLogger(__name__)


def _standalone(place: SparkMaster, extra: Mapping[str, Any]) -> ClusterDriver:
    from airflow_provider_fds.backends.cluster_driver import ClusterDriver
    from airflow_provider_fds.spark.clusters.standalone import REST_PORT, StandaloneCluster

    port = extra.get("rest-port", REST_PORT)
    if not str(port).isdecimal():
        raise ConfigurationError(
            f"Spark {place.subject} has the rest-port {port!r}, expected the port of the master's REST server",
            reason=Reason.CONNECTION_UNUSABLE,
        )
    return ClusterDriver(StandaloneCluster(place.master, int(port)), place.master)


@dataclass
class SubmitBackend(ConnectionBackend):
    """spark-submit, started by the task in the same way as by ``SparkSubmitOperator``.

    Attributes:
        master: Where the driver and its executors run.
        arguments: The user's arguments.
        task: The task that starts spark-submit.
        resource_manager: Address of YARN's web pages, if the connection names it.
    """

    expects: ClassVar[str] = "its host is the master: local[*], spark://host:7077, yarn, k8s://…"
    example: ClassVar[str] = "--conn-type spark --conn-host spark://HOST --conn-port 7077"

    master: SparkMaster
    arguments: UserArguments
    task: SubmitTask | None
    resource_manager: str | None = None
    #: Starts drivers, if a cluster runs them that can be asked about them.
    cluster: ClusterDriver | None = None
    _lingering: LingeringDriver | None = field(default=None, init=False, repr=False)

    @classmethod
    def from_connection(
        cls, conn_id: str, connection: Any, arguments: UserArguments, task: SubmitTask | None = None
    ) -> SubmitBackend:
        """Return the backend of a connection of type ``spark``.

        Raises:
            ConfigurationError: The connection has no master, or names a spark-submit that is not allowed.
        """
        if not connection.host:
            raise ConfigurationError(
                f"Spark connection {conn_id!r} has no host. Its host is Spark's master: local[*], spark://host:7077, "
                "yarn or k8s://…",
                reason=Reason.CONNECTION_UNUSABLE,
            )
        # SparkSubmitHook builds the master in the same way
        is_whole = "://" in connection.host or not connection.port
        master = connection.host if is_whole else f"spark://{connection.host}"
        if connection.port:
            master = f"{master}:{connection.port}"
        extra = connection.extra_dejson
        binary = arguments.spark_binary or extra.get("spark-binary")
        if not arguments.spark_binary and binary and binary not in ALLOWED_SPARK_BINARIES:
            raise ConfigurationError(
                f"Spark connection {conn_id!r} has the spark-binary {binary!r}; Airflow's Spark provider allows "
                f"only the names {', '.join(ALLOWED_SPARK_BINARIES)}, found on the worker's PATH",
                reason=Reason.CONNECTION_UNUSABLE,
            )
        place = SparkMaster(conn_id, master, arguments.deploy_mode or extra.get("deploy-mode"), binary or None)
        return cls.of_master(place, arguments, task, extra)

    @classmethod
    def of_master(
        cls, place: SparkMaster, arguments: UserArguments, task: SubmitTask | None, extra: Mapping[str, Any]
    ) -> SubmitBackend:
        """Return the backend of a master.

        Args:
            place: The master.
            arguments: The user's arguments.
            task: The running task; ``None`` for a check without a run.
            extra: What a connection says of it besides.

        Raises:
            ConfigurationError: An address or a port in ``extra`` is not valid.
        """
        cluster = _standalone(place, extra) if place.is_standalone_cluster else None
        if place.is_yarn_cluster:
            from airflow_provider_fds.backends.yarn_driver import yarn_driver

            cluster = yarn_driver(place, arguments, extra, task)
        if place.is_kubernetes:
            from airflow_provider_fds.backends.kubernetes_driver import kubernetes_driver, with_settings_of

            arguments = with_settings_of(extra, arguments)
            cluster = kubernetes_driver(place, arguments, task) if place.is_kubernetes_cluster else None
        return cls(place, arguments, task, extra.get("yarn_resourcemanager_webapp_address"), cluster)

    def check(self) -> None:
        """Check machine, versions and settings, see :func:`check_master`."""
        check_master(self.master, self.arguments)

    def run(self, application: Application) -> Outcome:
        """Call spark-submit, and commit batches as they are reported."""
        meanwhile = self._committing(application)
        if self.cluster is not None and application.left is not None:
            return self._attach(application, meanwhile)
        if self._lingering is None or not application.work.batches:
            return self._run(application, meanwhile)
        if self.cluster is not None:
            # a driver that stays works under the name of another attempt from now on
            self.cluster.record(application)
        return self._lingering.run(application)

    def _attach(
        self, application: Application | FleetApplication, meanwhile: AbstractContextManager[threading.Event]
    ) -> Outcome:
        assert self.cluster is not None  # noqa: S101 - the caller has asked
        assert application.left is not None  # noqa: S101 - likewise
        with meanwhile as was_ended:
            return Outcome(self.cluster.attach(application, application.left, was_ended))

    def _committing(self, application: Application) -> AbstractContextManager[threading.Event]:
        return collecting(application.session, application.work, application.on_commit, end=self.cancel)

    def attaches_to(self, cluster: str) -> bool:
        """Return whether the connection's cluster is of that kind, and runs drivers by itself."""
        return self.cluster is not None and self.cluster.cluster.kind == cluster

    @property
    def finds_drivers(self) -> bool:
        """Whether the connection's cluster knows drivers by their names."""
        return self.cluster is not None

    def working(self, driver: str) -> tuple[str, str] | None:
        """Return kind and address of the connection's cluster, if a driver of that name works in it."""
        if self.cluster is None:
            return None
        handle = self.cluster.working(driver)
        return None if handle is None else (self.cluster.cluster.kind, handle.cluster)

    def cluster_of_drivers(self) -> dict[str, Any] | None:
        """Return the connection's cluster, if it runs drivers by itself, and holds no secret."""
        if self.cluster is None or self.cluster.cluster.has_secret:
            return None
        from airflow_provider_fds.spark.clusters.stored import to_dict

        return to_dict(self.cluster.cluster)

    def start(self, application: Application | FleetApplication) -> Outcome | None:
        """Start a driver in the connection's cluster, and let the ledger have it.

        Raises:
            FdsError: As :meth:`run`.
        """
        assert self.cluster is not None  # noqa: S101 - the caller has asked
        made = application_arguments(self.master, application, self.arguments)
        reach("submit.before")
        try:
            self.cluster.start(application, made, self.arguments)
        except AirflowException as failed:
            # spark-submit, where the cluster gets drivers from it
            return Outcome(failed)
        return None

    def works(self, application: Application | FleetApplication, silent_seconds: float) -> bool:
        """Return whether the driver of ``application`` is not known to have ended.

        Args:
            application: The application, with the driver that was left.
            silent_seconds: How long the cluster has not told the driver's state so far.

        Raises:
            ClusterLostError: The cluster does not tell its state now either, and has not for too long.
        """
        left, cluster = application.left, self.cluster
        assert cluster is not None  # noqa: S101 - the caller has asked
        assert left is not None  # noqa: S101 - likewise
        look = cluster.look(application, left)
        if look.state == "unknown" and silent_seconds >= cluster.lost_seconds:
            raise cluster.lost(application, left.driver, look)
        return look.state != "ended"

    def lingering(self) -> LingeringDriver:
        """Let spark-submit stay, and take the next job of the run."""
        self._lingering = LingeringDriver(self._start, self.cancel)
        return self._lingering

    def _start(self, application: Application | FleetApplication) -> Outcome:
        return self._run(application, nullcontext(threading.Event()))

    def run_fleet(self, application: FleetApplication) -> Outcome:
        """Call spark-submit for the jobs of many streams, and commit batches as they are reported."""
        shared = replace(application, conf={**FLEET_CONF, **application.conf})
        meanwhile = committing(application.commit, end=self.cancel)
        if self.cluster is not None and application.left is not None:
            return self._attach(shared, meanwhile)
        if self._lingering is None:
            return self._run(shared, meanwhile)
        if self.cluster is not None:
            # as for one stream
            self.cluster.record(shared)
        return self._lingering.run(shared)

    def apart(self, session: StreamSession, sink: Sink) -> object | None:
        """Return the credentials of a catalog with which Spark reads the table of a stream, if it does."""
        try:
            given = self.arguments
            return vended_credentials(
                session, sink, given.conf, given.properties_file, lambda: self.master.own_spark(given)
            )
        except SparkSetupError as error:
            raise ConfigurationError(
                f"Spark cannot be started for {self.master.subject}: {error}", reason=Reason.SPARK_UNUSABLE
            ) from error

    def _run(
        self, application: Application | FleetApplication, meanwhile: AbstractContextManager[threading.Event]
    ) -> Outcome:
        assert self.task is not None  # noqa: S101 - a run has a task
        made = application_arguments(self.master, application, self.arguments)
        reach("submit.before")
        error: Exception | None = None
        try:
            if self.cluster is not None:
                with meanwhile as was_ended:
                    error = self.cluster.run(application, made, self.arguments, was_ended)
            else:
                with submitted(self.master, made, cache_dir()) as arguments, meanwhile as was_ended:
                    self.task.submit(arguments, application.context)
        except AirflowException as failed:
            # the caller commits what it did before it failed
            error = None if was_ended.is_set() else failed
        reach("submit.after")
        return Outcome(error)

    def cancel(self) -> None:
        """Kill spark-submit, and the application if the cluster runs its driver."""
        if self.cluster is not None:
            self.cluster.stop()
        if self.task is not None:
            self.task.kill_submission()

    def links(self) -> dict[str, str]:
        """Return the pages of the application in Spark's history server and in YARN, if their addresses are known."""
        page = None if self.cluster is None else self.cluster.log_url
        return {**self._history(), **self._yarn(), **({DRIVER_LOG: page} if page else {})}

    def _history(self) -> dict[str, str]:
        application = None if self.task is None else self.task.application_id()
        if application is None:
            return {}
        try:
            page = spark_history_url(application)
        except ConfigurationError as error:
            # a link is never a reason to fail
            logger.warning("The task's page has no link to Spark's history: %s", error)
            return {}
        return {} if page is None else {"Spark history": page}

    def _yarn(self) -> dict[str, str]:
        application = None if self.task is None else self.task.yarn_application_id()
        if application is None or self.resource_manager is None:
            return {}
        return {"YARN application": f"{self.resource_manager.rstrip('/')}/cluster/app/{application}"}

    def in_process(self) -> SessionBackend:
        """Return the backend whose driver is a child of this process."""
        return SessionBackend(self.master, self.arguments)
