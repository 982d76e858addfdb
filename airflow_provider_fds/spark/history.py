"""What the sink's own log shows: which batches it has, and what others did to it.

A few commits are read as files, which costs no Spark job (``DESCRIBE HISTORY`` takes about as long as a small append,
``DESCRIBE DETAIL`` twice that). Many commits are read by Spark, in parallel; the same lines are evaluated. Standard
library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import Any, Dict, FrozenSet, List, Optional, Set, Tuple

from airflow_provider_fds.batch.commit_metadata import read_commit_metadata, read_write_metadata
from airflow_provider_fds.batch.spec import BatchSpec, txn_app_id, txn_version
from airflow_provider_fds.spark.failures import RefusalError, has_condition
from airflow_provider_fds.spark.files import exists, names, read_bytes
from airflow_provider_fds.spark.log_files import (
    FDS_TRANSACTIONS,
    checkpoint_transactions,
    commit_contents,
    newest_checkpoint,
)

#: More commits than this are read by Spark.
_MOST_FILES = 50

#: Operations after which the table's rows or transactions are no longer the same: RESTORE and REPLACE keep old
#: transactions (a batch would be skipped), a clone drops them (a batch would land again).
_BREAKING = ("RESTORE", "CLONE", "CREATE", "REPLACE", "CONVERT")

#: Newest version that a table can have.
_NEWEST = (1 << 63) - 1

_WANTED = re.compile(rb'\s*\{\s*"(commitInfo|txn|metaData|protocol|remove)"')
_TAKES_ROWS = re.compile(rb'"dataChange"\s*:\s*true')


@dataclass(frozen=True)
class SinkCommit:
    """One commit of the sink.

    Attributes:
        metadata: What FDS wrote into the commit, or ``None`` for a commit of another writer.
        transactions: Transaction version by application id.
        table_id: ``metaData.id``, if the commit sets it.
        properties: Table properties, if the commit sets them; ``None`` if it leaves them unchanged.
        features: Writer table features, if the commit sets the protocol.
        parameters: ``operationParameters``, such as ``mode``.
        removes_rows: Whether a file is removed together with its rows, rather than because its rows were rewritten.
        write: What the write options of a function's batch have put into the commit, or ``None`` for any other commit.
    """

    version: int
    operation: str
    metrics: Dict[str, str]
    metadata: Optional[Dict[str, Any]]
    transactions: Dict[str, int] = field(default_factory=dict)
    table_id: Optional[str] = None
    properties: Optional[Dict[str, str]] = None
    features: Tuple[str, ...] = ()
    parameters: Dict[str, str] = field(default_factory=dict)
    removes_rows: bool = False
    write: Optional[Dict[str, Any]] = None

    def transaction_of(self, app_id: str) -> Optional[int]:
        """Return the commit's transaction version under this application id, or ``None``."""
        if app_id in self.transactions:
            return self.transactions[app_id]
        if self.metadata is None or txn_app_id(str(self.metadata.get("uuid")), self.metadata.get("interval")) != app_id:
            return None
        if "fence" in self.metadata:
            return int(self.metadata["fence"])
        return txn_version(int(self.metadata["epoch"]), int(self.metadata["batch_id"]))

    def holds(self, batch: BatchSpec) -> bool:
        """Whether this commit is the batch: same stream, epoch, number and manifest."""
        return (
            self.transaction_of(batch.txn_app_id) == batch.txn_version
            and self.metadata is not None
            and self.metadata.get("digest") == batch.manifest_digest
        )

    @property
    def is_breaking(self) -> bool:
        """Whether the table was restored, replaced, cloned over or created anew."""
        return self.operation.upper().startswith(_BREAKING)

    @property
    def restored_to(self) -> Optional[int]:
        """The version to which a RESTORE put the table back; ``None`` if the commit names a time instead."""
        version = self.parameters.get("version", "")
        return int(version) if self.operation.upper() == "RESTORE" and version.isdigit() else None

    @property
    def rows_written(self) -> Optional[int]:
        """Rows that the operation wrote, or ``None`` if it does not say; for a MERGE, the rows it changed.

        ``replaceWhere`` counts copied rows of rewritten files in its output, and does not report rows if it wrote no
        file.
        """
        if self.operation == "MERGE":
            changed = [self.metric(f"numTargetRows{what}") for what in ("Inserted", "Updated", "Deleted")]
            return sum(count or 0 for count in changed)
        rows = self.metric("numOutputRows")
        if rows is None:
            return 0 if self.metric("numFiles") == 0 else None
        return rows - (self.metric("numCopiedRows") or 0)

    @property
    def files_written(self) -> Optional[int]:
        """Data files that the operation wrote, or ``None`` if it does not say."""
        return self.metric("numTargetFilesAdded" if self.operation == "MERGE" else "numFiles")

    @property
    def bytes_written(self) -> Optional[int]:
        """Bytes of these files, or ``None`` if it does not say."""
        return self.metric("numTargetBytesAdded" if self.operation == "MERGE" else "numOutputBytes")

    def metric(self, name: str) -> Optional[int]:
        """Return one of the operation's metrics (``numOutputRows``, ``numFiles``, ``numOutputBytes``) as a number."""
        value = self.metrics.get(name)
        return int(value) if value is not None and value.isdigit() else None


@dataclass(frozen=True)
class Kept:
    """The commits that a table consists of, without those that a RESTORE, REPLACE or CLONE removed.

    Attributes:
        versions: Those of the commits read whose changes are in the table, or may be.
        broken_at: The commit that removed, or may have removed, the oldest commit read or earlier ones; ``None`` if
            they are in the table.
        restored_to: The version, earlier than all commits read, to which that commit restored the table; ``None`` if it
            does not say.
    """

    versions: FrozenSet[int]
    broken_at: Optional[int]
    restored_to: Optional[int] = None


@dataclass(frozen=True)
class History:
    """Commits of the sink, newest first, back to the requested version or to the log's oldest."""

    newest_version: int
    commits: Tuple[SinkCommit, ...]

    @property
    def oldest_version(self) -> int:
        """The oldest version in the history."""
        return self.commits[-1].version if self.commits else self.newest_version

    def find(self, batch: BatchSpec) -> Optional[SinkCommit]:
        """Return the commit that holds the batch."""
        return next((commit for commit in self.commits if commit.holds(batch)), None)

    def at(self, version: Optional[int]) -> Optional[SinkCommit]:
        """Return the commit of this version, or ``None`` if the log no longer reaches it."""
        return next((commit for commit in self.commits if commit.version == version), None)

    def newest_transaction(self, app_id: str) -> Optional[int]:
        """Return the highest transaction under the application id among the commits read."""
        seen = [commit.transaction_of(app_id) for commit in self.commits]
        return max((txn for txn in seen if txn is not None), default=None)

    def all_of(self, batch: BatchSpec) -> Tuple[SinkCommit, ...]:
        """Return every commit under the batch's transaction, newest first; Delta makes only one."""
        return tuple(c for c in self.commits if c.transaction_of(batch.txn_app_id) == batch.txn_version)

    def oldest_of(self, app_id: str) -> Optional[int]:
        """Return the oldest version with a commit under the application id."""
        return min((c.version for c in self.commits if c.transaction_of(app_id) is not None), default=None)

    def kept(self, app_id: str, before: int = _NEWEST) -> Kept:
        """Return which of the commits the table still consists of.

        Args:
            app_id: The stream's application id; a table that its transaction created did not exist before.
            before: Only commits before this version count (exclusive).
        """
        state = Kept(frozenset(), None)
        states: Dict[int, Kept] = {}
        for commit in reversed(self.commits):
            if commit.version >= before:
                break
            if not commit.is_breaking or commit.transaction_of(app_id) is not None:
                state = replace(state, versions=state.versions | {commit.version})
            elif commit.restored_to in states:
                state = states[commit.restored_to]
            elif commit.operation.upper() != "RESTORE" or (commit.restored_to or 0) < self.oldest_version:
                unknown = commit.operation.upper() == "RESTORE" and commit.restored_to is None
                # what a RESTORE to a time removed is not known
                versions: FrozenSet[int] = state.versions if unknown else frozenset()
                state = Kept(versions, commit.version, commit.restored_to)
            else:
                state = replace(state, broken_at=commit.version)
            states[commit.version] = state
        return state

    def breaking_after(self, version: int) -> Optional[SinkCommit]:
        """Return the first commit after ``version`` (exclusive) that broke the chain of transactions."""
        return next((c for c in reversed(self.commits) if c.version > version and c.is_breaking), None)


class SinkLog:
    """The ``_delta_log`` of one sink, for repeated reads; commits that were read are kept."""

    def __init__(self, spark: Any, path: str) -> None:
        self._spark = spark
        self._path = path
        self._names: Set[str] = set()
        self._versions: List[int] = []
        self._read: Dict[int, SinkCommit] = {}
        self._checkpointed: Dict[int, Dict[str, int]] = {}

    def history(self, down_to: Optional[int]) -> Optional[History]:
        """Return the commits from the newest back to version ``down_to`` (inclusive); ``None`` reads all there are.

        Returns ``None`` if there is no Delta table.
        """
        self._find_versions()
        if not self._versions:
            return None
        try:
            commits = self._commits(down_to)
        except Exception:
            oldest = self._versions[0]
            self._list()
            if not self._versions or self._versions[0] <= oldest:
                raise
            # log cleanup removed the oldest commits in the meantime
            commits = self._commits(down_to)
        return History(self._versions[-1], commits)

    def transactions(self) -> Dict[str, int]:
        """Return the newest transaction of each FDS application id in the table's state, as of the last read.

        Delta itself relies on this state. It outlives the commits, which log cleanup removes, and costs a Spark job if
        they do not reach back to version 0.

        Raises:
            RefusalError: Neither commits nor a log checkpoint reach back far enough.
        """
        if not self._versions:
            return {}
        found: Dict[str, int] = {}
        first = 0
        if self._versions[0] > 0:
            self._list()
            checkpoint = newest_checkpoint(self._names, self._versions[-1])
            if checkpoint is None or checkpoint.version + 1 < self._versions[0]:
                raise RefusalError(
                    "SinkLogGap",
                    f"the log of the sink {self._path} has commits from version {self._versions[0]} on and no "
                    "checkpoint before them, so it is unknown which batches the sink has. Restore its _delta_log",
                )
            if checkpoint.version not in self._checkpointed:
                read = checkpoint_transactions(self._spark, self._folder, checkpoint)
                self._checkpointed = {checkpoint.version: read}
            found, first = dict(self._checkpointed[checkpoint.version]), checkpoint.version + 1
        for commit in reversed(self._commits(first)):
            # under an id of another writer, a later transaction may have a lower version
            found.update((a, v) for a, v in commit.transactions.items() if a.startswith(FDS_TRANSACTIONS))
        return found

    def transaction(self, app_id: str) -> Optional[int]:
        """Return the newest transaction of an FDS application id; see :meth:`transactions`."""
        return self.transactions().get(app_id)

    def versions_before(self, version: int) -> List[int]:
        """Return the versions before ``version`` whose commits exist, newest first."""
        return [known for known in reversed(self._versions) if known < version]

    def content(self, version: int) -> bytes:
        """Return the commit file of a version, whole."""
        return read_bytes(self._file(version), self._spark)

    def _commits(self, down_to: Optional[int]) -> Tuple[SinkCommit, ...]:
        wanted = [version for version in reversed(self._versions) if down_to is None or version >= down_to]
        unread = [version for version in wanted if version not in self._read]
        if len(unread) > _MOST_FILES:
            contents = commit_contents(self._spark, self._folder, unread)
            self._read.update((version, parse_commit(version, contents[version])) for version in unread)
        for version in wanted:
            if version not in self._read:
                self._read[version] = parse_commit(version, self.content(version))
        return tuple(self._read[version] for version in wanted)

    def _find_versions(self) -> None:
        if self._versions and exists(self._file(self._versions[-1]), self._spark):
            # the log was listed before: new commits follow its newest version
            while exists(self._file(self._versions[-1] + 1), self._spark):
                self._versions.append(self._versions[-1] + 1)
            return
        self._list()
        self._read.clear()

    def _list(self) -> None:
        self._names = names(self._folder, self._spark)
        found = [re.fullmatch(r"(\d{20})\.json", name) for name in self._names]
        versions = sorted(int(match.group(1)) for match in found if match)
        # commits before a gap no longer belong to the log: a cleanup was not finished
        first = next((i for i in range(len(versions) - 1, 0, -1) if versions[i - 1] != versions[i] - 1), 0)
        self._versions = versions[first:]

    @property
    def _folder(self) -> str:
        return f"{self._path}/_delta_log"

    def _file(self, version: int) -> str:
        return f"{self._folder}/{version:020}.json"


def parse_commit(version: int, content: bytes) -> SinkCommit:
    """Read the relevant parts of a commit's file (Delta protocol, "Delta Log Entries")."""
    info: Dict[str, Any] = {}
    transactions: Dict[str, int] = {}
    metadata: Dict[str, Any] = {}
    features: Tuple[str, ...] = ()
    removes_rows = False
    for line in content.splitlines():
        # adds and removes are most of a commit; they are not decoded
        match = _WANTED.match(line)
        if match is None:
            continue
        if match.group(1) == b"remove":
            removes_rows = removes_rows or _TAKES_ROWS.search(line) is not None
            continue
        action = json.loads(line)
        if "commitInfo" in action:
            info = action["commitInfo"]
        elif "txn" in action:
            transactions[action["txn"]["appId"]] = int(action["txn"]["version"])
        elif "metaData" in action:
            metadata = action["metaData"]
        elif "protocol" in action:
            features = tuple(action["protocol"].get("writerFeatures") or ())
    return SinkCommit(
        version=version,
        operation=info.get("operation") or "",
        metrics=_texts(info.get("operationMetrics")),
        metadata=read_commit_metadata(info.get("userMetadata")),
        transactions=transactions,
        table_id=metadata.get("id"),
        properties=_texts(metadata.get("configuration")) if metadata else None,
        features=features,
        parameters=_texts(info.get("operationParameters")),
        removes_rows=removes_rows,
        write=read_write_metadata(info.get("userMetadata")),
    )


def _texts(values: Optional[Dict[str, Any]]) -> Dict[str, str]:
    return {key: str(value) for key, value in (values or {}).items() if value is not None}


def quoted(path: str) -> str:
    """Return the path as a table name in SQL."""
    return "delta.`" + path.replace("`", "``") + "`"


def read_table_id(spark: Any, path: str) -> Optional[str]:
    """Return ``metaData.id`` of the table at the path, or ``None`` if there is no table.

    Raises:
        RefusalError: The path is inside another Delta table.
    """
    try:
        rows = spark.sql(f"DESCRIBE DETAIL {quoted(path)}").select("id").collect()
    except Exception as e:
        if has_condition(e, "DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_NOT_FOUND", "DELTA_PATH_DOES_NOT_EXIST"):
            return None
        if has_condition(e, "DELTA_INVALID_PARTITION_PATH"):
            raise RefusalError(
                "SinkInsideTable",
                f"the sink {path} is inside the folder of another Delta table, whose VACUUM would remove it. Use "
                "a separate folder",
            ) from e
        raise
    return str(rows[0]["id"])


def read_properties(spark: Any, path: str) -> Dict[str, str]:
    """Return the table's properties."""
    return {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {quoted(path)}").collect()}
