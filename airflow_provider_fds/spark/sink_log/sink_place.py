"""Where a sink may be: checks of its location before anything is read or written.

Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Iterable, Mapping, Optional

from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.schemes import comparable
from airflow_provider_fds.spark.runtime.failures import RefusalError, explain
from airflow_provider_fds.spark.runtime.hadoop_files import first_data_file, scheme
from airflow_provider_fds.spark.sink_log.history import quoted, read_properties

if TYPE_CHECKING:
    from airflow_provider_fds.batch.spec import BatchSpec
    from airflow_provider_fds.sinks import DeltaSink

#: A transaction that Delta forgets while its writer is still running can land twice. A writer may be paused for any
#: time, and a manifest is kept as long as it is among the newest; ten years are longer than a process or a machine
#: lives.
_SHORTEST_RETENTION_SECONDS = 3650 * 86_400
_RETENTION = "delta.setTransactionRetentionDuration"
_FEATURE = "delta.feature."
#: Table features under which commits are not published in ``_delta_log`` at once.
_COMMITS_ELSEWHERE = ("catalogmanaged", "catalogowned", "coordinatedcommits")
_UNIT_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800, "month": 2_592_000}
_SINGLE_DRIVER_STORE = "S3SingleDriverLogStore"
#: FDS's own (``java/``), the default on S3 for every job that FDS submits.
_OWN_STORE = "fds.storage.S3ConditionalLogStore"


def check_place(spark: Any, sink: DeltaSink, path: str, batch: BatchSpec) -> None:
    """Refuse a sink at a location where its rows or its commits would not be safe.

    Args:
        spark: The session.
        sink: As declared.
        path: Its location, as Spark takes it.
        batch: Names the locations of staging and source.

    Raises:
        RefusalError: It is on S3 without a log store that is atomic across drivers, overlaps with staging, or is the
            source itself.
    """
    check_log_store(spark, sink, path)
    place, manifest = comparable(path), comparable(batch.manifest)
    stream_folder = re.sub(r"/manifests/([^/]+/)?\d+/[^/]+$", "", manifest)
    if _overlap(place, stream_folder):
        raise RefusalError(
            Reason.SINK_PLACE_REFUSED,
            f"the sink {path} overlaps the stream's staging {stream_folder}: housekeeping or VACUUM of one would "
            "remove the other. Use another folder for the sink",
        )
    data_file = first_data_file(batch.manifest, spark)
    if data_file is not None and comparable(data_file).startswith(place + "/"):
        raise RefusalError(
            Reason.SINK_PLACE_REFUSED,
            f"the sink {path} is the source itself (it contains {data_file}): the stream would read its own rows. "
            "Use another sink",
        )


def check_log_store(spark: Any, sink: DeltaSink, path: str) -> None:
    """Refuse a sink on S3 without a log store that is atomic across drivers, unless that was allowed.

    Raises:
        RefusalError: Commits of two drivers may overwrite each other there.
    """
    if not sink.is_on_s3 or sink.allow_single_driver_s3:
        return
    name = scheme(path)
    keys = (f"spark.delta.logStore.{name}.impl", "spark.delta.logStore.class")
    stores = [store for store in (spark.conf.get(key, None) for key in keys) if store]
    otherwise = (
        f"Or set spark.delta.logStore.{name}.impl=io.delta.storage.S3DynamoDBLogStore (artifact "
        "io.delta:delta-storage-s3-dynamodb), or, if nothing else ever writes to this table, "
        f"{type(sink).__name__}(…, allow_single_driver_s3=True)"
    )
    if not stores or any(_SINGLE_DRIVER_STORE in store for store in stores):
        raise RefusalError(
            Reason.SINK_LOG_STORE_UNSAFE,
            f"the sink {path} is on S3 with Delta's default log store, which loses commits when two drivers write "
            f"at once. Set spark.delta.logStore.{name}.impl={_OWN_STORE} and put fds-s3-log-store.jar (from "
            f"folder spark/jars of the installed airflow_provider_fds) beside Delta's JARs. {otherwise}",
        )
    problem = _own_store_problem(spark, path) if _OWN_STORE in stores else None
    if problem is not None:
        raise RefusalError(
            Reason.SINK_LOG_STORE_UNSAFE, f"{_OWN_STORE} cannot commit to the sink {path}: {problem}. {otherwise}"
        )


def _own_store_problem(spark: Any, path: str) -> Optional[str]:
    """Return why FDS's log store cannot commit atomically there; ``None`` if it can, or if there is no JVM to ask.

    Raises what py4j raises if the store cannot be reached.
    """
    jvm = getattr(spark, "_jvm", None)
    if jvm is None:
        # on Spark Connect the log store itself refuses at the first commit
        return None
    conf = spark._jsparkSession.sessionState().newHadoopConf()
    try:
        jvm.fds.storage.S3ConditionalLogStore.check(jvm.org.apache.hadoop.fs.Path(path, "_delta_log"), conf)
    except TypeError:
        # py4j treats a class that it does not find as a package
        return "the class is not on the class path; put fds-s3-log-store.jar beside Delta's JARs"
    except Exception as error:
        failure = explain(error)
        if failure.error_class != "UnsupportedOperationException":
            raise
        return failure.message
    return None


def check_table(spark: Any, path: str) -> None:
    """Refuse a table that FDS cannot load without losing or duplicating rows, by its properties and features.

    Raises:
        RefusalError: See :func:`check_properties` and :func:`check_features`.
    """
    properties = read_properties(spark, path)
    check_properties(path, properties)
    check_features(path, [name[len(_FEATURE) :] for name in properties if name.startswith(_FEATURE)])


def check_properties(path: str, properties: Mapping[str, str]) -> None:
    """Refuse a sink that forgets transactions while their writers may still be running.

    Raises:
        RefusalError: ``delta.setTransactionRetentionDuration`` is less than ten years, or cannot be parsed.
    """
    kept = next((text for name, text in properties.items() if name.lower() == _RETENTION.lower()), None)
    seconds = interval_seconds(kept) if kept else None
    if kept and (seconds is None or seconds < _SHORTEST_RETENTION_SECONDS):
        raise RefusalError(
            Reason.SINK_FORGETS_BATCHES,
            f"the sink {path} has {_RETENTION} = {kept!r}: after that time Delta forgets which batches it has, "
            f"and a paused writer that continues would write one twice. Unset it: ALTER TABLE {quoted(path)} "
            f"UNSET TBLPROPERTIES ('{_RETENTION}'), or set 'interval 3650 days' or more",
        )


def check_features(path: str, features: Iterable[str]) -> None:
    """Refuse a sink whose newest commits are kept by a catalog or a commit coordinator: its log does not show them.

    Raises:
        RefusalError: Names the table feature.
    """
    for feature in features:
        if feature.lower().startswith(_COMMITS_ELSEWHERE):
            raise RefusalError(
                Reason.SINK_COMMITS_ELSEWHERE,
                f"the sink {path} has the table feature {feature}: its newest commits are kept by a catalog or "
                "commit coordinator, so FDS could not see its batches in its log. Drop the feature with ALTER "
                f"TABLE … DROP FEATURE `{feature}`, or use another sink",
            )


def _overlap(one: str, other: str) -> bool:
    return one == other or one.startswith(other + "/") or other.startswith(one + "/")


def interval_seconds(text: str) -> Optional[int]:
    """Return the length of a Delta interval (``interval 2 weeks``), or ``None`` if it cannot be parsed."""
    words = re.sub(r"^\s*interval\s+", "", text.strip().lower())
    if not re.fullmatch(r"(\s*\d+\s+[a-z]+)+\s*", words):
        return None
    parts = re.findall(r"(\d+)\s+([a-z]+?)s?(?=\s|$)", words)
    # milliseconds and smaller units count as zero
    return sum(int(number) * _UNIT_SECONDS.get(unit, 0) for number, unit in parts)
