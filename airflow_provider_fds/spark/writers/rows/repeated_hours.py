"""Times that Delta would write as another one. Standard library, pyspark, Python 3.9 syntax."""

from __future__ import annotations

from typing import Any, Callable, Sequence

from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.spark.runtime.failures import RefusalError
from airflow_provider_fds.spark.runtime.settings import TIME_ZONE, in_utc
from airflow_provider_fds.spark.runtime.sql import quoted_name


def refuse_repeated_hours(spark: Any, rows: Any, partitions: Callable[[], Sequence[str]], path: str) -> None:
    """Refuse times in a partition column that are in the hour which the session's clock shows twice in autumn.

    The name of a partition has the time as the session's clock shows it, without the zone, and Delta takes the first of
    the two for it.

    Args:
        spark: The session.
        rows: The rows to be written.
        partitions: Returns the columns by which the table is partitioned; asked if a column has times.
        path: Of the table.

    Raises:
        RefusalError: There are such rows; nothing was written.
    """
    times = [one.name for one in rows.schema.fields if one.dataType.typeName() == "timestamp"]
    if not times or in_utc(spark):
        return
    taken = {name.lower() for name in partitions()}
    for name in times:
        if name.lower() not in taken:
            continue
        at = quoted_name(name)
        moved = rows.where(f"NOT (CAST(CAST({at} AS STRING) AS TIMESTAMP) <=> {at})")
        found = moved.selectExpr("count(*) AS num", f"CAST(min({at}) AS STRING) AS example").collect()[0]
        if found["num"]:
            raise RefusalError(
                Reason.SINK_UNSUITABLE,
                f"{found['num']:,} rows have a time in the partition column {name} that the clock of "
                f"{spark.conf.get(TIME_ZONE)} shows twice, such as {found['example']}. Delta would write the first of "
                f"the two into {path}. Nothing was written: set {TIME_ZONE} to UTC in conf",
            )
