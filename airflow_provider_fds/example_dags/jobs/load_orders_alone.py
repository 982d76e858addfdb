"""Your own Spark job without FDS's modules, for a service that takes no Python files beside the job."""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def main(output: str, manifest: str, txn_app_id: str, txn_version: str) -> None:
    """Append the new orders; the two options make Delta skip a batch that is already there."""
    spark = SparkSession.builder.appName("load_orders").getOrCreate()
    orders = spark.read.format("delta").load(manifest)
    (
        orders.drop("_commit_version", "_commit_timestamp")
        .write.format("delta")
        .mode("append")
        .options(txnAppId=txn_app_id, txnVersion=txn_version)
        .save(output)
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
