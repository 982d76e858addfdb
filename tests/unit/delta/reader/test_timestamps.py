from __future__ import annotations

import time

import pytest

from airflow_provider_fds.delta.moments import moment_text, parse_timestamp
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.reader.timestamps import CommitTimestamps
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.errors import ConfigurationError, TornFileError

T0 = 1_704_067_200_000
ICT = {"delta.enableInCommitTimestamps": "true"}


@pytest.fixture
def log(log_builder):
    return DeltaLog(LocalStorage(str(log_builder.root)))


def with_file_times(builder, *offsets_ms):
    builder.create(timestamp_ms=T0 + offsets_ms[0])
    for offset in offsets_ms[1:]:
        builder.append(timestamp_ms=T0 + offset)


def times(log):
    timestamps = CommitTimestamps(log)
    newest = log.latest()
    metadata = log.state_at(newest).metadata
    return [timestamps.of(commit, metadata) - T0 for commit in log.commits(log.earliest(), newest)]


# file times


def test_the_time_of_a_commit_is_that_of_its_file_and_never_of_its_commit_info(log, log_builder):
    log_builder.create()
    log_builder.commit(timestamp=7)
    log_builder.touch(1, T0 + 5)
    log_builder.touch(0, T0)
    assert times(log) == [0, 5]


def test_file_times_that_do_not_rise_are_made_to_rise_by_a_millisecond(log, log_builder):
    with_file_times(log_builder, 100, 100, 50, 102, 110)
    assert times(log) == [100, 101, 102, 103, 110]


def test_a_time_resolves_the_same_wherever_reading_starts_and_however_often(log, log_builder):
    with_file_times(log_builder, 100, 50, 50, 50)
    metadata = log.state_at(3).metadata
    for first in range(4):
        timestamps = CommitTimestamps(log)
        for commit in log.commits(first, 3):
            assert timestamps.of(commit, metadata) == timestamps.of(commit, metadata) == T0 + 100 + commit.version
    backwards = CommitTimestamps(log)
    assert [backwards.of(log.commit(v), metadata) - T0 for v in (3, 1, 2)] == [103, 101, 102]


def test_a_commit_pushes_the_times_of_a_thousand_versions_after_it_and_no_more(log, log_builder):
    log_builder.create(timestamp_ms=T0 + 10**9)
    for version in range(1, 1003):
        log_builder.commit({"txn": {"appId": "a", "version": version}}, timestamp_ms=T0 + version)
    metadata = log.state_at(0).metadata
    pushed = {version: CommitTimestamps(log).of(log.commit(version), metadata) - T0 for version in (101, 1000, 1001)}
    assert pushed == {101: 10**9 + 101, 1000: 10**9 + 1000, 1001: 1001}
    # a search by time makes all rise; so where a stream starts does not depend on how long the log is
    assert CommitTimestamps(log).at_or_after(T0 + 1001) == 0
    assert CommitTimestamps(log).at_or_before(T0 + 10**9 + 1001) == 1001


def test_commits_that_cleanup_removed_no_longer_adjust_later_times(log, log_builder):
    with_file_times(log_builder, 100, 50, 50)
    metadata = log.state_at(2).metadata
    log_builder.clean_up_before(1)
    assert CommitTimestamps(log).of(log.commit(2), metadata) == T0 + 51


# in-commit timestamps


def ict_commit(builder, ict_ms, *actions, file_ms=None):
    return builder.commit(*actions, inCommitTimestamp=T0 + ict_ms, timestamp_ms=T0 + (file_ms or 0))


def test_with_in_commit_timestamps_since_the_start_the_file_times_do_not_matter(log, log_builder):
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}}
    ict_commit(log_builder, 10, protocol, log_builder.metadata(configuration=ICT), file_ms=999)
    ict_commit(log_builder, 20, log_builder.add(), file_ms=5)
    assert times(log) == [10, 20]


@pytest.fixture
def enabled_at_two(log_builder):
    """Versions 0 and 1 with file times 100, 101; from version 2 on in-commit times 500, 600, 700, files all at 1."""
    log_builder.create(timestamp_ms=T0 + 100)
    log_builder.append(timestamp_ms=T0 + 100)
    configuration = {
        **ICT,
        "delta.inCommitTimestampEnablementVersion": "2",
        "delta.inCommitTimestampEnablementTimestamp": str(T0 + 500),
    }
    ict_commit(log_builder, 500, log_builder.metadata(configuration=configuration), file_ms=1)
    ict_commit(log_builder, 600, log_builder.add(), file_ms=1)
    ict_commit(log_builder, 700, log_builder.add(), file_ms=1)
    return log_builder


def test_file_times_count_below_the_version_that_enabled_in_commit_timestamps(log, enabled_at_two):
    assert times(log) == [100, 101, 500, 600, 700]


@pytest.mark.parametrize(
    ("offset", "after", "before"),
    [
        (99, 0, None), (100, 0, 0), (101, 1, 1), (102, 2, 1), (499, 2, 1), (500, 2, 2), (501, 3, 2), (700, 4, 4),
        (701, None, 4),
    ],
)  # fmt: skip
def test_a_search_crosses_the_enablement(log, enabled_at_two, offset, after, before):
    timestamps = CommitTimestamps(log)
    assert timestamps.at_or_after(T0 + offset) == after
    assert timestamps.at_or_before(T0 + offset) == before


def test_a_search_where_cleanup_removed_all_before_the_enablement_starts_at_the_oldest_left(log, enabled_at_two):
    storage = log.storage
    enabled_at_two.clean_up_before(3)
    _write_json_checkpoint(enabled_at_two, 3)
    timestamps = CommitTimestamps(DeltaLog(storage))
    assert timestamps.at_or_after(T0 + 101) == 3
    assert timestamps.at_or_before(T0 + 599) is None
    assert timestamps.at_or_before(T0 + 600) == 3


def test_a_commit_without_the_timestamp_it_must_have_is_an_error(log, log_builder):
    log_builder.create(configuration=ICT)
    with pytest.raises(TornFileError, match=r"version 0 of .* has no inCommitTimestamp"):
        times(log)


def test_in_commit_timestamps_that_are_switched_off_again_do_not_count(log, log_builder):
    log_builder.create(configuration={"delta.enableInCommitTimestamps": "false"}, timestamp_ms=T0 + 3)
    assert times(log) == [3]


# searching by file times


@pytest.mark.parametrize(
    ("offset", "after", "before"),
    [(0, 0, None), (99, 0, None), (100, 0, 0), (101, 1, 1), (102, 2, 2), (103, 3, 2), (200, 3, 3), (201, None, 3)],
)
def test_a_search_finds_ties_by_the_times_made_to_rise(log, log_builder, offset, after, before):
    with_file_times(log_builder, 100, 100, 100, 200)
    timestamps = CommitTimestamps(log)
    assert timestamps.at_or_after(T0 + offset) == after
    assert timestamps.at_or_before(T0 + offset) == before


def test_a_time_before_the_oldest_commit_left_gives_that_commit(log, log_builder):
    with_file_times(log_builder, 100, 200, 300)
    log_builder.clean_up_before(1)
    _write_json_checkpoint(log_builder, 1)
    assert CommitTimestamps(log).at_or_after(T0) == 1
    assert CommitTimestamps(log).at_or_before(T0) is None


def _write_json_checkpoint(builder, version):
    """Write a v2 checkpoint that holds what the state needs."""
    import json

    metadata = builder.metadata(
        configuration={
            **(
                {
                    **ICT,
                    "delta.inCommitTimestampEnablementVersion": "2",
                    "delta.inCommitTimestampEnablementTimestamp": str(T0 + 500),
                }
                if version == 3
                else {}
            )
        }
    )
    features = ["v2Checkpoint"]
    protocol = {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": features,
            "writerFeatures": features,
        }
    }
    lines = [{"checkpointMetadata": {"version": version}}, protocol, metadata]
    name = f"{version:020d}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json"
    (builder.log / name).write_text("".join(json.dumps(line) + "\n" for line in lines))


# reading a timestamp


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        ("2026-10-25 02:30 Europe/Berlin", "2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"),
        ("2026-11-01T01:00:00 America/New_York", "2026-11-01T05:00:00Z", "2026-11-01T06:00:00Z"),
        ("2026-03-29 02:30 Europe/Berlin", "2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z"),
    ],
)
def test_a_local_time_that_the_clocks_show_twice_or_never_is_refused_with_both_instants(text, first, second):
    with pytest.raises(ConfigurationError, match=f"either {first} or {second}; write one of these"):
        parse_timestamp(text)
    with pytest.raises(ConfigurationError, match=f"either {first} or {second}"):
        moment_text(text)
    assert parse_timestamp(second) - parse_timestamp(first) == 3_600_000


@pytest.mark.parametrize("text", ["2026-10-25 01:59:59 Europe/Berlin", "2026-10-25 03:00 Europe/Berlin"])
def test_local_times_beside_a_change_of_the_clocks_are_read(text):
    assert parse_timestamp(text)


# D43
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024", T0),
        ("2024-01", T0),
        ("2024-1-1", T0),
        ("2024-01-01", T0),
        ("2024-01-01T", T0),
        (" 2024-01-01 00:00:00 ", T0),
        ("2024-01-01T00:00:00Z", T0),
        ("2024-01-01 00:00:00.123", T0 + 123),
        ("2024-01-01 00:00:00.1239", T0 + 123),
        ("2024-01-01 00:00:00.123999999", T0 + 123),
        ("2024-01-01 01:02", T0 + 3_720_000),
        ("2024-01-01 01:00:00+01:00", T0),
        ("2024-01-01 01:00:00 +1", T0),
        ("2023-12-31T19:00:00-0500", T0),
        ("2024-01-01 01:00:00 UTC+01:00", T0),
        ("2024-01-01 01:00:00 Europe/Berlin", T0),
        ("2024-07-01 02:00:00 Europe/Berlin", 1_719_792_000_000),
        ("1969-12-31 23:59:59.9995", -1),
    ],
)
def test_a_timestamp_is_read_in_sparks_formats_and_is_utc_without_a_zone(text, expected):
    assert parse_timestamp(text) == expected


# D43
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
def test_a_timestamp_means_the_same_on_a_worker_in_any_zone(zone, monkeypatch):
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        for text in (
            "2024-01-01",
            "2024-01-01 00:00:00",
            "2024-01-01T00:00:00",
            "2024-01-01 00:00:00.000",
            "2024-01-01T00:00:00.000Z",
            "2024-01-01T00:00:00Z",
        ):
            assert parse_timestamp(text) == T0
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("yesterday", "none of the known formats"),
        ("", "none of the known formats"),
        ("1704067200000", "none of the known formats"),
        ("01/02/2024", "none of the known formats"),
        ("2024-01-01Z", "none of the known formats"),
        ("2024-13-01", "month must be in 1..12"),
        ("2024-02-30", "day is out of range"),
        ("2024-01-01 24:00:00", "hour must be in 0..23"),
        ("2024-01-01 00:00:00 Mars/Base", "Mars/Base"),
        ("2024-01-01 00:00:00+19:00", "above 18 hours"),
        ("9999-12-31T23:59:59-05:00", "in UTC, its year is not between 1 and 9999"),
        ("0001-01-01T00:00:00+05:00", "in UTC, its year is not between 1 and 9999"),
        ("2024-01-01 00:00:00 ../etc/passwd", "none of the known formats"),
    ],
)
def test_a_timestamp_that_cannot_be_read_says_why_and_what_is_expected(text, why):
    with pytest.raises(ConfigurationError, match=rf"cannot be read \(.*{why}.*expected yyyy.*without a zone it is UTC"):
        parse_timestamp(text)
