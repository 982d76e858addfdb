"""Whether the source's log is still the one that a batch was planned from."""

from __future__ import annotations

import os

import pytest

from airflow_provider_fds.delta.log import DeltaLog
from airflow_provider_fds.delta.open import open_storage
from airflow_provider_fds.errors import VerificationError
from airflow_provider_fds.sinks import DeltaTableSink
from airflow_provider_fds.stream.verifying import check_range_unchanged
from tests.counting_storage import CountingStorage


@pytest.fixture
def sink(tmp_path):
    return DeltaTableSink(str(tmp_path / "sink"))


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
