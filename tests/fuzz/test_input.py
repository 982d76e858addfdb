"""A short run of the fuzzer, the same one every time, and the fuzzer's own eyes."""

from __future__ import annotations

import os

import pytest

from tests.fuzz.__main__ import Results, run


@pytest.mark.timeout(280)
def test_damaged_input_is_read_or_refused_with_an_error_of_fds():
    count = int(os.environ.get("FDS_FUZZ_MUTATIONS", "2000"))

    results = run(count, seed=int(os.environ.get("FDS_FUZZ_SEED", "1")))

    assert not results.failures, "\n".join(results.failures[:20])
    assert results.total == count
    assert len(results.counts) == 11
    assert sum(outcomes["refused"] for outcomes in results.counts.values()) > count // 10


@pytest.mark.parametrize(
    ("found", "failure"),
    [
        ({"outcome": "escaped", "what": "KeyError"}, "KeyError"),
        ({"outcome": "read", "cpu_seconds": 6.0}, "too slow"),
        ({"outcome": "refused", "peak_mb": 900}, "900 MB"),
    ],
)
def test_what_escapes_or_takes_too_much_is_a_failure(found, failure):
    results = Results()
    results.add({"target": "commits", "number": 7, **found})

    assert results.failures == [f"mutation 7 of commits: {failure}"]
