"""Files of a table that satisfy ``partition_filter``, under the metadata in force at their version."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from airflow_provider_fds.errors import ConfigurationError, StoppedError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.source.partition_filter import PartitionFilter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from airflow_provider_fds.delta.actions import Add, Metadata
    from airflow_provider_fds.source.change_feed import CommitChanges
    from airflow_provider_fds.source.partition_filter import Keeps

    _File = TypeVar("_File", bound=Add)


class BoundFilter:
    """The filter under one metadata.

    Attributes:
        keeps: Returns for ``partitionValues`` whether the file is read.
    """

    __slots__ = ("keeps",)

    def __init__(self, keeps: Keeps) -> None:
        self.keeps = keeps

    def passing(self, files: Iterable[tuple[int, _File]]) -> Iterator[tuple[int, _File]]:
        """Yield the files that pass, with the indexes they have without a filter."""
        keeps = self.keeps
        return ((index, file) for index, file in files if keeps(file.partitionValues))

    def changes(self, changes: CommitChanges) -> CommitChanges:
        """Return the changes of a commit that pass."""
        num_files = sum(1 for _ in self.passing(changes.files()))
        return replace(changes, num_files=num_files, files=lambda: self.passing(changes.files()))


class TableFilter:
    """``partition_filter`` of a stream, bound again when the metadata changes.

    Args:
        text: The predicate.
        table: URI of the table, for messages.
    """

    def __init__(self, text: str, table: str) -> None:
        self._filter = PartitionFilter(text)
        self._table = table
        self._bound: tuple[Metadata, BoundFilter] | None = None

    def of(self, metadata: Metadata) -> BoundFilter:
        """Return the filter under ``metadata``.

        Raises:
            ConfigurationError: The predicate does not fit the table.
            StoppedError: It no longer fits; earlier versions are read.
        """
        if self._bound is None or self._bound[0] is not metadata:
            try:
                bound = BoundFilter(self._filter.bind(metadata, table=self._table))
            except ConfigurationError as error:
                if self._bound is None:
                    raise
                raise StoppedError(str(error), table=self._table, reason=Reason.PARTITION_FILTER_OUTDATED) from error
            self._bound = (metadata, bound)
        return self._bound[1]
