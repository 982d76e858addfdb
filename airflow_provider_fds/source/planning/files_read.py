"""Which files a stream reads: the only answer to this question.

A file is left out only if ``exclude_regex`` excludes its path, or if no row of it can satisfy ``partition_filter`` and
``where`` as Spark evaluates them. The planner, polls, drift, backlogs and changed partitions ask here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from airflow_provider_fds.delta.actions import Remove
from airflow_provider_fds.errors import ConfigurationError, StoppedError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.source.changes.change_feed import files_of_changes
from airflow_provider_fds.source.filters.row_filter import RowFilter
from airflow_provider_fds.source.options.exclusion import compile_exclusion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from airflow_provider_fds.delta.actions import Add, Cdc, Metadata
    from airflow_provider_fds.delta.commits import Commit
    from airflow_provider_fds.source.changes.classify import CommitContent
    from airflow_provider_fds.source.filters.row_filter import BoundRowFilter
    from airflow_provider_fds.source.options.options import SourceOptions

    _File = TypeVar("_File", bound=Add)


@dataclass(frozen=True)
class BoundFilters:
    """``partition_filter`` and ``where`` under one metadata."""

    partition: BoundRowFilter | None
    where: BoundRowFilter | None

    def keeps(self, file: Add | Remove | Cdc) -> bool:
        """Whether a row of a file may satisfy both."""
        return (self.partition is None or self.partition.may_match(file)) and (
            self.where is None or self.where.may_match(file)
        )

    def passing(self, files: Iterable[tuple[int, _File]]) -> Iterator[tuple[int, _File]]:
        """Yield the files that pass, with the indexes they have without a filter."""
        keeps = self.keeps
        return ((index, file) for index, file in files if keeps(file))


class FilesRead:
    """The files that a stream reads. Its filters are bound again when the metadata changes.

    Args:
        options: The stream's options.
        table: URI of the table, for messages.

    Attributes:
        excluded: The search of ``exclude_regex``, or ``None`` without one.
        has_filter: Whether there is ``partition_filter`` or ``where``.
    """

    def __init__(self, options: SourceOptions, table: str) -> None:
        partition, where = options.partition_filter, options.where
        self.excluded: Callable[[str], object] | None = (
            compile_exclusion(options.exclude_regex).search if options.exclude_regex else None
        )
        self.has_filter = bool(partition or where)
        self._partition = RowFilter("partition_filter", partition) if partition else None
        self._where = RowFilter("where", where) if where else None
        self._options = options
        self._table = table
        self._bound: tuple[Metadata, BoundFilters] | None = None

    @property
    def reads_all(self) -> bool:
        """Whether no file is left out."""
        return self.excluded is None and not self.has_filter

    def under(self, metadata: Metadata) -> BoundFilters:
        """Return the filters under ``metadata``.

        Raises:
            ConfigurationError: A predicate does not fit the table.
            StoppedError: It no longer fits; earlier versions are read.
        """
        if self._bound is None or self._bound[0] is not metadata:
            try:
                bound = BoundFilters(
                    None if self._partition is None else self._partition.bind(metadata, table=self._table),
                    None if self._where is None else self._where.bind(metadata, table=self._table),
                )
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

    def of_commit(
        self, commit: Commit, content: CommitContent, metadata: Metadata | None
    ) -> Iterator[tuple[int, Add | Remove | Cdc]]:
        """Yield the files of a commit that is emitted, with the indexes they have in it.

        Args:
            commit: The commit.
            content: Its summary.
            metadata: Metadata in force at the commit; may be unknown only if there is no filter.

        Raises:
            ConfigurationError: A predicate does not fit the table.
            StoppedError: It no longer fits, or a partition value is damaged.
        """
        files: Iterable[Add | Remove | Cdc]
        if self._options.read_change_feed:
            files = files_of_changes(commit, content)
        else:
            files = (action.add for action in commit.actions if action.add is not None and action.add.changes_data)
        found = (
            (index, file) for index, file in enumerate(files) if self.excluded is None or not self.excluded(file.path)
        )
        if not self.has_filter or metadata is None:
            return found
        keeps = self.under(metadata).keeps
        # of a removed file without its partition values, nothing is known; the plan stops at it
        return (
            (index, file)
            for index, file in found
            if (isinstance(file, Remove) and file.partitionValues is None) or keeps(file)
        )

    def row_sql(self, metadata: Metadata, files: Iterable[Add]) -> str:
        """Return what Spark must filter the rows of these files by, in its SQL; empty: nothing.

        By ``partition_filter`` only if the log does not tell of each file that all of its rows satisfy it, as for times
        without a zone.

        Raises:
            ConfigurationError: Spark needs a partition column that the option ``columns`` leaves out.
        """
        if not self.has_filter:
            return ""
        bound = self.under(metadata)
        parts = [] if bound.where is None else [bound.where.sql]
        if bound.partition is not None and not all(map(bound.partition.matches_whole, files)):
            self._check_columns()
            parts.insert(0, bound.partition.sql)
        return parts[0] if len(parts) == 1 else " AND ".join(f"({part})" for part in parts)

    def _check_columns(self) -> None:
        read = {name.lower() for name in self._options.columns}
        hidden = [] if self._partition is None else [one for one in self._partition.columns if one.lower() not in read]
        if read and hidden:
            raise ConfigurationError(
                f"{self._table}: partition_filter uses {hidden[0]!r}, which option 'columns' leaves out. A file has "
                "a value of it that means something else in each session of Spark, so Spark filters the rows by it. "
                "Add it to 'columns'.",
                table=self._table,
                reason=Reason.PARTITION_FILTER_INVALID,
            )

    def excludes(self, what: str) -> str:
        """Return that nothing of ``what`` passes the filters, as the reason of a skip."""
        if self._partition is None:
            return f"where excludes {what}, by partition values and statistics"
        if self._where is None:
            return f"partition_filter excludes {what}"
        return f"partition_filter and where exclude {what}, by partition values and statistics"


__all__ = ["BoundFilters", "FilesRead"]
