"""FDS and Structured Streaming in one warm session, from the log of the source to the committed position."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.reading import ROWS_PER_FILE, _session, _write_manifest, _write_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream import StreamSession


def catch_up(files: int, files_per_batch: int, rounds: int) -> dict[str, Any]:
    """Load a table of many small files into a new Delta table, alternately both ways, after one unmeasured round."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = _session(folder)
        _write_table(spark, folder / "table", files)

        def stream(sink: Path) -> None:
            frame = spark.readStream.format("delta").option("startingVersion", 1)
            frame = frame.option("maxFilesPerTrigger", files_per_batch).load(str(folder / "table"))
            _await(frame.writeStream.format("delta"), sink)

        def check(sink: Path) -> None:
            assert spark.read.format("delta").load(str(sink)).count() == files * ROWS_PER_FILE

        def load(sink: Path) -> None:
            from airflow_provider_fds.sinks import DeltaAppendSink

            _load(spark, folder / "table", DeltaAppendSink(str(sink)), max_files_per_batch=files_per_batch)

        try:
            return _in_turn(folder, rounds, load, stream, check)
        finally:
            spark.stop()


def merge(rows: int, commits: int, rounds: int) -> dict[str, Any]:
    """Catch up with many commits by a merge into a big table, compared with a handwritten ``foreachBatch``."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = _session(folder)
        # half of the changed keys are new
        source, target = _merge_tables(spark, folder, rows, commits, 500)

        def copy(sink: Path) -> None:
            shutil.copytree(target, sink, copy_function=os.link)

        def stream(sink: Path) -> None:
            frame = spark.readStream.format("delta").option("startingVersion", 1).load(str(source))
            _await(frame.writeStream.foreachBatch(_merge_by_hand(sink)), sink, starts_alone=True)

        def load(sink: Path) -> None:
            from airflow_provider_fds.sinks import DeltaMergeSink

            _load(spark, source, DeltaMergeSink(str(sink), keys=("id",), sequence_by="seq"))

        expected: list[int] = []

        def check(sink: Path) -> None:
            expected.append(_sum_of(spark, sink))
            assert expected[-1] == expected[0]

        try:
            return _in_turn(folder, rounds, load, stream, check, before=copy)
        finally:
            spark.stop()


def small_merges(rows: int, rounds: int, *, vectors: bool) -> dict[str, float]:
    """Merge one commit of 1,000 rows at a time into a big table, alternately both ways.

    A new query with ``AvailableNow`` goes on from its checkpoint for each commit, as a scheduled job does. The first
    two commits are not measured: the first registers the stream in the sink.

    Args:
        rows: Rows of the table.
        rounds: Measured commits.
        vectors: Whether the tables have deletion vectors.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = _session(folder)
        commits = rounds + 2
        source, target = _merge_tables(spark, folder, rows, commits, 1000, vectors=vectors)
        hidden = [source / "_delta_log" / f"{version:020d}.json" for version in range(1, commits + 1)]
        for commit in hidden:
            commit.rename(commit.with_suffix(".later"))
        sinks = {kind: folder / kind for kind in ("ours", "theirs")}
        for sink in sinks.values():
            shutil.copytree(target, sink, copy_function=os.link)
        session = _sessions(source)

        def load() -> None:
            from airflow_provider_fds.sinks import DeltaMergeSink

            _work_off(spark, session(), DeltaMergeSink(str(sinks["ours"]), keys=("id",), sequence_by="seq"))

        def stream() -> None:
            frame = spark.readStream.format("delta").option("startingVersion", 1).load(str(source))
            _await(frame.writeStream.foreachBatch(_merge_by_hand(sinks["theirs"])), sinks["theirs"], starts_alone=True)

        seconds: dict[str, list[float]] = {kind: [] for kind in sinks}
        for number, commit in enumerate(hidden):
            commit.with_suffix(".later").rename(commit)
            ways = (("ours", load), ("theirs", stream))
            for kind, way in ways if number % 2 else ways[::-1]:
                start = time.perf_counter()
                way()
                if number > 1:
                    seconds[kind].append(time.perf_counter() - start)
        assert _sum_of(spark, sinks["ours"]) == _sum_of(spark, sinks["theirs"])
        spark.stop()
    ours, theirs = (statistics.median(seconds[kind]) for kind in ("ours", "theirs"))
    return {"ours": ours, "theirs": theirs, "ratio": ours / theirs}


def _merge_tables(
    spark: Any, folder: Path, rows: int, commits: int, per_commit: int, *, vectors: bool = False
) -> tuple[Path, Path]:
    """Write a source whose commits change and add keys, and a big table to merge them into; return both."""
    source, target = folder / "changes", folder / "target"
    columns = (f"id * 7 % {rows * 2} as id", "id as seq", "cast(id as string) as v", "id * 0.5D as x")
    table = spark.range(rows).selectExpr("id", "0L as seq", "cast(id as string) as v", "id * 0.5D as x").repartition(8)
    table.write.format("delta").option("delta.enableDeletionVectors", str(vectors).lower()).save(str(target))
    changes = spark.range(1, commits * per_commit + 1).selectExpr(*columns)
    changes.repartitionByRange(commits, "seq").write.format("delta").save(str(folder / "seed"))
    _one_commit_a_file(folder / "seed", source)
    return source, target


def _merge_by_hand(sink: Path) -> Callable[[Any, int], None]:
    def merge_batch(frame: Any, _: int) -> None:
        frame.createOrReplaceTempView("news")
        ranked = "SELECT *, row_number() OVER (PARTITION BY id ORDER BY seq DESC) n FROM news"
        newest = f"SELECT * EXCEPT (n) FROM ({ranked}) WHERE n = 1"
        frame.sparkSession.sql(
            f"MERGE INTO delta.`{sink}` t USING ({newest}) s ON t.id = s.id "
            "WHEN MATCHED AND s.seq >= t.seq THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    return merge_batch


def _sum_of(spark: Any, sink: Path) -> int:
    total = spark.read.format("delta").load(str(sink)).selectExpr("sum(hash(id, seq, v, x))").collect()[0][0]
    return int(total)


def scan(files: int, mb_per_file: int, rounds: int) -> dict[str, Any]:
    """Read the same big files through a manifest and as a Delta table; both scans read every value."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = _session(folder)
        rows = mb_per_file * 40_000
        _write_table(
            spark,
            folder / "table",
            files,
            spark.range(rows).selectExpr("id", "xxhash64(id) a", "rand(1) x", "cast(rand(2) * 1e9 as int) n"),
        )
        size = sum(path.stat().st_size for path in (folder / "table").glob("*.parquet"))
        manifest = _write_manifest(folder / "table", folder / "manifest", files)
        found: dict[str, list[float]] = {"manifest": [], "table": []}
        for number in range(rounds + 1):
            order = (("manifest", manifest), ("table", str(folder / "table")))
            for kind, place in order if number % 2 else order[::-1]:
                frame = spark.read.format("delta").load(place).selectExpr("sum(id)", "sum(a % 7)", "sum(x)", "sum(n)")
                start = time.perf_counter()
                frame.collect()
                if number:
                    found[kind].append(time.perf_counter() - start)
        spark.stop()
    return {
        "manifest": statistics.median(found["manifest"]),
        "table": statistics.median(found["table"]),
        "ratio": statistics.median(a / b for a, b in zip(found["manifest"], found["table"], strict=True)),
        "gb": size / 1e9,
    }


def _in_turn(
    folder: Path,
    rounds: int,
    ours: Callable[[Path], None],
    theirs: Callable[[Path], None],
    check: Callable[[Path], None],
    before: Callable[[Path], None] | None = None,
) -> dict[str, Any]:
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    for number in range(rounds + 1):
        for kind, function in (("ours", ours), ("theirs", theirs)):
            sink = folder / f"{kind}-{number}"
            if before is not None:
                before(sink)
            start = time.perf_counter()
            function(sink)
            took = time.perf_counter() - start
            check(sink)
            shutil.rmtree(sink)
            if number:
                seconds[kind].append(took)
    return {
        "ours": statistics.median(seconds["ours"]),
        "theirs": statistics.median(seconds["theirs"]),
        "ratio": statistics.median(a / b for a, b in zip(seconds["ours"], seconds["theirs"], strict=True)),
    }


def _await(writer: Any, sink: Path, *, starts_alone: bool = False) -> None:
    writer = writer.option("checkpointLocation", str(sink.with_name(f"{sink.name}-checkpoint"))).trigger(
        availableNow=True
    )
    query = writer.start() if starts_alone else writer.start(str(sink))
    query.awaitTermination()


def _load(spark: Any, table: Path, sink: Sink, **options: Any) -> None:
    """Plan, load and commit with a separate stream, as a run does; the job runs in this session."""
    _work_off(spark, _sessions(table, **options)(), sink)


def _sessions(table: Path, **options: Any) -> Callable[[], StreamSession]:
    """Return a function that opens a run of a new stream."""
    from airflow_provider_fds.checkpoint.file import FileCheckpointStore
    from airflow_provider_fds.ledger.owner import Actor, Owner
    from airflow_provider_fds.stream import DeltaStream, StreamContext, StreamSession

    folder = Path(tempfile.mkdtemp(dir=table.parent))
    runs = itertools.count()

    def begin() -> StreamSession:
        return StreamSession(
            DeltaStream("bench", table=str(table), starting_version=1, **options),
            StreamContext(
                staging_uri=str(folder / "staging"),
                deployment="bench",
                actor=Actor(deployment="bench", user="bench", host="bench"),
                owner=Owner(kind="cli", deployment="bench", run_id=f"bench-{next(runs)}"),
                owner_is_running=lambda _owner: False,
                checkpoints=FileCheckpointStore(folder / "checkpoint.json"),
            ),
        )

    return begin


def _work_off(spark: Any, session: StreamSession, sink: Sink) -> None:
    from airflow_provider_fds.batch.spec import JobSpec
    from airflow_provider_fds.spark.application.job_run import run

    while (work := session.begin(sink)).status in ("work", "fence"):
        uri = session.job(work, sink)
        storage = session.connected.staging
        job = JobSpec.from_json(storage.get(uri.removeprefix(storage.uri + "/"))[0])
        assert run(spark, job) == 0
        collected = session.collect(work)
        assert collected.failure is None


def _one_commit_a_file(seed: Path, table: Path) -> None:
    """Write the files of a table again, one commit each, in the order of ``seq``."""
    lines = [json.loads(line) for line in (seed / "_delta_log" / f"{0:020d}.json").read_text().splitlines()]
    adds = [line["add"] for line in lines if "add" in line]
    adds.sort(key=lambda add: json.loads(add["stats"])["minValues"]["seq"])
    (table / "_delta_log").mkdir(parents=True)
    head = [line for line in lines if "add" not in line and "commitInfo" not in line]
    (table / "_delta_log" / f"{0:020d}.json").write_text("".join(json.dumps(line) + "\n" for line in head))
    for version, add in enumerate(adds, 1):
        shutil.move(seed / add["path"], table / add["path"])
        (table / "_delta_log" / f"{version:020d}.json").write_text(json.dumps({"add": add}) + "\n")
