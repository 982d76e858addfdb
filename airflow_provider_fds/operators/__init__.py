"""The Airflow seam: operators that load, plan and commit batches of a stream."""
