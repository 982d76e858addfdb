"""The backend of ``fds run`` for drivers that a cluster runs: that of a task, with the command in the task's place."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_fds.backends import cluster_driver
from airflow_provider_fds.backends.base import SubmitTask
from airflow_provider_fds.backends.spark_master import SparkMaster
from airflow_provider_fds.backends.spark_submit import SubmitBackend
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.spark.submission.launch import run_submission

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_fds.backends.base import UserArguments
    from airflow_provider_fds.spark.submission.submit import SubmitArguments

#: Spark's own setting for the port of a standalone master's REST server; a connection has it in its extra.
_REST_PORT: Final = "spark.master.rest.port"


@dataclass
class _Command(SubmitTask):
    """Starts spark-submit as a child of this process."""

    tell: Callable[[str], None]
    _end: Callable[[], object] | None = field(default=None, init=False, repr=False)

    def submit(self, arguments: SubmitArguments, context: Any) -> None:  # noqa: ARG002 - that of a task
        """Run spark-submit, and wait for it."""
        if code := run_submission(arguments, self.tell, self._started):
            raise AirflowException(f"spark-submit ended with exit code {code}")

    def kill_submission(self) -> None:
        """End spark-submit."""
        if self._end is not None:
            self._end()

    def application_id(self) -> str | None:
        """Return nothing: the command shows no pages."""
        return None

    def yarn_application_id(self) -> str | None:
        """Return nothing, likewise."""
        return None

    def _started(self, end: Callable[[], object]) -> None:
        self._end = end


def cluster_backend(master: str, arguments: UserArguments, tell: Callable[[str], None]) -> SubmitBackend:
    """Return the backend for drivers that a cluster runs.

    Args:
        master: Spark's master URL.
        arguments: The user's arguments.
        tell: Called with each line of spark-submit for people.

    Raises:
        ConfigurationError: The master runs no drivers that can be found again.
    """
    # the name of a driver, and where its log is
    logging.getLogger(cluster_driver.__name__).setLevel(logging.INFO)
    port = arguments.conf.get(_REST_PORT)
    place = SparkMaster(None, master, arguments.deploy_mode, arguments.spark_binary)
    backend = SubmitBackend.of_master(place, arguments, _Command(tell), {} if port is None else {"rest-port": port})
    if backend.cluster is None:
        raise ConfigurationError(
            f"--deploy-mode cluster requires a master that runs drivers and can be asked about them, got --master "
            f"{master}. Use spark://…, yarn with a ResourceManager in yarn-site.xml and without Kerberos, or k8s://… "
            "whose credentials are files, or omit --deploy-mode",
            reason=Reason.SPARK_UNUSABLE,
        )
    return backend
