"""Every Spark setting of FDS: the forced ones, those of a lean start, and those for a single statement.

Standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterable, Iterator, List, Mapping, Optional

from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.spark.runtime.attempt_identity import is_connect
from airflow_provider_fds.spark.runtime.failures import RefusalError

if TYPE_CHECKING:
    from airflow_provider_fds.sinks import DeltaSink

TIME_ZONE = "spark.sql.session.timeZone"
EXTENSIONS = "spark.sql.extensions"
CATALOG = "spark.sql.catalog.spark_catalog"
DELTA_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
#: The settings of a session with Delta that loads a manifest fast.
DELTA_SESSION = {
    EXTENSIONS: DELTA_EXTENSION,
    CATALOG: "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # otherwise Delta spreads the few lines of a manifest over 50 tasks, and takes 6 to 7 times as long to load it
    "spark.databricks.delta.snapshotPartitions": "1",
}
#: Those of them that can be set on a running session, if the user has not set them.
_DEFAULTS = ("spark.databricks.delta.snapshotPartitions",)

#: Rows must not be lost silently, and the sink's history must record how many were written.
_ALWAYS = {
    # a lost or truncated file yielded 3,500 of 4,000 rows without an error, and count() still returned 4,000
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    # a batch is verified by numOutputRows
    "spark.databricks.delta.history.metricsEnabled": "true",
}

#: By setting, the value with which Spark changes what it writes, and the nearest one with which it does not.
_LOSSY = {"spark.sql.parquet.outputTimestampType": ("TIMESTAMP_MILLIS", "TIMESTAMP_MICROS")}

#: With this on, Spark 4.2.0 hangs forever on a Python UDF over a Parquet or Delta scan (SPARK-58241).
_COLUMNAR_UDF_INPUT = "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled"

#: Each batch passes its own transaction as write options. Set on the session, they would make Delta silently skip every
#: later write without options of its own.
TRANSACTION_SETTINGS = ("spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion")
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"

DEFAULT_JAVA_OPTIONS = "spark.driver.defaultJavaOptions"
JAVA_OPTIONS = "spark.driver.extraJavaOptions"

#: For a local driver: a collector that starts fast, and a compiler that stops early, which would slow down a large
#: batch.
_QUICK_COMPILER = "-XX:TieredStopAtLevel=1"
QUICK_COLLECTOR = "-XX:+UseSerialGC"
LIGHT_JVM = (_QUICK_COMPILER, QUICK_COLLECTOR)

#: From this many planned bytes on, fully optimised code is worth the wait for it.
BIG_JOB_BYTES = 256 << 20

#: Of a Spark Connect server, which works for many streams and goes on: otherwise Delta keeps up to 10,000 tables for an
#: hour each, and the manifest of each batch is one.
SERVER_CONF: Dict[str, str] = {"spark.databricks.delta.delta.log.cacheSize": "100"}

#: Of an application that works for several streams: the tasks of a large batch do not keep those of others waiting.
FLEET_CONF: Dict[str, str] = {"spark.scheduler.mode": "FAIR"}

_HASH_JOIN = "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold"
#: A batch with at most this many bytes of data files is small enough for a hash table that is spread over the tasks.
_SMALL_BATCH_BYTES = 64 << 20


def forced_settings(spark_version: Optional[str] = None) -> Dict[str, str]:
    """Return the settings that a job must run under, for a version of Spark (``None``: not known yet)."""
    settings = dict(_ALWAYS)
    if spark_version is None or spark_version.split("-")[0] == "4.2.0":
        settings[_COLUMNAR_UDF_INPUT] = "false"
    return settings


def conf_problems(conf: Mapping[str, Any], spark_version: Optional[str] = None) -> List[str]:
    """Return how a user's Spark configuration contradicts the forced settings, one sentence per setting."""
    problems = []
    for key, forced in forced_settings(spark_version).items():
        if key in conf and str(conf[key]).strip().lower() != forced:
            problems.append(
                f"Spark setting {key} is {conf[key]!r}, but a batch is loaded correctly only with {forced!r}. Remove it"
            )
    problems += [
        f"Spark setting {key} is {conf[key]!r}, which cuts values that are written. Remove it, or set {good!r}"
        for key, (lossy, good) in _LOSSY.items()
        if str(conf.get(key, "")).strip().upper() == lossy
    ]
    problems += [
        f"Spark setting {key} is {conf[key]!r}, but FDS sets the transaction of each batch. Remove it"
        for key in TRANSACTION_SETTINGS
        if key in conf
    ]
    return problems


def setting_text(value: Any) -> str:
    """Return a setting as Spark reads it: Python's ``True`` becomes ``true``."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def force(spark: Any) -> Dict[str, str]:
    """Apply the required settings to the session, and return the values in force.

    Raises:
        RefusalError: The session has its own transaction set, or does not accept a setting.
    """
    forced = forced_settings(spark.version)
    known = session_settings(spark, (*TRANSACTION_SETTINGS, *_DEFAULTS, *_LOSSY, *forced))
    problems = conf_problems({key: known[key] for key in TRANSACTION_SETTINGS if key in known})
    if problems:
        raise RefusalError(Reason.SPARK_SETTING_REFUSED, "; ".join(problems))
    changed = {key: DELTA_SESSION[key] for key in _DEFAULTS if key not in known}
    changed.update((key, value) for key, value in forced.items() if known.get(key, "").lower() != value)
    changed.update((key, good) for key, (lossy, good) in _LOSSY.items() if known.get(key, "").upper() == lossy)
    set_all(spark, changed)
    now = {**known, **session_settings(spark, changed)} if changed else known
    in_force = {key: now[key].lower() for key in forced}
    problems = conf_problems(in_force, spark.version)
    if problems:
        raise RefusalError(Reason.SPARK_SETTING_REFUSED, "; ".join(problems))
    return in_force


def session_settings(spark: Any, keys: Iterable[str]) -> Dict[str, str]:
    """Return at least these settings of a session, if they are set."""
    # one request to a Spark Connect server, in place of one for each; Spark 3.5 does not have it. In an application it
    # would take longer
    if is_connect(spark) and (known := getattr(spark.conf, "getAll", None)) is not None:
        return dict(known)
    values = {key: spark.conf.get(key, None) for key in keys}
    return {key: str(value) for key, value in values.items() if value is not None}


def in_utc(spark: Any) -> bool:
    """Whether the session is known to be in UTC: its clock shows each time once."""
    return spark.conf.get(TIME_ZONE) in ("UTC", "Etc/UTC", "GMT", "Z")


def set_all(spark: Any, settings: Mapping[str, str]) -> None:
    """Apply settings to a session: on a Spark Connect server by one request, where pyspark can."""
    together = getattr(spark.conf, "_set_all", None)
    if together is not None and settings:
        together(dict(settings), silent=False)
        return
    for key, value in settings.items():
        spark.conf.set(key, value)


def is_local_master(master: str) -> bool:
    """Whether driver and executors are one process (``local``, ``local[2]``; not ``local-cluster[…]``)."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def master_problem(master: str) -> Optional[str]:
    """Return what is wrong with the URL of a master that no Spark can know, else ``None``."""
    if "://" in master or master == "yarn" or is_local_master(master) or master.startswith("local-cluster["):
        return None
    return f"{master!r} is no master of Spark: it is local[2], local[*], spark://HOST:7077, yarn or k8s://HOST"


def lean_conf(master: str, deploy_mode: str = "client", num_bytes: Optional[int] = 0) -> Dict[str, str]:
    """Return the settings of a lean start for this master and number of bytes, without the user's.

    Args:
        master: Spark master URL.
        deploy_mode: ``client`` or ``cluster``.
        num_bytes: Planned bytes of all batches; ``None``: a server, which keeps the JVM's own compiler and collector.
    """
    conf = {
        **DELTA_SESSION,
        "spark.sql.shuffle.partitions": "2" if is_local_master(master) else "16",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **forced_settings(),
    }
    java_options: List[str] = []
    if is_local_master(master):
        # the host's name may not resolve, and no other process must reach this driver
        conf.update({"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"})
        if num_bytes is not None:
            java_options += LIGHT_JVM if num_bytes < BIG_JOB_BYTES else (QUICK_COLLECTOR,)
    if deploy_mode == "client":
        quiet = Path(__file__).resolve().with_name("log4j2.properties")
        java_options.append(f"-Dlog4j2.configurationFile={quiet.as_uri()}")
    if java_options:
        # not extraJavaOptions: those belong to the user, and come after these
        conf[DEFAULT_JAVA_OPTIONS] = " ".join(java_options)
    return conf


@contextmanager
def session_conf(spark: Any, settings: Mapping[str, str]) -> Iterator[None]:
    """Apply ``settings`` within the context, and restore the earlier values whatever happens.

    A transaction that stays set makes Delta silently skip every later write without one of its own.
    """
    before = session_settings(spark, settings) if settings else {}
    try:
        set_all(spark, settings)
        yield
    finally:
        set_all(spark, {key: before[key] for key in settings if key in before})
        for key in settings:
            if key not in before:
                spark.conf.unset(key)


def transaction_conf(app_id: str, version: int, user_metadata: str) -> Dict[str, str]:
    """Return the settings with which a SQL statement commits under a transaction and with ``userMetadata``."""
    app_id_key, version_key = TRANSACTION_SETTINGS
    return {app_id_key: app_id, version_key: str(version), _USER_METADATA: user_metadata}


def file_size_conf(sink: DeltaSink) -> Dict[str, str]:
    """Return the settings with which Delta combines small files of a write up to the size the sink requests."""
    if sink.target_file_size is None:
        return {}
    return {
        "spark.databricks.delta.optimizeWrite.enabled": "true",
        # MiB, the unit of this setting
        "spark.databricks.delta.optimizeWrite.binSize": f"{max(1, int(sink.target_file_size) >> 20)}m",
    }


def hash_join_conf(spark: Any, num_bytes: int) -> Dict[str, str]:
    """Return the settings with which a MERGE of a small batch does not sort the table, which may be large.

    Spark checks the batch's partitions after the shuffle, and still sorts if one is too large. A value set by the user
    is kept.

    Args:
        spark: Session.
        num_bytes: Bytes of the batch's data files.
    """
    if num_bytes > _SMALL_BATCH_BYTES or spark.conf.get(_HASH_JOIN, None) is not None:
        return {}
    return {_HASH_JOIN: str(_SMALL_BATCH_BYTES)}
