"""Whether a table records its changes for the change data feed, and the errors if it does not."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.errors import ConfigurationError, FdsError, StoppedError
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from airflow_provider_fds.delta.actions import Metadata
    from airflow_provider_fds.delta.reader.log import DeltaLog
    from airflow_provider_fds.source.offset import Offset

#: Table property that makes writers record changes.
ENABLED_PROPERTY: Final = "delta.enableChangeDataFeed"

#: Number of commits that are read to find the last version without recorded changes.
_MOST_READ: Final = 100


def is_enabled(metadata: Metadata) -> bool:
    """Whether changes are recorded under ``metadata``."""
    return (metadata.property(ENABLED_PROPERTY) or "").lower() == "true"


def not_recorded(version: int, *, table: str, last: int | None = None) -> StoppedError:
    """Return the error for a version at which changes were not recorded (Delta: ``DELTA_MISSING_CHANGE_DATA``).

    Args:
        version: The version.
        table: The table.
        last: The last version of which it is known that changes were not recorded from ``version`` on.
    """
    skipped = f"{version}" if last in (None, version) else f"{version}-{last}"
    return StoppedError(
        f"{table}: version {version} does not record changes: {ENABLED_PROPERTY} is not true there, although "
        f"read_change_feed=True needs it. The stream stops before version {version}; everything before it is "
        f"delivered. Have the property on (ALTER TABLE … SET TBLPROPERTIES ('{ENABLED_PROPERTY}' = 'true')), which "
        "changes nothing about versions before. Then load the table as it is now: remove the start options from the "
        "stream, and run `fds rewind STREAM --to start --sink-rows empty --why …`, with which the next run removes all "
        "rows of the sink first. With keep instead of empty, the sink keeps rows that were deleted in these versions. "
        f"skip_versions='{skipped}' passes what is known to have no recorded changes, and loses these changes",
        table=table,
        version=version,
        reason=Reason.CHANGES_NOT_RECORDED,
    )


def with_last(error: FdsError, log: DeltaLog, newest: int) -> FdsError:
    """Return an error of :func:`not_recorded` with the last version up to which it holds; others as they are.

    Args:
        error: What stops the stream.
        log: Log of the source.
        newest: The newest version that the stream looks at.
    """
    version = error.version
    if error.reason_code != str(Reason.CHANGES_NOT_RECORDED) or version is None:
        return error
    last = version
    with suppress(FdsError):
        for commit in log.commits(version + 1, min(newest, version + _MOST_READ)):
            if any(action.metaData is not None and is_enabled(action.metaData) for action in commit.actions):
                break
            last = commit.version
    return not_recorded(version, table=log.table_uri, last=last)


def check_start(log: DeltaLog, start: Offset) -> None:
    """Check that changes are recorded where a stream of changes is to start.

    Raises:
        ConfigurationError: They are not.
        LostPositionError: The state of the table there can no longer be rebuilt.
    """
    version = min(start.version, log.latest())
    if not is_enabled(log.state_at(version).metadata):
        raise ConfigurationError(
            f"{log.table_uri}: read_change_feed=True needs a table that records changes, but {ENABLED_PROPERTY} "
            f"is not true at version {version}, where the stream would start. Switch it on (ALTER TABLE … SET "
            f"TBLPROPERTIES ('{ENABLED_PROPERTY}' = 'true')), then start at the version of that ALTER TABLE or "
            "later, or without a start to load all rows of the table first, into a sink without rows: those that were "
            "deleted before would stay in it",
            table=log.table_uri,
            version=version,
            reason=Reason.CHANGE_FEED_DISABLED,
        )
