"""A task that runs Spark applications of FDS on the backend of its connection."""

from __future__ import annotations

from contextlib import nullcontext
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_provider_fds.credentials import redacted

if TYPE_CHECKING:
    from collections.abc import Mapping
    from contextlib import AbstractContextManager

    from airflow_provider_fds.backends.base import Application, Outcome, SparkBackend
    from airflow_provider_fds.backends.conf_by_size import ConfBySizeArgument
    from airflow_provider_fds.backends.fleet_application import FleetApplication
    from airflow_provider_fds.operators.task.submit_hook import SubmitHook
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.spark.submission.submit import SubmitArguments
    from airflow_provider_fds.stream.run.session import StreamSession

#: Attributes of SparkSubmitOperator: whether it adds settings for OpenLineage's agent.
_INJECT_PARENT: Final = "_openlineage_inject_parent_job_info"
_INJECT_TRANSPORT: Final = "_openlineage_inject_transport_info"


class SparkTask(SparkSubmitOperator):
    """Runs applications of FDS with the arguments of ``SparkSubmitOperator``; subclasses choose the applications."""

    #: Settings by the size of a batch; only tasks that load batches have them.
    conf_by_size: ConfBySizeArgument | None = None
    #: Pages about the last application: URL by label.
    spark_pages: Mapping[str, str] = MappingProxyType({})

    def __init__(self, *, delta_version: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.delta_version = delta_version
        # a job that Airflow rejoins would report under the name of an attempt that is over; a new attempt checks the
        # sink
        self.durable = False
        self.spark: SparkBackend | None = None
        self._loads_defaults = False
        self.was_killed = False
        self.agent_settings: dict[str, str] = {}
        # the base class would add these to the command line, where everyone can read the transport's key
        self._injects_parent, self._injects_transport = (
            bool(self.__dict__.pop(name, False)) for name in (_INJECT_PARENT, _INJECT_TRANSPORT)
        )
        setattr(self, _INJECT_PARENT, False)
        setattr(self, _INJECT_TRANSPORT, False)

    def on_kill(self) -> None:
        """Stop Spark's work for this task. ``execute`` then fails, and says that the task was killed."""
        self.was_killed = True
        if self.spark is not None:
            self.spark.cancel()

    def kill_submission(self) -> None:
        """Kill the spark-submit that :meth:`submit` started, if any."""
        if self._hook is not None:
            super().on_kill()

    def application_id(self) -> str | None:
        """Return the id of the application that :meth:`submit` started, if it is known and can be in a history."""
        names = ("spark_application_id", "_yarn_application_id", "_kubernetes_application_id")
        return next((found for name in names if (found := getattr(self._hook, name, None)) is not None), None)

    def yarn_application_id(self) -> str | None:
        """Return the id of the application that :meth:`submit` started, if known."""
        found: str | None = getattr(self._hook, "_yarn_application_id", None)
        return found

    def submit(self, arguments: SubmitArguments, context: Any) -> None:
        """Call spark-submit as ``SparkSubmitOperator`` does, with ``arguments``.

        Raises:
            AirflowException: It failed.
        """
        properties_file = self.properties_file
        self._set_submission(arguments)
        try:
            super().execute(context)
        finally:
            # the caller removes a file with secrets
            self.properties_file = properties_file

    def find_spark(self, conn_id: str) -> SparkBackend:
        """Return the backend of a connection, with the user's arguments as rendered."""
        from airflow_provider_fds.backends.base import UserArguments
        from airflow_provider_fds.backends.registry import find_backend

        return find_backend(conn_id, UserArguments.of(self), self)

    def set_agent_settings(self, context: Any, sink: Sink) -> None:
        """Remember the settings for OpenLineage's Spark agent while ``conf`` is the user's, see there."""
        from airflow_provider_fds.operators.lineage.spark_lineage import agent_settings

        self.agent_settings = agent_settings(
            self.conf or {},
            context,
            sink,
            injects_parent=self._injects_parent,
            injects_transport=self._injects_transport,
        )

    def run_spark(self, application: Application) -> Outcome:
        """Run an application on :attr:`spark`, which the caller has set."""
        assert self.spark is not None  # noqa: S101 - the caller has found it
        return self._with_pages(self.spark.run(application))

    def lingering(self) -> AbstractContextManager[None]:
        """Return a context in which Spark may stay between two applications, see :meth:`SparkBackend.lingering`."""
        assert self.spark is not None  # noqa: S101 - the caller has found it
        return self.spark.lingering()

    def run_fleet(self, application: FleetApplication) -> Outcome:
        """Run an application of many streams likewise."""
        assert self.spark is not None  # noqa: S101 - the caller has found it
        return self._with_pages(self.spark.run_fleet(application))

    def apart(self, session: StreamSession, sink: Sink) -> object | None:
        """Return what sets a stream of a fleet apart from others, see :meth:`SparkBackend.apart`."""
        assert self.spark is not None  # noqa: S101 - the caller has found it
        return self.spark.apart(session, sink)

    def _with_pages(self, outcome: Outcome) -> Outcome:
        """Remember and log the pages of the application that has ended."""
        # a backend has run
        from airflow_provider_fds.backends.base import DRIVER_LOG

        assert self.spark is not None  # noqa: S101 - it has run
        self.spark_pages = self.spark.links()
        for label, url in self.spark_pages.items():
            # that of a driver was logged when it was found
            if label != DRIVER_LOG:
                self.log.info("%s: %s", label, redacted(url))
        return outcome

    def _get_hook(self) -> SubmitHook:
        from airflow_provider_fds.operators.task.submit_hook import SubmitHook, leaves_its_driver, needing_no_client

        with needing_no_client() if leaves_its_driver(self.conf) else nullcontext():
            hook = super()._get_hook()
        return SubmitHook.like(hook, loads_defaults=self._loads_defaults, was_killed=lambda: self.was_killed)

    def _set_submission(self, made: SubmitArguments) -> None:
        self.application = made.application
        self.application_args = list(made.application_args)
        self.conf = dict(made.conf)
        self.jars = made.jars
        self.packages = None  # they are already part of conf
        self.driver_class_path = made.driver_class_path
        self.py_files = made.py_files
        self.env_vars = dict(made.env_vars) or None
        self.properties_file = made.properties_file
        self._loads_defaults = made.loads_defaults
        self._spark_binary = made.spark_binary
        self._hook = None  # it would hold the arguments of the previous application
