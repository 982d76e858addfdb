"""Whether a table records its changes for the change data feed, and the errors if it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from airflow_provider_fds.errors import ConfigurationError, StoppedError
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from airflow_provider_fds.delta.actions import Metadata
    from airflow_provider_fds.delta.reader.log import DeltaLog
    from airflow_provider_fds.source.offset import Offset

#: Table property that makes writers record changes.
ENABLED_PROPERTY: Final = "delta.enableChangeDataFeed"


def is_enabled(metadata: Metadata) -> bool:
    """Whether changes are recorded under ``metadata``."""
    return (metadata.property(ENABLED_PROPERTY) or "").lower() == "true"


def not_recorded(version: int, *, table: str) -> StoppedError:
    """Return the error for a version at which changes were not recorded (Delta: ``DELTA_MISSING_CHANGE_DATA``)."""
    return StoppedError(
        f"{table}: version {version} does not record changes: {ENABLED_PROPERTY} is not true there, although "
        f"read_change_feed=True needs it. The stream stops before version {version}; everything before it is "
        f"delivered. Have the property on (ALTER TABLE … SET TBLPROPERTIES ('{ENABLED_PROPERTY}' = 'true')), which "
        "changes nothing about versions before. Then load the table as it is now: remove the start options from the "
        "stream, and run `fds rewind STREAM --to start --sink-rows empty --why …`, with which the next run removes all "
        "rows of the sink first. With keep instead of empty, the sink keeps rows that were deleted in these versions. "
        f"skip_versions='{version}-N', N the last version without recorded changes, loses their changes",
        table=table,
        version=version,
        reason=Reason.CHANGES_NOT_RECORDED,
    )


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
