"""Answers of the page's API: typical streams, and many."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final

#: A time at which nothing is said to be in the future, whatever the clock of the test says.
NOW: Final = datetime.now(UTC)

#: What stands for an unknown value.
UNKNOWN: Final = "\N{EN DASH}"

#: Text that a page which builds markup of data would run.
HOSTILE: Final = "<img src=x onerror=\"document.title='run'\">"


def ago(seconds: float) -> str:
    """Return the instant that is so many seconds ago."""
    return (NOW - timedelta(seconds=seconds)).isoformat()


def row(name: str, condition: str = "up_to_date", **fields: Any) -> dict[str, Any]:
    """Return a row of the list; a stream that is up to date unless ``fields`` say otherwise."""
    found = {
        "id": f"id-{name}",
        "name": name,
        "staging": "s3://lake/_fds",
        "table": f"s3://lake/{name}",
        "sink": {"kind": "delta_table", "target": f"s3://lake/bronze/{name}", "delivery": "transaction"},
        "condition": condition,
        "needs_attention": condition in {"lost_position", "unreadable", "blocked", "quarantined", "failing"},
        "since": None,
        "failed_runs": 0,
        "will_retry": False,
        "problem": None,
        "what_to_do": None,
        "waits_for": None,
        "driver": None,
        "lag_versions": 0,
        "lag_seconds": 0.0,
        "pending_files": 0,
        "pending_bytes": 0,
        "pending_rows": 0,
        "retention_left_seconds": None,
        "newest_version": 366,
        "position": "version 366",
        "planned_batches": 0,
        "last_batch": {
            "batch_id": 41,
            "epoch": 0,
            "rows_read": 10_250,
            "rows_written": 10_250,
            "seconds": 4.2,
            "committed_at": ago(95),
        },
        "rows_per_second": 2440.5,
        "dag_id": f"{name}_to_bronze",
        "dag_owners": ["data-platform"],
        "dag_is_gone": False,
        "task_id": "ingest",
        "run_id": "scheduled__2026-11-23T13:00:00+00:00",
        "owner": None,
        "observed_at": ago(12),
        "last_run_at": ago(12),
        "age_seconds": 12.0,
        "stale": False,
    }
    return found | fields


def typical() -> list[dict[str, Any]]:
    """Return streams in all conditions that a company has on a day."""
    return [
        row("customers"),
        row(
            "orders",
            "loading",
            lag_versions=12,
            lag_seconds=580.4,
            pending_files=96,
            pending_bytes=1_842_000_000,
            pending_rows=2_400_000,
            retention_left_seconds=6 * 86_400 + 82_000,
            position="version 354",
            planned_batches=3,
            rows_per_second=18_204.0,
            owner="run scheduled__2026-11-23T13:00:00+00:00 of orders_to_bronze",
            last_batch=row("orders")["last_batch"]
            | {"rows_written": 336_776, "seconds": 18.5, "committed_at": ago(21)},
        ),
        row(
            "payments",
            "quarantined",
            problem=(
                "Version 214 of s3://lake/payments removes rows (DELETE), and the stream only appends.\n"
                "Its rows may have been loaded already."
            ),
            what_to_do=("Skip version 214 to go on without its rows."),
            lag_versions=153,
            lag_seconds=10_920.0,
            pending_files=612,
            pending_bytes=9_310_000_000,
            pending_rows=None,
            retention_left_seconds=11 * 3600 + 1200,
            position="version 213",
            last_batch=row("payments")["last_batch"] | {"committed_at": ago(11_000)},
            rows_per_second=910.2,
        ),
        row(
            "inventory_snapshots",
            "waiting",
            lag_versions=1,
            lag_seconds=42.0,
            pending_files=4,
            pending_bytes=18_400_000,
            retention_left_seconds=29 * 86_400,
            sink={"kind": "delta_merge", "target": "s3://lake/silver/inventory", "delivery": "transaction"},
        ),
        row(
            "clicks",
            "held",
            pending_files=None,
            pending_bytes=None,
            lag_versions=40,
            lag_seconds=7_300.0,
            retention_left_seconds=5 * 86_400,
        ),
        row(
            "exports.partner-a",
            "blocked",
            problem="Batch 12 has 10,250 rows in s3://lake/bronze/exports.partner-a, and 10,249 were planned.",
            what_to_do="Compare sink and source, then accept the batch or replan it.",
            lag_versions=3,
            pending_files=24,
            pending_bytes=402_000_000,
            lag_seconds=3_900.0,
            sink={"kind": "function", "target": "exports.load", "delivery": "token"},
        ),
        row(
            "sensors_eu",
            "behind",
            lag_versions=7,
            pending_files=56,
            pending_bytes=93_000_000,
            lag_seconds=93_000.0,
            retention_left_seconds=13_000.0,
            observed_at=ago(26_000),
            age_seconds=26_000.0,
            stale=True,
        ),
        row(
            "shipments",
            "failing",
            problem=(
                "The last 3 runs failed, the first at 2026-11-23T12:02:11.000Z, the last at 2026-11-23T12:32:40.000Z: "
                "[MERGE_ORDER_UNKNOWN] two rows of one batch have the key 4711, and no order_by column decides."
            ),
            since=ago(5_400),
            failed_runs=3,
            lag_versions=9,
            lag_seconds=5_500.0,
            pending_files=72,
            pending_bytes=120_000_000,
            retention_left_seconds=6 * 86_400,
        ),
        row(
            "refunds",
            "failing",
            needs_attention=False,
            problem="The last run failed at 2026-11-23T13:31:40.000Z: [SPARK_ENDED_EARLY] Spark ended early.",
            since=ago(40),
            failed_runs=1,
            will_retry=True,
            lag_versions=1,
            lag_seconds=60.0,
        ),
        row("archive_2024", "finished", dag_id=None, task_id=None, run_id=None),
        row(
            "returns",
            "not_begun",
            lag_versions=None,
            lag_seconds=None,
            last_batch=None,
            rows_per_second=None,
            sink=None,
        ),
    ]


def many(count: int) -> list[dict[str, Any]]:
    """Return so many streams, as a platform team has them."""
    kinds = ("up_to_date", "up_to_date", "behind", "up_to_date", "loading", "up_to_date", "held", "up_to_date")
    found = []
    for n in range(count):
        condition = "quarantined" if n % 97 == 5 else kinds[n % len(kinds)]
        lag = 0 if condition == "up_to_date" else (n * 37) % 400 + 1
        found.append(
            row(
                f"team{n % 20:02}.table_{n:04}",
                condition,
                lag_versions=lag,
                lag_seconds=lag * 61.5,
                pending_files=lag * 8,
                pending_bytes=lag * 12_345_678,
                retention_left_seconds=(n % 30 + 1) * 86_400.0 if lag else None,
                problem="Version 7 removes rows (DELETE)." if condition == "quarantined" else None,
                rows_per_second=float((n * 7919) % 50_000),
            )
        )
    return found


def batch(number: int, *, seconds_ago: float, rows: int) -> dict[str, Any]:
    """Return a committed batch."""
    first = 347 - (41 - number) * 8
    return {
        "batch_id": number,
        "epoch": 0,
        "versions": f"versions {first} to {first + 7}",
        "first_version": first,
        "last_version": first + 7,
        "files": 24 + number % 7,
        "rows_read": rows,
        "rows_written": rows,
        "bytes_written": rows * 148,
        "phases": {"check": 0.31, "load": 0.84, "write": rows / 21_000, "verify": 0.42},
        "seconds": 1.57 + rows / 21_000,
        "committed_at": ago(seconds_ago),
        "dag_id": "orders_to_bronze",
        "task_id": "ingest",
        "run_id": f"scheduled__2026-11-23T{number % 24:02}:00:00+00:00",
    }


def samples(lags: list[int], *, every: float = 120.0) -> list[dict[str, Any]]:
    """Return samples of the lag, the last one taken now."""
    return [
        {"at": ago((len(lags) - 1 - n) * every), "lag_versions": lag, "lag_seconds": lag * 47.0}
        for n, lag in enumerate(lags)
    ]


def detail(stream: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Return the answer about one stream."""
    lags = [3, 5, 8, 12, 17, 21, 18, 9, 4, 2, 0, 1, 3, 2, 0, 0, 2, 4, 7, 11, 16, 22, 27, 24, 19, 15, 13, 12]
    return (
        stream
        | {
            "watermark": ago(600),
            "offset": json.dumps(
                {
                    "sourceVersion": 1,
                    "reservoirId": "11111111-2222-3333-4444-555555555555",
                    "reservoirVersion": 355,
                    "index": -1,
                    "isStartingVersion": False,
                }
            ),
            "epoch": 0,
            "batches": [
                batch(41 - n, seconds_ago=21 + n * 620, rows=336_776 if n == 0 else 150_000 + (n * n * 7919) % 190_000)
                for n in range(42)
            ],
            "planned": [
                {"batch_id": 42, "versions": "versions 355 to 358", "files": 32, "bytes": 614_000_000, "rows": 800_000},
                {"batch_id": 43, "versions": "versions 359 to 362", "files": 32, "bytes": 614_000_000, "rows": 800_000},
                {"batch_id": 44, "versions": "versions 363 to 366", "files": 32, "bytes": 614_000_000, "rows": None},
            ],
            "decisions": [
                {
                    "at": ago(90_000),
                    "by": "maria",
                    "action": "skipped",
                    "why": "The GDPR deletion of ticket 4711; the sink was cleaned by hand.",
                    "details": "version 187",
                }
            ],
            "skipped": [
                {
                    "first_version": 187,
                    "last_version": 187,
                    "why": "skipped by maria: GDPR deletion of ticket 4711",
                    "by": "maria",
                    "at": ago(90_000),
                }
            ],
            "intervals": None,
            "samples": samples(lags),
            "actions": ACTIONS,
            "may_act": True,
        }
        | fields
    )


#: As the API describes them; every kind of argument is there.
ACTIONS: Final = [
    {
        "name": "hold",
        "title": "Hold",
        "help": "Pause the stream until it is resumed.",
        "needs_why": True,
        "changes_the_sink": False,
        "arguments": [],
    },
    {
        "name": "accept",
        "title": "Accept",
        "help": "Let the stream continue past a version that stops it.",
        "needs_why": True,
        "changes_the_sink": False,
        "arguments": [
            {"name": "version", "type": "integer", "required": True, "help": "Version of the table"},
        ],
    },
    {
        "name": "skip",
        "title": "Skip",
        "help": "Load nothing from a version or a range of versions.",
        "needs_why": True,
        "changes_the_sink": False,
        "arguments": [
            {"name": "version", "type": "text", "required": True, "help": "A version, or a range such as 3-7"},
        ],
    },
    {
        "name": "rewind",
        "title": "Rewind",
        "help": "Read the stream again from an earlier position. The next run closes the old epoch in the sink first.",
        "needs_why": True,
        "changes_the_sink": True,
        "arguments": [
            {
                "name": "to_version",
                "type": "integer",
                "required": False,
                "help": "First version to read (inclusive)",
                "one_of": "target",
            },
            {
                "name": "to_timestamp",
                "type": "datetime",
                "required": False,
                "help": "Read from the first commit at or after this time",
                "one_of": "target",
            },
            {
                "name": "sink",
                "type": "choice",
                "required": False,
                "help": "What to do with the rows in the sink",
                "choices": ["keep", "empty"],
            },
            {
                "name": "force",
                "type": "boolean",
                "required": False,
                "help": "Proceed even if the owner of the planned batches appears to be running",
            },
        ],
    },
    {
        "name": "retire",
        "title": "Retire",
        "help": "End the stream permanently. Nothing is removed.",
        "needs_why": True,
        "changes_the_sink": False,
        "arguments": [],
    },
]

#: What a rewind of a stream would do, as the API describes it.
PREVIEW: Final = [
    "stream orders",
    "  before: epoch 0, version 354",
    "  after:  epoch 1, reads from version 300 on",
    "  Reads 6 committed batches (54 versions) again: 1,204,300 rows that the sink already has.",
    "  Discards 3 planned batches.",
]
