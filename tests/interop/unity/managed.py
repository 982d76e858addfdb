"""A writer of tables whose commits a Unity Catalog keeps, in every state that such a table can be in.

Spark writes the rows, into a plain table of its own: it commits to a catalog only with a connector. Each of its commits
is then committed through the catalog.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
from pyarrow import parquet

from tests.interop.unity.server import columns_of, table_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_fds.delta.storage.storage import Storage
    from tests.interop.unity.server import UnityServer

#: Properties of the plain table that give its commits what the catalog requires and suggests.
_PROPERTIES = {
    "delta.enableInCommitTimestamps": "true",
    "delta.checkpointPolicy": "v2",
    "delta.feature.vacuumProtocolCheck": "supported",
    "delta.columnMapping.mode": "name",
    "delta.enableDeletionVectors": "true",
    "delta.enableRowTracking": "true",
}


class ManagedTable:
    """A table that the catalog manages: staged commits of our own making.

    Args:
        server: The catalog.
        name: Its name, of three parts.
        open_folder: Opens the folder that the catalog chooses, to write.
        data: Where its files of rows are, which its log then has by their URIs; ``None``: in its folder.

    Attributes:
        table_id: The catalog's id.
        location: URI of its folder.
        version: The latest version.
        log_id: The id in its log.
    """

    def __init__(
        self, server: UnityServer, name: str, open_folder: Callable[[str], Storage], data: Storage | None = None
    ) -> None:
        self.name = name
        self._server = server
        path = table_path(name).replace("/tables/", "/staging-tables/").rpartition("/")
        self.reserved = server.call("POST", path[0], {"name": path[2]})
        self.table_id: str = self.reserved["table-id"]
        self.location: str = self.reserved["location"]
        self.folder = open_folder(self.location)
        self._data = data
        self.version = -1
        self.log_id = ""
        self._staged: dict[int, str] = {}

    def create(self, actions: list[dict[str, Any]]) -> None:
        """Write version 0 with these actions, and register the table."""
        metadata = next(action["metaData"] for action in actions if "metaData" in action)
        self.log_id = metadata["id"]
        self.folder.put(_published(0), _lines(actions))
        body = {
            "name": self.name.rpartition(".")[2],
            "location": self.location,
            "table-type": "MANAGED",
            "columns": columns_of(metadata["schemaString"]),
            "protocol": self.reserved["required-protocol"],
            "properties": self.required_properties(),
            "last-commit-timestamp-ms": _time_of(actions),
        }
        self._server.call("POST", table_path(self.name).rpartition("/")[0], body)
        self.version = 0

    def create_by_hand(self) -> None:
        """Write version 0 of a table with one column ``id``."""
        required = self.reserved["required-protocol"]
        protocol = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": required["reader-features"],
            "writerFeatures": required["writer-features"],
        }
        field = {"name": "id", "type": "long", "nullable": True, "metadata": {}}
        metadata = {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": [field]}),
            "partitionColumns": [],
            "configuration": self.required_properties(),
            "createdTime": 1_700_000_000_000,
        }
        self.create([_info(0), {"protocol": protocol}, {"metaData": metadata}])

    def append_by_hand(self) -> int:
        """Commit a file that nobody reads; return the version."""
        return self._append(f"part-{self.version + 1:05d}.parquet", 1000, 10)

    def append_rows(self, ids: list[int]) -> int:
        """Commit a file with a row for each id; return the version."""
        content = io.BytesIO()
        parquet.write_table(pa.table({"id": pa.array(ids, pa.int64())}), content)
        name = f"part-{uuid.uuid4()}.parquet"
        (self._data or self.folder).put(name, content.getvalue())
        path = name if self._data is None else f"{self._data.uri}/{name}"
        return self._append(path, len(content.getvalue()), len(ids))

    def _append(self, path: str, size: int, rows: int) -> int:
        stats = json.dumps({"numRecords": rows})
        add = {"path": path, "partitionValues": {}, "size": size, "dataChange": True, "stats": stats}
        return self.commit([_info(self.version + 1), {"add": {**add, "modificationTime": 0}}])

    def required_properties(self) -> dict[str, str]:
        return {key: value for key, value in self.reserved["required-properties"].items() if value is not None}

    def commit(self, actions: list[dict[str, Any]]) -> int:
        """Stage a commit of the next version, and let the catalog accept it; return the version."""
        version = self.version + 1
        self._staged[version] = self._stage(version, _lines(actions), status=200, time_ms=_time_of(actions))
        self.version = version
        return version

    def lose(self, version: int) -> None:
        """Stage another commit of a version that the catalog has accepted already; it refuses this one."""
        actions = [_info(version), {"remove": {"path": "lost.parquet", "deletionTimestamp": 0, "dataChange": True}}]
        self._stage(version, _lines(actions), status=409, time_ms=_time_of(actions))

    def leave_half_written(self, version: int) -> None:
        """Stage the beginning of a commit, as a writer that died does."""
        self.folder.put(_staged(_staged_name(version)), b'{"commitInfo":{"inCommit')

    def publish(self, version: int, *, remove: bool = False) -> None:
        """Copy an accepted commit to its published name, of which the catalog is not told; ``remove``: move it."""
        key = _staged(self._staged[version])
        self.folder.put(_published(version), self.folder.get(key)[0])
        if remove:
            self.folder.delete(key)

    def report_published(self, version: int) -> None:
        """Tell the catalog that all commits up to this version are published."""
        self._update({"action": "set-latest-backfilled-version", "latest-published-version": version})

    def _stage(self, version: int, content: bytes, *, status: int, time_ms: int) -> str:
        name = _staged_name(version)
        self.folder.put(_staged(name), content)
        commit = {
            "version": version,
            "timestamp": time_ms,
            "file-name": name,
            "file-size": len(content),
            "file-modification-timestamp": time_ms,
        }
        self._update({"action": "add-commit", "commit": commit}, status=status)
        return name

    def _update(self, update: dict[str, Any], status: int = 200) -> None:
        requirements = [{"type": "assert-table-uuid", "uuid": self.table_id}]
        body = {"requirements": requirements, "updates": [update]}
        self._server.call("POST", table_path(self.name), body, status=status)


class SparkTable(ManagedTable):
    """A managed table on local disk with rows of Spark.

    Attributes:
        twin: The path of Spark's own table, with the same rows.
    """

    def __init__(
        self,
        server: UnityServer,
        name: str,
        open_folder: Callable[[str], Storage],
        spark: SparkSession,
        twin: Path,
        columns: str,
    ) -> None:
        super().__init__(server, name, open_folder)
        self._spark = spark
        self.twin = twin
        properties = {**_PROPERTIES, **self.required_properties()}
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        self._spark.sql(f"CREATE TABLE delta.`{twin}` ({columns}) USING delta TBLPROPERTIES ({listed})")
        self.create([self._managed(action) for action in self._actions(0)])

    def sql(self, statement: str) -> int:
        """Run a statement in which ``{}`` stands for the table, and commit its result; return the version."""
        self._spark.sql(statement.replace("{}", f"delta.`{self.twin}`"))
        actions = self._actions(self.version + 1)
        self._copy_files()
        return self.commit(actions)

    def rows(self) -> DataFrame:
        """The rows that the table has now."""
        return self._spark.read.format("delta").load(str(self.twin))

    def _actions(self, version: int) -> list[dict[str, Any]]:
        text = (self.twin / _published(version)).read_text()
        return [json.loads(line) for line in text.splitlines()]

    def _managed(self, action: dict[str, Any]) -> dict[str, Any]:
        if "protocol" in action:
            for key in ("readerFeatures", "writerFeatures"):
                action["protocol"][key] = sorted({*action["protocol"][key], "catalogManaged"})
        return action

    def _copy_files(self) -> None:
        folder = Path(unquote(self.location.removeprefix("file://")))
        for source in self.twin.rglob("*"):
            target = folder / source.relative_to(self.twin)
            if source.is_file() and "_delta_log" not in source.parts and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                try:
                    os.link(source, target)
                except OSError:
                    shutil.copy(source, target)


def _info(version: int) -> dict[str, Any]:
    time_ms = 1_700_000_000_000 + version
    info = {"inCommitTimestamp": time_ms, "timestamp": time_ms, "operation": "WRITE", "operationParameters": {}}
    return {"commitInfo": {**info, "txnId": str(uuid.uuid4())}}


def _time_of(actions: list[dict[str, Any]]) -> int:
    return int(next(action["commitInfo"]["inCommitTimestamp"] for action in actions if "commitInfo" in action))


def _lines(actions: list[dict[str, Any]]) -> bytes:
    return "".join(f"{json.dumps(action)}\n" for action in actions).encode()


def _published(version: int) -> str:
    return f"_delta_log/{version:020d}.json"


def _staged_name(version: int) -> str:
    return f"{version:020d}.{uuid.uuid4()}.json"


def _staged(name: str) -> str:
    return f"_delta_log/_staged_commits/{name}"


__all__ = ["ManagedTable", "SparkTable"]
