"""Logs with many commits or one huge commit, without data files. The content depends only on the arguments."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from pathlib import Path

_EPOCH_MS = 1_767_225_600_000


def write_log(root: Path, commits: int, adds: int) -> None:
    """Write version 0 (protocol, metadata) and ``commits`` appends of ``adds`` files, 1 KB of statistics each."""
    random_ = random.Random(7)
    log = root / "_delta_log"
    log.mkdir(parents=True)
    fields = [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]
    fields += [{"name": f"metric_{i}", "type": "double", "nullable": True, "metadata": {}} for i in range(8)]
    head = [
        {"commitInfo": {"timestamp": _EPOCH_MS, "operation": "CREATE TABLE"}},
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": "5d3c1f0e-0000-4000-8000-000000000000",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": ["d"],
                "configuration": {},
                "createdTime": _EPOCH_MS,
            }
        },
    ]
    fields.append({"name": "d", "type": "date", "nullable": True, "metadata": {}})
    head[2]["metaData"]["schemaString"] = json.dumps({"type": "struct", "fields": fields})
    (log / f"{0:020d}.json").write_text("".join(json.dumps(line) + "\n" for line in head))
    number = 0
    for version in range(1, commits + 1):
        timestamp = _EPOCH_MS + version * 1000
        lines = [_info(timestamp, version), _txn(timestamp, version)]
        for _ in range(adds):
            lines.append(_add(random_, number, timestamp))
            number += 1
        (log / f"{version:020d}.json").write_text("\n".join(lines) + "\n")


def _info(timestamp: int, version: int) -> str:
    return json.dumps(
        {
            "commitInfo": {
                "timestamp": timestamp,
                "operation": "STREAMING UPDATE",
                "operationParameters": {"outputMode": "Append", "queryId": "b2a1b1a5", "epochId": str(version)},
                "readVersion": version - 1,
                "isBlindAppend": True,
                "engineInfo": "Apache-Spark/4.2.0 Delta-Lake/4.4.0",
            }
        }
    )


def _txn(timestamp: int, version: int) -> str:
    return json.dumps({"txn": {"appId": "b2a1b1a5", "version": version, "lastUpdated": timestamp}})


def _add(random_: random.Random, number: int, timestamp: int) -> str:
    day = f"2026-{1 + (number // 1000) % 12:02d}-{1 + number % 28:02d}"
    columns = [f"metric_{i}" for i in range(8)]
    stats = {
        "numRecords": 10_000 + number % 777,
        "minValues": {"id": number * 10_000, **{c: round(0.1234567 * number % 100, 9) for c in columns}},
        "maxValues": {"id": number * 10_000 + 9_999, **{c: round(100 + 0.7654321 * number % 1000, 9) for c in columns}},
        "nullCount": dict.fromkeys(["id", *columns], number % 13),
    }
    tags = {key: str(timestamp * 1000) for key in ("INSERTION_TIME", "MIN_INSERTION_TIME", "MAX_INSERTION_TIME")}
    return json.dumps(
        {
            "add": {
                "path": f"d={day}/part-{number % 200:05d}-{UUID(int=random_.getrandbits(128))}.c000.snappy.parquet",
                "partitionValues": {"d": day},
                "size": 1_000_000 + random_.randrange(20_000_000),
                "modificationTime": timestamp,
                "dataChange": True,
                "stats": json.dumps(stats, separators=(",", ":")),
                "tags": {**tags, "OPTIMIZE_TARGET_SIZE": "268435456"},
            }
        },
        separators=(",", ":"),
    )
