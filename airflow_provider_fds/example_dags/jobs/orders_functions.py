"""Functions that run on the Spark driver; ``dags/orders_merged.py`` ships them with ``py_files``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812  # its customary name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from airflow_provider_fds.spark import ForeachBatch


def with_title(orders: DataFrame) -> DataFrame:
    """Add a column; the columns that record what happened to a row, and when, are kept."""
    return orders.withColumn("title", F.upper("name"))


def split(changes: DataFrame, batch: ForeachBatch) -> int:
    """Write existing and deleted rows to two tables, each once per batch."""
    conf = changes.sparkSession.conf
    is_gone = F.col("_change_type") == "delete"
    rows = changes.where("_change_type <> 'update_preimage'").drop("_commit_version", "_commit_timestamp")
    for name, part in (("kept", rows.where(~is_gone)), ("gone", rows.where(is_gone))):
        target = conf.get(f"spark.orders.{name}")
        part.write.format("delta").mode("append").options(**batch.txn_options(name)).save(target)
    return rows.count()
