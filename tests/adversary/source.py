"""A source table that is written with every kind of commit, and what an append-only reader must see of it.

What a version holds for a reader is read here from its commit file, independently of the package: rows of the files
that it adds, if it removes none; a commit that removes data is a change.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote
from uuid import uuid4

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tests.adversary.scene import Scene

_FEED: Final = {"delta.enableChangeDataFeed": "true"}


@dataclass(frozen=True)
class Emission:
    """What a version means: ``append``, ``change`` (it removes data), ``none`` (no data, or no new data)."""

    kind: str
    ids: Counter[int]


@dataclass
class Source:
    """A table with the columns id (unique per row), k (a key) and v; and p if it is partitioned."""

    scene: Scene
    path: Path
    is_partitioned: bool = False
    has_feed: bool = False
    next_id: int = 0
    keys: int = 12
    emissions: dict[int, Emission] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    #: The name of the column id in files, if columns are mapped.
    _id: str = "id"

    @property
    def table(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(self.path)

    @property
    def version(self) -> int:
        commits = list((self.path / "_delta_log").glob("*.json"))
        return max(int(commit.stem) for commit in commits if commit.stem.isdecimal())

    def rows(self, count: int, **more: Any) -> pa.Table:
        """Return rows that did not exist before."""
        ids = list(range(self.next_id, self.next_id + count))
        self.next_id += count
        columns: dict[str, Any] = {
            "id": pa.array(ids, pa.int64()),
            "k": pa.array([number % self.keys for number in ids], pa.int64()),
            "v": [f"row {number}" for number in ids],
        }
        if self.is_partitioned:
            columns["p"] = [f"p{number % 3}" for number in ids]
        return pa.table({**columns, **more})

    def create(self, count: int = 5) -> None:
        """Create the table with a first commit of rows."""
        deltalake.write_deltalake(
            self.path,
            self.rows(count),
            partition_by=["p"] if self.is_partitioned else None,
            configuration={**(_FEED if self.has_feed else {}), **self.properties} or None,
        )
        self.record("create")

    def append(self, count: int = 0, **more: Any) -> None:
        count = count or self.scene.rng.randint(1, 6)
        deltalake.write_deltalake(
            self.path, self.rows(count, **more), mode="append", schema_mode="merge" if more else None
        )
        self.record(f"append {count}")

    def append_files(self, num_files: int, count: int = 2) -> None:
        """Append several files in one commit."""
        actions = []
        for _ in range(num_files):
            rows, name = self.rows(count), f"part-{uuid4()}.parquet"
            pq.write_table(rows, self.path / name)
            size = (self.path / name).stat().st_size
            stats = json.dumps({"numRecords": count})
            actions.append(deltalake.transaction.AddAction(name, size, {}, 0, data_change=True, stats=stats))
        self.table.create_write_transaction(actions, "append", self.table.schema())
        self.record(f"append {num_files} files")

    def delete(self, predicate: str = "") -> None:
        predicate = predicate or f"k = {self.scene.rng.randrange(self.keys)}"
        self.table.delete(predicate)
        self.record(f"delete where {predicate}")

    def update(self, predicate: str = "") -> None:
        predicate = predicate or f"k = {self.scene.rng.randrange(self.keys)}"
        self.table.update(updates={"v": f"'changed {uuid4().hex[:6]}'"}, predicate=predicate)
        self.record(f"update where {predicate}")

    def merge(self) -> None:
        old = self.scene.rng.randrange(max(1, self.next_id))
        rows = self.rows(2)
        rows = pa.concat_tables([rows, rows.slice(0, 1).set_column(0, "id", pa.array([old], pa.int64()))])
        self.table.merge(rows, "t.id = s.id", source_alias="s", target_alias="t").when_matched_update(
            {"v": "s.v"}
        ).when_not_matched_insert_all().execute()
        self.record("merge")

    def overwrite(self, count: int = 4) -> None:
        deltalake.write_deltalake(self.path, self.rows(count), mode="overwrite")
        self.record(f"overwrite with {count}")

    def overwrite_same(self, *, by_spark: bool = False) -> None:
        """Write the existing rows again, as a job that always overwrites does, in several files if partitioned.

        Spark lists the added files before the removed ones, delta-rs after them.
        """
        if by_spark:
            self.sql("INSERT OVERWRITE {t} SELECT * FROM {t}")
            return
        deltalake.write_deltalake(self.path, self.table.to_pyarrow_table(), mode="overwrite")
        self.record("overwrite with the same rows")

    def replace_where(self) -> None:
        key = self.scene.rng.randrange(self.keys)
        rows = self.rows(1)
        rows = rows.set_column(rows.column_names.index("k"), "k", pa.array([key], pa.int64()))
        deltalake.write_deltalake(self.path, rows, mode="overwrite", predicate=f"k = {key}")
        self.record(f"replaceWhere k = {key}")

    def restore(self, version: int | None = None) -> None:
        version = self.scene.rng.randint(max(0, self.version - 3), self.version) if version is None else version
        self.table.restore(version)
        self.record(f"restore to {version}")

    def optimize(self) -> None:
        self.table.optimize.compact()
        self.record("optimize")

    def vacuum(self) -> None:
        self.table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
        self.record("vacuum")

    def truncate(self) -> None:
        self.table.delete()
        self.record("truncate")

    def add_column(self) -> None:
        self.append(2, note=["added", "added"])

    def set_properties(self, **properties: str) -> None:
        self.table.alter.set_table_properties({key.replace("__", "."): value for key, value in properties.items()})
        self.record(f"properties {properties}")

    def recreate(self, count: int = 4) -> None:
        """Drop the folder and create a table at the same place."""
        shutil.rmtree(self.path)
        self.emissions.clear()
        self.scene.note("source: dropped")
        self.create(count)

    def sql(self, statement: str) -> None:
        """Commit with Spark; ``{t}`` is the table."""
        from tests.adversary.warm import sql

        sql(self.scene, statement.format(t=f"delta.`{self.path}`"))
        self.record(statement.format(t="source")[:80])

    def record(self, what: str) -> None:
        """Read the new commits."""
        for version in range(max(self.emissions, default=-1) + 1, self.version + 1):
            self.emissions[version] = self._read(version)
        self.scene.note(f"source: {what} -> version {self.version} ({self.emissions[self.version].kind})")

    def emitted(self, first: int = 0, last: int | None = None) -> Counter[int]:
        """Return what a reader that skips changes must have of these versions (inclusive)."""
        found: Counter[int] = Counter()
        for version, emission in self.emissions.items():
            if first <= version and (last is None or version <= last) and emission.kind == "append":
                found += emission.ids
        return found

    def live(self, columns: Iterable[str] = ("id", "k", "v")) -> list[tuple[Any, ...]]:
        """Return the table's current rows."""
        from tests.adversary.checker import read

        return read(self.scene, self.path, tuple(columns))

    def random_commit(self, *, changes: bool) -> None:
        """Commit something random."""
        quiet: list[Callable[[], None]] = [self.append] * 5 + [self.optimize]
        loud: list[Callable[[], None]] = [
            self.delete, self.update, self.merge, self.overwrite, self.replace_where, self.truncate,
        ]  # fmt: skip
        self.scene.rng.choice(quiet + loud if changes else quiet)()

    def _read(self, version: int) -> Emission:
        lines = (self.path / "_delta_log" / f"{version:020d}.json").read_text().splitlines()
        actions = [json.loads(line) for line in lines if line.strip()]
        adds = [action["add"] for action in actions if action.get("add", {}).get("dataChange")]
        removes = [action["remove"] for action in actions if action.get("remove", {}).get("dataChange")]
        for action in actions:
            if "metaData" in action:
                fields = json.loads(action["metaData"]["schemaString"])["fields"]
                (self._id,) = [
                    field["metadata"].get("delta.columnMapping.physicalName", "id")
                    for field in fields
                    if field["name"] == "id"
                ]
        if removes:
            return Emission("change", Counter())
        ids: Counter[int] = Counter()
        for add in adds:
            rows = pq.read_table(self.path / unquote(add["path"]), columns=[self._id], partitioning=None)
            ids.update(rows.column(0).to_pylist())
        return Emission("append" if adds else "none", ids)
