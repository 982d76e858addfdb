"""Settings of the session for the time of one statement. Standard library and pyspark, Python 3.9 syntax."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional

if TYPE_CHECKING:
    from airflow_provider_fds.sinks import DeltaSink

_APP_ID = "spark.databricks.delta.write.txnAppId"
_VERSION = "spark.databricks.delta.write.txnVersion"
#: What must not stay set.
TRANSACTION_SETTINGS = (_APP_ID, _VERSION)
_USER_METADATA = "spark.databricks.delta.commitInfo.userMetadata"

_HASH_JOIN = "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold"
#: A batch of at most so many bytes of data files is small enough for a hash table, of which each task holds its part.
_SMALL_BATCH_BYTES = 64 << 20


@contextmanager
def session_conf(spark: Any, settings: Mapping[str, str]) -> Iterator[None]:
    """Set ``settings``, and put back what was there whatever happens.

    A transaction that stays set makes Delta skip, in silence, every later write that brings none of its own.
    """
    before: Dict[str, Optional[str]] = {}
    try:
        for key, value in settings.items():
            before[key] = spark.conf.get(key, None)
            spark.conf.set(key, value)
        yield
    finally:
        for key, value_before in before.items():
            if value_before is None:
                spark.conf.unset(key)
            else:
                spark.conf.set(key, value_before)


def transaction_conf(app_id: str, version: int, user_metadata: str) -> Dict[str, str]:
    """Return the settings by which a SQL statement commits under a transaction and with ``userMetadata``."""
    return {_APP_ID: app_id, _VERSION: str(version), _USER_METADATA: user_metadata}


def file_size_conf(sink: DeltaSink) -> Dict[str, str]:
    """Return the settings by which Delta joins small files of a write to the size that the sink asks for."""
    if sink.target_file_size is None:
        return {}
    return {
        "spark.databricks.delta.optimizeWrite.enabled": "true",
        # MiB, the unit of this setting
        "spark.databricks.delta.optimizeWrite.binSize": f"{max(1, int(sink.target_file_size) >> 20)}m",
    }


def hash_join_conf(spark: Any, num_bytes: int) -> Dict[str, str]:
    """Return the settings by which a MERGE of a small batch does not sort the table, which may be large.

    Spark looks at the parts of the batch as they are after the shuffle, and sorts as ever where one is larger. A value
    of the user's own stays.

    Args:
        spark: Session.
        num_bytes: Bytes of the batch's data files.
    """
    if num_bytes > _SMALL_BATCH_BYTES or spark.conf.get(_HASH_JOIN, None) is not None:
        return {}
    return {_HASH_JOIN: str(_SMALL_BATCH_BYTES)}


__all__: List[str] = ["TRANSACTION_SETTINGS", "file_size_conf", "hash_join_conf", "session_conf", "transaction_conf"]
