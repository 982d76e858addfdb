"""How many batches are left to load: estimated before a plan is written, so that it does not take forever."""

from __future__ import annotations

import logging
from itertools import islice
from typing import TYPE_CHECKING, Final

import msgspec

from airflow_provider_fds.errors import ConfigurationError, LostPositionError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.source.options.limits import BYTES_PER_UNKNOWN_ROW, LIMITS, Amounts

if TYPE_CHECKING:
    from airflow_provider_fds.delta.reader.log import DeltaLog
    from airflow_provider_fds.delta.reader.snapshot import FrozenSnapshot
    from airflow_provider_fds.source.options.options import SourceOptions
    from airflow_provider_fds.source.planned import SourceBatch
    from airflow_provider_fds.stream.connected_stream import ConnectedStream

logger = logging.getLogger(__name__)

#: A plan of more batches is warned of.
MANY_BATCHES: Final = 1_000
#: A plan of more batches is refused.
MOST_BATCHES: Final = 100_000

#: Commits whose sizes are listed, with one request to an object store; the sizes of more are extrapolated.
_LISTED_COMMITS: Final = 1_000
#: Files whose actions are measured.
_MEASURED_FILES: Final = 100
#: Bytes of a commit file beside those of its files: ``commitInfo``.
_COMMIT_BYTES: Final = 500
#: Bytes of an action beside its fields that FDS reads.
_ACTION_BYTES: Final = 30

_UNITS: Final = (("g", 30), ("m", 20), ("k", 10))


class Backlog(Amounts):
    """What is left to load, and the batches that it leads to."""

    __slots__ = ()

    def by_limit(self, options: SourceOptions) -> dict[str, tuple[int, int]]:
        """Return each limit that is set, with its value and the batches that it alone leads to."""
        found = {}
        for limit in LIMITS:
            maximum: int | None = getattr(options, limit.option)
            left = limit.count_left(self)
            if maximum is not None and left is not None:
                # every batch has a file, however large that is
                most = self.versions if limit.is_about_commits else self.files
                found[limit.option] = (maximum, min(-(-left // maximum), most))
        return found

    def batches(self, options: SourceOptions) -> int:
        """Return the number of batches."""
        most = max((batches for _, batches in self.by_limit(options).values()), default=1)
        return min(most, max(self.versions, 1)) if options.whole_commits and self.versions else most

    def suggestion(self, options: SourceOptions) -> str:
        """Return the options that lead to about :data:`MANY_BATCHES` batches."""
        found = []
        for name, (limit, batches) in self.by_limit(options).items():
            value = limit if batches <= MANY_BATCHES else limit * -(-batches // MANY_BATCHES)
            if name != "max_bytes_per_batch":
                found.append(f"{name}={value}")
                continue
            value = max(value, -(-self.bytes // MANY_BATCHES) if batches > MANY_BATCHES else 0)
            found.append(f"{name}={_size_text(value)!r}")
        return ", ".join(found)


def guard_batches(connected: ConnectedStream, first: SourceBatch, target: int) -> None:
    """Warn if about more than 1,000 batches are left, and refuse more than 100,000.

    Call it before anything of the plan is written. It reads nothing if the first batch is all there is; else the sizes
    of up to 1,000 commits are listed. A stream with ``where`` is not examined: how many files pass is
    known only when they are read.

    Args:
        connected: The stream.
        first: The first batch from its position.
        target: Newest version to read, inclusive.

    Raises:
        ConfigurationError: About more than 100,000 batches are left.
    """
    options = connected.stream.options
    if first.end.version > target or not first.files or options.where:
        return
    snapshot = connected.frozen_snapshot() if first.start.is_initial_snapshot else None
    try:
        backlog = estimate_backlog(connected.log, first, target, snapshot)
    except LostPositionError:
        # what lies before the lost versions is planned, and then the error is raised
        return
    batches = backlog.batches(options)
    if batches <= MANY_BATCHES:
        return
    text = (
        f"stream {connected.stream.name!r}: about {batches:,} batches are left up to version {target} of "
        f"{connected.log.table_uri} (about {backlog.files:,} files, {backlog.bytes:,} bytes)"
    )
    suggestion = f"set larger limits: {backlog.suggestion(options)}"
    if batches > MOST_BATCHES:
        raise ConfigurationError(
            f"{text}, more than the {MOST_BATCHES:,} that a plan may have. Nothing was planned; {suggestion}",
            table=connected.log.table_uri,
            reason=Reason.TOO_MANY_BATCHES,
        )
    logger.warning("%s. Each is a transaction of the sink; to have fewer, %s", text, suggestion)


def estimate_backlog(log: DeltaLog, first: SourceBatch, target: int, snapshot: FrozenSnapshot | None) -> Backlog:
    """Return what is left from the start of ``first``, its first batch, to ``target`` (inclusive).

    The rest of a frozen snapshot is known. The files of commits follow from the sizes of the commit files and of the
    actions in ``first``; their bytes and rows are like those in ``first``.
    """
    start = first.start
    files = size = 0
    oldest = start.version
    if start.is_initial_snapshot and snapshot is not None:
        oldest += 1
        files = max(0, snapshot.num_files - start.next_index)
        size = snapshot.num_bytes * files // max(1, snapshot.num_files)
    versions = max(0, target - oldest + 1)
    if versions:
        listed = log.list_commits(oldest, min(target, oldest + _LISTED_COMMITS - 1))
        log_bytes = sum(max(0, meta.size_bytes - _COMMIT_BYTES) for meta in listed) * versions // len(listed)
        actions = [len(msgspec.json.encode(file.add)) for file in islice(first.files, _MEASURED_FILES)]
        in_commits = log_bytes * len(actions) // (sum(actions) + _ACTION_BYTES * len(actions))
        files += in_commits
        size += in_commits * first.num_bytes // first.num_files
    rows = size // BYTES_PER_UNKNOWN_ROW
    if first.num_rows is not None:
        rows = files * first.num_rows // first.num_files
    return Backlog(versions, files, size, rows)


def _size_text(size: int) -> str:
    for unit, shift in _UNITS:
        if size >= 10 << shift:
            return f"{-(-size >> shift)}{unit}"
    return str(size)
