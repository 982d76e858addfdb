"""An append without rows, only for its transaction. Standard library and pyspark, Python 3.9 syntax."""

from __future__ import annotations

from typing import Any, Iterator, List

from airflow_provider_fds.spark.runtime.failures import has_condition

_IDENTITY = "DELTA_IDENTITY_COLUMNS_EXPLICIT_INSERT_NOT_SUPPORTED"


def append_nothing(spark: Any, path: str, app_id: str, version: int, user_metadata: str) -> None:
    """Commit a transaction without rows to a table; Delta skips it if it has that transaction or a later one.

    Raises what Spark raises, including a conflict with a concurrent writer.
    """
    table = spark.read.format("delta").load(path).where("false")
    # identity columns cannot be written, and cannot be recognised from here; a single other column is enough
    choices = list(_columns(table.columns))
    for columns in choices:
        try:
            (
                table.select(*columns)
                .write.format("delta")
                .mode("append")
                .option("txnAppId", app_id)
                .option("txnVersion", str(version))
                .option("userMetadata", user_metadata)
                .save(path)
            )
        except Exception as e:
            if columns is choices[-1] or not has_condition(e, _IDENTITY):
                raise
        else:
            return


def _columns(names: List[str]) -> Iterator[List[str]]:
    quoted = ["`" + name.replace("`", "``") + "`" for name in names]
    yield quoted
    for name in quoted:
        yield [name]
