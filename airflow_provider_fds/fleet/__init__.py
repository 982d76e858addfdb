"""A fleet: many streams that one task loads in one Spark application. Imports neither Airflow nor Spark."""
