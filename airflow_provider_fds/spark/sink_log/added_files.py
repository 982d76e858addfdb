"""Whether the files that a commit added to the sink are there: data files with their size, and deletion vectors.

A commit lists the files that its tasks wrote, wherever the tasks wrote them: if the sink's folder is not mounted on a
Spark worker, they are on that worker's own disk, and Spark notices nothing. Files in an object store are not checked:
every process reaches the same one. Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Dict, Optional, Set, Tuple
from urllib.parse import unquote

from airflow_provider_fds.batch.sink.sink_commit import file_actions
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.spark.runtime.failures import RefusalError
from airflow_provider_fds.spark.runtime.hadoop_files import hadoop_path, is_on_file_system, scheme, size_bytes
from airflow_provider_fds.z85 import vector_file

if TYPE_CHECKING:
    from airflow_provider_fds.batch.sink.sink_commit import SinkCommit
    from airflow_provider_fds.spark.sink_log.history import History, SinkLog


class AddedFiles:
    """The files of the sink's commits.

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
        actions = list(file_actions(self._log.content(commit.version), "add"))
        missing: Dict[str, Tuple[str, int]] = {}
        for action in actions:
            file, size = str(action["path"]), int(action.get("size") or 0)
            if self._size_of(file, size) != size:
                missing[file] = (unquote(file), size)
            elif (vector := self._lost_vector(action)) is not None:
                missing[file] = vector
        for later in history.commits if missing else ():
            # a RESTORE removes the rows; after any other commit, they are elsewhere or were removed on purpose
            if later.version > commit.version and not later.is_breaking:
                for action in file_actions(self._log.content(later.version), "remove"):
                    missing.pop(str(action["path"]), None)
        if missing:
            raise self._refused(commit.version, missing, len(actions), what, again)
        self._checked.add(commit.version)

    def _refused(
        self, version: int, missing: Dict[str, Tuple[str, int]], added: int, what: str, again: str
    ) -> RefusalError:
        first, size = min(missing.values())
        undo = (
            f"restore version {version - 1} of the sink, the last without this commit, which also undoes every later "
            f"commit, and load the rows again by {again}"
            if version > 0
            else f"remove {self._path}, whose first commit this is, and run the stream again"
        )
        return RefusalError(
            Reason.SINK_FILES_MISSING,
            f"{what} is in the sink {self._path} as version {version}, but {len(missing)} of its {added} data files "
            f"are not there ({first}, {size:,} bytes): most likely, the sink's folder is not "
            "mounted on a Spark worker, which has them on its own disk. Mount it, move the files from there into the "
            f"sink, and run the stream again; if they are lost, {undo}",
        )

    def _lost_vector(self, action: Dict[str, Any]) -> Optional[Tuple[str, int]]:
        """Return the file of the deletion vector and its least size, if it is not there or is shorter."""
        vector = action.get("deletionVector") or {}
        if vector.get("storageType") == "u":
            folder, name = vector_file(vector["pathOrInlineDv"])
            file = f"{folder}/{name}" if folder else name
        elif vector.get("storageType") == "p":
            file = vector["pathOrInlineDv"]
        else:
            return None
        least = int(vector.get("offset") or 0) + int(vector["sizeInBytes"])
        size = self._size_of(file, least)
        return None if size is not None and size >= least else (unquote(file), least)

    def _size_of(self, logged: str, otherwise: int) -> Optional[int]:
        """Return the size of a file, ``None`` if it is missing, and ``otherwise`` if it is in an object store."""
        path = unquote(logged)
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", logged):
            path = hadoop_path(logged, self._spark)
        elif not logged.startswith("/"):
            path = f"{self._path}/{path}"
        elif scheme(self._path) != "file":
            # a path from the root of the same file system
            path = "/".join(self._path.split("/", 3)[:3]) + path
        return size_bytes(path, self._spark) if is_on_file_system(path) else otherwise
