"""How spark-submit is called: the lean command and its configuration. Standard library only.

Measured for one batch of five small files: spark-submit as people write it (``--packages``, default settings) 29.9 s,
with this configuration 14.5 s. Most of it comes from the size of Delta's state and shuffle stages; on local masters
the rest from JARs on the class path of the JVM and a compiler that stops early.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.spark.bundle import driver_zip, job_file
from airflow_provider_fds.spark.install import SparkSetupError, bundled_spark_home, default_cache_dir, delta_jars
from airflow_provider_fds.spark.settings import conf_problems, forced_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

HADOOP_AWS_PACKAGE: Final = "org.apache.hadoop:hadoop-aws:3.5.0"

_EXTENSIONS: Final = "spark.sql.extensions"
_DELTA_EXTENSION: Final = "io.delta.sql.DeltaSparkSessionExtension"
_DEFAULT_JAVA_OPTIONS: Final = "spark.driver.defaultJavaOptions"
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"


@dataclass(frozen=True)
class SubmitArguments:
    """What spark-submit gets; the fields have the names of ``SparkSubmitOperator``'s arguments.

    Attributes:
        application: The job's file.
        application_args: The URI of the job spec.
        conf: Spark settings, the user's merged in.
        jars: Delta's JARs where executors need them too, comma separated, else ``None``.
        driver_class_path: Delta's JARs on local masters, colon separated, else ``None``.
        py_files: The driver's modules.
        env_vars: Environment of the driver, for local and client mode with the bundled Spark; else empty.
        spark_binary: spark-submit of the bundled Spark, else plain ``spark-submit``.
    """

    master: str
    deploy_mode: str
    application: str
    application_args: tuple[str, ...]
    conf: dict[str, str]
    jars: str | None
    driver_class_path: str | None
    py_files: str
    env_vars: dict[str, str] = field(default_factory=dict)
    spark_binary: str = "spark-submit"

    def command(self) -> list[str]:
        """Return the command line. The environment is :attr:`env_vars` on top of this process's."""
        command = [self.spark_binary, "--master", self.master, "--deploy-mode", self.deploy_mode]
        for key, value in self.conf.items():
            command += ["--conf", f"{key}={value}"]
        if self.jars:
            command += ["--jars", self.jars]
        if self.driver_class_path:
            command += ["--driver-class-path", self.driver_class_path]
        return [*command, "--py-files", self.py_files, self.application, *self.application_args]


def is_local_master(master: str) -> bool:
    """Whether driver and executors are one process (``local``, ``local[2]``; not ``local-cluster[…]``)."""
    return re.fullmatch(r"local(\[.*\])?", master) is not None


def needs_s3a(uris: Iterable[str]) -> bool:
    """Whether one of the URIs is on S3, so that Spark needs :data:`HADOOP_AWS_PACKAGE` in ``spark.jars.packages``."""
    return any(re.match(r"s3[an]?://", uri, re.IGNORECASE) for uri in uris)


def lean_conf(master: str, deploy_mode: str = "client") -> dict[str, str]:
    """Return the settings of a lean start for this master, without anything of the user's."""
    conf = {
        _EXTENSIONS: _DELTA_EXTENSION,
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.shuffle.partitions": "2" if is_local_master(master) else "16",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        **forced_settings(),
    }
    java_options = []
    if is_local_master(master):
        # the host's name may not resolve, and nobody else has to reach this driver
        conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
        java_options += ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    if deploy_mode == "client":
        quiet = Path(__file__).resolve().with_name("log4j2.properties")
        java_options.append(f"-Dlog4j2.configurationFile={quiet.as_uri()}")
    if java_options:
        # not extraJavaOptions: those belong to the user, and come after these
        conf[_DEFAULT_JAVA_OPTIONS] = " ".join(java_options)
    return conf


def merged_conf(lean: Mapping[str, str], user: Mapping[str, Any] | None) -> dict[str, str]:
    """Return ``lean`` with the user's settings over it; what must hold together is merged, not replaced.

    Raises:
        SparkSetupError: a setting of the user contradicts one that a batch needs to be loaded right.
    """
    own = {key: _text(value) for key, value in (user or {}).items()}
    if problems := conf_problems(own):
        raise SparkSetupError("; ".join(problems))
    conf = {**lean, **own}
    if _DELTA_EXTENSION not in conf.get(_EXTENSIONS, "").split(","):
        conf[_EXTENSIONS] = f"{conf[_EXTENSIONS]},{_DELTA_EXTENSION}"
    java_options = conf.get(_DEFAULT_JAVA_OPTIONS, "")
    if re.search(r"-XX:\+Use\w+GC", own.get(_JAVA_OPTIONS, "")):
        # the JVM refuses to start with two collectors
        java_options = java_options.replace("-XX:+UseSerialGC", "").strip()
    if java_options:
        conf[_DEFAULT_JAVA_OPTIONS] = re.sub(r" {2,}", " ", java_options)
    return conf


def submit_arguments(
    spec_uri: str,
    *,
    master: str,
    deploy_mode: str = "client",
    conf: Mapping[str, Any] | None = None,
    cache_dir: Path | None = None,
    use_bundled_spark: bool = True,
) -> SubmitArguments:
    """Put together what spark-submit gets for the job at ``spec_uri``.

    Local masters get Delta's JARs on the class path of the JVM; others get them as ``--jars``, because executors need
    them too. A Spark that is not the bundled one must have the version of the installed pyspark: the JARs are for that.

    Args:
        spec_uri: URI of the :class:`~airflow_provider_fds.batch.spec.JobSpec`.
        master: Spark master URL.
        deploy_mode: ``client`` or ``cluster``.
        conf: The user's Spark settings; they win where nothing is forced.
        cache_dir: For JARs and zip; default :func:`default_cache_dir`.
        use_bundled_spark: Start the Spark that pip installed, with this Python (local and client mode only).

    Raises:
        SparkSetupError: Spark cannot start here, or ``conf`` contradicts what is forced.
    """
    settings = merged_conf(lean_conf(master, deploy_mode), conf)
    cache = default_cache_dir() if cache_dir is None else cache_dir
    is_local = is_local_master(master)
    jars = [str(jar) for jar in delta_jars(cache)]
    env: dict[str, str] = {}
    binary = "spark-submit"
    if use_bundled_spark and deploy_mode == "client":
        # else a folder spark-warehouse appears wherever the process happens to stand
        settings.setdefault("spark.sql.warehouse.dir", f"file:{cache.absolute() / 'warehouse'}")
        home = bundled_spark_home()
        binary = str(home / "bin" / "spark-submit")
        env = {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        if is_local:
            env["SPARK_LOCAL_IP"] = "127.0.0.1"
    return SubmitArguments(
        master=master,
        deploy_mode=deploy_mode,
        application=str(job_file()),
        application_args=(spec_uri,),
        conf=settings,
        jars=None if is_local else ",".join(jars),
        driver_class_path=":".join(jars) if is_local else None,
        py_files=str(driver_zip(cache)),
        env_vars=env,
        spark_binary=binary,
    )


def _text(value: Any) -> str:
    """Return a setting as Spark reads it: Python's ``True`` is Spark's ``true``."""
    return str(value).lower() if isinstance(value, bool) else str(value)
