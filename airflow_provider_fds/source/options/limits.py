"""The limits of a batch: those of Delta's ``AdmissionLimits``, and some of FDS's own.

A limit is one class in :data:`LIMITS`, which counts, and one option of the same name in
:class:`~airflow_provider_fds.source.options.options.SourceOptions`. A class derives from :class:`FileCountingLimit` if
what it counts adds up over the files, else from :class:`DependentLimit`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from airflow_provider_fds.delta.actions import Add

#: Files per batch by default: as Delta's ``maxFilesPerTrigger``.
DEFAULT_MAX_FILES: Final = 1000
#: Bytes per batch by default: as many files of 128 MiB, which Spark reads with one task each
#: (``spark.sql.files.maxPartitionBytes``).
DEFAULT_MAX_BYTES: Final = DEFAULT_MAX_FILES * (128 << 20)
#: How long work below ``min_batch_bytes`` waits by default: as ``maxTriggerDelay`` of Spark's Kafka source.
DEFAULT_MAX_WAIT: Final = timedelta(minutes=15)

_SIZE: Final = attrgetter("size")


class Amounts(NamedTuple):
    """What is left to load, estimated.

    Attributes:
        versions: Versions whose commits are left, beside the initial snapshot.
        files: Data files.
        bytes: Their bytes.
        rows: Their rows.
    """

    versions: int
    files: int
    bytes: int
    rows: int


class Limit(ABC):
    """The rest of one limit in a batch.

    Attributes:
        option: Name of the option that sets the limit.
        bounds_data: Whether it alone bounds the data of a batch, so that no default applies.
        default: Its value if no limit that bounds the data is given; ``None``: no limit.
        is_about_commits: Whether it has no effect on a snapshot, which is one version.
        left: How much may still be admitted; below 0 if the last file exceeded the limit.
    """

    __slots__ = ("left",)

    option: ClassVar[str]
    bounds_data: ClassVar[bool] = False
    default: ClassVar[int | None] = None
    is_about_commits: ClassVar[bool] = False

    def __init__(self, maximum: int) -> None:
        self.left = maximum

    @classmethod
    @abstractmethod
    def count_left(cls, left: Amounts) -> int | None:
        """Return what the limit counts in all that is left to load, ``None`` if it cannot be told before the plan."""


class VersionLimit(Limit):
    """Counts the versions that have files."""

    __slots__ = ()

    option = "max_versions_per_batch"
    is_about_commits = True

    @classmethod
    def count_left(cls, left: Amounts) -> int:
        """Return the number of versions."""
        return left.versions


class FileCountingLimit(Limit):
    """Counts something in each file, and adds it up.

    Attributes:
        least: The least that any file counts.
    """

    __slots__ = ()

    least: ClassVar[int] = 0

    @abstractmethod
    def count(self, file: Add) -> int:
        """Return what one file counts."""

    def count_all(self, files: Sequence[Add]) -> int:
        """Return what all of ``files`` count."""
        return sum(map(self.count, files))

    def take_file(self, file: Add) -> None:
        """Record that one file is in the batch."""
        self.left -= self.count(file)


class LearningLimit(FileCountingLimit):
    """A limit for which a file counts differently after other files."""

    __slots__ = ()

    @abstractmethod
    def learn(self) -> None:
        """Record that the files that were counted last are in the batch."""

    def take_file(self, file: Add) -> None:
        """Record that one file is in the batch."""
        self.left -= self.count(file)
        self.learn()


class DependentLimit(Limit):
    """Counts something that does not add up: what a file takes depends on the files that the batch has already.

    ``left`` stays above 0 as long as some file may still be admitted.
    """

    __slots__ = ()

    @abstractmethod
    def has_room_for(self, files: Iterable[Add]) -> bool:
        """Return whether all of ``files`` may join those that were taken in; changes nothing.

        Always ``True`` for one file while none was taken in, so that every batch makes progress.
        """

    @abstractmethod
    def take(self, files: Iterable[Add]) -> None:
        """Record that all of ``files`` are in the batch."""


class FileLimit(FileCountingLimit):
    """Counts the files."""

    __slots__ = ()

    option = "max_files_per_batch"
    bounds_data = True
    default = DEFAULT_MAX_FILES
    least = 1

    @classmethod
    def count_left(cls, left: Amounts) -> int:
        """Return the number of files."""
        return left.files

    def count(self, file: Add) -> int:  # noqa: ARG002
        """Return 1."""
        return 1

    def take_file(self, file: Add) -> None:  # noqa: ARG002
        """Record that one file is in the batch."""
        self.left -= 1

    def count_all(self, files: Sequence[Add]) -> int:
        """Return the number of files."""
        return len(files)


class ByteLimit(FileCountingLimit):
    """Counts the size of the files in bytes."""

    __slots__ = ()

    option = "max_bytes_per_batch"
    bounds_data = True
    default = DEFAULT_MAX_BYTES

    @classmethod
    def count_left(cls, left: Amounts) -> int:
        """Return the number of bytes."""
        return left.bytes

    def count(self, file: Add) -> int:
        """Return the size of the file."""
        return file.size

    def take_file(self, file: Add) -> None:
        """Record that one file is in the batch."""
        self.left -= file.size

    def count_all(self, files: Sequence[Add]) -> int:
        """Return the total size of the files."""
        return sum(map(_SIZE, files))


#: Bytes that count as one row, if a batch has no file whose statistics say how many rows it has.
BYTES_PER_UNKNOWN_ROW: Final = 100


class RowLimit(LearningLimit):
    """Counts the rows by the statistics of the log, without deleted rows. Only this limit reads statistics.

    A file whose statistics do not say it is counted by its size: as if it had as many rows per byte as the files
    counted before it in the batch, or one row for :data:`BYTES_PER_UNKNOWN_ROW` bytes if there are none. Only the batch
    decides, so planning from the end of any batch gives the same batches.
    """

    __slots__ = ("_bytes", "_counted", "_rows", "_rows_of")

    option = "max_rows_per_batch"
    bounds_data = True

    def __init__(self, maximum: int) -> None:
        # modules that read the log are not imported where a DAG file only names options
        from airflow_provider_fds.delta.statistics import num_rows_of

        super().__init__(maximum)
        self._rows_of = num_rows_of
        #: Rows and bytes of the files in the batch whose rows are known.
        self._rows = self._bytes = 0
        self._counted = (0, 0)

    @classmethod
    def count_left(cls, left: Amounts) -> int:
        """Return the number of rows."""
        return left.rows

    def count(self, file: Add) -> int:
        """Return the number of rows in the file, estimated if they are unknown."""
        return self.count_all((file,))

    def count_all(self, files: Sequence[Add]) -> int:
        """Return the number of rows in all of ``files``."""
        known, size, total = self._rows, self._bytes, 0
        for file in files:
            rows = self._rows_of(file)
            if rows is None:
                total += max(1, file.size * known // size if known and size else file.size // BYTES_PER_UNKNOWN_ROW)
            else:
                total += rows
                known += rows
                size += file.size
        self._counted = (known, size)
        return total

    def learn(self) -> None:
        """Record that the files that were counted last are in the batch."""
        self._rows, self._bytes = self._counted


#: All limits.
LIMITS: Final[tuple[type[Limit], ...]] = (FileLimit, ByteLimit, RowLimit, VersionLimit)


def default_limits(given: Mapping[str, Any]) -> dict[str, int | None]:
    """Return the defaults of the limits that bound the data: no limit, if one of them is among the ``given`` options.

    So a stream with ``max_files_per_batch`` alone has no byte limit, and the other way round, as in Delta.
    """
    bounding = [limit for limit in LIMITS if limit.bounds_data]
    is_bounded = any(given.get(limit.option) is not None for limit in bounding)
    return {limit.option: None if is_bounded else limit.default for limit in bounding}
