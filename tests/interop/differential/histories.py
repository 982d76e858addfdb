"""Random histories of a table that records its changes, with one row per key at every version."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.reader.timestamps import CommitTimestamps
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.delta.vectors import VectorReader
from airflow_provider_fds.source.changes.classify import CommitContent
from tests.interop.differential.writers import COLUMNS, DeltaRsWriter, Merge, Rows, SparkWriter, Writer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from airflow_provider_fds.delta.actions import Add

#: Files are small, so that a statement changes some files of the table and leaves others.
_ROWS_PER_FILE = 3

#: The amount that an update of the key adds to it; the partition, ``id % 2``, stays.
_FURTHER = 1000

#: The share of histories that are written without Spark.
_BY_DELTA_RS = 0.6


class RandomHistory:
    """A table that grows by random statements, one after another; the same seed results in the same statements.

    Attributes:
        path: The table's folder.
        statements: What was done.
        is_ordered: Whether ``n`` only increases for a key, so that a merge can use it.
        versions: Rows of the table at each version, read from its files without Spark.
        kinds: How many commits changed rows, by kind of change.
    """

    def __init__(self, spark: SparkSession, folder: Path, seed: int) -> None:
        self._random = random.Random(seed)
        self.path = str(folder / "source")
        # a separate generator: both writers get the same statements
        is_rust = random.Random(f"writer {seed}").random() < _BY_DELTA_RS
        self._writer: Writer = DeltaRsWriter(folder / "source") if is_rust else SparkWriter(spark, self.path)
        self.is_partitioned = False
        self.statements: list[str] = []
        self.versions: dict[int, Counter[tuple[Any, ...]]] = {}
        self.kinds: Counter[str] = Counter()
        self._live: dict[str, Add] = {}
        self._files: dict[str, list[tuple[Any, ...]]] = {}
        self._vectors = VectorReader(LocalStorage(self.path))
        self.is_ordered = self._random.random() < 0.25
        self._create()

    @property
    def log(self) -> DeltaLog:
        return DeltaLog(LocalStorage(self.path))

    @property
    def needs_spark(self) -> bool:
        """Whether the table may have features that delta-rs cannot read."""
        return isinstance(self._writer, SparkWriter)

    @property
    def newest(self) -> Counter[tuple[Any, ...]]:
        """The rows of the newest version."""
        return self.versions[max(self.versions)]

    def times(self) -> dict[int, int]:
        """Return the commit time of each version, milliseconds since the epoch."""
        log = self.log
        timestamps, state = CommitTimestamps(log), log.state_at(log.latest())
        return {version: timestamps.of(log.commit(version), state.metadata) for version in self.versions}

    def step(self) -> None:
        """Run one random statement."""
        steps: list[tuple[Callable[[], None], int]] = [
            (self._insert, 3),
            (self._insert_new, 2),
            (self._delete, 3),
            (self._delete_range, 2),
            (self._update, 3),
            (self._update_key, 1),
            (self._merge, 4),
            (self._overwrite, 6),
            (self._replace_partition, 2),
            (self._replace_range, 2),
            (self._optimize, 1),
        ]
        if not self.is_ordered:
            # older values come back, which a merge by sequence_by treats as late rows
            steps.append((self._restore, 3))
        self._random.choices([step for step, _ in steps], [weight for _, weight in steps])[0]()
        self._look()

    def _create(self) -> None:
        choose = self._random.choice
        properties = {
            "delta.enableChangeDataFeed": "true",
            "delta.enableDeletionVectors": choose(("true", "false")),
            "delta.enableInCommitTimestamps": choose(("true", "false")),
            "delta.enableRowTracking": choose(("true", "false", "false")),
        }
        self.is_partitioned = choose((False, True))
        rows = self._rows(*self._some())
        if isinstance(self._writer, DeltaRsWriter):
            properties = {"delta.enableChangeDataFeed": "true"}
        self._do(self._writer.create(rows, is_partitioned=self.is_partitioned, properties=properties))
        self._look()

    def _do(self, statement: str) -> None:
        self.statements.append(statement)

    def _look(self) -> None:
        """Follow the log to its head, commit by commit, and read the rows of each version."""
        log = self.log
        for commit in log.commits(max(self.versions, default=-1) + 1, log.latest()):
            for action in commit.actions:
                if action.remove is not None:
                    self._live.pop(action.remove.path, None)
            # a file that gets another deletion vector is removed and added
            self._live |= {action.add.path: action.add for action in commit.actions if action.add is not None}
            rows: Counter[tuple[Any, ...]] = Counter(row for add in self._live.values() for row in self._rows_of(add))
            assert len({row[0] for row in rows}) == rows.total(), self.statements
            self.versions[commit.version] = rows
            self._count_kind(CommitContent.of(commit.version, commit.actions, table=self.path))

    def _rows_of(self, add: Add) -> list[tuple[Any, ...]]:
        if add.path not in self._files:
            names = [name for name in COLUMNS if name not in add.partitionValues]
            table = pq.ParquetFile(f"{self.path}/{unquote(add.path)}").read(columns=names)
            columns = {name: table.column(name).to_pylist() for name in names}
            if (partition := add.partitionValues.get("p")) is not None:
                columns["p"] = [int(partition)] * table.num_rows
            self._files[add.path] = list(zip(*(columns[name] for name in COLUMNS), strict=True))
        deleted = self._vectors.rows(add.deletionVector)
        return [row for number, row in enumerate(self._files[add.path]) if number not in deleted]

    def _count_kind(self, content: CommitContent) -> None:
        if content.change_files:
            self.kinds["change files"] += 1
        elif content.replaces_rows:
            self.kinds["adds and removes"] += 1
        elif content.has_changes:
            self.kinds["adds" if content.adds else "removes"] += 1

    def _some(self) -> tuple[int, int, int]:
        """Return a range of keys, most of which exist or existed, and a number of files."""
        first, files = self._random.randint(0, 12), self._random.randint(1, 4)
        return first, first + files * _ROWS_PER_FILE, files

    def _rows(
        self, first: int, last: int, files: int, condition: str = "true", has: Callable[[int], bool] = lambda _: True
    ) -> Rows:
        return Rows(first, last, files, len(self.statements), condition, has)

    def _remainder(self) -> tuple[int, int]:
        return self._random.randint(2, 6), self._random.randint(0, 1)

    def _condition(self) -> str:
        return "id % {} = {}".format(*self._remainder())

    def _insert(self) -> None:
        there = sorted(row[0] for row in self.newest)
        absent = f"id NOT IN ({', '.join(map(str, there))})" if there else "true"
        self._do(self._writer.insert(self._rows(*self._some(), absent, lambda key: key not in there)))

    def _insert_new(self) -> None:
        # beyond the keys of _some, and those of other statements
        first, files = 20 + 20 * len(self.statements), self._random.randint(1, 5)
        self._do(self._writer.insert(self._rows(first, first + files * 2, files)))

    def _delete(self) -> None:
        self._do(self._writer.delete(self._condition()))

    def _delete_range(self) -> None:
        first, last, _ = self._some()
        self._do(self._writer.delete(f"id >= {first} AND id < {last}"))

    def _update(self) -> None:
        values = {"v": "concat(v, '+')", "n": str(len(self.statements))}
        self._do(self._writer.update(values, self._condition()))

    def _update_key(self) -> None:
        first, last, _ = self._some()
        values = {"id": f"id + {_FURTHER * len(self.statements)}", "n": str(len(self.statements))}
        self._do(self._writer.update(values, f"id >= {first} AND id < {last}"))

    def _merge(self) -> None:
        rows = self._rows(*self._some())
        number = len(self.statements)
        matched = self._random.choice(
            (
                Merge("WHEN MATCHED THEN UPDATE SET *", lambda merge: merge.when_matched_update_all()),
                Merge("WHEN MATCHED THEN DELETE", lambda merge: merge.when_matched_delete()),
                Merge(
                    "WHEN MATCHED AND s.id % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET t.v = s.v, t.n = s.n",
                    lambda merge: merge.when_matched_delete("s.id % 2 = 0").when_matched_update(
                        {"v": "s.v", "n": "s.n"}
                    ),
                ),
            )
        )
        others = self._random.choice(
            (
                Merge("WHEN NOT MATCHED THEN INSERT *", lambda merge: merge.when_not_matched_insert_all()),
                Merge(
                    "WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE AND t.id % 3 = 0 THEN DELETE",
                    lambda merge: merge.when_not_matched_insert_all().when_not_matched_by_source_delete("t.id % 3 = 0"),
                ),
                Merge(
                    f"WHEN NOT MATCHED BY SOURCE AND t.id % 3 = 0 THEN UPDATE SET t.v = 'alone', t.n = {number}",
                    lambda merge: merge.when_not_matched_by_source_update(
                        {"v": "'alone'", "n": str(number)}, "t.id % 3 = 0"
                    ),
                ),
            )
        )
        self._do(self._writer.merge(rows, matched, others))

    def _overwrite(self) -> None:
        self._do(self._writer.overwrite(self._rows(*self._some())))

    def _replace_partition(self) -> None:
        some, p = self._some(), self._random.randint(0, 1)
        self._do(self._writer.replace(f"p = {p}", self._rows(*some, f"id % 2 = {p}", lambda key: key % 2 == p)))

    def _replace_range(self) -> None:
        first, last, files = self._some()
        number, rest = self._remainder()
        rows = self._rows(first, last, files, f"id % {number} = {rest}", lambda key: key % number == rest)
        self._do(self._writer.replace(f"id >= {first} AND id < {last}", rows))

    def _restore(self) -> None:
        self._do(self._writer.restore(self._random.randint(0, max(self.versions))))

    def _optimize(self) -> None:
        self._do(self._writer.optimize())
