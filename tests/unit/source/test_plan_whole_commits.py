"""Commits of the change feed that add and remove rows, planned for a sink that decides per key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_fds.errors import StoppedError
from airflow_provider_fds.source.offset import BASE_INDEX

if TYPE_CHECKING:
    from airflow_provider_fds.source.plan import BatchPlanner

ON = {"delta.enableChangeDataFeed": "true"}


def planned(plan: Any, start: Any = 1, **options: Any) -> tuple[list[list[str]], BatchPlanner]:
    planner = plan.planner(start, read_change_feed=True, keeps_replaced_rows=True, **options)
    return [[file.add.path for file in batch.files] for batch in planner], planner


def overwrite(builder: Any, old: int, new: int) -> int:
    """Replace the files of the newest append by others; Spark logs the added ones first."""
    there = [f"part-{builder.version:05d}-{n:05d}.parquet" for n in range(old)]
    adds = [builder.add(f"new-{builder.version}-{n}") for n in range(new)]
    return builder.commit(*adds, *map(builder.remove, there), operation="WRITE")


def test_a_commit_that_replaces_rows_is_one_batch_whatever_the_limits_are(plan, log_builder):
    log_builder.create(configuration=ON)
    log_builder.append(3)
    overwrite(log_builder, 3, 3)
    log_builder.append(3)
    files, _ = planned(plan, max_files_per_batch=2)
    assert [len(paths) for paths in files] == [2, 1, 6, 2, 1]


@pytest.mark.parametrize("limit", [{"max_files_per_batch": 4}, {"max_bytes_per_batch": 4000}])
def test_it_goes_into_a_batch_that_has_room_for_all_of_it_and_else_begins_one(plan, log_builder, limit):
    log_builder.create(configuration=ON)
    log_builder.append(3)
    first, second, third = (f"part-00001-{n:05d}.parquet" for n in range(3))
    log_builder.append(1)
    log_builder.commit(log_builder.add("a"), log_builder.add("b"), log_builder.remove(first), operation="WRITE")
    log_builder.append(2)
    log_builder.commit(log_builder.add("c"), *map(log_builder.remove, (second, third)), operation="WRITE")
    files, _ = planned(plan, 2, **limit)
    assert [len(paths) for paths in files] == [4, 2, 3]


def test_commits_that_only_add_or_only_remove_are_cut_by_the_limits(plan, log_builder):
    log_builder.create(configuration=ON)
    log_builder.append(3)
    there = [f"part-{log_builder.version:05d}-{n:05d}.parquet" for n in range(3)]
    log_builder.commit(*map(log_builder.remove, there), operation="DELETE")
    files, _ = planned(plan, max_files_per_batch=2)
    assert [len(paths) for paths in files] == [2, 1, 2, 1]


def test_files_that_are_left_out_do_not_make_a_commit_divisible(plan, log_builder):
    log_builder.create(configuration=ON)
    log_builder.append(3)
    overwrite(log_builder, 3, 3)
    files, _ = planned(plan, 2, max_files_per_batch=2, exclude_regex="part-00001-0000[12]")
    assert [len(paths) for paths in files] == [4]


def test_without_such_a_sink_it_is_cut_by_the_limits(plan, log_builder):
    log_builder.create(configuration=ON)
    log_builder.append(3)
    overwrite(log_builder, 3, 3)
    found = plan(2, read_change_feed=True, max_files_per_batch=4)
    assert [len(paths) for paths in found.files] == [4, 2]


def test_a_commit_that_would_be_cut_by_a_file_listed_twice_stops_the_stream_before_it(plan, log_builder):
    log_builder.create(configuration=ON)
    log_builder.append(1)
    again = "part-00001-00000.parquet"
    log_builder.commit(log_builder.add(again), log_builder.remove(again), log_builder.add("other"), operation="WRITE")
    files, planner = planned(plan)
    assert files == [[again]]
    assert isinstance(planner.outcome.error, StoppedError)
    assert "version 2 lists the file part-00001-00000.parquet twice" in str(planner.outcome.error)


KINDS = st.lists(
    st.tuples(st.sampled_from(["append", "overwrite", "delete"]), st.integers(1, 5)), min_size=1, max_size=6
)
LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "max_files_per_batch": st.integers(1, 6),
        "max_bytes_per_batch": st.integers(1, 6000),
        "max_versions_per_batch": st.integers(1, 3),
        "exclude_regex": st.sampled_from(["[13]$", "0000[02]"]),
    },
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(log=KINDS, limits=LIMITS)
def test_no_batch_begins_or_ends_inside_a_commit_that_replaces_rows(new_planning, log, limits):
    plan = new_planning()
    builder = plan.builder
    builder.create(configuration=ON)
    live: list[str] = []
    replacing = set()
    for number, (kind, count) in enumerate(log):
        adds = [f"f{number}-{n}" for n in range(count)] if kind != "delete" else []
        removes = [] if kind == "append" else live[: len(live) if kind == "overwrite" else count]
        version = builder.commit(*map(builder.add, adds), *map(builder.remove, removes), operation="WRITE")
        live = [*(path for path in live if path not in removes), *adds]
        if adds and removes:
            replacing.add(version)
    planner = plan.planner(0, read_change_feed=True, keeps_replaced_rows=True, **limits)
    files = []
    for batch in planner:
        files += [(file.version, file.index) for file in batch.files]
        for offset in (batch.start, batch.end):
            assert offset.version not in replacing or offset.index == BASE_INDEX
    cut = plan.planner(0, read_change_feed=True, **limits)
    assert files == [(file.version, file.index) for batch in cut for file in batch.files]
