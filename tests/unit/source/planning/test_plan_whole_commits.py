"""Commits of the change feed that add and remove rows, planned for a sink that decides per key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_fds.errors import StoppedError
from airflow_provider_fds.source.offset import BASE_INDEX

if TYPE_CHECKING:
    from airflow_provider_fds.source.planning.plan import BatchPlanner

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


def test_what_comes_before_a_version_that_cannot_be_read_is_planned_by_the_same_rule(plan, log_builder):
    log_builder.create(configuration=ON)
    log_builder.append(3)
    replaced = overwrite(log_builder, 3, 3)
    log_builder.append(1)
    batches = list(plan.planner(1, read_change_feed=True, keeps_replaced_rows=True, max_files_per_batch=2))
    planner = plan.planner(1, read_change_feed=True, keeps_replaced_rows=True, max_files_per_batch=2)

    again = planner.before(replaced + 1, batches[0].start)

    assert [len(batch.files) for batch in again] == [2, 1, 6]


@pytest.mark.parametrize("limit", [{"max_files_per_batch": 4}, {"max_bytes_per_batch": 4000}])
def test_a_commit_that_does_not_fit_the_batch_whole_begins_a_new_one(plan, log_builder, limit):
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


def test_without_such_a_sink_the_limits_cut_the_commit(plan, log_builder):
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


def without_exclusion(limits: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in limits.items() if name != "exclude_regex"}


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


class Table:
    """A table of files with keys, in which a key is at most once, and what a merge by key makes of its batches."""

    def __init__(self, plan: Any) -> None:
        self.plan = plan
        self.files: dict[str, set[int]] = {}
        self.live: set[str] = set()
        plan.builder.create(configuration=ON)

    def replace(self, share: float, keys: list[int], num_files: int) -> None:
        """Remove a share of the live files, and add files with those of the keys that are in no other one."""
        builder = self.plan.builder
        removed = sorted(self.live)[: round(share * len(self.live))]
        there = {key for path in self.live.difference(removed) for key in self.files[path]}
        free = [key for key in keys if key not in there]
        added = {}
        for number in range(num_files if free else 0):
            if part := set(free[number::num_files]):
                added[f"f{builder.version + 1}-{number}"] = part
        # Spark logs what a commit adds before what it removes
        builder.commit(*map(builder.add, added), *map(builder.remove, removed), operation="WRITE")
        self.files |= added
        self.live = self.live.difference(removed) | set(added)

    def keys(self) -> set[int]:
        return {key for path in self.live for key in self.files[path]}

    def merged(self, limits: list[dict[str, Any]], *, keeps: bool) -> set[int]:
        """Apply batch after batch, each planned with the next of the limits: the last commit of a key decides."""
        sink: set[int] = set()
        position, number = self.plan.at(0), 0
        while True:
            given = {"read_change_feed": True, "keeps_replaced_rows": keeps, **limits[number % len(limits)]}
            batch = next(iter(self.plan.planner(position, **given)), None)
            if batch is None:
                return sink
            last: dict[int, tuple[int, bool]] = {}
            for file in batch.files:
                is_there = file.add.change_type == "insert"
                for key in self.files[file.add.path]:
                    last[key] = max(last.get(key, (-1, False)), (file.version, is_there))
            sink = {key for key in sink if key not in last} | {key for key, (_, there) in last.items() if there}
            position, number = batch.end, number + 1


COMMITS = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.0, 0.4, 1.0]), st.lists(st.integers(0, 9), max_size=8, unique=True), st.integers(1, 4)
    ),
    min_size=1,
    max_size=7,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(commits=COMMITS, limits=st.lists(LIMITS.map(without_exclusion), min_size=1, max_size=3))
def test_applied_by_key_batches_of_any_limits_end_as_the_table_is(new_planning, commits, limits):
    table = Table(new_planning())
    for share, keys, num_files in commits:
        table.replace(share, keys, num_files)
    assert table.merged(limits, keeps=True) == table.keys()


def test_applied_by_key_parts_of_a_commit_lose_keys(new_planning):
    table = Table(new_planning())
    for _ in range(2):
        table.replace(1.0, [0, 1, 2, 3], 4)
    assert table.merged([{"max_files_per_batch": 2}], keeps=False) == set()
