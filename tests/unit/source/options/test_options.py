"""Options: everything read, validated, and refused at once. Numbers: conformance cases."""

from __future__ import annotations

import dataclasses
import inspect
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.source.options import options as options_module
from airflow_provider_fds.source.options.options import SourceOptions

#: For each option that works: a value as a user writes it, and what it becomes.
WORKING: dict[str, tuple[Any, Any]] = {
    "on_violation": ("quarantine", "quarantine"),
    "on_lost_position": ("earliest", "earliest"),
    "accepted_schema_version": ("7", 7),
    "starting_version": ("12", 12),
    "starting_timestamp": ("2026-01-31", "2026-01-31"),
    "max_files_per_batch": ("50", 50),
    "max_bytes_per_batch": ("10g", 10 * 1024**3),
    "max_rows_per_batch": ("5000", 5000),
    "max_versions_per_batch": (3, 3),
    "whole_commits": ("true", True),
    "min_batch_bytes": ("64m", 64 * 1024**2),
    "max_batch_wait": ("5m", timedelta(minutes=5)),
    "ignore_deletes": (True, True),
    "ignore_changes": ("TRUE", True),
    "skip_change_commits": (True, True),
    "skip_versions": ("3,5-7", ((3, 3), (5, 7))),
    "skip_operations": ("delete, OPTIMIZE", ("DELETE", "OPTIMIZE")),
    "exclude_regex": (r"/tmp-\d+/", r"/tmp-\d+/"),
    "read_change_feed": ("true", True),
    "version_as_of": ("3", 3),
    "timestamp_as_of": ("2026-01-31", "2026-01-31"),
    "on_changed_start": ("fail", "fail"),
    "where": (" amount > 1.5 AND name IS NOT NULL ", "amount > 1.5 AND name IS NOT NULL"),
    "ending_version": ("9", 9),
    "ending_timestamp": ("2026-01-31", "2026-01-31"),
    "on_schema_change": ("rename=follow, drop=7", (("drop", 7), ("rename", "follow"))),
    "event_time_column": (" event.at ", "event.at"),
    "align_with": ("payments, refunds", ("payments", "refunds")),
    "max_drift": ("90m", timedelta(minutes=90)),
    "columns": ("id, Name,ID", ("id", "Name")),
    "stage_statistics": ("false", False),
    "allowed_roots": ("s3://origin/, gs://b", ("gs://b", "s3://origin")),
}

#: What an option has no effect without.
BESIDE: dict[str, dict[str, Any]] = {
    "max_batch_wait": {"min_batch_bytes": 1},
    "align_with": {"event_time_column": "ts", "max_drift": 60},
    "max_drift": {"event_time_column": "ts", "align_with": "payments"},
}

DELTAS_OWN = {"max_files_per_batch": "maxFilesPerTrigger", "max_bytes_per_batch": "maxBytesPerTrigger"}


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return DELTAS_OWN.get(name, first + "".join(word.capitalize() for word in rest))


def problems(values: dict[Any, Any]) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        SourceOptions.parse(values)
    return caught.value.problems


FIELDS = [field.name for field in dataclasses.fields(SourceOptions)]


def test_every_field_is_tested_here() -> None:
    assert sorted(WORKING) == sorted(FIELDS)


# D42
@pytest.mark.parametrize("name", FIELDS)
def test_every_field_is_documented_and_validated(name: str) -> None:
    assert f"    {name}: " in (inspect.getdoc(SourceOptions) or "")
    (problem,) = problems({name: object()})
    assert repr(name) in problem


# D41
@pytest.mark.parametrize("name", WORKING)
def test_every_option_is_read_in_both_spellings(name: str) -> None:
    given, expected = WORKING[name]
    for spelling in (name, camel(name), camel(name).lower(), camel(name).upper()):
        beside = BESIDE.get(name, {})
        assert getattr(SourceOptions.parse({spelling: given, **beside}), name) == expected


# D42
def test_the_value_is_frozen_and_hashable() -> None:
    options = SourceOptions.parse({})
    assert hash(options) == hash(SourceOptions())
    options.to_dict()["whole_commits"] = True
    assert not options.whole_commits
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.whole_commits = True  # type: ignore[misc]


DEFAULTS = (1000, 1000 * 128 * 1024**2, None)


@pytest.mark.parametrize(
    ("given", "limits"),
    [
        ({}, DEFAULTS),
        ({"max_versions_per_batch": 1}, DEFAULTS),
        ({"maxBytesPerTrigger": "1g"}, (None, 1 << 30, None)),
        ({"maxBytesPerTrigger": "1g", "maxFilesPerTrigger": 7}, (7, 1 << 30, None)),
        ({"max_rows_per_batch": 1}, (None, None, 1)),
        ({"max_files_per_batch": 7}, (7, None, None)),
        # what Structured Streaming does by default
        ({"max_files_per_batch": 1000}, (1000, None, None)),
        ({"max_bytes_per_batch": "125g"}, (None, DEFAULTS[1], None)),
        ({"max_bytes_per_batch": "125g", "max_files_per_batch": 1000}, DEFAULTS),
    ],
    ids=repr,
)
def test_a_limit_of_files_bytes_or_rows_replaces_the_defaults(given: dict[str, Any], limits: tuple[Any, ...]) -> None:
    options = SourceOptions.parse(given)
    assert (options.max_files_per_batch, options.max_bytes_per_batch, options.max_rows_per_batch) == limits
    assert SourceOptions.parse(options.to_dict()) == options


@pytest.mark.parametrize(
    ("given", "expected"),
    [("1b", 1), ("1", 1), (5, 5), ("2k", 2048), ("2KB", 2048), ("3m", 3 << 20), (" 10 GB ", 10 << 30), ("1t", 1 << 40)],
)
def test_sizes_are_read_with_sparks_units(given: object, expected: int) -> None:
    assert SourceOptions.parse({"max_bytes_per_batch": given}).max_bytes_per_batch == expected


@pytest.mark.parametrize("name", ["maxFilesPerTrigger", "maxRowsPerBatch", "max_versions_per_batch"])
@pytest.mark.parametrize("value", [0, -1, "0", "-1", "string", "", 1.5, True, "10g", "١٢"])
def test_34_limits_that_are_not_positive_numbers_are_refused(name: str, value: object) -> None:
    (problem,) = problems({name: value})
    assert repr(name) in problem
    assert f"got {value!r}" in problem


@pytest.mark.parametrize("value", [0, -1, "0b", "-1k", "string", "", "1.5g", "10x", True, str(2**63)])
def test_34_invalid_sizes_are_refused(value: object) -> None:
    (problem,) = problems({"maxBytesPerTrigger": value})
    assert "'10g'" in problem
    assert f"got {value!r}" in problem


# D41
@pytest.mark.parametrize("value", ["x", "", " ", True, -1, 1.0, "-1", "1.0", [3], str(2**63)])
def test_18_a_starting_version_that_is_invalid_is_refused(value: object) -> None:
    (problem,) = problems({"startingVersion": value})
    assert "'earliest' or 'latest'" in problem


# D41
@pytest.mark.parametrize(("given", "expected"), [("LaTeSt", "latest"), (" earliest ", "earliest"), (0, 0), ("007", 7)])
def test_a_starting_version_is_a_number_or_a_keyword(given: object, expected: object) -> None:
    assert SourceOptions.parse({"starting_version": given}).starting_version == expected


# D41
@pytest.mark.parametrize("value", [1, "yes", "", "t", None.__class__, 0, "1"])
def test_booleans_are_true_and_false_only(value: object) -> None:
    (problem,) = problems({"ignoreDeletes": value})
    assert "true or false" in problem


def test_22_a_starting_timestamp_is_checked_at_once() -> None:
    (problem,) = problems({"startingTimestamp": "yesterday"})
    assert "'startingTimestamp'" in problem
    assert "yesterday" in problem


def test_a_starting_timestamp_may_be_a_python_value() -> None:
    when = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert SourceOptions.parse({"starting_timestamp": when}).starting_timestamp == "2026-01-31T12:00:00+00:00"
    assert SourceOptions.parse({"starting_timestamp": date(2026, 1, 31)}).starting_timestamp == "2026-01-31"
    assert len(problems({"starting_timestamp": 12})) == 1


def test_25_version_and_timestamp_exclude_each_other() -> None:
    (problem,) = problems({"startingVersion": 1, "starting_timestamp": "2026-01-31"})
    assert "'startingVersion'" in problem
    assert "'starting_timestamp'" in problem
    assert "cannot be combined" in problem


@pytest.mark.parametrize(
    "values",
    [
        {"startingVersion": 5, "ending_version": 4},
        {"starting_timestamp": "2026-01-02", "endingTimestamp": "2026-01-01T23:59:59.999Z"},
        {"endingTimestamp": "2026-01-01", "ending_version": 4},
    ],
    ids=str,
)
def test_an_end_before_the_start_and_two_ends_are_refused_by_name(values: dict[str, Any]) -> None:
    (problem,) = problems(values)
    assert all(repr(name) in problem for name in values)


@pytest.mark.parametrize(
    "values",
    [
        {"starting_version": 5, "ending_version": 5},
        {"starting_version": 0, "ending_timestamp": "2026-01-01"},
        {"starting_version": "latest", "ending_version": 3},
        {"starting_timestamp": "2026-01-01", "ending_version": 0},
        {"starting_timestamp": "2026-01-01", "ending_timestamp": "2026-01-01"},
        {"ending_version": 0},
    ],
    ids=str,
)
def test_starts_and_ends_of_both_kinds_mix(values: dict[str, Any]) -> None:
    assert SourceOptions.parse(values).to_dict() == values


AS_OF = [{"version_as_of": 3}, {"timestampAsOf": "2026-01-31"}]

BESIDE_A_SNAPSHOT = {
    "starting_version": (0, False),
    "starting_timestamp": ("2026-01-01", False),
    "ending_version": (9, False),
    "ending_timestamp": ("2026-12-31", False),
    "max_files_per_batch": (1, True),
    "max_bytes_per_batch": (1, True),
    "max_rows_per_batch": (1, True),
    "max_versions_per_batch": (1, False),
    "whole_commits": (True, False),
    "min_batch_bytes": (1, False),
    "ignore_deletes": (True, False),
    "ignore_changes": (True, False),
    "skip_change_commits": (True, False),
    "skip_versions": ("1", False),
    "skip_operations": ("DELETE", False),
    "exclude_regex": ("x", True),
    "read_change_feed": (True, False),
}


# D41
@pytest.mark.parametrize("as_of", AS_OF, ids=str)
@pytest.mark.parametrize("name", BESIDE_A_SNAPSHOT)
def test_a_bounded_read_can_be_combined_only_with_limits_and_filters(as_of: dict[str, Any], name: str) -> None:
    value, is_allowed = BESIDE_A_SNAPSHOT[name]
    if is_allowed:
        assert SourceOptions.parse({**as_of, name: value}).is_bounded
        return
    (problem,) = problems({**as_of, name: value})
    assert repr(next(iter(as_of))) in problem
    assert repr(name) in problem


def test_all_options_that_conflict_with_a_bounded_read_are_reported_together() -> None:
    given = {"versionAsOf": 3, "timestampAsOf": "2026-01-31", "startingVersion": 1, "ending_version": 2}
    found = problems(given)
    assert len(found) == 3
    assert all(any(repr(name) in problem for problem in found) for name in given)


@pytest.mark.parametrize(
    ("given", "now"),
    [
        ({"partition_filter": "p = 1"}, "it is where"),
        (
            {"onFutureStart": "fail", "starting_timestamp": "2026-01-31"},
            "waits until a commit reaches its start",
        ),
        ({"idle_after": "1h"}, "nothing for 15 minutes"),
        ({"stats": False}, "it is stage_statistics"),
    ],
)
def test_an_option_of_an_older_version_is_refused_with_what_happens_now(given: dict[str, Any], now: str) -> None:
    (problem,) = problems(given)
    assert now in problem


@pytest.mark.parametrize("value", ["latest", -1, "x", True, 1.5])
def test_an_invalid_ending_version_is_refused(value: object) -> None:
    (problem,) = problems({"endingVersion": value})
    assert "must be a version number" in problem


def test_one_option_in_two_spellings_must_have_the_same_value() -> None:
    assert SourceOptions.parse({"startingVersion": "3", "starting_version": 3}).starting_version == 3
    (problem,) = problems({"startingVersion": "3", "starting_version": 4})
    assert "'startingVersion' and 'starting_version' are the same option" in problem
    assert "3 and 4" in problem


def test_39_ignore_file_deletion_is_another_name_of_ignore_changes() -> None:
    assert SourceOptions.parse({"ignoreFileDeletion": "true"}) == SourceOptions(ignore_changes=True)
    assert SourceOptions.parse({"ignore_file_deletion": True}) == SourceOptions(ignore_changes=True)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (5, ((5, 5),)),
        ("5", ((5, 5),)),
        ([3, "5-7", 4], ((3, 7),)),
        ("7 - 9, 1,2", ((1, 2), (7, 9))),
        ([(1, 3), [10, 12]], ((1, 3), (10, 12))),
        ([], ()),
    ],
)
def test_versions_to_skip_are_numbers_and_inclusive_ranges(given: object, expected: object) -> None:
    assert SourceOptions.parse({"skip_versions": given}).skip_versions == expected


@pytest.mark.parametrize("value", ["", "3,", "7-5", "-1", "a", [None], [True], [1.5], ["1-2-3"], 1.5])
def test_invalid_versions_to_skip_are_refused(value: object) -> None:
    (problem,) = problems({"skip_versions": value})
    assert "'3,5-7'" in problem


def test_a_skipped_version_is_found_in_its_range() -> None:
    options = SourceOptions.parse({"skip_versions": "3,5-7"})
    assert [version for version in range(10) if options.skips_version(version)] == [3, 5, 6, 7]


@pytest.mark.parametrize("value", ["", "DELETE,", [""], [3], 3])
def test_invalid_operations_to_skip_are_refused(value: object) -> None:
    (problem,) = problems({"skip_operations": value})
    assert "'DELETE,UPDATE'" in problem


def test_operations_to_skip_keep_the_spaces_within() -> None:
    assert SourceOptions.parse({"skip_operations": ["streaming update"]}).skip_operations == ("STREAMING UPDATE",)


# D41
@pytest.mark.parametrize(
    ("given", "suggested"),
    [
        ("startingVersoin", "startingVersion"),
        ("starting_versio", "starting_version"),
        ("maxFilePerTrigger", "maxFilesPerTrigger"),
        ("max_files", "max_files_per_batch"),
        ("skipChangeCommit", "skipChangeCommits"),
        ("maxFilesPerTriger", "maxFilesPerTrigger"),
    ],
)
def test_an_unknown_option_gets_the_nearest_known_name(given: str, suggested: str) -> None:
    (problem,) = problems({given: 1})
    assert f"unknown option {given!r}" in problem
    assert f"Did you mean {suggested!r}" in problem


def test_an_option_without_a_similar_name_gets_the_list_of_options() -> None:
    (problem,) = problems({"zzz": 1})
    assert all(name in problem for name in FIELDS)
    (problem,) = problems({3: 1})
    assert "must be strings" in problem


# D41
@pytest.mark.parametrize(
    ("name", "instead"),
    [
        ("failOnDataLoss", "on_lost_position"),
        ("fail_on_data_loss", "on_lost_position"),
        ("schemaTrackingLocation", "on_schema_change"),
        ("schemaLocation", "on_schema_change"),
        ("streamingSourceTrackingId", "name"),
        ("withEventTimeOrder", "modification time"),
        ("mergeSchema", "DeltaAppendSink"),
        ("txnAppId", "own transaction"),
        ("txnVersion", "own transaction"),
        ("path", "argument"),
    ],
)
def test_options_of_delta_without_meaning_here_are_refused_with_the_reason(name: str, instead: str) -> None:
    (problem,) = problems({name: "true"})
    assert f"option {name!r} has no meaning in FDS" in problem
    assert instead in problem


# D41
def test_all_problems_are_reported_together() -> None:
    found = problems(
        {
            "maxFilesPerTrigger": 0,
            "startingVersoin": 3,
            "failOnDataLoss": False,
            "versionAsOf": -3,
            "startingVersion": 1,
            "startingTimestamp": "2026-01-31",
            "excludeRegex": "(",
        }
    )
    assert len(found) == 6
    with pytest.raises(ConfigurationError, match="6 problems in the source options"):
        SourceOptions.parse({"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1})


@pytest.mark.parametrize("name", ["ignoreDeletes", "ignoreFileDeletion", "skipChangeCommits", "ignore_changes"])
def test_options_that_would_have_no_effect_on_a_stream_of_changes_are_refused(name: str) -> None:
    (problem,) = problems({"readChangeFeed": True, name: True})
    assert repr(name) in problem
    assert "no effect with 'readChangeFeed'" in problem
    assert SourceOptions.parse({"readChangeData": True, name: False}).read_change_feed
    assert not SourceOptions.parse({"readChangeFeed": False, name: True}).read_change_feed


def test_rows_of_change_files_cannot_be_limited() -> None:
    (problem,) = problems({"readChangeFeed": True, "maxRowsPerBatch": 5})
    assert "'readChangeFeed'" in problem
    assert "'maxRowsPerBatch'" in problem
    assert SourceOptions.parse({"readChangeFeed": False, "maxRowsPerBatch": 5}).max_rows_per_batch == 5


def test_none_means_not_given() -> None:
    assert SourceOptions.parse(dict.fromkeys(FIELDS)) == SourceOptions()


def test_36_a_bad_regular_expression_is_refused() -> None:
    (problem,) = problems({"excludeRegex": "[unclosed"})
    assert "'[unclosed'" in problem
    assert "invalid regular expression" in problem


@pytest.mark.parametrize("name", WORKING)
def test_options_survive_their_dictionary(name: str) -> None:
    beside = BESIDE.get(name, {})
    options = SourceOptions.parse({name: WORKING[name][0], **beside})
    assert options.to_dict().keys() == {name, *beside}
    assert SourceOptions.parse(options.to_dict()) == options


def test_a_file_limit_next_to_a_byte_limit_is_kept() -> None:
    for name in ("max_bytes_per_batch", "max_rows_per_batch"):
        options = SourceOptions.parse({name: 1, "max_files_per_batch": 1000})
        assert SourceOptions.parse(options.to_dict()) == options
    assert SourceOptions().to_dict() == {}
    assert SourceOptions.parse({"max_files_per_batch": 1000}).to_dict() == {"max_files_per_batch": 1000}
    assert SourceOptions.parse({"max_bytes_per_batch": "125g"}).to_dict() == {"max_bytes_per_batch": DEFAULTS[1]}


def test_the_digest_depends_on_the_meaning_not_on_the_spelling() -> None:
    one = SourceOptions.parse({"maxBytesPerTrigger": "1k", "skip_versions": [3, 2]})
    two = SourceOptions.parse({"skipVersions": "2-3", "max_bytes_per_batch": 1024})
    assert one.digest() == two.digest()
    assert one.digest() != SourceOptions().digest()


def test_the_digest_is_the_same_in_every_version_of_fds() -> None:
    assert SourceOptions().digest() == "44136fa355b3678a1146ad16f7e8649e"
    assert SourceOptions.parse({"starting_version": 3}).digest() == "3af1c41cab8c4b1018b122b5e50cdb61"


def test_only_what_drops_whole_commits_changes_the_meaning_of_an_index() -> None:
    changing = {
        name
        for name in WORKING
        if _meaning({**BESIDE.get(name, {}), name: WORKING[name][0]}) != SourceOptions().meaning_digest()
    }
    assert changing == {"skip_change_commits", "skip_versions", "skip_operations", "read_change_feed"}


def _meaning(values: dict[str, Any]) -> str:
    return SourceOptions.parse(values).meaning_digest()


def test_no_option_is_both_known_and_refused() -> None:
    assert not options_module._SPELLINGS.keys() & options_module._REFUSALS.keys()
