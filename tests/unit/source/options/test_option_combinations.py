"""Every start with every end, limit and policy: the same files, however they are cut and wherever one goes on."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.source.options.options import SourceOptions
from airflow_provider_fds.source.planning.end import known_end
from airflow_provider_fds.source.planning.plan import BatchPlanner
from airflow_provider_fds.source.planning.start import SnapshotStart, resolve_start

if TYPE_CHECKING:
    from airflow_provider_fds.source.planned import SourceBatch

#: Files of each version: name -> bytes. Version 0 creates the table; versions 1 to 8 are committed at 00:01 to 00:08.
ADDED = {
    1: {"a": 10, "tmp1": 10},
    2: {"b": 30, "c": 5, "d": 5},
    4: {"e": 10},
    5: {"a2": 7, "b2": 7},
    7: {"f": 1, "g": 50},
}
REMOVED = {5: ["a", "b"], 6: ["c"]}
NEWEST = 8

#: Options -> the first version read, "snapshot" for a start with the newest snapshot.
STARTS: list[tuple[dict[str, Any], int | str]] = [
    ({}, "snapshot"),
    ({"starting_version": 2}, 2),
    ({"starting_version": "earliest"}, 0),
    ({"starting_version": "latest"}, NEWEST + 1),
    ({"starting_timestamp": "2024-01-01T00:03:30"}, 4),
    ({"starting_timestamp": "2023-01-01"}, 0),
]
#: Options -> the last version they let through, ``None``: there is no end, or it is not known yet.
ENDS: list[tuple[dict[str, Any], int | None]] = [
    ({}, None),
    ({"ending_version": 4}, 4),
    ({"ending_version": NEWEST + 5}, NEWEST + 5),
    ({"ending_timestamp": "2024-01-01T00:05:59"}, 5),
    ({"ending_timestamp": "2030-01-01"}, None),
]
AS_OF: list[tuple[dict[str, Any], int]] = [
    ({"version_as_of": 4}, 4),
    ({"version_as_of": NEWEST}, NEWEST),
    ({"timestamp_as_of": "2024-01-01T00:02:30"}, 2),
]
LIMITS: list[dict[str, Any]] = [
    {},
    {"max_files_per_batch": 1},
    {"max_bytes_per_batch": 12},
    {"max_rows_per_batch": 11},
    {"max_versions_per_batch": 1},
    {"max_files_per_batch": 2, "whole_commits": True},
    {"max_files_per_batch": 2, "max_bytes_per_batch": 12, "max_versions_per_batch": 2},
]
#: Options -> the versions with removes whose files are read, and the versions passed over.
POLICIES: list[tuple[dict[str, Any], set[int]]] = [
    ({"ignore_changes": True}, set()),
    ({"skip_change_commits": True}, {5, 6}),
    ({"ignore_deletes": True, "skip_versions": "5"}, {5}),
    ({"skip_operations": ["UPDATE", "DELETE"]}, {5, 6}),
]
EXCLUSIONS: list[dict[str, Any]] = [{}, {"exclude_regex": "^tmp"}]


@pytest.fixture
def table(plan: Any, log_builder: Any) -> Any:
    log_builder.create()
    for version in range(1, NEWEST + 1):
        removes = [log_builder.remove(path) for path in REMOVED.get(version, ())]
        adds = [log_builder.add(path, size=size) for path, size in ADDED.get(version, {}).items()]
        operation = "WRITE" if not removes else "UPDATE" if adds else "DELETE"
        log_builder.commit(*(adds + removes or [{"txn": {"appId": "a", "version": 0}}]), operation=operation)
    return plan


def live_at(version: int) -> set[str]:
    added = {path for at, files in ADDED.items() if at <= version for path in files}
    return added - {path for at, paths in REMOVED.items() if at <= version for path in paths}


def read(plan: Any, given: dict[str, Any], *, batches_per_application: int = 100) -> list[SourceBatch]:
    """Read a table to its newest version or the stream's end, so many batches a run, each from the saved offset."""
    options = SourceOptions.parse(given)
    start = resolve_start(plan.log, options)
    assert start is not None
    snapshot = plan.freeze(start.version) if isinstance(start, SnapshotStart) else None
    position = start.offset if isinstance(start, SnapshotStart) else start
    found: list[SourceBatch] = []
    while True:
        end = known_end(plan.log, options, position)
        if end is not None and end.is_reached(position):
            return found
        target = NEWEST if end is None else end.target(position, NEWEST)
        planner = BatchPlanner(
            plan.log, position, None, options, target, snapshot=snapshot, snapshot_storage=plan.staging
        )
        run = [batch for batch, _ in zip(planner, range(batches_per_application), strict=False)]
        if not run:
            return found
        found += run
        position = Offset.from_json(run[-1].end.to_json())


def check_limits(batches: list[SourceBatch], limits: dict[str, Any]) -> None:
    for batch in batches:
        versions = {file.version for file in batch.files}
        assert len(versions) <= limits.get("max_versions_per_batch", 1000)
        if limits.get("whole_commits") and len(versions) == 1 and not batch.start.is_initial_snapshot:
            continue
        assert batch.num_files <= limits.get("max_files_per_batch", 1000)
        assert sum(file.add.size for file in batch.files[:-1]) < limits.get("max_bytes_per_batch", 1000)
        assert sum(10 for _ in batch.files[:-1]) < limits.get("max_rows_per_batch", 1000)


def same_in_every_cut(plan: Any, given: dict[str, Any], limits: dict[str, Any]) -> list[tuple[int, str]]:
    """Return the files of a stream, after reading it with these limits in one run, and again batch by batch."""
    at_once, one_by_one = read(plan, given | limits), read(plan, given | limits, batches_per_application=1)
    assert one_by_one == at_once
    check_limits(at_once, limits)
    return [(file.version, file.add.path) for batch in at_once for file in batch.files]


@pytest.mark.parametrize("limits", LIMITS, ids=str)
@pytest.mark.parametrize(
    ("policy", "passed"), POLICIES, ids=lambda value: str(value) if isinstance(value, dict) else ""
)
def test_every_start_goes_with_every_end_limit_and_policy(
    table: Any, limits: dict[str, Any], policy: dict[str, Any], passed: set[int]
) -> None:
    for number, ((start, first), (end, last)) in enumerate(product(STARTS, ENDS)):
        # an odd number of ends: each start meets both
        exclusion = EXCLUSIONS[number % 2]
        given = {**start, **end, **policy, **exclusion}
        if last is not None and last < (NEWEST if first == "snapshot" else int(first)):
            with pytest.raises(ConfigurationError, match="ends before it starts"):
                read(table, given)
            continue
        found = same_in_every_cut(table, given, limits)
        is_kept = (lambda path: not path.startswith("tmp")) if exclusion else (lambda path: True)
        if first == "snapshot":
            expected = sorted((NEWEST, path) for path in live_at(NEWEST) if is_kept(path))
        else:
            expected = sorted(
                (version, path)
                for version, files in ADDED.items()
                if int(first) <= version <= (NEWEST if last is None else last) and version not in passed
                for path in files
                if is_kept(path)
            )
        assert sorted(found) == expected, given
        assert [version for version, _ in found] == sorted(version for version, _ in found)


@pytest.mark.parametrize("limits", LIMITS, ids=str)
@pytest.mark.parametrize(("as_of", "version"), AS_OF, ids=str)
def test_a_bounded_read_can_be_combined_with_every_limit_of_a_snapshot(
    table: Any, as_of: dict[str, Any], version: int, limits: dict[str, Any]
) -> None:
    if limits.keys() & {"max_versions_per_batch", "whole_commits"}:
        with pytest.raises(ConfigurationError, match="cannot be combined"):
            read(table, as_of | limits)
        return
    for exclusion in EXCLUSIONS:
        found = same_in_every_cut(table, as_of | exclusion, limits)
        assert sorted(found) == sorted(
            (version, path) for path in live_at(version) if not (exclusion and path.startswith("tmp"))
        )
