"""The Airflow side: connections become storage options, a task's context becomes the stream's context."""
