"""What a run waits for in staging: written again for a while if staging cannot be reached. Python 3.9 syntax.

Standard library and py4j only.
"""

from __future__ import annotations

import errno
import time
from typing import Any

from airflow_provider_fds.spark.runtime.failures import explain
from airflow_provider_fds.spark.runtime.hadoop_files import write_bytes

#: No write begins later than this after the first one.
LAST_SECONDS = 60.0
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 8.0
#: Errors of a file system that somebody has to end.
_LASTING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM})


def write_report(path: str, data: bytes, spark: Any = None, *, has_folder: bool = False) -> None:
    """Write or overwrite a file, with growing pauses between the tries; a reader sees all of it or none.

    Without it, the next attempt would have to look in the sink for what this one has written.

    Args:
        path: As for :func:`write_bytes`.
        data: The content.
        spark: Session.
        has_folder: Whether the folder was there before: if a local one is gone, it is not mounted, and what is written
            into another one in its place would be lost.

    Raises:
        Exception: That of the last try. What does not pass by itself, such as a full disk, is raised at once.
    """
    began, pause = time.monotonic(), _FIRST_PAUSE
    while True:
        try:
            write_bytes(path, data, spark, makes_folder=not has_folder)
        except Exception as error:
            failure = explain(error)
            is_lasting = getattr(error, "errno", None) in _LASTING or not failure.retryable
            if is_lasting or time.monotonic() + pause - began > LAST_SECONDS:
                raise
            print(f"FDS cannot write to staging, and tries again in {pause:.1f} s: {failure.message}", flush=True)
        else:
            return
        time.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
