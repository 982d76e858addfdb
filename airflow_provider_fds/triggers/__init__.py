"""The Airflow side: triggers that wait for a table in the triggerer, without a worker."""
