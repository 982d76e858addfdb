"""The rows of a batch, read through its manifests. Standard library and pyspark, Python 3.9 syntax.

Before it reads a table, Delta takes three Spark jobs to determine its state: replay every commit, keep the result,
choose the files of the query. A manifest is one commit that is read once, as a whole. Delta's streaming source has the
same case and hands the files of its commits directly to the reader; the same methods are called here. They are not a
public interface, so they are only a shortcut to the same rows: if a version of Delta lacks them, or anything about them
is unexpected, the frame of ``spark.read`` is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Optional

from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.spark.runtime.attempt_identity import is_connect
from airflow_provider_fds.spark.runtime.connect_shortcuts import has_shortcuts, shortcut
from airflow_provider_fds.spark.runtime.failures import RefusalError, has_condition

if TYPE_CHECKING:
    from airflow_provider_fds.batch.spec import BatchSpec


#: The first actions of a manifest, before the files.
_HEAD = ("Protocol", "Metadata")


def batch_rows(spark: Any, batch: BatchSpec, *, are_all_read: bool = False) -> Any:
    """Return the DataFrame of the batch, with ``_commit_version`` and ``_commit_timestamp``, filtered by its ``where``.

    Args:
        spark: Session.
        batch: The batch.
        are_all_read: Whether every row is read and counted.

    Raises:
        RefusalError: Spark does not find a manifest at its location.
    """
    frame = _load(spark, batch, batch.manifest)
    if batch.where is None and are_all_read and not batch.more_manifests:
        return listed_rows(spark, frame, batch.manifest, batch.num_files)
    for manifest in batch.more_manifests:
        # columns that were added in the middle of an interval are NULL in earlier rows
        frame = frame.unionByName(_load(spark, batch, manifest), allowMissingColumns=True)
    return frame if batch.where is None else frame.where(batch.where)


def _load(spark: Any, batch: BatchSpec, manifest: str) -> Any:
    try:
        frame = spark.read.format("delta").load(manifest)
        # Spark Connect checks nothing before it is asked
        frame.columns  # noqa: B018
    except Exception as e:
        if has_condition(e, "PATH_NOT_FOUND", "DELTA_TABLE_NOT_FOUND", "DELTA_MISSING_DELTA_TABLE"):
            raise RefusalError(
                Reason.MANIFEST_MISSING,
                f"the manifest of batch {batch.batch_id} is missing at {manifest}: Spark cannot reach the staging "
                "folder under this name, or the manifest was cleaned up before the batch was committed",
            ) from e
        raise
    return frame


def listed_rows(spark: Any, frame: Any, manifest: str, num_files: int) -> Any:
    """Return a frame with the same rows as ``frame``, for a caller that reads all of them.

    Args:
        spark: Session; over Spark Connect, ``frame`` itself is returned unless the server has FDS's classes.
        frame: The manifest as read by ``spark.read``.
        manifest: Its folder.
        num_files: Number of files it lists.
    """
    try:
        if is_connect(spark):
            if not has_shortcuts(spark):
                return frame
            listed = shortcut(spark, "rows", manifest, files=num_files)
            return listed if listed.schema == frame.schema else frame
        listed = _listed(spark, type(frame), manifest, num_files)
        # Delta makes its frame in the active session of this thread; other sessions do not know a view of it
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
    """Call a Scala method, with its own defaults for the arguments that are not given."""
    arguments = list(given)
    defaults = {name for name in dir(target) if name.startswith(f"{method}$default$")}
    while f"{method}$default${len(arguments) + 1}" in defaults:
        arguments.append(getattr(target, f"{method}$default${len(arguments) + 1}")())
    return getattr(target, method)(*arguments)
