"""Where a stream starts. Numbers: conformance cases."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_provider_fds.errors import ConfigurationError, TableNotFoundError, TableReplacedError
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.source.options.options import SourceOptions
from airflow_provider_fds.source.planning.start import SnapshotStart, resolve_start, starting_state


def start(plan: Any, **options: Any) -> Any:
    return resolve_start(plan.log, SourceOptions.parse(options))


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def base(plan: Any, version: int) -> Offset:
    return Offset(plan.builder.table_id, version)


def refusal(plan: Any, **options: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        start(plan, **options)
    assert plan.builder.uri in str(caught.value)
    return str(caught.value)


@pytest.fixture
def two_commits(log_builder: Any) -> Any:
    """A table whose versions 0 and 1 both hold data, committed at 23:50 and at 00:10."""
    log_builder.commit(
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        log_builder.metadata(),
        log_builder.add("f0"),
        timestamp_ms=ms("2020-07-14T23:50:00"),
    )
    log_builder.append(timestamp_ms=ms("2020-07-15T00:10:00"))
    return log_builder


def test_without_a_start_the_stream_begins_with_the_newest_snapshot(plan: Any, two_commits: Any) -> None:
    found = start(plan)
    assert found == SnapshotStart(1, two_commits.table_id)
    assert found.offset == Offset(two_commits.table_id, 1, is_initial_snapshot=True)
    assert len(plan(found.offset).paths) == 2


def test_18_a_starting_version_is_inclusive(plan: Any, two_commits: Any) -> None:
    assert start(plan, startingVersion=0) == base(plan, 0)
    assert start(plan, startingVersion=1) == base(plan, 1)
    assert len(plan(start(plan, startingVersion=0)).paths) == 2
    assert len(plan(start(plan, startingVersion=1)).paths) == 1


# D10
def test_18_a_starting_version_beyond_the_head_is_refused_with_the_nearest_one(plan: Any, two_commits: Any) -> None:
    message = refusal(plan, startingVersion=2)
    assert "starting_version is 2" in message
    assert "newest version of the table is 1" in message
    assert "'latest'" in message


# D10
def test_19_a_starting_version_before_the_log_is_refused_with_the_earliest_one(plan: Any, log_builder: Any) -> None:
    deltalake = pytest.importorskip("deltalake")
    log_builder.create()
    for _ in range(3):
        log_builder.append()
    deltalake.DeltaTable(str(log_builder.root), version=2).create_checkpoint()
    log_builder.clean_up_before(1)
    message = refusal(plan, startingVersion=0)
    assert "begins with version 1" in message
    assert "'earliest'" in message
    # not to be rebuilt any more, but its commit is there
    assert start(plan, startingVersion=1) == base(plan, 1)
    assert start(plan, startingVersion="earliest") == base(plan, 1)


def test_21_latest_is_what_comes_after_the_newest_version(plan: Any, two_commits: Any) -> None:
    resolved = start(plan, startingVersion="latest")
    assert resolved == base(plan, 2)
    assert plan(resolved).batches == []
    two_commits.append()
    assert plan(resolved).paths == ["part-00002-00000.parquet"]
    assert start(plan, startingVersion="latest") == base(plan, 3)


# D6
def test_21_latest_on_a_table_without_data_waits_for_the_first(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    resolved = start(plan, startingVersion="latest")
    log_builder.append(5)
    assert len(plan(resolved).paths) == 5


def test_earliest_is_the_oldest_commit(plan: Any, two_commits: Any) -> None:
    assert start(plan, startingVersion="earliest") == base(plan, 0)


@pytest.mark.parametrize(
    ("timestamp", "version"),
    [
        ("2020-07-14", 0),
        ("2020-07-14 23:40:00", 0),
        ("2020-07-14 23:50:00", 0),
        ("2020-07-14 23:50:01", 1),
        ("2020-07-15", 1),
        ("2020-07-15T00:10:00Z", 1),
        ("2020-07-15T02:10:00+02:00", 1),
    ],
)
def test_22_a_starting_timestamp_means_the_first_commit_at_or_after_it(
    plan: Any, two_commits: Any, timestamp: str, version: int
) -> None:
    assert start(plan, startingTimestamp=timestamp) == base(plan, version)


@pytest.mark.parametrize("timestamp", ["2020-07-15 00:10:01", "2020-07-16"])
def test_22_a_starting_timestamp_after_the_newest_commit_stays_open_until_one_reaches_it(
    plan: Any, two_commits: Any, timestamp: str
) -> None:
    assert start(plan, startingTimestamp=timestamp) is None
    two_commits.append(timestamp_ms=ms("2020-07-15T12:00:00"))
    two_commits.append(timestamp_ms=ms("2020-07-16T00:00:00"))
    assert start(plan, startingTimestamp=timestamp) == base(plan, 3 if timestamp == "2020-07-16" else 2)


def test_27_a_start_right_after_the_newest_version_is_empty_and_reads_what_comes(plan: Any, two_commits: Any) -> None:
    resolved = start(plan, startingVersion="latest")
    assert plan(resolved).batches == []
    assert start(plan, startingTimestamp="2020-07-15 00:10:01") is None
    two_commits.append(3, timestamp_ms=ms("2020-07-15T00:10:01"))
    assert start(plan, startingTimestamp="2020-07-15 00:10:01") == resolved
    assert len(plan(resolved).paths) == 3


@pytest.mark.parametrize(
    ("options", "version"),
    [
        ({"versionAsOf": 0}, 0),
        ({"version_as_of": 1}, 1),
        ({"timestamp_as_of": "2020-07-14T23:50:00Z"}, 0),
        ({"timestamp_as_of": "2020-07-15T00:09:59.999Z"}, 0),
        ({"timestamp_as_of": "2020-07-15T00:10:00"}, 1),
    ],
    ids=str,
)
def test_a_bounded_read_is_the_snapshot_of_the_last_version_at_or_before(
    plan: Any, two_commits: Any, options: dict[str, Any], version: int
) -> None:
    found = start(plan, **options)
    assert found == SnapshotStart(version, two_commits.table_id)
    assert len(plan(found.offset, target=version).paths) == version + 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"version_as_of": 2}, "newest version of the table is 1"),
        ({"timestamp_as_of": "2020-07-14T23:49:59.999Z"}, "before the oldest remaining commit, version 0"),
        ({"timestamp_as_of": "2020-07-15T00:10:00.001Z"}, "later than the table's newest commit, version 1"),
    ],
    ids=str,
)
def test_a_bounded_read_beyond_what_the_table_has_is_refused(
    plan: Any, two_commits: Any, options: dict[str, Any], words: str
) -> None:
    assert words in refusal(plan, **options)


def test_a_bounded_read_of_a_version_that_log_cleanup_took_is_refused_with_the_reason(
    plan: Any, log_builder: Any
) -> None:
    deltalake = pytest.importorskip("deltalake")
    log_builder.create()
    for _ in range(3):
        log_builder.append()
    deltalake.DeltaTable(str(log_builder.root), version=2).create_checkpoint()
    log_builder.clean_up_before(1)
    assert "can no longer be read" in refusal(plan, version_as_of=1)
    assert "version_as_of=0" in refusal(plan, version_as_of=0)
    assert start(plan, version_as_of=2) == SnapshotStart(2, log_builder.table_id)


def test_a_snapshot_of_a_version_whose_commit_is_gone_is_refused_as_its_time_is_unknown(
    plan: Any, log_builder: Any
) -> None:
    deltalake = pytest.importorskip("deltalake")
    log_builder.with_appends(3)
    deltalake.DeltaTable(str(log_builder.root), version=2).create_checkpoint()
    log_builder.clean_up_before(3)
    assert "version_as_of=3" in refusal(plan, version_as_of=2)
    assert start(plan) == start(plan, version_as_of=3) == SnapshotStart(3, log_builder.table_id)

    log_builder.path_of(3).unlink()
    for options in ({}, {"version_as_of": 2}):
        assert "once the table has another commit" in refusal(plan, **options)
    log_builder.version = 2
    log_builder.append()
    assert start(plan) == SnapshotStart(3, log_builder.table_id)


def test_23_a_timestamp_before_the_log_means_the_earliest_commit(plan: Any, log_builder: Any) -> None:
    deltalake = pytest.importorskip("deltalake")
    log_builder.create()
    for _ in range(3):
        log_builder.append()
    deltalake.DeltaTable(str(log_builder.root)).create_checkpoint()
    log_builder.clean_up_before(2)
    assert start(plan, startingTimestamp="1999-01-01") == base(plan, 2)


def test_24_in_commit_timestamps_decide_from_the_version_that_enabled_them(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    log_builder.append()
    log_builder.append()
    ahead = ms("2030-01-01T00:00:00")
    log_builder.commit(
        log_builder.metadata(
            configuration={
                "delta.enableInCommitTimestamps": "true",
                "delta.inCommitTimestampEnablementVersion": "3",
                "delta.inCommitTimestampEnablementTimestamp": str(ahead),
            }
        ),
        log_builder.add("f"),
        inCommitTimestamp=ahead,
    )
    assert start(plan, startingTimestamp="2029-01-01") == base(plan, 3)
    (batch,) = plan(3).batches
    assert batch.files[0].timestamp_ms == ahead


def test_a_missing_table_is_named_as_such(plan: Any, log_builder: Any) -> None:
    with pytest.raises(TableNotFoundError, match="table"):
        start(plan)


def test_the_state_of_a_stream_that_begins_is_the_one_at_its_start(plan: Any, two_commits: Any) -> None:
    found = starting_state(plan.log, base(plan, 1))
    assert found is not None
    assert found.version == 1
    assert starting_state(plan.log, base(plan, 2)) is None


@pytest.mark.parametrize("state_is_given", [True, False])
def test_a_start_before_the_table_got_its_id_is_refused_with_the_start_that_works(
    plan: Any, log_builder: Any, state_is_given: bool
) -> None:
    log_builder.with_appends(1)
    log_builder.table_id = "99999999-2222-3333-4444-555555555555"
    log_builder.commit(log_builder.metadata(), log_builder.add())
    log_builder.append()
    found = start(plan, starting_version=0)
    with pytest.raises(TableReplacedError) as caught:
        raise plan(found, **({"state": starting_state(plan.log, found)} if state_is_given else {})).outcome.error
    assert (
        "version 0 has table id 11111111-2222-3333-4444-555555555555, but the table has id "
        "99999999-2222-3333-4444-555555555555 since version 2"
    ) in str(caught.value)
    assert "starting_version=2" in str(caught.value)

    found = start(plan, starting_version=2)
    assert len(plan(found, state=starting_state(plan.log, found)).paths) == 2
