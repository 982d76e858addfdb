"""Functions that a scenario's DAG names; shipped to the driver as a user would."""

from __future__ import annotations


def split(changes, batch):  # type: ignore[no-untyped-def]
    """Write small and large keys to two tables, each once per batch."""
    target = changes.sparkSession.conf.get("spark.adversary.target")
    rows = changes.drop("_commit_version", "_commit_timestamp")
    for name, part in (("small", rows.where("k < 6")), ("large", rows.where("k >= 6"))):
        part.write.format("delta").mode("append").options(**batch.txn_options(name)).save(f"{target}/{name}")
    return rows.count()
