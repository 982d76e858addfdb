"""Fixtures that all tests share."""

from __future__ import annotations

import json
import logging
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

# Airflow, once imported, keeps a handler on a stream of the test that has imported it. What is wrong with a log line,
# pytest's own handler still raises.
logging.raiseExceptions = False

# pyspark starts a JVM with fork(). In a process that has used Spark Connect, one of a hundred forks dies in gRPC's
# handlers before it has become the JVM. No test forks to go on with a client, so none needs the handlers. gRPC reads
# the variable when it is imported.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

# A shell without job control lets what it starts in the background ignore Ctrl-C, and so all processes of that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

#: The first counts the faults of tests/chaos and tests/stack.
pytest_plugins = ["tests.chaos.reporting", "tests.profiles"]

#: Time of version 0 of a handmade log, 2024-01-01T00:00:00Z; each version is a minute later.
FIRST_COMMIT_MS = 1_704_067_200_000
MINUTE_MS = 60_000


class LogBuilder:
    """Writes a ``_delta_log`` by hand: what Delta would log, without Spark and without data files.

    Versions count up from 0. The commit file of version ``v`` has the modification time ``FIRST_COMMIT_MS + v *
    MINUTE_MS`` by default, and its ``commitInfo`` has the same time.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = root / "_delta_log"
        self.version = -1
        self.table_id = "11111111-2222-3333-4444-555555555555"
        self.live: dict[str, dict[str, Any]] = {}

    @staticmethod
    def field(name: str, type_: Any = "long", *, nullable: bool = True, **metadata: Any) -> dict[str, Any]:
        """Return a field of a schema as ``schemaString`` has it."""
        return {"name": name, "type": type_, "nullable": nullable, "metadata": metadata}

    @property
    def uri(self) -> str:
        """The table's URI."""
        return self.root.as_uri()

    def create(
        self,
        schema_fields: Iterable[dict[str, Any]] | None = None,
        partition_columns: Iterable[str] = (),
        configuration: Mapping[str, str] | None = None,
        protocol: Mapping[str, Any] | None = None,
        *,
        timestamp_ms: int | None = None,
    ) -> int:
        """Commit ``protocol`` and ``metaData``; return the version."""
        return self.commit(
            {"protocol": dict(protocol or {"minReaderVersion": 1, "minWriterVersion": 2})},
            self.metadata(schema_fields, partition_columns, configuration),
            operation="CREATE TABLE",
            timestamp_ms=timestamp_ms,
        )

    def with_appends(self, versions: int) -> LogBuilder:
        """Create the table, append one file in each of so many later versions, and return this builder."""
        self.create()
        for _ in range(versions):
            self.append()
        return self

    def metadata(
        self,
        schema_fields: Iterable[dict[str, Any]] | None = None,
        partition_columns: Iterable[str] = (),
        configuration: Mapping[str, str] | None = None,
        **overrides: Any,
    ) -> dict[str, Any]:
        """Return a ``metaData`` action, not yet committed."""
        fields = list(schema_fields) if schema_fields is not None else [self.field("id")]
        return {
            "metaData": {
                "id": self.table_id,
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": list(partition_columns),
                "configuration": dict(configuration or {}),
                "createdTime": FIRST_COMMIT_MS,
                **overrides,
            }
        }

    def add(self, path: str | None = None, *, rows: int = 10, size: int = 1000, **overrides: Any) -> dict[str, Any]:
        """Return an ``add`` action, not yet committed. The default path is unique within a commit only by ``path``."""
        return {
            "add": {
                "path": path or f"part-{self.version + 1:05d}-0.parquet",
                "partitionValues": {},
                "size": size,
                "modificationTime": self.time_of(self.version + 1),
                "dataChange": True,
                "stats": json.dumps({"numRecords": rows}),
                **overrides,
            }
        }

    def remove(self, path: str, **overrides: Any) -> dict[str, Any]:
        """Return a ``remove`` action, not yet committed."""
        return {
            "remove": {
                "path": path,
                "deletionTimestamp": self.time_of(self.version + 1),
                "dataChange": True,
                "extendedFileMetadata": True,
                "partitionValues": {},
                "size": 1000,
                **overrides,
            }
        }

    def append(self, n_files: int = 1, *, timestamp_ms: int | None = None, **kw: Any) -> int:
        """Commit ``n_files`` adds as an append does; ``kw`` is passed to each add. Return the version."""
        version = self.version + 1
        adds = [self.add(f"part-{version:05d}-{i:05d}.parquet", **kw) for i in range(n_files)]
        return self.commit(*adds, operation="WRITE", timestamp_ms=timestamp_ms)

    def commit(
        self,
        *actions: dict[str, Any],
        operation: str | None = "WRITE",
        timestamp_ms: int | None = None,
        parameters: Mapping[str, Any] | None = None,
        metrics: Mapping[str, Any] | None = None,
        **commit_info: Any,
    ) -> int:
        """Commit ``actions``, after a ``commitInfo`` unless ``operation`` is ``None``. Return the version."""
        self.version += 1
        time = self.time_of(self.version) if timestamp_ms is None else timestamp_ms
        lines = list(actions)
        if operation is not None:
            info = {"timestamp": time, "operation": operation, "operationParameters": dict(parameters or {})}
            info |= {"operationMetrics": dict(metrics)} if metrics is not None else {}
            lines.insert(0, {"commitInfo": {**info, **commit_info}})
        self.write_raw(self.version, "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines), time)
        self._replay(actions)
        return self.version

    def write_raw(self, version: int, content: str | bytes, timestamp_ms: int | None = None) -> Path:
        """Write the commit file of ``version`` with exactly this content; the builder's version does not change."""
        self.log.mkdir(parents=True, exist_ok=True)
        path = self.path_of(version)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        self.touch(version, self.time_of(version) if timestamp_ms is None else timestamp_ms)
        return path

    def touch(self, version: int, timestamp_ms: int) -> None:
        """Set the modification time of a commit file."""
        os.utime(self.path_of(version), ns=(timestamp_ms * 1_000_000, timestamp_ms * 1_000_000))

    def path_of(self, version: int) -> Path:
        """Return the path of a commit file."""
        return self.log / f"{version:020d}.json"

    def time_of(self, version: int) -> int:
        """Return the default modification time of a version, in milliseconds."""
        return FIRST_COMMIT_MS + version * MINUTE_MS

    def clean_up_before(self, version: int) -> None:
        """Remove the commit files below ``version``, as log cleanup does."""
        for older in range(version):
            self.path_of(older).unlink(missing_ok=True)

    def _replay(self, actions: Iterable[dict[str, Any]]) -> None:
        # actions of a commit have no order: removes first, so that an update in place stays live
        for action in actions:
            if "remove" in action:
                self.live.pop(action["remove"]["path"], None)
        for action in actions:
            if "add" in action:
                self.live[action["add"]["path"]] = action["add"]


@pytest.fixture
def log_builder(tmp_path: Path) -> LogBuilder:
    """A builder of a log at ``tmp_path/table``."""
    return LogBuilder(tmp_path / "table")
