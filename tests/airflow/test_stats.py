"""Metrics through Airflow's own statistics, received by real receivers: UDP for StatsD, HTTP for OpenTelemetry."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import subprocess
import sys
import threading
import time
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from airflow_provider_fds import (
    DeltaStream,
    DeltaStreamMonitorOperator,
    DeltaStreamMonitorTrigger,
    DeltaTableVersionTrigger,
)
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import ConfigurationError, StorageError
from airflow_provider_fds.hooks import stats
from airflow_provider_fds.stream.monitoring.metrics import METRICS, poll_error
from airflow_provider_fds.stream.monitoring.monitor import StreamMonitor
from airflow_provider_fds.stream.monitoring.status_row import read_status_file
from airflow_provider_fds.triggers.delta_table_condition import DeltaTableConditionTrigger
from tests.airflow.conftest import ROOT

pytestmark = pytest.mark.usefixtures("airflow_database")

SWITCHES = ("STATSD_ON", "OTEL_ON")


class Receiver:
    """A StatsD server: keeps the lines it gets, ``name,tag=value`` with its value and its type."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 0))
        self.socket.settimeout(0.2)
        self.port = self.socket.getsockname()[1]
        self.lines = []

    def read(self):
        try:
            while True:
                self.lines += self.socket.recv(65536).decode().splitlines()
        except TimeoutError:
            return [line for line in self.lines if line.startswith("airflow.fds.")]

    def values(self):
        """Each metric with its tags, its last value and its type."""
        found = {}
        for line in self.read():
            name, value, kind = re.fullmatch(r"airflow\.([^:]+):([^|]+)\|(\w+)", line).groups()
            found[name] = (float(value), kind)
        return found


@pytest.fixture
def configured(monkeypatch):
    """Return a function that configures Airflow's metrics for this process."""

    def configure(**settings):
        for name, value in settings.items():
            monkeypatch.setenv(f"AIRFLOW__METRICS__{name.upper()}", str(value))
        stats._initialize(stats._stats())

    yield configure
    for switch in SWITCHES:
        monkeypatch.delenv(f"AIRFLOW__METRICS__{switch}", raising=False)
    stats._initialize(stats._stats())


@pytest.fixture
def statsd(configured):
    receiver = Receiver()
    configured(statsd_on=True, statsd_host="127.0.0.1", statsd_port=receiver.port, statsd_influxdb_enabled=True)
    yield receiver
    receiver.socket.close()


@pytest.fixture
def waiting(log_builder, tmp_path, stand_at):
    """A table of two versions, and a trigger of a stream that has read both."""
    now = int(time.time() * 1000)
    log_builder.create(timestamp_ms=now)
    log_builder.append(timestamp_ms=now)
    stream = DeltaStream("orders", table=log_builder.uri, checkpoint=f"file:{tmp_path / 'checkpoint.json'}")
    staging = (tmp_path / "staging").as_uri()
    stand_at(stream, staging, log_builder.table_id, 1, deployment="d")
    return DeltaTableVersionTrigger(stream=stream.to_dict(), staging=staging, deployment="d", poll_interval=0.01)


async def fired(trigger):
    async for event in trigger.run():
        return event.payload
    return None


async def test_a_trigger_sends_the_gauges_of_its_stream_by_statsd(waiting, log_builder, statsd):
    log_builder.append(2, timestamp_ms=int(time.time() * 1000) - 60_000)
    assert (await fired(waiting))["version"] == 2
    found = statsd.values()
    assert found["fds.lag_versions,stream=orders"] == (1, "g")
    assert found["fds.pending_files,stream=orders"] == (2, "g")
    assert found["fds.pending_bytes,stream=orders"][0] > 0
    assert found["fds.lag_seconds,stream=orders"][0] == pytest.approx(60, abs=30)
    assert found["fds.retention_left_seconds,stream=orders"][0] > 6 * 86_400
    assert found["fds.needs_attention,stream=orders,state=behind"] == found["fds.failed_runs,stream=orders"] == (0, "g")


async def test_a_trigger_whose_data_wait_says_so_in_the_status_file(waiting, log_builder):
    log_builder.append(1, timestamp_ms=int(time.time() * 1000))
    arguments = {**waiting.serialize()[1], "stream": {**waiting.stream, "min_batch_bytes": "1g"}, "recheck_every": 2}
    trigger = DeltaTableVersionTrigger(**arguments)
    polled, loop, real = asyncio.Event(), asyncio.get_running_loop(), trigger._send_status

    def send_status(poller):
        real(poller)
        loop.call_soon_threadsafe(polled.set)

    trigger._send_status = send_status
    task = asyncio.create_task(fired(trigger))
    await polled.wait()
    task.cancel()
    row = read_status_file(open_storage(waiting.staging), "orders")
    assert (row.condition, row.written_by, row.next_within_seconds) == ("waiting", "run", 0.02)
    assert row.waits_for.startswith("Stream 'orders' is waiting for more data: it has ")


async def test_a_poll_by_head_sends_nothing(waiting, statsd, monkeypatch):
    heads = asyncio.Event()
    count = 0
    real = LocalStorage.head_async

    async def head(storage, key):
        nonlocal count
        count += 1
        if count == 5:
            heads.set()
        return await real(storage, key)

    monkeypatch.setattr(LocalStorage, "head_async", head)
    task = asyncio.create_task(fired(waiting))
    await heads.wait()
    task.cancel()
    lines = statsd.read()
    assert len([line for line in lines if line.startswith("airflow.fds.lag_versions")]) == 1


async def test_refused_polls_are_counted(waiting, statsd, monkeypatch):
    def refuse(*_args, **_kwargs):
        raise StorageError("the store is away", table="t")

    monkeypatch.setattr(LocalStorage, "list_after", refuse)
    waiting.max_refusals = 3
    assert (await fired(waiting))["status"] == "error"
    assert [line for line in statsd.read() if "poll_errors" in line] == [
        "airflow.fds.poll_errors,stream=orders:1|c"
    ] * 3


async def test_a_trigger_without_a_stream_sends_nothing(log_builder, statsd, caplog):
    log_builder.create()
    trigger = DeltaTableConditionTrigger(table=log_builder.uri, condition={"version": 0}, poll_interval=0.01)
    assert (await fired(trigger))["status"] == "success"
    assert statsd.read() == []
    assert "Metrics were not sent" not in caplog.text


def test_a_run_sends_what_it_has_committed_and_where_the_stream_is(installation, on_server, lake, statsd, monkeypatch):
    monkeypatch.setenv("FDS_EXAMPLE_LAKE", lake.uri)
    lake.append("orders", 1, 2)
    lake.append("orders", 3)
    assert installation.run(installation.add_example("orders_cron")).state("ingest") == "success"
    lines = statsd.read()
    (stream,) = {re.search(r"stream=(\w+)", line)[1] for line in lines}
    found = statsd.values()
    assert found[f"fds.batches,stream={stream}"] == (1, "c")
    assert found[f"fds.rows_read,stream={stream}"] == found[f"fds.rows_written,stream={stream}"] == (3, "c")
    value, kind = found[f"fds.batch_seconds,stream={stream},phase=write"]
    # StatsD's timers are in milliseconds
    assert (kind, value > 10) == ("ms", True)
    for name in ("lag_versions", "lag_seconds", "pending_files", "pending_bytes", "planned_batches", "failed_runs"):
        assert found[f"fds.{name},stream={stream}"] == (0, "g"), name


def test_a_failing_run_fails_for_its_own_reason_and_sends_where_the_stream_is(
    installation, on_server, lake, statsd, monkeypatch
):
    monkeypatch.setenv("FDS_EXAMPLE_LAKE", lake.uri)
    lake.append("orders", 1, 2)
    dag = installation.add_example("orders_cron")
    assert installation.run(dag).state("ingest") == "success"
    statsd.read()
    statsd.lines.clear()
    lake.delete("orders", "id = 1")
    run = installation.run(dag)
    assert run.state("ingest") == "failed"
    assert run.xcom("ingest", "fds_error")["reason_code"].startswith("SOURCE_")
    assert [value for name, value in statsd.values().items() if name.startswith("fds.lag_versions")] == [(1, "g")]


def test_metrics_that_cannot_be_sent_fail_nothing(waiting, configured, monkeypatch, caplog):
    configured(statsd_on=True, statsd_host="127.0.0.1", statsd_port=9, statsd_influxdb_enabled=True)

    def broken():
        raise RuntimeError("no statistics")

    with monkeypatch.context() as patch:
        patch.setattr(stats, "_stats", broken)
        stats.send(lambda: [poll_error("orders")])
        waiting._send_status()
    assert "Metrics were not sent: RuntimeError: no statistics" in caplog.text


def test_without_metrics_nothing_is_read(waiting, monkeypatch):
    def never(*_args, **_kwargs):
        raise AssertionError

    monkeypatch.setattr(waiting, "_connected", never)
    monkeypatch.setattr(stats, "_stats", never)
    waiting._send_status()


def test_a_process_in_which_nobody_initialized_the_statistics_sends_them_too(statsd):
    code = (
        "from airflow_provider_fds.hooks import stats;"
        "from airflow_provider_fds.stream.monitoring.metrics import poll_error; "
        "stats.send(lambda: [poll_error('alone')])"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120)
    assert statsd.read() == ["airflow.fds.poll_errors,stream=alone:1|c"]


class Collector(BaseHTTPRequestHandler):
    """An OTLP receiver over HTTP."""

    def do_POST(self):
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            import gzip

            body = gzip.decompress(body)
        self.server.requests.append((self.path, ExportMetricsServiceRequest.FromString(body)))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_args):
        """Stay silent."""


@pytest.fixture
def collector():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    server.requests = []
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_opentelemetry_gets_them_with_the_stream_as_an_attribute(collector, waiting, log_builder, monkeypatch):
    log_builder.append(2)
    port = collector.server_address[1]
    # a process of its own, which exports once as it ends: a provider of metrics is for the life of a process
    code = (
        "import sys, json; from opentelemetry import metrics; "
        "from airflow_provider_fds import DeltaTableVersionTrigger as T; "
        "t = T(**json.loads(sys.argv[1])); t._send_status(); t._count_error(); "
        "metrics.get_meter_provider().force_flush()"
    )
    env = {
        "AIRFLOW__METRICS__OTEL_ON": "True",
        "AIRFLOW__METRICS__OTEL_HOST": "127.0.0.1",
        "AIRFLOW__METRICS__OTEL_PORT": str(port),
        "AIRFLOW__METRICS__OTEL_INTERVAL_MILLISECONDS": "60000",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "no_proxy": "127.0.0.1",
        "NO_PROXY": "127.0.0.1",
    }
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    arguments = json.dumps(waiting.serialize()[1])
    subprocess.run([sys.executable, "-W", "ignore", "-c", code, arguments], check=True, timeout=120)
    found = {}
    for path, request in collector.requests:
        assert path == "/v1/metrics"
        for metric in (m for r in request.resource_metrics for scope in r.scope_metrics for m in scope.metrics):
            data = getattr(metric, metric.WhichOneof("data"))
            for point in data.data_points:
                tags = {one.key: one.value.string_value for one in point.attributes}
                if metric.name.startswith("airflow.fds."):
                    found[metric.name, tags["stream"]] = getattr(point, point.WhichOneof("value"))
    assert found["airflow.fds.lag_versions", "orders"] == 1
    assert found["airflow.fds.pending_files", "orders"] == 2
    assert found["airflow.fds.poll_errors", "orders"] == 1


def test_every_name_is_one_that_airflow_sends():
    assert all(re.fullmatch(r"fds\.[a-z_]{1,40}", metric.name) for metric in METRICS)


def test_the_monitor_sends_the_lag_of_a_stream_whose_dag_does_not_run(
    installation, waiting, log_builder, statsd, monkeypatch
):
    monkeypatch.setenv("AIRFLOW__FDS__STAGING", waiting.staging)
    log_builder.append(2)
    text = (ROOT / "airflow_provider_fds" / "example_dags" / "fds_monitor.py").read_text()
    short = text.replace(
        "poll_interval=timedelta(minutes=1)", "poll_interval=timedelta(seconds=1), duration=timedelta(seconds=2)"
    )
    assert short != text
    run = installation.run(installation.add(short))
    assert run.state("monitor") == "success"
    assert run.xcom("monitor") == 2
    found = statsd.values()
    assert found["fds.lag_versions,stream=orders"] == (1, "g")
    assert found["fds.pending_files,stream=orders"] == (2, "g")


def test_a_round_of_the_monitor_asks_airflow_once_for_the_connection_of_all_tables(monkeypatch):
    from airflow.providers.common.compat.sdk import BaseHook, Connection

    asked = []

    def get_connection(conn_id):
        asked.append(conn_id)
        return Connection(conn_id=conn_id, conn_type="aws", login="a", password="b")

    monkeypatch.setattr(BaseHook, "get_connection", get_connection)
    trigger = DeltaStreamMonitorTrigger(staging="s3://lake/_fds", interval=60, until=0, storage_conn_id="aws_lake")

    class Monitor:
        def poll(self):
            assert trigger._context().staging_options
            assert all(trigger._options(f"s3://lake/t{number}") for number in range(1000))
            return []

        def write_status_files(self, *_args, **_more):
            return None

    assert trigger._round(Monitor(), None) == {}
    assert asked == ["aws_lake"]
    trigger._round(Monitor(), None)
    # the next round sees credentials that were changed
    assert asked == ["aws_lake", "aws_lake"]


async def test_the_monitor_goes_on_after_a_round_that_fails_and_sends_what_is_new(
    waiting, log_builder, statsd, monkeypatch
):
    rounds = []
    real = StreamMonitor.poll

    def poll(monitor):
        rounds.append(None)
        if len(rounds) == 2:
            raise StorageError("the store is away", table="t")
        if len(rounds) == 3:
            log_builder.append(3)
        return real(monitor)

    monkeypatch.setattr(StreamMonitor, "poll", poll)
    trigger = DeltaStreamMonitorTrigger(staging=waiting.staging, interval=0.2, until=time.time() + 1.5)
    assert DeltaStreamMonitorTrigger(**trigger.serialize()[1]).serialize() == trigger.serialize()
    assert await fired(trigger) == {"status": "success", "rounds": len(rounds)}
    assert len(rounds) >= 3
    lags = [line for line in statsd.read() if "lag_versions" in line]
    assert lags[0] == "airflow.fds.lag_versions,stream=orders:0|g"
    assert lags[-1] == "airflow.fds.lag_versions,stream=orders:1|g"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"poll_interval": 60}, "poll_interval must be a positive timedelta, got 60"),
        ({"duration": timedelta()}, "duration must be a positive timedelta"),
        ({"recheck_every": 5}, "recheck_every is not an argument any more: every 20th poll"),
        ({"interval": timedelta(minutes=1)}, "interval is poll_interval now"),
    ],
)
def test_a_monitor_with_arguments_that_do_not_fit_is_refused(arguments, said):
    with pytest.raises(ConfigurationError, match=said):
        DeltaStreamMonitorOperator(task_id="monitor", **arguments)
