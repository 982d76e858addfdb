"""``python -m tests.bench [name …]``: measure, print, and write ``docs/benchmarks.md`` with its plot."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from tests.bench import generate_log, generate_snapshot, measure, submitting
from tests.bench.fleet_rows import fleet
from tests.bench.parsing import imports
from tests.bench.report import Group, Row, write
from tests.bench.sizes import ROUNDS, size
from tests.bench.watching_rows import far, monitor, polling


def planning() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        generate_log.write_log(Path(folder) / "many", 10_000, 10)
        generate_log.write_log(Path(folder) / "one", 1, 300_000)
        arguments = {"root": f"{folder}/many", "target": 10_000}
        ways = measure.in_turn(ROUNDS, path=("planning:plan", arguments), name=("planning:plan_by_name", arguments))
        one = [measure.run("planning:plan", root=f"{folder}/one", target=1) for _ in range(3)]
        # a hundred commits, as typical between two runs; Delta writes a checkpoint about every ten
        generate_log.write_log(Path(folder) / "some", 100, 10)
        generate_log.write_log(Path(folder) / "long", 100_000, 1)
        near, far = (measure.run("planning:plan", root=f"{folder}/long", target=t) for t in (10_000, 100_000))
        context = [measure.run("planning:around_the_job", root=f"{folder}/some", target=100) for _ in range(ROUNDS)]
    many = ways["path"]
    assert many[0].value["files"] == ways["name"][0].value["files"] == 100_000
    by_name = measure.median(ways["name"]).seconds / measure.median(many).seconds
    assert one[0].value["files"] == 300_000
    assert far.value["files"] == 100_000
    return [
        Row("planning 10,000 commits of 10 files, local disk", measure.median(many).seconds, "s", 2.5),
        Row("… memory", measure.median(many).peak_mb, "MB", 80),
        Row("… by its name in a Unity Catalog that manages its commits, time / by path", by_name, "x", 1.05),
        Row("… requests to the catalog", ways["name"][0].value["requests"], "", None),
        Row("one commit of 300,000 files, memory", measure.median(one).peak_mb, "MB", 120),
        Row("… time", measure.median(one).seconds, "s", None),
        Row("planning 100,000 commits, memory / that for 10,000", far.peak_mb / near.peak_mb, "x", 1.1),
        Row("what FDS adds around the Spark job, batch of 1,000 files", measure.median(context).seconds, "s", 0.2),
    ]


def snapshot() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        version = generate_snapshot.write_big_checkpoint(Path(folder), 1_000_000, "classic")
        arguments = {"root": folder, "version": version}
        found = measure.in_turn(
            3, ours=("planning:order_snapshot", arguments), theirs=("planning:order_with_deltalake", arguments)
        )
        frozen = [measure.run("planning:freeze", **arguments) for _ in range(3)]
    files = size("SNAPSHOT_FILES", 10_000_000)
    with tempfile.TemporaryDirectory() as folder:
        version = generate_snapshot.write_big_checkpoint(Path(folder), files, "classic")
        big = measure.run("planning:freeze", root=folder, version=version)
    ours, theirs = measure.median(found["ours"]), measure.median(found["theirs"])
    same = ours.value == theirs.value
    return [
        Row("snapshot of 1,000,000 files, ordered", ours.seconds, "s", 2.5),
        Row("… memory", ours.peak_mb, "MB", 250),
        Row(
            "… deltalake get_add_actions and sort, time / ours", theirs.seconds / ours.seconds, "x", 2.5, at_least=True
        ),
        Row("… deltalake, memory", theirs.peak_mb, "MB", None),
        Row("… same list (digest)", float(same), "", 1.0, at_least=True),
        Row("… frozen with its whole add actions", measure.median(frozen).seconds, "s", 8),
        Row("… memory", measure.median(frozen).peak_mb, "MB", 400),
        Row(
            f"snapshot of {files:,} files, frozen, time / with 1,000,000",
            big.seconds / measure.median(frozen).seconds,
            "x",
            9,
        ),
        Row("… time", big.seconds, "s", None),
        Row(
            "… CPU seconds / with 1,000,000",
            big.value["cpu"] / statistics.median(one.value["cpu"] for one in frozen),
            "x",
            None,
        ),
        Row("… memory", big.peak_mb, "MB", 350),
        Row(
            "… CPU to plan its last batch of 1,000 files / the first", big.value["last"] / big.value["first"], "x", 1.1
        ),
        Row("… to plan the first", big.value["first"], "s", None),
    ]


def reading() -> list[Row]:
    value = measure.run("reading:compare", sizes=[100, 10_000], rounds=ROUNDS).value
    small, large = value["100"], value["10000"]
    return [
        Row("batch of 10,000 files, manifest / Structured Streaming", large["ratio"], "x", 1.1),
        Row("… manifest", large["manifest"], "s", None),
        Row("… Structured Streaming", large["streaming"], "s", None),
        Row(
            "batch of 100 files, manifest minus Structured Streaming", small["manifest"] - small["streaming"], "s", 0.5
        ),
    ]


def submit() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        submitting.prepare(folder)
        arguments = {"root": folder}
        measure.run("submitting:by_hand", **arguments)  # fills Ivy's cache
        measure.run("submitting:make_archive")
        found = measure.in_turn(
            ROUNDS,
            ours=("submitting:by_fds", arguments),
            packages=("submitting:by_hand", arguments),
            light=("submitting:by_hand_light", arguments),
        )
    ours, packages, light = (measure.median(found[name]).seconds for name in ("ours", "packages", "light"))
    return [
        Row("one micro-batch by spark-submit, FDS / hand-written with defaults", ours / packages, "x", 0.35),
        Row("… FDS / hand-written with light settings", ours / light, "x", 0.6),
        Row("… FDS", ours, "s", None),
        Row("… hand-written, --packages and defaults", packages, "s", None),
        Row("… hand-written, --jars and light settings", light, "s", None),
    ]


def warm() -> list[Row]:
    batches = size("BATCHES", 50)
    many = measure.run("loading:catch_up", files=batches * 100, files_per_batch=100, rounds=ROUNDS).value
    files = size("FILES", 10_000)
    one = measure.run("loading:catch_up", files=files, files_per_batch=files, rounds=ROUNDS).value
    return [
        Row(f"{batches} batches of 100 files into a Delta table, FDS / AvailableNow", many["ratio"], "x", 1.1),
        Row("… FDS, from plan to committed offset", many["ours"], "s", None),
        Row("… Structured Streaming, maxFilesPerTrigger=100", many["theirs"], "s", None),
        Row(f"1 batch of {files:,} files, FDS / AvailableNow", one["ratio"], "x", 1.0),
        Row("… FDS", one["ours"], "s", None),
        Row("… Structured Streaming", one["theirs"], "s", None),
    ]


def scan() -> list[Row]:
    value = measure.run("loading:scan", files=size("SCAN_FILES", 200), mb_per_file=size("SCAN_MB", 10), rounds=ROUNDS)
    found = value.value
    return [
        Row(
            f"scan of {found['gb']:.2g} GB in {size('SCAN_FILES', 200)} files, manifest / the table itself",
            found["ratio"],
            "x",
            1.03,
        ),
        Row("… manifest", found["manifest"], "s", None),
        Row("… spark.read.format(delta)", found["table"], "s", None),
    ]


def merge() -> list[Row]:
    rows, commits = size("MERGE_ROWS", 10_000_000), size("MERGE_COMMITS", 200)
    found = measure.run("loading:merge", rows=rows, commits=commits, rounds=ROUNDS).value
    small = {
        words: measure.run("loading:small_merges", rows=rows, rounds=3 * ROUNDS, vectors=vectors).value
        for words, vectors in (("without deletion vectors", False), ("with deletion vectors", True))
    }
    return [
        Row(
            f"{commits} commits merged into {rows:,} rows, FDS / foreachBatch on AvailableNow", found["ratio"], "x", 0.6
        ),
        Row("… FDS, DeltaMergeSink", found["ours"], "s", None),
        Row("… hand-written foreachBatch", found["theirs"], "s", None),
        *(
            row
            for words, one in small.items()
            for row in (
                Row(
                    f"one commit of 1,000 rows merged into {rows:,} rows {words}, FDS / the same",
                    one["ratio"],
                    "x",
                    0.9,
                ),
                Row("… FDS", one["ours"], "s", None),
                Row("… hand-written", one["theirs"], "s", None),
            )
        ),
    ]


def postgres() -> list[Row]:
    rows, big, changed = size("POSTGRES_ROWS", 1_000_000), size("POSTGRES_BIG", 10_000_000), 100_000
    found = measure.run("databases:append", rows=rows, rounds=ROUNDS).value
    merged = measure.run("databases:merge", rows=big, changed=changed, rounds=ROUNDS).value
    return [
        Row(f"{rows:,} rows appended, FDS / Spark's JDBC writer, reWriteBatchedInserts", found["ratio"], "x", 0.9),
        Row("… FDS, from plan to committed offset", found["ours"], "s", None),
        Row("… JDBC writer", found["theirs"], "s", None),
        Row("… CPU seconds with the server, FDS / JDBC writer", found["cpu_ratio"], "x", None),
        Row(f"{changed:,} rows merged into {big:,}, FDS / JDBC writer, UPDATE and INSERT", merged["ratio"], "x", 1.0),
        Row("… FDS, from plan to committed offset", merged["ours"], "s", None),
        Row("… hand-written", merged["theirs"], "s", None),
        Row("… CPU seconds with the server, FDS / hand-written", merged["cpu_ratio"], "x", None),
    ]


def connect() -> list[Row]:
    found = measure.run("connecting:trivial_batches", rounds=20, warm_up=size("CONNECT_WARM_UP", 40)).value
    rows = [
        Row("trivial batch on a warm Connect server, from plan to committed offset", found["ours"], "s", 1.2),
        Row("… the first one of the server", found["first"], "s", None),
        Row("… to ask a warm server once whether it does what FDS relies on", found["asked"], "s", 0.3),
        Row("… the same by AvailableNow on the same server", found["theirs"], "s", None),
        Row("… FDS / AvailableNow", found["ratio"], "x", None),
    ]
    last = size("CONNECT_BATCHES", 200)
    for bounded, words in ((False, "a server as Spark starts it"), (True, "a server with bounded caches")):
        memory = measure.run("connecting:memory", points=[last // 2, last], bounded=bounded).value
        half, full = memory[str(last // 2)], memory[str(last)]
        rows += [
            Row(f"heap of {words}, after {last} batches", full["heap"], "MB", None),
            Row(f"… more for each of the last {last // 2}", (full["heap"] - half["heap"]) / (last // 2), "MB", None),
            Row("… resident memory", full["server"], "MB", None),
        ]
    return rows


def _parsing() -> list[Row]:
    found = imports(
        size("PARSING_ROUNDS", 15),
        load="from airflow_provider_fds import DeltaIngestOperator, DeltaStream, DeltaAppendSink",
        sensor="from airflow_provider_fds import DeltaStream, DeltaTableVersionSensor",
        watcher="from airflow_provider_fds import DeltaStream, DeltaTableChangeTrigger",
    )
    return [
        Row(
            "importing DeltaIngestOperator, a stream and a sink, CPU above SparkSubmitOperator",
            found["load"]["cpu_seconds"] * 1000,
            "ms",
            30,
        ),
        Row("… modules", found["load"]["modules"], "", None),
        Row("… DeltaTableVersionSensor and a stream", found["sensor"]["cpu_seconds"] * 1000, "ms", 30),
        Row("… DeltaTableChangeTrigger and a stream", found["watcher"]["cpu_seconds"] * 1000, "ms", 30),
    ]


def latency() -> list[Row]:
    rounds, warm_up = size("LATENCY_ROUNDS", 15), size("LATENCY_WARM_UP", 10)
    found = measure.run("latency:through_airflow", rounds=rounds, warm_up=warm_up).value
    preloaded = measure.run("latency:through_airflow", rounds=rounds, warm_up=warm_up, preload=True).value
    phases = {
        "noticed": "until the trigger has seen the commit, at a poll a second",
        "started": "until the process of the task has started",
        "resumed": "until Airflow has resumed the operator in it",
        "planned": "until the batch is planned",
        "loaded": "until Spark has loaded it",
    }
    return [
        Row("from a commit to its rows in the sink, DeltaIngestOperator(wait=True)", found["waiting"], "s", 7),
        Row("… DeltaTableVersionSensor and DeltaIngestOperator", found["sensor"], "s", 10),
        Row("… a task that does nothing but wait for a file: Airflow's part", found["nothing"], "s", None),
        Row("… DeltaIngestOperator(wait=True) above that", found["waiting"] - found["nothing"], "s", 1.0),
        *(Row(f"… {words}", found["phases"][phase], "s", None) for phase, words in phases.items()),
        Row("with [fds] preload, DeltaIngestOperator(wait=True)", preloaded["waiting"], "s", None),
        Row("… above a task that does nothing", preloaded["waiting"] - preloaded["nothing"], "s", 1.0),
        *(Row(f"… preloaded, {words}", preloaded["phases"][phase], "s", None) for phase, words in phases.items()),
    ]


def linger() -> list[Row]:
    rows = []
    for connect, where, share in ((False, "an application", 0.5), (True, "a Spark Connect server", 0.7)):
        found = measure.run(
            "lingering:side_by_side",
            commits=size("LINGER_COMMITS", 30),
            warm_up=size("LINGER_WARM_UP", 15),
            idle_seconds=20,
            connect=connect,
        ).value
        ours = found["linger"]
        theirs = {number: min(found["query_0"][number], found["query_1"][number]) for number in ours}
        rows += [
            Row(
                f"a run that lingers in {where}, from a commit to its rows / a query (the faster of 0 s and 1 s)",
                ours["median"] / theirs["median"],
                "x",
                share,
            ),
            Row("… the 95th percentile of both", ours["p95"] / theirs["p95"], "x", 1.0),
            Row("… CPU seconds for a commit / the query's", ours["cpu"] / theirs["cpu"], "x", 0.5),
            *(
                Row(f"… {words}, {name}", one[number], unit, None)
                for name, one in (("FDS", ours), ("0 s", found["query_0"]), ("1 s", found["query_1"]))
                for number, words, unit in (
                    ("median", "median", "s"),
                    ("p95", "95th percentile", "s"),
                    ("cpu", "CPU for a commit", "s"),
                    ("idle", "share of a core while nothing comes", ""),
                )
            ),
        ]
    return rows


def linger_memory() -> list[Row]:
    commits = size("LINGER_BATCHES", 2000)
    half, full = measure.run("lingering:memory", commits=commits, points=2).value
    return [
        Row(f"memory of its task after {commits:,} batches", full["task"], "MB", None),
        Row("… of which in the second half", full["task"] - half["task"], "MB", 5),
        Row("heap of its driver after a collection", full["heap"], "MB", None),
        Row("… of which in the second half", full["heap"] - half["heap"], "MB", 5),
        Row("resident memory of its driver", full["driver"], "MB", None),
    ]


def linger_fleet() -> list[Row]:
    tables = size("LINGER_TABLES", 500)
    idle = measure.run("lingering:idle_fleet", tables=tables, idle_seconds=size("LINGER_IDLE", 120)).value
    return [
        Row(f"a fleet of {tables} tables that lingers: share of a core while nothing comes", idle["all"], "", 0.05),
        Row("… of which its driver", idle["driver"], "", None),
        Row("… from a commit to its rows", idle["seconds_to_rows"], "s", None),
    ]


def reattach() -> list[Row]:
    rows = size("REATTACH_ROWS", 10_000)
    found = measure.run("reattaching:kill_at_half", rounds=size("REATTACH_ROUNDS", 3), rows=rows).value
    return [
        Row(
            "a run killed in the middle of its batch: seconds to the end, its driver works on / anew",
            found["ratio"],
            "x",
            0.6,
        ),
        Row("… with the driver that works on", found["attached"], "s", None),
        Row("… anew", found["anew"], "s", None),
        Row("… a run that nothing kills", found["whole"], "s", None),
    ]


def expectations() -> list[Row]:
    rows = size("EXPECTED_ROWS", 10_000_000)
    found = measure.run("expecting:expecting", rows=rows, rounds=ROUNDS).value
    return [
        Row(
            f"append {rows:,} rows with 10 expectations that count and drop, time / without",
            found["counted_time"],
            "x",
            1.15,
        ),
        Row("… CPU seconds / without", found["counted_cpu"], "x", None),
        Row("… that fail the batch, so that rows are counted first, time / without", found["decided_time"], "x", None),
        Row("… CPU seconds / without", found["decided_cpu"], "x", None),
        Row("… without", found["untested"], "s", None),
    ]


def task() -> list[Row]:
    few = size("TASK_FILES", 100_000)
    rows = _parsing()
    for files, rounds in ((few, ROUNDS), (few * 10, 1)):
        with tempfile.TemporaryDirectory() as folder:
            generate_log.write_log(Path(folder) / "table", 100, files // 100)
            arguments = {"root": f"{folder}/table", "target": 100, "files": files, "as_task": True}
            median = measure.median([measure.run("planning:around_the_job", **arguments) for _ in range(rounds)])
        rows += [
            Row(f"memory of the task's process, one batch of {files:,} files", median.peak_mb, "MB", 300),
            Row("… time of plan, manifest, verification and commit", median.seconds, "s", None),
        ]
    return rows


def history() -> list[Row]:
    sizes = (10, 1000, size("HISTORY_ENTRIES", 100_000))
    samples = measure.in_turn(ROUNDS, **{str(size): ("history:cost", {"entries": size}) for size in sizes})

    def of(size: int, what: str, number: str) -> float:
        return statistics.median(sample.value[what][number] for sample in samples[str(size)])

    few, some, many = sizes
    rows = []
    for what, words, compared in (
        ("run", "a run with one new batch", few),
        ("status", "`fds status`", few),
        # a page has 100 entries
        ("history", "a page of `fds history`", some),
    ):
        requests, cpu = (of(many, what, number) for number in ("total", "cpu"))
        rows += [
            Row(f"requests of {words}, {many:,} ledger entries", requests, "", None),
            Row(f"… / with {compared:,} entries", requests / of(compared, what, "total"), "x", 1.2),
            Row(f"… CPU seconds / with {compared:,} entries", cpu / of(compared, what, "cpu"), "x", 1.2),
        ]
    return rows


BENCHES = {
    f.__name__: f
    for f in (
        polling,
        monitor,
        far,
        planning,
        snapshot,
        reading,
        warm,
        fleet,
        scan,
        merge,
        postgres,
        submit,
        connect,
        latency,
        linger,
        linger_memory,
        linger_fleet,
        reattach,
        expectations,
        task,
        history,
    )
}


#: The newest numbers of each benchmark, from which the page is written once it has all.
RESULTS = Path(__file__).with_name("results.json")


def main() -> None:
    names = sys.argv[1:] or list(BENCHES)
    if unknown := [name for name in names if name not in BENCHES]:
        sys.exit(f"no such benchmark: {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    # an installation has compiled modules
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() and sys.argv[1:] else {}
    for name in names:
        print(f"== {name}", flush=True)
        rows = BENCHES[name]()
        for row in rows:
            print(row.describe(), flush=True)
        today = datetime.now(UTC).date().isoformat()
        kept[name] = {"day": today, "commit": _commit(), "rows": [row._asdict() for row in rows]}
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    if missing := [name for name in BENCHES if name not in kept]:
        print(f"docs/benchmarks.md is not written: it would lack {', '.join(missing)}", flush=True)
        return
    write(
        {
            name: Group(kept[name]["day"], kept[name]["commit"], [Row(**row) for row in kept[name]["rows"]])
            for name in BENCHES
            if name in kept
        },
        machine=f"{os.cpu_count()} cores, Python {platform.python_version()}, {platform.system()}",
    )


def _commit() -> str:
    git = ["git", "rev-parse", "--short=12", "HEAD"]
    return subprocess.run(git, capture_output=True, check=True, text=True).stdout.strip()


if __name__ == "__main__":
    main()
