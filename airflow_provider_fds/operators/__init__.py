"""The Airflow side: operators that load, plan and commit batches of a stream."""
