"""Where a stream ends. Numbers: conformance cases."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.source.options.options import SourceOptions
from airflow_provider_fds.source.planning.end import StreamEnd, known_end
from airflow_provider_fds.source.planning.start import SnapshotStart, resolve_start

#: Versions 0 to 4 of the table are committed at 00:00 to 00:04.
NEWEST = 4


@pytest.fixture
def table(log_builder: Any) -> Any:
    log_builder.create()
    for _ in range(NEWEST):
        log_builder.append()
    return log_builder


def end(plan: Any, position: Offset | None = None, **options: Any) -> int | None:
    found = known_end(plan.log, SourceOptions.parse(options), position)
    return None if found is None else found.version


def test_a_stream_without_an_end_has_none(plan: Any, table: Any) -> None:
    assert end(plan) is None


@pytest.mark.parametrize("version", [0, 3, 4, 99])
def test_26_an_ending_version_is_known_at_once(plan: Any, table: Any, version: int) -> None:
    assert end(plan, ending_version=version) == version


@pytest.mark.parametrize(
    ("timestamp", "version"),
    [
        ("2024-01-01T00:02:00Z", 2),
        ("2024-01-01T00:02:59.999Z", 2),
        ("2024-01-01T01:03:00+01:00", 3),
        ("2024-01-01T00:03:59", 3),
        # no later commit is there, so that one that counts may still come
        ("2024-01-01T00:04:00", None),
        ("2030-01-01", None),
        # before the oldest commit
        ("2023-12-31", -1),
    ],
)
def test_26_an_ending_timestamp_is_the_last_commit_at_or_before_it_once_there_is_a_later_one(
    plan: Any, table: Any, timestamp: str, version: int | None
) -> None:
    assert end(plan, ending_timestamp=timestamp) == version


def test_an_end_in_time_becomes_known_with_the_next_commit(plan: Any, table: Any) -> None:
    assert end(plan, ending_timestamp="2024-01-01T00:04:30") is None
    table.append()
    assert end(plan, ending_timestamp="2024-01-01T00:04:30") == NEWEST


def test_an_end_is_reached_after_its_version_and_never_within_an_initial_snapshot(plan: Any, table: Any) -> None:
    last = StreamEnd(3, "ending_version=3")
    snapshot = Offset(table.table_id, 3, 0, is_initial_snapshot=True)
    assert [last.is_reached(position) for position in (plan.at(3), plan.at(3, 0), plan.at(4), snapshot)] == [
        False,
        False,
        True,
        False,
    ]
    late = Offset(table.table_id, 4, 0, is_initial_snapshot=True)
    assert not last.is_reached(late)
    # the snapshot is read whole, although the end was moved before it
    assert last.target(late, 9) == 4
    assert last.target(plan.at(0), 9) == 3
    assert last.target(plan.at(0), 2) == 2


STARTS_BEHIND_THE_END = [
    ({"starting_version": "latest", "ending_version": 4}, "starting_version='latest' is version 5"),
    ({"starting_version": 3, "ending_timestamp": "2024-01-01T00:02:00"}, "starting_version=3 is version 3"),
    ({"starting_version": "earliest", "ending_timestamp": "2023-01-01"}, "before the oldest commit"),
    ({"starting_timestamp": "2024-01-01T00:02:30", "ending_version": 2}, "is version 3 or a later one"),
    ({"starting_timestamp": "2024-01-02", "ending_version": 4}, "is version 5 or a later one"),
    ({"ending_version": 3}, "begins with a snapshot of version 4"),
    ({"ending_timestamp": "2024-01-01T00:01:00"}, "begins with a snapshot of version 4"),
]


@pytest.mark.parametrize(("options", "words"), STARTS_BEHIND_THE_END)
def test_an_end_before_the_start_names_both(plan: Any, table: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        resolve_start(plan.log, SourceOptions.parse(options))
    message = str(caught.value)
    assert words in message
    assert "ending_" in message
    assert plan.builder.uri in message


STARTS_BEFORE_THE_END = [
    ({"starting_version": 4, "ending_version": 4}, 4),
    ({"starting_version": "latest", "ending_version": 5}, 5),
    ({"starting_version": 3, "ending_timestamp": "2024-01-01T00:03:00"}, 3),
    ({"starting_version": "latest", "ending_timestamp": "2030-01-01"}, 5),
    ({"starting_timestamp": "2024-01-01T00:01:30", "ending_version": 2}, 2),
    ({"starting_timestamp": "2024-01-02", "ending_version": 5}, None),
    # between two commits: nothing to read, which is no error in Delta's batch reader either
    ({"starting_timestamp": "2024-01-01T00:01:10", "ending_timestamp": "2024-01-01T00:01:20"}, 2),
    ({"ending_version": 4}, "snapshot"),
    ({"ending_timestamp": "2024-01-01T00:04:00"}, "snapshot"),
]


@pytest.mark.parametrize(("options", "start"), STARTS_BEFORE_THE_END)
def test_starts_and_ends_of_both_kinds_mix(plan: Any, table: Any, options: dict[str, Any], start: Any) -> None:
    found = resolve_start(plan.log, SourceOptions.parse(options))
    if start == "snapshot":
        assert found == SnapshotStart(NEWEST, table.table_id)
    else:
        assert found == (None if start is None else plan.at(start))
