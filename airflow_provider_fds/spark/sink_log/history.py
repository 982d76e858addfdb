"""What the sink's own log shows: which batches it has, and what others did to it.

A few commits are read as files, which costs no Spark job (``DESCRIBE HISTORY`` takes about as long as a small append,
``DESCRIBE DETAIL`` twice that). Many commits are read by Spark, in parallel; the same lines are evaluated. Standard
library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

from airflow_provider_fds.batch.sink.loaded_streams import Loaded, read_loaded
from airflow_provider_fds.batch.sink.sink_account import NEWEST, Kept, kept
from airflow_provider_fds.batch.sink.sink_commit import SinkCommit, parse_commit
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.spark.runtime.failures import RefusalError, has_condition
from airflow_provider_fds.spark.runtime.hadoop_files import exists, names, read_bytes
from airflow_provider_fds.spark.sink_log.log_files import (
    FDS_TRANSACTIONS,
    checkpoint_transactions,
    commit_contents,
    newest_checkpoint,
)

if TYPE_CHECKING:
    from airflow_provider_fds.batch.spec import BatchSpec

#: More commits than this are read by Spark.
_MOST_FILES = 50

#: Number of commits first read to find a transaction; it grows fourfold with each step.
_WINDOW = 50

#: A larger commit file is read again where it is needed again.
_MOST_KEPT_BYTES = 1 << 20


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

    def kept(self, app_id: str, before: int = NEWEST) -> Kept:
        """Return which of the commits the table still consists of; see :func:`.sink_account.kept`."""
        return kept(reversed(self.commits), app_id, before=before)

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
        self._newest: Tuple[int, bytes] = (-1, b"")

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

    def since_transaction(self, app_id: str, below: int) -> Optional[History]:
        """Return the commits from the last one of an application whose transaction is below a limit, or all there are.

        Returns ``None`` if there is no Delta table.
        """
        commits = _WINDOW
        while (history := self.history(NEWEST)) is not None:
            down_to = max(0, history.newest_version - commits)
            history = History(history.newest_version, self._commits(down_to))
            for position, commit in enumerate(history.commits):
                if commit.transactions.get(app_id, below) < below:
                    return History(history.newest_version, history.commits[: position + 1])
            if down_to == 0 or history.oldest_version > down_to:
                return history
            commits *= 4
        return None

    def tells(self, judge: Callable[[Sequence[SinkCommit]], Optional[bool]]) -> bool:
        """Return the answer of the newest commits, newest first; ``judge`` returns ``None`` to get earlier ones, too.

        Without an answer, also of all commits that there are, it is false.
        """
        commits = _WINDOW
        while (history := self.history(NEWEST)) is not None:
            down_to = max(0, history.newest_version - commits)
            history = History(history.newest_version, self._commits(down_to))
            answer = judge(history.commits)
            if answer is not None or down_to == 0 or history.oldest_version > down_to:
                return answer is True
            commits *= 4
        return False

    def loaded(self, history: History) -> Loaded:
        """Return what the streams have loaded, according to a history that was just read, and to earlier commits."""
        return read_loaded(history.commits[::-1], lambda down_to: self._commits(down_to)[::-1])

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
                    Reason.SINK_LOG_DAMAGED,
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
        """Return the commit file of a version, whole. That of the newest version is asked for again, and is kept."""
        kept_version, kept_content = self._newest
        if version == kept_version:
            return kept_content
        content = read_bytes(self._file(version), self._spark)
        if version > kept_version and len(content) <= _MOST_KEPT_BYTES:
            self._newest = (version, content)
        return content

    def is_another(self) -> bool:
        """Whether the table has another log now: it was removed since the last read, and created again."""
        version, content = self._newest
        file = self._file(version)
        return version >= 0 and exists(file, self._spark) and read_bytes(file, self._spark) != content

    @property
    def newest_version(self) -> Optional[int]:
        """The newest version that was read, ``None`` if none was."""
        return self._versions[-1] if self._versions else None

    def checksum(self, version: int) -> bytes:
        """Return the checksum file of a version."""
        return read_bytes(f"{self._folder}/{version:020}.crc", self._spark)

    def _commits(self, down_to: Optional[int]) -> Tuple[SinkCommit, ...]:
        wanted = [version for version in reversed(self._versions) if down_to is None or version >= down_to]
        unread = [version for version in wanted if version not in self._read]
        if len(unread) > _MOST_FILES:
            # the newest one is kept as it is, see is_another
            contents = commit_contents(self._spark, self._folder, unread[1:])
            self._read.update((version, parse_commit(version, content)) for version, content in contents.items())
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
        self._newest = (-1, b"")

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
                Reason.SINK_PLACE_REFUSED,
                f"the sink {path} is inside the folder of another Delta table, whose VACUUM would remove it. Use "
                "a separate folder",
            ) from e
        raise
    return str(rows[0]["id"])


def read_properties(spark: Any, path: str) -> Dict[str, str]:
    """Return the table's properties."""
    return {row["key"]: row["value"] for row in spark.sql(f"SHOW TBLPROPERTIES {quoted(path)}").collect()}
