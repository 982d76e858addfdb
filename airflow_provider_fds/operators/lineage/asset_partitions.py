"""The argument ``asset_partitions``: which partition keys of Airflow 3.3 the asset event of a load gets."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.batch.version_ranges import describe_range
from airflow_provider_fds.errors import LostPositionError
from airflow_provider_fds.hooks.partition import formatted_key
from airflow_provider_fds.sizes import format_count

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_provider_fds.stream.run.session import StreamSession

log = logging.getLogger(__name__)

#: What Airflow's database has room for.
_LONGEST_KEY: Final = 250
#: At most so many refused keys are named, each by so many characters.
_SHOWN: Final = 20


def check_source(asset_partitions: str, session: StreamSession) -> None:
    """Refuse a column by which the source is not partitioned, before anything is loaded.

    Raises:
        ConfigurationError: The source is not partitioned by it.
        TableNotFoundError: There is no source.
    """
    if "%" not in asset_partitions:
        # not for a DAG that is only parsed
        from airflow_provider_fds.stream.position.changed_partitions import check_partition_column

        check_partition_column(session.connected.log, asset_partitions)


def partition_keys(
    asset_partitions: str | None,
    context: Any,
    session: StreamSession,
    covered: Mapping[str, Any],
    own: Mapping[str, Any],
) -> Sequence[str]:
    """Return the partition keys of a load, sorted; none without ``asset_partitions``.

    The rows are committed by then, so versions that the source's log no longer has fail nothing: a warning names them.

    Args:
        asset_partitions: The argument.
        context: The task's context.
        session: The run.
        covered: What the event covers; also what earlier runs have committed without an event.
        own: What this run has committed.

    Raises:
        ConfigurationError: The source is not partitioned by the column.
        StorageError: The source's store does not answer.
    """
    if asset_partitions is None:
        return ()
    if "%" in asset_partitions:
        start = datetime.fromisoformat(own["interval_start"])
        return (formatted_key(context, start, asset_partitions),)
    from airflow_provider_fds.stream.position.changed_partitions import changed_partitions

    lost: LostPositionError | None = None
    for result in (covered, own):
        try:
            keys = changed_partitions(session.stream, session.connected.log, asset_partitions, result)
        except LostPositionError as error:
            lost = error
            continue
        if lost is not None:
            _warn_of_lost(covered["first_version"], max(covered["first_version"], own["first_version"] - 1), lost)
        return keys
    _warn_of_lost(covered["first_version"], covered["last_version"], lost)
    return ()


def _warn_of_lost(first: int, last: int, lost: LostPositionError | None) -> None:
    log.warning(
        "The event gets no partition keys for %s, because the log of the source does not have them any more: %s. Start "
        "the runs that wait for these partitions by hand.",
        describe_range(first, last),
        lost,
    )


def add_partitions(event: Any, keys: Sequence[str]) -> None:
    """Give the event of an asset its partition keys, where Airflow can."""
    if not keys:
        return
    if not hasattr(event, "add_partitions"):
        # Airflow 3.1 knows no partitions; in 3.2 an event has the key of its run, and no other one
        log.info("The event is sent without its partition keys, which need Airflow 3.3: %s", ", ".join(keys))
        return
    refused = [key for key in keys if not key.strip() or len(key) > _LONGEST_KEY]
    if refused:
        names = ", ".join(repr(key[:_SHOWN]) for key in refused[:_SHOWN])
        log.warning(
            "The event does not get %s that Airflow does not accept, because they are blank or longer than %d "
            "characters: %s",
            format_count(len(refused), "partition key"),
            _LONGEST_KEY,
            names,
        )
    if accepted := [key for key in keys if key not in refused]:
        event.add_partitions(accepted)
