"""Random Delta tables, written by Spark: the same seed results in the same operations."""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.storage.local import LocalStorage

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

#: Partition values that are hard to encode: in a URI, in a file name, in JSON.
_ODD_VALUES = ("'plain'", "'a b'", "'50%'", "'é/ü'", "'a=b'", "'%20'", "''", "NULL", "'\\\"q'", "'x:y'")

_ROWS_PER_FILE = 4

#: Older than Delta's default log retention.
_OLD_SECONDS = 60 * 86_400


@dataclass
class RandomTable:
    """A table with a random history.

    Attributes:
        seed: Determines the history.
        path: The table's folder.
        has_feed: Whether the table records its changes, from version 0.
        is_partitioned: Whether it is partitioned by ``pt``.
        operations: What was done, one line per attempted commit.
    """

    seed: int
    path: str
    has_feed: bool = False
    is_partitioned: bool = False
    operations: list[str] = field(default_factory=list)

    @property
    def log(self) -> DeltaLog:
        return DeltaLog(LocalStorage(self.path))


def write_random_table(spark: SparkSession, folder: Path, seed: int, commits: int) -> RandomTable:
    """Write a table with about ``commits`` commits after the first."""
    table = RandomTable(seed, str(folder / f"table {seed} {commits}"))
    _Writer(spark, table).write(commits)
    return table


class _Writer:
    def __init__(self, spark: SparkSession, table: RandomTable) -> None:
        self._spark = spark
        self._table = table
        self._random = random.Random(table.seed)
        self._next_id = 0
        self._extra = 0
        table.is_partitioned = self._random.random() < 0.6
        self._is_old = self._random.random() < 0.3

    def write(self, commits: int) -> None:
        choose = self._random.choice
        self._table.has_feed = self._random.random() < 0.4
        properties = {
            "delta.enableDeletionVectors": choose(("true", "false")),
            "delta.columnMapping.mode": choose(("none", "none", "name", "id")),
            "delta.enableChangeDataFeed": str(self._table.has_feed).lower(),
            "delta.checkpointInterval": choose(("3", "100")),
            "delta.checkpointPolicy": choose(("classic", "v2")),
            "delta.enableInCommitTimestamps": choose(("true", "false")),
            "delta.enableRowTracking": choose(("true", "false", "false")),
        }
        partitioned = " PARTITIONED BY (pt)" if self._table.is_partitioned else ""
        texts = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
        self._sql(f"CREATE TABLE {{}} (id LONG, v STRING, pt STRING) USING delta{partitioned} TBLPROPERTIES ({texts})")
        self._append()
        steps: list[tuple[Callable[[], None], int]] = [
            (self._append, 8),
            (self._delete, 3),
            (self._delete_whole_files, 1),
            (self._update, 2),
            (self._merge, 2),
            (self._overwrite, 1),
            (self._optimize, 1),
            (self._restore, 1),
            (self._add_column, 1),
            (self._comment, 1),
            (self._touch_nothing, 1),
        ]
        # one random draw per commit, so that fewer commits are the beginning of the same history
        for _ in range(commits):
            self._random.choices([s for s, _ in steps], [weight for _, weight in steps])[0]()
        if self._is_old:
            self._clean_log()

    def _sql(self, statement: str) -> None:
        self._table.operations.append(statement)
        self._spark.sql(statement.replace("{}", f"delta.`{self._table.path}`"))

    def _rows(self) -> str:
        """Return a query of new rows, in one to three files."""
        files = self._random.randint(1, 3)
        first, self._next_id = self._next_id, self._next_id + files * _ROWS_PER_FILE
        odd = self._random.sample(_ODD_VALUES, 2)
        columns = f"id, 'v' || id AS v, IF(id % 3 = 0, {odd[0]}, {odd[1]}) AS pt"
        for number in range(self._extra):
            columns += f", id * {number + 2} AS extra{number}"
        return f"SELECT {columns} FROM range({first}, {self._next_id}, 1, {files})"

    def _append(self) -> None:
        self._sql(f"INSERT INTO {{}} {self._rows()}")

    def _overwrite(self) -> None:
        self._sql(f"INSERT OVERWRITE {{}} {self._rows()}")

    def _condition(self) -> str:
        return f"id % {self._random.randint(2, 7)} = {self._random.randint(0, 1)}"

    def _delete(self) -> None:
        self._sql(f"DELETE FROM {{}} WHERE {self._condition()}")

    def _delete_whole_files(self) -> None:
        self._sql(f"DELETE FROM {{}} WHERE id < {self._random.randint(0, self._next_id)}")

    def _update(self) -> None:
        self._sql(f"UPDATE {{}} SET v = v || '+' WHERE {self._condition()}")

    def _merge(self) -> None:
        first = self._random.randint(0, self._next_id)
        columns = "".join(f", null AS extra{number}" for number in range(self._extra))
        source = f"SELECT id, 'm' || id AS v, 'merged' AS pt{columns} FROM range({first}, {first + 5}, 1, 1)"
        matched = self._random.choice(("UPDATE SET t.v = s.v", "DELETE"))
        self._next_id = max(self._next_id, first + 5)
        self._sql(
            f"MERGE INTO {{}} t USING ({source}) s ON t.id = s.id WHEN MATCHED THEN {matched} "
            "WHEN NOT MATCHED THEN INSERT *"
        )

    def _optimize(self) -> None:
        self._sql("OPTIMIZE {}")

    def _restore(self) -> None:
        newest = self._table.log.latest()
        # a version with the newest schema: restoring an older one drops columns, which no stream can read across
        schema = self._table.log.state_at(newest).metadata.schemaString
        same = [v for v in range(1, newest) if self._table.log.state_at(v).metadata.schemaString == schema]
        if same:
            self._sql(f"RESTORE TABLE {{}} TO VERSION AS OF {self._random.choice(same)}")

    def _add_column(self) -> None:
        self._sql(f"ALTER TABLE {{}} ADD COLUMNS (extra{self._extra} LONG)")
        self._extra += 1

    def _comment(self) -> None:
        self._sql("ALTER TABLE {} SET TBLPROPERTIES ('note' = 'x')")

    def _clean_log(self) -> None:
        """Let Delta clean up the log, as it does with a checkpoint when the commits are old."""
        self._table.operations.append("-- all commits are two months old")
        oldest = time.time() - _OLD_SECONDS
        for number, path in enumerate(sorted((Path(self._table.path) / "_delta_log").glob("*.*"))):
            os.utime(path, (oldest + number, oldest + number))
        self._sql("ALTER TABLE {} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")
        self._append()
        self._delete()

    def _touch_nothing(self) -> None:
        self._sql("DELETE FROM {} WHERE id < 0")
