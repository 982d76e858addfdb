"""The Airflow side: TaskFlow decorators."""

from airflow_provider_fds.airflow_version import check_airflow

check_airflow()
