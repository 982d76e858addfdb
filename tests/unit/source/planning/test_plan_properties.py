"""What holds for every log, every limit and every place at which planning is taken up again."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_provider_fds.errors import ViolationError
from airflow_provider_fds.source.offset import Offset

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_fds.source.planned import SourceBatch

#: One action: kind, number of its path (small, so that paths come again), size.
ACTIONS = st.tuples(
    st.sampled_from(["add", "add", "add", "add without change", "remove", "remove without change", "vector", "txn"]),
    st.integers(0, 12),
    st.integers(1, 50),
)
COMMITS = st.tuples(
    # a commit that names a logical file twice is not valid, and planning stops there
    st.lists(ACTIONS, max_size=6, unique_by=lambda action: action if action[0] == "vector" else action[:2]),
    st.sampled_from(["WRITE", "DELETE", "MERGE", None]),
    st.booleans(),
)
LOGS = st.lists(COMMITS, min_size=1, max_size=10)

LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "max_files_per_batch": st.integers(1, 7),
        "max_bytes_per_batch": st.integers(1, 120),
        "max_rows_per_batch": st.integers(1, 45),
        "max_versions_per_batch": st.integers(1, 3),
        "whole_commits": st.booleans(),
    },
)
POLICIES = st.fixed_dictionaries(
    {},
    optional={
        "ignore_deletes": st.booleans(),
        "ignore_changes": st.booleans(),
        "skip_change_commits": st.booleans(),
        "skip_versions": st.sampled_from(["2", "1,4-6", "3-9"]),
        "skip_operations": st.sampled_from(["MERGE", "delete,merge"]),
        "exclude_regex": st.sampled_from(["f[123]$", "f1", "f"]),
        "where": st.sampled_from(["p = 1", "p IN (0, 2)", "p IS NULL OR p > 1", "p > 9"]),
    },
)

many = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
few = settings(many, max_examples=8)


def write(builder: Any, log: list[Any]) -> None:
    """Write the log behind a first version that creates the table."""
    columns = [builder.field("id"), builder.field("p", "integer")]
    builder.create(columns, ["p"])
    for actions, operation, changes_properties in log:
        lines = [line for action in actions if (line := _line(builder, *action)) is not None]
        if changes_properties:
            lines.insert(len(lines) // 2, builder.metadata(columns, ["p"], {"at": str(builder.version)}))
        # a commit file is never empty
        builder.commit(*(lines or [{"txn": {"appId": "app", "version": 0}}]), operation=operation)


def _line(builder: Any, kind: str, number: int, size: int) -> dict[str, Any]:
    path = f"f{number}"
    values: dict[str, Any] = {"partitionValues": {"p": partition_of(number)}}
    if number % 3 == 2:
        values["stats"] = None
    if kind == "txn":
        return {"txn": {"appId": "app", "version": number}}
    if kind == "vector":
        vector = {"storageType": "i", "pathOrInlineDv": str(size), "sizeInBytes": 1, "cardinality": 1}
        return dict(builder.add(path, size=size, deletionVector=vector, **values))
    if kind.startswith("add"):
        return dict(builder.add(path, size=size, dataChange=kind == "add", **values))
    return dict(builder.remove(path, dataChange=kind == "remove", **values))


def partition_of(number: int) -> str | None:
    """Return the partition value of a path: NULL, 0, 1, 2, 3, NULL …"""
    return None if number % 5 == 0 else str(number % 5 - 1)


def passes(path: str, predicate: str | None) -> bool:
    """Say plainly what the predicates above mean."""
    value = partition_of(int(path[1:]))
    p = None if value is None else int(value)
    return {
        None: True,
        "p = 1": p == 1,
        "p IN (0, 2)": p in (0, 2),
        "p IS NULL OR p > 1": p is None or p > 1,
        "p > 9": False,
    }[predicate]


def model(log: list[Any], policy: dict[str, Any]) -> tuple[list[tuple[int, int, str]], set[int], int | None]:
    """Return the files a stream delivers, the versions it passes over and the one it stops at, said plainly."""
    import re

    files: list[tuple[int, int, str]] = []
    passed = set()
    for version, (actions, operation, _) in enumerate(log, 1):
        adds = [f"f{number}" for kind, number, _ in actions if kind in ("add", "vector")]
        removes = [number for kind, number, _ in actions if kind == "remove"]
        if not adds and not removes:
            continue
        listed = {"2": [2], "1,4-6": [1, 4, 5, 6], "3-9": range(3, 10)}.get(policy.get("skip_versions", ""), [])
        operations = policy.get("skip_operations", "").upper().split(",")
        if version in listed or operation in operations:
            passed.add(version)
            continue
        if removes:
            ignores_changes = policy.get("ignore_changes", False)
            if policy.get("skip_change_commits", False):
                passed.add(version)
                continue
            if adds and not ignores_changes:
                return files, passed, version
            if not adds:
                if not ignores_changes and not policy.get("ignore_deletes", False):
                    return files, passed, version
                passed.add(version)
                continue
        regex = policy.get("exclude_regex")
        kept = [
            (version, i, path)
            for i, path in enumerate(adds)
            if passes(path, policy.get("where")) and not (regex and re.search(regex, path))
        ]
        files += kept
        if not kept:
            passed.add(version)
    return files, passed, None


def files_of(batches: list[SourceBatch]) -> list[tuple[int, int, str]]:
    return [(file.version, file.index, file.add.path) for batch in batches for file in batch.files]


@many
@given(log=LOGS, policy=POLICIES, limits=LIMITS)
def test_any_split_into_batches_gives_the_same_files(
    new_planning: Callable[[], Any], log: list[Any], policy: dict[str, Any], limits: dict[str, Any]
) -> None:
    plan = new_planning()
    write(plan.builder, log)
    found = plan(0, **policy, **limits)
    files, passed, stop = model(log, policy)
    assert files_of(found.batches) == files
    assert set(found.skipped) == passed
    assert found.outcome.status == ("up_to_date" if stop is None else "stopped")
    if stop is not None:
        assert isinstance(found.outcome.error, ViolationError)
        assert found.outcome.error.version == stop
    assert found.batches[0].start == plan.at(0)
    assert found.batches[-1].end == plan.at(stop if stop is not None else len(log) + 1)
    for before, after in pairwise(found.batches):
        assert after.start == before.end
        assert before.files
        # case 17: a position moves neither back nor into the initial snapshot
        assert after.end > after.start
        assert after.start.is_initial_snapshot or not after.end.is_initial_snapshot


@many
@given(log=LOGS, policy=POLICIES, limits=LIMITS)
def test_no_batch_lists_a_file_twice_or_goes_over_its_limits(
    new_planning: Callable[[], Any], log: list[Any], policy: dict[str, Any], limits: dict[str, Any]
) -> None:
    plan = new_planning()
    write(plan.builder, log)
    for batch in plan(0, **policy, **limits).batches:
        keys = [file.add.file_key for file in batch.files]
        assert len(set(keys)) == len(keys)
        versions = {file.version for file in batch.files}
        assert len(versions) <= limits.get("max_versions_per_batch", 1000)
        if limits.get("whole_commits") and len(versions) <= 1:
            continue
        assert batch.num_files <= limits.get("max_files_per_batch", 1000)
        # before its last file the batch was below the limit; excluded files count too, so this is an upper bound
        assert sum(file.add.size for file in batch.files[:-1]) < limits.get("max_bytes_per_batch", 10**9)
        # the log builder gives a file 10 rows, of which a vector deletes one; one of unknown rows counts as 1 or more
        rows = [10 if file.add.deletionVector is None else 9 for file in batch.files[:-1] if file.add.stats is not None]
        assert sum(rows) < limits.get("max_rows_per_batch", 10**9)


@many
@given(log=LOGS, policy=POLICIES, limits=LIMITS, other=LIMITS)
def test_planning_can_be_taken_up_at_the_end_of_every_batch(
    new_planning: Callable[[], Any],
    log: list[Any],
    policy: dict[str, Any],
    limits: dict[str, Any],
    other: dict[str, Any],
) -> None:
    plan = new_planning()
    write(plan.builder, log)
    found = plan(0, **policy, **limits)
    assert plan(0, **policy, **limits).batches == found.batches
    for number, batch in enumerate(found.batches, 1):
        position = Offset.from_json(batch.end.to_json())
        assert plan(position, **policy, **limits).batches == found.batches[number:]
        rest = plan(position, **policy, **other)
        assert files_of(rest.batches) == files_of(found.batches[number:])


@many
@given(log=LOGS, policy=POLICIES, limits=LIMITS, data=st.data())
def test_planning_can_be_taken_up_at_every_file_not_only_where_a_batch_ends(
    new_planning: Callable[[], Any], log: list[Any], policy: dict[str, Any], limits: dict[str, Any], data: Any
) -> None:
    plan = new_planning()
    write(plan.builder, log)
    files = files_of(plan(0, **policy).batches)
    if not files:
        return
    taken = data.draw(st.integers(0, len(files) - 1))
    version, index, _ = files[taken]
    assert files_of(plan(plan.at(version, index), **policy, **limits).batches) == files[taken + 1 :]


@few
@given(log=LOGS, limits=LIMITS, policy=POLICIES, data=st.data())
def test_a_snapshot_can_be_taken_up_at_every_file_under_any_policy(
    new_planning: Callable[[], Any], log: list[Any], limits: dict[str, Any], policy: dict[str, Any], data: Any
) -> None:
    plan = new_planning()
    write(plan.builder, log)
    start = plan.snapshot_start(data.draw(st.integers(0, len(log))))
    given = {"snapshot": plan.freeze(start.version), **policy}
    whole = files_of(plan(start, **given).batches)
    index = data.draw(st.integers(0, max(0, given["snapshot"].num_files - 1)))
    position = Offset(start.table_id, start.version, index, is_initial_snapshot=True)
    rest = [file for file in whole if file[0] > start.version or file[1] > index]
    assert files_of(plan(position, **given, **limits).batches) == rest


@many
@given(log=LOGS, policy=POLICIES, limits=LIMITS, data=st.data())
def test_planning_to_any_target_and_then_on_gives_the_same_files(
    new_planning: Callable[[], Any], log: list[Any], policy: dict[str, Any], limits: dict[str, Any], data: Any
) -> None:
    plan = new_planning()
    write(plan.builder, log)
    target = data.draw(st.integers(0, len(log)))
    first = plan(0, target=target, **policy, **limits)
    assert all(batch.last_version <= target for batch in first.batches)
    rest = plan(first.batches[-1].end, **policy, **limits)
    assert files_of(first.batches) + files_of(rest.batches) == files_of(plan(0, **policy).batches)


SNAPSHOT_POLICIES = st.fixed_dictionaries(
    {"ignore_changes": st.just(True)},
    optional={"where": st.sampled_from(["p = 1", "p IS NULL OR p > 1", "p > 9"])},
)


@few
@given(log=LOGS, limits=LIMITS, policy=SNAPSHOT_POLICIES, data=st.data())
def test_a_filter_in_the_snapshot_and_after_it_only_leaves_out(
    new_planning: Callable[[], Any], log: list[Any], limits: dict[str, Any], policy: dict[str, Any], data: Any
) -> None:
    plan = new_planning()
    write(plan.builder, log)
    start = plan.snapshot_start(data.draw(st.integers(0, len(log))))
    given = {"snapshot": plan.freeze(start.version), **policy}
    found = plan(start, **given, **limits)
    everything = plan(start, snapshot=given["snapshot"], ignore_changes=True)
    predicate = policy.get("where")
    assert files_of(found.batches) == [file for file in files_of(everything.batches) if passes(file[2], predicate)]
    for number, batch in enumerate(found.batches, 1):
        position = Offset.from_json(batch.end.to_json())
        assert files_of(plan(position, **given, **limits).batches) == files_of(found.batches[number:])


@few
@given(log=LOGS, limits=LIMITS, data=st.data())
def test_the_snapshot_and_what_follows_can_be_taken_up_anywhere(
    new_planning: Callable[[], Any], log: list[Any], limits: dict[str, Any], data: Any
) -> None:
    plan = new_planning()
    write(plan.builder, log)
    version = data.draw(st.integers(0, len(log)))
    snapshot = plan.freeze(version)
    start = plan.snapshot_start(version)
    given = {"snapshot": snapshot, "ignore_changes": True, **limits}
    found = plan(start, **given)
    assert [file.index for batch in found.batches for file in batch.files if batch.start.is_initial_snapshot][
        : snapshot.num_files
    ] == list(range(snapshot.num_files))
    after, _, _ = model(log, {"ignore_changes": True})
    assert files_of(found.batches)[snapshot.num_files :] == [file for file in after if file[0] > version]
    for number, batch in enumerate(found.batches, 1):
        assert plan(batch.end, **given).batches == found.batches[number:]
