"""Changes of the schema on the way: what is followed, and what is a barrier. Numbers: conformance cases."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_fds.errors import LogTruncatedError, SchemaChangedError
from airflow_provider_fds.source.planning.start import starting_state

WIDENING = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["typeWidening"],
    "writerFeatures": ["typeWidening"],
}
MAPPING = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["columnMapping"],
    "writerFeatures": ["columnMapping"],
}


def changed(builder: Any, before: dict[str, Any], after: dict[str, Any], **table: Any) -> None:
    """Write version 0, an append, version 2 with another schema, an append."""
    builder.create([before], **table)
    builder.append()
    configuration = table.get("configuration")
    builder.commit(builder.metadata([after], configuration=configuration), operation="ALTER TABLE")
    builder.append()


def stops(plan: Any) -> str:
    """Check that the stream stops before version 2 with all before it delivered, from 0 and from 2."""
    found = plan(0)
    assert [batch.end.version for batch in found.batches] == [2]
    assert isinstance(found.outcome.error, SchemaChangedError)
    assert found.outcome.error.version == 2
    again = plan(2)
    assert again.batches == []
    assert isinstance(again.outcome.error, SchemaChangedError)
    return str(again.outcome.error)


def is_followed(plan: Any) -> None:
    """Check that all is read, in batches that end where the schema changes."""
    found = plan(0)
    assert found.outcome.error is None
    assert [(batch.end.version, batch.num_files) for batch in found.batches] == [(2, 1), (4, 1)]


# D37
def test_12_a_snapshot_without_checkpoint_and_first_commit_says_what_is_missing(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    log_builder.append()
    log_builder.append()
    log_builder.clean_up_before(1)
    with pytest.raises(LogTruncatedError, match="no complete checkpoint"):
        plan.freeze(2)


def test_53_a_column_added_before_the_start_is_in_all_rows(plan: Any, log_builder: Any) -> None:
    field = log_builder.field
    changed(log_builder, field("id"), field("id"))
    log_builder.commit(log_builder.metadata([field("id"), field("more")]), operation="ADD COLUMNS")
    (batch,) = plan(plan.snapshot_start()).batches
    assert batch.num_files == 2
    assert "more" in batch.state.metadata.schemaString


def test_54_another_type_stops_the_stream(plan: Any, log_builder: Any) -> None:
    changed(log_builder, log_builder.field("id", "string"), log_builder.field("id", "integer"))
    assert "~ id: string -> integer" in stops(plan)


def test_56_relaxed_nullability_is_followed(plan: Any, log_builder: Any) -> None:
    changed(log_builder, log_builder.field("id", nullable=False), log_builder.field("id"))
    is_followed(plan)


def test_57_a_column_that_becomes_not_null_stops_the_stream(plan: Any, log_builder: Any) -> None:
    changed(log_builder, log_builder.field("id"), log_builder.field("id", nullable=False))
    assert "~ id: nullable -> not null" in stops(plan)


def test_58_a_wider_type_is_followed_where_the_table_has_type_widening(plan: Any, log_builder: Any) -> None:
    changed(log_builder, log_builder.field("id", "integer"), log_builder.field("id", "long"), protocol=WIDENING)
    is_followed(plan)


def test_58_a_wider_type_without_type_widening_stops_the_stream(plan: Any, log_builder: Any) -> None:
    changed(log_builder, log_builder.field("id", "integer"), log_builder.field("id", "long"))
    stops(plan)


@pytest.mark.parametrize(("before", "after"), [("long", "integer"), ("string", "binary"), ("double", "float")])
def test_59_a_narrower_or_arbitrary_type_stops_the_stream_with_type_widening_too(
    plan: Any, log_builder: Any, before: str, after: str
) -> None:
    changed(log_builder, log_builder.field("id", before), log_builder.field("id", after), protocol=WIDENING)
    stops(plan)


# D18
def test_60_a_column_renamed_and_renamed_back_stops_the_stream_at_the_first_of_the_two(
    plan: Any, log_builder: Any
) -> None:
    key, mapped = "delta.columnMapping.physicalName", {"delta.columnMapping.mode": "name"}
    one, two = (log_builder.field(name, **{key: "col-1", "delta.columnMapping.id": 1}) for name in ("id", "other"))
    changed(log_builder, one, two, protocol=MAPPING, configuration=mapped)
    log_builder.commit(log_builder.metadata([one], configuration=mapped), operation="RENAME COLUMN")
    assert "~ id -> other" in stops(plan)


def test_63_removed_column_mapping_stops_only_a_stream_that_reaches_that_version(plan: Any, log_builder: Any) -> None:
    key, mapped = "delta.columnMapping.physicalName", {"delta.columnMapping.mode": "name"}
    log_builder.create([log_builder.field("id", **{key: "id"})], protocol=MAPPING, configuration=mapped)
    log_builder.append()
    log_builder.commit(log_builder.metadata([log_builder.field("id")]), operation="SET TBLPROPERTIES")
    log_builder.append()
    assert "~ column mapping: name -> none" in stops(plan)
    behind = plan(2, state=starting_state(plan.log, plan.at(2)))
    assert behind.outcome.error is None
    assert len(behind.paths) == 1


def test_64_a_change_within_the_history_of_an_initial_snapshot_does_not_matter(plan: Any, log_builder: Any) -> None:
    changed(log_builder, log_builder.field("id", "string"), log_builder.field("id", "integer"))
    found = plan(plan.snapshot_start())
    assert found.outcome.error is None
    assert len(found.paths) == 2


def test_a_change_of_the_schema_that_replaces_rows_too_needs_two_decisions(plan: Any, log_builder: Any) -> None:
    log_builder.create([{"name": "id", "type": "integer", "nullable": True, "metadata": {}}])
    log_builder.append()
    other = {"name": "id", "type": "string", "nullable": True, "metadata": {}}
    log_builder.commit(
        log_builder.metadata([other]), log_builder.remove(next(iter(log_builder.live))), operation="WRITE"
    )
    said = stops(plan)
    assert "also changes data (it adds 0 data files and removes 1 data file)" in said
    assert "`fds accept STREAM --version 2 --why …`" in said
    assert "after the schema, `fds skip STREAM --version 2 --why …` continues without its rows" in said


FEED = {"delta.enableChangeDataFeed": "true"}


def overwritten(builder: Any, before: dict[str, Any], after: dict[str, Any]) -> None:
    """Write version 0, an append, version 2 that overwrites its file with another schema, an append."""
    builder.create([builder.field("n"), before], configuration=FEED)
    builder.append()
    builder.commit(
        builder.metadata([builder.field("n"), after], configuration=FEED),
        builder.remove(next(iter(builder.live))),
        builder.add(),
        operation="WRITE",
    )
    builder.append()


@pytest.mark.parametrize(("old", "new"), [("integer", "string"), ("long", "integer"), ("string", "date")])
@pytest.mark.parametrize("is_nested", [False, True])
def test_a_change_feed_stops_before_an_overwrite_with_another_type_and_cannot_be_told_to_pass_it(
    plan: Any, log_builder: Any, old: str, new: str, is_nested: bool
) -> None:
    kinds = [{"type": "struct", "fields": [log_builder.field("x", kind)]} if is_nested else kind for kind in (old, new)]
    overwritten(log_builder, *(log_builder.field("id", kind) for kind in kinds))
    found = plan(0, read_change_feed=True, accepted_schema_version=9)
    assert [batch.end.version for batch in found.batches] == [2]
    error = found.outcome.error
    assert isinstance(error, SchemaChangedError)
    assert error.way_on is None
    assert f"have the old type of {'id.x' if is_nested else 'id'}. The stream stops before version 2" in str(error)
    assert "`fds rewind STREAM --to start --replace --sink-rows keep --why …`" in str(error)
    assert plan(plan.snapshot_start(), read_change_feed=True).outcome.error is None


@pytest.mark.parametrize(
    "options",
    [
        {"read_change_feed": False, "ignore_changes": True},
        {"read_change_feed": True, "columns": ["n"]},
        {"read_change_feed": True, "skip_versions": [2]},
    ],
)
def test_an_overwrite_with_another_type_is_passed_if_no_batch_has_both_types(
    plan: Any, log_builder: Any, options: dict[str, Any]
) -> None:
    overwritten(log_builder, log_builder.field("id", "integer"), log_builder.field("id", "string"))
    found = plan(0, accepted_schema_version=9, **options)
    assert found.outcome.error is None
    assert found.batches[-1].end.version == 4


def test_an_overwrite_with_a_wider_type_is_passed(plan: Any, log_builder: Any) -> None:
    overwritten(log_builder, log_builder.field("id", "integer"), log_builder.field("id", "long"))
    assert plan(0, accepted_schema_version=9, read_change_feed=True).outcome.error is None
