"""Whether the data files that a commit added to the sink are there, with their size.

A commit lists the files that its tasks wrote, wherever the tasks wrote them: if the sink's folder is not mounted on a
Spark worker, they are on that worker's own disk, and Spark notices nothing. Files in an object store are not checked:
every process reaches the same one. Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Dict, List, Set
from urllib.parse import unquote

from airflow_provider_fds.batch.sink_commit import file_actions
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.spark.runtime.failures import RefusalError
from airflow_provider_fds.spark.runtime.hadoop_files import hadoop_path, is_on_file_system, scheme, size_bytes

if TYPE_CHECKING:
    from airflow_provider_fds.batch.sink_commit import SinkCommit
    from airflow_provider_fds.spark.sink_log.history import History, SinkLog


class AddedFiles:
    """The data files of the sink's commits.

    Args:
        spark: The session.
        path: Location of the sink, as Hadoop has it.
        log: Its log.
    """

    def __init__(self, spark: Any, path: str, log: SinkLog) -> None:
        self._spark = spark
        self._path = path
        self._log = log
        self._checked: Set[int] = set()

    def check(self, history: History, commit: SinkCommit, what: str, again: str) -> None:
        """Refuse a commit unless each file that it added is there, or a later commit has removed it.

        Args:
            history: The sink's commits, from ``commit`` on.
            commit: The commit.
            what: The commit in words.
            again: What loads its rows again once the sink no longer has it.

        Raises:
            RefusalError: A file is missing, or has another size.
        """
        if commit.version in self._checked or not is_on_file_system(self._path):
            return
        actions = file_actions(self._log.content(commit.version), "add")
        added = {str(action["path"]): int(action.get("size") or 0) for action in actions}
        missing = {path: size for path, size in added.items() if self._differs(path, size)}
        for later in history.commits if missing else ():
            # a RESTORE removes the rows; after any other commit, they are elsewhere or were removed on purpose
            if later.version > commit.version and not later.is_breaking:
                for action in file_actions(self._log.content(later.version), "remove"):
                    missing.pop(str(action["path"]), None)
        if missing:
            raise self._refused(commit.version, missing, len(added), what, again)
        self._checked.add(commit.version)

    def _refused(self, version: int, missing: Dict[str, int], added: int, what: str, again: str) -> RefusalError:
        first = min(missing)
        undo = (
            f"restore version {version - 1} of the sink, the last without this commit, which also undoes every later "
            f"commit, and load the rows again by {again}"
            if version > 0
            else f"remove {self._path}, whose first commit this is, and run the stream again"
        )
        return RefusalError(
            Reason.SINK_FILES_MISSING,
            f"{what} is in the sink {self._path} as version {version}, but {len(missing)} of its {added} data files "
            f"are not there ({unquote(first)}, {missing[first]:,} bytes): most likely, the sink's folder is not "
            "mounted on a Spark worker, which has them on its own disk. Mount it, move the files from there into the "
            f"sink, and run the stream again; if they are lost, {undo}",
        )

    def _differs(self, logged: str, size: int) -> bool:
        path = unquote(logged)
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", logged):
            path = hadoop_path(logged, self._spark)
        elif not logged.startswith("/"):
            path = f"{self._path}/{path}"
        elif scheme(self._path) != "file":
            # a path from the root of the same file system
            path = "/".join(self._path.split("/", 3)[:3]) + path
        return is_on_file_system(path) and size_bytes(path, self._spark) != size


__all__: List[str] = ["AddedFiles"]
