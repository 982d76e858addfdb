"""What the sink's own history says: which batches it has, and what others did to it.

Only public SQL (``DESCRIBE HISTORY``, ``DESCRIBE DETAIL``); there is none for transaction versions, so a batch is found
by the ``userMetadata`` of its commit. Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Tuple

from airflow_provider_fds.batch.spec import BatchSpec, read_commit_metadata, txn_version
from airflow_provider_fds.spark.failures import RefusalError, has_condition

_FIRST_LOOK = 20

#: Operations after which the rows or the transactions of the table are not what they were: RESTORE and REPLACE keep
#: old transactions (a batch would be skipped), a clone drops them (a batch would land again).
_BREAKING = ("RESTORE", "CLONE", "CREATE", "REPLACE", "CONVERT")


@dataclass(frozen=True)
class SinkTable:
    """The table as it is now."""

    table_id: str
    properties: Dict[str, str]
    partition_columns: Tuple[str, ...]


@dataclass(frozen=True)
class SinkCommit:
    """One commit of the sink. ``metadata`` is what FDS wrote into it, ``None`` for a commit of anybody else."""

    version: int
    operation: str
    metrics: Dict[str, str]
    metadata: Optional[Dict[str, Any]]

    def transaction_of(self, uuid: str) -> Optional[int]:
        """Return the transaction version, if the commit is one of the stream with this uuid."""
        if self.metadata is None or self.metadata.get("uuid") != uuid:
            return None
        return txn_version(int(self.metadata["epoch"]), int(self.metadata["batch_id"]))

    def holds(self, batch: BatchSpec) -> bool:
        """Whether this commit is the batch: same stream, epoch, number and manifest."""
        return (
            self.transaction_of(batch.uuid) == batch.txn_version
            and self.metadata is not None
            and self.metadata.get("digest") == batch.manifest_digest
        )

    @property
    def is_breaking(self) -> bool:
        """Whether the table was restored, replaced, cloned over or created anew."""
        return self.operation.upper().startswith(_BREAKING)

    def metric(self, name: str) -> Optional[int]:
        """Return one of the operation's metrics (``numOutputRows``, ``numFiles``, ``numOutputBytes``) as a number."""
        value = self.metrics.get(name)
        return int(value) if value is not None and value.isdigit() else None


@dataclass(frozen=True)
class History:
    """Commits of the sink, newest first, as far down as was asked for or as the log still reaches."""

    commits: Tuple[SinkCommit, ...]

    @property
    def newest_version(self) -> int:
        """The table's version."""
        return self.commits[0].version

    def find(self, batch: BatchSpec) -> Optional[SinkCommit]:
        """Return the commit that holds the batch."""
        return next((commit for commit in self.commits if commit.holds(batch)), None)

    @property
    def oldest_version(self) -> int:
        """The version down to which the history reaches."""
        return self.commits[-1].version

    def newest_transaction(self, uuid: str) -> Optional[int]:
        """Return the highest transaction of the stream that can be seen."""
        seen = [commit.transaction_of(uuid) for commit in self.commits]
        return max((txn for txn in seen if txn is not None), default=None)

    def oldest_of(self, uuid: str) -> Optional[int]:
        """Return the oldest version with a commit of the stream."""
        return min((c.version for c in self.commits if c.transaction_of(uuid) is not None), default=None)

    def breaking_after(self, version: int) -> Optional[SinkCommit]:
        """Return the first commit after ``version`` (exclusive) that broke the chain of transactions."""
        return next((c for c in reversed(self.commits) if c.version > version and c.is_breaking), None)


def quoted(path: str) -> str:
    """Return the path as a table name in SQL."""
    return "delta.`" + path.replace("`", "``") + "`"


def read_table(spark: Any, path: str) -> Optional[SinkTable]:
    """Return the table at the path, ``None`` if there is none.

    Raises:
        RefusalError: the path lies inside another Delta table.
    """
    try:
        row = spark.sql(f"DESCRIBE DETAIL {quoted(path)}").select("id", "properties", "partitionColumns").collect()[0]
    except Exception as e:
        if has_condition(e, "DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST"):
            return None
        if has_condition(e, "DELTA_INVALID_PARTITION_PATH"):
            raise RefusalError(
                "SinkInsideTable",
                f"the sink {path} lies inside the folder of another Delta table, whose VACUUM would remove it: "
                "choose a folder of its own",
            ) from e
        raise
    return SinkTable(row["id"], dict(row["properties"] or {}), tuple(row["partitionColumns"] or ()))


def read_history(spark: Any, path: str, down_to: Optional[int]) -> History:
    """Return the commits from the newest down to version ``down_to`` (inclusive), ``None``: all there are."""
    commits = _read(spark, path, f"LIMIT {_FIRST_LOOK}")
    newest = commits[0].version
    wanted = newest + 1 if down_to is None else newest - down_to + 1
    if wanted > len(commits) == _FIRST_LOOK:
        # others may commit in between: a little more than what was missing
        commits = _read(spark, path, "" if down_to is None else f"LIMIT {wanted + _FIRST_LOOK}")
    return History(tuple(c for c in commits if down_to is None or c.version >= down_to))


def _read(spark: Any, path: str, limit: str) -> List[SinkCommit]:
    history = spark.sql(f"DESCRIBE HISTORY {quoted(path)} {limit}")
    rows = history.select("version", "operation", "operationMetrics", "userMetadata").collect()
    commits = [
        SinkCommit(
            version=int(row["version"]),
            operation=row["operation"] or "",
            metrics=dict(row["operationMetrics"] or {}),
            metadata=read_commit_metadata(row["userMetadata"]),
        )
        for row in rows
    ]
    return sorted(commits, key=lambda commit: -commit.version)
