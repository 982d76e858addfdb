"""The Airflow side: TaskFlow decorators."""
