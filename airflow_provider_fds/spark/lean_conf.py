"""The settings of a lean start of Spark, and the user's own among them. Standard library only."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.spark.install import SparkSetupError
from airflow_provider_fds.spark.settings import conf_problems, forced_settings, setting_text

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_JAVA_OPTIONS: Final = "spark.driver.defaultJavaOptions"
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_EXTENSIONS: Final = "spark.sql.extensions"
_DELTA_EXTENSION: Final = "io.delta.sql.DeltaSparkSessionExtension"

#: Of a local driver: a collector that starts at once, and a compiler that stops early, which a big batch would pay for.
_QUICK_COMPILER: Final = "-XX:TieredStopAtLevel=1"
_QUICK_COLLECTOR: Final = "-XX:+UseSerialGC"
LIGHT_JVM: Final = (_QUICK_COMPILER, _QUICK_COLLECTOR)

#: From so many planned bytes on, code that is compiled well is worth the wait for it.
BIG_JOB_BYTES: Final = 256 << 20


def is_local_master(master: str) -> bool:
    """Whether driver and executors are one process (``local``, ``local[2]``; not ``local-cluster[…]``)."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def lean_conf(master: str, deploy_mode: str = "client", num_bytes: int = 0) -> dict[str, str]:
    """Return the settings of a lean start for this master and so many bytes, without anything of the user's."""
    conf = {
        _EXTENSIONS: _DELTA_EXTENSION,
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.shuffle.partitions": "2" if is_local_master(master) else "16",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **forced_settings(),
    }
    java_options: list[str] = []
    if is_local_master(master):
        # the host's name may not resolve, and nobody else has to reach this driver
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        java_options += LIGHT_JVM if num_bytes < BIG_JOB_BYTES else (_QUICK_COLLECTOR,)
    if deploy_mode == "client":
        quiet = Path(__file__).resolve().with_name("log4j2.properties")
        java_options.append(f"-Dlog4j2.configurationFile={quiet.as_uri()}")
    if java_options:
        # not extraJavaOptions: those belong to the user, and come after these
        conf[DEFAULT_JAVA_OPTIONS] = " ".join(java_options)
    return conf


def merged_conf(lean: Mapping[str, str], user: Mapping[str, Any] | None) -> dict[str, str]:
    """Return ``lean`` with the user's settings over it; what must hold together is merged, not replaced.

    Raises:
        SparkSetupError: a setting of the user contradicts one that a batch needs to be loaded right.
    """
    own = {key: setting_text(value) for key, value in (user or {}).items()}
    if problems := conf_problems(own):
        raise SparkSetupError("; ".join(problems))
    conf = {**lean, **own}
    if _DELTA_EXTENSION not in conf.get(_EXTENSIONS, "").split(","):
        conf[_EXTENSIONS] = f"{conf[_EXTENSIONS]},{_DELTA_EXTENSION}"
    java_options = conf.get(DEFAULT_JAVA_OPTIONS, "")
    if re.search(r"-XX:\+Use\w+GC", own.get(_JAVA_OPTIONS, "")):
        # the JVM refuses to start with two collectors
        java_options = java_options.replace(_QUICK_COLLECTOR, "").strip()
    if java_options:
        conf[DEFAULT_JAVA_OPTIONS] = re.sub(r" {2,}", " ", java_options)
    return conf
