"""Files of a table that pass ``partition_filter`` and ``where``, under the metadata in force at their version."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from airflow_provider_fds.errors import ConfigurationError, StoppedError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.source.partition_filter import PartitionFilter
from airflow_provider_fds.source.where import Where

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from airflow_provider_fds.delta.actions import Add, Metadata
    from airflow_provider_fds.source.change_feed import CommitChanges
    from airflow_provider_fds.source.options import SourceOptions
    from airflow_provider_fds.source.where import Keeps

    _File = TypeVar("_File", bound=Add)


class BoundFilter:
    """The filters under one metadata.

    Attributes:
        keeps: Returns whether a file is read.
    """

    __slots__ = ("keeps",)

    def __init__(self, keeps: Keeps) -> None:
        self.keeps = keeps

    def passing(self, files: Iterable[tuple[int, _File]]) -> Iterator[tuple[int, _File]]:
        """Yield the files that pass, with the indexes they have without a filter."""
        keeps = self.keeps
        return ((index, file) for index, file in files if keeps(file))

    def changes(self, changes: CommitChanges) -> CommitChanges:
        """Return the changes of a commit that pass."""
        num_files = sum(1 for _ in self.passing(changes.files()))
        return replace(changes, num_files=num_files, files=lambda: self.passing(changes.files()))


@dataclass(frozen=True)
class _Filters:
    partition: PartitionFilter | None
    where: Where | None

    def bind(self, metadata: Metadata, table: str) -> Keeps:
        of_partition = None if self.partition is None else self.partition.bind(metadata, table=table)
        of_rows = None if self.where is None else self.where.bind(metadata, table=table).may_match
        if of_partition is None:
            assert of_rows is not None  # noqa: S101  # there is a filter
            return of_rows
        if of_rows is None:
            return lambda file: of_partition(file.partitionValues)
        return lambda file: of_partition(file.partitionValues) and of_rows(file)


class TableFilter:
    """``partition_filter`` and ``where`` of a stream, bound again when the metadata changes.

    Args:
        options: The stream's options, with at least one of the two.
        table: URI of the table, for messages.
    """

    def __init__(self, options: SourceOptions, table: str) -> None:
        partition, where = options.partition_filter, options.where
        self._filters = _Filters(PartitionFilter(partition) if partition else None, Where(where) if where else None)
        self._table = table
        self._bound: tuple[Metadata, BoundFilter] | None = None

    @classmethod
    def of_options(cls, options: SourceOptions, table: str) -> TableFilter | None:
        """Return the filter of a stream, or ``None`` if it has none."""
        return cls(options, table) if options.partition_filter or options.where else None

    def of(self, metadata: Metadata) -> BoundFilter:
        """Return the filter under ``metadata``.

        Raises:
            ConfigurationError: A predicate does not fit the table.
            StoppedError: It no longer fits; earlier versions are read.
        """
        if self._bound is None or self._bound[0] is not metadata:
            try:
                bound = BoundFilter(self._filters.bind(metadata, self._table))
            except ConfigurationError as error:
                if self._bound is None:
                    raise
                is_where = error.reason_code == Reason.WHERE_INVALID
                raise StoppedError(
                    str(error),
                    table=self._table,
                    reason=Reason.WHERE_OUTDATED if is_where else Reason.PARTITION_FILTER_OUTDATED,
                ) from error
            self._bound = (metadata, bound)
        return self._bound[1]

    def excludes(self, what: str) -> str:
        """Return that nothing of ``what`` passes, as the reason of a skip."""
        if self._filters.partition is None:
            return f"where excludes {what}, by partition values and statistics"
        if self._filters.where is None:
            return f"partition_filter excludes {what}"
        return f"partition_filter and where exclude {what}, by partition values and statistics"
