"""Planning the change data feed. Numbers: conformance cases."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from airflow_provider_fds.delta.actions import DeletionVector
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.delta.vectors import VectorReader, inline_vector
from airflow_provider_fds.errors import ConfigurationError, LogTruncatedError, LostPositionError, StoppedError
from airflow_provider_fds.source.changes.change_recording import check_start
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.source.planned import ChangedFile

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_fds.source.planned import SourceBatch

ON = {"delta.enableChangeDataFeed": "true"}


def changes(plan: Any, start: Any = 1, target: int | None = None, **options: Any) -> Any:
    return plan(start, target, read_change_feed=True, **options)


def listed(batch: SourceBatch) -> list[tuple[int, int, str, str | None]]:
    """Version, index, path and change type of each file of a batch."""
    found = []
    for file in batch.files:
        assert isinstance(file.add, ChangedFile)
        found.append((file.version, file.index, file.add.path, file.add.change_type))
    return found


def types(found: Any) -> list[list[tuple[str, str | None]]]:
    return [[(path, kind) for _, _, path, kind in listed(batch)] for batch in found.batches]


def cdc(path: str, size: int = 1000) -> dict[str, Any]:
    return {"cdc": {"path": f"_change_data/{path}", "size": size, "partitionValues": {}, "dataChange": False}}


def update(builder: Any, old: str, new: str, *change_files: str) -> int:
    """Rewrite a file, with change files that say what changed."""
    return int(
        builder.commit(builder.remove(old), builder.add(new), *(cdc(name) for name in change_files), operation="UPDATE")
    )


def vector(*rows: int) -> dict[str, Any]:
    found = inline_vector(BitMap64(rows))
    return {
        "storageType": found.storageType,
        "pathOrInlineDv": found.pathOrInlineDv,
        "sizeInBytes": found.sizeInBytes,
        "cardinality": found.cardinality,
    }


def revise(builder: Any, path: str, old: dict[str, Any] | None, new: dict[str, Any] | None, rows: int = 10) -> tuple:
    """Return the two actions that give a file another deletion vector."""
    return (
        builder.remove(path, **({} if old is None else {"deletionVector": old})),
        builder.add(path, rows=rows, **({} if new is None else {"deletionVector": new})),
    )


def rows_of(file: ChangedFile, rows: int = 10) -> list[int]:
    """The rows that a reader of deletion vectors finds in a file."""
    gone = VectorReader(LocalStorage("/nowhere")).rows(file.deletionVector)
    return [row for row in range(rows) if row not in gone]


def test_adds_are_inserts_and_removes_are_deletes_in_line_order(plan: Any, log_builder: Any) -> None:
    log_builder.create(configuration=ON)
    log_builder.commit(log_builder.add("a"), log_builder.add("b"))
    log_builder.commit(log_builder.add("c"), log_builder.remove("b", size=7), log_builder.add("d", dataChange=False))
    found = changes(plan)
    # the manifest could not list b twice
    assert [listed(batch) for batch in found.batches] == [
        [(1, 0, "a", "insert"), (1, 1, "b", "insert")],
        [(2, 0, "c", "insert"), (2, 1, "b", "delete")],
    ]
    assert [batch.feed for batch in found.batches] == ["whole_files", "whole_files"]
    assert found.batches[1].num_bytes == 1007
    assert found.batches[1].num_rows is None


def test_a_removed_file_with_statistics_is_counted_and_keeps_its_vector(plan: Any, log_builder: Any) -> None:
    log_builder.create(configuration=ON)
    log_builder.commit(log_builder.remove("a", stats='{"numRecords":10}', deletionVector=vector(1, 2)))
    (batch,) = changes(plan).batches
    assert batch.num_rows == 8
    assert rows_of(batch.files[0].add) == [0, 3, 4, 5, 6, 7, 8, 9]


def test_a_commit_with_change_files_is_read_by_these_alone(plan: Any, log_builder: Any) -> None:
    log_builder.create(configuration=ON)
    update(log_builder, "a", "b", "x", "y")
    (batch,) = changes(plan).batches
    assert listed(batch) == [(1, 0, "_change_data/x", None), (1, 1, "_change_data/y", None)]
    assert (batch.feed, batch.num_rows, batch.num_bytes) == ("change_files", None, 2000)
    assert plan(1, ignore_changes=True).paths == ["b"]


def test_a_batch_is_cut_where_the_two_kinds_of_commit_meet(plan: Any, log_builder: Any) -> None:
    log_builder.create(configuration=ON)
    log_builder.commit(log_builder.add("a"))
    log_builder.commit(operation="VACUUM END")
    update(log_builder, "a", "b", "x")
    update(log_builder, "b", "c", "y")
    log_builder.commit(operation="OPTIMIZE")
    log_builder.commit(log_builder.add("d"))
    found = changes(plan)
    assert found.files == [["a"], ["_change_data/x", "_change_data/y"], ["d"]]
    assert found.ends == [(3, "BASE", False), (6, "BASE", False), (7, "BASE", False)]
    assert [batch.feed for batch in found.batches] == ["whole_files", "change_files", "whole_files"]


def test_68_a_snapshot_comes_as_inserts_of_its_version(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    log_builder.commit(log_builder.add("1"), log_builder.add("9"))
    log_builder.commit(log_builder.remove("9"), operation="DELETE")
    log_builder.commit(log_builder.metadata(configuration=ON), operation="SET TBLPROPERTIES")
    start = plan.snapshot_start()
    log_builder.commit(log_builder.remove("1"), operation="DELETE")
    found = changes(plan, start)
    assert [listed(batch) for batch in found.batches] == [[(3, 0, "1", "insert")], [(4, 0, "1", "delete")]]


def test_68_a_snapshot_of_a_table_without_change_data_feed_is_stopped_at(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    log_builder.append()
    found = changes(plan, plan.snapshot_start())
    assert found.batches == []
    assert "version 1 does not record changes" in str(found.outcome.error)


@pytest.mark.parametrize(
    ("later", "skipped"),
    [
        ([], "2"),
        (["append"], "2-3"),
        (["append", "append", "on", "append"], "2-4"),
        (["on"], "2"),
        (["off", "append"], "2-4"),
    ],
)
def test_the_error_names_the_versions_in_a_row_without_recorded_changes(
    plan: Any, log_builder: Any, later: list[str], skipped: str
) -> None:
    log_builder.create(configuration=ON)
    log_builder.append()
    log_builder.commit(log_builder.metadata(configuration={}))
    steps = {
        "append": log_builder.append,
        "on": lambda: log_builder.commit(log_builder.metadata(configuration=ON)),
        "off": lambda: log_builder.commit(log_builder.metadata(configuration={})),
    }
    for step in later:
        steps[step]()
    message = str(changes(plan, 0).outcome.error)
    assert "version 2 does not record changes" in message
    assert f"skip_versions='{skipped}' passes" in message


def test_69_a_start_before_the_feed_was_on_is_an_error_that_names_the_version(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    log_builder.append()
    log_builder.commit(log_builder.metadata(configuration=ON))
    found = changes(plan, 1)
    assert found.batches == []
    error = found.outcome.error
    assert isinstance(error, StoppedError)
    assert error.version == 1
    assert "delta.enableChangeDataFeed" in str(error)
    with pytest.raises(ConfigurationError, match="not true at version 1, where the stream would start"):
        check_start(plan.log, plan.at(1))
    check_start(plan.log, plan.at(2))
    check_start(plan.log, plan.at(3))


def test_69_the_version_that_switches_the_feed_on_may_be_the_start(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    log_builder.append()
    log_builder.commit(log_builder.metadata(configuration=ON), log_builder.add("a"))
    assert types(changes(plan, 2)) == [[("a", "insert")]]


def test_a_version_that_switches_the_feed_off_stops_the_stream_before_it(plan: Any, log_builder: Any) -> None:
    log_builder.create(configuration=ON)
    log_builder.commit(log_builder.add("a"))
    log_builder.commit(log_builder.metadata(configuration={"delta.enableChangeDataFeed": "false"}))
    log_builder.commit(log_builder.add("b"))
    log_builder.commit(log_builder.metadata(configuration=ON))
    log_builder.commit(log_builder.add("c"))
    found = changes(plan)
    assert found.paths == ["a"]
    assert found.ends == [(2, "BASE", False)]
    assert found.outcome.error.version == 2
    # taken up behind it, the stretch without changes still stops
    assert changes(plan, 3).outcome.error.version == 3
    assert changes(plan, 4).paths == ["c"]

    passed = changes(plan, skip_versions="2-3")
    assert passed.paths == ["a", "c"]
    assert passed.skipped == {3: "skip_versions"}


def test_70_an_update_is_delivered_whole_however_small_the_limit(plan: Any, log_builder: Any) -> None:
    log_builder.create(configuration=ON)
    log_builder.append(2)
    log_builder.append(1)
    log_builder.commit(log_builder.remove("part-00002-00000.parquet"), operation="DELETE")
    update(log_builder, "part-00001-00000.parquet", "f", "a", "b")
    update(log_builder, "f", "g", "c", "d")
    for limit in ({"maxFilesPerTrigger": 1}, {"maxBytesPerTrigger": "1b"}):
        found = changes(plan, **limit)
        assert [batch.num_files for batch in found.batches] == [1, 1, 1, 1, 2, 2]
        assert found.ends == [
            (1, 0, False),
            *((version, "BASE", False) for version in (2, 3, 4, 5, 6)),
        ]


def test_71_a_group_that_does_not_fit_blocks_what_comes_after_it(plan: Any, log_builder: Any) -> None:
    log_builder.create(configuration=ON)
    update(log_builder, "o", "p", "w")
    update(log_builder, "p", "q", "x", "y", "z")
    update(log_builder, "q", "r", "v")
    found = changes(plan, maxFilesPerTrigger=3)
    # v fits beside w, but may not overtake
    assert [[path[-1] for path in files] for files in found.files] == [["w"], ["x", "y", "z"], ["v"]]
    log_builder.append(2)
    update(log_builder, "r", "s", "t", "u")
    log_builder.append(1)
    # Delta delivers 2, then 2 + 1 files: here the kind of commit ends the batch besides
    assert [batch.num_files for batch in changes(plan, 4, maxFilesPerTrigger=3).batches] == [2, 2, 1]


def test_72_a_merge_without_effect_has_no_rows_and_is_listed(plan: Any, log_builder: Any) -> None:
    log_builder.create(configuration=ON)
    metrics = {"numTargetRowsInserted": "0", "numTargetRowsUpdated": "0", "numTargetRowsDeleted": "0"}
    rewrite = (log_builder.remove("a"), log_builder.add("b"))
    log_builder.commit(*rewrite, operation="MERGE", metrics=metrics)
    log_builder.commit(*rewrite, operation="MERGE", metrics={**metrics, "numTargetRowsUpdated": "1"})
    log_builder.commit(*rewrite, operation="MERGE", metrics={"numTargetRowsInserted": "0"})
    log_builder.commit(*rewrite, operation="UPDATE", metrics=metrics)
    log_builder.commit(*rewrite, cdc("x"), operation="MERGE", metrics=metrics)
    found = changes(plan, max_versions_per_batch=1)
    assert [[file.version for file in batch.files] for batch in found.batches] == [[2, 2], [3, 3], [4, 4], [5]]
    assert found.skipped == {1: "a"}
    assert found.batches[0].skipped[0].reason.startswith("a MERGE that changed no row")


def test_73_deletes_of_whole_files_may_be_the_start(plan: Any, log_builder: Any) -> None:
    log_builder.create(partition_columns=["p"], configuration=ON)
    log_builder.commit(log_builder.add("a", partitionValues={"p": "1"}))
    log_builder.commit(log_builder.remove("a", partitionValues={"p": "1"}), operation="DELETE")
    (batch,) = changes(plan, 2).batches
    assert listed(batch) == [(2, 0, "a", "delete")]
    assert batch.files[0].add.partitionValues == {"p": "1"}


def test_74_two_deletes_of_one_file_give_the_newly_deleted_rows_alone(plan: Any, log_builder: Any) -> None:
    log_builder.create(configuration=ON)
    first, second = vector(3), vector(3, 7)
    log_builder.commit(*revise(log_builder, "f", None, first), operation="DELETE")
    log_builder.commit(*revise(log_builder, "f", first, second), operation="DELETE")
    (batch,) = changes(plan).batches
    assert listed(batch) == [(1, 0, "f", "delete"), (2, 0, "f", "delete")]
    assert [rows_of(file.add) for file in batch.files] == [[3], [7]]
    assert batch.num_rows == 2
    assert json.loads(batch.files[0].add.stats) == {"numRecords": 10, "tightBounds": False}


def test_74_a_commit_with_vectors_is_admitted_whole(plan: Any, log_builder: Any) -> None:
    log_builder.create(configuration=ON)
    pairs = [revise(log_builder, f"f{n}", None, vector(n)) for n in range(3)]
    log_builder.commit(*(action for pair in pairs for action in pair), operation="DELETE")
    log_builder.commit(log_builder.add("a"), log_builder.add("b"))
    found = changes(plan, maxFilesPerTrigger=1)
    assert [batch.num_files for batch in found.batches] == [3, 1, 1]
    assert [file.index for file in found.batches[0].files] == [0, 2, 4]


def test_74_rows_that_restore_brings_back_are_inserts(plan: Any, log_builder: Any) -> None:
    log_builder.create(configuration=ON)
    old, new = vector(1, 2), vector(2, 3)
    log_builder.commit(*revise(log_builder, "f", old, new), operation="RESTORE")
    log_builder.commit(*revise(log_builder, "g", old, None), operation="RESTORE")
    (batch,) = changes(plan).batches
    assert listed(batch) == [(1, 0, "f", "delete"), (1, 1, "f", "insert"), (2, 1, "g", "insert")]
    assert [rows_of(file.add) for file in batch.files] == [[3], [1], [1, 2]]


def test_74_all_rows_deleted_at_once_need_no_vector_and_none_changed_need_no_file(plan: Any, log_builder: Any) -> None:
    log_builder.create(configuration=ON)
    log_builder.commit(*revise(log_builder, "f", None, vector(*range(10))), operation="DELETE")
    log_builder.commit(*revise(log_builder, "g", vector(1), {**vector(1), "cardinality": 1}), operation="DELETE")
    (batch,) = changes(plan).batches
    assert listed(batch) == [(1, 0, "f", "delete")]
    assert batch.files[0].add.deletionVector is None
    assert batch.skipped == ()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    states=st.lists(st.sets(st.integers(0, 9)), min_size=1, max_size=6), start=st.sets(st.integers(0, 9), max_size=5)
)
def test_the_changes_of_a_file_lead_from_one_state_to_the_next(
    new_planning: Callable[[], Any], states: list[set[int]], start: set[int]
) -> None:
    plan = new_planning()
    builder = plan.builder
    builder.create(configuration=ON)
    before = start
    for after in states:
        builder.commit(*revise(builder, "f", vector(*before), vector(*after)))
        before = after
    live = set(range(10)) - start
    by_version: dict[int, dict[str, set[int]]] = {}
    for batch in changes(plan).batches:
        assert batch.num_rows == sum(len(rows_of(file.add)) for file in batch.files)
        for file in batch.files:
            by_version.setdefault(file.version, {})[file.add.change_type] = set(rows_of(file.add))
    for version, after in enumerate(states, 1):
        found = by_version.get(version, {})
        assert found.get("delete", set()) <= live
        assert not found.get("insert", set()) & live
        live = live - found.get("delete", set()) | found.get("insert", set())
        assert live == set(range(10)) - after


def test_75_excluded_change_files_are_not_replaced_by_other_files(plan: Any, log_builder: Any) -> None:
    log_builder.create(configuration=ON)
    log_builder.commit(log_builder.add("a"))
    update(log_builder, "a", "b", "x", "y")
    found = changes(plan, excludeRegex="_change_data/x")
    assert found.paths == ["a", "_change_data/y"]
    assert [file.index for file in found.batches[1].files] == [1]
    (batch,) = changes(plan, 2, excludeRegex="_change_data").batches
    assert batch.files == ()
    assert batch.skipped[0].reason == "exclude_regex excludes all 2 files of its changes"


def test_75_excluded_files_keep_their_index_and_count_for_no_limit(plan: Any, log_builder: Any) -> None:
    log_builder.create(configuration=ON)
    names = ("a", "no-1", "b", "no-2", "c")
    log_builder.commit(*[log_builder.add(name) for name in names])
    found = changes(plan, maxFilesPerTrigger=2, excludeRegex="no")
    assert found.files == [["a", "b"], ["c"]]
    assert [[file.index for file in batch.files] for batch in found.batches] == [[0, 2], [4]]
    assert changes(plan, found.batches[0].end, excludeRegex="no").files == [["c"]]
    start = plan.snapshot_start()
    assert sorted(changes(plan, start, excludeRegex="no").paths) == ["a", "b", "c"]


def test_77_a_rewrite_without_change_files_is_delete_and_insert_of_whole_files(plan: Any, log_builder: Any) -> None:
    log_builder.create(configuration=ON)
    log_builder.commit(log_builder.remove("01"), log_builder.add("1"), operation="DELETE")
    assert types(changes(plan)) == [[("01", "delete"), ("1", "insert")]]


def test_rewrites_without_change_have_no_rows(plan: Any, log_builder: Any) -> None:
    log_builder.create(configuration=ON)
    log_builder.commit(
        log_builder.remove("a", dataChange=False), log_builder.add("b", dataChange=False), operation="OPTIMIZE"
    )
    (batch,) = changes(plan).batches
    assert batch.files == ()
    assert batch.skipped == ()


def test_named_versions_and_operations_are_skipped(plan: Any, log_builder: Any) -> None:
    log_builder.create(configuration=ON)
    log_builder.commit(log_builder.add("a"))
    update(log_builder, "a", "b", "x")
    log_builder.commit(log_builder.remove("b"), operation="DELETE")
    found = changes(plan, skip_versions=2, skip_operations="delete")
    assert found.paths == ["a"]
    assert found.skipped == {2: "skip_versions", 3: "skip_operations"}
    assert "removes 1 data file" in found.batches[0].skipped[1].reason


@pytest.mark.parametrize("lacking", ["size", "partitionValues"])
def test_a_removed_file_that_cannot_be_read_stops_the_stream_before_it(
    plan: Any, log_builder: Any, lacking: str
) -> None:
    log_builder.create(configuration=ON)
    log_builder.commit(log_builder.add("a"))
    log_builder.commit(log_builder.add("b"), log_builder.remove("a", **{lacking: None}), operation="DELETE")
    found = changes(plan)
    assert found.paths == ["a"]
    assert found.outcome.error.version == 2
    assert f"removes a without its {lacking}" in str(found.outcome.error)


def test_a_vector_that_cannot_be_read_stops_the_stream_before_it(plan: Any, log_builder: Any) -> None:
    log_builder.create(configuration=ON)
    log_builder.commit(log_builder.add("a"))
    gone = {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "offset": 1,
        "sizeInBytes": 36,
        "cardinality": 1,
    }
    log_builder.commit(*revise(log_builder, "f", None, gone), operation="DELETE")
    found = changes(plan)
    assert found.paths == ["a"]
    assert isinstance(found.outcome.error, LostPositionError)
    assert "VACUUM removed it" in str(found.outcome.error)


@pytest.mark.parametrize(
    ("stats", "why"),
    [
        (None, "neither the remove nor the add action has stats.numRecords"),
        ("{", "neither the remove nor the add action has stats.numRecords"),
        ('{"numRecords":3}', "report 3 rows, but a deletion vector names row 7"),
    ],
)
def test_rows_cannot_be_found_out_without_their_number(plan: Any, log_builder: Any, stats: Any, why: str) -> None:
    log_builder.create(configuration=ON)
    remove, add = revise(log_builder, "f", None, vector(7))
    add["add"]["stats"] = stats
    log_builder.commit(remove, add, operation="DELETE")
    error = changes(plan).outcome.error
    assert isinstance(error, StoppedError)
    assert why in str(error)
    remove["remove"]["stats"] = '{"numRecords":10}'
    if stats is None:
        log_builder.commit(remove, add, operation="DELETE")
        assert rows_of(changes(plan, 2).batches[0].files[0].add) == [7]


def test_a_vector_of_an_older_format_is_refused(plan: Any, log_builder: Any) -> None:
    log_builder.create(configuration=ON)
    example = "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
    old = DeletionVector("i", example, sizeInBytes=40, cardinality=6)
    logged = {name: getattr(old, name) for name in ("storageType", "pathOrInlineDv", "sizeInBytes", "cardinality")}
    log_builder.commit(*revise(log_builder, "f", None, logged, rows=30), operation="DELETE")
    assert "magic number" in str(changes(plan).outcome.error)


def test_a_position_after_the_last_change_moves_on_and_one_beyond_is_refused(plan: Any, log_builder: Any) -> None:
    """Delta's position behind a commit with change files is its last file."""
    log_builder.create(configuration=ON)
    update(log_builder, "a", "b", "x", "y")
    log_builder.commit(log_builder.add("c"))
    assert changes(plan, plan.at(1, 1)).paths == ["c"]
    assert changes(plan, plan.at(1, 0)).paths == ["_change_data/y", "c"]
    with pytest.raises(ConfigurationError, match="names file 2 of version 1, which has 2 data files"):
        changes(plan, plan.at(1, 2))


def test_whether_changes_were_recorded_has_to_be_known(plan: Any, log_builder: Any) -> None:
    log_builder.create(configuration=ON)
    log_builder.append()
    log_builder.append()
    log_builder.clean_up_before(1)
    found = changes(plan, 1)
    assert isinstance(found.outcome.error, LogTruncatedError)


LOGS = st.lists(
    st.one_of(
        st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True).map(lambda n: ("add", n)),
        st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True).map(lambda n: ("remove", n)),
        st.lists(st.integers(0, 9), min_size=1, max_size=4, unique=True).map(lambda n: ("cdc", n)),
        st.lists(st.integers(0, 9), min_size=1, max_size=3, unique=True).map(lambda n: ("vector", n)),
        st.just(("txn", [])),
    ),
    min_size=1,
    max_size=10,
)
LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "max_files_per_batch": st.integers(1, 5),
        "max_bytes_per_batch": st.integers(1, 5000),
        "max_versions_per_batch": st.integers(1, 3),
        "whole_commits": st.booleans(),
        "exclude_regex": st.sampled_from(["[123]$"]),
    },
)


def write(builder: Any, log: list[tuple[str, list[int]]]) -> None:
    builder.create(configuration=ON)
    for kind, numbers in log:
        lines: list[dict[str, Any]] = [{"txn": {"appId": "app", "version": 0}}]
        for n in numbers:
            if kind == "vector":
                lines += revise(builder, f"f{n}", vector(n), vector(n, (n + 1) % 10))
            elif kind == "cdc":
                lines += [builder.add(f"f{n}"), cdc(f"{builder.version}-{n}")]
            else:
                lines.append(builder.add(f"f{n}") if kind == "add" else builder.remove(f"f{n}"))
        builder.commit(*lines)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(log=LOGS, limits=LIMITS)
def test_any_cut_gives_the_same_changes_and_can_be_taken_up_anywhere(
    new_planning: Callable[[], Any], log: list[Any], limits: dict[str, Any]
) -> None:
    plan = new_planning()
    write(plan.builder, log)
    found = changes(plan, 0, **limits)
    excluded = {name: limits[name] for name in limits if name == "exclude_regex"}
    everything = [file for batch in changes(plan, 0, **excluded).batches for file in listed(batch)]
    assert [file for batch in found.batches for file in listed(batch)] == everything
    assert changes(plan, 0, **limits).batches == found.batches
    for number, batch in enumerate(found.batches, 1):
        keys = [file.add.file_key for file in batch.files]
        assert len(set(keys)) == len(keys)
        kinds = {"change_files" if file.add.change_type is None else "whole_files" for file in batch.files}
        assert kinds <= {batch.feed}
        for version in {file.version for file in batch.files}:
            kind = log[version - 1][0]
            if kind in ("cdc", "vector"):
                assert {f for f in everything if f[0] == version} <= set(listed(batch))
        position = Offset.from_json(batch.end.to_json())
        assert changes(plan, position, **limits).batches == found.batches[number:]
