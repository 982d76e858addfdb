"""When the sink's log leaves open whether it has rows of others."""

from __future__ import annotations

import re

import pytest

from airflow_provider_fds.batch.sink.shared_sink import why_shared
from tests.unit.batch.sink.test_sink_account import OTHER, THREE, UUID, batch, commits, other, removal, restore


@pytest.mark.parametrize(
    ("log", "earliest", "words"),
    [
        ([other(0, "CREATE TABLE"), *THREE], 0, None),
        ([*THREE, other(4, "OPTIMIZE"), other(5, "DELETE", predicate='["(id = 1)"]'), restore(6, 3)], 0, None),
        ([*THREE, removal(4, 2)], 0, None),
        ([*THREE, other(4, "WRITE")], 0, r"version 4 of the sink sink \(WRITE\) was not written by stream 'orders'"),
        ([other(0, "CREATE TABLE AS SELECT"), *THREE], 0, r"version 0 of the sink sink \(CREATE TABLE AS SELECT\)"),
        ([*THREE, batch(4, 0, 1, OTHER)], 1, "version 4 of the sink"),
        ([*THREE], 1, "reaches back only to version 1"),
    ],
)
def test_what_the_commits_of_a_sink_tell_of_others(log, earliest, words):
    found = why_shared(commits(*log)[::-1], earliest, path="sink", stream="orders", uuid=UUID)
    if words is None:
        assert found is None
    else:
        assert found is not None
        assert re.search(words, found)
