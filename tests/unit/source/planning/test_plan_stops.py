"""What the planner does not pass: it delivers what comes before, and says why it stopped."""

from __future__ import annotations

from typing import Any

import pytest

import airflow_provider_fds.delta.commits as commits_module
import airflow_provider_fds.delta.reader.log as log_module
from airflow_provider_fds.errors import (
    LogGapError,
    LogTruncatedError,
    SchemaChangedError,
    StoppedError,
    TableReplacedError,
    TornFileError,
    UnsupportedFeatureError,
    ViolationError,
)
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.source.planning.start import starting_state


def appended(builder: Any, versions: int = 2) -> None:
    builder.create([builder.field("id")])
    for _ in range(versions):
        builder.append()


def stopped(plan: Any, error: type[Exception], version: int, *, delivered: int = 2, **options: Any) -> str:
    """Check that planning delivers so many files, then stops before ``version``; return the message."""
    found = plan(1, **options)
    assert len(found.paths) == delivered
    assert [batch.end.version for batch in found.batches][-1:] == ([version] if delivered else [])
    assert found.outcome.status == "stopped"
    assert type(found.outcome.error) is error
    assert found.outcome.error.version == version
    assert plan.builder.uri in str(found.outcome.error)
    # the next run finds it first in line
    again = plan(version, **options)
    assert again.batches == []
    assert str(again.outcome.error) == str(found.outcome.error)
    return str(found.outcome.error)


def test_the_good_commits_before_a_bad_one_are_delivered(plan: Any, log_builder: Any) -> None:
    appended(log_builder)
    log_builder.commit(log_builder.remove("part-00001-00000.parquet"), operation="DELETE")
    log_builder.append()
    assert "skip_change_commits" in stopped(plan, ViolationError, 3)


def test_a_bad_commit_right_after_a_full_batch_does_not_fail_it(plan: Any, log_builder: Any) -> None:
    appended(log_builder)
    log_builder.commit(operation="VACUUM END")
    log_builder.commit(log_builder.remove("x"), log_builder.add("y"), operation="UPDATE")
    found = plan(1, maxFilesPerTrigger=1)
    assert found.ends == [(2, "BASE", False), (4, "BASE", False)]
    assert found.outcome.error is not None


def test_nothing_of_a_commit_is_delivered_before_all_of_it_is_judged(plan: Any, log_builder: Any) -> None:
    appended(log_builder)
    log_builder.commit(*[log_builder.add(f"f{number}") for number in range(5)], log_builder.remove("x"))
    stopped(plan, ViolationError, 3, maxFilesPerTrigger=1)


def test_a_stretch_without_data_before_a_bad_commit_is_delivered_as_a_batch_of_no_files(
    plan: Any, log_builder: Any
) -> None:
    log_builder.create()
    log_builder.commit(operation="VACUUM END")
    log_builder.commit(log_builder.remove("x"), operation="DELETE")
    found = plan(1)
    assert found.files == [[]]
    assert found.ends == [(2, "BASE", False)]
    assert found.outcome.status == "stopped"


# D18
def test_60_a_dropped_column_stops_the_stream(plan: Any, log_builder: Any) -> None:
    field = log_builder.field
    log_builder.create([field("id"), field("name", "string")])
    log_builder.append()
    log_builder.append()
    log_builder.commit(log_builder.metadata([field("id")]), operation="REPLACE COLUMNS")
    message = stopped(plan, SchemaChangedError, 3)
    assert "name" in message
    assert "accepted_schema_version=3" in message


def test_a_stream_that_starts_at_a_change_takes_the_table_as_it_is_then(plan: Any, log_builder: Any) -> None:
    field = log_builder.field
    log_builder.create([field("id"), field("name", "string")])
    changed = log_builder.commit(log_builder.metadata([field("id")]), log_builder.add("a"), operation="WRITE")
    assert isinstance(plan(changed).outcome.error, SchemaChangedError)
    found = plan(changed, state=starting_state(plan.log, plan.at(changed)))
    assert found.paths == ["a"]
    assert found.outcome.error is None


# D18
def test_other_partition_columns_stop_the_stream(plan: Any, log_builder: Any) -> None:
    appended(log_builder)
    log_builder.commit(log_builder.metadata([log_builder.field("id")], ["id"]), log_builder.add("f"), operation="WRITE")
    assert "~ partition columns: none -> id" in stopped(plan, SchemaChangedError, 3)
    assert plan(3, accepted_schema_version=3).paths == ["f"]


# D18
def test_55_an_added_column_takes_effect(plan: Any, log_builder: Any) -> None:
    field = log_builder.field
    appended(log_builder)
    log_builder.commit(
        log_builder.metadata([field("id"), field("more", "string")]), log_builder.add("f"), operation="ADD COLUMNS"
    )
    log_builder.append()
    found = plan(1)
    assert len(found.paths) == 4
    # cut there: what was written before is read under the schema it was written with
    assert [batch.state.version for batch in found.batches] == [2, 4]
    assert ["more" in batch.state.metadata.schemaString for batch in found.batches] == [False, True]
    first, *rest = plan(1, maxFilesPerTrigger=2).batches
    assert "more" not in first.state.metadata.schemaString
    assert all("more" in batch.state.metadata.schemaString for batch in rest)


# D18
def test_properties_and_comments_do_not_stop_the_stream(plan: Any, log_builder: Any) -> None:
    appended(log_builder)
    log_builder.commit(log_builder.metadata(configuration={"delta.appendOnly": "true"}), operation="SET TBLPROPERTIES")
    (batch,) = plan(1).batches
    assert batch.state.metadata.property("delta.appendOnly") == "true"
    assert batch.end.version == 4


@pytest.mark.parametrize("acknowledged", [3, 4])
def test_65_an_acknowledged_change_of_the_schema_is_passed_and_cuts_the_batch(
    plan: Any, log_builder: Any, acknowledged: int
) -> None:
    appended(log_builder)
    log_builder.commit(log_builder.metadata([log_builder.field("other")]), log_builder.add("f"), operation="WRITE")
    log_builder.append()
    found = plan(1, accepted_schema_version=acknowledged)
    assert found.outcome.error is None
    assert [(batch.end.version, batch.num_files) for batch in found.batches] == [(3, 2), (5, 2)]
    assert ["other" in batch.state.metadata.schemaString for batch in found.batches] == [False, True]


def test_an_earlier_acknowledgement_does_not_let_a_later_change_pass(plan: Any, log_builder: Any) -> None:
    appended(log_builder)
    log_builder.commit(log_builder.metadata([log_builder.field("other")]), operation="RENAME COLUMN")
    stopped(plan, SchemaChangedError, 3, accepted_schema_version=2)


def test_an_accepted_schema_version_does_not_let_a_violation_pass(plan: Any, log_builder: Any) -> None:
    appended(log_builder)
    log_builder.commit(log_builder.metadata([log_builder.field("other")]), log_builder.remove("g"), operation="WRITE")
    stopped(plan, ViolationError, 3, accepted_schema_version=3)


def test_a_skipped_commit_still_changes_the_schema(plan: Any, log_builder: Any) -> None:
    field = log_builder.field
    appended(log_builder)
    log_builder.commit(
        log_builder.metadata([field("other")]), log_builder.add("f"), log_builder.remove("g"), operation="WRITE"
    )
    stopped(plan, SchemaChangedError, 3, skipChangeCommits=True)
    stopped(plan, SchemaChangedError, 3, skip_versions=3)


def test_the_schema_is_compared_before_the_data(plan: Any, log_builder: Any) -> None:
    appended(log_builder)
    log_builder.commit(log_builder.metadata([log_builder.field("other")]), log_builder.remove("g"), operation="WRITE")
    stopped(plan, SchemaChangedError, 3)


def test_16_another_table_id_in_the_log_stops_the_stream(plan: Any, log_builder: Any) -> None:
    appended(log_builder)
    log_builder.commit(log_builder.metadata(id="another"), operation="REPLACE TABLE")
    assert "another" in stopped(plan, TableReplacedError, 3)


# D38
def test_16_a_recreated_table_with_a_new_id_is_refused(plan: Any, log_builder: Any) -> None:
    appended(log_builder)
    position = plan.at(2)
    log_builder.table_id = "another"
    log_builder.version = -1
    appended(log_builder)
    for start in (position, plan.at(0), plan.at(1)):
        old = Offset(position.table_id, start.version, start.index)
        found = plan(old)
        assert found.batches == []
        assert isinstance(found.outcome.error, TableReplacedError)
        assert "another" in str(found.outcome.error)


@pytest.mark.parametrize(
    "protocol",
    [
        {"minReaderVersion": 99, "minWriterVersion": 99},
        {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["future"], "writerFeatures": ["future"]},
    ],
)
def test_66_and_67_a_protocol_that_cannot_be_read_stops_the_stream(
    plan: Any, log_builder: Any, protocol: dict[str, Any]
) -> None:
    appended(log_builder)
    log_builder.commit({"protocol": protocol}, operation="UPGRADE PROTOCOL")
    log_builder.append()
    stopped(plan, UnsupportedFeatureError, 3)


def test_66_a_feature_that_was_dropped_later_still_stops_before_its_versions(plan: Any, log_builder: Any) -> None:
    log_builder.create(
        protocol={
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["future"],
            "writerFeatures": ["future"],
        }
    )
    log_builder.append()
    log_builder.commit({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, operation="DROP FEATURE")
    assert isinstance(plan(1).outcome.error, UnsupportedFeatureError)
    assert plan(3).outcome.error is None


# D37
def test_49_a_position_that_log_cleanup_took_is_lost(plan: Any, log_builder: Any) -> None:
    appended(log_builder, 4)
    known = plan.log.state_at(1)
    log_builder.clean_up_before(3)
    for state in (known, None):
        found = plan(2, state=state)
        assert found.batches == []
        assert isinstance(found.outcome.error, LogTruncatedError)
        assert (found.outcome.error.version, found.outcome.error.earliest_version) == (2, 3)


# D37
def test_50_a_hole_in_the_log_stops_before_it(plan: Any, log_builder: Any) -> None:
    appended(log_builder, 5)
    log_builder.path_of(3).unlink()
    found = plan(1)
    assert found.outcome.status == "stopped"
    assert isinstance(found.outcome.error, LogGapError)
    assert found.ends in ([], [(3, "BASE", False)])


@pytest.mark.parametrize("content", ["", '{"add":{"path":"x"', '{"add":{"size":1}}\n'])
def test_a_torn_commit_stops_the_stream_and_a_later_attempt_may_succeed(
    plan: Any, log_builder: Any, content: str
) -> None:
    appended(log_builder, 2)
    log_builder.write_raw(3, content)
    log_builder.version = 3
    stopped(plan, TornFileError, 3)


def test_two_metadata_actions_in_one_commit_stop_the_stream(plan: Any, log_builder: Any) -> None:
    appended(log_builder)
    log_builder.commit(log_builder.metadata(), log_builder.metadata(name="x"), operation="WRITE")
    stopped(plan, StoppedError, 3)


def test_a_first_version_without_metadata_stops_the_stream(plan: Any, log_builder: Any) -> None:
    log_builder.commit({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, log_builder.add("a"))
    found = plan(0)
    assert found.batches == []
    assert "has no metaData action" in str(found.outcome.error)


def test_19_a_start_that_cannot_be_rebuilt_needs_its_commit_only(plan: Any, log_builder: Any) -> None:
    deltalake = pytest.importorskip("deltalake")
    appended(log_builder, 3)
    table = deltalake.DeltaTable(str(log_builder.root), version=2)
    table.create_checkpoint()
    log_builder.clean_up_before(1)
    found = plan(1)
    assert len(found.paths) == 3
    assert found.outcome.error is None
    assert found.batches[0].state.metadata.id == log_builder.table_id


def test_a_commit_without_the_time_it_must_carry_stops_before_it(plan: Any, log_builder: Any) -> None:
    log_builder.create(configuration={"delta.enableInCommitTimestamps": "true"})
    log_builder.append()
    log_builder.commit(log_builder.add("a"), inCommitTimestamp=5)
    log_builder.write_raw(1, log_builder.path_of(2).read_bytes().replace(b'"a"', b'"b"'))
    log_builder.append()
    found = plan(1)
    assert found.files == [["b", "a"]]
    (batch,) = found.batches
    assert (batch.last_version, batch.end.version) == (2, 3)
    assert isinstance(found.outcome.error, TornFileError)


def test_a_file_that_vanishes_while_its_commit_is_delivered_is_not_part_of_the_good_prefix(
    plan: Any, log_builder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # what is true of a commit of gigabytes is true of one of kilobytes
    monkeypatch.setattr(log_module, "STREAMED_ABOVE_BYTES", 1000)
    monkeypatch.setattr(commits_module, "_CHUNK_BYTES", 500)
    appended(log_builder, 1)
    log_builder.append(150)
    batches = iter(plan.planner(1, maxFilesPerTrigger=10))
    assert next(batches).num_files == 10
    # the commit is streamed: its second reading is under way
    path = log_builder.path_of(2)
    path.write_bytes(path.read_bytes()[:-400])
    with pytest.raises(TornFileError):
        list(batches)


def test_a_row_limit_cuts_by_the_statistics_of_the_log(plan: Any, log_builder: Any) -> None:
    appended(log_builder, versions=0)
    for rows in (5, 6, 20, 3):
        log_builder.append(2, rows=rows)
    found = plan(1, max_rows_per_batch=15)
    assert [batch.num_rows for batch in found.batches] == [16, 26, 20, 6]
    whole = plan(1, max_rows_per_batch=15, whole_commits=True)
    assert [batch.num_rows for batch in whole.batches] == [10, 12, 40, 6]
    assert len(plan(1, max_rows_per_batch=15, max_files_per_batch=1).batches) == 8


@pytest.mark.parametrize("stats", [None, '{"minValues":{}}', "{"], ids=["none", "without a count", "damaged"])
def test_a_row_limit_counts_a_file_of_unknown_rows_by_its_size(plan: Any, log_builder: Any, stats: Any) -> None:
    appended(log_builder)
    log_builder.commit(
        log_builder.add("known", rows=10, size=500),
        log_builder.add("unknown", size=1000, stats=stats),
        log_builder.add("next", rows=10),
    )
    log_builder.append()
    # 10 rows in 500 bytes, so 20 in 1000
    assert plan(3, max_rows_per_batch=25).files == [["known", "unknown"], ["next", "part-00004-00000.parquet"]]
    assert plan(3, max_rows_per_batch=31).files == [["known", "unknown", "next"], ["part-00004-00000.parquet"]]


def test_a_row_limit_counts_a_file_of_unknown_rows_in_the_initial_snapshot(plan: Any, log_builder: Any) -> None:
    appended(log_builder)
    log_builder.append(stats=None)
    found = plan(plan.snapshot_start(), max_rows_per_batch=15)
    assert [len(files) for files in found.files] == [2, 1]


def test_a_row_limit_counts_a_commit_that_is_streamed(
    plan: Any, log_builder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "STREAMED_ABOVE_BYTES", 1000)
    appended(log_builder, versions=1)
    log_builder.append(40)
    assert [len(files) for files in plan(1, max_rows_per_batch=100).files] == [10, 10, 10, 10, 1]
    assert [len(files) for files in plan(1, max_rows_per_batch=100, whole_commits=True).files] == [1, 40]
