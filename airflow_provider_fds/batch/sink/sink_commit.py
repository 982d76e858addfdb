"""One commit of a Delta sink, as far as FDS reads it: the driver and Airflow read the same.

Standard library only, Python 3.9 syntax.
"""
# The driver may run Python 3.9, so the annotations stay in its syntax.
# ruff: noqa: UP006, UP035, UP045

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Dict, Iterator, Optional, Tuple

from airflow_provider_fds.batch.sink.commit_metadata import read_commit_metadata, read_write_metadata
from airflow_provider_fds.batch.transactions import stream_uuid, txn_app_id, txn_version

if TYPE_CHECKING:
    from airflow_provider_fds.batch.spec import BatchSpec

#: Operations after which the table's rows or transactions are no longer the same: RESTORE and REPLACE keep old
#: transactions (a batch would be skipped), a clone drops them (a batch would land again).
_BREAKING = ("RESTORE", "CLONE", "CREATE", "REPLACE", "CONVERT")

#: Operations, by Delta's names, that add no new rows. Any other operation is a write.
_BRINGS_NO_ROWS = frozenset(
    (
        *("OPTIMIZE", "REORG", "VACUUM START", "VACUUM END", "DELETE", "TRUNCATE", "RESTORE", "CREATE TABLE"),
        *("SET TBLPROPERTIES", "UNSET TBLPROPERTIES", "UPGRADE PROTOCOL", "DROP FEATURE", "CLUSTER BY"),
        *("ADD COLUMNS", "CHANGE COLUMN", "CHANGE COLUMNS", "RENAME COLUMN", "DROP COLUMNS", "REPLACE COLUMNS"),
        *("SET COLUMN DEFAULT", "ADD CONSTRAINT", "DROP CONSTRAINT", "COMPUTE STATS", "UPDATE SCHEMA"),
        *("ROW TRACKING BACKFILL", "DOMAIN METADATA CLEANUP", "REMOVE COLUMN MAPPING"),
    )
)

#: Operations that leave a table without rows.
_EMPTYING = ("CREATE TABLE", "REPLACE TABLE", "CREATE OR REPLACE TABLE")

#: Conditions of a DELETE that removes every row, as Delta writes them.
_NO_CONDITION = ("", "[]", '["true"]')

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
    def is_restore(self) -> bool:
        """Whether the table was put back to an earlier version or time."""
        return self.operation.upper() == "RESTORE"

    @property
    def restored_to(self) -> Optional[int]:
        """The version to which a RESTORE put the table back; ``None`` if the commit names a time instead."""
        version = self.parameters.get("version", "")
        return int(version) if self.is_restore and version.isdigit() else None

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
            # anyone may write any JSON there (protocol, "Commit Provenance Information")
            info = action["commitInfo"] if isinstance(action["commitInfo"], dict) else {}
        elif "txn" in action:
            transactions[action["txn"]["appId"]] = int(action["txn"]["version"])
        elif "metaData" in action:
            metadata = action["metaData"]
        elif "protocol" in action:
            features = tuple(action["protocol"].get("writerFeatures") or ())
    text = info.get("userMetadata") if isinstance(info.get("userMetadata"), str) else None
    return SinkCommit(
        version=version,
        operation=info["operation"] if isinstance(info.get("operation"), str) else "",
        metrics=texts_of(info.get("operationMetrics")),
        metadata=read_commit_metadata(text),
        transactions=transactions,
        table_id=metadata.get("id"),
        properties=texts_of(metadata.get("configuration")) if metadata else None,
        features=features,
        parameters=texts_of(info.get("operationParameters")),
        removes_rows=removes_rows,
        write=read_write_metadata(text),
    )


def file_actions(content: bytes, name: str) -> Iterator[Dict[str, Any]]:
    """Yield the actions of a commit's file with this name, ``add`` or ``remove``."""
    wanted = re.compile(rb'\s*\{\s*"%b"' % name.encode())
    for line in content.splitlines():
        if wanted.match(line):
            yield json.loads(line)[name]


def texts_of(values: Any) -> Dict[str, str]:
    """Return the values of an object as text, without those that are ``None``; nothing if it is no object."""
    return {key: str(value) for key, value in values.items() if value is not None} if isinstance(values, dict) else {}


def takes_rows(commit: SinkCommit, uuid: str, *, breaking_too: bool = False) -> bool:
    """Whether a commit of another writer removes rows from the table.

    OPTIMIZE and similar operations only rewrite rows. A merge of another stream deletes the keys that its source
    deleted.
    """
    if not commit.removes_rows or is_of_stream(commit, uuid):
        return False
    if commit.is_breaking:
        return breaking_too
    if commit.operation == "UPDATE":
        # a fence closes the current rows of a history
        return "removes" in (commit.metadata or {})
    if commit.operation == "MERGE":
        return commit.metadata is None and metric_of(commit, "numTargetRowsDeleted") != 0
    # an operation that found no row to remove has copied the rows of the files it read
    has_only_copied = metric_of(commit, "numDeletedRows") == 0 and (metric_of(commit, "numCopiedRows") or 0) > 0
    return not has_only_copied


def changes_rows(commit: SinkCommit, uuid: str) -> bool:
    """Whether a commit that is not of a stream of FDS changes values in rows of the table."""
    if not commit.removes_rows or commit.metadata is not None or is_of_stream(commit, uuid):
        return False
    changed = {"UPDATE": "numUpdatedRows", "MERGE": "numTargetRowsUpdated"}.get(commit.operation)
    return changed is not None and metric_of(commit, changed) != 0


def brings_rows(commit: SinkCommit) -> bool:
    """Whether a commit may add rows to those that the table has had before."""
    return commit.operation.upper() not in _BRINGS_NO_ROWS and commit.rows_written != 0


def leaves_no_rows(commit: SinkCommit) -> bool:
    """Whether the operation of a commit leaves the table without rows."""
    if commit.operation in ("DELETE", "TRUNCATE"):
        return commit.parameters.get("predicate", "") in _NO_CONDITION
    return commit.operation in _EMPTYING


def is_of_stream(commit: SinkCommit, uuid: str) -> bool:
    """Whether the commit was made by the stream, or by a person's statement that carries its transaction."""
    if (commit.metadata or {}).get("uuid") == uuid:
        return True
    return any(stream_uuid(app_id) == uuid for app_id in commit.transactions)


def metric_of(commit: SinkCommit, name: str) -> Optional[int]:
    """Return a metric under Delta's name for it, or under delta-rs's (``num_deleted_rows``)."""
    found = commit.metric(name)
    return commit.metric(re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name)) if found is None else found
