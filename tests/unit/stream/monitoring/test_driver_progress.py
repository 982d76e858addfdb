"""What is shown of a driver in a cluster while no task is at work."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from airflow_provider_fds.batch.report import started_name
from airflow_provider_fds.cli.status_text import describe_driver
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.stream.connected_stream import ConnectedStream
from airflow_provider_fds.stream.monitoring.driver_progress import read_driver
from airflow_provider_fds.stream.monitoring.monitor import StreamMonitor
from airflow_provider_fds.stream.monitoring.status import status_of
from airflow_provider_fds.stream.monitoring.status_row import read_status_file
from tests.counting_storage import count_requests

PAGE = "http://node:8081/logPage?driverId=driver-1&logType=stderr"


class Work:
    """A stream with planned batches, and the driver that works on them."""

    def __init__(self, bench, sink, batches):
        self.bench = bench
        stream = bench.stream(max_versions_per_batch=1)
        self.session = bench.session(stream=stream)
        self.work = self.session.begin(sink)
        assert len(self.work.batches) == batches
        self.spec = self.session.job(self.work, sink)
        self.storage = open_storage(str(bench.staging))

    def submit(self):
        self.session.driver.write(self.work, cluster="standalone", address="http://master:6066", driver="driver-1")

    def begin(self, batch_id, **changes):
        job = {"began_ms": 0, "batches": len(self.work.batches), "done": batch_id, "rows": 10 * batch_id}
        marker = {"format": 1, "started_ms": 5000, "job": job, "log_url": PAGE, **changes}
        self.put(batch_id, json.dumps(marker).encode())

    def put(self, batch_id, data):
        name = started_name(self.work.epoch, batch_id, self.work.attempt_id)
        self.storage.put(f"orders/attempts/{name}", data)

    def report(self):
        self.bench.report(self.session, self.work, self.spec)

    def read(self):
        return read_driver(self.storage, self.session.connected.load())

    def status(self):
        return status_of(ConnectedStream(self.session.stream, self.session.context))


@pytest.fixture
def work(bench, sink, log_builder):
    def make(batches=2):
        log_builder.create()
        for _ in range(batches):
            log_builder.append(1)
        return Work(bench, sink, batches)

    return make


def test_a_status_without_a_driver_reads_nothing_for_it(work, monkeypatch):
    one = work()
    state = one.session.connected.load()
    requests = count_requests(monkeypatch)
    assert read_driver(open_storage(str(one.bench.staging)), state) is None
    assert requests == []
    assert one.status().to_dict()["driver"] is None


def test_a_driver_is_named_before_it_has_begun_and_then_shown_with_what_it_has_done(work):
    one = work()
    one.submit()
    assert describe_driver(one.read()) == "driver-1 on standalone, has begun no batch"
    one.begin(0)
    one.begin(1, stage="stage 7: 3 of 8 tasks done, 40 rows read")
    found = one.read()
    assert (found.batch_id, found.batches, found.batches_done, found.rows, found.log_url) == (1, 2, 1, 10, PAGE)
    stage = "stage 7: 3 of 8 tasks done, 40 rows read"
    done = f"1 of 2 batches done, 10 rows out, at batch 1: {stage} (as of {found.noted_at})"
    assert describe_driver(found) == f"driver-1 on standalone, since 1970-01-01T00:00:00.000Z, {done}"
    assert one.status().to_dict()["driver"]["stage"] == stage


def test_a_batch_that_is_reported_counts_although_no_task_has_committed_it(work):
    one = work()
    one.submit()
    one.begin(0)
    one.begin(1)
    one.report()
    found = one.read()
    rows = one.work.batches[-1].num_rows
    assert (found.batch_id, found.batches_done, found.rows) == (None, 2, 10 + rows)
    one.session.collect(one.work)
    assert one.read() is None


def test_the_batch_that_a_driver_works_on_is_found_with_few_requests(work, monkeypatch):
    one = work(40)
    one.submit()
    for begun in (1, 2, 3, 17, 39, 40):
        for batch_id in range(begun):
            one.begin(batch_id)
        with monkeypatch.context() as patch:
            requests = count_requests(patch)
            found = read_driver(open_storage(str(one.bench.staging)), one.session.connected.state)
        assert found.batch_id == begun - 1
        assert len(requests) <= 15


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"started_ms": "yesterday"}', b'{"started_ms": 1, "job": [1]}'])
def test_a_marker_that_is_damaged_hides_no_status(work, data):
    one = work()
    one.submit()
    one.put(0, data)
    assert describe_driver(one.status().driver) == "driver-1 on standalone, has begun no batch"


def test_a_marker_of_another_version_or_with_a_link_that_is_none_shows_the_rest(work):
    one = work()
    one.submit()
    one.put(0, json.dumps({"format": 1, "started_ms": 0, "log_url": "javascript:alert(1)"}).encode())
    found = one.read()
    assert (found.batch_id, found.since, found.batches, found.log_url) == (0, "1970-01-01T00:00:00.000Z", None, None)


def test_a_monitor_shows_at_each_round_how_far_the_driver_is_and_keeps_it_in_the_status_file(work):
    one = work()
    one.submit()
    context = replace(one.session.context, checkpoints=None)
    monitor = StreamMonitor(lambda: context)
    (status,) = monitor.poll()
    assert status.driver.batch_id is None
    one.begin(0)
    (status,) = monitor.poll()
    assert status.driver.batch_id == 0
    assert monitor.write_status_files([status], interval_seconds=1) is None
    assert read_status_file(one.storage, "orders").driver == status.driver
