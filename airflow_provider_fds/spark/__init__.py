"""What runs on the Spark driver, and how it is started.

``job`` is the application. The writers, ``history``, ``failures``, ``files`` and ``settings`` are parts of it and are
shipped with it as a zip: standard library and pyspark only, Python 3.9 syntax, Spark 3.5 API. ``user_job`` is for the
user's own application. The other modules run in Airflow only: ``install`` finds Spark, Java and Delta's JARs, ``cache``
keeps them, ``submit`` builds a submission, and ``launch`` runs it; ``connect`` and ``session_job`` run the job from the
worker's own process.
"""

from __future__ import annotations

from airflow_provider_fds.spark.user_job import CurrentBatch, current_batch, spark_conf

__all__ = ["CurrentBatch", "current_batch", "spark_conf"]
