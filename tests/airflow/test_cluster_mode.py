"""Drivers that a standalone cluster runs: a master and a worker on this machine, real tasks."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider_fds.backends.cluster_driver import ClusterDriver
from airflow_provider_fds.fault_points import ASKED_BY, MARKS_IN
from airflow_provider_fds.spark.clusters.standalone import StandaloneCluster
from tests.fds_command import fds
from tests.lost_task import (
    DAG_TEXT,
    DEFERRED,
    FLEET_TEXT,
    KILLED_BEFORE_THE_ENTRY,
    STOPPED,
    Lost,
    stopping_driver,
)
from tests.standalone_cluster import QUIET_AFTER_SECONDS, SMALL, Leader, running

if TYPE_CHECKING:
    from airflow_provider_fds.spark.clusters.cluster import Handle

pytestmark = pytest.mark.timeout(600)

CONF = {**SMALL, "spark.cores.max": "1", "spark.driver.host": "127.0.0.1"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with running(tmp_path_factory.mktemp("cluster"), workers=2, cores=2) as found:
        yield found


@pytest.fixture(scope="module")
def leader(cluster):
    found = Leader(cluster)
    yield found
    found.end()


@pytest.fixture
def dag_of(installation, lake, cluster, monkeypatch):
    def make(name, rest_port=None, more="", options="", text=DAG_TEXT, **faults):
        extra = {"rest-port": rest_port or cluster.rest_port}
        host, port = cluster.master.rsplit(":", 1)
        connection = {"conn_type": "spark", "host": host, "port": int(port), "extra": extra}
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps(connection))
        text = text.format(
            name=name,
            conn_id=name,
            lake=lake.uri,
            env={"PYSPARK_PYTHON": sys.executable, **faults},
            conf=CONF,
            more=f'deploy_mode="cluster", {more}',
            options=options,
        )
        return installation.add(text)

    return make


def test_a_driver_that_is_stopped_leaves_no_process_one_that_fails_names_its_log_and_the_next_attempt_loads_the_rows(
    dag_of, installation, lake, cluster, tmp_path, monkeypatch, caplog
):
    lake.append("orders", 1, 2)
    dag = dag_of("in_cluster")
    with monkeypatch.context() as patch:
        drivers = stop_once_it_runs(patch)
        assert installation.run(dag).state("ingest") == "failed"
    ((driver, handle),) = drivers
    assert driver.cluster.look(handle).words == "KILLED"
    until = time.monotonic() + 60
    while (left := processes_in(cluster.work / handle.id)) and time.monotonic() < until:
        time.sleep(0.2)
    assert left == []

    newest = max((lake.root / "orders").glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)
    newest.rename(newest.with_suffix(".away"))
    caplog.clear()
    assert installation.run(dag).state("ingest") == "failed"
    (page,) = [text for text in caplog.messages if "driverId=" in text and "log: http" not in text]
    assert page.startswith("Log of the driver: http://127.0.0.1:")
    newest.with_suffix(".away").rename(newest)

    caplog.clear()
    assert installation.run(dag).state("ingest") == "success", caplog.text
    assert lake.ids("in_cluster") == [1, 2]
    (driver,) = [
        path for path in cluster.work.glob("driver-*") if f"Driver {path.name} has been started" in caplog.text
    ]
    # the files of all drivers are in staging once
    (archive,) = (tmp_path / "staging" / ".drivers").glob("*.zip")
    assert (driver / archive.name).is_file()


def stop_once_it_runs(patch):
    """Let a task stop its driver as soon as that runs; return the driver, with what the cluster calls it."""
    drivers: list[tuple[ClusterDriver, Handle]] = []
    wait = ClusterDriver._end

    def then_stop(self, application, handle, was_ended):
        if not drivers:
            drivers.append((self, handle))
            while self.cluster.look(handle).words != "RUNNING":
                time.sleep(0.1)
            threading.Thread(target=self.stop).start()
        return wait(self, application, handle, was_ended)

    patch.setattr(ClusterDriver, "_end", then_stop)
    return drivers


def processes_in(folder):
    """Return the processes whose working directory is the folder of a driver."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (process / "cwd").resolve() == folder.resolve():
                found.append(process.name)
    return found


def test_a_port_on_which_no_rest_server_listens_fails_the_task_and_is_named(dag_of, installation, lake, capsys):
    lake.append("orders", 1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert installation.run(dag_of("elsewhere", rest_port=port)).state("ingest") == "failed"
    said = capsys.readouterr()
    assert "SPARK_CLUSTER_LOST" in said.out + said.err
    assert f"http://127.0.0.1:{port}/v1/submissions/create does not answer" in said.out + said.err
    assert not lake.exists("elsewhere")


@pytest.fixture
def faults(tmp_path):
    return stopping_driver(tmp_path)


@pytest.fixture
def started(cluster):
    """Returns the drivers that the cluster has started since the test began."""
    before = set(cluster.work.glob("driver-*"))
    return lambda: set(cluster.work.glob("driver-*")) - before


@pytest.fixture
def seen(monkeypatch):
    """What the cluster says at each look; functions in ``seen.then`` are called after so many of them."""

    class Seen(list):
        def __init__(self):
            super().__init__()
            self.then = {}

        def act(self):
            self.then.pop(len(self), lambda: None)()

    found = Seen()
    look = StandaloneCluster.look

    def looked(self, handle):
        found.act()
        found.append(look(self, handle))
        found.act()
        return found[-1]

    monkeypatch.setattr(StandaloneCluster, "look", looked)
    return found


def test_a_driver_that_died_after_its_task_is_followed_by_another_one_in_the_next_attempt(
    dag_of, installation, lake, tmp_path, faults, started, seen
):
    lake.append("orders", 1, 2)
    lost = Lost(dag_of("both_died", **faults), tmp_path)
    os.kill(int(lost.mark.read_text()), signal.SIGKILL)
    assert lost.run_again(installation) == "success"
    assert len(started()) == 2
    assert [look.state for look in seen if look.has_failed] == ["ended"]
    assert lake.ids("both_died") == [1, 2]


def test_a_driver_that_no_entry_names_is_found_by_what_it_has_left_in_staging(
    dag_of, installation, lake, tmp_path, faults, started, seen
):
    lake.append("orders", 1, 2)
    lost = Lost(dag_of("unnamed", **faults), tmp_path, before=KILLED_BEFORE_THE_ENTRY)
    while not (lost.mark.exists() and lost.mark.read_text()):
        time.sleep(0.1)
    seen.then[2] = lost.go_on
    assert lost.run_again(installation) == "success"
    assert len(started()) == 1
    assert lake.ids("unnamed") == [1, 2]


def test_the_next_attempt_of_a_fleet_waits_for_its_driver_which_loads_all_streams(
    dag_of, installation, lake, tmp_path, faults, started, seen, caplog
):
    lake.append("orders", 1, 2)
    lost = Lost(dag_of("fleet_left", text=FLEET_TEXT, **faults), tmp_path)
    seen.then[2] = lost.go_on
    assert lost.run_again(installation) == "success", caplog.text
    assert len(started()) == 1
    assert [lake.ids(f"fleet_left_{part}") for part in "ab"] == [[1, 2]] * 2


def test_the_next_attempt_of_a_fleet_whose_driver_died_commits_what_it_has_reported_and_starts_one_for_the_rest(
    dag_of, installation, lake, tmp_path, faults, started, caplog
):
    lake.append("orders", 1, 2)
    faults[ASKED_BY] = second = f"{STOPPED}#2"
    lost = Lost(dag_of("fleet_died", text=FLEET_TEXT, **faults), tmp_path, stopped=second)
    os.kill(int(lost.mark.read_text()), signal.SIGKILL)
    assert lost.run_again(installation) == "success", caplog.text
    assert len(started()) == 2
    assert [lake.ids(f"fleet_died_{part}") for part in "ab"] == [[1, 2]] * 2
    others = [text for text in caplog.messages if "another driver loads" in text]
    assert len(others) == 1
    assert "Loading 1 batches of 1 streams" in caplog.text


def test_a_driver_that_outlives_its_task_and_its_master_is_found_by_the_next_attempt_which_starts_no_other(
    dag_of, installation, lake, leader, tmp_path, faults, started, seen, caplog
):
    lake.append("orders", 1, 2)
    lost = Lost(dag_of("outlived", **faults), tmp_path)
    assert not lake.exists("outlived")
    seen.then |= {0: leader.kill, 2: partial(leader.start, after_seconds=QUIET_AFTER_SECONDS), 3: lost.go_on}
    assert lost.run_again(installation) == "success", caplog.text
    assert [look.state for look in seen[:2]] == ["unknown"] * 2
    assert "running" in {look.state for look in seen[2:]}
    assert len(started()) == 1
    assert lake.ids("outlived") == [1, 2]
    assert "Log of the driver: http://127.0.0.1:" in caplog.text


def test_two_drivers_of_one_claim_that_write_at_the_same_time_land_each_batch_once(
    dag_of, installation, lake, tmp_path, faults, started
):
    for number in range(1, 4):
        lake.append("orders", number)
    # the first driver is cut off before batch 0, the second one before batch 1
    later = f"{STOPPED}#2"
    faults[ASKED_BY] = f"{STOPPED},{later}"
    lost = Lost(dag_of("twice_at_work", options=", max_versions_per_batch=1", **faults), tmp_path)
    (first,) = started()
    staging = str(tmp_path / "staging")
    given_up = fds("unlock", "twice_at_work", "--why", "its node is cut off", "--yes", "--staging", staging)
    assert given_up.returncode == 0, given_up.stderr
    second, between = tmp_path / "marks" / later, []

    def go_on():
        while not (second.exists() and second.read_text()):
            time.sleep(0.1)
        between.extend(lake.ids("twice_at_work"))
        lost.go_on()
        while processes_in(first):
            time.sleep(0.1)
        os.kill(int(second.read_text()), signal.SIGCONT)

    meanwhile = threading.Thread(target=go_on, daemon=True)
    meanwhile.start()
    assert lost.run_again(installation) == "success"
    meanwhile.join()
    assert between == [1]
    assert len(started()) == 2
    assert lake.ids("twice_at_work") == [1, 2, 3]
    # nothing is left to do, and nothing is blocked
    assert installation.run(lost.dag).state("ingest") == "skipped"


def test_a_command_that_is_killed_finds_its_driver_again_and_starts_no_other_one(
    installation, lake, cluster, tmp_path, started
):
    lake.append("orders", 1, 2)
    staging = str(tmp_path / "staging")
    conf = {
        **CONF,
        "spark.driver.memory": "600m",
        "spark.pyspark.python": sys.executable,
        "spark.master.rest.port": cluster.rest_port,
    }
    words = [
        sys.executable, "-m", "airflow_provider_fds.cli.main", "run", f"{lake.uri}/orders", "--stream", "by_command",
        "--option", "starting_version=earliest", "--sink", f"{lake.uri}/by_command", "--staging", staging,
        "--master", cluster.master, "--deploy-mode", "cluster", "--output", "json",
        *(word for setting in conf.items() for word in ("--conf", "=".join(map(str, setting)))),
    ]  # fmt: skip

    def run():
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def shown():
        return json.loads(fds("status", "by_command", "--staging", staging, "--output", "json").stdout)

    first = run()
    while not list((tmp_path / "staging").glob("by_command/attempts/1/0/*.started.json")):
        assert first.poll() is None, first.communicate()
        time.sleep(0.05)
    (driver,) = started()
    signal_all(driver, signal.SIGSTOP)
    first.kill()
    first.communicate()
    before = shown()
    assert before["driver"]["driver"] == driver.name
    second = run()
    while shown()["owner"] == before["owner"]:
        assert second.poll() is None, second.communicate()
        time.sleep(0.5)
    signal_all(driver, signal.SIGCONT)
    told, said = second.communicate(timeout=300)
    assert second.returncode == 0, said
    assert f"Driver {driver.name} was started before, for the same batches" in said
    assert "Log of the driver: http://127.0.0.1:" in said
    batch, end = map(json.loads, told.splitlines())
    assert (batch["batch_id"], batch["rows"], end["status"]) == (0, 2, "up_to_date")
    assert started() == {driver}
    assert lake.ids("by_command") == [1, 2]


def signal_all(folder, number):
    """Send a signal to the processes of a driver."""
    for process in processes_in(folder):
        os.kill(int(process), number)


@pytest.fixture
def shown_of(tmp_path):
    """Returns what is shown of a stream: the text of ``fds status``, and its driver in the JSON and on the page."""
    from airflow_provider_fds.delta.storage.open import canonical_uri
    from airflow_provider_fds.stream.monitoring.stream_id import StreamId
    from airflow_provider_fds.ui.rows import row_of
    from airflow_provider_fds.ui.streams import Streams

    staging = str(tmp_path / "staging")

    def shown(name):
        said = fds("status", name, "--staging", staging).stdout
        told = json.loads(fds("status", name, "--staging", staging, "--output", "json").stdout)
        found = Streams().find(str(StreamId.of(canonical_uri(staging), name)))
        row, _ = found.details()
        return said, told["driver"], row_of(row, found.staging.uri, datetime.now(UTC))["driver"]

    return shown


@pytest.fixture
def triggers(monkeypatch):
    """The triggers that tasks have deferred to, each as Airflow stores it, with the reason for which it fired."""
    from airflow_provider_fds.triggers import driver_reports

    found = []
    event = driver_reports.WatchesDriver._event

    def kept(self, reason):
        found.append((self.serialize(), reason))
        return event(self, reason)

    monkeypatch.setattr(driver_reports.WatchesDriver, "_event", kept)
    return found


def test_a_task_leaves_its_driver_and_fails_if_it_dies_and_the_next_run_commits_meanwhile_and_goes_on_to_its_target(
    dag_of, installation, lake, tmp_path, started, triggers, monkeypatch, caplog, capsys
):
    from airflow_provider_fds.operators.run import left_driver
    from airflow_provider_fds.triggers.driver_reports import WatchesDriver

    monkeypatch.setattr(left_driver, "COMMIT_SECONDS", 0.0)
    monkeypatch.setitem(WatchesDriver.__init__.__kwdefaults__, "look_seconds", 1.0)
    for number in range(1, 4):
        lake.append("orders", number)
    more = f"{DEFERRED}, batches_per_application=2, run_time_limit=3600"
    (tmp_path / "marks").mkdir()
    faults = {ASKED_BY: "kill@driver.commit.before", MARKS_IN: str(tmp_path / "marks")}
    dag = dag_of("left", more=more, options=", max_versions_per_batch=1", **faults)
    assert installation.run(dag).state("ingest") == "failed"
    assert not lake.exists("left")
    ((_, reason),) = triggers
    assert reason == "ended"
    said = capsys.readouterr()
    assert "Driver driver-" in said.out + said.err
    assert "ended: FAILED" in said.out + said.err
    (dead,) = started()

    triggers.clear()
    done = installation.run(dag)
    assert done.state("ingest") == "success", caplog.text
    assert lake.ids("left") == [1, 2, 3]
    # one driver for two batches, then one for the third
    assert len(started() - {dead}) == 2
    assert triggers[-1][1] == "reported"
    result = done.xcom("ingest")
    assert (result["batches"], result["rows"]) == (3, 3)
    assert result["seconds"]["spark"] > 5
    assert len({trigger[1]["resume"]["stop_after_ms"] for trigger, _ in triggers}) == 1
    # nothing is left to do
    assert installation.run(dag).state("ingest") == "skipped"
    assert len(started()) == 3


def test_a_task_whose_triggerer_was_killed_finds_its_driver_also_when_the_master_starts_again(
    dag_of, installation, lake, leader, tmp_path, faults, started, seen, triggers, caplog, shown_of
):
    lake.append("orders", 1, 2)
    # the process that is killed runs the trigger, too
    lost = Lost(dag_of("left_and_lost", more=DEFERRED, **faults), tmp_path)
    assert "the task leaves its worker until the driver reports" in (tmp_path / "task.log").read_text()
    (driver,) = started()
    expected = {"driver": driver.name, "batch_id": 0, "batches": 1, "batches_done": 0, "rows": 0}
    text, told, page = shown_of("left_and_lost")
    assert told == page
    assert {name: told[name] for name in expected} == expected
    done = f"0 of 1 batch done, at batch 0 (as of {told['noted_at']})"
    assert f"driver           {driver.name} on standalone, since {told['since']}, {done}\n" in text
    assert f"driver log       {told['log_url']}\n" in text
    assert f"driverId={driver.name}" in told["log_url"]

    def go_on():
        leader.start(after_seconds=QUIET_AFTER_SECONDS)
        lost.go_on()

    seen.then |= {0: leader.kill, 1: go_on}
    assert lost.run_again(installation) == "success", caplog.text
    assert seen[0].state == "unknown"
    assert [reason for _, reason in triggers] == ["reported"]
    assert len(started()) == 1
    assert lake.ids("left_and_lost") == [1, 2]
    assert shown_of("left_and_lost")[1:] == (None, None)


def test_a_fleet_leaves_its_driver_finds_it_after_the_triggerer_was_killed_and_leaves_the_next_one_too(
    dag_of, installation, lake, tmp_path, faults, started, seen, triggers, caplog
):
    for number in (1, 2):
        lake.append("orders", number)
    # the first stream is loaded, the second one is not
    faults[ASKED_BY] = second = f"{STOPPED}#2"
    more = f"{DEFERRED}, batches_per_application=1, run_time_limit=3600"
    dag = dag_of("fleet_deferred", text=FLEET_TEXT, more=more, options=", max_versions_per_batch=1", **faults)
    lost = Lost(dag, tmp_path, stopped=second)
    assert "the task leaves its worker until the driver reports" in (tmp_path / "task.log").read_text()
    assert len(started()) == 1
    seen.then[1] = lost.go_on
    assert lost.run_again(installation) == "success", caplog.text
    assert len(started()) == 2
    assert [lake.ids(f"fleet_deferred_{part}") for part in "ab"] == [[1, 2]] * 2
    assert [reason for _, reason in triggers] == ["reported"] * 2
    own = [arguments["resume"]["own_attempt"] for (_, arguments), _ in triggers]
    assert own[0] == ""
    assert own[1].startswith("driver-")
    assert len({arguments["resume"]["stop_after_ms"] for (_, arguments), _ in triggers}) == 1
    result = lost.done.xcom("ingest")
    assert result["counts"] == {"loaded": 2}
    assert [result["streams"][f"fleet_deferred_{part}"]["batches"] for part in "ab"] == [2, 2]
    assert result["seconds"]["spark"] > 5
