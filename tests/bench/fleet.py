"""Many tables with one new small file each, in one Spark session: FDS as a fleet, and a loop over ``AvailableNow``."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import tempfile
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.reading import _session

if TYPE_CHECKING:
    from airflow_provider_fds.batch.fleet_spec import FleetSpec

ROWS = 1_000


def side_by_side(tables: int, threads: int, rounds: int) -> dict[str, Any]:
    """Load one new file of 1,000 rows of each table, alternately both ways, after one unmeasured round.

    Both have ``threads`` tables at work at the same time, in one session of two cores. The unmeasured round creates the
    sinks. Returns the medians of the CPU seconds per table: of Python and of the JVM, by phase.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = _session(folder)
        bench = FleetBench(spark, folder, tables, threads)
        found: dict[str, list[dict[str, float]]] = {"ours": [], "theirs": []}
        try:
            for number in range(rounds + 1):
                bench.commit(number)
                ways = (("ours", bench.by_fds), ("theirs", bench.by_streaming))
                for kind, way in ways if number % 2 else ways[::-1]:
                    costs = way(number)
                    if number:
                        found[kind].append(costs)
            bench.check(rounds + 1)
        finally:
            spark.stop()
    ours, theirs = ({key: [c[key] for c in found[kind]] for key in found[kind][0]} for kind in ("ours", "theirs"))
    ratios = [a / b for a, b in zip(ours["all"], theirs["all"], strict=True)]
    seconds = [a / b for a, b in zip(ours["seconds"], theirs["seconds"], strict=True)]
    return {
        "ours": {key: statistics.median(values) / tables for key, values in ours.items()},
        "theirs": {key: statistics.median(values) / tables for key, values in theirs.items()},
        "ratio": statistics.median(ratios),
        "ratio_of_wall_time": statistics.median(seconds),
    }


class FleetBench:
    """Tables that grow by a file a round, and two ways to load them.

    Args:
        spark: A session.
        folder: For everything.
        tables: Their number.
        threads: Tables at work at the same time.
        merges: Whether their rows are merged by key, instead of appended.
    """

    def __init__(
        self,
        spark: Any,
        folder: Path,
        tables: int,
        threads: int,
        *,
        merges: bool = False,
    ) -> None:
        self.spark = spark
        self.folder = folder
        self.threads = threads
        self.merges = merges
        self.names = [f"table_{number:04d}" for number in range(tables)]
        self.meter = Meter()
        seed = folder / "seed"
        rows = spark.range(ROWS).selectExpr("id", "cast(id as string) v", "id * 0.5D x")
        rows.coalesce(1).write.format("delta").save(str(seed))
        log = seed / "_delta_log" / f"{0:020d}.json"
        self._actions = [json.loads(line) for line in log.read_text().splitlines()]
        self._add = next(action["add"] for action in self._actions if "add" in action)
        self._seed = seed

    def commit(self, version: int) -> None:
        """Append one file to each table."""
        for name in self.names:
            table = self.folder / "tables" / name
            log = table / "_delta_log"
            log.mkdir(parents=True, exist_ok=True)
            lines: list[dict[str, Any]] = []
            if version == 0:
                lines = [action for action in self._actions if "protocol" in action]
                (meta,) = (action["metaData"] for action in self._actions if "metaData" in action)
                lines.append({"metaData": {**meta, "id": str(uuid.uuid4())}})
            path = f"part-{version:05d}.parquet"
            os.link(self._seed / self._add["path"], table / path)
            lines.append({"add": {**self._add, "path": path}})
            (log / f"{version:020d}.json").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def by_fds(self, number: int) -> dict[str, float]:
        """Plan all tables, run their jobs as a fleet in the session, and commit."""
        from airflow_provider_fds.batch.fleet_spec import FleetJob, FleetSpec

        self.meter.start()
        parts, jobs = [], []
        for name in self.names:
            sink = self._sink(name)
            session = self._stream_session(name, number)
            work = session.begin(sink)
            assert work.status == "work", work
            jobs.append(FleetJob(name, session.job(work, sink), sum(batch.num_bytes for batch in work.batches), 600.0))
            parts.append((session, work))
        plan = self.meter.lap()
        spec = FleetSpec(tuple(jobs), self.threads, (self.folder / "progress.json").as_uri())
        ended = self._drive(spec)
        assert set(ended.values()) == {"done"}, ended
        drive = self.meter.lap()
        for session, work in parts:
            assert session.collect(work).failure is None
        commit = self.meter.lap()
        return {
            "plan": plan.python,
            "driver_python": drive.python,
            "driver_jvm": drive.jvm,
            "commit": commit.python,
            "all": sum(lap.python + lap.jvm for lap in (plan, drive, commit)),
            "seconds": plan.seconds + drive.seconds + commit.seconds,
        }

    def _drive(self, spec: FleetSpec) -> dict[str, str]:
        """Run the jobs as a fleet, and return how each has ended."""
        from airflow_provider_fds.spark.application.fleet_job import ClassicSpark, Fleet

        progress = self.folder / "progress.json"
        return Fleet(spec, ClassicSpark(self.spark), lambda _, data: progress.write_bytes(data) and None).run()

    def _sink(self, name: str) -> Any:
        from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink

        uri = str(self.folder / "sinks" / name)
        return DeltaMergeSink(uri, keys=("id",)) if self.merges else DeltaAppendSink(uri)

    def by_streaming(self, number: int) -> dict[str, float]:
        """Run a query with ``AvailableNow`` for each table."""

        def load(name: str) -> None:
            frame = self.spark.readStream.format("delta").load(str(self.folder / "tables" / name))
            target = str(self.folder / "streamed" / name)
            writer = frame.writeStream.option("checkpointLocation", str(self.folder / "checkpoints" / name))
            writer = writer.trigger(availableNow=True)
            query = (
                writer.foreachBatch(partial(_merge_by_hand, target)).start()
                if self.merges
                else writer.format("delta").start(target)
            )
            query.awaitTermination()

        self.meter.start()
        with ThreadPoolExecutor(self.threads) as pool:
            list(pool.map(load, self.names))
        lap = self.meter.lap()
        return {"python": lap.python, "jvm": lap.jvm, "all": lap.python + lap.jvm, "seconds": lap.seconds}

    def check(self, versions: int) -> None:
        """Compare the number of rows in the sinks with that in the tables, whose files all have the same keys."""
        places = ("sinks", "streamed") if (self.folder / "streamed").exists() else ("sinks",)
        for place in places:
            for name in (self.names[0], self.names[-1]):
                rows = self.spark.read.format("delta").load(str(self.folder / place / name)).count()
                assert rows == (1 if self.merges else versions) * ROWS, (place, name, rows)

    def _stream_session(self, name: str, number: int) -> Any:
        from airflow_provider_fds.stream import StreamSession

        return StreamSession(_declared(self.folder, name).stream, _context(self.folder, name, number))


def few_changed(tables: int, changed: int) -> dict[str, float]:
    """Begin a run of a fleet of which few tables have changed, up to the start of Spark.

    Returns:
        Its wall seconds, CPU seconds and requests. The fleet has run before, so it knows the positions.
    """
    from airflow_provider_fds.delta.storage.local import LocalStorage
    from airflow_provider_fds.delta.storage.open import canonical_uri, open_storage
    from airflow_provider_fds.fleet.positions import KnownPosition, KnownPositions, declared
    from airflow_provider_fds.fleet.session import FleetSession
    from airflow_provider_fds.ledger.entries.epoch_entries import Created, Opened
    from airflow_provider_fds.ledger.staging.log import Ledger
    from airflow_provider_fds.source.offset import Offset
    from tests.conftest import LogBuilder

    folder = Path(tempfile.mkdtemp())
    try:
        staging = open_storage(str(folder / "staging"))
        now_ms = int(time.time() * 1000)
        streams = [_declared(folder, f"table_{number:04d}") for number in range(tables)]
        positions = {}
        for number, one in enumerate(streams):
            log = LogBuilder(Path(one.stream.table))
            log.create(timestamp_ms=now_ms)
            log.append(timestamp_ms=now_ms)
            end = Offset.after(1, log.table_id).to_json()
            ledger = Ledger(staging, one.name)
            ledger.find()
            actor = _context(folder, one.name, 0).actor
            table = canonical_uri(one.stream.table)
            ledger.execute(Created(uuid=str(uuid.uuid4()), name=one.name, table=table, deployment="bench"), actor)
            ledger.execute(Opened(epoch=1, start=end, table_id=log.table_id), actor)
            positions[one.name] = KnownPosition(declared(one, "bench"), end, ledger.n)
            if number < changed:
                log.append(timestamp_ms=now_ms)
        known = KnownPositions(staging, "bench", "bench")
        known.begin()
        known.save(positions)
        requests = 0

        def counted(method: Any) -> Any:
            def call(*arguments: Any, **options: Any) -> Any:
                nonlocal requests
                requests += 1
                return method(*arguments, **options)

            return call

        for name in ("head", "get", "list_after", "put", "put_if_absent"):
            setattr(LocalStorage, name, counted(getattr(LocalStorage, name)))
        began, before = time.perf_counter(), time.process_time()
        session = FleetSession(streams, lambda one: _context(folder, one.name, 1), fleet="bench", deployment="bench")
        assert session.next_work()
        assert len(session.runs) == changed
        session.write_jobs(parallelism=8)
        return {
            "seconds": time.perf_counter() - began,
            "cpu": time.process_time() - before,
            "requests": requests,
        }
    finally:
        shutil.rmtree(folder)


def _merge_by_hand(target: str, frame: Any, _: int) -> None:
    if not Path(target).exists():
        frame.write.format("delta").save(target)
        return
    frame.createOrReplaceTempView("news")
    frame.sparkSession.sql(
        f"MERGE INTO delta.`{target}` t USING news s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )


def _declared(folder: Path, name: str) -> Any:
    from airflow_provider_fds.fleet.value import FleetStream
    from airflow_provider_fds.sinks import DeltaAppendSink
    from airflow_provider_fds.stream import DeltaStream

    stream = DeltaStream(name, table=str(folder / "tables" / name), starting_version=0)
    return FleetStream(stream, DeltaAppendSink(str(folder / "sinks" / name)))


def _context(folder: Path, name: str, number: int) -> Any:
    from airflow_provider_fds.checkpoint.file import FileCheckpointStore
    from airflow_provider_fds.ledger.owner import Actor, Owner
    from airflow_provider_fds.stream import StreamContext

    return StreamContext(
        staging_uri=str(folder / "staging"),
        deployment="bench",
        actor=Actor(deployment="bench", user="bench", host="bench"),
        owner=Owner(kind="cli", deployment="bench", run_id=f"bench-{number}"),
        owner_is_running=lambda _owner: False,
        checkpoints=FileCheckpointStore(folder / "positions" / f"{name}.json"),
    )


class Lap:
    """What a stretch of time cost: seconds, and CPU seconds of this process and of its JVM."""

    def __init__(self, seconds: float, python: float, jvm: float) -> None:
        self.seconds = seconds
        self.python = python
        self.jvm = jvm


class Meter:
    """Measures laps."""

    def __init__(self) -> None:
        from pyspark import SparkContext

        self._jvm_stat = Path(f"/proc/{SparkContext._gateway.proc.pid}/stat")
        self._ticks = os.sysconf("SC_CLK_TCK")
        self.start()

    def start(self) -> None:
        """Begin a lap."""
        self._last = self._now()

    def lap(self) -> Lap:
        """End the lap and begin the next one."""
        before, self._last = self._last, self._now()
        return Lap(*(now - then for now, then in zip(self._last, before, strict=True)))

    def _now(self) -> tuple[float, float, float]:
        own = os.times()
        fields = self._jvm_stat.read_text().rpartition(")")[2].split()
        # utime and stime, counted from the state, which is the third field
        return time.monotonic(), own.user + own.system, (int(fields[11]) + int(fields[12])) / self._ticks


def from_cold(tables: int, threads: int) -> dict[str, float]:
    """Load one new file of each table by one spark-submit; return its wall seconds and CPU seconds per table."""
    from airflow_provider_fds.batch.fleet_spec import FleetJob, FleetSpec, fleet_name
    from airflow_provider_fds.sinks import DeltaAppendSink
    from airflow_provider_fds.spark.submission.launch import run_locally

    folder = Path(tempfile.mkdtemp())
    try:
        spark = _session(folder)
        bench = FleetBench(spark, folder, tables, threads)
        spark.stop()
        bench.commit(0)
        jobs = []
        for name in bench.names:
            sink = DeltaAppendSink(str(folder / "sinks" / name))
            session = bench._stream_session(name, 0)
            jobs.append(FleetJob(name, session.job(session.begin(sink), sink)))
        data = FleetSpec(tuple(jobs), threads).to_json()
        path = folder / fleet_name("bench", data)
        path.write_bytes(data)

        def submit(uri: str) -> tuple[float, float]:
            before, start = os.times(), time.perf_counter()
            code = run_locally(uri, master="local[2]", on_line=lambda _: None)
            assert code == 0
            after = os.times()
            cpu = after.children_user + after.children_system - before.children_user - before.children_system
            return time.perf_counter() - start, cpu

        wall, cpu = submit(path.as_uri())
        shutil.rmtree(folder / "sinks")
        single_wall, single_cpu = submit(jobs[0].spec)
    finally:
        shutil.rmtree(folder)
    return {
        "seconds": wall / tables,
        "cpu": cpu / tables,
        "single_seconds": single_wall,
        "single_cpu": single_cpu,
        "ratio": wall / tables / single_wall,
    }
