"""The Airflow side: connections become storage options, a task's context becomes the stream's context."""

from airflow_provider_fds.airflow_version import check_airflow

check_airflow()
