"""A batch in a Spark session of this process: the job of ``job.py``, with a child JVM.

Standard library and pyspark only; pyspark is imported on first use.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import warnings
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.batch.spec import JobSpec
from airflow_provider_fds.spark.application.job_run import run
from airflow_provider_fds.spark.application.progress import tell_ui_address
from airflow_provider_fds.spark.installation.cache import SparkSetupError
from airflow_provider_fds.spark.installation.install import held_back
from airflow_provider_fds.spark.runtime.hadoop_files import hadoop_path, read_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from airflow_provider_fds.batch.report import AttemptReport
    from airflow_provider_fds.spark.submission.submit import SubmitArguments

_END_SECONDS: Final = 10
_ELSEWHERE: Final = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_LOCAL_REMOTE", "PYSPARK_GATEWAY_PORT")


@dataclass
class SessionJob:
    """One job of planned batches, loaded in a Spark session of this process, in client mode.

    Whatever ends the job (a signal that Python handles, a time limit), Spark's work for it is stopped.

    Attributes:
        arguments: The arguments spark-submit would get. Their secret settings are in a file, see
            :func:`~airflow_provider_fds.spark.submission.submit.submission`, which must exist until the job is done.
        spec_uri: URI of the job spec.
        name: Name of the Spark application.
    """

    arguments: SubmitArguments
    spec_uri: str
    name: str
    _jvm: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)

    def work(self, on_report: Callable[[AttemptReport], object] | None = None) -> int:
        """Run the job, then end the session and its JVM. Returns the exit code of :func:`~.job_run.run`.

        Raises:
            SparkSetupError: This process already has a Spark session, or Spark does not start.
        """
        from pyspark import SparkContext
        from pyspark.errors import PySparkRuntimeError
        from pyspark.sql import SparkSession

        if SparkContext._active_spark_context is not None:
            raise SparkSetupError(
                "this process already has a Spark session with other settings, but a batch needs its own session. "
                "Stop the existing one first (spark.stop())"
            )
        # a stopped session leaves a JVM with the settings it was started with
        _end_gateway(SparkContext)
        try:
            spark = self._start()
            self._jvm = getattr(SparkContext._gateway, "proc", None)
            try:
                spec = JobSpec.from_file(self.spec_uri, read_bytes(hadoop_path(self.spec_uri, spark), spark))
                tell_ui_address(spark)
                return run(spark, spec, on_report)
            except Exception:
                raise
            except BaseException:
                # a time limit during a JVM call: end that call first
                self.kill()
                raise
            finally:
                # a JVM that is gone cannot stop its session
                with suppress(Exception):
                    spark.stop()
        except PySparkRuntimeError as error:
            raise SparkSetupError(f"Spark did not start in this process: {error}") from error
        finally:
            self._jvm = None
            _end_gateway(SparkContext)
            # what stop() would do
            SparkContext._active_spark_context = None
            SparkSession._instantiatedSession = SparkSession._activeSession = None

    def kill(self) -> None:
        """End the JVM, and with it Spark's work for this job; may be called in a signal handler."""
        jvm, self._jvm = self._jvm, None
        if jvm is not None:
            jvm.kill()

    def _start(self) -> Any:
        env = {
            # the JVM and its Python workers start within this environment
            **dict.fromkeys(held_back()),
            **self.arguments.env_vars,
            "PYSPARK_SUBMIT_ARGS": shell_arguments(self.arguments),
            # with one of these, pyspark would use another Spark
            **dict.fromkeys(_ELSEWHERE),
        }
        with _environment(env), warnings.catch_warnings():
            # pyspark itself warns at import if pandas 3 is installed
            warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
            from pyspark.sql import SparkSession

            return SparkSession.builder.appName(self.name).getOrCreate()


def shell_arguments(arguments: SubmitArguments) -> str:
    """Return the arguments with which pyspark starts a session's JVM: spark-submit's options, no application."""
    options = arguments.command()[1 : -1 - len(arguments.application_args)]
    return shlex.join([*options, "pyspark-shell"])


def _end_gateway(context: Any) -> None:
    """End the JVM of this process, if it has one, so that pyspark starts a new one next time."""
    gateway = context._gateway
    if gateway is None:
        return
    context._gateway = context._jvm = None
    with suppress(Exception):
        gateway.shutdown()
    jvm = getattr(gateway, "proc", None)
    if jvm is None:
        return
    with suppress(OSError):
        jvm.stdin.close()
    try:
        jvm.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        jvm.kill()
        jvm.wait()


@contextmanager
def _environment(values: Mapping[str, str | None]) -> Iterator[None]:
    """Set variables, or remove those that are ``None``, for processes started within the context."""
    before = {name: os.environ.get(name) for name in values}
    _set(values)
    try:
        yield
    finally:
        _set(before)


def _set(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
