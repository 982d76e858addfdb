"""Whether the source's log is still the one that a batch was planned from."""

from __future__ import annotations

import os
import shutil

import deltalake
import pyarrow as pa
import pytest

from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import (
    LogGapError,
    LogTruncatedError,
    TableNotFoundError,
    TableReplacedError,
    TornFileError,
    UnsupportedFeatureError,
    VerificationError,
)
from airflow_provider_fds.ledger.entries.commit_entries import Accepted
from airflow_provider_fds.stream.position.source_unchanged import check_range_unchanged
from tests.counting_storage import CountingStorage
from tests.unit.stream.conftest import UNREADABLE


@pytest.fixture
def four_commits(log_builder):
    log_builder.create()
    for _ in range(3):
        log_builder.append(2)
    return log_builder


def replace_with_other_files(log_builder, version):
    """Put a commit of other data files, of equal size and modification time, in the place of a version."""
    path = log_builder.path_of(version)
    before, found = path.read_bytes(), path.stat()
    other = before.replace(b"part-", b"trap-")
    path.unlink()
    path.write_bytes(other)
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    assert (len(other), path.stat().st_mtime_ns) == (len(before), found.st_mtime_ns)
    assert other != before


@pytest.mark.parametrize("version", [1, 2])
def test_an_inner_commit_that_was_replaced_by_one_of_equal_size_and_time_blocks_the_batch(
    bench, four_commits, sink, version
):
    session = bench.session()
    work = session.begin(sink)
    bench.report(session, work, session.job(work, sink))
    replace_with_other_files(four_commits, version)

    with pytest.raises(VerificationError, match="not those that the batch was planned from"):
        session.collect(work)


def test_commit_files_that_were_written_again_with_the_same_content_are_the_same(bench, four_commits, sink):
    session = bench.session()
    work = session.begin(sink)
    bench.report(session, work, session.job(work, sink))
    for version in range(4):
        path = four_commits.path_of(version)
        content = path.read_bytes()
        path.unlink()
        path.write_bytes(content)

    assert len(session.collect(work).committed) == 1


def test_a_batch_of_an_older_entry_is_compared_by_size_and_last_commit(bench, four_commits, sink):
    from msgspec.structs import replace

    session = bench.session()
    (batch,) = session.begin(sink).batches
    older = replace(batch, log_checksum="", log_etags="")
    log = DeltaLog(open_storage(str(bench.table)))
    assert check_range_unchanged(log, older) is None
    four_commits.path_of(3).write_bytes(four_commits.path_of(3).read_bytes().replace(b"part-", b"trap-"))
    assert check_range_unchanged(log, older) is not None


def test_only_files_whose_tag_has_changed_cost_more_than_a_listing_and_the_last_commit(bench, four_commits, sink):
    session = bench.session()
    (batch,) = session.begin(sink).batches
    requests = []
    log = DeltaLog(CountingStorage(open_storage(str(bench.table)), requests))

    assert check_range_unchanged(log, batch) is None
    assert [request.kind for request in requests] == ["list_after", "get"]
    requests.clear()
    os.utime(four_commits.path_of(1))
    assert check_range_unchanged(log, batch) is None
    assert [request.kind for request in requests].count("get") == 4


@pytest.fixture(params=["a sink", "a user job"])
def begin(request, sink):
    """How a run begins."""
    user_job = request.param != "a sink"
    return lambda session: session.begin(None if user_job else sink, user_job=user_job, retry=True)


@pytest.fixture
def recreated(bench, four_commits, begin):
    """A planned batch whose table was deleted and made anew, with as many versions of the same content."""
    assert begin(bench.session()).status == "work"
    shutil.rmtree(bench.table)
    anew = type(four_commits)(bench.table)
    anew.table_id = "22222222-2222-3333-4444-555555555555"
    anew.create()
    for _ in range(4):
        anew.append(2)
    return anew


def test_planned_batches_of_a_recreated_table_are_refused_before_spark_starts(bench, recreated, begin):
    with pytest.raises(TableReplacedError) as refused:
        begin(bench.session("run-2"))

    text = str(refused.value)
    assert "batch 0 was planned from the table with id 11111111-" in text
    assert "now has id 22222222-" in text
    assert "VACUUM" not in text


def test_planned_batches_of_a_history_that_was_written_again_are_refused(bench, four_commits, sink):
    bench.session().begin(sink)
    replace_with_other_files(four_commits, 3)
    with pytest.raises(TableReplacedError, match="version 3 is not the commit that batch 0 was planned from"):
        bench.session("run-2").begin(sink)


@pytest.mark.parametrize("left", [0, 1])
def test_planned_batches_of_a_table_that_is_shorter_or_gone_are_refused(bench, recreated, begin, left):
    for version in range(left, 5):
        recreated.path_of(version).unlink()
    with pytest.raises(TableReplacedError if left else TableNotFoundError):
        begin(bench.session("run-2"))


def test_planned_batches_whose_commits_were_cleaned_up_are_loaded(bench, sink):
    """Their files are in the manifest; what became of the log is asked again before the commit."""
    for _ in range(2):
        deltalake.write_deltalake(bench.table, pa.table({"id": [1]}), mode="append")
    bench.session().begin(sink)
    deltalake.write_deltalake(bench.table, pa.table({"id": [1]}), mode="append")
    deltalake.DeltaTable(bench.table).create_checkpoint()
    for version in range(2):
        (bench.table / f"_delta_log/{version:020}.json").unlink()
    with pytest.raises(LogTruncatedError):
        DeltaLog(open_storage(str(bench.table))).commit(1)

    assert bench.session("run-2").begin(sink).status == "work"


@pytest.mark.parametrize("leave_unreadable", UNREADABLE)
def test_planned_batches_are_loaded_although_a_later_commit_cannot_be_read(bench, four_commits, sink, leave_unreadable):
    planned = bench.session("run-1").begin(sink)
    leave_unreadable(four_commits)

    assert bench.load_once(sink, "run-2").batches == planned.batches
    with pytest.raises((UnsupportedFeatureError, TornFileError), match="version 4"):
        bench.load_once(sink, "run-3")


@pytest.mark.parametrize("leave_unreadable", UNREADABLE)
def test_planned_batches_of_a_recreated_table_are_refused_although_its_newest_commit_cannot_be_read(
    bench, recreated, begin, leave_unreadable
):
    leave_unreadable(recreated)
    with pytest.raises(TableReplacedError):
        begin(bench.session("run-2"))


@pytest.mark.parametrize("has_checkpoint", [False, True])
@pytest.mark.parametrize("damage", ["missing", "empty"])
def test_batches_that_were_planned_before_a_lost_commit_are_loaded_by_the_next_attempt(
    bench, four_commits, sink, damage, has_checkpoint
):
    bench.load_once(sink, "run-1")
    for _ in range(4):
        four_commits.append()
    if has_checkpoint:
        deltalake.DeltaTable(str(four_commits.root)).create_checkpoint()
    if damage == "missing":
        four_commits.path_of(6).unlink()
    else:
        four_commits.write_raw(6, "")
    planned = bench.session("run-2").begin(sink)

    assert [(batch.first_version, batch.last_version) for batch in planned.batches] == [(4, 5)]
    assert bench.load_once(sink, "run-3").batches == planned.batches


@pytest.mark.parametrize("has_checkpoint", [False, True])
@pytest.mark.parametrize("lost", [(5,), (5, 8)])
def test_the_rest_of_a_snapshot_is_loaded_before_a_commit_that_is_lost(bench, four_commits, sink, lost, has_checkpoint):
    stream = bench.stream(starting_version=None, max_files_per_batch=1)
    session = bench.session("run-1", stream=stream)
    work = session.begin(sink, max_batches=1)
    bench.report(session, work, session.job(work, sink))
    session.collect(work)
    for _ in range(6):
        four_commits.append(1)
    if has_checkpoint:
        deltalake.DeltaTable(str(four_commits.root)).create_checkpoint()
    for version in lost:
        four_commits.path_of(version).unlink()

    batches = bench.load_once(sink, "run-2", stream).batches
    assert [batch.last_version for batch in batches] == [3] * 5 + [4]
    after = "once this stream has loaded version 4" if has_checkpoint else "there is no checkpoint after the gap"
    with pytest.raises(LogGapError, match=f"version 5 is missing.*{after}"):
        bench.load_once(sink, "run-3", stream)


def test_planned_batches_are_not_loaded_if_a_commit_of_theirs_cannot_be_read_any_more(bench, four_commits, sink):
    bench.session("run-1").begin(sink)
    four_commits.write_raw(2, four_commits.path_of(2).read_bytes()[:-20])

    with pytest.raises(TornFileError, match="version 2"):
        bench.session("run-2").begin(sink)


def test_an_accepted_batch_is_committed_although_the_table_was_recreated(bench, four_commits, sink):
    session = bench.session()
    work = session.begin(sink)
    bench.report(session, work, session.job(work, sink))
    replace_with_other_files(four_commits, 3)
    with pytest.raises(VerificationError):
        session.collect(work)
    session.connected.execute(Accepted(epoch=1, batch_id=0, why="compared"))

    again = session.begin(sink)
    bench.sink_version = 0
    bench.report(session, again, session.job(again, sink))
    assert len(session.collect(again).committed) == 1
