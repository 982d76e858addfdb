"""A task that has Spark work off jobs of FDS, wherever its connection says that Spark is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_fds.fault_points import reach
from airflow_provider_fds.hooks.settings import cache_dir
from airflow_provider_fds.operators.spark_backend import (
    GivenArguments,
    SparkBackend,
    check_backend,
    prepare_submission,
    submitted,
)
from airflow_provider_fds.operators.spark_connect import ConnectBackend, work_off
from airflow_provider_fds.operators.submit_hook import SubmitHook
from airflow_provider_fds.spark.launch import job_storage
from airflow_provider_fds.stream.collecting import collecting

if TYPE_CHECKING:
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.spark.connect import ConnectJob
    from airflow_provider_fds.spark.launch import SubmitArguments
    from airflow_provider_fds.spark.session_job import SessionJob
    from airflow_provider_fds.stream.base_session import Session
    from airflow_provider_fds.stream.result import RunWork


class SparkChoice(NamedTuple):
    """Where Spark runs, by the connection, and what the user has said of it."""

    backend: SparkBackend | ConnectBackend
    given: GivenArguments


@dataclass(frozen=True)
class Application:
    """One Spark application of a run.

    Attributes:
        session: The run.
        sink: Where its batches go.
        work: What it has to do.
        spark: Where, and with which arguments.
        spec_uri: Its job, as Spark reads it.
    """

    session: Session
    sink: Sink
    work: RunWork
    spark: SparkChoice
    spec_uri: str

    def submission(self, backend: SparkBackend) -> SubmitArguments:
        """Return the arguments of spark-submit, the user's own among them."""
        return prepare_submission(
            backend,
            self.spec_uri,
            given=self.spark.given,
            storage=job_storage(self.session.connected.places(self.sink.table_uri), self.sink),
            cache_dir=cache_dir(),
            num_bytes=sum(batch.num_bytes for batch in self.work.batches),
        )


class SparkTask(SparkSubmitOperator):
    """Runs jobs of FDS with the arguments of ``SparkSubmitOperator``; what else a task does its subclasses say."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # a job that Airflow would rejoin reports under the name of a try that is over; a new try looks into the sink
        self.durable = False
        self._job_here: ConnectJob | SessionJob | None = None
        self._loads_defaults = False

    def on_kill(self) -> None:
        """Kill the Spark job, if one was started."""
        if self._job_here is not None:
            self._job_here.kill()
        elif self._hook is not None:
            super().on_kill()

    def _get_hook(self) -> SubmitHook:
        return SubmitHook.like(super()._get_hook(), loads_defaults=self._loads_defaults)

    def _check_spark(self, spark: SparkChoice) -> None:
        """Check, before anything is planned, that Spark can work as the operator was told."""
        if isinstance(spark.backend, ConnectBackend):
            spark.backend.check(self)
        else:
            check_backend(spark.backend, spark.given)

    def _given(self) -> GivenArguments:
        """Return the user's own arguments of spark-submit, as rendered."""
        return GivenArguments(
            conf=dict(self.conf or {}),
            jars=self.jars,
            packages=self.packages,
            py_files=self.py_files,
            driver_class_path=self.driver_class_path,
            env_vars=dict(self.env_vars or {}),
            properties_file=self.properties_file,
        )

    def _run_spark(self, context: Any, application: Application) -> AirflowException | None:
        """Have Spark work off the job. Returns how Spark has failed; what it did the reports say."""
        session, work, spark = application.session, application.work, application.spark
        if isinstance(spark.backend, ConnectBackend):
            job = spark.backend.job(session, application.sink, application.spec_uri, spark.given.conf)
            self._job_here = job
            work_off(job, session, work)
            return None
        made = application.submission(spark.backend)
        reach("submit.before")
        spark_error: AirflowException | None = None
        try:
            with submitted(spark.backend, made, cache_dir()) as arguments, collecting(session, work):
                self._set_submission(arguments, spark.backend)
                super().execute(context)
            if made.class_archive is not None:
                made.class_archive.make_in_background()
        except AirflowException as error:
            # what it has done before it failed is committed by the caller
            spark_error = error
        finally:
            # a file with secrets is gone by now
            self.properties_file = spark.given.properties_file
        reach("submit.after")
        return spark_error

    def _set_submission(self, made: SubmitArguments, backend: SparkBackend) -> None:
        self.application = made.application
        self.application_args = list(made.application_args)
        self.conf = dict(made.conf)
        self.jars = made.jars
        self.packages = None  # they are part of conf now
        self.driver_class_path = made.driver_class_path
        self.py_files = made.py_files
        self.env_vars = dict(made.env_vars) or None
        self.properties_file = made.properties_file
        self._loads_defaults = made.loads_defaults
        if backend.uses_bundled_spark:
            self._spark_binary = made.spark_binary
        self._hook = None  # it would hold the arguments of the application before
