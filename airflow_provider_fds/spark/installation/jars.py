"""The JARs of Delta and of Spark's S3 file system: resolved through Ivy once per machine, then kept in the cache."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.durations import format_duration
from airflow_provider_fds.sizes import format_bytes
from airflow_provider_fds.spark.installation.cache import (
    SparkSetupError,
    check_folder,
    check_jar,
    check_jar_folder,
    default_cache_dir,
    locked,
)
from airflow_provider_fds.spark.installation.install import (
    bundled_spark_home,
    child_environment,
    delta_package,
    java_problem,
    spark_env,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

_LOG = logging.getLogger(__name__)

#: Seconds between two lines about JARs that are being fetched.
_TELL_SECONDS: Final = 30.0

#: Spark's S3 file system, for the Hadoop version of the bundled Spark.
HADOOP_AWS_PACKAGE: Final = "org.apache.hadoop:hadoop-aws:3.5.0"

#: Asks Unity Catalog for keys of S3; its class and its settings are internal, so a newer one must be tested.
UNITY_PACKAGE: Final = "io.unitycatalog:unitycatalog-hadoop:0.6.0"

#: Libraries that Spark has itself: on the class path, other versions would hide Spark's.
_OF_SPARK: Final = (
    "com.fasterxml.jackson.core:jackson-annotations",
    "com.fasterxml.jackson.core:jackson-core",
    "com.fasterxml.jackson.core:jackson-databind",
    "com.fasterxml.jackson.datatype:jackson-datatype-jsr310",
    "com.google.code.findbugs:jsr305",
    "org.slf4j:slf4j-api",
    "org.apache.logging.log4j:log4j-api",
    "org.apache.logging.log4j:log4j-core",
    "org.apache.logging.log4j:log4j-slf4j2-impl",
    "net.bytebuddy:byte-buddy",
)


def delta_jars(
    cache_dir: Path | None = None, package: str | None = None, spark_submit: str | None = None
) -> tuple[Path, Path]:
    """Return Delta's JARs (delta-spark, delta-storage), resolved through Ivy the first time and offline from then on.

    The first call on a machine takes about ten seconds and needs a Maven repository; Ivy's own settings apply. Parallel
    calls wait for one of them. JARs are either complete or absent.

    Args:
        cache_dir: Where they are kept; default :func:`default_cache_dir`.
        package: Maven coordinates of Delta; default :func:`delta_package`.
        spark_submit: The program that resolves them, from the user's own Spark; default that of pip's pyspark.

    Raises:
        SparkSetupError: No Java, no pyspark, incompatible versions, or the JARs cannot be resolved.
    """
    package = delta_package() if package is None else package
    _, artifact, version = package.split(":")
    cache = default_cache_dir() if cache_dir is None else cache_dir
    jars = cache / "jars"
    kept = (jars / f"{artifact}-{version}.jar", jars / f"delta-storage-{version}.jar")
    _check_folders(cache, jars)
    if all(jar.is_file() for jar in kept):
        return _checked(kept)
    if spark_submit is None and (problem := java_problem()):
        raise SparkSetupError(problem)
    try:
        for folder in (cache, jars):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as e:
        raise SparkSetupError(
            f"cannot store Delta's JARs in {jars} ({e}): set FDS_CACHE_DIR to a writable folder"
        ) from e
    with locked(cache / "jars.lock"):
        if not all(jar.is_file() for jar in kept):
            # the Ivy versions of Spark 3.5 and Spark 4 cannot read each other's folders
            ivy = cache / ("ivy" if spark_submit is None else f"ivy-{artifact.removeprefix('delta-spark_')}")
            _LOG.info("Fetching %s from a Maven repository into %s, once per machine.", package, cache)
            resolved = _resolve(package, ivy, spark_submit)
            for jar in kept:
                _keep(resolved, jar, package)
    return _checked(kept)


def s3a_jars(cache_dir: Path | None = None) -> tuple[Path, ...]:
    """Return the JARs of Spark's S3 file system, resolved through Ivy the first time and offline from then on.

    The bundled Spark lacks them. The AWS library among them is about 700 MB. JARs are either complete or absent.

    Args:
        cache_dir: Where they are kept; default :func:`default_cache_dir`.

    Raises:
        SparkSetupError: No Java, no pyspark, or the JARs cannot be resolved.
    """
    return _kept_folder(HADOOP_AWS_PACKAGE, "Spark's S3 file system, about 700 MB", cache_dir)


def unity_jars(cache_dir: Path | None = None, spark_submit: str | None = None) -> tuple[Path, ...]:
    """Return the JARs with which S3A asks Unity Catalog for keys, resolved like those of :func:`s3a_jars`.

    What they need of other libraries, Spark has.

    Args:
        cache_dir: Where they are kept; default :func:`default_cache_dir`.
        spark_submit: The program that resolves them, from the user's own Spark; default that of pip's pyspark.

    Raises:
        SparkSetupError: No Java, no pyspark, or the JARs cannot be resolved.
    """
    return _kept_folder(UNITY_PACKAGE, "Unity Catalog's keys for S3", cache_dir, spark_submit, _OF_SPARK)


def _kept_folder(
    package: str,
    purpose: str,
    cache_dir: Path | None,
    spark_submit: str | None = None,
    excluded: Sequence[str] = (),
) -> tuple[Path, ...]:
    cache = default_cache_dir() if cache_dir is None else cache_dir
    kept = cache / "jars" / package.split(":", 1)[1].replace(":", "-")
    _check_folders(cache, cache / "jars", kept)
    if not kept.is_dir():
        if spark_submit is None and (problem := java_problem()):
            raise SparkSetupError(problem)
        _LOG.info("Fetching %s (%s), once per machine.", package, purpose)
        partial = cache / f"{kept.name}.{os.getpid()}.tmp"
        try:
            for folder in (cache, kept.parent):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with locked(cache / "jars.lock"):
                if not kept.is_dir():
                    _resolve(package, partial, spark_submit, excluded).replace(kept)
        except OSError as e:
            raise SparkSetupError(
                f"cannot store the JARs of {package} in {kept} ({e}): set FDS_CACHE_DIR to a writable folder"
            ) from e
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    check_jar_folder(kept, cache / "private")
    return tuple(sorted(kept.glob("*.jar")))


def _check_folders(*folders: Path) -> None:
    for folder in folders:
        check_folder(folder)


def _checked(jars: tuple[Path, Path]) -> tuple[Path, Path]:
    for jar in jars:
        check_jar(jar)
    return jars


def _resolve(package: str, ivy: Path, spark_submit: str | None = None, excluded: Sequence[str] = ()) -> Path:
    with tempfile.TemporaryDirectory(prefix="fds-resolve-") as folder:
        # spark-submit resolves packages before it runs the application, which does nothing
        application = Path(folder) / "resolve.py"
        application.write_text("")
        env = child_environment()
        if spark_submit is None:
            home = bundled_spark_home()
            spark_submit = str(home / "bin" / "spark-submit")
            env |= spark_env(home)
        else:
            env |= {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        command = [
            *(spark_submit, "--master", "local[1]", "--packages", package),
            *(("--exclude-packages", ",".join(excluded)) if excluded else ()),
            *("--conf", f"spark.jars.ivy={ivy}", "--conf", "spark.ui.enabled=false", str(application)),
        ]
        code, output = _fetch(command, env, folder, package, ivy)
    if code != 0:
        tail = "\n".join(output.strip().splitlines()[-15:])
        raise SparkSetupError(
            f"the JARs of {package} could not be resolved into {ivy}: a Maven repository must be reachable the "
            "first time, or the JARs must be copied by hand to the folder 'jars' of the cache (FDS_CACHE_DIR). "
            f"spark-submit ended with {code}:\n{tail}"
        )
    return ivy / "jars"


def _fetch(command: list[str], env: dict[str, str], folder: str, package: str, ivy: Path) -> tuple[int, str]:
    """Run the command that fetches ``package`` into ``ivy``, and log its progress. Return its exit code and output."""
    began = time.monotonic()
    with subprocess.Popen(  # noqa: S603
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=env, cwd=folder
    ) as process:
        try:
            while True:
                try:
                    output, _ = process.communicate(timeout=_TELL_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    took = format_duration(timedelta(seconds=time.monotonic() - began))
                    _LOG.info("Still fetching %s: %s so far, %s in %s.", package, took, _size(ivy), ivy)
        except BaseException:
            process.kill()
            raise
    if process.returncode == 0:
        _LOG.info("Fetched %s in %s.", package, format_duration(timedelta(seconds=time.monotonic() - began)))
    return process.returncode, output


def _size(folder: Path) -> str:
    """Return the size of the files in a folder that another process fills."""
    total = 0
    # unlike rglob, it passes over a folder that goes meanwhile
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += Path(parent, name).stat().st_size
    return format_bytes(total)


def _keep(resolved: Path, jar: Path, package: str) -> None:
    found = resolved / f"io.delta_{jar.name}"
    if not found.is_file():
        raise SparkSetupError(
            f"{package} was resolved into {resolved}, but {found.name} is missing there: the versions of Spark "
            "and Delta may not match"
        )
    partial = jar.with_name(f"{jar.name}.{os.getpid()}.tmp")
    shutil.copyfile(found, partial)
    partial.replace(jar)
