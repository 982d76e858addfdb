"""A skip is a statement about the table: whatever reads the version later leaves it out, or says that it cannot."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.cli.main import main
from airflow_provider_fds.errors import LedgerError, TableReplacedError

if TYPE_CHECKING:
    from airflow_provider_fds.stream import DeltaStream
    from tests.unit.stream.conftest import Bench


class Skipping:
    """A stream that has loaded three versions, of which the last was skipped; each version has one file."""

    def __init__(self, bench: Bench, sink: Any, log_builder: Any, capsys: Any) -> None:
        self.bench, self.sink, self.log_builder, self.capsys = bench, sink, log_builder, capsys

    def begin(self, **options: Any) -> DeltaStream:
        self.log_builder.with_appends(2)
        stream = self.bench.stream(**options)
        self.bench.run_once(self.sink, "run-1", stream)
        self.log_builder.append()
        assert self.fds("skip", "--version", "3", "--yes")[0] == 0
        self.log_builder.append()
        self.bench.run_once(self.sink, "run-2", stream)
        return stream

    def fds(self, name: str, *words: str) -> tuple[int, str]:
        place = ("--staging", str(self.bench.staging), "--deployment", "test", "--why", "a bad load")
        code = main([name, "orders", *words, *place])
        out = self.capsys.readouterr()
        return code, out.out + out.err

    def versions(self, stream: DeltaStream, sink: Any = None) -> set[int]:
        """Plan what is left, and return the versions whose files are read; nothing is written to the sink."""
        work = self.bench.session("run-3", stream=stream).begin(sink)
        left_out = {one.version for batch in work.batches for one in batch.skipped}
        read = (range(batch.first_version, batch.last_version + 1) for batch in work.batches)
        return {version for versions in read for version in versions} - left_out


@pytest.fixture
def skipping(bench: Bench, sink: Any, log_builder: Any, capsys: Any) -> Skipping:
    return Skipping(bench, sink, log_builder, capsys)


def unfenced(skipping: Skipping) -> None:
    """Leave no sink, so that a new epoch begins without Spark."""
    skipping.sink = None


@pytest.mark.parametrize("move", [("rewind", "--to", "0"), ("rewind", "--to", "start"), ("replan",)], ids=" ".join)
def test_a_skipped_version_is_not_read_by_a_later_epoch(skipping, move):
    unfenced(skipping)
    skipping.log_builder.with_appends(2)
    stream = skipping.bench.stream()
    skipping.bench.session("run-1", stream=stream).begin(None)
    skipping.log_builder.append()
    assert skipping.fds("skip", "--version", "3", "--yes")[0] == 0
    code, text = skipping.fds(*move, "--yes")
    assert code == 0, text
    found = skipping.versions(stream)
    assert 1 in found
    assert 3 not in found


def test_a_reset_to_a_snapshot_says_that_it_has_the_skipped_rows_and_wants_a_word(skipping):
    skipping.begin(starting_version=None)
    code, text = skipping.fds("rewind", "--to", "start", "--yes")
    assert code != 0
    assert "may have rows of skipped versions (3), which it cannot leave out" in text
    assert "--load-skipped" in text
    code, text = skipping.fds("rewind", "--to", "start", "--load-skipped", "--sink-rows", "keep", "--yes")
    assert code == 0, text


def test_a_run_does_not_begin_with_a_snapshot_that_nobody_knew_of(skipping):
    skipping.log_builder.with_appends(2)
    skipping.bench.session("run-1").begin(None)
    skipping.log_builder.append()
    assert skipping.fds("skip", "--version", "3", "--yes")[0] == 0
    assert skipping.fds("rewind", "--to", "start", "--yes")[0] == 0
    stream = skipping.bench.stream(starting_version=None)
    with pytest.raises(LedgerError, match=r"the snapshot of version 3 may have rows of skipped versions \(3\)"):
        skipping.bench.session("run-2", stream=stream).begin(None)
    code, text = skipping.fds("rewind", "--to", "start", "--load-skipped", "--replace", "--yes")
    assert code == 0, text
    work = skipping.bench.session("run-2", stream=stream).begin(None)
    assert [batch.num_files for batch in work.batches] == [3]


def test_a_backfill_leaves_out_what_was_skipped_on_its_stream(skipping, tmp_path):
    from airflow_provider_fds.sinks import DeltaAppendSink

    stream = skipping.begin(starting_version=2)
    backfill = stream.backfill(start=1, end=4)
    assert skipping.versions(backfill, DeltaAppendSink(str(tmp_path / "another sink"))) == {1, 2, 4}


@pytest.mark.parametrize("move", [("rewind", "--to", "start"), ("rewind", "--to", "0")], ids=" ".join)
def test_a_skip_ends_with_the_table_that_had_the_version(skipping, move):
    """Versions of a table that is created again are others."""
    unfenced(skipping)
    log_builder = skipping.log_builder
    log_builder.with_appends(2)
    stream = skipping.bench.stream()
    skipping.bench.session("run-1", stream=stream).begin(None)
    log_builder.append()
    assert skipping.fds("skip", "--version", "3", "--yes")[0] == 0
    recreated(log_builder)
    log_builder.with_appends(4)
    with pytest.raises(TableReplacedError, match=r"`fds rewind STREAM --to start .*needs another sink"):
        skipping.bench.session("run-2", stream=stream).begin(None)
    code, text = skipping.fds(*move, "--yes")
    assert code == 0, text
    assert "decisions on versions of the former one end: version 3 (a bad load)" in text
    # a decision on the new table holds
    assert skipping.fds("skip", "--version", "2", "--yes")[0] == 0
    assert skipping.versions(stream) == {0, 1, 3, 4} if "0" in move else {1, 3, 4}


def test_a_skip_of_the_former_table_leaves_nothing_out_of_a_backfill_of_the_new_one(skipping, tmp_path):
    """The live stream has not moved yet, so it is still the stream of the former table."""
    from airflow_provider_fds.sinks import DeltaAppendSink

    stream = skipping.begin()
    recreated(skipping.log_builder)
    skipping.log_builder.with_appends(4)
    backfill = stream.backfill(start=0, end=4)
    assert skipping.versions(backfill, DeltaAppendSink(str(tmp_path / "another sink"))) == {0, 1, 2, 3, 4}


def recreated(log_builder: Any) -> None:
    """Put another table in the place of the table."""
    shutil.rmtree(log_builder.root)
    log_builder.version = -1
    log_builder.table_id = "99999999-2222-3333-4444-555555555555"
