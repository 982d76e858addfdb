"""Whether the source's log is still the one that was planned from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.errors import LogRewoundError, LogTruncatedError, LostPositionError, TableReplacedError
from airflow_provider_fds.source.offset import LOAD_NEW_TABLE, Offset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_fds.delta.reader.log import DeltaLog
    from airflow_provider_fds.delta.storage.storage import ObjectMeta
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.ledger.values import PlannedBatch


def check_position(log: DeltaLog, state: StreamState) -> int:
    """Return the newest version after checking that the stream can continue from its position.

    The commit before the position must still be the one that was read. If log cleanup has removed it, only the versions
    from the position on are checked.

    Raises:
        LostPositionError: The next version was cleaned up, a version is missing, the table is older than the position,
            or another table is at the URI.
    """
    if state.position is None:
        raise AssertionError("the position of an epoch that is not open was requested")
    position = Offset.from_json(state.position)
    if position.is_initial_snapshot:
        return log.latest()
    newest = verify_version(log, position, position.version)
    check_last_commit(log, state, position)
    return newest


def check_last_commit(log: DeltaLog, state: StreamState, position: Offset) -> None:
    """Check that the last commit that the stream has read is still the one at its version, if that exists.

    Raises:
        TableReplacedError: It is another one.
    """
    last = position.version if position.next_index > 0 else position.version - 1
    if state.last_commit_sha256 and last >= 0 and log.probe(last):
        found = log.commit(last).sha256
        if found != state.last_commit_sha256:
            raise TableReplacedError(
                f"{log.table_uri}: version {last} is not the commit that this stream has read: its content has "
                f"SHA-256 {found}, but the ledger has {state.last_commit_sha256}. The table was replaced by a "
                "copy, or its history was rewritten, so it is unknown what else changed. "
                f"{LOAD_NEW_TABLE}",
                table=log.table_uri,
                version=last,
            )


def verify_version(log: DeltaLog, position: Offset, version: int) -> int:
    """Return the newest version after checking that ``version`` exists or is the next one.

    Raises:
        LostPositionError: As :meth:`DeltaLog.verify_position`; a table that is shorter because it was deleted and
            recreated is reported as another table than that of ``position``.
    """
    try:
        return log.verify_position(version)
    except LogRewoundError:
        check_table(log, position)
        raise


def check_table(log: DeltaLog, position: Offset) -> None:
    """Check that the table at the URI is that of a position.

    Raises:
        TableReplacedError: It is another table.
    """
    last = position.version if position.is_initial_snapshot or position.next_index > 0 else position.version - 1
    position.ensure_table(table_id_now(log, max(last, 0)), table=log.table_uri)


def table_id_now(log: DeltaLog, first: int = 0) -> str:
    """Return the id of the table, as of the newest version that FDS can read; ``first`` must be readable."""
    return log.newest_readable(first)[0].metadata.id


def check_planned(log: DeltaLog, batches: Sequence[PlannedBatch]) -> None:
    """Check, before Spark starts, that planned batches still belong to the table at the URI.

    Compares the table's id and the content of the last commit that the batches were planned from; if log cleanup has
    removed that commit, the id alone.

    Raises:
        TableReplacedError: The table was deleted and recreated, or its history was rewritten.
        LogRewoundError: The table is older than the batches.
        TableNotFoundError: The table no longer exists.
    """
    _check_table_of(log, batches)
    last = batches[-1]
    try:
        found = log.commit(last.last_version).sha256 if last.last_commit_sha256 else ""
    except LogTruncatedError:
        return
    if found != last.last_commit_sha256:
        raise TableReplacedError(
            f"{log.table_uri}: version {last.last_version} is not the commit that batch {last.batch_id} was "
            f"planned from: its content has SHA-256 {found}, but the plan has {last.last_commit_sha256}. The "
            f"history of the table was rewritten. {LOAD_NEW_TABLE}",
            table=log.table_uri,
            version=last.last_version,
        )


def _check_table_of(log: DeltaLog, batches: Sequence[PlannedBatch]) -> None:
    first, last = batches[0].batch_id, batches[-1].batch_id
    which = f"batch {first} was" if first == last else f"batches {first} to {last} were"
    planned_from = Offset.from_json(batches[-1].end).table_id
    found = table_id_now(log, batches[-1].last_version)
    if found != planned_from:
        raise TableReplacedError(
            f"{log.table_uri}: {which} planned from the table with id {planned_from}, but the table there now has "
            f"id {found}: it was deleted and created again. Nothing more is loaded. {LOAD_NEW_TABLE}",
            table=log.table_uri,
            version=batches[-1].last_version,
        )


def check_range_unchanged(log: DeltaLog, batch: PlannedBatch) -> str | None:
    """Return how the commit files of the batch's range differ from those it was planned from, or ``None`` if equal."""
    from airflow_provider_fds.source.planned import range_digest

    first = batch.first_version
    if Offset.from_json(batch.start).is_initial_snapshot:
        # the snapshot is frozen in staging; only the commits after it are checked
        first += 1
    if first > batch.last_version:
        return None
    try:
        metas = log.list_commits(first, batch.last_version)
        found = range_digest((first + i, meta.size_bytes) for i, meta in enumerate(metas))
        if found == batch.log_digest and _has_same_content(log, batch, first, metas):
            return None
    except LostPositionError as error:
        return f"the source's log changed while the batch was loaded: {error}"
    return "the commit files of the source are not those that the batch was planned from"


def _has_same_content(log: DeltaLog, batch: PlannedBatch, first: int, metas: Sequence[ObjectMeta]) -> bool:
    """Whether the commit files of a range are unchanged since planning: by their ETags, else by their contents."""
    from airflow_provider_fds.source.planned import RangeChecksums

    if not batch.log_checksum or _etags(first, metas) == batch.log_etags != "":
        return log.commit(batch.last_version, metas[-1]).sha256 == batch.last_commit_sha256
    read = RangeChecksums()
    for commit in log.commits(first, batch.last_version):
        read.see(commit.version, commit.size_bytes, commit.checksum, commit.etag)
    return read.of_contents == batch.log_checksum


def _etags(first: int, metas: Sequence[ObjectMeta]) -> str:
    from airflow_provider_fds.source.planned import RangeChecksums

    listed = RangeChecksums()
    for version, meta in enumerate(metas, start=first):
        listed.see(version, meta.size_bytes, 0, meta.etag)
    return listed.of_etags
