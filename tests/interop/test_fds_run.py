"""``fds run`` as a person runs it: a real process that starts a real Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from contextlib import suppress
from typing import TYPE_CHECKING

import deltalake
import pyarrow as pa
import pytest

from airflow_provider_fds.batch.sink.commit_metadata import read_commit_metadata
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import EXIT_BATCH_FAILED, EXIT_CONFIGURATION
from airflow_provider_fds.ledger.staging.log import Ledger
from tests.fds_command import fds
from tests.interop.spark_processes import processes_of
from tests.stuck_file import stuck_file

if TYPE_CHECKING:
    from pathlib import Path


def append(lake: Path, first: int, rows: int) -> None:
    table = pa.table({"id": list(range(first, first + rows))})
    deltalake.write_deltalake(lake / "orders", table, mode="append")


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    for version in range(3):
        append(tmp_path, version * 10, 10)
    return tmp_path


def command(lake: Path, *options: str) -> list[str]:
    return [
        sys.executable, "-m", "airflow_provider_fds.cli.main", "run", str(lake / "orders"),
        "--sink", str(lake / "bronze"), "--staging", str(lake / "staging"), "--checkpoint", str(lake / "cp.json"),
        "--stream", "orders", "--master", "local[1]", "--output", "json",
        *(word for option in options for word in ("--option", option)),
    ]  # fmt: skip


ONE_BY_ONE = ("starting_version=0", "max_versions_per_batch=1")


def test_an_interrupted_run_continues_and_no_row_is_lost_or_duplicated(lake):
    first = subprocess.Popen(command(lake, *ONE_BY_ONE), stdout=subprocess.PIPE, text=True)
    started = lake / "staging" / "orders" / "attempts" / "1" / "0"
    deadline = time.monotonic() + 120
    while not list(started.glob("*.started.json")) and time.monotonic() < deadline and first.poll() is None:
        time.sleep(0.1)
    (marker,) = started.glob("*.started.json")
    first.send_signal(signal.SIGTERM)
    first.communicate(timeout=60)
    assert first.returncode == 128 + signal.SIGTERM
    assert not spark_of(lake), "Spark outlived the command"

    second = subprocess.run(command(lake, *ONE_BY_ONE), capture_output=True, text=True, timeout=240, check=False)
    assert second.returncode == 0, second.stderr[-3000:]
    assert json.loads(second.stdout.splitlines()[-1]) == {"status": "up_to_date", "error": None}

    table = deltalake.DeltaTable(lake / "bronze")
    assert sorted(table.to_pyarrow_table().column("id").to_pylist()) == list(range(30))
    found = [read_commit_metadata(commit.get("userMetadata")) for commit in reversed(table.history())]
    chain = [(m["after"], m["start"], m["end"]) for m in found if m is not None]
    assert len(chain) == 3
    assert all(after == start for after, start, _ in chain)
    assert [start for _, start, _ in chain[1:]] == [end for _, _, end in chain[:-1]]
    assert marker.exists()
    checkpoint = json.loads((lake / "cp.json").read_text())
    assert (checkpoint["batch_id"], checkpoint["offset"]) == (2, chain[-1][2])


def test_small_data_waits_and_is_loaded_when_its_wait_is_over(lake, connect_server):
    def run(*options):
        words = command(lake, "starting_version=0", "min_batch_bytes=1m", *options)[3:]
        done = fds(*words, "--remote", connect_server.url)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    end = run("max_batch_wait=1d")
    assert (end["status"], end["error"]) == ("up_to_date", None)
    assert "is waiting for more data" in end["waiting"]
    assert not (lake / "bronze").exists()

    for version in range(3):
        an_hour_ago = time.time() - 3600 + version
        os.utime(lake / "orders" / "_delta_log" / f"{version:020}.json", (an_hour_ago, an_hour_ago))
    assert run("max_batch_wait=10m") == {"status": "up_to_date", "error": None}
    table = deltalake.DeltaTable(lake / "bronze")
    assert sorted(table.to_pyarrow_table().column("id").to_pylist()) == list(range(30))
    assert len([commit for commit in table.history() if commit.get("userMetadata")]) == 1


# D30; tests/chaos kills streams that begin with a snapshot or with changes, and have no end
def test_a_bounded_run_that_is_killed_with_its_spark_after_half_of_the_rows_continues(tmp_path):
    for half in range(2):
        append(tmp_path, half * 550, 550)
    arguments = command(tmp_path, "max_files_per_batch=1", "version_as_of=1")
    first = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    landed = tmp_path / "bronze" / "_delta_log" / f"{0:020d}.json"
    deadline = time.monotonic() + 120
    while not landed.exists() and time.monotonic() < deadline and first.poll() is None:
        time.sleep(0.02)
    assert landed.exists()
    first.kill()
    first.wait(timeout=60)
    for process_id in spark_of(tmp_path):
        with suppress(ProcessLookupError):
            os.kill(process_id, signal.SIGKILL)
    for number in range(5):
        append(tmp_path, 1100 + number * 5, 5)

    second = subprocess.run(arguments, capture_output=True, text=True, timeout=240, check=False)
    assert second.returncode == 0, second.stderr[-3000:]
    ids = deltalake.DeltaTable(tmp_path / "bronze").to_pyarrow_table().column("id").to_pylist()
    assert (len(ids), sorted(set(ids))) == (1100, list(range(1100)))


def spark_of(lake: Path) -> list[int]:
    """Return the processes whose command line names a file of this test's staging folder."""
    return processes_of(lake / "staging")


def test_26_a_run_of_a_finished_stream_starts_no_spark_and_reports_it(log_builder, tmp_path, capsys):
    from airflow_provider_fds.cli.main import main

    log_builder.create()
    log_builder.append()
    arguments = [
        *("run", str(log_builder.root), "--sink", str(tmp_path / "sink"), "--staging", str(tmp_path / "staging")),
        *("--checkpoint", str(tmp_path / "checkpoint.json"), "--stream", "range"),
        *("--option", "starting_timestamp=2000-01-01", "--option", "ending_timestamp=2000-01-02"),
    ]
    assert main(arguments) == 0
    assert "Stream 'range' is finished: ending_timestamp='2000-01-02'" in capsys.readouterr().out
    assert main([*arguments, "--output", "json"]) == 0
    assert '"status": "finished"' in capsys.readouterr().out
    assert not (tmp_path / "sink").exists()


def test_a_run_on_a_spark_connect_server_needs_no_spark_of_its_own(lake, connect_server):
    words = [*command(lake, "starting_version=0", "max_versions_per_batch=2"), "--remote", connect_server.url]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    batches = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [(batch["batch_id"], batch["rows"]) for batch in batches[:-1]] == [(0, 20), (1, 10)]
    assert batches[-1] == {"status": "up_to_date", "error": None}
    assert deltalake.DeltaTable(lake / "bronze").to_pyarrow_table().num_rows == 30


@pytest.mark.parametrize(
    ("client", "needed"), [("4.3.0", "pip install 'pyspark==4.2.*'"), ("3.5.7", "pip install 'pyspark==4.2.*'")]
)
def test_a_server_of_another_version_is_refused_with_the_command_before_anything_is_planned(
    lake, connect_server, monkeypatch, capsys, client, needed
):
    from airflow_provider_fds.cli.main import main
    from airflow_provider_fds.spark.sessions import connect_server as connect

    monkeypatch.setattr(connect, "client_version", lambda: client)
    words = [*command(lake, "starting_version=0")[3:], "--remote", connect_server.url]
    assert main(words) == EXIT_CONFIGURATION
    said = capsys.readouterr().err
    assert "the server is Spark 4.2.0" in said
    assert f"the installed pyspark is {client}" in said
    assert needed in said
    assert not (lake / "staging").exists()


def test_a_spark_without_the_declared_delta_is_named_and_writes_nothing(lake):
    words = [*command(lake, "starting_version=0"), "--delta-version", "provided"]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == EXIT_BATCH_FAILED
    said = ran.stderr.splitlines()[-1]
    assert "failed with SPARK_VERSION_MISMATCH" in said
    assert "has no Delta but needs io.delta:delta-spark_4.2_2.13:4.4.0. Omit delta_version='provided'" in said
    assert not (lake / "bronze").exists()


def test_what_a_spark_said_that_did_not_start_is_shown(lake):
    words = [*command(lake, "starting_version=0"), "--conf", "spark.driver.memory=9999999g"]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == EXIT_BATCH_FAILED
    assert "[SPARK_ENDED_EARLY]" in ran.stderr
    assert "Spark-submit ended with exit code 1:\n    Error occurred during initialization of VM\n" in ran.stderr
    assert "enough space" in ran.stderr


def test_two_deltas_on_the_class_path_are_named_and_nothing_is_written(lake, tmp_path):
    other = tmp_path / "delta-spark_4.2_2.13-4.3.0.jar"
    with zipfile.ZipFile(other, "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n")
    # which no argument and no setting names
    environ = {**os.environ, "SPARK_DIST_CLASSPATH": str(other)}
    words = command(lake, "starting_version=0")
    ran = subprocess.run(words, capture_output=True, text=True, timeout=240, check=False, env=environ)
    assert ran.returncode == EXIT_BATCH_FAILED
    said = ran.stderr.splitlines()[-1]
    assert "failed with SPARK_VERSION_MISMATCH: the JVM has more than one Delta on its class path: " in said
    assert str(other) in said
    assert "Spark 4.2.0 needs one: Delta 4.4.0. Remove the others from" in said
    assert not (lake / "bronze").exists()


def test_batches_are_committed_while_spark_works_on_the_next_one_and_stay_if_that_fails(lake):
    log = lake / "orders" / "_delta_log" / f"{2:020d}.json"
    (add,) = [json.loads(line)["add"] for line in log.read_text().splitlines() if '"add"' in line]
    with stuck_file(lake / "orders" / add["path"]) as stuck:
        run = subprocess.Popen(command(lake, *ONE_BY_ONE), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        # the job stands at the third batch, whose file cannot be read, while the first two are told of
        batches = [json.loads(run.stdout.readline()) for _ in range(2)]
        assert [batch["batch_id"] for batch in batches] == [0, 1]
        assert run.poll() is None
        assert spark_of(lake), "Spark has ended already"
        assert Ledger(open_storage((lake / "staging").as_uri()), "orders").find().last_committed.batch_id == 1
        assert json.loads((lake / "cp.json").read_text())["batch_id"] == 1
        stuck.wait_for_reader(lambda: run.poll() is not None)
        stuck.release()
        rest, _ = run.communicate(timeout=120)
    assert run.returncode == EXIT_BATCH_FAILED
    assert json.loads(rest.splitlines()[-1])["status"] == "stopped"
    assert Ledger(open_storage((lake / "staging").as_uri()), "orders").find().last_committed.batch_id == 1
    assert deltalake.DeltaTable(lake / "bronze").to_pyarrow_table().num_rows == 20
