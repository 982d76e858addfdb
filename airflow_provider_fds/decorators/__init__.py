"""The Airflow seam: TaskFlow decorators."""
