"""Ranges of versions in words: never "versions 3 to 3", and an initial snapshot is named as one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import airflow_provider_fds
from airflow_provider_fds.batch.version_ranges import describe_covered, describe_range
from airflow_provider_fds.source.offset import Offset

END = Offset("t", 24)
PACKAGE = Path(airflow_provider_fds.__file__).parent


def within(index: int = -1) -> Offset:
    return Offset("t", 23, index, is_initial_snapshot=True)


@pytest.mark.parametrize(
    ("first", "last", "words"), [(3, 5, "versions 3 to 5"), (3, 3, "version 3"), (10, 9, "no versions")]
)
def test_a_range_of_versions(first: int, last: int, words: str) -> None:
    assert describe_range(first, last) == words
    # a job spec without offsets
    assert describe_covered("", "", first, last) == words


@pytest.mark.parametrize(
    ("start", "end", "num_files", "words"),
    [
        (within(), within(99), 240, "files 0 to 99 of 240"),
        (within(99), END, 240, "files 100 to 239 of 240"),
        (within(98), within(99), None, "file 99"),
        (within(99), END, None, "files from 100 on"),
    ],
)
def test_files_of_the_initial_snapshot(start: Offset, end: Offset, num_files: int | None, words: str) -> None:
    said = describe_covered(start.to_json(), end.to_json(), 23, 23, num_files)
    assert said == f"initial snapshot of version 23, {words}"


def test_no_message_writes_a_range_of_its_own() -> None:
    odd = re.compile(r"versions \{[^}]*\} to ")
    own = {str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py") if odd.search(path.read_text())}
    # missing commits have another verb, and an example DAG is what a user writes
    assert own == {
        "batch/version_ranges.py",
        "delta/tail.py",
        "stream/epochs/unseen_batches.py",
        "example_dags/orders_consumer.py",
    }


@pytest.mark.parametrize(
    "damaged", ["{", "null", "[]", "7", '{"reservoirVersion": 3}', '{"reservoirVersion": "3", "index": 0}']
)
def test_a_damaged_offset_leaves_the_versions(damaged):
    snapshot = Offset("t", 3, 2, is_initial_snapshot=True).to_json()
    assert describe_covered(damaged, snapshot, 3, 5) == "versions 3 to 5"
    assert describe_covered(snapshot, damaged, 3, 5) == "versions 3 to 5"
