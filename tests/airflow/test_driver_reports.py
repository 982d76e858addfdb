"""``DriverReportsTrigger``, as a triggerer runs it: a real staging folder, and a server that answers as a master."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from airflow.jobs import triggerer_job_runner
from airflow.triggers.base import BaseTrigger

from airflow_provider_fds import DeltaAppendSink, DeltaFleetOperator, DeltaIngestOperator, DeltaStream, FleetStream
from airflow_provider_fds.batch.fleet_spec import FleetProgress
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.operators.run.left_driver import Resumed
from airflow_provider_fds.spark.clusters import rest
from airflow_provider_fds.spark.clusters.standalone import StandaloneCluster
from airflow_provider_fds.spark.clusters.stored import from_dict, to_dict
from airflow_provider_fds.spark.clusters.yarn import YarnCluster
from airflow_provider_fds.triggers import driver_reports
from airflow_provider_fds.triggers.driver_reports import DriverReportsTrigger
from airflow_provider_fds.triggers.fleet_reports import FleetReportsTrigger

pytestmark = pytest.mark.usefixtures("airflow_database")


class Master(BaseHTTPRequestHandler):
    """Answers what the server has in ``answers``, and the last one for ever."""

    def do_GET(self):
        answers = self.server.answers
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        self.server.asked.append(self.path)
        self.server.was_asked.set()
        self._say({"success": answer is not None, "driverState": answer})

    def do_POST(self):
        self.server.asked.append(self.path)
        self._say({"success": True})

    def _say(self, answer):
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def master():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Master)
    server.answers, server.asked, server.was_asked = ["RUNNING"], [], threading.Event()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def trigger_of(master, tmp_path):
    def make(**more):
        values = {
            "staging": (tmp_path / "staging").as_uri(),
            "reports": "orders/attempts",
            "epoch": 1,
            "batch_ids": [3, 4],
            "attempt_id": "t1",
            "cluster": to_dict(StandaloneCluster("spark://127.0.0.1:7077", master.server_port)),
            "address": f"http://127.0.0.1:{master.server_port}",
            "driver": "driver-1",
            "poll_interval": 0.01,
            "look_seconds": 0.05,
            "commit_after": time.time() + 3600,
            "resume": {"began": 12.5, "own_attempt": "t1"},
        }
        return DriverReportsTrigger(**{**values, **more})

    return make


@pytest.fixture
def report(tmp_path):
    def put(batch_id, attempt_id="t1"):
        folder = tmp_path / "staging" / "orders" / "attempts" / "1" / str(batch_id)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{attempt_id}.json").write_text("{}")

    return put


async def fired(trigger, *, meanwhile=lambda: None, after=0.2):
    """Run a trigger until it fires; call ``meanwhile`` after a time in which it has not."""

    async def first():
        async for event in trigger.run():
            return event.payload
        return None

    task = asyncio.ensure_future(first())
    done, _ = await asyncio.wait([task], timeout=after)
    assert not done or meanwhile is None, "it fired too early"
    if meanwhile is not None:
        meanwhile()
    return await asyncio.wait_for(task, 60)


def test_a_trigger_fires_once_the_driver_has_reported_each_batch(trigger_of, report):
    report(4, "t0")
    report(3)
    payload = asyncio.run(fired(trigger_of(), meanwhile=lambda: report(4)))
    assert payload == {
        "status": "success",
        "reason": "reported",
        "silent_seconds": 0.0,
        "resume": {"began": 12.5, "own_attempt": "t1"},
    }
    resumed = Resumed.of(payload)
    assert (resumed.began, resumed.own_attempt, resumed.is_reported) == (12.5, "t1", True)


def test_some_batches_wait_for_the_others_only_for_a_time(trigger_of, report):
    report(3)
    payload = asyncio.run(fired(trigger_of(commit_after=time.time() + 0.4)))
    assert payload["reason"] == "progress"


def test_no_report_is_no_progress(trigger_of, report):
    payload = asyncio.run(fired(trigger_of(commit_after=0.0), meanwhile=lambda: report(3)))
    assert payload["reason"] == "progress"


@pytest.mark.parametrize("ending", ["FINISHED", "FAILED", "KILLED"])
def test_a_trigger_fires_if_the_cluster_says_that_the_driver_has_ended(trigger_of, master, ending):
    payload = asyncio.run(fired(trigger_of(), meanwhile=lambda: master.answers.append(ending)))
    assert payload["reason"] == "ended"


def test_the_cluster_is_asked_seldom_but_after_each_report(trigger_of, master, report):
    async def watch():
        trigger = trigger_of(look_seconds=3600)
        task = asyncio.ensure_future(fired(trigger, meanwhile=lambda: report(3)))
        await asyncio.to_thread(master.was_asked.wait, 60)
        report(4)
        return await task

    assert asyncio.run(watch())["reason"] == "reported"
    assert master.asked == ["/v1/submissions/status/driver-1"]


def test_a_cluster_that_does_not_answer_wakes_the_task_only_after_a_long_time(trigger_of, monkeypatch):
    nobody = {"kind": "standalone", "master": "spark://127.0.0.1:7077", "rest_port": 1}
    monkeypatch.setattr(driver_reports, "LOST_SECONDS", 0.4)
    payload = asyncio.run(fired(trigger_of(cluster=nobody, address="http://127.0.0.1:1")))
    assert payload["reason"] == "silent"
    assert Resumed.of(payload).silent_seconds >= 0.4


def test_clusters_that_do_not_answer_hold_up_no_other_one(trigger_of, master, monkeypatch):
    monkeypatch.setattr(rest, "SECONDS", 600.0)
    master.answers[:] = ["FINISHED"]

    async def watch():
        silent = socket.create_server(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        nobody = to_dict(StandaloneCluster("spark://127.0.0.1:7077", port))
        waiting = [asyncio.ensure_future(anext(trigger_of(cluster=nobody).run())) for _ in range(3)]
        try:
            # both questions that it may be asked at once
            taken = [(await asyncio.to_thread(silent.accept))[0] for _ in range(2)]
            with silent, taken[0], taken[1]:
                return await fired(trigger_of(), meanwhile=None)
        finally:
            for each in waiting:
                each.cancel()

    assert asyncio.run(watch())["reason"] == "ended"


def test_a_cluster_that_answers_again_is_not_silent(trigger_of, master, report, monkeypatch):
    monkeypatch.setattr(driver_reports, "LOST_SECONDS", 0.3)
    master.answers[:] = [None, "RUNNING"]

    def go_on():
        report(3)
        report(4)

    assert asyncio.run(fired(trigger_of(), meanwhile=go_on, after=0.8))["reason"] == "reported"


@pytest.mark.parametrize("cluster", [{"kind": "of the future"}, {"kind": "yarn"}, {}])
def test_a_cluster_that_this_version_does_not_know_is_no_error(trigger_of, report, cluster):
    def go_on():
        report(3)
        report(4)

    assert asyncio.run(fired(trigger_of(cluster=cluster), meanwhile=go_on))["reason"] == "reported"


def test_staging_that_cannot_be_read_is_no_error(trigger_of, report, monkeypatch):
    from airflow_provider_fds.errors import StorageError

    head, broken = LocalStorage.head, [True]

    def refusing(self, key):
        if broken:
            raise StorageError("the store is away", table=self.uri)
        return head(self, key)

    monkeypatch.setattr(LocalStorage, "head", refusing)
    report(3)
    report(4)
    assert asyncio.run(fired(trigger_of(), meanwhile=broken.clear))["reason"] == "reported"


def test_a_connection_that_is_gone_is_no_error(trigger_of, monkeypatch):
    payload = asyncio.run(fired(trigger_of(storage_conn_id="gone", until=time.time() + 0.5)))
    assert payload["reason"] == "timeout"


def test_a_restarted_triggerer_goes_on_with_the_stored_arguments_and_leaves_the_driver_alone(
    trigger_of, master, report
):
    async def interrupted():
        task = asyncio.ensure_future(fired(trigger_of(look_seconds=3600)))
        await asyncio.sleep(0.1)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        path, arguments = trigger_of().serialize()
        assert path == f"{DriverReportsTrigger.__module__}.{DriverReportsTrigger.__name__}"
        again = DriverReportsTrigger(**json.loads(json.dumps(arguments)), of_the_future=1)
        report(3)
        report(4)
        return await fired(again, meanwhile=None)

    assert asyncio.run(interrupted())["reason"] == "reported"
    assert not [path for path in master.asked if "/kill/" in path]


@pytest.fixture
def fleet_trigger_of(trigger_of):
    def make(**more):
        values = trigger_of().serialize()[1]
        for name in DriverReportsTrigger.POLLS:
            values.pop(name)
        polls = {"progress": ".fleets/shop/f1.progress.json", "streams": ["a", "b"]}
        return FleetReportsTrigger(**{**values, **polls, **more})

    return make


@pytest.fixture
def note(tmp_path):
    def put(**progress):
        folder = tmp_path / "staging" / ".fleets" / "shop"
        folder.mkdir(parents=True, exist_ok=True)
        LocalStorage(str(folder)).put("f1.progress.json", FleetProgress(**progress).to_json())

    return put


def test_the_trigger_of_a_fleet_fires_once_the_jobs_of_its_streams_have_ended(fleet_trigger_of, note):
    note(reports={"a": 2, "other": 9}, ended={"a": "done", "other": "done"})
    done = {"a": "done", "b": "failed"}
    payload = asyncio.run(fired(fleet_trigger_of(), meanwhile=lambda: note(reports={"a": 2, "b": 1}, ended=done)))
    assert payload["reason"] == "reported"


def test_the_trigger_of_a_fleet_fires_for_reports_that_the_task_does_not_know(fleet_trigger_of, note):
    note(reports={"a": 2, "other": 9})
    trigger = fleet_trigger_of(reported=2, commit_after=0.0)
    payload = asyncio.run(fired(trigger, meanwhile=lambda: note(reports={"a": 3})))
    assert payload["reason"] == "progress"


def test_the_trigger_of_a_fleet_reads_the_note_only_if_it_has_changed(fleet_trigger_of, note, monkeypatch):
    read, get = [], LocalStorage.get

    def counted(self, key):
        read.append(key)
        return get(self, key)

    monkeypatch.setattr(LocalStorage, "get", counted)
    note(reports={"a": 1})
    done = {"a": "done", "b": "done"}
    asyncio.run(fired(fleet_trigger_of(), meanwhile=lambda: note(reports={"a": 1, "b": 1}, ended=done)))
    assert read == [".fleets/shop/f1.progress.json"] * 2


def test_the_trigger_of_a_fleet_fires_if_its_driver_has_ended_and_is_stored_with_its_arguments(
    fleet_trigger_of, master
):
    master.answers[:] = ["FAILED"]
    path, arguments = fleet_trigger_of(reported=3).serialize()
    assert path == f"{FleetReportsTrigger.__module__}.{FleetReportsTrigger.__name__}"
    again = FleetReportsTrigger(**json.loads(json.dumps(arguments)), of_the_future=1)
    assert again.serialize() == (path, arguments)
    assert asyncio.run(fired(again, meanwhile=None))["reason"] == "ended"


async def cancelled(trigger, message):
    """Cancel a trigger that Airflow's own runner runs, as the runner does with this message."""
    runner = triggerer_job_runner.TriggerRunner()
    runner.triggers[1] = {"name": "driver", "events": 0, "is_watcher": False, "task": None}
    task = asyncio.ensure_future(runner.run_trigger(1, trigger))
    await asyncio.sleep(0.1)
    task.cancel(*message)
    with suppress(asyncio.CancelledError):
        await task


@pytest.mark.skipif(
    not hasattr(BaseTrigger, "on_kill"), reason="Airflow tells triggers from 3.3 on that a user has ended their task"
)
def test_only_a_user_who_marks_or_clears_the_task_stops_the_driver(trigger_of, master):
    asyncio.run(cancelled(trigger_of(look_seconds=3600), ()))
    assert master.asked == []
    asyncio.run(cancelled(trigger_of(look_seconds=3600), (triggerer_job_runner._USER_ACTION_CANCEL_MSG,)))
    assert master.asked == ["/v1/submissions/kill/driver-1"]


@pytest.mark.parametrize(
    "cluster", [{"kind": "standalone", "master": "spark://127.0.0.1:1", "rest_port": 1}, {"kind": "of the future"}]
)
def test_a_cluster_that_stops_nothing_is_no_error_of_the_trigger(trigger_of, cluster):
    asyncio.run(trigger_of(cluster=cluster).on_kill())


@pytest.mark.parametrize(
    "cluster", [StandaloneCluster("spark://one:7077,two:7077", 6067), YarnCluster(("http://a", "http://b"), "etl", 9.0)]
)
def test_a_stored_cluster_is_the_same(cluster):
    assert from_dict(json.loads(json.dumps(to_dict(cluster)))) == cluster


ORDERS = DeltaStream("orders", table="file:///lake/orders")
SINK = DeltaAppendSink("file:///lake/sink")


def ingest(**arguments):
    return DeltaIngestOperator(task_id="ingest", stream=ORDERS, sink=SINK, **arguments)


def test_the_poll_interval_of_a_task_that_leaves_its_driver_needs_no_wait():
    assert ingest(deferrable=True, poll_interval=5).report_interval == 5
    with pytest.raises(ConfigurationError, match="poll_interval has no effect without wait=True"):
        ingest(poll_interval=5)
    with pytest.raises(ConfigurationError, match="timeout has no effect without wait=True"):
        ingest(deferrable=True, timeout=5)
    with pytest.raises(ConfigurationError, match="poll_interval must be"):
        ingest(deferrable=True, poll_interval=0)


def test_tasks_that_cannot_leave_their_driver_refuse_to():
    with pytest.raises(ConfigurationError, match=r"linger cannot be used with deferrable=True: .*Omit one"):
        ingest(deferrable=True, linger=60)
    with pytest.raises(ConfigurationError, match="deferrable must be True or False, got 'yes'"):
        ingest(deferrable="yes")
    fleet = partial(DeltaFleetOperator, task_id="fleet", streams=[FleetStream(ORDERS, SINK)])
    assert fleet(deferrable=True, poll_interval=5).report_interval == 5
    with pytest.raises(ConfigurationError, match=r"linger cannot be used with deferrable=True: .*Omit one"):
        fleet(deferrable=True, linger=60)
    with pytest.raises(ConfigurationError, match="poll_interval has no effect without wait=True"):
        fleet(poll_interval=5)
    from airflow.sdk import task

    @task.delta_batch(stream=ORDERS, deferrable=True)
    def load(df):
        pass

    with pytest.raises(ConfigurationError, match="deferrable=True is not available: the function runs in the task's"):
        load()


def test_a_connection_whose_driver_needs_the_task_fails_the_run_before_it_plans(installation, lake, capsys, tmp_path):
    lake.append("orders", 1)
    dag = installation.add(
        f"""
        from datetime import datetime
        from airflow.sdk import DAG
        from airflow_provider_fds import DeltaIngestOperator, DeltaStream, DeltaAppendSink

        with DAG("left_nowhere", schedule=None, start_date=datetime(2026, 1, 1)):
            DeltaIngestOperator(
                task_id="ingest",
                stream=DeltaStream("left_nowhere", table="{lake.uri}/orders"),
                sink=DeltaAppendSink("{lake.uri}/left_nowhere"),
                deferrable=True,
            )
        """
    )
    assert installation.run(dag).state("ingest") == "failed"
    said = capsys.readouterr()
    assert "deferrable=True requires a cluster that runs Spark's driver without the task" in said.out + said.err
    assert not (tmp_path / "staging" / "left_nowhere").exists()
