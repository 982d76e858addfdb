"""The request for a driver that spark-submit starts in a cluster, and then leaves there."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from airflow_provider_fds.backends.spark_master import submitted
from airflow_provider_fds.hooks.settings import cache_dir
from airflow_provider_fds.spark.clusters.cluster import DriverRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_fds.backends.base import Application, SubmitTask
    from airflow_provider_fds.backends.fleet_application import FleetApplication
    from airflow_provider_fds.backends.spark_master import SparkMaster
    from airflow_provider_fds.spark.submission.submit import SubmitArguments


def submitted_request(
    place: SparkMaster, task: SubmitTask | None, application: Application | FleetApplication, made: SubmitArguments
) -> DriverRequest:
    """Return the request for a driver of an application.

    Args:
        place: The master.
        task: The task that starts spark-submit.
        application: What the driver works on.
        made: The arguments of spark-submit.
    """

    def submit(settings: Mapping[str, str]) -> None:
        assert task is not None  # noqa: S101 - a run has a task
        with submitted(place, replace(made, conf={**made.conf, **settings}), cache_dir()) as final:
            task.submit(final, application.context)

    return DriverRequest(
        name=application.name,
        resource=made.application,
        arguments=made.application_args,
        conf=made.conf,
        env_vars=made.env_vars,
        py_files=tuple(made.py_files.split(",")),
        claim=application.attempt_id,
        submit=submit,
    )
