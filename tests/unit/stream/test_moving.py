"""What a move says before it is made, and which moves are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.delta.log import DeltaLog
from airflow_provider_fds.delta.open import open_storage
from airflow_provider_fds.errors import ConfigurationError, LedgerError
from airflow_provider_fds.ledger.entries import Actor
from airflow_provider_fds.ledger.log import Ledger
from airflow_provider_fds.sinks import DeltaMergeSink, DeltaTableSink
from airflow_provider_fds.stream.moving import Mover, perform, readable

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.stream.conftest import Bench

PERSON = Actor(deployment="test", user="ann", host="desk")


@pytest.fixture
def sink(tmp_path: Path) -> DeltaTableSink:
    return DeltaTableSink(str(tmp_path / "sink"))


@pytest.fixture
def loaded(bench: Bench, log_builder: Any, sink: DeltaTableSink) -> Bench:
    """A stream that has loaded versions 0 to 3 in three batches with rows."""
    log_builder.create()
    for files in (1, 2, 3):
        log_builder.append(files)
    load(bench, sink, "run-1")
    return bench


def load(bench: Bench, sink: DeltaTableSink, run: str) -> Any:
    session = bench.session(run, stream=bench.stream(max_versions_per_batch=1))
    while (work := session.begin(sink)).status == "work":
        bench.report(session, work, session.job(work, sink))
        session.collect(work)
    return work


def mover(bench: Bench, *, log: bool = True, **kw: Any) -> Mover:
    ledger = Ledger(open_storage(str(bench.staging)), "orders")
    ledger.find()
    kw.setdefault("owner_is_running", lambda owner: owner.run_id in bench.running)
    return Mover(ledger, "a test", log=DeltaLog(open_storage(str(bench.table))) if log else None, **kw)


def test_the_status_shows_a_request_that_waits_for_its_run(loaded):
    asked = mover(loaded)
    perform(asked.ledger, asked.rewind(to_version=2), PERSON)
    status = loaded.session("looker").status()
    assert (status.phase, status.extra["requested"]) == ("requested", "rewind: a test")


def test_a_rewind_says_where_the_stream_stands_and_what_would_be_in_the_sink_twice(loaded, sink):
    said = mover(loaded).rewind(to_version=2).words()

    assert "before: epoch 1, the beginning of version 4" in said
    assert "after:  epoch 2, reads from version 2 on" in said
    assert "2 committed batches (50 rows) are read again" in said
    target = f"delta.`{sink.uri}`".replace("delta.`/", "delta.`file:///")
    assert f"RESTORE TABLE {target} TO VERSION AS OF 1  -- if nothing else writes to it" in said
    assert f"DELETE FROM {target} WHERE _source_version >= 2  -- if it has provenance" in said


def test_a_rewind_of_a_stream_that_merges_says_that_rows_are_merged_again(bench, log_builder, tmp_path):
    log_builder.create()
    log_builder.append(1)
    load(bench, DeltaMergeSink(str(tmp_path / "sink"), keys=["id"]), "run-1")
    said = mover(bench).rewind(to_version=1).words()

    assert "merged again by their keys: with scd=1 the sink is as now once" in said
    assert "DELETE FROM" not in said


def test_a_rewind_to_where_the_stream_stands_reads_nothing_again(loaded):
    assert mover(loaded).rewind(to_version=4).notes == ("No committed batch is read again.",)


def test_a_reset_reads_everything_again(loaded):
    said = mover(loaded).reset().words()

    assert "3 committed batches (60 rows) are read again" in said
    assert "begins as its start options say" in said


def test_a_rewind_by_time_names_the_version_where_the_table_can_be_read(loaded, log_builder):
    time = "2024-01-01T00:02:00Z"

    assert "version " in mover(loaded).rewind(to_timestamp=time).after
    assert f"the first commit at or after {time}" in mover(loaded, log=False).rewind(to_timestamp=time).after


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ({}, "takes exactly one of a version, a timestamp and a batch, got 0"),
        ({"to_version": 1, "to_batch": 1}, "got 2"),
        ({"to_version": 5}, "version 5 lies behind that: a rewind goes back only"),
        ({"to_timestamp": "soon"}, "soon"),
        ({"to_timestamp": "2999-01-01"}, "no commit of .* is as young as 2999-01-01"),
        ({"to_batch": 9}, "has no batch 9"),
        ({"to_version": 1, "landed": True}, "there is none"),
    ],
)
def test_a_target_that_cannot_be_is_refused_before_anything_is_written(loaded, target, says):
    asked = mover(loaded)
    with pytest.raises(ConfigurationError, match=says):
        asked.rewind(**target)
    assert asked.ledger.state.epoch == 1


def test_a_rewind_behind_the_oldest_commit_left_is_refused(loaded, log_builder):
    log_builder.clean_up_before(2)

    with pytest.raises(ConfigurationError, match=r"version 1 of .* is gone, the oldest commit in the log is 2"):
        mover(loaded).rewind(to_version=1)


def test_a_batch_of_an_own_job_that_still_runs_is_not_taken_away(bench, log_builder):
    own_job_planned(bench, log_builder)
    bench.running.add("run-1")

    for name in ("replan", "rebind", "reset"):
        with pytest.raises(ConfigurationError, match="which still runs as far as is known here"):
            getattr(mover(bench), name)()


@pytest.mark.parametrize("move", ["replan", "rebind"])
@pytest.mark.parametrize(("landed", "first"), [(True, 2), (False, 1)])
def test_a_person_says_whether_the_batch_of_an_own_job_landed(bench, log_builder, move, landed, first):
    own_job_planned(bench, log_builder)
    with pytest.raises(ConfigurationError, match=r"handed to the user's own job, .*--landed yes, or --landed no"):
        getattr(mover(bench), move)()

    asked = mover(bench)
    perform(asked.ledger, getattr(asked, move)(landed=landed), PERSON)

    work = bench.session("run-2", stream=bench.stream(max_versions_per_batch=1, starting_version=1)).begin(
        None, own_job=True, max_batches=1
    )
    assert (work.epoch, [b.first_version for b in work.batches]) == (2, [first])


def own_job_planned(bench: Bench, log_builder: Any) -> None:
    log_builder.create()
    log_builder.append(1)
    log_builder.append(1)
    stream = bench.stream(max_versions_per_batch=1, starting_version=1)
    bench.session("run-1", stream=stream).begin(None, own_job=True, max_batches=1)


def test_a_skipped_version_is_passed_over_with_who_and_why(loaded, log_builder, sink):
    log_builder.append(1)
    log_builder.append(1)
    asked = mover(loaded)
    perform(asked.ledger, asked.skip(4), PERSON)

    session = loaded.session("run-2", stream=loaded.stream(max_versions_per_batch=1))
    work = session.begin(sink)

    assert [b.num_files for b in work.batches] == [1]
    skipped = work.batches[0].skipped[0]
    assert skipped.version == 4
    assert skipped.reason == "skipped by ann@desk: a test; it adds 1 data file and removes 0 data files"


@pytest.mark.parametrize("version", [0, 3])
def test_a_version_that_was_read_cannot_be_skipped(loaded, version):
    asked = mover(loaded)
    with pytest.raises(LedgerError, match=f"has read version {version}, or a part of it, already"):
        perform(asked.ledger, asked.skip(version), PERSON)


def test_a_version_in_a_planned_batch_is_skipped_after_a_replan_only(loaded, log_builder, sink):
    log_builder.append(1)
    loaded.session("run-2").begin(sink)
    asked = mover(loaded)

    with pytest.raises(LedgerError, match="`fds replan orders --why …`, then skip"):
        perform(asked.ledger, asked.skip(4), PERSON)


def test_a_retired_stream_does_nothing_any_more(loaded, sink):
    asked = mover(loaded)
    perform(asked.ledger, asked.retire(), PERSON)

    with pytest.raises(LedgerError, match="the stream was retired for good"):
        load(loaded, sink, "run-2")


def test_a_table_that_cannot_be_read_checks_nothing(tmp_path):
    assert readable(DeltaLog(open_storage(str(tmp_path / "nothing")))) is None
