"""The Airflow side: sensors that wait for a table."""

from airflow_provider_fds.airflow_version import check_airflow

check_airflow()
