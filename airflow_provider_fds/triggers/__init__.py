"""The Airflow side: triggers that wait for a table in the triggerer, without a worker."""

from airflow_provider_fds.airflow_version import check_airflow

check_airflow()
