"""Planning commits: order, limits, what is passed over. Numbers: conformance cases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.delta.actions import DeletionVector
from airflow_provider_fds.delta.paths import absolute_vector
from airflow_provider_fds.delta.reader import log as log_module
from airflow_provider_fds.errors import ConfigurationError, StoppedError
from airflow_provider_fds.source.planned import range_digest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_fds.source.planning.plan import BatchPlanner


def optimize(builder: Any, *paths: str) -> int:
    """Rewrite files into one without changing data."""
    removes = [builder.remove(path, dataChange=False) for path in paths]
    return builder.commit(*removes, builder.add("optimized", dataChange=False), operation="OPTIMIZE")


def deletes_and_changes(builder: Any) -> None:
    """Append, delete all, append, overwrite, append: the table of cases 37 to 40."""
    builder.create()
    builder.commit(builder.add("123"))
    builder.commit(builder.remove("123"), operation="DELETE", parameters={"predicate": "[]"})
    builder.commit(builder.add("45"))
    builder.commit(builder.add("678"), builder.remove("45"), parameters={"mode": "Overwrite"})
    builder.commit(builder.add("910"))


def test_an_append_is_one_file_after_the_other_in_the_order_of_the_commit(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    log_builder.commit(log_builder.add("b"), log_builder.add("a"), log_builder.add("c"))
    (batch,) = plan().batches
    assert [(f.version, f.index, f.add.path) for f in batch.files] == [(1, 0, "b"), (1, 1, "a"), (1, 2, "c")]
    assert {file.timestamp_ms for file in batch.files} == {log_builder.time_of(1)}
    assert (batch.num_files, batch.num_bytes, batch.num_rows) == (3, 3000, 30)
    assert (batch.first_version, batch.last_version, batch.state.version) == (0, 1, 1)
    assert batch.state.metadata.id == log_builder.table_id


# D20
def test_2_planning_continues_where_it_ended(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    log_builder.append()
    first = plan()
    assert first.ends == [(2, "BASE", False)]
    assert plan(first.batches[-1].end).batches == []
    assert plan(first.batches[-1].end).outcome.status == "up_to_date"
    log_builder.append()
    second = plan(first.batches[-1].end)
    assert second.paths == ["part-00002-00000.parquet"]
    assert second.batches[0].start == first.batches[-1].end


def test_6_commits_without_data_move_the_offset_with_a_batch_of_no_files(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    start = log_builder.append() + 1
    for version in range(start, start + 3):
        log_builder.commit(operation="SET TBLPROPERTIES")
        (batch,) = plan(version).batches
        assert batch.files == ()
        assert batch.skipped == ()
        assert (batch.end.version, batch.num_rows, batch.num_bytes) == (version + 1, 0, 0)


def test_7_a_range_of_commits_without_data_is_one_step(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    for _ in range(4):
        log_builder.commit(operation="VACUUM END")
    assert plan(1, maxFilesPerTrigger=2).ends == [(5, "BASE", False)]


def test_8_a_table_without_data_ends(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    assert plan().ends == [(1, "BASE", False)]
    assert plan().paths == []
    assert plan(plan.snapshot_start()).ends == [(1, "BASE", False)]
    assert plan(plan.snapshot_start()).paths == []


def test_28_a_stream_waits_for_a_version_that_does_not_exist_yet(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    for start in (1, 2, 9):
        found = plan(start)
        assert found.batches == []
        assert found.outcome.status == "up_to_date"


def test_29_one_file_a_batch(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    for _ in range(5):
        log_builder.append()
    found = plan(1, maxFilesPerTrigger=1)
    assert [len(files) for files in found.files] == [1] * 5
    assert found.ends == [(version, "BASE", False) for version in range(2, 7)]


# D23
def test_30_a_file_above_the_byte_limit_is_delivered_alone(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    for _ in range(5):
        log_builder.append()
    assert [len(files) for files in plan(1, maxBytesPerTrigger="1b").files] == [1] * 5


@pytest.mark.parametrize("limits", [(1, "100gb"), (2, "1b")])
def test_31_both_limits_together(plan: Any, log_builder: Any, limits: tuple[int, str]) -> None:
    log_builder.create()
    log_builder.append(5)
    found = plan(1, maxFilesPerTrigger=limits[0], maxBytesPerTrigger=limits[1])
    assert [len(files) for files in found.files] == [1] * 5
    assert found.ends == [(1, 0, False), (1, 1, False), (1, 2, False), (1, 3, False), (2, "BASE", False)]


# D25
def test_32_limits_may_change_between_runs(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    for _ in range(4):
        log_builder.append(5)
    first = list(plan(1, maxFilesPerTrigger=1).batches)[:10]
    rest = plan(first[-1].end, maxFilesPerTrigger=2)
    assert [len(files) for files in rest.files] == [2] * 5
    once = plan(1).paths
    assert [file.add.path for batch in first for file in batch.files] + rest.paths == once
    assert len(set(once)) == 20


# D24
def test_a_batch_reaches_over_the_commits_without_data_after_it(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    log_builder.append()
    optimize(log_builder, "part-00001-00000.parquet")
    log_builder.commit(operation="VACUUM END")
    log_builder.append()
    assert plan(1, maxFilesPerTrigger=1).ends == [(4, "BASE", False), (5, "BASE", False)]


def test_whole_commits_are_not_cut(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    for files in (2, 2, 7, 1):
        log_builder.append(files)
    found = plan(1, maxFilesPerTrigger=3, whole_commits=True)
    assert [len(files) for files in found.files] == [2, 2, 7, 1]
    assert all(index == "BASE" for _, index, _ in found.ends)


def test_the_rest_of_a_commit_is_also_kept_whole(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    log_builder.append(7)
    log_builder.append(2)
    found = plan(plan.at(1, 3), maxFilesPerTrigger=2, whole_commits=True)
    assert [len(files) for files in found.files] == [3, 2]


def test_versions_are_limited_by_those_with_data(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    for _ in range(3):
        log_builder.append(2)
        log_builder.commit(operation="VACUUM END")
    found = plan(1, max_versions_per_batch=1)
    assert [len(files) for files in found.files] == [2, 2, 2]
    assert found.ends == [(3, "BASE", False), (5, "BASE", False), (7, "BASE", False)]


def test_planning_continues_from_a_position_within_a_commit(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    log_builder.append(4)
    (batch,) = plan(plan.at(1, 1)).batches
    assert [(file.index, file.add.path[-9:]) for file in batch.files] == [(2, "2.parquet"), (3, "3.parquet")]
    assert plan(plan.at(1, -20)).paths == plan(1).paths


def test_a_position_at_the_last_file_moves_to_the_next_version(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    log_builder.append(4)
    found = plan(plan.at(1, 3))
    assert found.paths == []
    assert found.ends == [(2, "BASE", False)]


def test_a_position_after_the_last_file_is_refused(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    log_builder.append(4)
    with pytest.raises(ConfigurationError, match=r"names file 4 of version 1, which has 4 data files") as caught:
        plan(plan.at(1, 4))
    assert log_builder.uri in str(caught.value)


def test_files_that_change_no_data_have_no_index(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    log_builder.commit(
        log_builder.add("x", dataChange=False), log_builder.add("a"), log_builder.add("y", dataChange=False)
    )
    (batch,) = plan(1).batches
    assert [(file.index, file.add.path) for file in batch.files] == [(0, "a")]


def test_35_excluded_files_keep_their_index_and_their_place_in_the_limit(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    log_builder.commit(*[log_builder.add(name) for name in ("a", "ignore-1", "b", "ignore-2", "c")])
    everything = plan(1, maxFilesPerTrigger=2)
    assert everything.files == [["a", "ignore-1"], ["b", "ignore-2"], ["c"]]
    found = plan(1, maxFilesPerTrigger=2, excludeRegex="ignore")
    assert found.files == [["a"], ["b"], ["c"]]
    assert found.ends == everything.ends
    assert [file.index for batch in found.batches for file in batch.files] == [0, 2, 4]
    assert plan(found.batches[0].end, maxFilesPerTrigger=2).files == [["b", "ignore-2"], ["c"]]


def test_35_batches_whose_files_are_all_excluded_run_together(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    log_builder.commit(*[log_builder.add(f"ignore-{number}") for number in range(7)])
    log_builder.commit(log_builder.add("a"), log_builder.add("b"))
    found = plan(1, maxFilesPerTrigger=2, excludeRegex="ignore")
    # seven excluded files leave room for one more in the fourth batch, as if none were excluded
    assert found.files == [["a"], ["b"]]
    assert found.ends == [(2, 0, False), (3, "BASE", False)]
    assert found.skipped == {1: "exclude_regex"}


def test_a_commit_whose_files_are_all_excluded_moves_the_offset_and_is_listed(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    log_builder.commit(log_builder.add("ignore-1"), log_builder.add("ignore-2"), operation="COPY INTO")
    (batch,) = plan(1, excludeRegex="ignore").batches
    assert batch.files == ()
    (skipped,) = batch.skipped
    assert (skipped.version, skipped.operation) == (1, "COPY INTO")
    assert skipped.reason == "exclude_regex excludes all of its 2 data files"


# D14
def test_37_ignore_deletes_passes_the_delete_and_stops_at_the_overwrite(plan: Any, log_builder: Any) -> None:
    deletes_and_changes(log_builder)
    found = plan(ignoreDeletes=True)
    assert found.paths == ["123", "45"]
    assert found.ends == [(4, "BASE", False)]
    assert found.skipped == {2: "ignore_deletes"}
    assert found.outcome.status == "stopped"
    assert "version 4 (WRITE (mode -> Overwrite))" in str(found.outcome.error)
    assert "skip_change_commits" in str(found.outcome.error)


# D14
@pytest.mark.parametrize(
    "more",
    [{}, {"ignoreDeletes": True}, {"ignoreChanges": True}, {"ignoreChanges": True, "ignoreDeletes": True}],
)
def test_38_and_40_skip_change_commits_passes_both_and_wins(plan: Any, log_builder: Any, more: dict[str, bool]) -> None:
    deletes_and_changes(log_builder)
    found = plan(skipChangeCommits=True, **more)
    assert found.paths == ["123", "45", "910"]
    assert found.skipped == {2: "skip_change_commits", 4: "skip_change_commits"}
    assert found.outcome.status == "up_to_date"


# D14
@pytest.mark.parametrize(
    "options", [{"ignoreChanges": True}, {"ignoreFileDeletion": True}, {"ignoreChanges": True, "ignoreDeletes": True}]
)
def test_39_and_40_ignore_changes_delivers_all_added_files(
    plan: Any, log_builder: Any, options: dict[str, bool]
) -> None:
    deletes_and_changes(log_builder)
    found = plan(**options)
    assert found.paths == ["123", "45", "678", "910"]
    assert found.skipped == {2: "ignore_changes"}


def test_versions_and_operations_can_be_skipped(plan: Any, log_builder: Any) -> None:
    deletes_and_changes(log_builder)
    found = plan(skip_versions="1,4", skip_operations="delete")
    assert found.paths == ["45", "910"]
    assert found.skipped == {1: "skip_versions", 2: "skip_operations", 4: "skip_versions"}


def vector(cardinality: int, offset: int) -> dict[str, Any]:
    return {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "offset": offset,
        "sizeInBytes": 36,
        "cardinality": cardinality,
    }


def test_43_and_46_a_file_with_a_new_vector_is_delivered_again(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    log_builder.commit(log_builder.add("f", rows=10))
    old: dict[str, Any] = {}
    for deleted in (1, 2):
        new = {"deletionVector": vector(deleted, deleted)}
        log_builder.commit(log_builder.remove("f", **old), log_builder.add("f", rows=10, **new), operation="DELETE")
        old = new
    found = plan(1, ignoreChanges=True)
    # the same path with another vector is another file: all three fit one batch
    assert found.files == [["f", "f", "f"]]
    assert found.batches[0].num_rows == 10 + 9 + 8
    assert plan(1, skipChangeCommits=True).paths == ["f"]


def test_one_bitmap_logged_relative_and_absolute_is_one_file_so_the_batch_is_cut(plan: Any, log_builder: Any) -> None:
    relative = vector(1, 1)
    stored = DeletionVector(**relative)
    absolute = {
        **relative,
        "storageType": "p",
        "pathOrInlineDv": absolute_vector(log_builder.uri, stored).pathOrInlineDv,
    }
    log_builder.create()
    log_builder.commit(log_builder.add("f", deletionVector=relative))
    log_builder.commit(log_builder.remove("f", deletionVector=relative), operation="DELETE")
    log_builder.commit(log_builder.add("f", deletionVector=absolute), operation="RESTORE")

    assert plan(1, ignoreDeletes=True).files == [["f"], ["f"]]


def test_44_and_45_a_file_rewritten_twice_is_delivered_each_time(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    log_builder.commit(log_builder.add("f0"))
    log_builder.commit(log_builder.remove("f0"), log_builder.add("f1"), operation="DELETE")
    log_builder.commit(log_builder.remove("f1"), log_builder.add("f2"), operation="DELETE")
    assert plan(1, ignoreChanges=True).paths == ["f0", "f1", "f2"]
    assert plan(1, skipChangeCommits=True).paths == ["f0"]


# D16
def test_48_rewrites_without_change_deliver_nothing(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    log_builder.commit(log_builder.add("a"))
    optimize(log_builder, "a")
    log_builder.commit(log_builder.add("b"))
    (batch,) = plan(1).batches
    assert [file.add.path for file in batch.files] == ["a", "b"]
    assert batch.skipped == ()


def restore(builder: Any) -> None:
    builder.create()
    builder.commit(builder.add("a"))
    builder.commit(builder.add("b"))
    builder.commit(builder.remove("a"), operation="DELETE")
    builder.commit(builder.add("c"), builder.add("a"), operation="RESTORE")
    builder.commit(builder.add("d"))


# D17
def test_a_file_listed_again_is_delivered_again_in_the_next_batch(plan: Any, log_builder: Any) -> None:
    restore(log_builder)
    found = plan(1, ignoreDeletes=True)
    assert found.files == [["a", "b"], ["c", "a", "d"]]
    assert found.ends == [(4, "BASE", False), (6, "BASE", False)]
    assert found.skipped == {3: "ignore_deletes"}


def test_a_file_is_the_same_by_its_absolute_path_too(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    log_builder.commit(log_builder.add("x/a"))
    log_builder.commit(log_builder.add(f"{log_builder.uri}/x/a"))
    log_builder.commit(log_builder.add("s3://other/x/a"))
    assert [len(files) for files in plan(1).files] == [1, 2]


def test_a_commit_that_lists_a_file_twice_is_stopped_at_by_its_version(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    log_builder.append()
    log_builder.commit(log_builder.add("a"), log_builder.add("b"), log_builder.add("a"))
    log_builder.append()
    found = plan(1)
    assert found.ends == [(2, "BASE", False)]
    assert isinstance(found.outcome.error, StoppedError)
    assert found.outcome.error.version == 2
    assert "two add actions for a" in str(found.outcome.error)
    passed = plan(1, skip_versions="2")
    assert passed.outcome.error is None
    assert passed.paths == ["part-00001-00000.parquet", "part-00003-00000.parquet"]


@pytest.mark.parametrize("data_change", [True, False])
def test_two_vectors_of_a_file_or_a_rearrangement_are_no_file_listed_twice(
    plan: Any, log_builder: Any, data_change: bool
) -> None:
    log_builder.create()
    vector = {"storageType": "i", "pathOrInlineDv": "00000", "sizeInBytes": 4, "cardinality": 1}
    second = log_builder.add("a", **({"deletionVector": vector} if data_change else {"dataChange": False}))
    log_builder.commit(log_builder.add("a"), second, operation="OPTIMIZE")
    assert plan(1).paths == (["a", "a"] if data_change else ["a"])


def test_a_huge_commit_that_lists_a_file_twice_is_stopped_at(
    plan: Any, log_builder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "STREAMED_ABOVE_BYTES", 1000)
    log_builder.create()
    log_builder.append(100)
    log_builder.commit(*(log_builder.add(f"x{i % 99}") for i in range(100)))
    found = plan(1)
    assert len(found.paths) == 100
    assert found.outcome.error is not None
    assert found.outcome.error.version == 2


def test_rows_are_unknown_as_soon_as_one_file_has_no_count(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    log_builder.append()
    log_builder.append(stats=None)
    log_builder.append(stats='{"minValues":{}}')
    log_builder.append(stats="{")
    assert [batch.num_rows for batch in plan(1, maxFilesPerTrigger=1).batches] == [10, None, None, None]
    assert plan(1).batches[0].num_rows is None


def test_planning_ends_at_the_target_and_reads_nothing_after_it(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    for _ in range(3):
        log_builder.append()
    log_builder.write_raw(4, "{not json")
    found = plan(1, target=3)
    assert len(found.paths) == 3
    assert found.outcome.status == "up_to_date"
    assert found.outcome.target == 3


def test_planning_is_lazy_and_its_outcome_comes_with_the_last_batch(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    for _ in range(3):
        log_builder.append()
    planner: BatchPlanner = plan.planner(1, maxFilesPerTrigger=1)
    batches: Iterator[Any] = iter(planner)
    next(batches)
    next(batches)
    assert planner.outcome is None
    next(batches)
    assert planner.outcome is not None
    assert planner.outcome.error is None


def test_the_digest_of_a_batch_covers_the_commit_files_of_its_range(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    for _ in range(3):
        log_builder.append(3)
    found = plan(1, maxFilesPerTrigger=4)
    ranges = [(batch.first_version, batch.last_version) for batch in found.batches]
    assert ranges == [(1, 2), (2, 3), (3, 3)]
    for batch, (first, last) in zip(found.batches, ranges, strict=True):
        metas = plan.log.list_commits(first, last)
        assert batch.log_digest == range_digest((first + n, meta.size_bytes) for n, meta in enumerate(metas))
        assert batch.last_commit_sha256 == plan.log.commit(last).sha256


def test_times_of_commits_without_files_are_not_read(plan: Any, log_builder: Any) -> None:
    log_builder.create(configuration={"delta.enableInCommitTimestamps": "true"})
    # a commit without in-commit timestamp, where the table demands it, would be an error
    log_builder.commit(operation="VACUUM END")
    assert plan(1).outcome.status == "up_to_date"
