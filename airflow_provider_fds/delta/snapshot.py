"""The live files of a version in the order of Delta's streaming source.

The order is (``add.modificationTime``, ``add.path`` by its UTF-8 bytes), both ascending; a file's position in it, from
0, is its index in the initial snapshot. It depends only on the version, not on the checkpoint it is read from. See
``DeltaSourceSnapshot`` in Delta for Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.delta.add_rows import FILE_COLUMNS
from airflow_provider_fds.delta.frozen import FrozenSnapshot, freeze_snapshot
from airflow_provider_fds.delta.replay import files_in_order, transactions, transactions_with

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from airflow_provider_fds.delta.log import DeltaLog

__all__ = ["FrozenSnapshot", "freeze_snapshot", "snapshot_files", "transactions", "transactions_with"]


def snapshot_files(log: DeltaLog, version: int) -> Iterator[pa.RecordBatch]:
    """Yield the live files of ``version`` in order, in batches of any size; memory is bounded.

    Columns: ``path`` as logged (string), ``size`` in bytes, ``modificationTime`` in milliseconds (int64),
    ``deletionVector`` (struct of ``storageType``, ``pathOrInlineDv``, ``sizeInBytes``, ``cardinality``, ``offset``;
    null if the file has none).

    Raises:
        LogTruncatedError: Neither a checkpoint nor the commits reach back far enough.
        LogGapError: A commit between checkpoint and ``version`` is missing.
        TornFileError: A file of the checkpoint is not readable.
    """
    for batch in files_in_order(log, version, FILE_COLUMNS):
        yield batch.select(list(FILE_COLUMNS))
