"""The partitions of the source that a load has touched."""

from __future__ import annotations

import json

import pytest

from airflow_provider_fds import DeltaStream
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.position.changed_partitions import changed_partitions, check_partition_column
from tests.unit.stream.conftest import UNREADABLE


@pytest.fixture
def table(log_builder):
    """Versions 1 to 3 write the days 1 to 3, version 4 removes a file of day 1, version 5 rewrites day 3."""
    log_builder.create(
        schema_fields=[log_builder.field("id"), log_builder.field("day", "date"), log_builder.field("shop", "string")],
        partition_columns=["day", "shop"],
    )

    def values(day, shop="a"):
        return {"day": day and f"2026-01-0{day}", "shop": shop}

    for day in (1, 2, 3):
        log_builder.commit(log_builder.add(f"{day}.parquet", partitionValues=values(day)))
    log_builder.commit(log_builder.remove("1.parquet", partitionValues=values(1)), operation="DELETE")
    log_builder.commit(log_builder.add(partitionValues=values(3), dataChange=False), operation="OPTIMIZE")
    log_builder.commit(log_builder.add(partitionValues=values(None, "b")))
    return log_builder


def days(table, first, last, column="day", start=None, **options):
    stream = DeltaStream("orders", table=table.uri, **options)
    log = DeltaLog(open_storage(table.uri, {}))
    result = {"first_version": first, "last_version": last, **({} if start is None else {"start": start})}
    return [value.removeprefix("2026-01-") for value in changed_partitions(stream, log, column, result)]


def test_they_are_the_values_of_files_that_are_added_and_in_a_change_feed_also_of_removed_ones(table):
    assert days(table, 1, 2) == ["01", "02"]
    assert days(table, 3, 4, column="DAY") == ["03"]
    assert days(table, 3, 4, read_change_feed=True) == ["01", "03"]
    assert days(table, 1, 6, column="shop") == ["a", "b"]


@pytest.mark.parametrize("leave_unreadable", UNREADABLE)
def test_a_column_is_checked_although_the_newest_commit_cannot_be_read(table, leave_unreadable):
    leave_unreadable(table)
    log = DeltaLog(open_storage(table.uri, {}))
    check_partition_column(log, "day")
    with pytest.raises(ConfigurationError):
        check_partition_column(log, "id")


def test_files_that_change_no_data_and_null_are_left_out(table):
    assert days(table, 5, 6) == []


def test_what_the_stream_leaves_out_is_left_out(table):
    assert days(table, 1, 3, skip_versions=[2]) == ["01", "03"]
    assert days(table, 1, 3, where="day > DATE '2026-01-01'") == ["02", "03"]


def test_files_and_commits_that_options_leave_out_are_left_out(table):
    assert days(table, 1, 3, exclude_regex=r"^2\.") == ["01", "03"]
    assert days(table, 1, 4, skip_operations=["DELETE"], read_change_feed=True) == ["01", "02", "03"]
    assert days(table, 3, 4, skip_operations=["DELETE"], read_change_feed=True) == ["03"]
    assert days(table, 3, 4, where="day > DATE '2026-01-01'", read_change_feed=True) == ["03"]
    snapshot = Offset(table.table_id, 4, is_initial_snapshot=True).to_json()
    assert days(table, 4, 4, start=snapshot, exclude_regex=r"^2\.") == ["03"]


def test_the_initial_snapshot_is_filtered_by_statistics(table):
    table.commit(table.add("low", partitionValues={"day": "2026-01-07", "shop": "a"}, stats=stats_of(1)))
    table.commit(table.add("high", partitionValues={"day": "2026-01-08", "shop": "a"}, stats=stats_of(9)))
    version = table.version
    snapshot = Offset(table.table_id, version, is_initial_snapshot=True).to_json()
    assert "07" not in days(table, version, version, start=snapshot, where="id > 5")
    assert "08" in days(table, version, version, start=snapshot, where="id > 5")


def stats_of(value):
    return json.dumps({"numRecords": 1, "minValues": {"id": value}, "maxValues": {"id": value}, "nullCount": {"id": 0}})


def test_the_initial_snapshot_has_the_files_of_its_version(table):
    snapshot = Offset(table.table_id, 4, is_initial_snapshot=True).to_json()
    # day 1 was removed before it
    assert days(table, 4, 4, start=snapshot) == ["02", "03"]
    assert days(table, 4, 6, column="shop", start=snapshot) == ["a", "b"]
    assert days(table, 2, 2, start=Offset.after(1, table.table_id).to_json()) == ["02"]


@pytest.mark.parametrize("column", ["id", "month"])
def test_another_column_is_refused_with_those_that_work(table, column):
    with pytest.raises(ConfigurationError, match=rf"asset_partitions is '{column}'.* columns: day, shop"):
        check_partition_column(DeltaLog(open_storage(table.uri, {})), column)
