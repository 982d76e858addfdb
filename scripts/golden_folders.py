"""Make a golden folder: what today's code leaves behind, for the tests of later code.

``python scripts/golden_folders.py [NAME]`` writes ``tests/golden/folders/<NAME>``; the default is the version of FDS.
Run it when a format changes, and commit the result beside the older folders, which stay as they are. The
test ``tests/unit/golden/test_golden_folders.py`` takes every folder that it finds.

Everything is made by real runs: the ``fds`` command, its fleets and actions, tasks in an Airflow of their own, and a
Spark Connect server. A run that must die at one point does so by a fault point (``airflow_provider_fds/fault_points``).
Nothing is written by hand except source tables.

Ledger entries, job specs and manifests hold absolute URIs, and the digests of the entries, of the manifests and of the
specs bind them: a folder whose URIs were rewritten would be one that no FDS has written. So a folder is made at a fixed
neutral place (``tests.golden_folder.PLACE``), and each test puts it back there. A lock keeps two tests, or a test and
this script, from using the place at once.

Names of people and machines are the same everywhere: entries have the user ``ann`` at the host ``golden``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from airflow_provider_fds import __version__  # noqa: E402
from tests import golden_folder as golden  # noqa: E402

PLACE = golden.PLACE
LAKE, SINKS, CHECKPOINTS = PLACE / "lake", PLACE / "sinks", PLACE / "checkpoints"
STAGING = "staging"
#: Time of version 0 of each table; each version is a day later.
FIRST = datetime(2025, 1, 1, 8, tzinfo=UTC)

FUNCTIONS = '''
"""The user's function of the stream `function`."""


def split(rows, batch):
    """Write the rows to two tables."""
    for name, part in (("even", rows.where("id % 2 = 0")), ("odd", rows.where("id % 2 = 1"))):
        part.write.format("delta").mode("append").options(**batch.txn_options(name)).save(
            f"/tmp/fds-golden/sinks/{name}"
        )
'''

FLEET = """
defaults:
  sink: /tmp/fds-golden/sinks/fleet_{table}
  checkpoint: file:/tmp/fds-golden/checkpoints/{name}.file

groups:
  nightly:
    parallelism: 2

streams:
  - table: /tmp/fds-golden/lake/changes
    name: fleet_changes
    group: nightly
    read_change_feed: true
    starting_version: 1
    sink:
      kind: delta_merge
      keys: [id]
  - tables: /tmp/fds-golden/lake/shop_*
    name: fleet_{table}
    group: nightly
    starting_version: 0
"""

DAGS = """
from datetime import datetime, timezone

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, CronDataIntervalTimetable
from airflow_provider_fds import (
    DeltaCommitOperator, DeltaIngestOperator, DeltaPlanOperator, DeltaReplaceSink, DeltaStream, DeltaAppendSink,
    ForeachBatchSink,
)

LAKE, SINKS = "/tmp/fds-golden/lake", "/tmp/fds-golden/sinks"
BEGIN = datetime(2025, 1, 1, tzinfo=timezone.utc)
DAILY = CronDataIntervalTimetable("0 0 * * *", timezone="UTC")


def stream(name, **more):
    return DeltaStream(name, table=LAKE + "/orders", **more)


def load(one, sink):
    DeltaIngestOperator(task_id="load", stream=one, sink=sink, conn_id="warm")


{dag}
"""

#: Streams that Airflow's tasks load: the body of a DAG file by its id.
TASKS = {
    "in_variable": """
with DAG("in_variable", schedule=None, start_date=BEGIN):
    load(stream("in_variable", starting_version=3), DeltaAppendSink(SINKS + "/in_variable"))
""",
    "in_asset": """
with DAG("in_asset", schedule=None, start_date=BEGIN):
    load(stream("in_asset", starting_version=3, checkpoint="asset"), DeltaAppendSink(SINKS + "/in_asset"))
""",
    "user_job": """
with DAG("user_job", schedule=None, start_date=BEGIN):
    plan = DeltaPlanOperator(task_id="plan", stream=stream("user_job", starting_version=3, checkpoint="xcom"))
    plan >> EmptyOperator(task_id="load") >> DeltaCommitOperator(task_id="commit", batch=plan.output)
""",
    "function": """
with DAG("function", schedule=None, start_date=BEGIN):
    writes = {name: f"{SINKS}/{name}" for name in ("even", "odd")}
    sink = ForeachBatchSink("golden_functions:split", writes=writes)
    load(stream("function", starting_version=2, max_versions_per_batch=1), sink)
""",
    "days_appended": """
with DAG("days_appended", schedule=DAILY, start_date=BEGIN, catchup=False):
    load(stream("days_appended", read="data_interval"), DeltaAppendSink(SINKS + "/days_appended"))
""",
    "days_replaced": """
with DAG("days_replaced", schedule=DAILY, start_date=BEGIN, catchup=False):
    load(stream("days_replaced", read="data_interval"), DeltaReplaceSink(SINKS + "/days_replaced", provenance=True))
""",
}


class Maker:
    """Makes a folder, step by step.

    Args:
        remote: URL of the Spark Connect server.
        installation: The Airflow of this process.
    """

    def __init__(self, remote: str, installation: Any) -> None:
        self.remote = remote
        self._installation = installation
        self._ids = 0
        self.streams: list[golden.GoldenStream] = []

    # tables

    def append(self, table: str, *, rows: int = 3, miscounted: bool = False, has_feed: bool = False) -> None:
        """Append a few rows to a table, at the time of the version."""
        import deltalake
        import pyarrow as pa

        ids = list(range(self._ids, self._ids + rows))
        self._ids += rows
        times = pa.array([FIRST + timedelta(minutes=one) for one in ids], pa.timestamp("us", "UTC"))
        data = pa.table({"id": ids, "name": [f"n{one}" for one in ids], "at": times})
        feed = {"delta.enableChangeDataFeed": "true"} if has_feed else None
        deltalake.write_deltalake(LAKE / table, data, mode="append", configuration=feed)
        self.set_time(table)
        if miscounted:
            commit = self._commits(table)[-1]
            text = commit.read_text().replace(f'\\"numRecords\\":{rows}', f'\\"numRecords\\":{rows + 1}')
            commit.write_text(text)
            self.set_time(table)

    def set_time(self, table: str) -> None:
        """Give the newest commit of a table its time."""
        commits = self._commits(table)
        when = (FIRST + timedelta(days=len(commits) - 1)).timestamp()
        os.utime(commits[-1], (when, when))

    def delete(self, table: str, predicate: str) -> None:
        """Delete rows of a table."""
        import deltalake

        deltalake.DeltaTable(LAKE / table).delete(predicate)
        self.set_time(table)

    def compact(self, table: str) -> None:
        """Add a commit without data."""
        import deltalake

        deltalake.DeltaTable(LAKE / table).optimize.compact()
        self.set_time(table)

    @staticmethod
    def _commits(table: str) -> list[Path]:
        return sorted((LAKE / table / "_delta_log").glob("0*.json"))

    # runs

    def fds(self, *words: str, code: int | None = 0) -> None:
        """Run the ``fds`` command; ``code`` is the exit code that it must have, ``None``: any other than 0."""
        print("$ fds", *words, flush=True)
        # each run is an owner of its own
        found = subprocess.run([sys.executable, __file__, "--fds", *words], check=False).returncode
        if found != code if code is not None else found <= 0:
            raise RuntimeError(f"fds {words[0]} ended with {found}")

    def run(
        self, name: str, table: str, *more: str, options: dict[str, Any], code: int | None = 0, **known: Any
    ) -> None:
        """Load a stream with ``fds run``; the last call is its declaration."""
        self.fds(*self.run_words(name, table, *more, options=options), code=code)
        self.declare(name, table, options, provenance="provenance=yes" in more, **known)

    def run_words(self, name: str, table: str, *more: str, options: dict[str, Any]) -> list[str]:
        """Return the arguments of ``fds run``."""
        return [
            *(
                "run",
                str(LAKE / table),
                "--stream",
                name,
                "--sink",
                str(SINKS / name),
                "--staging",
                str(PLACE / STAGING),
            ),
            *("--checkpoint", str(CHECKPOINTS / f"{name}.file"), "--remote", self.remote, *more),
            *(word for key, value in options.items() for word in ("--option", f"{key}={value}")),
        ]

    def declare(
        self,
        name: str,
        table: str,
        options: dict[str, Any],
        *,
        staging: str = STAGING,
        provenance: bool = False,
        sink: str = "",
    ) -> None:
        """Remember a stream of the command line."""
        from airflow_provider_fds import DeltaAppendSink, DeltaStream

        stream = DeltaStream(name, str(LAKE / table), checkpoint=f"file:{CHECKPOINTS / name}.file", options=options)
        target = DeltaAppendSink(str(SINKS / (sink or name)), provenance=provenance)
        self.keep(golden.GoldenStream(staging, stream.to_dict(), target.to_dict()))

    def keep(self, stream: golden.GoldenStream) -> None:
        """Remember a stream, instead of its earlier declaration."""
        self.streams = [*(one for one in self.streams if one.key != stream.key), stream]

    def act(self, action: str, name: str, *more: str, code: int | None = 0) -> None:
        """Do something to a stream as a person does it."""
        self.fds(action, name, "--why", f"a golden {action}", "--staging", str(PLACE / STAGING), *more, code=code)

    def dying(self, point: str, words: list[str]) -> None:
        """Run the ``fds`` command in a process that dies at a fault point."""
        with tempfile.TemporaryDirectory() as marks:
            environment = {**os.environ, "FDS_TEST_FAULTS": f"kill@{point}", "FDS_TEST_FAULT_MARKS": marks}
            done = subprocess.run([sys.executable, __file__, "--fds", *words], env=environment, check=False)
        if done.returncode != -signal.SIGKILL:
            raise RuntimeError(f"fds {words[0]} did not die at {point}: {done.returncode}")

    def task(self, name: str, *, state: str = "success", **more: Any) -> Any:
        """Run the DAG of a stream once; return the run."""
        print("DAG", name, more, flush=True)
        dag = self._installation._load(DAGS.replace("{dag}", TASKS[name]), f"{name}.py")  # noqa: SLF001  # as its own tests do
        run = self._installation.run(dag, **more)
        if set(run.states.values()) != {state}:
            raise RuntimeError(f"DAG {name}: {run.states}")
        task = dag.task_dict.get("load")
        stream = getattr(task, "stream", None) or dag.task_dict["plan"].stream
        sink = getattr(task, "sink", None)
        rewind = ["--landed", "no"] if name == "function" else []
        interval = None
        if stream.reads_by_interval:
            interval = [(FIRST.replace(hour=0) + timedelta(days=day)).isoformat() for day in (3, 4)]
        kept = golden.GoldenStream(
            STAGING, stream.to_dict(), None if sink is None else sink.to_dict(), sink is None, interval, rewind
        )
        self.keep(kept)
        return run


def make(maker: Maker) -> None:
    """Make everything but the facts."""
    (PLACE / "jobs").mkdir()
    (PLACE / "jobs" / "golden_functions.py").write_text(FUNCTIONS.lstrip())
    (PLACE / "streams.yaml").write_text(FLEET.lstrip())
    sys.path.insert(0, str(PLACE / "jobs"))
    for _ in range(4):
        maker.append("orders")
    _by_offset(maker)
    _decisions(maker)
    _asked(maker)
    _places(maker)
    _by_name(maker)
    _in_cluster(maker)
    _fleet(maker)
    _tasks(maker)


def _by_offset(maker: Maker) -> None:
    """Plans, commits, moves without data, changed options, people's words, a rewind, and a plan that is left."""
    from airflow_provider_fds import DeltaAppendSink, DeltaStream

    options = {"starting_version": 0, "max_versions_per_batch": 1, "event_time_column": "at"}
    load = ("orders", "orders", "--sink-option", "provenance=yes")
    maker.run(*load, options=options)
    maker.compact("orders")
    maker.run(*load, options={**options, "starting_version": 1})
    maker.act("hold", "orders")
    maker.act("resume", "orders")
    maker.append("orders")
    plan: tuple[str, ...] = ("plan", str(LAKE / "orders"), "--stream", "orders", "--staging", str(PLACE / STAGING))
    plan = (*plan, *(word for key, value in options.items() for word in ("--option", f"{key}={value}")))
    maker.fds(*plan)
    maker.run(*load, options=options)
    for _ in range(2):
        maker.append("orders")
    maker.act("skip", "orders", "--version", "7", "--yes")
    maker.act("skip", "orders", "--version", "6", "--yes")
    maker.act("rewind", "orders", "--to", "3", "--sink-rows", "delete", "--yes")
    maker.run(*load, options=options)
    for _ in range(2):
        maker.append("orders")
    maker.fds(*plan)

    # a stream that began late, and its backfill
    maker.run("late", "orders", options={"starting_version": 4})
    backfill = ("backfill", "late", "--staging", str(PLACE / STAGING), "--remote", maker.remote)
    maker.fds(*backfill, "--checkpoint", str(CHECKPOINTS / "late.bf.file"))
    late = DeltaStream("late", str(LAKE / "orders"), checkpoint=f"file:{CHECKPOINTS / 'late.bf.file'}").backfill()
    maker.keep(golden.GoldenStream(STAGING, late.to_dict(), DeltaAppendSink(str(SINKS / "late")).to_dict()))

    # an initial snapshot that is loaded half, and a fork of it
    for _ in range(3):
        maker.append("customers")
    options = {"max_files_per_batch": 1}
    maker.run("snapshot", "customers", "--max-batches", "1", options=options)
    maker.fds("fork", "snapshot", "snapshot_fork", "--yes", "--staging", str(PLACE / STAGING))
    maker.run("snapshot_fork", "customers", "--max-batches", "1", options=options)


def _decisions(maker: Maker) -> None:
    """Streams that have ended, that stop, and whose sink has something that their ledger does not know."""
    options: dict[str, Any] = {"starting_version": 0, "ending_timestamp": (FIRST + timedelta(days=1.5)).isoformat()}
    maker.run("bounded", "orders", options=options)
    maker.act("retire", "bounded", "--yes")

    for _ in range(2):
        maker.append("deletions")
    maker.delete("deletions", "id % 2 = 0")
    options = {"starting_version": 0, "on_violation": "quarantine"}
    maker.run("quarantined", "deletions", options=options, code=None)
    maker.run("quarantined", "deletions", options=options, code=None)

    options = {"starting_version": 0, "max_versions_per_batch": 1}
    maker.append("miscounted", miscounted=True)
    maker.run("blocked", "miscounted", options=options, code=None)
    maker.act("accept", "blocked", "--batch", "0", "--yes")
    maker.run("blocked", "miscounted", options=options)
    maker.append("miscounted", miscounted=True)
    maker.run("blocked", "miscounted", options=options, code=None)

    # a batch lands, its run dies, and a person rewinds the stream: the next run shows the batch
    maker.dying("driver.report.before", maker.run_words("shown", "customers", options={"starting_version": 0}))
    maker.act("rewind", "shown", "--to", "0", "--sink-rows", "keep", "--yes")
    maker.run("shown", "customers", options={"starting_version": 0}, code=None)


def _asked(maker: Maker) -> None:
    """Streams that stop at a batch which leaves out too many rows, and one whose next versions are gone."""
    import deltalake

    from airflow_provider_fds import DeltaAppendSink, DeltaStream

    options: dict[str, Any] = {"starting_version": 0, "max_versions_per_batch": 1, "on_violation": "ask"}
    for name in ("too_many", "let_through"):
        words = ("--expect", "name = ''=drop", "--max-rejected", "0.5")
        maker.fds(*maker.run_words(name, "customers", *words, options=options), code=None)
        expecting: dict[str, Any] = {"expect": {"name = ''": "drop"}, "max_rejected": 0.5}
        checkpoint = f"file:{CHECKPOINTS / name}.file"
        stream = DeltaStream(name, str(LAKE / "customers"), checkpoint=checkpoint, options=options, **expecting)
        maker.keep(golden.GoldenStream(STAGING, stream.to_dict(), DeltaAppendSink(str(SINKS / name)).to_dict()))
    maker.act("accept", "let_through", "--batch", "0", "--yes")

    options = {"starting_version": 0, "on_violation": "quarantine"}
    maker.append("cleaned_up")
    maker.run("lost", "cleaned_up", options=options)
    for _ in range(4):
        maker.append("cleaned_up")
    deltalake.DeltaTable(LAKE / "cleaned_up").create_checkpoint()
    for commit in maker._commits("cleaned_up")[:4]:  # noqa: SLF001  # as log cleanup does
        commit.unlink()
    maker.run("lost", "cleaned_up", options=options, code=None)


def _places(maker: Maker) -> None:
    """Streams that were moved to another staging folder or another Airflow, and one whose ledger was lost."""
    maker.run("moved", "customers", options={"starting_version": 0})
    maker.act("hold", "moved")
    (PLACE / "exports").mkdir()
    archive = str(PLACE / "exports" / "moved.zip")
    maker.fds("admin", "export", "moved", archive, "--staging", str(PLACE / STAGING))
    maker.fds("admin", "import", archive, "--staging", str(PLACE / "other-staging"), "--deployment", "other", "--yes")
    maker.declare("moved", "customers", {"starting_version": 0}, staging="other-staging")

    # to another Airflow, and back
    maker.run("relocated", "customers", options={"starting_version": 0})
    for deployment in ("other", "cli"):
        maker.act("transfer", "relocated", "--deployment", deployment, "--yes")

    options = {"starting_version": 0, "max_versions_per_batch": 1}
    maker.run("recovered", "customers", options=options)
    shutil.rmtree(PLACE / STAGING / "recovered")
    places = ("--table", str(LAKE / "customers"), "--sink", str(SINKS / "recovered"))
    maker.act("recover", "recovered", *places, "--checkpoint", str(CHECKPOINTS / "recovered.file"), "--yes")
    maker.run("recovered", "customers", options=options)


def _by_name(maker: Maker) -> None:
    """Streams that have found their tables by name in a Hive metastore; later they are given by their URIs.

    One table is moved by its catalog, and its stream goes on in the new folder, which a person has accepted.
    """
    from tests.interop.catalog.metastore import metastore_program, move, register

    options = {"starting_version": 0}

    def load(name: str, table: str, code: int | None = 0) -> None:
        words = maker.run_words(name, table, "--catalog", uri, options=options)
        maker.fds(*(f"default.{table}" if word == str(LAKE / table) else word for word in words), code=code)

    maker.append("parcels")
    with tempfile.TemporaryDirectory() as folder, metastore_program(Path(folder)) as program:
        uri = f"thrift://127.0.0.1:{program.receive('port')}"
        register(uri, "default.customers", (LAKE / "customers").as_uri())
        load("named", "customers")

        register(uri, "default.parcels", (LAKE / "parcels").as_uri())
        load("named_moved", "parcels")
        (LAKE / "parcels").rename(LAKE / "parcels_moved")
        move(uri, "default.parcels", (LAKE / "parcels_moved").as_uri())
        maker.append("parcels_moved")
        load("named_moved", "parcels", code=None)
        maker.act("accept", "named_moved", "--moved-to", (LAKE / "parcels_moved").as_uri(), "--yes")
        load("named_moved", "parcels")
    maker.declare("named", "customers", options)
    maker.declare("named_moved", "parcels_moved", options)


def _in_cluster(maker: Maker) -> None:
    """A plan on which a driver in a cluster works, as a task leaves it whose process has died."""
    from airflow_provider_fds.sinks import sink_from_dict

    options = {"starting_version": 0, "max_versions_per_batch": 1}
    maker.run("in_cluster", "orders", "--max-batches", "1", options=options)
    one = maker.streams[-1]
    assert one.sink is not None
    session: Any = one.session()
    sink = sink_from_dict(one.sink)
    work = session.begin(sink)
    session.job(work, sink)
    driver = "driver-20250101080000-0000"
    session.driver.write(work, cluster="standalone", address="http://127.0.0.1:6066", driver=driver)


def _fleet(maker: Maker) -> None:
    """A fleet that runs twice and then dies, which leaves the spec of its application."""
    from airflow_provider_fds.fleet.streams_file.file import read_fleet_file

    maker.append("changes", has_feed=True)
    maker.append("changes")
    maker.delete("changes", "id % 2 = 0")
    for table in ("shop_a", "shop_b"):
        maker.append(table)
    file = PLACE / "streams.yaml"
    run = ["run", "--file", str(file), "--staging", str(PLACE / STAGING), "--remote", maker.remote]
    maker.fds(*run)
    maker.append("shop_a")
    maker.fds(*run)
    maker.append("shop_b")
    maker.dying("driver.started", run)
    (group,) = read_fleet_file(file).groups
    (pattern,) = group.patterns
    (record,) = (PLACE / STAGING / ".fleets").glob("*.tables.json")
    (tables,) = json.loads(record.read_bytes())["patterns"].values()
    for one in (*group.streams, *map(pattern.stream_of, tables.values())):
        maker.keep(golden.GoldenStream(STAGING, one.stream.to_dict(), one.sink.to_dict()))


def _tasks(maker: Maker) -> None:
    """Streams that Airflow's tasks load, with checkpoints in Airflow, and the triggers of tasks that wait."""
    for name in ("in_variable", "in_asset", "function"):
        maker.task(name)
    by_hand = maker.task("user_job")
    day = FIRST.replace(hour=0)
    for name in ("days_appended", "days_replaced"):
        for number in (2, 1):
            maker.task(name, logical_date=day + timedelta(days=number))
    maker.task("days_replaced", logical_date=day + timedelta(days=2))
    _airflow_checkpoints(by_hand)
    _triggers(maker)


def _airflow_checkpoints(by_hand: Any) -> None:
    """Take the checkpoints out of Airflow's database, as it has them."""
    from airflow.models.asset_state_store import AssetStateStoreModel
    from airflow.models.variable import Variable
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        variables = session.scalars(select(Variable)).all()
        (state,) = session.scalars(select(AssetStateStoreModel)).all()
        values = {f"{one.key.removeprefix('fds.')}.variable": one.val for one in variables}
        values["in_asset.asset"] = state.value
    stored = by_hand.xcom("commit", "fds_checkpoint.user_job")
    values["user_job.xcom"] = json.loads(stored) if stored.startswith('"') else stored
    for name, value in values.items():
        (CHECKPOINTS / name).write_text(value)


def _triggers(maker: Maker) -> None:
    """Write what Airflow stores of each trigger, its class and its arguments: those with which tasks defer."""
    from airflow_provider_fds import (
        DeltaAppendSink,
        DeltaFleetOperator,
        DeltaIngestOperator,
        DeltaStream,
        DeltaStreamMonitorOperator,
        DeltaTableVersionSensor,
        FleetStream,
        StreamAlerts,
    )
    from airflow_provider_fds.triggers.delta_table_change import DeltaTableChangeTrigger
    from airflow_provider_fds.triggers.driver_reports import DriverReportsTrigger
    from airflow_provider_fds.triggers.fleet_reports import FleetReportsTrigger
    from airflow_provider_fds.triggers.stream_decision import StreamDecisionTrigger

    def waiting(name: str, **options: Any) -> DeltaStream:
        place = f"file:{CHECKPOINTS / name}.file"
        return DeltaStream(name, str(LAKE / "shop_a"), checkpoint=place, starting_version="latest", **options)

    day = FIRST.replace(hour=0, year=2100)
    context = _context(data_interval_start=day, data_interval_end=day + timedelta(days=1))
    sinks = {name: DeltaAppendSink(str(SINKS / name)) for name in ("waiting", "waiting_fleet")}
    days = DeltaStream("waiting_days", str(LAKE / "orders"), read="data_interval")
    timed = waiting("waiting_at", event_time_column="at")
    fleet = [FleetStream(waiting("waiting_fleet"), sinks["waiting_fleet"])]
    times: dict[str, Any] = {"poke_interval": 30, "timeout": 3600, "deferrable": True}
    tasks = [
        DeltaIngestOperator(
            task_id="ingest", stream=waiting("waiting"), sink=sinks["waiting"], conn_id="warm", wait=True
        ),
        DeltaTableVersionSensor(task_id="data", stream=waiting("waiting"), **times),
        DeltaTableVersionSensor(task_id="days", stream=days, wait_for="interval_complete", grace=600, **times),
        DeltaTableVersionSensor(
            task_id="at", stream=timed, wait_for="watermark", at="2100-01-01T00:00:00+00:00", **times
        ),
        DeltaTableVersionSensor(task_id="table", table=str(LAKE / "shop_a"), version=99, **times),
        DeltaFleetOperator(task_id="fleet", streams=fleet, conn_id="warm", wait=True),
        DeltaStreamMonitorOperator(task_id="monitor", alerts=StreamAlerts(lag=timedelta(days=9))),
    ]
    found = {task.task_id: _deferral(task, context) for task in tasks}
    found["watcher"] = DeltaTableChangeTrigger(table=str(LAKE / "orders"), poll_interval=30, name="second")
    found["stream_watcher"] = DeltaTableChangeTrigger(stream=waiting("waiting"))
    asked: dict[str, Any] = {"ti_id": "01a2254b-ea43-71ec-96cc-05d0e3d0f0f5", "version": 2, "until": 4102444800.0}
    found["decision"] = StreamDecisionTrigger(stream="waiting", staging=str(STAGING), **asked)
    attempt = "20250101T080000-0123456789ab"
    driver: dict[str, Any] = {
        "staging": str(STAGING),
        "cluster": {"kind": "standalone", "master": "spark://golden:7077", "rest_port": 6066},
        "address": "http://golden:6066",
        "driver": "driver-20250101080000-0000",
        "commit_after": 4102444800.0,
    }
    found["driver"] = DriverReportsTrigger(
        reports="waiting/attempts",
        epoch=1,
        batch_ids=[0, 1],
        attempt_id=attempt,
        resume={"began": 1735718400.0, "own_attempt": attempt},
        **driver,
    )
    found["fleet_driver"] = FleetReportsTrigger(
        progress=f".fleets/waiting/{attempt}.progress.json",
        streams=["waiting", "waiting_fleet"],
        reported=1,
        resume={"began": 1735718400.0, "own_attempt": driver["driver"]},
        **driver,
    )
    for name, sink in sinks.items():
        maker.keep(golden.GoldenStream(STAGING, waiting(name).to_dict(), sink.to_dict()))
    (PLACE / "triggers").mkdir()
    for name, trigger in found.items():
        path, arguments = trigger.serialize()
        text = json.dumps({"classpath": path, "kwargs": arguments}, indent=1)
        (PLACE / "triggers" / f"{name}.json").write_text(text + "\n")


def _context(**more: Any) -> dict[str, Any]:
    """Return the part of a task's context that is read before a task defers."""
    ti = SimpleNamespace(
        dag_id="waiting",
        task_id="wait",
        run_id="run",
        map_index=-1,
        try_number=1,
        start_date=FIRST,
        get_dr_count=lambda **_: 0,
        get_task_states=lambda **_: {},
        xcom_push=lambda **_: None,
        xcom_pull=lambda **_: None,
    )
    return {
        "ti": ti,
        "task_instance": ti,
        "dag_run": SimpleNamespace(run_id="run", run_type="manual", **more, run_after=None),
        "outlet_events": {},
        **more,
    }


def _deferral(task: Any, context: dict[str, Any]) -> Any:
    """Return the trigger with which a task defers."""
    from airflow.providers.common.compat.sdk import TaskDeferred

    try:
        task.execute(context)
    except TaskDeferred as deferred:
        return deferred.trigger
    raise RuntimeError(f"task {task.task_id} did not defer")


def _facts(streams: list[golden.GoldenStream], place: golden.GoldenPlace, folder: Path) -> dict[str, Any]:
    """Return the facts that later code must find, as today's code finds them."""
    facts: dict[str, Any] = {"streams": {}}
    ledgers = {path.parent.relative_to(PLACE).as_posix() for path in PLACE.glob("*staging/[!.]*/ledger")}
    if ledgers != (declared := {one.key for one in streams}):
        raise RuntimeError(f"not declared: {ledgers - declared}; without a ledger: {declared - ledgers}")
    for one in sorted(streams, key=lambda one: one.key):
        place.put_back(folder)
        found: dict[str, Any] = {"declared": asdict(one)}
        found |= {"state": one.state(), "status": one.status(), "history": one.history()}
        one.append()
        found |= {"left": one.left(), "continued": one.continued()}
        place.put_back(folder)
        found["rewound"] = one.rewound()
        facts["streams"][one.key] = found
    place.put_back(folder)
    facts["checkpoints"] = {path.name: golden.facts_of_checkpoint(path) for path in sorted(CHECKPOINTS.iterdir())}
    files = {str(path.relative_to(PLACE)): golden.facts_of_file(path) for path in golden.all_files()}
    facts["files"] = {name: found for name, found in files.items() if found is not None}
    return facts


def _lines(facts: dict[str, dict[str, Any]]) -> str:
    """Return the facts as JSON with a line for each stream, checkpoint and file."""
    parts = []
    for kind, named in facts.items():
        rows = ",\n".join(f" {json.dumps(name)}: {json.dumps(one, sort_keys=True)}" for name, one in named.items())
        parts.append(f"{json.dumps(kind)}: {{\n{rows}\n}}")
    return "{" + ",\n".join(parts) + "}"


def _known_names() -> None:
    """Let entries have the same user and host wherever a folder is made."""
    os.environ["LOGNAME"] = "ann"
    socket.gethostname = lambda: "golden"


def main(name: str, *, replace: bool) -> None:
    """Make the folder ``name``."""
    folder = golden.FOLDERS / name
    if folder.exists() and not replace:
        raise SystemExit(f"{folder} exists; golden folders do not change. Give another name")
    # its import makes an Airflow of this process
    from tests.airflow.conftest import HOME, Installation
    from tests.interop.connect_server import running_server

    os.environ["AIRFLOW__FDS__STAGING"] = (PLACE / STAGING).as_uri()
    with tempfile.TemporaryDirectory() as server, golden.reserved() as place:
        from airflow.utils.db import initdb

        initdb()
        place.begin()
        CHECKPOINTS.mkdir()
        with running_server(Path(server)) as spark:
            connection = {"conn_type": "spark_connect", "host": "127.0.0.1", "port": spark.port, "login": "fds"}
            os.environ["AIRFLOW_CONN_WARM"] = json.dumps(connection)
            maker = Maker(spark.url, Installation())
            make(maker)
        shutil.rmtree(folder, ignore_errors=True)
        place.keep(folder)
        facts = _facts(maker.streams, place, folder)
        (folder / "expected.json").write_text(_lines(facts) + "\n")
    shutil.rmtree(HOME, ignore_errors=True)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder}: {len(maker.streams)} streams, {size / 1000:,.0f} kB")


if __name__ == "__main__":
    _known_names()
    if sys.argv[1:2] == ["--fds"]:
        from airflow_provider_fds.cli.main import main as fds

        sys.exit(fds(sys.argv[2:]))
    parser = argparse.ArgumentParser(description="Make a golden folder.")
    parser.add_argument("name", nargs="?", default=__version__, help="default: the version of FDS")
    parser.add_argument("--replace", action="store_true", help="make an existing folder again, before it is committed")
    arguments = parser.parse_args()
    main(arguments.name, replace=arguments.replace)
