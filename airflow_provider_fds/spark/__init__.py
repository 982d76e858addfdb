"""What runs on Spark's side of the border, and how it is started.

``job`` is the application; the sinks, ``history``, ``failures``, ``files`` and ``settings`` are its parts and travel
with it as a zip: standard library and pyspark only, Python 3.9 syntax, Spark 3.5 API. ``user_job`` is for the user's
own application. Four modules run on Airflow's side only: ``install`` finds Spark, Java and Delta's JARs, ``cache``
keeps them, ``submit`` builds a submission, and ``launch`` runs it.
"""

from __future__ import annotations

from airflow_provider_fds.spark.user_job import CurrentBatch, current_batch, spark_conf

__all__ = ["CurrentBatch", "current_batch", "spark_conf"]
