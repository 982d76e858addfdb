"""Whole runs of ``fds run --sink-postgres``, killed and moved: whatever happens, each row is in the table once."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest

from airflow_provider_fds.errors import BatchFailedError
from airflow_provider_fds.fault_points import ASKED_BY, MARKS_IN
from airflow_provider_fds.sinks import PostgresSink
from airflow_provider_fds.stream.sink_record.database_evidence import DatabaseEvidence
from airflow_provider_fds.stream.sink_record.evidence import ReportedBatch
from tests.fds_command import Ran, fds

if TYPE_CHECKING:
    from pathlib import Path

    from tests.interop.postgres.conftest import Database

pytestmark = pytest.mark.timeout(900)

#: Where the driver is killed, and the points of the run around it that matter for "done".
POINTS = (
    "driver.started",
    "driver.commit.before",
    "driver.commit.before#2",
    "driver.commit.after",
    "driver.report.before",
    "driver.report.after",
    "entry.before.committed",
)


class Lake:
    """A source that grows, and the commands that load it into PostgreSQL."""

    def __init__(self, folder: Path, spark: str | None) -> None:
        self.folder = folder
        self._spark = () if spark is None else ("--remote", spark)
        self._ids: list[int] = []

    def append(self, *ids: int) -> None:
        table = pa.table({"id": list(ids), "name": [f"name {n}" for n in ids], "p": [n % 2 for n in ids]})
        deltalake.write_deltalake(self.folder / "orders", table, mode="append")
        self._ids += ids

    @property
    def ids(self) -> list[int]:
        return sorted(self._ids)

    def words(self, *more: str) -> tuple[str, ...]:
        source = ("run", str(self.folder / "orders"), "--stream", "orders", "--staging", str(self.folder / "staging"))
        return (*source, *self._spark, "--sink-postgres", "public.orders", "--option", "starting_version=0", *more)

    def load(self, *more: str) -> Ran:
        done = fds(*self.words(*more))
        assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-2000:]
        return done

    def start(self, fault: str, *more: str) -> subprocess.Popen[str]:
        environment = {**os.environ, ASKED_BY: fault, MARKS_IN: str(self.folder)}
        command = [sys.executable, "-m", "airflow_provider_fds.cli.main", *self.words(*more)]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def die(self, point: str, *more: str) -> None:
        """Let a run be killed at a point."""
        process = self.start(f"kill@{point}", *more)
        said, _ = process.communicate(timeout=300)
        assert process.returncode == -signal.SIGKILL, said[-3000:]

    def wait_for(self, fault: str, process: subprocess.Popen[str]) -> None:
        """Wait until a run has reached a point."""
        mark = self.folder / fault
        while not (mark.exists() and mark.read_text()):
            assert process.poll() is None, process.communicate()[0][-3000:]
            time.sleep(0.05)

    def move(self, *words: str) -> Ran:
        return fds(
            words[0], "orders", *words[1:], "--staging", str(self.folder / "staging"), "--why", "a test", "--yes"
        )


@pytest.fixture
def environment(database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    """The database, as the environment of libpq has it."""
    for name, value in database.parameters().items():
        monkeypatch.setenv({"dbname": "PGDATABASE"}.get(name, f"PG{name.upper()}"), str(value))
    return database


@pytest.fixture
def lake(tmp_path: Path, environment: Database, connect_server: Any) -> Lake:
    lake = Lake(tmp_path, connect_server.url)
    lake.append(1, 2)
    lake.append(3)
    return lake


def test_a_run_loads_what_is_new_and_the_status_shows_where_it_went(lake, environment):
    lake.load()
    lake.append(4, 5)
    lake.load("--sink-option", "account=fds")
    assert environment.rows() == lake.ids
    shown = fds("status", "orders", "--staging", str(lake.folder / "staging"), "--output", "json")
    sink = json.loads(shown.stdout)["sink"]
    assert sink == {"kind": "postgres", "target": "postgres:///public.orders", "delivery": "transaction"}
    assert "public.orders" in fds("status", "orders", "--staging", str(lake.folder / "staging")).stdout


@pytest.mark.parametrize("point", POINTS)
def test_a_run_that_is_killed_loses_and_doubles_no_row(lake, environment, point):
    lake.die(point)
    lake.append(4)
    lake.load()
    assert environment.rows() == lake.ids
    assert environment.run("SELECT sum(rows) FROM fds.batches") == [(4,)]


def test_a_replan_counts_what_landed_as_loaded_and_closes_the_epoch(lake, environment):
    lake.die("driver.commit.after")
    done = lake.move("replan")
    assert done.returncode == 0, done.stderr
    lake.append(4)
    lake.load()
    assert environment.rows() == lake.ids
    assert environment.run("SELECT epoch FROM fds.streams") == [(2,)]


def test_a_driver_that_was_stopped_before_a_replan_is_kept_out(lake, environment):
    with lake.start("stop@driver.commit.before#2") as process:
        try:
            lake.wait_for("stop@driver.commit.before#2", process)
            assert lake.move("unlock", "--force").returncode == 0
            done = lake.move("replan", "--force")
            assert done.returncode == 0, done.stderr
            lake.load()
            assert environment.rows() == lake.ids
            process.send_signal(signal.SIGCONT)
            process.communicate(timeout=300)
        finally:
            process.kill()
    assert environment.rows() == lake.ids
    lake.append(4)
    lake.load()
    assert environment.rows() == lake.ids
    assert environment.run("SELECT epoch FROM fds.streams") == [(2,)]


def test_a_rewind_keeps_the_rows(lake, environment):
    lake.load()
    moved = lake.move("rewind", "--to", "1", "--sink-rows", "keep")
    assert moved.returncode == 0, moved.stderr
    environment.run("DELETE FROM public.orders WHERE id = 3")
    lake.load()
    assert environment.rows() == lake.ids


PROVENANCE = ("--sink-option", "provenance=true")


@pytest.fixture
def with_versions(environment: Database) -> Database:
    """The table has the columns of the source version."""
    environment.run("ALTER TABLE public.orders ADD _source_version bigint, ADD _source_timestamp timestamptz")
    return environment


@pytest.mark.parametrize("point", ["fence.commit.before", "fence.commit.after", "entry.before.opened"])
def test_a_rewind_that_is_killed_while_it_removes_rows_has_each_row_once(lake, with_versions, point):
    environment = with_versions
    lake.load(*PROVENANCE)
    moved = lake.move("rewind", "--to", "1", "--sink-rows", "delete")
    assert moved.returncode == 0, moved.stderr
    assert "rows have no _source_version" in moved.stdout + moved.stderr
    lake.die(point, *PROVENANCE)
    assert environment.rows() == ([1, 2, 3] if point == "fence.commit.before" else [1, 2])
    lake.append(4)
    lake.load(*PROVENANCE)
    assert environment.rows() == lake.ids
    assert environment.run("SELECT digest, rows FROM fds.batches WHERE batch = -1") == [("rows", 1)]


@pytest.mark.parametrize("is_at_work", [False, True], ids=["before the lock", "with the lock"])
def test_a_driver_that_was_stopped_before_a_removal_brings_no_row_back(lake, with_versions, is_at_work):
    lake.load(*PROVENANCE)
    lake.append(4)
    # a driver reaches the point before it asks for the lock, and again before COMMIT
    fault = f"stop@driver.commit.before{'#2' if is_at_work else ''}"
    with lake.start(fault, *PROVENANCE) as process:
        try:
            lake.wait_for(fault, process)
            assert lake.move("unlock", "--force").returncode == 0
            moved = lake.move("rewind", "--to", "1", "--sink-rows", "delete", "--force")
            assert moved.returncode == 0, moved.stderr
            assert "1 committed batch" in moved.stdout
            lake.load(*PROVENANCE)
            assert with_versions.rows() == lake.ids
            process.send_signal(signal.SIGCONT)
            process.communicate(timeout=300)
        finally:
            process.kill()
    lake.append(5)
    lake.load(*PROVENANCE)
    assert with_versions.rows() == lake.ids
    assert with_versions.run("SELECT epoch, digest FROM fds.batches WHERE batch = -1") == [(2, "rows")]


def test_no_epoch_begins_after_rows_that_were_removed_and_the_command_of_the_message_reads_them_again(
    lake, with_versions
):
    lake.load(*PROVENANCE)
    assert lake.move("rewind", "--to", "1", "--sink-rows", "delete").returncode == 0
    lake.die("fence.commit.after", *PROVENANCE)
    assert lake.move("rewind", "--to", "2", "--sink-rows", "keep", "--replace").returncode == 0
    refused = fds(*lake.words(*PROVENANCE))
    assert refused.returncode != 0
    assert "the fence of epoch 2 removed rows from the sink" in refused.stderr
    (command,) = re.findall(r"`fds rewind orders ([^`]*) --sink-rows keep\|delete\|empty --why …`", refused.stderr)
    assert command == "--replace --to 1"
    assert lake.move("rewind", "--sink-rows", "delete", *command.split()).returncode == 0
    lake.load(*PROVENANCE)
    assert with_versions.rows() == lake.ids


def test_a_rewind_to_the_start_empties_the_table_only_of_rows_of_the_stream(lake, with_versions):
    environment = with_versions
    lake.load(*PROVENANCE)
    environment.run("INSERT INTO public.orders (id) VALUES (99)")
    assert lake.move("rewind", "--to", "start", "--sink-rows", "empty").returncode == 0
    refused = fds(*lake.words(*PROVENANCE))
    assert refused.returncode != 0
    assert "it has rows without _source_version" in refused.stderr
    assert environment.rows() == [1, 2, 3, 99]
    environment.run("DELETE FROM public.orders WHERE id = 99")
    lake.load(*PROVENANCE)
    assert environment.rows() == lake.ids


def test_a_table_that_was_restored_without_its_newest_batch_is_noticed(lake, environment):
    lake.load()
    environment.run("DELETE FROM public.orders WHERE id > 3")
    environment.run("DELETE FROM fds.batches WHERE version = (SELECT max(version) FROM fds.batches)")
    environment.run("UPDATE fds.streams SET version = version - 1")
    lake.append(4)
    failed = fds(*lake.words())
    assert failed.returncode != 0
    assert "lacks committed batches" in failed.stderr


def test_a_stream_moves_to_a_delta_table_and_back(lake, environment):
    lake.load()
    moved = lake.move("replan", "--new-sink")
    assert moved.returncode == 0, moved.stderr
    lake.append(4)
    words = [word for word in lake.words() if word not in ("--sink-postgres", "public.orders")]
    done = fds(*words, "--sink", str(lake.folder / "copy"))
    assert done.returncode == 0, done.stderr[-3000:]
    assert environment.rows() == [1, 2, 3]
    assert environment.run("SELECT epoch FROM fds.streams") == [(2,)]
    assert lake.move("replan", "--new-sink").returncode == 0
    lake.append(5)
    lake.load()
    assert environment.rows() == [1, 2, 3, 5]


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_a_lost_ledger_is_recovered_from_the_account(lake, environment, mode):
    options = () if mode == "append" else ("--sink-option", "mode=merge", "--sink-option", "keys=id")
    lake.load(*options)
    lake.append(4)
    lake.load(*options)
    shutil.rmtree(lake.folder / "staging")
    lake.append(5)
    refused = fds(*lake.words(*options))
    assert refused.returncode != 0
    sink = "postgres:///public.orders" + ("" if mode == "append" else "?mode=merge")
    assert f"`fds recover orders --sink {shlex.quote(sink)} --table " in refused.stderr
    moved = lake.move("recover", "--sink", sink, "--table", str(lake.folder / "orders"))
    assert moved.returncode == 0, moved.stderr
    assert "batch 1 of epoch 1 in version 2, up to the beginning of version 3" in moved.stdout
    assert environment.rows() == [1, 2, 3, 4]
    environment.run("UPDATE public.orders SET name = 'kept'")
    lake.load(*options)
    assert environment.rows() == lake.ids
    assert environment.run("SELECT id FROM public.orders WHERE name <> 'kept'") == [(5,)]
    assert environment.run("SELECT epoch, version FROM fds.streams") == [(2, 4)]
    again = lake.move("recover")
    assert "there is nothing to do" in again.stdout, again.stderr


def test_a_lost_ledger_continues_within_what_a_rewind_reads_again(lake, environment):
    options = ("--option", "max_versions_per_batch=1")
    lake.load(*options)
    assert lake.move("rewind", "--to", "0", "--sink-rows", "keep").returncode == 0
    environment.run("DELETE FROM public.orders")
    lake.die("driver.commit.after", *options)
    assert environment.rows() == [1, 2]
    shutil.rmtree(lake.folder / "staging")
    words = ("recover", "--sink", "postgres:///public.orders", "--table", str(lake.folder / "orders"))
    moved = lake.move(*words)
    assert moved.returncode == 0, moved.stderr
    assert "batch 0 of epoch 2" in moved.stdout
    lake.load(*options)
    assert environment.rows() == lake.ids


def test_an_older_copy_of_a_ledger_continues_after_what_the_account_has(lake, environment):
    lake.load()
    shutil.copytree(lake.folder / "staging", lake.folder / "copy")
    lake.append(4)
    lake.load()
    shutil.rmtree(lake.folder / "staging")
    shutil.move(lake.folder / "copy", lake.folder / "staging")
    lake.append(5)
    refused = fds(*lake.words())
    assert refused.returncode != 0
    assert "`fds recover orders --why …`" in refused.stderr
    moved = lake.move("recover")
    assert moved.returncode == 0, moved.stderr
    lake.load()
    assert environment.rows() == lake.ids


def test_an_unreadable_ledger_begins_again_after_what_the_account_has(lake, environment):
    lake.load()
    entries = sorted((lake.folder / "staging" / "orders" / "ledger").glob("*.json"))
    entries[-1].write_text("{")
    moved = lake.move("recover")
    assert moved.returncode == 0, moved.stderr
    lake.append(4)
    lake.load()
    assert environment.rows() == lake.ids


def test_a_position_that_the_account_does_not_determine_is_not_recovered(lake, with_versions):
    lake.load(*PROVENANCE)
    assert lake.move("rewind", "--to", "1", "--sink-rows", "delete").returncode == 0
    lake.die("fence.commit.after", *PROVENANCE)
    shutil.rmtree(lake.folder / "staging")
    words = ("recover", "--sink", "postgres:///public.orders", "--table", str(lake.folder / "orders"))
    refused = lake.move(*words)
    assert refused.returncode != 0
    assert "a fence removed rows there" in refused.stderr
    unknown = lake.move("recover", "--sink", "postgres://warehouse/public.orders", *words[3:])
    assert unknown.returncode != 0
    assert "Connections of Airflow are known to `airflow fds`" in unknown.stderr
    with_versions.run("UPDATE fds.batches SET interval = 'a day' WHERE batch >= 0")
    refused = lake.move(*words)
    assert "reads data intervals" in refused.stderr
    assert with_versions.rows() == [1, 2]


def test_a_report_that_the_account_contradicts_is_refused(lake, environment, monkeypatch):
    lake.load()
    ((uuid, table_id, digest),) = environment.run("SELECT uuid::text, target::text, digest FROM fds.batches")
    stream = SimpleNamespace(stream=SimpleNamespace(name="orders", table="orders"))
    evidence = DatabaseEvidence(stream, PostgresSink("public.orders"))
    batch = ReportedBatch(uuid, 1, 0, digest)
    evidence.check_batch(batch, 1, 3, table_id)
    for wrong in ((batch, 2, 3, table_id), (batch, 1, 4, table_id), (ReportedBatch(uuid, 1, 0, "x"), 1, 3, table_id)):
        with pytest.raises(BatchFailedError, match="does not match the sink"):
            evidence.check_batch(*wrong)
    with pytest.raises(BatchFailedError, match="but the table exists"):
        evidence.check_missing(2)
    monkeypatch.setenv("PGPORT", "1")
    unreachable = DatabaseEvidence(stream, PostgresSink("public.orders"))
    unreachable.check_batch(batch, 7, 7, table_id)


def test_a_driver_of_spark_submit_gets_the_database_from_the_environment(tmp_path, environment):
    lake = Lake(tmp_path, None)
    lake.append(1, 2, 3)
    lake.load()
    assert environment.rows() == lake.ids


def test_a_fleet_loads_its_tables_into_one_schema(tmp_path, environment, connect_server):
    for name, ids in (("orders", [1, 2]), ("returns", [3])):
        deltalake.write_deltalake(tmp_path / "lake" / name, pa.table({"id": ids}))
        environment.run(f"CREATE TABLE IF NOT EXISTS public.{name} (id bigint)")
    file = tmp_path / "streams.yaml"
    file.write_text(
        f"defaults: {{staging: {tmp_path}/staging}}\n"
        f"streams: [{{tables: '{tmp_path}/lake/*', sink: {{kind: postgres, table: 'public.{{table}}'}}}}]\n"
    )
    for _ in range(2):
        done = fds("run", "--file", str(file), "--remote", connect_server.url)
        assert done.returncode == 0, done.stderr[-3000:]
    assert environment.rows() == [1, 2]
    assert environment.run("SELECT id FROM public.returns") == [(3,)]
    assert environment.run("SELECT count(*) FROM fds.streams") == [(2,)]


def test_a_run_merges_by_key_and_a_fleet_merges_its_tables_into_one_schema(lake, environment, tmp_path, connect_server):
    environment.run("INSERT INTO public.orders VALUES (1, 'before', 0)")
    options = ("--sink-option", "mode=merge", "--sink-option", "keys=id")
    lake.load(*options)
    lake.append(4)
    lake.load(*options)
    assert environment.run("SELECT id, name FROM public.orders ORDER BY id")[0] == (1, "name 1")
    assert environment.rows() == lake.ids
    shown = fds("status", "orders", "--staging", str(lake.folder / "staging"), "--output", "json")
    assert json.loads(shown.stdout)["sink"]["target"] == "postgres:///public.orders?mode=merge"
    appended = fds(*lake.words())
    assert "fds replan orders --new-sink" in appended.stderr

    for name in ("returns", "refunds"):
        deltalake.write_deltalake(tmp_path / "more" / name, pa.table({"id": [1, 2]}))
        deltalake.write_deltalake(tmp_path / "more" / name, pa.table({"id": [2, 3]}), mode="append")
        environment.run(f"CREATE TABLE public.{name} (id bigint)")
    file = tmp_path / "streams.yaml"
    file.write_text(
        f"defaults: {{staging: {tmp_path}/staged}}\n"
        f"streams: [{{tables: '{tmp_path}/more/*', starting_version: 0, "
        "sink: {kind: postgres, table: 'public.{table}', mode: merge, keys: [id]}}]\n"
    )
    done = fds("run", "--file", str(file), "--remote", connect_server.url)
    assert done.returncode == 0, done.stderr[-3000:]
    for name in ("returns", "refunds"):
        assert environment.run(f"SELECT id FROM public.{name} ORDER BY id") == [(1,), (2,), (3,)]


def test_a_rewind_of_a_merge_keeps_the_rows_and_merges_them_again(lake, environment):
    options = ("--sink-option", "mode=merge", "--sink-option", "keys=id")
    lake.load(*options)
    for to, rows in (("0", "delete"), ("start", "delete"), ("start", "empty")):
        refused = lake.move("rewind", "--to", to, "--sink-rows", rows)
        assert refused.returncode != 0
        assert f"so --sink-rows {rows} is not available" in refused.stderr
        assert "Use --sink-rows keep, which merges the rows again by their keys" in refused.stderr
    moved = lake.move("rewind", "--to", "0", "--sink-rows", "keep")
    assert moved.returncode == 0, moved.stderr
    assert "merged again by their keys" in moved.stdout + moved.stderr
    environment.run("DELETE FROM public.orders WHERE id = 1")
    lake.load(*options)
    assert environment.rows() == lake.ids
