"""All tables of a lake from one file: each with its own stream and sink, in one Spark application."""

from __future__ import annotations

from airflow_provider_fds import fds_dags

fds_dags("fleet_file_streams.yaml", globals(), task_arguments={"retries": 2})
