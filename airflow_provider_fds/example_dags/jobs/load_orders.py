"""Your own Spark job: load one batch, in a transaction that makes repetition harmless."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  # its customary name

from airflow_provider_fds.spark import current_batch


def main(output: str) -> None:
    """Append the new orders, with the time at which they were committed to the source."""
    spark = SparkSession.builder.appName("load_orders").getOrCreate()
    batch = current_batch(spark)
    orders = batch.dataframe().withColumn("ordered_at", F.col("_commit_timestamp"))
    (
        orders.drop("_commit_version", "_commit_timestamp")
        .write.format("delta")
        .mode("append")
        .options(**batch.txn_options())
        .save(output)
    )
    batch.report(rows=batch.num_rows)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
