"""Handmade checkpoints: every form of the protocol, from the state of a handmade log."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.storage.local import LocalStorage

if TYPE_CHECKING:
    from collections.abc import Sequence

_STRINGS = pa.map_(pa.string(), pa.string())

VECTOR = pa.struct(
    {
        "storageType": pa.string(),
        "pathOrInlineDv": pa.string(),
        "offset": pa.int32(),
        "sizeInBytes": pa.int32(),
        "cardinality": pa.int64(),
    }
)
ADD = {
    "path": pa.string(),
    "partitionValues": _STRINGS,
    "size": pa.int64(),
    "modificationTime": pa.int64(),
    "dataChange": pa.bool_(),
    "stats": pa.string(),
    "deletionVector": VECTOR,
    "baseRowId": pa.int64(),
    "defaultRowCommitVersion": pa.int64(),
}
SMALL = {
    "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
    "remove": pa.struct({"path": pa.string(), "deletionTimestamp": pa.int64(), "dataChange": pa.bool_()}),
    "metaData": pa.struct(
        {
            "id": pa.string(),
            "format": pa.struct({"provider": pa.string(), "options": _STRINGS}),
            "schemaString": pa.string(),
            "partitionColumns": pa.list_(pa.string()),
            "configuration": _STRINGS,
            "createdTime": pa.int64(),
        }
    ),
    "protocol": pa.struct(
        {
            "minReaderVersion": pa.int32(),
            "minWriterVersion": pa.int32(),
            "readerFeatures": pa.list_(pa.string()),
            "writerFeatures": pa.list_(pa.string()),
        }
    ),
}
V2 = {
    "checkpointMetadata": pa.struct({"version": pa.int64()}),
    "sidecar": pa.struct({"path": pa.string(), "sizeInBytes": pa.int64(), "modificationTime": pa.int64()}),
}


class CheckpointWriter:
    """Writes checkpoints of the newest version of a ``LogBuilder``'s log; ``add`` is the layout of the add column."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder
        self.protocol: dict[str, Any] = {"minReaderVersion": 1, "minWriterVersion": 2}
        self.add: dict[str, pa.DataType] = dict(ADD)
        self.more: list[dict[str, Any]] = []

    @property
    def actions(self) -> list[dict[str, Any]]:
        """The state: protocol, metaData, the actions in ``more``, and the live files."""
        state = [{"protocol": self.protocol}, self.builder.metadata(), *self.more]
        return state + [{"add": {**add, "dataChange": False}} for add in self.builder.live.values()]

    def classic(self) -> Path:
        """Write a checkpoint of one file."""
        return self.parquet(f"{self.builder.version:020d}.checkpoint.parquet", self.actions)

    def parts(self, parts: int, *, without: Sequence[int] = ()) -> None:
        """Write a checkpoint of ``parts`` files, leaving out the parts ``without`` (from 1)."""
        for part in range(1, parts + 1):
            if part not in without:
                name = f"{self.builder.version:020d}.checkpoint.{part:010d}.{parts:010d}.parquet"
                self.parquet(name, self.actions[part - 1 :: parts])

    def v2(
        self, top: str = "parquet", *, sidecars: int = 2, name: str | None = None, prefix: str = "", inline: int = 0
    ) -> Path:
        """Write a v2 checkpoint; ``inline`` files stay in the top level, ``prefix`` precedes the sidecars' names."""
        adds = [action for action in self.actions if "add" in action]
        rest = [action for action in self.actions if "add" not in action]
        lines = [{"checkpointMetadata": {"version": self.builder.version}}, *rest, *adds[:inline]]
        for number in range(sidecars):
            sidecar = f"{UUID(int=self.builder.version * 100 + number)}.parquet"
            (self.builder.log / "_sidecars").mkdir(exist_ok=True)
            self.parquet(f"_sidecars/{sidecar}", adds[inline + number :: sidecars])
            lines.append({"sidecar": {"path": prefix + sidecar, "sizeInBytes": 1, "modificationTime": 1}})
        name = name or f"{self.builder.version:020d}.checkpoint.{UUID(int=self.builder.version)}.{top}"
        if top == "parquet":
            return self.parquet(name, lines)
        path = self.builder.log / name
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    def hint(self, content: int | str) -> None:
        """Write ``_last_checkpoint``: a version, or any text."""
        text = json.dumps({"version": content, "size": 1}) if isinstance(content, int) else content
        (self.builder.log / "_last_checkpoint").write_text(text)

    def parquet(self, name: str, actions: list[dict[str, Any]]) -> Path:
        """Write ``actions`` as a Parquet file of the log folder, a few rows to a row group."""
        schema = pa.schema([("add", pa.struct(self.add)), *SMALL.items(), *V2.items()])
        path: Path = self.builder.log / name
        pq.write_table(pa.Table.from_pylist([_pairs(a) for a in actions], schema=schema), path, row_group_size=3)
        return path


def _pairs(value: Any) -> Any:
    maps = ("partitionValues", "configuration", "options")
    if not isinstance(value, dict):
        return value
    return {k: list(v.items()) if k in maps and v is not None else _pairs(v) for k, v in value.items()}


@pytest.fixture
def checkpoint_writer(log_builder: Any) -> CheckpointWriter:
    """A writer of checkpoints of ``log_builder``'s log."""
    return CheckpointWriter(log_builder)


@pytest.fixture
def log(log_builder: Any) -> DeltaLog:
    """The log at ``log_builder``'s table."""
    return DeltaLog(LocalStorage(str(log_builder.root)))


@pytest.fixture(scope="session")
def write_big_checkpoint() -> Any:
    """The generator of the benchmarks."""
    path = Path(__file__).parents[2] / "bench" / "generate_snapshot.py"
    return runpy.run_path(str(path))["write_big_checkpoint"]
