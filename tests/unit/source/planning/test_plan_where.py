"""Plans of streams with ``where``: which files are left out, what is recorded of it, and what positions mean."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider_fds.errors import ConfigurationError, StoppedError

WHERE = {"where": "id > 100 OR country = 'DE'"}


@pytest.fixture
def table(log_builder: Any) -> Any:
    fields = [log_builder.field("id"), log_builder.field("country", "string")]
    log_builder.create(fields, ["country"], {"delta.enableChangeDataFeed": "true"})
    return log_builder


def stats(highest: int, rows: int = 10) -> str:
    found = {"numRecords": rows, "minValues": {"id": 0}, "maxValues": {"id": highest}, "nullCount": {"id": 0}}
    return json.dumps(found)


def append(builder: Any, *files: tuple[int | None, str]) -> None:
    """Append files, each with the highest id (``None``: without statistics) and its country."""
    version = builder.version + 1
    builder.commit(
        *(
            builder.add(
                f"{version}-{number}",
                partitionValues={"country": country},
                stats=None if highest is None else stats(highest),
            )
            for number, (highest, country) in enumerate(files)
        )
    )


def test_files_that_cannot_match_are_left_out_and_the_others_keep_their_indexes(plan: Any, table: Any) -> None:
    append(table, (5, "FR"), (500, "FR"), (5, "DE"), (None, "FR"), (100, "FR"))
    found = plan(1, **WHERE)
    assert found.paths == ["1-1", "1-2", "1-3"]
    assert [file.index for file in found.batches[0].files] == [1, 2, 3]
    assert found.skipped == {}
    # how many of the rows Spark keeps is not known
    assert found.batches[0].num_rows is None


def test_a_commit_without_a_file_that_can_match_is_named_with_the_count_and_moves_the_offset(
    plan: Any, table: Any
) -> None:
    append(table, (5, "FR"), (100, "FR"))
    append(table, (7, "FR"))
    found = plan(1, **WHERE)
    assert (found.files, found.ends) == ([[]], [(3, "BASE", False)])
    assert [skip.reason for skip in found.batches[0].skipped] == [
        "where excludes all of its 2 data files, by partition values and statistics",
        "where excludes all of its 1 data files, by partition values and statistics",
    ]


def test_limits_do_not_count_what_is_left_out(plan: Any, table: Any) -> None:
    append(table, *[(5, "FR")] * 5, (500, "FR"), *[(5, "FR")] * 5, (500, "FR"), (500, "FR"))
    assert plan(1, **WHERE, max_files_per_batch=2).files == [["1-5", "1-11"], ["1-12"]]
    assert plan(1, **WHERE, max_rows_per_batch=11).files == [["1-5", "1-11"], ["1-12"]]


def test_conditions_on_partition_columns_are_the_planners_and_the_others_are_sparks(plan: Any, table: Any) -> None:
    append(table, (500, "FR"), (500, "DE"), (5, "DE"))
    append(table, (500, "FR"))
    (batch,) = plan(1, where="id > 100 AND country = 'DE'").batches
    assert [file.add.path for file in batch.files] == ["1-1"]
    assert (batch.where, batch.num_rows) == ("`id` > 100", None)
    (skip,) = batch.skipped
    assert skip.reason == "where excludes all of its 1 data files, by partition values and statistics"
    (batch,) = plan(1, where="(country = 'DE' OR country IS NULL) AND country <> 'FR'").batches
    assert [file.add.path for file in batch.files] == ["1-1", "1-2"]
    assert (batch.where, batch.num_rows) == ("", 20)
    (batch,) = plan(1, where="country = 'DE' OR id > 100").batches
    assert (batch.where, batch.num_rows) == ("(`country` = 'DE') OR (`id` > 100)", None)


def test_only_columns_by_which_spark_filters_must_be_read(plan: Any, table: Any) -> None:
    append(table, (500, "DE"))
    assert plan(1, columns=["id"], where="id > 100 AND country = 'DE'").files == [["1-0"]]
    for where, name in (("id > 100 AND country = 'DE'", "id"), ("country = 'DE' OR ID > 100", "ID")):
        with pytest.raises(
            ConfigurationError, match=f"where uses '{name}', which option 'columns' leaves out"
        ) as caught:
            plan(1, columns=["country"], where=where)
        assert caught.value.reason_code == "WHERE_INVALID"
    # as early as any other problem of the predicate: before there is a file to filter
    with pytest.raises(ConfigurationError, match="which option 'columns' leaves out"):
        plan(0, 0, columns=["country"], where="id > 100")


def test_the_initial_snapshot_is_pruned_too(plan: Any, table: Any) -> None:
    append(table, (5, "FR"), (500, "FR"))
    append(table, (5, "FR"), (None, "FR"))
    found = plan(plan.snapshot_start(), **WHERE)
    assert sorted(found.paths) == ["1-1", "2-1"]
    found = plan(plan.snapshot_start(), where="country = 'IT'")
    (skip,) = found.batches[0].skipped
    assert skip.reason == ("where excludes 4 data files of the initial snapshot, by partition values and statistics")


def test_changes_are_left_out_by_the_statistics_of_their_own_action(plan: Any, table: Any) -> None:
    append(table, (5, "FR"), (500, "FR"))
    old = {"partitionValues": {"country": "FR"}, "size": 1, "extendedFileMetadata": True}
    table.commit(table.remove("1-0", **old, stats=stats(5)), table.remove("1-1", **old, stats=stats(500)))
    table.commit({"cdc": {"path": "change", "size": 1, "partitionValues": {"country": "FR"}}})
    found = plan(1, read_change_feed=True, **WHERE)
    assert found.files == [["1-1"], ["1-1"], ["change"]]


def test_a_column_that_is_renamed_stops_the_stream_before_it(plan: Any, table: Any) -> None:
    append(table, (500, "FR"))
    fields = [table.field("number"), table.field("country", "string")]
    table.commit(table.metadata(fields, ["country"], {"delta.enableChangeDataFeed": "true"}))
    append(table, (500, "FR"))
    found = plan(1, **WHERE, accepted_schema_version=2)
    assert found.paths == ["1-0"]
    error = found.outcome.error
    assert isinstance(error, StoppedError)
    assert error.reason_code == "WHERE_OUTDATED"
    assert "names 'id', which is not a column of the table. Its columns are: number, country" in str(error)
