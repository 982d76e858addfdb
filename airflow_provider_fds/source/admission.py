"""How much goes into a batch (Delta's ``AdmissionLimits``, with limits of FDS's own added)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from airflow_provider_fds.source.options import SourceOptions


class Admission:
    """The room that is left in one batch.

    The first file of a batch is always admitted, so every batch makes progress. A file is admitted while there is
    room *before* it: the bytes of a batch may exceed their limit by at most one file. Versions without files are not
    asked for and cost nothing.

    Ask :meth:`admit_version` when a version with files begins, then :meth:`admit_file` for each of its files. The
    first refusal ends the batch: nothing smaller that comes later may jump the queue.
    """

    __slots__ = ("_bytes_left", "_files_left", "_is_empty", "_takes_whole", "_versions_left", "_whole_commits")

    def __init__(self, options: SourceOptions) -> None:
        self._files_left = _room(options.max_files_per_batch)
        self._bytes_left = _room(options.max_bytes_per_batch)
        self._versions_left = _room(options.max_versions_per_batch)
        self._whole_commits = options.whole_commits is True
        self._takes_whole = False
        self._is_empty = True

    def admit_version(self, files: int, size_bytes: int, *, is_snapshot: bool = False, is_group: bool = False) -> bool:
        """Take up a version that has files, if its first file (with ``whole_commits``: all of it) may come in.

        Args:
            files: Number of its files that are still to deliver, at least 1.
            size_bytes: Their size together.
            is_snapshot: Whether it is the initial snapshot, which is never taken as a whole.
            is_group: Whether it may not be cut whatever the options say (Delta: ``admit`` of a sequence of files).
        """
        if self._versions_left <= 0 or self._files_left <= 0 or self._bytes_left <= 0:
            return False
        takes_whole = is_group or (self._whole_commits and not is_snapshot)
        if takes_whole and not self._is_empty and (files > self._files_left or size_bytes > self._bytes_left):
            return False
        self._versions_left -= 1
        self._takes_whole = takes_whole
        return True

    def admit_file(self, size_bytes: int) -> bool:
        """Take in a file of the version admitted last, if there is room before it or the version is taken whole."""
        if (self._files_left <= 0 or self._bytes_left <= 0) and not self._takes_whole:
            return False
        self._files_left -= 1
        self._bytes_left -= size_bytes
        self._is_empty = False
        return True

    def admit_files(self, number: int, size_bytes: int) -> bool:
        """Take in files of the version admitted last, if each of them would be; else none.

        Args:
            number: Number of the files, at least 1.
            size_bytes: Their size together.
        """
        if (self._files_left < number or self._bytes_left <= size_bytes) and not self._takes_whole:
            return False
        self._files_left -= number
        self._bytes_left -= size_bytes
        self._is_empty = False
        return True


def _room(limit: int | None) -> float:
    return float("inf") if limit is None else limit
