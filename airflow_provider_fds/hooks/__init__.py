"""The Airflow seam: connections become storage options, a task's context becomes the stream's context."""
