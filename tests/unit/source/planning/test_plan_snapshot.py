"""Planning the initial snapshot, then changes. Numbers: conformance cases."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_fds.errors import ConfigurationError, LogTruncatedError
from airflow_provider_fds.source.planned import range_digest


def five_commits(builder: Any) -> None:
    """Five commits of one file, the table being created by the first (version 0)."""
    builder.commit({"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, builder.metadata(), builder.add("f0"))
    for number in range(1, 5):
        builder.commit(builder.add(f"f{number}"))


def test_1_the_snapshot_ends_at_the_base_of_the_next_version(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    log_builder.append(2)
    found = plan(plan.snapshot_start())
    assert found.ends == [(2, "BASE", False)]
    (batch,) = found.batches
    assert {(file.version, file.timestamp_ms) for file in batch.files} == {(1, log_builder.time_of(1))}
    assert (batch.first_version, batch.last_version, batch.state.version) == (1, 1, 1)
    assert batch.last_commit_sha256 == plan.log.commit(1).sha256
    assert batch.log_digest == range_digest([])


def test_3_offsets_within_the_snapshot_are_those_of_delta(plan: Any, log_builder: Any) -> None:
    five_commits(log_builder)
    found = plan(plan.snapshot_start(), maxFilesPerTrigger=1)
    assert found.ends == [(4, 0, True), (4, 1, True), (4, 2, True), (4, 3, True), (5, "BASE", False)]
    assert plan(found.batches[-1].end).batches == []
    for number in range(5, 8):
        log_builder.commit(log_builder.add(f"f{number}"))
    rest = plan(found.batches[-1].end, maxFilesPerTrigger=1)
    assert rest.ends == [(6, "BASE", False), (7, "BASE", False), (8, "BASE", False)]


# D26
def test_4_continuing_in_the_middle_of_the_snapshot_gives_every_file_once(plan: Any, log_builder: Any) -> None:
    five_commits(log_builder)
    first = plan(plan.snapshot_start(), maxFilesPerTrigger=2).batches[0]
    rest = plan(first.end, maxFilesPerTrigger=2)
    assert [file.index for file in first.files] == [0, 1]
    assert [[file.index for file in batch.files] for batch in rest.batches] == [[2, 3], [4]]
    assert [file.add.path for file in first.files] + rest.paths == ["f0", "f1", "f2", "f3", "f4"]


def test_5_the_rest_of_the_snapshot_comes_before_the_commits_made_meanwhile(plan: Any, log_builder: Any) -> None:
    five_commits(log_builder)
    first = plan(plan.snapshot_start(), maxFilesPerTrigger=2).batches[0]
    log_builder.commit(log_builder.add("f5"))
    log_builder.commit(log_builder.remove("f0"), operation="DELETE")
    log_builder.commit(log_builder.add("f7"))
    rest = plan(first.end, maxFilesPerTrigger=2, ignoreDeletes=True)
    assert rest.files == [["f2", "f3"], ["f4", "f5"], ["f7"]]
    assert rest.ends == [(4, 3, True), (7, "BASE", False), (8, "BASE", False)]
    mixed = rest.batches[1]
    assert [file.version for file in mixed.files] == [4, 5]
    assert (mixed.first_version, mixed.last_version) == (4, 6)
    sizes = [(5 + n, meta.size_bytes) for n, meta in enumerate(plan.log.list_commits(5, 6))]
    assert mixed.log_digest == range_digest(sizes)


def test_a_file_of_the_snapshot_that_a_commit_lists_again_begins_a_batch(plan: Any, log_builder: Any) -> None:
    five_commits(log_builder)
    start = plan.snapshot_start()
    log_builder.commit(log_builder.add("f2"), operation="RESTORE")
    assert plan(start).files == [["f0", "f1", "f2", "f3", "f4"], ["f2"]]


def test_10_and_11_the_snapshot_needs_no_log_once_it_is_frozen(plan: Any, log_builder: Any) -> None:
    five_commits(log_builder)
    snapshot, state = plan.freeze(4), plan.log.state_at(4)
    log_builder.append()
    expected = plan(plan.snapshot_start(4), snapshot=snapshot, maxFilesPerTrigger=2)
    log_builder.clean_up_before(5)
    given = {"snapshot": snapshot, "state": state, "snapshot_timestamp_ms": log_builder.time_of(4)}
    found = plan(plan.snapshot_start(4), maxFilesPerTrigger=2, **given)
    assert found.files == expected.files
    assert found.ends == expected.ends
    assert [batch.last_commit_sha256 for batch in found.batches[:2]] == ["", ""]
    assert found.batches[-1].last_commit_sha256 == plan.log.commit(5).sha256


def test_9_a_snapshot_with_an_unknown_time_is_a_lost_position(plan: Any, log_builder: Any) -> None:
    five_commits(log_builder)
    snapshot, state = plan.freeze(4), plan.log.state_at(4)
    log_builder.append()
    log_builder.clean_up_before(5)
    found = plan(plan.snapshot_start(4), snapshot=snapshot, state=state)
    assert found.batches == []
    assert isinstance(found.outcome.error, LogTruncatedError)


def test_a_position_in_the_snapshot_without_the_snapshot_is_refused(plan: Any, log_builder: Any) -> None:
    log_builder.create()
    with pytest.raises(ConfigurationError, match="frozen file list") as caught:
        plan(plan.snapshot_start(), snapshot=None)
    assert log_builder.uri in str(caught.value)


def test_47_deletes_before_the_snapshot_do_not_matter(plan: Any, log_builder: Any) -> None:
    five_commits(log_builder)
    log_builder.commit(log_builder.remove("f1"), operation="DELETE")
    log_builder.commit(log_builder.remove("f2"), log_builder.add("f22"), operation="UPDATE")
    found = plan(plan.snapshot_start())
    assert sorted(found.paths) == ["f0", "f22", "f3", "f4"]
    assert found.batches[0].skipped == ()


def test_the_snapshot_is_cut_by_files_even_with_whole_commits(plan: Any, log_builder: Any) -> None:
    five_commits(log_builder)
    start = plan.snapshot_start()
    log_builder.append(3)
    found = plan(start, maxFilesPerTrigger=2, whole_commits=True)
    assert [len(files) for files in found.files] == [2, 2, 1, 3]


def test_the_snapshot_counts_as_one_version(plan: Any, log_builder: Any) -> None:
    five_commits(log_builder)
    start = plan.snapshot_start()
    log_builder.append()
    assert [len(files) for files in plan(start, max_versions_per_batch=1).files] == [5, 1]


def test_files_excluded_from_the_snapshot_keep_their_index(plan: Any, log_builder: Any) -> None:
    five_commits(log_builder)
    found = plan(plan.snapshot_start(), maxFilesPerTrigger=2, excludeRegex="f[013]")
    assert found.files == [["f2"], ["f4"]]
    assert found.ends == [(4, 3, True), (5, "BASE", False)]
