"""Lets a job that lingers go on once a commit is in the log, while Delta still works on what follows a commit.

After every tenth commit (``delta.checkpointInterval``) Delta writes a log checkpoint of the table before the write
returns, which takes several times as long as a small batch. The rows are readable by then. So the write runs in a
thread, and is left to itself once the log has the commit: the next batch does not wait for the log checkpoint.

Classic Spark only. Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, List, Optional

from airflow_provider_fds.batch.sink.sink_commit import parse_commit
from airflow_provider_fds.spark.runtime.failures import shortened
from airflow_provider_fds.spark.runtime.hadoop_files import exists, local_path, read_bytes

if TYPE_CHECKING:
    import threading

    from airflow_provider_fds.batch.spec import BatchSpec

#: Time between two looks at the log: where one is a system call, and where it is a request.
_LOCAL_SECONDS = 0.05
_REMOTE_SECONDS = 0.5
#: A write that has not ended this long after its commit was seen is left to itself.
_PATIENCE_SECONDS = 0.2


class AfterCommits:
    """The threads of writes whose commit is in the log."""

    def __init__(self) -> None:
        self._left: Optional[threading.Thread] = None

    def write(self, write: Callable[[], None], is_committed: Callable[[], bool], look_seconds: float) -> None:
        """Write in a thread, and return when that has ended, or soon after its commit is in the log.

        At most one thread is left to itself: while it works, a later write is waited for to its end.

        Args:
            write: Writes, with one commit; it must change nothing in the session, which the next batch uses meanwhile.
            is_committed: Whether the log has the commit. An error is no answer.
            look_seconds: Time between two calls of it.

        Raises:
            Exception: What ``write`` raises before its commit is in the log.
        """
        failed: List[Exception] = []
        left = False

        def work() -> None:
            try:
                write()
            except Exception as error:  # noqa: BLE001 - raised where it is waited for
                failed.append(error)
                if left:
                    print(f"FDS warning: after its commit, Delta failed: {shortened(str(error))}", flush=True)

        thread = _thread(work)
        thread.start()
        while thread.is_alive():
            thread.join(look_seconds)
            if thread.is_alive() and not self.is_busy and _ask(is_committed):
                thread.join(_PATIENCE_SECONDS)
                if thread.is_alive():
                    self._left, left = thread, True
                    return
        if failed:
            raise failed[0]

    @property
    def is_busy(self) -> bool:
        """Whether a write that was left to itself has not ended."""
        return self._left is not None and self._left.is_alive()

    def wait(self, seconds: float) -> None:
        """Wait for the write that was left to itself, at most for a time."""
        if self._left is not None:
            self._left.join(seconds)


#: Of this application, which works for one stream.
AFTER_COMMITS = AfterCommits()


def write_until_committed(spark: Any, path: str, newest: int, batch: BatchSpec, write: Callable[[], None]) -> None:
    """Write a batch, but do not wait for what Delta does after its commit; see :meth:`AfterCommits.write`.

    Args:
        spark: The session.
        path: The table, as Hadoop writes it.
        newest: Its newest version.
        batch: The batch.
        write: Writes it, with one commit.
    """
    seconds = _REMOTE_SECONDS if local_path(path) is None else _LOCAL_SECONDS
    AFTER_COMMITS.write(write, _look(spark, path, newest, batch), seconds)


def _look(spark: Any, path: str, version: int, batch: BatchSpec) -> Callable[[], bool]:
    """Return a function that tells whether the log has the batch, after a version."""

    def look() -> bool:
        nonlocal version
        while exists(file := f"{path}/_delta_log/{version + 1:020}.json", spark):
            content = read_bytes(file, spark)
            if not content.rstrip().endswith(b"}"):
                # a writer that does not rename its file is still at work on it: the next look reads it whole
                return False
            is_batch = parse_commit(version + 1, content).holds(batch)
            version += 1
            if is_batch:
                return True
        return False

    return look


def _ask(is_committed: Callable[[], bool]) -> bool:
    try:
        return is_committed()
    except Exception:  # noqa: BLE001 - then the write is waited for
        return False


def _thread(work: Callable[[], None]) -> threading.Thread:
    from pyspark import InheritableThread

    # its end also ends the JVM's thread for it
    thread: threading.Thread = InheritableThread(target=work, name="fds-write", daemon=True)
    return thread
