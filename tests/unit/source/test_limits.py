"""How much goes into a batch. Numbers: conformance cases."""

from __future__ import annotations

from functools import partial

from airflow_provider_fds.delta.actions import Add
from airflow_provider_fds.source.limits import Admission
from airflow_provider_fds.source.options import SourceOptions


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


def test_versions_without_files_cost_nothing() -> None:
    assert cut({"max_versions_per_batch": 2}, [[1], [], [], [2], [], [3]]) == [[1, 2], [3]]
    assert cut({"max_files_per_batch": 1}, [[1], [], [2], []]) == [[1], [2]]


def test_versions_are_limited_by_those_with_data() -> None:
    assert cut({"max_versions_per_batch": 1}, [[1, 1], [2, 2]]) == [[1, 1], [2, 2]]


def test_a_version_that_goes_on_from_the_batch_before_counts() -> None:
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
