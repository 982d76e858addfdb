"""The effect of a commit on files whose deletion vectors it changed: the difference of two bitmaps.

A commit that gives a file another deletion vector removes the file with the old vector and adds it with the new one.
The rows that only the new vector names were deleted; those that only the old one names came back (RESTORE). Either set
is listed as the file with an inline vector that deletes *all other* rows, which any reader of deletion vectors can
apply. Source of the rule: ``CDCReader.processDeletionVectorActions`` of delta-spark 4.4, which filters the other way
round.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyroaring import BitMap64

from airflow_provider_fds.delta.statistics import num_records
from airflow_provider_fds.delta.vectors import VectorReader, inline_vector
from airflow_provider_fds.errors import LostPositionError, RequestRefusedError, StoppedError
from airflow_provider_fds.source.changes.changed_files import whole_file
from airflow_provider_fds.source.planned import ChangedFile

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_fds.delta.actions import Add, DeletionVector, Remove
    from airflow_provider_fds.delta.commits import Commit
    from airflow_provider_fds.delta.storage.storage import Storage


#: Limit for the rows of a data file, by its size: a bitmap of *all other* rows takes memory for each 65,536 of them.
#: The densest files, with constant columns, have some hundred rows per byte.
_MAX_ROWS_PER_BYTE: Final = 4_096
_ALWAYS_ROWS: Final = 1 << 24
_MAX_ROWS: Final = 1 << 33


def vector_changes(commit: Commit, storage: Storage) -> Iterator[tuple[int, ChangedFile | None]]:
    """Yield the effect of each ``add`` and ``remove`` of ``commit`` that changes data, with its index.

    A file that the commit both removes and adds is a delete at the index of its ``remove`` and an insert at that of its
    ``add``; ``None`` if no row changed in that direction.

    Raises:
        StoppedError: A vector cannot be read, or the number of rows of its file is not known.
        LostPositionError: The file of a vector is gone.
    """
    changing = [
        action for action in commit.actions if (file := action.add or action.remove) is not None and file.changes_data
    ]
    root = f"{storage.uri}/"
    added = {action.add.path.removeprefix(root): action.add for action in changing if action.add is not None}
    pairs: dict[str, tuple[Remove, Add]] = {}
    for action in changing:
        if action.remove is not None and (path := action.remove.path.removeprefix(root)) in added:
            pairs[path] = (action.remove, added[path])
    diff = _Difference(commit.version, storage)
    found: dict[str, tuple[ChangedFile | None, ChangedFile | None]] = {}
    for index, action in enumerate(changing):
        file = action.add or action.remove
        path = "" if file is None else file.path.removeprefix(root)
        if path not in pairs:
            yield index, whole_file(action, commit.version, storage.uri)
            continue
        if path not in found:
            found[path] = diff.of(*pairs[path])
        yield index, found[path][action.add is not None]


class _Difference:
    """Compares the vectors of one file before and after a commit."""

    def __init__(self, version: int, storage: Storage) -> None:
        self._version = version
        self._table = storage.uri
        self._reader = VectorReader(storage)

    def of(self, remove: Remove, add: Add) -> tuple[ChangedFile | None, ChangedFile | None]:
        """Return the deleted rows and the restored ones, each as a file or ``None``."""
        old = self._rows(remove.path, remove.deletionVector)
        new = self._rows(add.path, add.deletionVector)
        if old == new:
            return None, None
        rows = self._count(remove, add, max(_end(old), _end(new)))
        return self._only(new - old, rows, add, "delete"), self._only(old - new, rows, add, "insert")

    def _only(self, changed: BitMap64, rows: int, add: Add, change_type: str) -> ChangedFile | None:
        if not changed:
            return None
        others = _all_but(changed, rows)
        return ChangedFile(
            add.path,
            size=add.size,
            partitionValues=add.partitionValues,
            modificationTime=add.modificationTime,
            # the file's minima and maxima do not apply to these rows
            stats=f'{{"numRecords":{rows},"tightBounds":false}}',
            deletionVector=inline_vector(others) if others else None,
            change_type=change_type,
        )

    def _rows(self, path: str, vector: DeletionVector | None) -> BitMap64:
        try:
            return self._reader.rows(vector)
        except FileNotFoundError as error:
            raise LostPositionError(
                f"{self._table}: version {self._version} changes the deletion vector of {path}, and the file of "
                f"its vector {vector and vector.unique_id} is missing: VACUUM removed it, so it is no longer "
                "known which rows the commit changed. Restore the file, or skip the commit with "
                f"skip_versions='{self._version}', which loses its changes",
                table=self._table,
                version=self._version,
            ) from error
        except (ValueError, RequestRefusedError) as error:
            why = f"the deletion vector {vector and vector.unique_id} cannot be read: {error}"
            raise self._stop(path, why) from error

    def _count(self, remove: Remove, add: Add, least: int) -> int:
        for stats in (add.stats, remove.stats):
            rows = num_records(stats)
            limit = min(_MAX_ROWS, max(_ALWAYS_ROWS, add.size * _MAX_ROWS_PER_BYTE))
            if rows is not None and rows > limit:
                raise self._stop(
                    add.path,
                    (f"its statistics report {rows} rows, more than a file of {add.size} bytes can have ({limit})"),
                )
            if rows is not None and rows >= least:
                return rows
            if rows is not None:
                raise self._stop(
                    add.path,
                    (
                        f"its statistics report {rows} rows, but a deletion vector names row {least - 1} (counted "
                        "from 0)"
                    ),
                )
        raise self._stop(
            add.path,
            "neither the remove nor the add action has stats.numRecords, which the protocol requires of files "
            "with a deletion vector",
        )

    def _stop(self, path: str, why: str) -> StoppedError:
        return StoppedError(
            f"{self._table}: version {self._version} changes the deletion vector of {path}, but FDS cannot "
            f"determine which rows it deleted: {why}. The stream stops before version {self._version}; everything "
            f"before it is delivered. skip_versions='{self._version}' skips the commit with all its changes",
            table=self._table,
            version=self._version,
        )


def _all_but(changed: BitMap64, rows: int) -> BitMap64:
    others = BitMap64()
    others.add_range(0, rows)
    others -= changed
    return others


def _end(rows: BitMap64) -> int:
    """Return the minimum number of rows of a file that contains all of ``rows``."""
    return int(rows.max()) + 1 if rows else 0
