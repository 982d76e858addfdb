"""What runs on the Spark driver, and how it is started.

``runtime``, ``sink_log``, ``fence``, ``writers`` and ``application`` run on the driver and are shipped to it as a zip:
standard library and pyspark only, Python 3.9 syntax, Spark 3.5 API. ``installation``, ``submission`` and ``sessions``
run on the worker, and start it. The names below are for the user's own code on the driver.
"""

from __future__ import annotations

from airflow_provider_fds.spark.application.user_job import CurrentBatch, current_batch, spark_conf
from airflow_provider_fds.spark.writers.foreach_batch import ForeachBatch

__all__ = ["CurrentBatch", "ForeachBatch", "current_batch", "spark_conf"]
