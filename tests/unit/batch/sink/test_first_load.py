"""When the sink's log shows that it has only rows of the snapshot that a stream is loading."""

from __future__ import annotations

import pytest

from airflow_provider_fds.batch.sink.first_load import has_only_snapshot, snapshot_of
from airflow_provider_fds.batch.spec import BatchSpec
from tests.unit.batch.sink.test_sink_account import OTHER, UUID, batch, commits, offset, other, removal, restore


def spec(start, end):
    return BatchSpec(UUID, UUID, 1, 9, start, end, start, 0, 7, "m", "d", 1, 1, 1, None)


def within(index, version=7):
    return offset(version, index, snapshot=True)


def loaded(at, start, end, uuid=UUID):
    """The commit ``at`` of a batch with the files of the snapshot after ``start``, up to ``end``."""
    found = batch(at, at, at + 1, uuid, start=start)
    found["info"]["userMetadata"] = found["info"]["userMetadata"].replace(
        offset(at + 1).replace('"', '\\"'), end.replace('"', '\\"')
    )
    return found


FIRST, SECOND = loaded(0, within(-1), within(1)), loaded(1, within(1), within(3))
NEXT = spec(within(3), within(5))


def appended(at, operation="WRITE", rows="5"):
    found = other(at, operation)
    return {**found, "info": {**found["info"], "operationMetrics": {"numOutputRows": rows}}}


@pytest.mark.parametrize(
    ("log", "answer"),
    [
        ([FIRST, SECOND], True),
        ([FIRST, SECOND, other(2, "OPTIMIZE"), appended(3, rows="0")], True),
        ([other(0, "CREATE TABLE"), loaded(1, within(-1), within(3))], True),
        ([appended(0), other(1, "DELETE", predicate='["true"]'), loaded(2, within(-1), within(3))], True),
        ([appended(0), removal(1, None), loaded(2, within(-1), within(3))], True),
        # files that the log does not show here are empty or excluded
        ([loaded(0, within(-1), within(1))], True),
        ([loaded(3, within(1), within(3))], None),
        ([appended(0), loaded(1, within(-1), within(3))], False),
        ([FIRST, appended(1), loaded(2, within(1), within(3))], False),
        ([FIRST, loaded(1, within(-1), within(3), OTHER), loaded(2, within(1), within(3))], False),
        ([appended(0), other(1, "DELETE", predicate='["(id = 1)"]'), loaded(2, within(-1), within(3))], False),
        ([appended(0), removal(1, 3), loaded(2, within(-1), within(3))], False),
        ([FIRST, SECOND, restore(2, 0)], False),
        # the same files were loaded before
        ([FIRST, SECOND, loaded(2, within(3), within(5))], False),
        ([FIRST, SECOND, loaded(2, within(-1), within(3))], False),
        # another snapshot, and commits
        ([loaded(0, within(-1, 6), within(3, 6))], False),
        ([loaded(0, within(-1), offset(8))], False),
        ([batch(0, 0, 1)], False),
    ],
)
def test_what_the_commits_of_a_sink_tell(log, answer):
    assert has_only_snapshot(commits(*log)[::-1], NEXT) is answer


def test_a_batch_of_commits_has_no_snapshot_even_in_a_sink_without_rows():
    of_commits = spec(offset(3), offset(4))
    assert snapshot_of(of_commits) is None
    assert has_only_snapshot(commits(other(0, "CREATE TABLE"))[::-1], of_commits) is False


def test_a_batch_may_have_the_end_of_the_snapshot_and_commits():
    both = spec(within(3), offset(9))
    assert snapshot_of(both).end[0] == 7
    assert has_only_snapshot(commits(FIRST, SECOND)[::-1], both) is True
