"""Where the job of a run reads and writes, and whose credentials it asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.spark.installation.own_spark import OwnSpark
    from airflow_provider_fds.spark.submission.object_store import JobStorage
    from airflow_provider_fds.stream.run.session import StreamSession


def storage_of(session: StreamSession, sink: Sink) -> JobStorage:
    """Return where the job of a run reads and writes."""
    from airflow_provider_fds.spark.submission.object_store import job_storage

    connected = session.connected
    return job_storage(connected.places(sink.table_uri), sink.located(connected.sink_target))


def vended_credentials(
    session: StreamSession,
    sink: Sink,
    conf: Mapping[str, Any],
    properties_file: str | None,
    own_spark: Callable[[], OwnSpark | None],
) -> object | None:
    """Return the credentials of a catalog that the Spark of a run asks for, ``None`` if it asks for none.

    Raises:
        SparkSetupError: The user's file of settings cannot be read.
    """
    from airflow_provider_fds.spark.submission.submit import own_settings, vended_table

    if "credential_provider" not in session.connected.place.options:
        return None
    storage, spark = storage_of(session, sink), own_spark()
    place = vended_table(storage, own_settings(storage, conf, properties_file, spark), spark)
    return None if place is None else place.options["credential_provider"]
