"""Settings of a Spark that runs thousands of small plans, each once, on local disk."""

from __future__ import annotations

from typing import Final

from airflow_provider_fds.spark.installation.jars import delta_jars
from airflow_provider_fds.spark.runtime.settings import DEFAULT_JAVA_OPTIONS, LIGHT_JVM
from airflow_provider_fds.spark.submission.class_archive import class_archive

#: Full size from the start, for a session of many tests: a heap and a metaspace that grow are collected at each step.
MEMORY: Final = "-Xms1g -Xmn400m -XX:MetaspaceSize=300m"

#: Compiles fast instead of well, since tests run each plan once. Spark fills the default 48 MB of code within minutes,
#: and what does not fit is compiled again. Hadoop starts a process for each change of a file's permissions: ``VFORK``
#: is half the price of the default.
JVM: Final = f"{' '.join(LIGHT_JVM)} -XX:ReservedCodeCacheSize=256m -Djdk.lang.Process.launchMechanism=VFORK"

#: Plans that run once take a fifth less CPU time if Spark interprets them instead of compiling them, and a seventh less
#: if it does not plan them again after each stage. Applications that a test submits do both.
INTERPRETED: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}

#: A log of a few commits needs one task, not 50.
SMALL_LOGS: Final = {"spark.databricks.delta.snapshotPartitions": "1"}

#: The default manager starts two processes (``readlink``) for each ``.crc`` file that Delta writes.
_FILE_MANAGER: Final = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"


def few_processes() -> dict[str, str]:
    """Return the setting that lets Delta write a ``.crc`` file without other processes; nothing for older Sparks."""
    import pyspark

    is_older = tuple(map(int, pyspark.__version__.split(".")[:2])) < (4, 2)
    return {} if is_older else {"spark.sql.streaming.checkpointFileManagerClass": _FILE_MANAGER}


def mapped_classes() -> dict[str, str]:
    """Return the settings that put Delta on the class path, and map the classes of the archive if there is one.

    A JVM that maps its classes starts with a third less CPU time. ``make test`` makes the archive.
    """
    class_path = ":".join(map(str, delta_jars()))
    archive = class_archive(class_path, " ".join(LIGHT_JVM))
    options = [] if archive is None else archive.options()
    return {
        "spark.driver.extraClassPath": class_path,
        **({DEFAULT_JAVA_OPTIONS: " ".join(options)} if options else {}),
    }


def server_settings() -> dict[str, str]:
    """Return all settings for a server of tests; its JVM has its options already."""
    return {**INTERPRETED, **SMALL_LOGS, **few_processes()}
