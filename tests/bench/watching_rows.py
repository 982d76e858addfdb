"""What polls, monitors and looks cost: on many tables, on many streams, and on a store that is far away."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
from typing import TYPE_CHECKING

from tests.bench import measure
from tests.bench.report import Row
from tests.bench.sizes import ROUNDS, size

if TYPE_CHECKING:
    from collections.abc import Iterator


def polling() -> list[Row]:
    rows = []
    for commits in (10, 1000):
        with _loopback_store(1000 if commits == 10 else 20, commits) as port:
            arguments = {"port": port, "tables": 1000 if commits == 10 else 20, "commits": commits, "at_once": 64}
            samples = [measure.run("polling:poll", sweeps=10, **arguments) for _ in range(ROUNDS)]
        values = [sample.value for sample in samples]
        made = values[0]["requests"]
        polls = values[0]["polls"]
        rows.append(
            Row(f"requests per poll of an unchanged table, {commits} commits", made.get("HEAD", 0) / polls, "HEAD", 1.0)
        )
        rows.append(
            Row(f"other requests per poll, {commits} commits", (sum(made.values()) - made["HEAD"]) / polls, "", 0)
        )
        if commits == 10:
            median = measure.median(samples)
            speeds = sorted(value["tables_per_second"] for value in values)
            blocked = sorted(value["loop_blocked_ms"] for value in values)
            rows.append(Row("tables polled in one process", speeds[ROUNDS // 2], "tables/s", 3000, at_least=True))
            rows.append(Row("longest time the event loop was blocked", blocked[ROUNDS // 2], "ms", 50))
            rows.append(Row("memory with 1,000 tables", median.peak_mb, "MB", 80))
    return rows + _watching() + _deferring()


def _watching() -> list[Row]:
    tables = size("WATCHED_TABLES", 10_000)
    found = {}
    for count in (tables // 10, tables):
        with _loopback_store(count, 10) as port:
            arguments = {"port": port, "tables": count, "poll_interval": 20.0, "intervals": 1.5}
            found[count] = measure.run("polling:watch", **arguments)
    few, many = (found[count].value for count in (tables // 10, tables))
    per_table = [one["cpu_of_a_round"] / count for one, count in ((few, tables // 10), (many, tables))]
    return [
        Row(
            f"{tables:,} tables watched in one triggerer: CPU seconds of a poll of all", many["cpu_of_a_round"], "s", 6
        ),
        Row(f"… CPU per table / with {tables // 10:,} tables", per_table[1] / per_table[0], "x", 1.2),
        Row("… requests per poll other than the HEAD", many["others"] / many["polls"], "", 0.01),
        Row("… memory per table", many["kb_per_table"], "kB", 15),
        Row("… tasks of the event loop per table", many["tasks_per_table"], "", 1),
        Row("… memory of the process", found[tables].peak_mb, "MB", 300),
        Row("… CPU seconds of the first polls, which open the tables", many["first_cpu"], "s", None),
        Row("… CPU of a first poll / with fewer tables", many["first_cpu"] / few["first_cpu"] / 10, "x", 1.2),
    ]


def _deferring() -> list[Row]:
    drivers = size("DEFERRED", 1000)
    with _loopback_store(0, 0, drivers) as port:
        arguments = {"port": port, "drivers": drivers, "poll_interval": 10.0, "look_seconds": 60.0}
        found = measure.run("deferring:wait", **arguments)
    return [
        Row(f"{drivers:,} drivers of a cluster waited for in one triggerer: of a core", found.value["core"], "", 0.05),
        Row("… memory for all of them", found.value["memory_mb"], "MB", 100),
        Row("… memory of the process", found.peak_mb, "MB", None),
        Row("… requests to staging per driver and poll interval", found.value["polls_per_interval"], "HEAD", 1.1),
        Row("… questions to the cluster per driver and minute", found.value["looks_per_driver"], "", 1.1),
        Row("… other requests", found.value["others"], "", 0),
        Row("… tasks of the event loop per driver", found.value["tasks_per_driver"], "", 1.1),
    ]


def monitor() -> list[Row]:
    streams = size("STREAMS", 1000)
    samples = [measure.run("monitoring:watch", streams=streams, rounds=5) for _ in range(ROUNDS)]

    def of(kind: str, number: str) -> float:
        return statistics.median(sample.value[kind][number] for sample in samples)

    made = {kind: samples[0].value[kind]["requests"] for kind in ("unchanged", "full")}
    others = (sum(made["unchanged"].values()) - made["unchanged"]["head"]) / streams
    return [
        Row(f"requests per unchanged stream, a round over {streams:,}", made["unchanged"]["head"] / streams, "HEAD", 1),
        Row("… others, for a new entry of its ledger", others, "", 1.01),
        Row("… CPU seconds of the round", of("unchanged", "cpu"), "s", 0.5),
        Row("requests per stream, every 20th round, which reads everything", sum(made["full"].values()) / streams, ""),
        Row("… CPU seconds of the round", of("full", "cpu"), "s", 3),
        Row("… time of the round, local disk", of("full", "time"), "s", None),
        Row("memory", measure.median(samples).peak_mb, "MB", 80),
        *_looking(),
    ]


def _looking() -> list[Row]:
    streams = size("LISTED_STREAMS", 5000)
    found = [measure.run("monitoring:look", streams=streams).value for _ in range(min(ROUNDS, 3))]
    return [
        Row(f"status of {streams:,} streams in one staging folder, local disk", _middle(found, "status"), "s", 5),
        Row("… CPU seconds", _middle(found, "status_cpu"), "s", None),
        Row("… the first rows of the page", _middle(found, "page"), "s", 1),
        Row("… again, one stream has changed", _middle(found, "page_again"), "s", None),
    ]


def far() -> list[Row]:
    batches, streams = size("FAR_BATCHES", 10), size("FAR_STREAMS", 10)
    found = measure.run("far_store:numbers", batches=batches, streams=streams, delay=0.05).value
    rows = []
    for name, step in found.items():
        rows += [
            Row(f"{name}, {batches} batches or {streams} streams: requests", step["requests"], "", None),
            Row("… of which in sequence", step["in_sequence"], "", None),
            Row("… time", step["seconds"], "s", None),
        ]
    return rows


def _middle(found: list[dict[str, float]], name: str) -> float:
    return statistics.median(one[name] for one in found)


@contextlib.contextmanager
def _loopback_store(tables: int, commits: int, drivers: int = 0) -> Iterator[int]:
    command = [sys.executable, "-m", "tests.bench.loopback_store", str(tables), str(commits), str(drivers)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        yield int(server.stdout.readline())
    finally:
        server.terminate()
        server.wait()
