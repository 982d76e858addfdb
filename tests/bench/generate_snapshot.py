"""Tables whose log is a big checkpoint and a short tail, generated without data files.

The log looks like Spark's after years of appends: files in no order, a kilobyte of statistics each, partition values,
tags. The content depends only on the arguments, so digests of two runs can be compared.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHECKPOINT_VERSION = 100
TAIL_COMMITS = 5
ROWS_PER_GROUP = 125_000
EPOCH_MS = 1_767_225_600_000

_METRICS = range(9)
_TAGS = ("INSERTION_TIME", "MIN_INSERTION_TIME", "MAX_INSERTION_TIME")

_STRINGS = pa.map_(pa.string(), pa.string())
_ADD = pa.struct(
    {
        "path": pa.string(),
        "partitionValues": _STRINGS,
        "size": pa.int64(),
        "modificationTime": pa.int64(),
        "dataChange": pa.bool_(),
        "tags": _STRINGS,
        "stats": pa.string(),
    }
)
_REMOVE = pa.struct({"path": pa.string(), "deletionTimestamp": pa.int64(), "dataChange": pa.bool_()})
_FORMAT = pa.struct({"provider": pa.string(), "options": _STRINGS})
_METADATA = pa.struct(
    {
        "id": pa.string(),
        "name": pa.string(),
        "description": pa.string(),
        "format": _FORMAT,
        "schemaString": pa.string(),
        "partitionColumns": pa.list_(pa.string()),
        "configuration": _STRINGS,
        "createdTime": pa.int64(),
    }
)
_PROTOCOL = pa.struct(
    {
        "minReaderVersion": pa.int32(),
        "minWriterVersion": pa.int32(),
        "readerFeatures": pa.list_(pa.string()),
        "writerFeatures": pa.list_(pa.string()),
    }
)
_TXN = pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()})
_CLASSIC = {"txn": _TXN, "add": _ADD, "remove": _REMOVE, "metaData": _METADATA, "protocol": _PROTOCOL}
_SIDECAR_FILE = {"add": _ADD, "remove": _REMOVE}
_V2 = _CLASSIC | {
    "checkpointMetadata": pa.struct({"version": pa.int64(), "tags": _STRINGS}),
    "sidecar": pa.struct(
        {"path": pa.string(), "sizeInBytes": pa.int64(), "modificationTime": pa.int64(), "tags": _STRINGS}
    ),
}


def write_big_checkpoint(root: Path, files: int, kind: Literal["classic", "v2"]) -> int:
    """Write the log of a table with ``files`` live files and return its newest version.

    The checkpoint contains ``files`` files; each commit of the tail removes one of them and adds another.
    """
    log = root / "_delta_log"
    log.mkdir(parents=True)
    rng = random.Random(files)
    removed = _write_classic(log, files, rng) if kind == "classic" else _write_v2(log, files, rng)
    (log / "_last_checkpoint").write_text(json.dumps({"version": CHECKPOINT_VERSION, "size": files + 2}))
    newest = CHECKPOINT_VERSION + TAIL_COMMITS
    for version in range(CHECKPOINT_VERSION, newest + 1):
        lines: list[dict[str, Any]] = [{"commitInfo": {"timestamp": EPOCH_MS + version, "operation": "MERGE"}}]
        if version > CHECKPOINT_VERSION and removed:
            lines.append({"remove": {"path": removed.pop(), "deletionTimestamp": EPOCH_MS, "dataChange": True}})
            (add,) = _adds(range(files + version, files + version + 1), files, rng).to_pylist()
            lines.append({"add": {**add, "partitionValues": dict(add["partitionValues"]), "tags": dict(add["tags"])}})
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        (log / f"{version:020d}.json").write_text(text)
    return newest


def _write_classic(log: Path, files: int, rng: random.Random) -> list[str]:
    removed: list[str] = []
    schema = pa.schema(_CLASSIC)
    with pq.ParquetWriter(log / f"{CHECKPOINT_VERSION:020d}.checkpoint.parquet", schema) as writer:
        writer.write_table(_rows(schema, [{"protocol": _protocol("classic")}, {"metaData": _metadata()}]))
        for adds in _groups(files, rng):
            removed = removed or adds.field("path").slice(0, TAIL_COMMITS).to_pylist()
            writer.write_table(_only_adds(schema, adds))
    return removed


def _write_v2(log: Path, files: int, rng: random.Random) -> list[str]:
    removed: list[str] = []
    sidecars = []
    (log / "_sidecars").mkdir()
    for adds in _groups(files, rng):
        removed = removed or adds.field("path").slice(0, TAIL_COMMITS).to_pylist()
        name = f"{UUID(int=rng.getrandbits(128))}.parquet"
        pq.write_table(_only_adds(pa.schema(_SIDECAR_FILE), adds), log / "_sidecars" / name)
        size = (log / "_sidecars" / name).stat().st_size
        sidecars.append({"sidecar": {"path": name, "sizeInBytes": size, "modificationTime": EPOCH_MS}})
    top = [
        {"checkpointMetadata": {"version": CHECKPOINT_VERSION}},
        {"protocol": _protocol("v2")},
        {"metaData": _metadata()},
        *sidecars,
    ]
    name = f"{CHECKPOINT_VERSION:020d}.checkpoint.{UUID(int=rng.getrandbits(128))}.parquet"
    pq.write_table(_rows(pa.schema(_V2), top), log / name)
    return removed


def _rows(schema: pa.Schema, rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=schema)


def _only_adds(schema: pa.Schema, adds: pa.StructArray) -> pa.Table:
    columns = [adds if field.name == "add" else pa.nulls(len(adds), field.type) for field in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _groups(files: int, rng: random.Random) -> Iterator[pa.StructArray]:
    for first in range(0, files, ROWS_PER_GROUP):
        yield _adds(range(first, min(first + ROWS_PER_GROUP, files)), files, rng)


def _adds(numbers: range, files: int, rng: random.Random) -> pa.StructArray:
    # several files share a time, like the files of one task, so the path breaks the tie
    written = [EPOCH_MS + 1000 * rng.randrange(files // 3 + 1) for _ in numbers]
    days = [f"2026-{1 + i // 28 % 12:02d}-{1 + i % 28:02d}" for i in numbers]
    ids = [UUID(int=rng.getrandbits(128)) for _ in numbers]
    stamps = [f"{time}000" for time in written for _ in _TAGS]
    columns = {
        "path": [
            f"day={day}/part-{i % 200:05d}-{x}.c000.snappy.parquet"
            for i, day, x in zip(numbers, days, ids, strict=True)
        ],
        "partitionValues": _maps(("day",), days),
        "size": [1_000_000 + rng.randrange(20_000_000) for _ in numbers],
        "modificationTime": written,
        "dataChange": [True] * len(numbers),
        "tags": _maps(_TAGS, stamps),
        "stats": [_stats(i, day, 10_000 + rng.randrange(1000)) for i, day in zip(numbers, days, strict=True)],
    }
    return pa.StructArray.from_arrays([pa.array(columns[f.name], f.type) for f in _ADD], fields=list(_ADD))


def _maps(keys: tuple[str, ...], items: list[str]) -> pa.MapArray:
    offsets = list(range(0, len(items) + 1, len(keys)))
    return pa.MapArray.from_arrays(offsets, list(keys) * (len(items) // len(keys)), items)


def _stats(i: int, day: str, rows: int) -> str:
    low = ",".join(f'"metric_{c:02d}":{0.1234567 * (i + c) % 100:.7f}' for c in _METRICS)
    high = ",".join(f'"metric_{c:02d}":{100 + 0.7654321 * (i + c) % 1000:.7f}' for c in _METRICS)
    nulls = ",".join(f'"metric_{c:02d}":{(i + c) % 5}' for c in _METRICS)
    return (
        f'{{"numRecords":{rows},'
        f'"minValues":{{"id":{i * 10_000},"device":"device-{i % 1000:06d}","ts":"{day}T00:00:00.000Z",{low}}},'
        f'"maxValues":{{"id":{i * 10_000 + rows},"device":"device-{i % 1000 + 9:06d}","ts":"{day}T23:59:59Z",{high}}},'
        f'"nullCount":{{"id":0,"device":0,"ts":0,{nulls}}}}}'
    )


def _metadata() -> dict[str, Any]:
    names = {"id": "long", "device": "string", "ts": "timestamp", "day": "date"}
    names |= {f"metric_{column:02d}": "double" for column in _METRICS}
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in names.items()]
    return {
        "id": str(UUID(int=1)),
        "format": {"provider": "parquet", "options": []},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": ["day"],
        "configuration": [],
        "createdTime": EPOCH_MS,
    }


def _protocol(kind: Literal["classic", "v2"]) -> dict[str, Any]:
    if kind == "classic":
        return {"minReaderVersion": 1, "minWriterVersion": 2}
    features = ["v2Checkpoint"]
    return {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
