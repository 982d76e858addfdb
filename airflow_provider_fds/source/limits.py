"""How much goes into a batch: Delta's ``AdmissionLimits``, and limits of FDS's own.

A limit is one class in :data:`LIMITS`, which counts, and one option of the same name in
:class:`~airflow_provider_fds.source.options.SourceOptions`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from airflow_provider_fds.delta.actions import Add
    from airflow_provider_fds.source.options import SourceOptions

#: Files of a version that are counted at once while it is unknown whether all of it fits.
_COUNTED_TOGETHER: Final = 1_000


class Limit:
    """What is left of one limit in a batch.

    Attributes:
        option: Name of the option that sets the limit.
        bounds_data: Whether it bounds the data of a batch alone, so that the default number of files does not apply.
        left: What may still be admitted; below 0 if the last file exceeded the limit.
    """

    __slots__ = ("left",)

    option: ClassVar[str]
    bounds_data: ClassVar[bool] = False

    def __init__(self, maximum: int) -> None:
        self.left = maximum


class VersionLimit(Limit):
    """Counts the versions that have files. It has no effect on a snapshot, which is one version."""

    __slots__ = ()

    option = "max_versions_per_batch"


class FileCountingLimit(Limit, ABC):
    """Counts something in each file.

    Attributes:
        least: What any file counts at least.
    """

    __slots__ = ()

    least: ClassVar[int] = 0

    @abstractmethod
    def count(self, file: Add) -> int:
        """Return what one file counts."""

    def count_all(self, files: Sequence[Add]) -> int:
        """Return what all of ``files`` count."""
        return sum(map(self.count, files))


class FileLimit(FileCountingLimit):
    """Counts the files."""

    __slots__ = ()

    option = "max_files_per_batch"
    least = 1

    def count(self, file: Add) -> int:  # noqa: ARG002
        """Return 1."""
        return 1

    def count_all(self, files: Sequence[Add]) -> int:
        """Return the number of files."""
        return len(files)


class ByteLimit(FileCountingLimit):
    """Counts the size of the files in bytes."""

    __slots__ = ()

    option = "max_bytes_per_batch"
    bounds_data = True

    def count(self, file: Add) -> int:
        """Return the size of the file."""
        return file.size

    def count_all(self, files: Sequence[Add]) -> int:
        """Return the size of the files together."""
        return sum([file.size for file in files])


class RowLimit(FileCountingLimit):
    """Counts the rows by the statistics of the log, deleted rows subtracted. It alone reads statistics."""

    __slots__ = ("_rows_of",)

    option = "max_rows_per_batch"
    bounds_data = True

    def __init__(self, maximum: int) -> None:
        # what reads the log is not imported where a DAG file only names options
        from airflow_provider_fds.source.planned import num_rows_of

        super().__init__(maximum)
        self._rows_of = num_rows_of

    def count(self, file: Add) -> int:
        """Return the number of rows in the file.

        Raises:
            UnknownRowsError: The statistics do not say it.
        """
        rows = self._rows_of(file)
        if rows is None:
            raise UnknownRowsError(file.path)
        return rows


class UnknownRowsError(Exception):
    """The log does not say how many rows a file has.

    Attributes:
        path: The file, as logged.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


#: Every limit there is.
LIMITS: Final[tuple[type[Limit], ...]] = (FileLimit, ByteLimit, RowLimit, VersionLimit)


class Admission:
    """The room that is left in one batch.

    The first file of a batch is always admitted, so every batch makes progress. A file is admitted while there is
    room *before* it: a batch may exceed a limit by at most one file. Versions without files are not asked for and cost
    nothing.

    Ask :meth:`admit_version` when a version with files begins, then :meth:`admit_file` for each of its files. The
    first refusal ends the batch: nothing smaller that comes later may jump the queue.
    """

    __slots__ = ("_by_file", "_by_version", "_is_empty", "_limits", "_takes_whole", "_whole_commits")

    def __init__(self, options: SourceOptions) -> None:
        given = [(limit, getattr(options, limit.option)) for limit in LIMITS]
        self._limits = [limit(maximum) for limit, maximum in given if maximum is not None]
        self._by_file = [limit for limit in self._limits if isinstance(limit, FileCountingLimit)]
        self._by_version = [limit for limit in self._limits if isinstance(limit, VersionLimit)]
        self._whole_commits = options.whole_commits is True
        self._takes_whole = False
        self._is_empty = True

    def admit_version(
        self, files: Callable[[], Iterable[Add]], *, is_snapshot: bool = False, is_group: bool = False
    ) -> bool:
        """Take up a version that has files, if its first file (with ``whole_commits``: all of it) may come in.

        Args:
            files: Gives its files that are still to deliver. Called only if the version may not be cut.
            is_snapshot: Whether it is the initial snapshot, which is never taken as a whole.
            is_group: Whether it may not be cut whatever the options say (Delta: ``admit`` of a sequence of files).
        """
        for limit in self._limits:
            if limit.left <= 0:
                return False
        takes_whole = is_group or (self._whole_commits and not is_snapshot)
        if takes_whole and not self._is_empty and not self._has_room_for(files()):
            return False
        for by_version in self._by_version:
            by_version.left -= 1
        self._takes_whole = takes_whole
        return True

    def admit_file(self, file: Add) -> bool:
        """Take in a file of the version admitted last, if there is room before it or the version is taken whole."""
        for limit in self._by_file:
            if limit.left <= 0 and not self._takes_whole:
                return False
            limit.left -= limit.count(file)
        self._is_empty = False
        return True

    def admit_files(self, files: Sequence[Add]) -> bool:
        """Take in files of the version admitted last, at least one, if each of them would be; else none."""
        counted = [(limit, limit.count_all(files)) for limit in self._by_file]
        if not self._takes_whole:
            for limit, total in counted:
                # that is room before the last file, which counts ``least`` or more
                if limit.left <= total - limit.least:
                    return False
        for limit, total in counted:
            limit.left -= total
        self._is_empty = False
        return True

    def _has_room_for(self, files: Iterable[Add]) -> bool:
        """Whether all of the files stay within every limit. Reads no more of them than tells it."""
        counted = [0] * len(self._by_file)
        rest = iter(files)
        while some := list(islice(rest, _COUNTED_TOGETHER)):
            for number, limit in enumerate(self._by_file):
                counted[number] += limit.count_all(some)
                if counted[number] > limit.left:
                    return False
        return True
