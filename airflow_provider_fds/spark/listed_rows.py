"""All rows of a manifest without the state of its table. Standard library and pyspark, Python 3.9 syntax.

Delta takes three Spark jobs to find out what a table consists of before it reads it: every commit replayed, the
result kept, the files of the query chosen. A manifest is one commit that is read once, all of it. Delta's streaming
source has the same case, and hands the files of its commits to the reader by itself: what it calls for that is called
here. It is no public interface, so it is only a shorter way to the same rows: where a Delta does not have it, or
anything about it is not as expected, the frame of ``spark.read`` stays.
"""

from __future__ import annotations

from typing import Any, List, Optional

from airflow_provider_fds.spark.identity import is_connect

#: What a manifest begins with, before the files.
_HEAD = ("Protocol", "Metadata")


def listed_rows(spark: Any, frame: Any, manifest: str, num_files: int) -> Any:
    """Return a frame of the same rows as ``frame``, for who reads them all.

    Args:
        spark: Session; over Spark Connect there is no other way than ``frame``.
        frame: The manifest as ``spark.read`` gives it.
        manifest: Its folder.
        num_files: How many files it lists.
    """
    if is_connect(spark):
        return frame
    try:
        listed = _listed(spark, type(frame), manifest, num_files)
        # Delta makes its frame in the active session of this thread; a view of it is unknown to any other session
        is_same = (
            listed is not None and listed._jdf.sparkSession() == spark._jsparkSession and listed.schema == frame.schema
        )
    except Exception:  # noqa: BLE001 - whatever this Delta has instead, there is the public way
        return frame
    return listed if is_same else frame


def _listed(spark: Any, frame_type: Any, manifest: str, num_files: int) -> Optional[Any]:
    log = spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, manifest)
    actions = _with_defaults(log, "getChanges", 0).next()._2()
    head = tuple(actions.apply(n).getClass().getSimpleName() for n in range(len(_HEAD)))
    if head != _HEAD or actions.size() != len(_HEAD) + num_files:
        return None
    files = actions.drop(len(_HEAD))
    return frame_type(_with_defaults(log, "createDataFrame", log.unsafeVolatileSnapshot(), files), spark)


def _with_defaults(target: Any, method: str, *given: Any) -> Any:
    """Call a method of Scala with its own defaults for the arguments that are not given."""
    arguments = list(given)
    defaults = {name for name in dir(target) if name.startswith(f"{method}$default$")}
    while f"{method}$default${len(arguments) + 1}" in defaults:
        arguments.append(getattr(target, f"{method}$default${len(arguments) + 1}")())
    return getattr(target, method)(*arguments)


__all__: List[str] = ["listed_rows"]
