"""The Airflow seam: triggers, which wait for a table in the triggerer, without a worker."""
