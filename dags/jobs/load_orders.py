"""A Spark job of one's own: load one batch, with the transaction that makes a repetition harmless."""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as everybody calls it


def main() -> None:
    """Append the orders that are new, with the time at which they were committed to the source."""
    parser = argparse.ArgumentParser()
    for name in ("--input", "--output", "--txn-app-id", "--txn-version"):
        parser.add_argument(name, required=True)
    args = parser.parse_args()
    spark = SparkSession.builder.appName("load_orders").getOrCreate()
    batch = spark.read.format("delta").load(args.input)
    (
        batch.withColumn("ordered_at", F.col("_commit_timestamp"))
        .drop("_commit_version", "_commit_timestamp")
        .write.format("delta")
        .mode("append")
        .option("txnAppId", args.txn_app_id)
        .option("txnVersion", args.txn_version)
        .save(args.output)
    )
    spark.stop()


if __name__ == "__main__":
    main()
