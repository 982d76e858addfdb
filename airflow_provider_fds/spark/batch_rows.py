"""The rows of a batch, read through its manifests. Standard library and pyspark, Python 3.9 syntax."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List

from airflow_provider_fds.spark.failures import RefusalError, has_condition
from airflow_provider_fds.spark.listed_rows import listed_rows

if TYPE_CHECKING:
    from airflow_provider_fds.batch.spec import BatchSpec


def batch_rows(spark: Any, batch: BatchSpec, *, are_all_read: bool = False) -> Any:
    """Return the DataFrame of the batch, with ``_commit_version`` and ``_commit_timestamp``.

    Args:
        spark: Session.
        batch: The batch.
        are_all_read: Whether every row is read and counted.

    Raises:
        RefusalError: Spark does not find a manifest at its location.
    """
    frame = _load(spark, batch, batch.manifest)
    if are_all_read and not batch.more_manifests:
        return listed_rows(spark, frame, batch.manifest, batch.num_files)
    for manifest in batch.more_manifests:
        # columns that were added in the middle of an interval are NULL in earlier rows
        frame = frame.unionByName(_load(spark, batch, manifest), allowMissingColumns=True)
    return frame


def _load(spark: Any, batch: BatchSpec, manifest: str) -> Any:
    try:
        frame = spark.read.format("delta").load(manifest)
        # Spark Connect checks nothing before it is asked
        frame.columns  # noqa: B018
    except Exception as e:
        if has_condition(e, "PATH_NOT_FOUND", "DELTA_TABLE_NOT_FOUND", "DELTA_MISSING_DELTA_TABLE"):
            raise RefusalError(
                "ManifestMissing",
                f"the manifest of batch {batch.batch_id} is not at {manifest}: Spark does not "
                "reach the staging folder under this name, or it was cleaned up before the batch was committed",
            ) from e
        raise
    return frame


__all__: List[str] = ["batch_rows"]
