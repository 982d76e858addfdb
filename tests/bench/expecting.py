"""A batch of many rows, with ten expectations and without: in one warm session, in turn."""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.bench.loading import _load
from tests.bench.reading import _session

_EXPECTATIONS = (
    "id >= 0", "amount >= 0", "amount < 999", "quantity BETWEEN 0 AND 50", "name IS NOT NULL", "length(name) < 40",
    "country IN ('de', 'fr', 'it', 'at')", "email LIKE '%@%'", "ordered_at <= shipped_at", "quantity * amount < 40000",
)  # fmt: skip


def expecting(rows: int, rounds: int) -> dict[str, Any]:
    """Append one batch three ways: untested, with expectations that count and drop, and with some that fail the batch.

    Returns:
        For both kinds of expectations, the median ratios to the untested batch of the same round: of the time, and of
        the CPU seconds of the JVM; and the seconds of the untested batch.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = _session(folder)
        frame = spark.range(0, rows, 1, 8).selectExpr(
            "id",
            "(id * 7919 % 100000) / 100.0D AS amount",
            "cast(id % 50 AS int) AS quantity",
            "concat('customer ', id % 100003) AS name",
            "element_at(array('de', 'fr', 'it', 'at'), cast(id % 4 + 1 AS int)) AS country",
            "concat('c', id % 100003, '@example.org') AS email",
            "timestamp_seconds(1767225600 + id % 86400) AS ordered_at",
            "timestamp_seconds(1767225600 + id % 86413) AS shipped_at",
        )
        frame.where("false").write.format("delta").save(str(folder / "table"))
        frame.write.format("delta").mode("append").save(str(folder / "table"))
        actions = ["drop" if n % 2 else "warn" for n in range(len(_EXPECTATIONS))]
        ways: dict[str, dict[str, Any]] = {
            "untested": {},
            "counted": {"expect": dict(zip(_EXPECTATIONS, actions, strict=True))},
            "decided": {"expect": dict(zip(_EXPECTATIONS, ["fail", *actions[1:]], strict=True))},
        }
        seconds: dict[str, list[float]] = {way: [] for way in ways}
        cpu: dict[str, list[float]] = {way: [] for way in ways}
        kept: dict[str, int] = {}
        try:
            for number in range(rounds + 1):
                for way, options in ways.items():
                    sink = folder / f"sink-{way}-{number}"
                    began, used = time.perf_counter(), _cpu_seconds(spark)
                    _append(spark, folder / "table", sink, options)
                    took, used = time.perf_counter() - began, _cpu_seconds(spark) - used
                    kept[way] = spark.read.format("delta").load(str(sink)).count()
                    shutil.rmtree(sink)
                    if number:
                        seconds[way].append(took)
                        cpu[way].append(used)
        finally:
            spark.stop()
    # nearly all rows are kept: fewer rows would be written faster
    assert rows == kept["untested"] > kept["counted"] == kept["decided"] > 0
    found: dict[str, Any] = {"untested": statistics.median(seconds["untested"])}
    for way in ("counted", "decided"):
        for what, all_of in (("time", seconds), ("cpu", cpu)):
            ratios = [a / b for a, b in zip(all_of[way], all_of["untested"], strict=True)]
            found[f"{way}_{what}"] = statistics.median(ratios)
    return found


def _append(spark: Any, table: Path, sink: Path, options: dict[str, Any]) -> None:
    from airflow_provider_fds.sinks import DeltaAppendSink

    _load(spark, table, DeltaAppendSink(str(sink)), max_bytes_per_batch="1t", **options)


def _cpu_seconds(spark: Any) -> float:
    """Return the CPU seconds that the session's JVM has used."""
    pid = spark._jvm.java.lang.ProcessHandle.current().pid()
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
