"""The writers of a random history: Spark, or delta-rs, which takes milliseconds per statement and has fewer features.

Both get the same statements and write the same kinds of commits: files added and removed, change files, restores.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import uuid4

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.transaction import AddAction, create_table_with_add_actions

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

COLUMNS: Final = ("id", "v", "n", "p")
_SCHEMA: Final = pa.schema([("id", pa.int64()), ("v", pa.string()), ("n", pa.int64()), ("p", pa.int64())])


@dataclass(frozen=True)
class Rows:
    """Rows with keys from ``first`` (inclusive) to ``last`` (exclusive) that satisfy a condition, in several files."""

    first: int
    last: int
    files: int
    statement: int
    condition: str = "true"
    has: Callable[[int], bool] = lambda _: True

    @property
    def sql(self) -> str:
        return (
            f"SELECT id, concat('s{self.statement} ', id) AS v, {self.statement}L AS n, id % 2 AS p "
            f"FROM range({self.first}, {self.last}, 1, {self.files}) WHERE {self.condition}"
        )

    def tables(self) -> list[pa.Table]:
        """Return one table per file."""
        size = -(-(self.last - self.first) // self.files)
        starts = range(self.first, self.last, size)
        chunks = ([key for key in range(start, min(start + size, self.last)) if self.has(key)] for start in starts)
        return [self._table(keys) for keys in chunks]

    @property
    def table(self) -> pa.Table:
        return pa.concat_tables(self.tables())

    def _table(self, keys: list[int]) -> pa.Table:
        rows = [(key, f"s{self.statement} {key}", self.statement, key % 2) for key in keys]
        return pa.table(
            [pa.array([row[place] for row in rows], _SCHEMA.field(place).type) for place in range(len(COLUMNS))],
            schema=_SCHEMA,
        )


@dataclass(frozen=True)
class Merge:
    """Clauses of MERGE, as SQL and as calls of delta-rs."""

    sql: str
    add: Callable[[Any], Any]


class Writer(Protocol):
    """The operations of a history on its table."""

    def create(self, rows: Rows, *, is_partitioned: bool, properties: dict[str, str]) -> str: ...
    def insert(self, rows: Rows) -> str: ...
    def delete(self, where: str) -> str: ...
    def update(self, values: dict[str, str], where: str) -> str: ...
    def merge(self, rows: Rows, *clauses: Merge) -> str: ...
    def overwrite(self, rows: Rows) -> str: ...
    def replace(self, where: str, rows: Rows) -> str: ...
    def restore(self, version: int) -> str: ...
    def optimize(self) -> str: ...


class SparkWriter:
    """Writes with SQL; each statement returns its text, with ``{}`` for the table."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self._path = path

    def create(self, rows: Rows, *, is_partitioned: bool, properties: dict[str, str]) -> str:
        partitioned = "PARTITIONED BY (p) " if is_partitioned else ""
        texts = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        return self._sql(f"CREATE TABLE {{}} USING delta {partitioned}TBLPROPERTIES ({texts}) AS {rows.sql}")

    def insert(self, rows: Rows) -> str:
        return self._sql(f"INSERT INTO {{}} {rows.sql}")

    def delete(self, where: str) -> str:
        return self._sql(f"DELETE FROM {{}} WHERE {where}")

    def update(self, values: dict[str, str], where: str) -> str:
        return self._sql(
            f"UPDATE {{}} SET {', '.join(f'{key} = {value}' for key, value in values.items())} WHERE {where}"
        )

    def merge(self, rows: Rows, *clauses: Merge) -> str:
        texts = " ".join(clause.sql for clause in clauses)
        return self._sql(f"MERGE INTO {{}} t USING ({rows.sql}) s ON t.id = s.id {texts}")

    def overwrite(self, rows: Rows) -> str:
        return self._sql(f"INSERT OVERWRITE {{}} {rows.sql}")

    def replace(self, where: str, rows: Rows) -> str:
        return self._sql(f"INSERT INTO {{}} REPLACE WHERE {where} {rows.sql}")

    def restore(self, version: int) -> str:
        return self._sql(f"RESTORE TABLE {{}} TO VERSION AS OF {version}")

    def optimize(self) -> str:
        return self._sql("OPTIMIZE {}")

    def _sql(self, statement: str) -> str:
        self._spark.sql(statement.replace("{}", f"delta.`{self._path}`"))
        return statement


class DeltaRsWriter:
    """Writes with delta-rs, without deletion vectors, row tracking and in-commit timestamps.

    Each statement returns what it did, as SQL.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_partitioned = False

    @property
    def _table(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(self._path)

    @cached_property
    def _schema(self) -> deltalake.Schema:
        return deltalake.Schema.from_arrow(_SCHEMA)

    def create(self, rows: Rows, *, is_partitioned: bool, properties: dict[str, str]) -> str:
        self._is_partitioned = is_partitioned
        self._path.mkdir(parents=True)
        create_table_with_add_actions(
            str(self._path),
            self._schema,
            self._files(rows),
            mode="error",
            partition_by=["p"] if is_partitioned else [],
            configuration=properties,
        )
        return f"CREATE TABLE {'PARTITIONED BY (p) ' if is_partitioned else ''}by delta-rs AS {rows.sql}"

    def insert(self, rows: Rows) -> str:
        self._commit("append", rows)
        return f"INSERT by delta-rs {rows.sql}"

    def delete(self, where: str) -> str:
        self._table.delete(where)
        return f"DELETE by delta-rs WHERE {where}"

    def update(self, values: dict[str, str], where: str) -> str:
        self._table.update(updates=values, predicate=where)
        return f"UPDATE by delta-rs SET {values} WHERE {where}"

    def merge(self, rows: Rows, *clauses: Merge) -> str:
        merger = self._table.merge(rows.table, "t.id = s.id", source_alias="s", target_alias="t")
        for clause in clauses:
            merger = clause.add(merger)
        merger.execute()
        return f"MERGE by delta-rs USING ({rows.sql}) s {' '.join(clause.sql for clause in clauses)}"

    def overwrite(self, rows: Rows) -> str:
        self._commit("overwrite", rows)
        return f"INSERT OVERWRITE by delta-rs {rows.sql}"

    def replace(self, where: str, rows: Rows) -> str:
        deltalake.write_deltalake(self._path, rows.table, mode="overwrite", predicate=where)
        return f"INSERT by delta-rs REPLACE WHERE {where} {rows.sql}"

    def restore(self, version: int) -> str:
        # it refuses the newest version, for which Spark writes a commit without files
        if version != self._table.version():
            self._table.restore(version)
        return f"RESTORE by delta-rs TO VERSION AS OF {version}"

    def optimize(self) -> str:
        self._table.optimize.compact()
        return "OPTIMIZE by delta-rs"

    def _commit(self, mode: Any, rows: Rows) -> None:
        partitions = ["p"] if self._is_partitioned else None
        self._table.create_write_transaction(self._files(rows), mode, self._schema, partitions)

    def _files(self, rows: Rows) -> list[AddAction]:
        """Write the files, one per partition; an empty one is not written."""
        actions = []
        for table in rows.tables():
            if not self._is_partitioned:
                actions.append(self._file(table, {}))
                continue
            for p in (0, 1):
                part = table.filter(pa.array([value == p for value in table["p"].to_pylist()], pa.bool_()))
                actions.append(self._file(part.drop_columns(["p"]), {"p": str(p)}))
        return [action for action in actions if action is not None]

    def _file(self, table: pa.Table, partition: dict[str, str]) -> AddAction | None:
        if table.num_rows == 0:
            return None
        name = "".join(f"{key}={value}/" for key, value in partition.items()) + f"part-{uuid4()}.parquet"
        place = self._path / name
        place.parent.mkdir(exist_ok=True)
        pq.write_table(table, place)
        stats = json.dumps({"numRecords": table.num_rows})
        return AddAction(name, place.stat().st_size, partition, 0, data_change=True, stats=stats)
