"""The Airflow seam: sensors that wait for a table."""
