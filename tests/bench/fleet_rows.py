"""What a fleet costs: a fixed part and a part a table, appending and merging."""

from __future__ import annotations

from tests.bench import measure
from tests.bench.report import Row
from tests.bench.sizes import ROUNDS, size


def fleet() -> list[Row]:
    tables, threads = size("TABLES", 200), size("THREADS", 8)
    found = measure.run("fleet:side_by_side", tables=tables, threads=threads, rounds=ROUNDS).value
    ours, theirs = found["ours"], found["theirs"]
    cold = measure.run("fleet:from_cold", tables=size("COLD_TABLES", 40), threads=threads).value
    own = ours["plan"] + ours["driver_python"] + ours["commit"]
    few, changed = (
        measure.median([measure.run("fleet:few_changed", tables=count, changed=5) for _ in range(ROUNDS)])
        for count in (tables, 5)
    )
    many = measure.run("fleet:few_changed", tables=tables * 10, changed=20)
    return [
        Row(
            f"{tables} tables, one new file each, {threads} threads, FDS / AvailableNow (CPU)",
            found["ratio"],
            "x",
            0.35,
        ),
        Row("… FDS / AvailableNow (time)", found["ratio_of_wall_time"], "x", None),
        Row("… FDS, CPU per table, from plan to committed offset", ours["all"], "s", 0.4),
        Row("… of which Python on the driver", ours["driver_python"], "s", 0.03),
        Row("… of which Python in all", own, "s", None),
        Row("… AvailableNow, CPU per table", theirs["all"], "s", None),
        Row("… from a cold spark-submit, time per table / one spark-submit per table", cold["ratio"], "x", 0.125),
        Row("… CPU per table / one spark-submit per table", cold["cpu"] / cold["single_cpu"], "x", None),
        *_by_size(tables, threads),
        *_of_kinds(tables, threads),
        Row(f"{tables} tables of which 5 have changed, until Spark starts", few.seconds * 1000, "ms", None),
        Row("… 5 tables, all changed", changed.seconds * 1000, "ms", None),
        Row(
            "… requests for each unchanged table",
            (few.value["requests"] - changed.value["requests"]) / (tables - 5),
            "",
            1.1,
        ),
        Row(f"{tables * 10:,} tables of which 20 have changed: memory of the process", many.peak_mb, "MB", 200),
    ]


def _by_size(tables: int, threads: int) -> list[Row]:
    sizes = [tables * factor // 4 for factor in (1, 2, 4, 8)]
    found = measure.run("fleet_kinds:line", sizes=sizes, threads=threads, rounds=ROUNDS).value
    parts = found["parts"]
    return [
        Row(
            f"CPU of fleets of {', '.join(map(str, sizes))} tables, a line through them: the fixed part",
            found["fixed"],
            "s",
            3,
        ),
        Row("… the part a table", found["part"], "s", None),
        Row("… the part a table between two sizes, most / least", max(parts) / min(parts), "x", 1.15),
        *(Row(f"… {count} tables", cpu, "s", None) for count, cpu in zip(sizes, found["cpu"], strict=True)),
    ]


def _of_kinds(tables: int, threads: int) -> list[Row]:
    merges = measure.run("fleet_kinds:merging", tables=tables, threads=threads, rounds=ROUNDS).value
    return [
        Row(f"{tables} tables merged by key, FDS / foreachBatch on AvailableNow (CPU)", merges["ratio"], "x", None),
        Row("… FDS, CPU per table", merges["ours"], "s", None),
        Row("… hand-written, CPU per table", merges["theirs"], "s", None),
    ]
