"""A fleet on a real Spark: many streams in one application, each with its own rows, reports and fate."""

from __future__ import annotations

import shutil
import sys
import textwrap
import threading
from contextlib import contextmanager
from dataclasses import replace
from uuid import uuid4

import pytest

from airflow_provider_fds.batch.fleet_spec import FleetJob, FleetProgress, FleetSpec, fleet_name
from airflow_provider_fds.batch.report import FenceReport, decode, fence_report_name
from airflow_provider_fds.batch.spec import Expectations, FenceSpec
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink, ForeachBatchSink
from airflow_provider_fds.spark.application.fleet_job import ClassicSpark, Fleet, run_fleet
from airflow_provider_fds.spark.runtime.settings import session_conf
from airflow_provider_fds.spark.submission.launch import run_locally
from airflow_provider_fds.spark.writers.rows import rejects_table
from tests.interop.spark.conftest import Stream
from tests.interop.spark.test_rejects import epoch_two, fenced, ids

pytestmark = pytest.mark.timeout(300)

FUNCTIONS = """
import threading

go_on = threading.Event()
seen = {}

def raises(df):
    raise KeyError("no such column")

def hangs(df):
    go_on.wait(120)
    return df

def exits(df):
    raise SystemExit(3)

def sets(df, batch):
    spark = df.sparkSession
    seen.setdefault(batch.stream, []).append(spark.conf.get("spark.sql.shuffle.partitions"))
    spark.conf.set("spark.sql.shuffle.partitions", "7")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    df.createOrReplaceTempView("news")
    return df.count()
"""


@pytest.fixture
def functions(tmp_path, monkeypatch):
    """The module of the user's functions."""
    name = f"fleet_functions_{uuid4().hex[:8]}"
    (tmp_path / f"{name}.py").write_text(textwrap.dedent(FUNCTIONS))
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    sys.modules.pop(name, None)


class Streams:
    """Streams in folders of their own, and the fleet of their jobs."""

    def __init__(self, folder, source):
        self.folder = folder
        self.source = source
        self.all = {}
        self.specs = {}
        self.jobs = []

    def add(self, name, *, sink=None, timeout=None, batches=None, source=None):
        folder = self.folder / name
        folder.mkdir()
        stream = self.all[name] = Stream(folder, source or self.source)
        planned = [replace(batch, stream=name) for batch in stream.plan()][:batches]
        spec = self.specs[name] = stream.job(*planned, sink=sink(stream) if sink else None)
        num_bytes = sum(batch.num_bytes for batch in planned)
        self.jobs.append(FleetJob(name, stream.save(spec), num_bytes, timeout))
        return stream

    def spec(self, **fields):
        return FleetSpec(tuple(self.jobs), **{"parallelism": 3, **fields})

    def reports(self, name):
        return self.all[name].read_reports(self.specs[name])

    def outcomes(self, name):
        return [report.outcome for report in self.reports(name)]

    def ids(self, spark, name):
        rows = spark.read.format("delta").load(str(self.all[name].sink_path)).select("id").collect()
        return sorted(row.id for row in rows)


@pytest.fixture
def streams(tmp_path, source_template):
    return Streams(tmp_path, source_template)


def test_each_stream_has_its_own_fate(spark, streams, functions, tmp_path, capsys):
    batches = {"one": 1, "two": 2, "three": 3}
    for name, number in batches.items():
        streams.add(name, batches=number)
    other = streams.add("other_schema")
    spark.range(3).selectExpr("'x' AS id", "array(1) AS p").write.format("delta").save(str(other.sink_path))
    streams.add("raises", sink=lambda s: DeltaAppendSink(str(s.sink_path), transform=f"{functions}:raises"))
    streams.add("hangs", sink=lambda s: DeltaAppendSink(str(s.sink_path), transform=f"{functions}:hangs"), timeout=3.0)
    streams.add("exits", sink=lambda s: DeltaAppendSink(str(s.sink_path), transform=f"{functions}:exits"))
    progress = tmp_path / "progress.json"
    spec = streams.spec(progress=progress.as_uri())
    fleet = Fleet(spec, ClassicSpark(spark), lambda uri, data: progress.write_bytes(data))
    ended = fleet.run()

    assert {name: ended[name] for name in batches} == dict.fromkeys(batches, "done")
    for name, number in batches.items():
        assert streams.outcomes(name) == ["written"] * number
        assert streams.ids(spark, name) == list(range(10 * number))
        assert [report.batch_id for report in streams.reports(name)] == list(range(number))
    failures = {name: streams.reports(name) for name in ("other_schema", "raises", "hangs", "exits")}
    assert {name: [(r.outcome, r.retryable) for r in found] for name, found in failures.items()} == {
        "other_schema": [("failed", False)],
        "raises": [("failed", False)],
        "hangs": [("failed", True)],
        "exits": [("failed", True)],
    }
    assert failures["raises"][0].error_class == "USER_FUNCTION_FAILED"
    assert failures["hangs"][0].error_class == "BATCH_TIMED_OUT"
    assert "SystemExit: 3" in failures["exits"][0].error_message
    assert [ended[name] for name in failures] == ["failed"] * 4
    assert FleetProgress.from_json(progress.read_bytes()).ended == ended
    out = capsys.readouterr().out
    assert "FDS stream one: batch 0 written: 10 rows, sink version 0, " in out
    assert "FDS fleet: 3 of 7 streams done, 0 running, 4 failed, 0 waiting" in out

    # the step that hung goes on, and finds that it was given up
    assert fleet._schedule.has_hanging_threads
    hung = [thread for thread in threading.enumerate() if thread.name.startswith("fds-fleet-")]
    sys.modules[functions].go_on.set()
    for thread in hung:
        thread.join(60)
    assert streams.outcomes("hangs") == ["failed"]
    # whatever it wrote, the next attempt has the batch once
    stream = streams.all["hangs"]
    retry = stream.job(*streams.specs["hangs"].batches)
    stream.work(spark, retry)
    assert streams.ids(spark, "hangs") == list(range(30))


def test_settings_of_one_stream_do_not_reach_the_others(spark, streams, functions):
    keys = ("spark.sql.shuffle.partitions", "spark.sql.ansi.enabled")
    before = {key: spark.conf.get(key, None) for key in keys}
    streams.add("merges", sink=lambda s: DeltaMergeSink(str(s.sink_path), keys=("id",)), batches=2)
    streams.add("packs", sink=lambda s: DeltaAppendSink(str(s.sink_path), target_file_size="1g"), batches=2)
    streams.add("calls", sink=lambda _: ForeachBatchSink(f"{functions}:sets"), batches=2)
    streams.add("calls_too", sink=lambda _: ForeachBatchSink(f"{functions}:sets"), batches=2)
    for number in range(2):
        streams.add(f"appends_{number}", batches=2)
    run_fleet(spark, streams.spec(parallelism=4))

    for name in streams.all:
        assert streams.outcomes(name) == ["written"] * 2, [r.error_message for r in streams.reports(name)]
    for name in ("merges", "packs", "appends_0", "appends_1"):
        assert streams.ids(spark, name) == list(range(20))
    assert {key: spark.conf.get(key, None) for key in keys} == before
    # as in a job of its own: what a function sets holds for the later batches of its stream, and for nothing else
    assert sys.modules[functions].seen == {name: ["2", "7"] for name in ("calls", "calls_too")}
    assert spark.conf.get("spark.databricks.delta.optimizeWrite.enabled", None) is None
    assert not spark.catalog.tableExists("news")


def test_streams_that_reject_rows_again_at_once_each_do_so_under_their_own_transaction(spark, streams, monkeypatch):
    shared = streams.folder / "rejects"

    def rejecting(digit):
        return {"expectations": Expectations({f"id % 10 <> {digit}": "reject"}, None, str(shared))}

    for name in ("one", "two"):
        folder = streams.folder / name
        folder.mkdir()
        stream = streams.all[name] = Stream(folder, streams.source)
        _, (first, _) = stream.work(spark, stream.job(*stream.plan()[:2], **rejecting(3)))
        # the second batch was not committed, and is read again
        fenced(spark, stream, first)
        again = stream.job(epoch_two(stream, 1)[0], **rejecting(4))
        streams.jobs.append(FleetJob(name, stream.save(again), 0, 120.0))
    both, met = threading.Barrier(2), set()

    @contextmanager
    def at_once(session, settings):
        with session_conf(session, settings):
            # one that conflicts with the other is repeated alone
            if not met >= set(settings.values()):
                met.update(settings.values())
                both.wait(60)
            yield

    monkeypatch.setattr(rejects_table, "session_conf", at_once)
    ended = run_fleet(spark, streams.spec(parallelism=2))

    assert ended == {"one": "done", "two": "done"}
    assert ids(spark, shared) == [3, 3, 14, 14]


def test_a_repeated_fleet_writes_nothing_again(spark, streams):
    for number in range(4):
        streams.add(f"s{number}", batches=1 + number % 2)
    run_fleet(spark, streams.spec())
    again = Streams(streams.folder, streams.source)
    for name, stream in streams.all.items():
        spec = stream.job(*streams.specs[name].batches)
        again.all[name], again.specs[name] = stream, spec
        again.jobs.append(FleetJob(name, stream.save(spec)))
    run_fleet(spark, again.spec())
    for number, name in enumerate(streams.all):
        assert again.outcomes(name) == ["verified"] * (1 + number % 2)
        assert again.ids(spark, name) == list(range(10 * (1 + number % 2)))


def test_a_fence_and_a_job_that_was_exchanged_are_steps_like_others(spark, streams):
    streams.add("good")
    fenced = streams.add("fenced", batches=1)
    fenced.work(spark, streams.specs["fenced"])
    fence = FenceSpec("fenced", fenced.uuid, 2)
    spec = fenced.job(fence=fence)
    streams.jobs[-1] = FleetJob("fenced", fenced.save(spec), 0, 60.0)
    changed = streams.add("changed")
    uri = streams.jobs[-1].spec
    path = next(path for path in changed.folder.glob("*.job.json") if path.as_uri() == uri)
    path.write_bytes(path.read_bytes().replace(b"orders", b"others"))
    ended = Fleet(streams.spec(), ClassicSpark(spark), lambda *_: None).run()

    assert ended == {"good": "done", "fenced": "done", "changed": "failed"}
    report = decode(FenceReport, (fenced.reports / fence_report_name(2, spec.attempt_id)).read_bytes())
    assert (report.outcome, [batch.batch_id for batch in report.landed]) == ("fenced", [0])
    assert streams.reports("changed") == []
    assert not changed.sink_path.exists()


def test_a_lost_file_fails_one_stream(spark, streams, tmp_path):
    damaged = tmp_path / "source"
    shutil.copytree(streams.source, damaged)
    streams.add("damaged", source=damaged)
    sorted(damaged.glob("*.parquet"), key=lambda path: path.stat().st_mtime_ns)[1].unlink()
    streams.add("whole")
    run_fleet(spark, streams.spec())
    assert streams.outcomes("damaged") == ["written", "failed"]
    assert streams.outcomes("whole") == ["written"] * 3


def test_after_the_time_limit_no_stream_begins(spark, streams):
    streams.add("late")
    assert Fleet(streams.spec(stop_after_ms=1), ClassicSpark(spark), lambda *_: None).run() == {"late": "left"}
    assert streams.reports("late") == []
    assert not streams.all["late"].sink_path.exists()


def test_spark_submit_runs_a_fleet_and_ends_although_a_function_hangs(streams, functions, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{':'.join(sys.path)}")
    for number in range(3):
        streams.add(f"s{number}", batches=number + 1)
    streams.add("hangs", sink=lambda s: DeltaAppendSink(str(s.sink_path), transform=f"{functions}:hangs"), timeout=5.0)
    data = streams.spec(progress=(tmp_path / "progress.json").as_uri()).to_json()
    path = tmp_path / fleet_name("try-1", data)
    path.write_bytes(data)
    lines = []
    code = run_locally(path.as_uri(), conf={"spark.scheduler.mode": "FAIR"}, on_line=lines.append)

    assert code == 0, lines
    for number in range(3):
        assert streams.outcomes(f"s{number}") == ["written"] * (number + 1)
    assert [report.error_class for report in streams.reports("hangs")] == ["BATCH_TIMED_OUT"]
    assert all(line.startswith("FDS ") for line in lines), lines
    ended = FleetProgress.from_json((tmp_path / "progress.json").read_bytes())
    assert ended.ended == {"s0": "done", "s1": "done", "s2": "done", "hangs": "failed"}
    assert ended.reports == {"s0": 1, "s1": 2, "s2": 3, "hangs": 1}
