"""Requests that do not depend on each other are made side by side: a store far away answers each in 50 ms."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from tests.bench.far_store import Step, shape, steps

#: Requests whose order is the protocol, one for each batch: an entry is written after the entry before it exists.
_ORDERED = frozenset({"PUT staging/s#/ledger/#.json"})
#: Requests that may follow each other although none needs the answer of the one before.
_MOST = 4
#: How often it is measured: threads of a busy machine may follow each other, but what must wait does so each time.
_TRIES = 3


def measure() -> tuple[dict[str, Step], dict[str, Step]]:
    """Return the steps of a small and a larger run, with 2 and 10 batches and streams."""
    return steps(2, 2, 0.05), steps(10, 10, 0.05)


@pytest.fixture(scope="module")
def runs() -> tuple[dict[str, Step], dict[str, Step]]:
    """The steps of both runs, measured once for all tests."""
    return measure()


@pytest.mark.parametrize(
    "step",
    [
        "first run: plan",
        "first run: specification of the job",
        "first run: verification and commit",
        "run: plan",
        "run: specification of the job",
        "run: verification and commit",
        "status",
        "page",
    ],
)
def test_more_batches_or_streams_do_not_wait_for_each_other(runs, step):
    for measured in (runs, *[None] * (_TRIES - 1)):
        small, large = (run[step] for run in measured or measure())
        print(f"{step}: {len(large.requests)} requests, in sequence:", *large.describe(), sep="\n  ")
        more = Counter(large.describe()) - Counter(small.describe())
        grown = len(large.chain()) - len(small.chain())
        ordered = sum(count for name, count in more.items() if name in _ORDERED)
        if grown - ordered <= _MOST:
            return

    pytest.fail(str(more))


@pytest.mark.parametrize(
    ("step", "lists", "in_sequence"), [("first run: plan", 1, 28), ("run: plan", 2, 11), ("status", 1, 8)]
)
def test_a_plan_and_a_status_list_the_source_once(runs, step, lists, in_sequence):
    """A plan lists once more, for the times of the commits before the position."""
    for run in runs:
        asked = Counter(one.method for one in run[step].requests if one.key.startswith("t/_delta_log/"))

        assert (asked["LIST"], asked["HEAD"]) == (lists, 0)
    small, _ = runs
    assert len(small[step].chain()) <= in_sequence, small[step].describe()


def test_a_plan_reads_each_commit_once(runs):
    for run in runs:
        read = Counter(one.key for one in run["run: plan"].requests if one.key.startswith("t/_delta_log/0"))

        assert set(read.values()) == {1}


def test_a_status_reads_of_a_stream_what_it_needs(runs):
    """The newest fold and its last entry, what came after it, the status file; the log from the position on."""
    for run in runs:
        assert Counter(shape(one.key) for one in run["status --all"].of_streams()["s0"].requests) == {
            "staging/s#/ledger/_checkpoint/": 1,
            "staging/s#/ledger/_checkpoint/#.json": 1,
            "staging/s#/ledger/#.json": 1,
            "staging/s#/ledger/": 1,
            "staging/.status/s#.json": 1,
        }
        asked = [shape(one.key) for one in run["status"].requests if one.key.startswith("t/")]
        assert asked == ["t/_delta_log/", "t/_delta_log/#.json"]


def test_the_streams_of_a_folder_do_not_wait_for_each_other(runs):
    small, large = (run["status --all"].of_streams() for run in runs)
    print("status --all: in sequence for each stream:", {name: len(step.chain()) for name, step in large.items()})

    assert len(large) == 10
    longest = max(len(step.chain()) for step in small.values())
    assert all(len(step.chain()) <= longest + _MOST for step in large.values())
    spans = [
        one._replace(end=max(other.end for other in step.requests)) for step in large.values() for one in step[0][:1]
    ]
    assert len(Step(spans, 0).chain()) <= _MOST, "the streams are read one after the other"


def test_the_entries_of_a_plan_and_of_its_batches_are_written_in_order(runs):
    _, large = runs
    for step in (large["first run: verification and commit"], large["run: verification and commit"]):
        written = [one for one in step.requests if one.method == "PUT" and "/ledger/0" in one.key]

        assert len(written) == 10
        assert [one.key for one in written] == sorted(one.key for one in written)
        assert all(after.start >= before.end for before, after in pairwise(written))


def test_the_plan_is_written_after_all_its_manifests(runs):
    _, large = runs
    requests = large["run: plan"].requests
    manifests = [one for one in requests if "/manifests/" in one.key]
    commits = {one.key.removesuffix(".json"): one for one in manifests if one.key.endswith(".json")}
    (planned,) = (one for one in requests if one.method == "PUT" and "/ledger/0" in one.key)

    assert len(commits) == 10
    assert all(one.end <= planned.start for one in manifests)
    for one in manifests:
        if one.key.endswith(".crc"):
            assert one.end <= commits[one.key.removesuffix(".crc")].start
