"""How many files a stream has left to read: from the plan, the initial snapshot, and commits that are read once."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.stream.monitoring.status import status_of
from airflow_provider_fds.stream.position.unread_files import UnreadFiles


def pending(session, unread=None):
    found = status_of(session.connected, unread)
    return None if found.pending_files is None else (found.pending_files, found.pending_bytes > 0)


def test_a_plan_that_reaches_the_newest_version_says_how_much_is_left(bench, two_appends, sink):
    session = bench.session()
    assert session.begin(sink).status == "work"
    assert pending(session) == pending(session, UnreadFiles()) == (5, True)


def test_what_comes_after_the_plan_is_counted_only_if_commits_are_read(bench, two_appends, log_builder, sink):
    session = bench.session()
    session.begin(sink)
    log_builder.append(2)
    log_builder.commit(operation="OPTIMIZE")
    assert pending(session) is None
    assert pending(session, UnreadFiles()) == (7, True)


def test_a_stream_that_is_up_to_date_has_nothing_left(bench, two_appends, sink):
    session, _ = bench.run_once(sink)
    assert pending(session) == (0, False)


@pytest.mark.parametrize("start", [0, None])
def test_the_rest_of_a_version_or_of_the_initial_snapshot_is_counted(bench, log_builder, sink, start):
    log_builder.create()
    log_builder.append(3)
    session = bench.session(stream=bench.stream(max_files_per_batch=2, starting_version=start))
    work = session.begin(sink, max_batches=1)
    assert [batch.num_files for batch in work.batches] == [2]
    # a third file, and a later commit
    log_builder.append(4)
    assert pending(session, UnreadFiles()) == (7, True)
    assert session.connected.state.position.count('"isStartingVersion":true') == (start is None)


def test_each_commit_is_read_once(bench, two_appends, log_builder, sink, monkeypatch):
    session, _ = bench.run_once(sink)
    read = []
    real = DeltaLog.commits

    def commits(log, first, last, window=64):
        read.append((first, last))
        return real(log, first, last, window)

    monkeypatch.setattr(DeltaLog, "commits", commits)
    unread = UnreadFiles()
    log_builder.append(1)
    assert pending(session, unread) == pending(session, unread) == (1, True)
    log_builder.append(2)
    assert pending(session, unread) == (3, True)
    assert read == [(3, 3), (4, 4)]


def test_a_thousand_commits_and_more_are_not_counted(bench, two_appends, log_builder, sink, monkeypatch):
    monkeypatch.setattr("airflow_provider_fds.stream.position.unread_files._MOST_COMMITS", 2)
    session, _ = bench.run_once(sink)
    log_builder.append(1)
    log_builder.append(1)
    assert pending(session, UnreadFiles()) == (2, True)
    log_builder.append(1)
    assert pending(session, UnreadFiles()) is None


def test_a_stream_that_was_moved_back_is_counted_from_there(bench, two_appends, log_builder, sink):
    session, _ = bench.run_once(sink)
    unread = UnreadFiles()
    log_builder.append(1)
    assert pending(session, unread) == (1, True)
    # another stream, as it is where a rewind would be
    behind, _ = bench.run_once(
        replace(sink, uri=f"{sink.uri}-2"), stream=bench.stream("behind", max_versions_per_batch=1), max_batches=1
    )
    everything = pending(behind, UnreadFiles())
    assert everything[0] > 1
    assert pending(behind, unread) == everything
    assert pending(session, unread) == (1, True)


def test_only_files_that_the_stream_reads_are_counted(bench, log_builder, sink):
    log_builder.with_appends(1)
    options = {"exclude_regex": "^tmp/", "skip_operations": ["OPTIMIZE"], "where": "id > 5"}
    session = bench.session(stream=bench.stream(starting_version=0, **options))
    session.begin(sink)
    stats = [json.dumps({"numRecords": 1, "minValues": {"id": n}, "maxValues": {"id": n}}) for n in (1, 9)]
    log_builder.commit(log_builder.add("low", stats=stats[0]), log_builder.add("high", stats=stats[1]))
    log_builder.commit(log_builder.add("tmp/high", stats=stats[1]))
    log_builder.commit(log_builder.add("other", stats=stats[1]), operation="OPTIMIZE")
    files, _ = pending(session, UnreadFiles())
    # one in the plan, one of version 2
    assert files == 2
