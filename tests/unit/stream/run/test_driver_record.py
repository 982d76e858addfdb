"""What an attempt makes of a driver that an earlier one has started in a cluster and not seen the end of."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from airflow_provider_fds.batch.report import started_name
from airflow_provider_fds.errors import LedgerError
from airflow_provider_fds.sinks import DeltaReplaceSink
from airflow_provider_fds.stream import DataInterval, DeltaStream, StreamSession

if TYPE_CHECKING:
    from airflow_provider_fds.stream import RunWork
    from tests.unit.stream.conftest import Bench

DRIVER = {"cluster": "standalone", "address": "http://master:6066", "driver": "driver-1"}
START = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.fixture
def left(bench, two_appends, sink) -> tuple[StreamSession, RunWork, str]:
    """A run whose process died while a driver works on its batches: session, work and the URI of its job."""
    session = bench.session(stream=bench.stream(max_files_per_trigger=1))
    work = session.begin(sink)
    assert len(work.batches) > 1
    spec = session.job(work, sink)
    session.driver.write(work, **DRIVER)
    return session, work, spec


def again(bench: Bench, sink: object, run: str = "run-1", **begin: bool) -> tuple[StreamSession, RunWork]:
    session = bench.session(run, stream=bench.stream(max_files_per_trigger=1))
    return session, session.begin(sink, **begin)


def test_the_next_attempt_and_another_run_commit_what_the_driver_that_was_left_reports(bench, sink, left):
    _, work, spec = left
    retry, planned = again(bench, sink, retry=True)
    assert planned.attempt_id != work.attempt_id
    other, taken = again(bench, sink, "run-2")
    found = other.driver.left(taken)
    assert (found.attempt_id, found.batches, found.submitted.driver) == (work.attempt_id, work.batches, "driver-1")
    assert other.collect(found, is_running=True).committed == ()
    bench.report(retry, work, spec)
    assert other.collect(found, is_running=True).committed == work.batches
    # the earlier run has lost its batches, and can submit nothing for them
    with pytest.raises(LedgerError):
        retry.driver.write(planned, **DRIVER)


class Standalone:
    """A cluster in which one driver works."""

    finds_drivers = True

    def __init__(self, driver: str) -> None:
        self.driver = driver

    def attaches_to(self, cluster: str) -> bool:
        return cluster == "standalone"

    def working(self, driver: str) -> tuple[str, str] | None:
        return ("standalone", "http://master:6066") if driver == self.driver else None


def begun(session, work, **facts):
    """Let a driver leave what it leaves before it touches the sink."""
    key = f"{session.scope.reports}/{started_name(work.epoch, work.batches[0].batch_id, work.attempt_id)}"
    facts = {"job": {"batches": len(work.batches), "done": 0}, "driver": "driver-1", **facts}
    session.connected.staging.put(key, json.dumps({"attempt_id": work.attempt_id, **facts}).encode())


def test_a_driver_that_no_entry_names_is_found_by_what_it_has_left_and_gets_its_entry(bench, two_appends, sink):
    first = bench.session(stream=bench.stream(max_files_per_trigger=1))
    work = first.begin(sink)
    begun(first, work)
    retry, planned = again(bench, sink, retry=True)
    assert retry.driver.left(planned, Standalone("another")) is None
    found = retry.driver.left(planned, Standalone("driver-1"))
    assert (found.attempt_id, found.batches, found.submitted.driver) == (work.attempt_id, work.batches, "driver-1")
    # whoever comes next need not look for it
    later, planned = again(bench, sink, retry=True)
    assert later.driver.left(planned).submitted == found.submitted


def test_of_several_drivers_that_no_entry_names_the_one_that_works_is_found(bench, two_appends, sink):
    drivers = []
    for number in (1, 2, 3):
        session, work = again(bench, sink, retry=True)
        begun(session, work, driver=f"driver-{number}")
        drivers.append(work.attempt_id)
    retry, planned = again(bench, sink, retry=True)
    found = retry.driver.left(planned, Standalone("driver-2"))
    assert (found.attempt_id, found.submitted.driver) == (drivers[1], "driver-2")


@pytest.mark.parametrize("left_by", ["a driver beside its worker", "somebody else"])
def test_a_marker_that_names_no_driver_is_passed_over(bench, two_appends, sink, left_by):
    session, work = again(bench, sink)
    begun(session, work, **({"driver": None} if left_by == "a driver beside its worker" else {"job": ["?"]}))
    retry, planned = again(bench, sink, retry=True)
    assert (
        retry.driver.left(planned, Standalone("None" if left_by == "a driver beside its worker" else "driver-1"))
        is None
    )


def test_the_end_of_a_driver_that_left_batches_is_recorded_and_the_next_attempt_starts_another(bench, sink, left):
    session, work, _ = left
    assert session.collect(work, spark_failed=True).failure is not None
    retry, planned = again(bench, sink, retry=True)
    assert retry.driver.left(planned) is None
    # a driver of the second attempt is another one
    retry.driver.write(planned, **{**DRIVER, "driver": "driver-2"})
    later, again_planned = again(bench, sink, retry=True)
    assert later.driver.left(again_planned).submitted.driver == "driver-2"


@pytest.mark.parametrize("clock", ["9", "0"], ids=["a later name", "the name of a clock that is late"])
def test_a_process_that_is_late_does_not_record_the_end_of_the_driver_of_a_later_attempt(bench, sink, left, clock):
    session, work, _ = left
    session.collect(work, spark_failed=True)
    retry, planned = again(bench, sink, retry=True)
    later = replace(planned, attempt_id=f"{clock}{planned.attempt_id}")
    retry.driver.write(later, **{**DRIVER, "driver": "driver-2"})
    session.connected.load()
    session.driver.ended(work)
    third, planned = again(bench, sink, retry=True)
    assert third.driver.left(planned).submitted.driver == "driver-2"


def test_the_end_of_a_driver_that_left_no_batch_is_no_entry(bench, sink, left):
    session, work, spec = left
    bench.report(session, work, spec)
    before = session.connected.ledger.n
    session.collect(work)
    assert session.connected.ledger.n == before + len(work.batches)


def test_a_run_that_does_not_ask_the_cluster_has_an_attempt_of_its_own_and_forgets_the_driver(bench, sink, left):
    session, planned = again(bench, sink, retry=True)
    session.job(planned, sink)
    assert session.collect(planned, spark_failed=True).failure is not None
    assert session.connected.state.submitted is None


def test_an_interval_that_is_replaced_is_not_planned_again_while_its_driver_is_left(bench, two_appends, tmp_path):
    replacing = DeltaReplaceSink(str(tmp_path / "sink"), replace_where="true")
    stream = DeltaStream("days", table=str(bench.table), read="data_interval")
    interval = DataInterval(START, START + timedelta(minutes=2))
    first = StreamSession(stream, bench.session().context, interval)
    work = first.begin(replacing)
    first.driver.write(work, **DRIVER)
    retry = StreamSession(stream, bench.session().context, interval)
    found = retry.driver.left(retry.begin(replacing, retry=True))
    assert (found.epoch, found.attempt_id, found.batches) == (work.epoch, work.attempt_id, work.batches)
    retry.driver.ended(found)
    assert retry.begin(replacing, retry=True).epoch == work.epoch + 1
