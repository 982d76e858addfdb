"""Retention for a connected stream."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from airflow_provider_fds.delta.damage import MAX_INT64
from airflow_provider_fds.delta.retention import FILE_RETENTION
from airflow_provider_fds.delta.retention import retention as file_retention
from airflow_provider_fds.errors import (
    LedgerError,
    LostPositionError,
    StorageError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from airflow_provider_fds.ledger.staging.housekeeping import purge_expired

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.staging.housekeeping import Retention
    from airflow_provider_fds.stream.connected_stream import ConnectedStream

logger = logging.getLogger(__name__)


def purge_stream(connected: ConnectedStream, retention: Retention) -> None:
    """Remove manifests and reports of batches that were committed long ago.

    Manifests are removed no later than the files they list: after ``delta.deletedFileRetentionDuration`` of the source,
    even if ``retention`` is longer. Files that cannot be removed now are left for the next time; they do no harm.
    """
    try:
        age = min(retention.age, _file_retention(connected))
        purge_expired(connected.ledger, connected.staging, now=datetime.now(UTC), retention=replace(retention, age=age))
    except (StorageError, LedgerError) as error:
        logger.warning("Stream %s: old manifests and reports are kept for now: %s", connected.stream.name, error)


def _file_retention(connected: ConnectedStream) -> timedelta:
    log = connected.log
    # what this run has planned from, or the last one that did, is new enough for a property
    known = None if log.known is None else log.known.up_to(MAX_INT64)
    try:
        metadata = known.metadata if known is not None else log.state_at(log.latest()).metadata
        return file_retention(metadata, FILE_RETENTION)
    except (LostPositionError, TableNotFoundError, UnsupportedFeatureError):
        # a source that can no longer be read does not shorten the retention
        return timedelta.max
