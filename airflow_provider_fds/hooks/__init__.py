"""The Airflow seam, side of the world: connections become storage, a task's context becomes stream_context."""
