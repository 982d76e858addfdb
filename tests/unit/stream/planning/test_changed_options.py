"""Options that change while batches are planned take effect after them, and every run says so."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def planned(bench, log_builder, sink):
    """Three versions, planned as three batches by a run that died."""
    log_builder.with_appends(3)
    bench.session("run-1", stream=bench.stream(max_versions_per_batch=1)).begin(sink)
    return bench


def test_a_run_that_takes_over_says_after_which_batch_its_options_take_effect(planned, sink, caplog):
    session = planned.session("run-2", stream=planned.stream(max_versions_per_batch=2))
    assert len(session.begin(sink).batches) == 3
    note = session.option_notes()
    assert note is not None
    assert note.startswith("the options of stream 'orders' have changed since batches 0 to 2 were planned.")
    assert "They take effect after batch 2; to plan again with them, run `fds replan orders --why …`" in note
    assert note in caplog.text


@pytest.mark.parametrize("same", [{}, {"starting_version": 1}])
def test_nothing_is_said_of_equal_options_or_of_a_start_that_has_no_effect(planned, sink, same: dict[str, Any]):
    session = planned.session("run-2", stream=planned.stream(max_versions_per_batch=1, **same))
    session.begin(sink)
    assert "take effect after" not in (session.option_notes() or "")


def test_the_run_still_says_so_after_it_has_loaded_these_batches_and_planned_others(planned, sink, log_builder):
    log_builder.append()
    stream = planned.stream(max_versions_per_batch=2)
    session = planned.session("run-2", stream=stream)
    for _ in range(2):
        work = session.begin(sink)
        planned.report(session, work, session.job(work, sink))
        session.collect(work)
    assert "take effect after batch 2" in (session.option_notes() or "")


def test_an_interval_that_is_planned_keeps_its_options(bench, log_builder) -> None:
    from airflow_provider_fds.ledger.owner import Owner
    from airflow_provider_fds.ledger.records import IntervalRecord
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.ledger.values import PlannedBatch
    from airflow_provider_fds.stream.planning.changed_options import describe_changed_options

    batch = PlannedBatch(
        batch_id=0, start="", end="", first_version=1, last_version=2, manifest="", digest="d", num_files=1,
        num_bytes=1, num_rows=1, prev_txn_version=None, skipped=(), log_digest="l", last_commit_sha256="c",
    )  # fmt: skip
    record = IntervalRecord(
        interval="a/b", generation=1, first_version=1, last_version=2, planned=(batch,), options_digest="other",
        owner=Owner(kind="cli", deployment="cli", run_id="r"),
    )  # fmt: skip
    note = describe_changed_options(StreamState(name="orders"), bench.stream().options, record)
    assert note is not None
    assert note.endswith("They take effect after batch 0 of this interval")
