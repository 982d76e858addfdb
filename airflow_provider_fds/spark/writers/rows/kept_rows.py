"""Rows that Spark makes once for those who read them several times. Standard library, pyspark, Python 3.9 syntax."""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator

from airflow_provider_fds.spark.runtime.attempt_identity import is_connect


@contextmanager
def kept_rows(frame: Any) -> Iterator[Any]:
    """Yield the frame, computed once and kept on executors.

    What an executor loses of kept rows is an error, not computed again.
    """
    kept = _computed(frame)
    try:
        yield kept
    finally:
        # a server frees them once the client no longer has the frame
        if not is_connect(frame.sparkSession):
            kept._jdf.logicalPlan().rdd().unpersist(False)  # noqa: FBT003 - does not wait


def _computed(frame: Any) -> Any:
    if not is_connect(frame.sparkSession):
        return frame.localCheckpoint(eager=True)
    from pyspark.sql.connect.session import SparkSession

    # pyspark gives the result the active session of this thread
    of_thread = SparkSession._active_session
    before = getattr(of_thread, "session", None)
    of_thread.session = frame.sparkSession
    try:
        return frame.localCheckpoint(eager=True)
    finally:
        of_thread.session = before
