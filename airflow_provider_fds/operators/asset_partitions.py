"""The argument ``asset_partitions``: which partition keys of Airflow 3.3 the asset event of a load gets."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import Asset

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.hooks.partition import formatted_key
from airflow_provider_fds.operators.ingest_arguments import reads_by_interval

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_provider_fds.stream.session import StreamSession

log = logging.getLogger(__name__)


def check_asset_partitions(asset_partitions: object, stream: object, outlets: object) -> None:
    """Refuse an invalid ``asset_partitions``, and arguments with which it has no effect.

    Raises:
        ConfigurationError: Reports all problems at once.
    """
    if asset_partitions is None:
        return
    problems = []
    if not isinstance(asset_partitions, str) or not asset_partitions.strip():
        problems.append(
            "asset_partitions must be a date format such as '%Y-%m-%d', or a partition column of the source, got "
            f"{asset_partitions!r}."
        )
    elif "%" in asset_partitions and not reads_by_interval(stream):
        problems.append(
            f"asset_partitions={asset_partitions!r} formats the start of a data interval, so it requires a stream with "
            "read='data_interval'. For this stream, name a partition column of the source."
        )
    given = outlets if isinstance(outlets, (list, tuple)) else [outlets]
    if not any(isinstance(outlet, Asset) for outlet in given):
        problems.append(
            "asset_partitions requires outlets=[Asset(…)]: Airflow does not accept partition keys for an asset alias, "
            "which is the default outlet."
        )
    if problems:
        raise ConfigurationError(*problems, subject="DeltaIngestOperator")


def check_source(asset_partitions: str | None, session: StreamSession) -> None:
    """Refuse a column by which the source is not partitioned, before anything is loaded.

    Raises:
        ConfigurationError: The source is not partitioned by it.
        TableNotFoundError: There is no source.
    """
    if asset_partitions is not None and "%" not in asset_partitions:
        # not for a DAG that is only parsed
        from airflow_provider_fds.stream.changed_partitions import check_partition_column

        check_partition_column(session.connected.log, asset_partitions)


def partition_keys(
    asset_partitions: str | None, context: Any, session: StreamSession, result: Mapping[str, Any]
) -> Sequence[str]:
    """Return the partition keys of a load, sorted; none without ``asset_partitions``.

    Raises:
        ConfigurationError: The source is not partitioned by the column.
        StorageError: The source's store does not answer.
    """
    if asset_partitions is None:
        return ()
    if "%" in asset_partitions:
        start = datetime.fromisoformat(result["interval_start"])
        return (formatted_key(context, start, asset_partitions),)
    from airflow_provider_fds.stream.changed_partitions import changed_partitions

    return changed_partitions(session.stream, session.connected.log, asset_partitions, result)


def add_partitions(event: Any, keys: Sequence[str]) -> None:
    """Give the event of an asset its partition keys, where Airflow can."""
    if not keys:
        return
    if not hasattr(event, "add_partitions"):
        # Airflow 3.1 knows no partitions; in 3.2 an event has the key of its run, and no other one
        log.info("The event is sent without its partition keys, which need Airflow 3.3: %s", ", ".join(keys))
        return
    event.add_partitions(list(keys))


__all__ = ["add_partitions", "check_asset_partitions", "check_source", "partition_keys"]
