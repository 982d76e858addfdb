"""The Airflow side: operators that load, plan and commit batches of a stream."""

from airflow_provider_fds.airflow_version import check_airflow

check_airflow()
