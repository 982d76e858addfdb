"""Event times as Spark writes them into the statistics of a table."""

from __future__ import annotations

import pytest

from airflow_provider_fds.delta.moments import time_text
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.source.event_time import TimeColumn

TIMES = ("2026-01-01 10:00:00.123456", "2026-01-02 23:59:59.999999")


@pytest.mark.parametrize("mapping", ["none", "name"])
@pytest.mark.parametrize("name", ["ts", "local", "day", "event.at", "part"])
def test_no_row_is_outside_of_the_range_that_the_log_gives(spark, tmp_path, mapping, name):
    table = f"delta.`{tmp_path / 'source'}`"
    spark.sql(
        f"CREATE TABLE {table} (ts TIMESTAMP, local TIMESTAMP_NTZ, day DATE, event STRUCT<at: TIMESTAMP>, "
        f"part TIMESTAMP) USING delta PARTITIONED BY (part) TBLPROPERTIES ('delta.columnMapping.mode' = '{mapping}')"
    )
    rows = ", ".join(
        f"(TIMESTAMP'{at} UTC', TIMESTAMP_NTZ'{at}', DATE'{at[:10]}', named_struct('at', TIMESTAMP'{at} UTC'), "
        f"TIMESTAMP'{at} UTC')"
        for at in TIMES
    )
    spark.sql(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ * FROM VALUES {rows}")
    log = DeltaLog(open_storage(str(tmp_path / "source")))
    column = TimeColumn.find(log.state_at(1).metadata, name, table=log.table_uri)
    assert column is not None
    found = [column.times_of(action.add) for action in log.commit(1).actions if action.add is not None]
    first = min(times.min_us for times in found)
    last, seen = max(times.max_us for times in found), max(times.seen_us for times in found)
    low, high = (f"{at[:10]}T{'00:00:00.000000' if name == 'day' else at[11:]}Z" for at in TIMES)
    assert time_text(first) <= low
    assert time_text(seen) <= high <= time_text(last)
    # not wider than a millisecond
    assert (time_text(first)[:23], time_text(last)[:23], time_text(seen)[:23]) == (low[:23], high[:23], high[:23])
