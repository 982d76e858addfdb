"""How many rows a removal takes from PostgreSQL, by what the account has of the stream."""

from __future__ import annotations

import pytest

from airflow_provider_fds.batch.sink.postgres_account import FENCE, Entry
from airflow_provider_fds.spark.fence.postgres_removal import WrittenRows, written_rows


def batch(first, last, rows):
    return Entry(1, 0, "digest", rows, "end", 1, "attempt", first, last)


def fence(what="", from_version=None):
    return Entry(2, FENCE, what, 0, "", 2, "attempt", from_version)


@pytest.mark.parametrize(
    ("entries", "what", "from_version", "expected"),
    [
        ([], "all", None, (0, 0)),
        ([batch(0, 3, 10), batch(4, 5, 7)], "all", None, (17, 17)),
        ([batch(0, 3, 10), batch(4, 5, 7)], "rows", 4, (7, 7)),
        ([batch(0, 3, 10), batch(4, 5, 7)], "rows", 6, (0, 0)),
        ([batch(0, 3, 10), batch(4, 5, 7)], "rows", 2, (7, 17)),
        ([batch(None, None, 10)], "rows", 2, (0, 10)),
        ([batch(0, 3, 10), fence(), batch(4, 5, 7)], "all", None, (17, 17)),
        ([batch(0, 3, 10), fence("all"), batch(4, 5, 7)], "all", None, (7, 7)),
        ([batch(0, 3, 10), batch(4, 5, 7), fence("rows", 4), batch(4, 4, 3)], "rows", 4, (3, 3)),
        # how many rows the first fence took from the first batch is unknown, but none of them are from version 2 on
        ([batch(0, 3, 10), fence("rows", 2), batch(2, 3, 6)], "rows", 2, (6, 6)),
        ([batch(0, 3, 10), fence("rows", 2), batch(2, 3, 6)], "all", None, (6, 16)),
    ],
)
def test_a_removal_is_expected_to_take_what_the_stream_wrote_and_still_has(entries, what, from_version, expected):
    assert written_rows(entries, what, from_version) == WrittenRows(*expected)


@pytest.mark.parametrize(("written", "described"), [(WrittenRows(3, 3), "3"), (WrittenRows(0, 9), "0 to 9")])
def test_the_number_is_described(written, described):
    assert written.describe() == described
