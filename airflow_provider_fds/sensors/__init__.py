"""The Airflow side: sensors that wait for a table."""
