"""FDS and Structured Streaming in one warm session, from the log of the source to the committed position."""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.bench.reading import ROWS_PER_FILE, _session, _write_manifest, _write_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_fds.sinks import DeltaAppendSink


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
        source, target = folder / "changes", folder / "target"
        columns = (f"id * 7 % {rows * 2} as id", "id as seq", "cast(id as string) as v", "id * 0.5D as x")
        spark.range(rows).selectExpr("id", "0L as seq", "cast(id as string) as v", "id * 0.5D as x").repartition(
            8
        ).write.format("delta").save(str(target))
        # half of the changed keys are new
        changes = spark.range(1, commits * 500 + 1).selectExpr(*columns)
        changes.repartitionByRange(commits, "seq").write.format("delta").save(str(folder / "seed"))
        _one_commit_a_file(folder / "seed", source)

        def by_hand(frame: Any, _: int) -> None:
            frame.createOrReplaceTempView("news")
            ranked = "SELECT *, row_number() OVER (PARTITION BY id ORDER BY seq DESC) n FROM news"
            newest = f"SELECT * EXCEPT (n) FROM ({ranked}) WHERE n = 1"
            frame.sparkSession.sql(
                f"MERGE INTO delta.`{sinks[-1]}` t USING ({newest}) s ON t.id = s.id "
                "WHEN MATCHED AND s.seq >= t.seq THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )

        sinks: list[Path] = []

        def copy(sink: Path) -> None:
            shutil.copytree(target, sink, copy_function=shutil.os.link)  # type: ignore[attr-defined]
            sinks.append(sink)

        def stream(sink: Path) -> None:
            frame = spark.readStream.format("delta").option("startingVersion", 1).load(str(source))
            _await(frame.writeStream.foreachBatch(by_hand), sink, starts_alone=True)

        def load(sink: Path) -> None:
            from airflow_provider_fds.sinks import DeltaMergeSink

            _load(spark, source, DeltaMergeSink(str(sink), keys=("id",), sequence_by="seq"))

        expected: list[int] = []

        def check(sink: Path) -> None:
            total = spark.read.format("delta").load(str(sink)).selectExpr("sum(hash(id, seq, v, x))").collect()[0][0]
            expected.append(total)
            assert total == expected[0]

        try:
            return _in_turn(folder, rounds, load, stream, check, before=copy)
        finally:
            spark.stop()


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


def _load(spark: Any, table: Path, sink: DeltaAppendSink | Any, **options: Any) -> None:
    """Plan, load and commit with a separate stream, as a run does; the job runs in this session."""
    from airflow_provider_fds.batch.spec import JobSpec
    from airflow_provider_fds.checkpoint.file import FileCheckpointStore
    from airflow_provider_fds.ledger.owner import Actor, Owner
    from airflow_provider_fds.spark.application.job import run
    from airflow_provider_fds.stream import DeltaStream, StreamContext, StreamSession

    folder = Path(tempfile.mkdtemp(dir=table.parent))
    session = StreamSession(
        DeltaStream("bench", table=str(table), starting_version=1, **options),
        StreamContext(
            staging_uri=str(folder / "staging"),
            deployment="bench",
            actor=Actor(deployment="bench", user="bench", host="bench"),
            owner=Owner(kind="cli", deployment="bench", run_id="bench"),
            owner_is_running=lambda _owner: False,
            checkpoints=FileCheckpointStore(folder / "checkpoint.json"),
        ),
    )
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
