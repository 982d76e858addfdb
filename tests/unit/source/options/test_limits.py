"""How much goes into a batch. Numbers: conformance cases."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.delta.actions import Add, DeletionVector
from airflow_provider_fds.source.options.limits import BYTES_PER_UNKNOWN_ROW, LIMITS, Amounts, DependentLimit, RowLimit
from airflow_provider_fds.source.options.options import SourceOptions
from airflow_provider_fds.source.planning.admission import Admission

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


def files_of(sizes: list[int]) -> list[Add]:
    """Return a file of each size."""
    return [Add(f"f{number}", size=size) for number, size in enumerate(sizes)]


def cut(options: dict[str, object], versions: list[list[int]]) -> list[list[int]]:
    """Return the sizes of the files in each batch, given the sizes in each version."""
    parsed = SourceOptions.parse(options)
    batches: list[list[int]] = [[]]
    admission = Admission(parsed)

    def next_batch(left: list[int]) -> Admission:
        batches.append([])
        fresh = Admission(parsed)
        assert fresh.admit_version(lambda: files_of(left))
        return fresh

    for sizes in versions:
        if not sizes:
            continue
        if not admission.admit_version(partial(files_of, sizes)):
            admission = next_batch(sizes)
        for number, size in enumerate(sizes):
            if not admission.admit_file(Add("f", size=size)):
                admission = next_batch(sizes[number:])
                assert admission.admit_file(Add("f", size=size))
            batches[-1].append(size)
    return batches


def test_29_one_file_a_batch() -> None:
    assert cut({"max_files_per_batch": 1}, [[10]] * 5) == [[10]] * 5


def test_30_a_file_above_the_byte_limit_is_admitted_alone() -> None:
    assert cut({"max_bytes_per_batch": "1b"}, [[10], [20], [30]]) == [[10], [20], [30]]


def test_30_bytes_are_exceeded_by_one_file_at_most() -> None:
    assert cut({"max_bytes_per_batch": 25}, [[10, 10, 10, 10]]) == [[10, 10, 10], [10]]
    assert cut({"max_bytes_per_batch": 20}, [[10, 10, 10, 10]]) == [[10, 10], [10, 10]]


def test_31_files_and_bytes_together_stop_at_whichever_comes_first() -> None:
    assert cut({"max_files_per_batch": 1, "max_bytes_per_batch": "100gb"}, [[10, 10]]) == [[10], [10]]
    assert cut({"max_files_per_batch": 2, "max_bytes_per_batch": "1b"}, [[10, 10]]) == [[10], [10]]


def test_a_large_version_is_cut_by_files() -> None:
    assert [len(batch) for batch in cut({}, [[1] * 2500])] == [1000, 1000, 500]


def test_by_default_a_batch_of_large_files_ends_at_125_gib() -> None:
    gib = 1 << 30
    assert [len(batch) for batch in cut({}, [[gib] * 260])] == [125, 125, 10]
    # soft: the file that crosses the limit belongs to the batch
    assert cut({}, [[124 * gib, 2 * gib, gib]]) == [[124 * gib, 2 * gib], [gib]]
    # files of 128 MiB and less are limited by their number alone
    assert [len(batch) for batch in cut({}, [[128 << 20] * 2500])] == [1000, 1000, 500]
    assert [len(batch) for batch in cut({"max_files_per_batch": 1000}, [[gib] * 1001])] == [1000, 1]


def test_versions_without_files_cost_nothing() -> None:
    assert cut({"max_versions_per_batch": 2}, [[1], [], [], [2], [], [3]]) == [[1, 2], [3]]
    assert cut({"max_files_per_batch": 1}, [[1], [], [2], []]) == [[1], [2]]


def test_versions_are_limited_by_those_with_data() -> None:
    assert cut({"max_versions_per_batch": 1}, [[1, 1], [2, 2]]) == [[1, 1], [2, 2]]


def test_a_version_that_continues_from_the_batch_before_counts() -> None:
    options = {"max_versions_per_batch": 2, "max_files_per_batch": 3}
    assert cut(options, [[1] * 5, [2], [3]]) == [[1, 1, 1], [1, 1, 2], [3]]


def test_a_whole_commit_goes_into_the_next_batch_rather_than_in_two() -> None:
    options = {"max_files_per_batch": 3, "whole_commits": True}
    assert cut(options, [[1, 1], [2, 2], [3]]) == [[1, 1], [2, 2, 3]]


def test_a_whole_commit_above_the_limit_is_a_batch_of_its_own() -> None:
    options = {"max_files_per_batch": 3, "whole_commits": True}
    assert cut(options, [[1], [2] * 7, [3]]) == [[1], [2] * 7, [3]]
    assert cut({"max_bytes_per_batch": 5, "whole_commits": True}, [[1], [9, 9], [3]]) == [[1], [9, 9], [3]]


def test_a_smaller_commit_does_not_jump_the_queue() -> None:
    options = {"max_files_per_batch": 3, "whole_commits": True}
    assert cut(options, [[1], [2] * 3, [3]]) == [[1], [2] * 3, [3]]


def test_the_initial_snapshot_is_never_taken_whole() -> None:
    admission = Admission(SourceOptions.parse({"max_files_per_batch": 2, "whole_commits": True}))
    files = files_of([1] * 10)
    assert admission.admit_version(lambda: files, is_snapshot=True)
    assert [admission.admit_file(file) for file in files[:3]] == [True, True, False]


def test_70_and_71_a_group_comes_in_whole_or_not_at_all_and_nothing_overtakes_it() -> None:
    admission = Admission(SourceOptions.parse({"max_files_per_batch": 3}))
    # alone it may be as large as it is
    files = files_of([10] * 5)
    assert admission.admit_version(lambda: files, is_group=True)
    assert all(admission.admit_file(file) for file in files)
    assert not admission.admit_version(lambda: files_of([1]))

    admission = Admission(SourceOptions.parse({"max_files_per_batch": 3}))
    two = files_of([10, 10])
    assert admission.admit_version(lambda: two)
    assert admission.admit_file(two[0])
    assert admission.admit_file(two[1])
    assert not admission.admit_version(lambda: two, is_group=True)
    assert admission.admit_version(lambda: files_of([20]), is_group=True)


def test_every_limit_has_one_option_of_its_name() -> None:
    names = [limit.option for limit in LIMITS]
    assert len(set(names)) == len(names)
    assert set(names) == {name for name in SourceOptions.__dataclass_fields__ if name.endswith("_per_batch")}


def counted_by_rows(maximum: int, *rows: int | None, deleted: int = 0) -> list[bool]:
    """Return which files are admitted one after the other, by the rows that the log says they have."""
    admission = Admission(SourceOptions.parse({"max_rows_per_batch": maximum}))
    files = [
        Add(
            f"f{number}",
            stats=None if count is None else f'{{"numRecords":{count}}}',
            deletionVector=DeletionVector("i", "x", cardinality=deleted) if deleted else None,
        )
        for number, count in enumerate(rows)
    ]
    assert admission.admit_version(lambda: files)
    return [admission.admit_file(file) for file in files]


def test_rows_are_exceeded_by_one_file_at_most() -> None:
    assert counted_by_rows(25, 10, 10, 10, 10) == [True, True, True, False]
    assert counted_by_rows(20, 10, 10, 10) == [True, True, False]
    assert counted_by_rows(1, 1000, 1) == [True, False]


def test_rows_that_a_deletion_vector_deletes_do_not_count() -> None:
    assert counted_by_rows(20, 15, 15, 15, 15, deleted=5) == [True, True, False, False]


def sized(size: int, rows: int | None, deleted: int = 0) -> Add:
    """Return a file of ``size`` bytes whose statistics say ``rows``."""
    return Add(
        "f",
        size=size,
        stats=None if rows is None else f'{{"numRecords":{rows}}}',
        deletionVector=DeletionVector("i", "x", cardinality=deleted) if deleted else None,
    )


def rows_left(maximum: int, *files: Add) -> list[int]:
    """Return what is left of a row limit after each file."""
    limit = RowLimit(maximum)
    left = []
    for file in files:
        limit.take_file(file)
        left.append(limit.left)
    return left


def test_a_file_of_unknown_rows_counts_by_its_size() -> None:
    unknown = sized(10 * BYTES_PER_UNKNOWN_ROW, None)
    assert rows_left(25, unknown, unknown, unknown) == [15, 5, -5]
    # an empty or tiny file counts too: every batch ends at some file
    assert rows_left(2, sized(0, None), sized(1, None)) == [1, 0]


def test_a_file_of_unknown_rows_counts_like_the_known_files_before_it() -> None:
    # 2 rows per byte, then 300 rows of 200 bytes
    assert rows_left(1000, sized(50, 100), sized(10, None), sized(150, 200), sized(100, None)) == [900, 880, 680, 530]


def test_statistics_with_fewer_rows_than_were_deleted_are_not_counted() -> None:
    assert rows_left(100, sized(10 * BYTES_PER_UNKNOWN_ROW, 3, deleted=4)) == [90]


def test_files_of_unknown_rows_count_the_same_together_and_one_by_one() -> None:
    files = [sized(50, 100), sized(10, None), sized(150, 200), sized(100, None), sized(7, 0)]
    together = RowLimit(1000)
    # a count that is not taken, as that of a commit that does not fit, has no effect
    assert together.count_all(files[:3]) == 320
    counted = 0
    for some in (files[:2], files[2:]):
        counted += together.count_all(some)
        together.learn()
    assert rows_left(1000, *files)[-1] == 1000 - counted


@pytest.mark.parametrize("sizes", [[10, 10], [10, 0], [0, 0], [21], [30, 0]])
@pytest.mark.parametrize("maximum", [1, 2, 3, 20])
@pytest.mark.parametrize("option", ["max_files_per_batch", "max_bytes_per_batch"])
def test_files_are_admitted_together_only_if_each_of_them_would_be(option: str, maximum: int, sizes: list[int]) -> None:
    options, files = SourceOptions.parse({option: maximum}), files_of(sizes)
    one_by_one, together = Admission(options), Admission(options)
    assert one_by_one.admit_version(lambda: files)
    assert together.admit_version(lambda: files)
    each = all(one_by_one.admit_file(file) for file in files)
    if together.admit_files(files):
        assert each
    else:
        # a refusal takes nothing in: the files can still be asked for one by one
        assert all(together.admit_file(file) for file in files) == each


class PartitionLimit(DependentLimit):
    """Counts distinct partitions: a limit that this test adds with one class and the value of one option."""

    option = "max_partitions_per_batch"

    def __init__(self, maximum: int) -> None:
        super().__init__(maximum)
        self._seen: set[str] = set()

    @classmethod
    def count_left(cls, left: Amounts) -> None:
        return None

    def has_room_for(self, files: Iterable[Add]) -> bool:
        return len(self._seen | {str(file.partitionValues) for file in files}) <= self.left

    def take(self, files: Iterable[Add]) -> None:
        self._seen |= {str(file.partitionValues) for file in files}


@pytest.fixture
def by_partitions(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Admission]:
    monkeypatch.setattr("airflow_provider_fds.source.planning.admission.LIMITS", (*LIMITS, PartitionLimit))

    def admission(maximum: int, **options: object) -> Admission:
        parsed = SourceOptions.parse({"max_files_per_batch": 100, **options})
        object.__setattr__(parsed, "max_partitions_per_batch", maximum)
        return Admission(parsed)

    return admission


def in_partitions(days: str) -> list[Add]:
    """Return a file in the partition of each letter."""
    return [Add(f"f{number}", size=1, partitionValues={"day": day}) for number, day in enumerate(days)]


def test_a_limit_that_does_not_add_up_is_one_class(by_partitions: Callable[..., Admission]) -> None:
    admission = by_partitions(2)
    files = in_partitions("aabbac")
    assert admission.admit_version(lambda: files)
    assert [admission.admit_file(file) for file in files] == [True] * 5 + [False]


def test_a_version_begins_only_if_its_first_file_has_room(by_partitions: Callable[..., Admission]) -> None:
    admission = by_partitions(1)
    assert admission.admit_version(lambda: in_partitions("a"))
    assert admission.admit_files(in_partitions("a"))
    assert not admission.admit_version(lambda: in_partitions("b"))
    assert admission.admit_version(lambda: in_partitions("ab"))
    assert not admission.admit_files(in_partitions("ab"))
    assert [admission.admit_file(file) for file in in_partitions("ab")] == [True, False]


def test_a_whole_commit_is_counted_in_partitions_too(by_partitions: Callable[..., Admission]) -> None:
    admission = by_partitions(2, whole_commits=True)
    assert admission.admit_version(lambda: in_partitions("a"))
    assert admission.admit_file(in_partitions("a")[0])
    assert not admission.admit_version(lambda: in_partitions("bc"))
    assert admission.admit_version(lambda: in_partitions("ab"))

    alone = by_partitions(2, whole_commits=True)
    assert alone.admit_version(lambda: in_partitions("abc"))
    assert alone.admit_files(in_partitions("abc"))
    assert not alone.admit_version(lambda: in_partitions("a"))


@pytest.mark.parametrize("exclude", [None, "nothing"])
def test_a_plan_is_cut_by_a_limit_that_does_not_add_up(
    plan: Any, log_builder: Any, monkeypatch: pytest.MonkeyPatch, exclude: str | None
) -> None:
    class ByPartition(PartitionLimit):
        option = "max_rows_per_batch"

    monkeypatch.setattr("airflow_provider_fds.source.planning.admission.LIMITS", (ByPartition,))
    log_builder.create([log_builder.field("id"), log_builder.field("day", "string")], ["day"])
    for version, days in enumerate(("aa", "b", "abc", "c", "a"), start=1):
        files = [log_builder.add(f"{version}{day}{n}", partitionValues={"day": day}) for n, day in enumerate(days)]
        log_builder.commit(*files)
    # an exclusion makes the planner admit file by file
    found = plan(1, max_rows_per_batch=2, exclude_regex=exclude)
    assert found.files == [["1a0", "1a1", "2b0", "3a0", "3b1"], ["3c2", "4c0", "5a0"]]
    assert found.ends == [(3, 1, False), (6, "BASE", False)]
    found = plan(1, max_rows_per_batch=1, exclude_regex=exclude)
    assert found.files == [["1a0", "1a1"], ["2b0"], ["3a0"], ["3b1"], ["3c2", "4c0"], ["5a0"]]
    assert found.ends[:2] == [(2, "BASE", False), (3, "BASE", False)]
