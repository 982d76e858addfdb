"""Spark settings that decide whether a batch is loaded right, forced by launcher and driver alike.

Standard library only, Python 3.9 syntax.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional

from airflow_provider_fds.spark.failures import RefusalError

#: Rows may not vanish in silence, and the sink's history must say how many were written.
_ALWAYS = {
    # one lost or truncated file gave 3,500 of 4,000 rows, no error, and count() still said 4,000
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    # numOutputRows is what a batch is verified by
    "spark.databricks.delta.history.metricsEnabled": "true",
}

#: Spark 4.2.0 hangs for ever on a Python UDF over a Parquet or Delta scan with this on (SPARK-58241).
_COLUMNAR_UDF_INPUT = "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled"

#: Each batch has its own transaction, as write options. Set for the session they would make Delta skip, in silence,
#: every later write that brings no options of its own.
_REFUSED = ("spark.databricks.delta.write.txnAppId", "spark.databricks.delta.write.txnVersion")

#: Not forced, but without it a manifest takes 6-7 times as long to load.
_DEFAULTS = {"spark.databricks.delta.snapshotPartitions": "1"}


def forced_settings(spark_version: Optional[str] = None) -> Dict[str, str]:
    """Return the settings that a job must run under, by the version of Spark (``None``: not known yet)."""
    settings = dict(_ALWAYS)
    if spark_version is None or spark_version.split("-")[0] == "4.2.0":
        settings[_COLUMNAR_UDF_INPUT] = "false"
    return settings


def conf_problems(conf: Mapping[str, Any], spark_version: Optional[str] = None) -> List[str]:
    """Return what in a user's Spark configuration contradicts the forced settings, one sentence each."""
    problems = []
    for key, forced in forced_settings(spark_version).items():
        if key in conf and str(conf[key]).strip().lower() != forced:
            problems.append(
                f"Spark setting {key} is {conf[key]!r}, but a batch is only loaded right with {forced!r}: remove it"
            )
    problems += [
        f"Spark setting {key} is {conf[key]!r}, but the transaction of each batch is set by FDS: remove it"
        for key in _REFUSED
        if key in conf
    ]
    return problems


def setting_text(value: Any) -> str:
    """Return a setting as Spark reads it: Python's ``True`` is Spark's ``true``."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def force(spark: Any) -> Dict[str, str]:
    """Set what must be set on the session, and return it as it is in force.

    Raises:
        RefusalError: the session has a transaction of its own set, or does not take a setting.
    """
    set_already = {key: spark.conf.get(key, None) for key in _REFUSED}
    problems = conf_problems({key: value for key, value in set_already.items() if value is not None})
    if problems:
        raise RefusalError("Settings", "; ".join(problems))
    for key, value in _DEFAULTS.items():
        if spark.conf.get(key, None) is None:
            spark.conf.set(key, value)
    forced = forced_settings(spark.version)
    for key, value in forced.items():
        spark.conf.set(key, value)
    in_force = {key: str(spark.conf.get(key)).lower() for key in forced}
    problems = conf_problems(in_force, spark.version)
    if problems:
        raise RefusalError("Settings", "; ".join(problems))
    return in_force
