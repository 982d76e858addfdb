"""How much a batch admits."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.source.options.limits import (
    LIMITS,
    DependentLimit,
    FileCountingLimit,
    LearningLimit,
    VersionLimit,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from airflow_provider_fds.delta.actions import Add
    from airflow_provider_fds.source.options.options import SourceOptions

#: Files of a version that are counted together while it is unknown whether the version fits.
_COUNTED_TOGETHER: Final = 1_000


class Admission:
    """The remaining capacity of one batch.

    The first file of a batch is always admitted, so every batch makes progress. A file is admitted while there is
    capacity *before* it: a batch may exceed a limit by at most one file. Versions without files are not passed in and
    cost nothing.

    Call :meth:`admit_version` when a version with files begins, then :meth:`admit_file` for each of its files. The
    first refusal ends the batch: nothing smaller that comes later may jump the queue.
    """

    __slots__ = (
        "_by_file",
        "_by_version",
        "_dependent",
        "_is_empty",
        "_learning",
        "_limits",
        "_takes_whole",
        "_whole_commits",
    )

    def __init__(self, options: SourceOptions) -> None:
        given = [(limit, getattr(options, limit.option)) for limit in LIMITS]
        self._limits = [limit(maximum) for limit, maximum in given if maximum is not None]
        self._by_file = [limit for limit in self._limits if isinstance(limit, FileCountingLimit)]
        self._by_version = [limit for limit in self._limits if isinstance(limit, VersionLimit)]
        self._learning = [limit for limit in self._by_file if isinstance(limit, LearningLimit)]
        self._dependent = [limit for limit in self._limits if isinstance(limit, DependentLimit)]
        self._whole_commits = options.whole_commits is True
        self._takes_whole = False
        self._is_empty = True

    def admit_version(
        self, files: Callable[[], Iterable[Add]], *, is_snapshot: bool = False, is_group: bool = False
    ) -> bool:
        """Start a version that has files, if its first file (with ``whole_commits``: all of it) may be admitted.

        Args:
            files: Returns its files that are still to be delivered. Called only if the version must not be split, or
                for the first of them, which a limit that does not add up asks for.
            is_snapshot: Whether it is the initial snapshot, which is never admitted as a whole.
            is_group: Whether it must not be split whatever the options are (Delta: ``admit`` of a sequence of files).
        """
        for limit in self._limits:
            if limit.left <= 0:
                return False
        takes_whole = is_group or (self._whole_commits and not is_snapshot)
        if takes_whole and not self._is_empty and not self._has_room_for(files()):
            return False
        for dependent in self._dependent:
            if not self._is_empty and not dependent.has_room_for(files() if takes_whole else islice(files(), 1)):
                return False
        for by_version in self._by_version:
            by_version.left -= 1
        self._takes_whole = takes_whole
        return True

    def admit_file(self, file: Add) -> bool:
        """Admit a file of the last admitted version, if there is capacity before it or the version is taken whole."""
        for limit in self._by_file:
            if limit.left <= 0 and not self._takes_whole:
                return False
            limit.take_file(file)
        self._is_empty = False
        return not self._dependent or self._take_dependent([file])

    def admit_files(self, files: Sequence[Add]) -> bool:
        """Admit files of the version admitted last, at least one, if each of them would be admitted; otherwise none."""
        counted = [(limit, limit.count_all(files)) for limit in self._by_file]
        if not self._takes_whole:
            for limit, total in counted:
                # this is capacity before the last file, which counts ``least`` or more
                if limit.left <= total - limit.least:
                    return False
        if self._dependent and not self._take_dependent(files):
            return False
        for limit, total in counted:
            limit.left -= total
        for learning in self._learning:
            learning.learn()
        self._is_empty = False
        return True

    def _take_dependent(self, files: Sequence[Add]) -> bool:
        if not self._takes_whole and not all(limit.has_room_for(files) for limit in self._dependent):
            return False
        for limit in self._dependent:
            limit.take(files)
        return True

    def _has_room_for(self, files: Iterable[Add]) -> bool:
        """Whether all of the files stay within every limit. Reads only as many of them as that takes."""
        counted = [0] * len(self._by_file)
        rest = iter(files)
        while some := list(islice(rest, _COUNTED_TOGETHER)):
            for number, limit in enumerate(self._by_file):
                counted[number] += limit.count_all(some)
                if counted[number] > limit.left:
                    return False
        return True
