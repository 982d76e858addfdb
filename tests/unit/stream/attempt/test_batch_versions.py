"""What batches cover, in words: versions, or files of the initial snapshot."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from airflow_provider_fds.stream.attempt.batch_failure import batch_failure
from airflow_provider_fds.stream.attempt.batch_versions import describe_plan, describe_versions


@pytest.mark.parametrize(
    ("which", "with_total", "without"),
    [
        (slice(0, 1), "files 0 to 1 of 5", "files 0 to 1"),
        (slice(1, 2), "files 2 to 3 of 5", "files 2 to 3"),
        (slice(2, 3), "file 4 of 5", "files from 4 on"),
        (slice(0, 3), "files 0 to 4 of 5", ""),
    ],
)
def test_batches_of_the_initial_snapshot_say_which_of_its_files_they_have(
    bench: Any, two_appends: Any, sink: Any, which: slice, with_total: str, without: str
) -> None:
    session = bench.session(stream=bench.stream("snap", starting_version=None, max_files_per_batch=2))
    batches = session.begin(sink).batches[which]
    snapshot = session.connected.state.snapshot

    assert describe_versions(batches, snapshot) == f"initial snapshot of version 2, {with_total}"
    assert describe_versions(batches) == "initial snapshot of version 2" + (f", {without}" if without else "")
    failure = batch_failure("snap", "orders", batches[-1], None, snapshot)
    assert f"of orders ({describe_versions(batches[-1:], snapshot)}) was not finished" in str(failure)


def test_a_batch_of_commits_says_its_versions(bench: Any, two_appends: Any, sink: Any) -> None:
    batches = bench.session(stream=bench.stream(max_versions_per_batch=1)).begin(sink).batches
    assert describe_versions(batches) == f"versions 0 to {batches[-1].last_version}"
    assert describe_versions(batches[-1:]) == f"version {batches[-1].last_version}"


def test_a_plan_has_rows_files_and_bytes_and_says_if_it_does_not_know_the_rows(
    bench: Any, two_appends: Any, sink: Any
) -> None:
    batches = bench.session(stream=bench.stream(max_versions_per_batch=1)).begin(sink).batches
    assert re.fullmatch(
        r"versions 0 to 2, \d+ rows in \d+ files of [\d.]+ (KiB|bytes), as batches 0 to \d", describe_plan(batches)
    )
    unknown = msgspec.structs.replace(batches[0], num_rows=None)
    assert ", an unknown number of rows in " in describe_plan([unknown])
    assert describe_plan([unknown]).endswith(", as batch 0")
