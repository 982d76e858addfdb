"""Which files a stream reads: the only answer to this question.

A file is left out only if ``exclude_regex`` excludes its path, or if no row of it can satisfy ``where`` as Spark
evaluates it. The planner, polls, drift, backlogs and changed partitions ask here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.delta.actions import Remove
from airflow_provider_fds.errors import ConfigurationError, StoppedError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.source.changes.change_feed import files_of_changes
from airflow_provider_fds.source.options.exclusion import compile_exclusion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from airflow_provider_fds.delta.actions import Add, Cdc, Metadata
    from airflow_provider_fds.delta.commits import Commit
    from airflow_provider_fds.source.changes.classify import CommitContent
    from airflow_provider_fds.source.filters.row_filter import BoundRowFilter, RowFilter
    from airflow_provider_fds.source.options.options import SourceOptions


def _row_filter(where: str) -> RowFilter:
    # most streams have none
    from airflow_provider_fds.source.filters.row_filter import RowFilter

    return RowFilter(where)


class FilesRead:
    """The files that a stream reads. Its filter is bound again when the metadata changes.

    Args:
        options: The stream's options.
        table: URI of the table, for messages.

    Attributes:
        excluded: The search of ``exclude_regex``, or ``None`` without one.
        has_filter: Whether there is ``where``.
    """

    def __init__(self, options: SourceOptions, table: str) -> None:
        self.excluded: Callable[[str], object] | None = (
            compile_exclusion(options.exclude_regex).search if options.exclude_regex else None
        )
        self.has_filter = options.where is not None
        self._where = None if options.where is None else _row_filter(options.where)
        self._options = options
        self._table = table
        self._bound: tuple[Metadata, BoundRowFilter] | None = None

    @property
    def reads_all(self) -> bool:
        """Whether no file is left out."""
        return self.excluded is None and not self.has_filter

    def under(self, metadata: Metadata) -> BoundRowFilter:
        """Return the filter under ``metadata``, of a stream that has one.

        Raises:
            ConfigurationError: The predicate does not fit the table, or names a column that is not read.
            StoppedError: It no longer fits; earlier versions are read.
        """
        if self._where is None:
            raise AssertionError("a stream without where was asked for its filter")
        if self._bound is None or self._bound[0] is not metadata:
            try:
                bound = self._where.bind(metadata, table=self._table)
                self._check_columns(bound.for_rows(()))
            except ConfigurationError as error:
                if self._bound is None:
                    raise
                raise StoppedError(str(error), table=self._table, reason=Reason.WHERE_OUTDATED) from error
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
            ConfigurationError: The predicate does not fit the table.
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
        keeps = self.under(metadata).may_match
        # of a removed file without its partition values, nothing is known; the plan stops at it
        return (
            (index, file)
            for index, file in found
            if (isinstance(file, Remove) and file.partitionValues is None) or keeps(file)
        )

    def row_sql(self, metadata: Metadata, files: Iterable[Add]) -> str:
        """Return what Spark must filter the rows of these files by, in its SQL; empty: nothing.

        Raises:
            ConfigurationError: Spark needs a column that the option ``columns`` leaves out.
        """
        if not self.has_filter:
            return ""
        needed = self.under(metadata).for_rows(files)
        self._check_columns(needed)
        return needed.sql

    def _check_columns(self, needed: BoundRowFilter) -> None:
        read = {name.lower() for name in self._options.columns}
        hidden = [name for name in needed.columns if read and name.lower() not in read]
        if hidden:
            raise ConfigurationError(
                f"{self._table}: where uses {hidden[0]!r}, which option 'columns' leaves out, but Spark filters rows "
                "by it. Add it to 'columns'.",
                table=self._table,
                reason=Reason.WHERE_INVALID,
            )

    def excludes(self, what: str) -> str:
        """Return that nothing of ``what`` passes the filter, as the reason of a skip."""
        return f"where excludes {what}, by partition values and statistics"
