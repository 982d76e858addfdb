"""The user's own Spark: the spark-submit that starts it, its versions, and the Delta that belongs to it.

Its ``--version`` is queried once and kept in FDS's cache. Standard library only; does not import pyspark.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.spark.installation.cache import SparkSetupError, default_cache_dir, make_folder
from airflow_provider_fds.spark.installation.install import (
    INSTALL_SPARK,
    brought_names,
    child_environment,
    find_java,
    has_bundled_spark,
    installed_client,
    run_captured,
)
from airflow_provider_fds.spark.runtime.settings import is_local_master
from airflow_provider_fds.spark.runtime.versions import DELTA_OF_SPARK, DeltaJar, delta_coordinates, minor, of_minor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

#: Instead of a version of Delta: the Spark, or its cluster, already has one.
PROVIDED: Final = "provided"

_OLDEST: Final = (3, 5)
#: Spark 3.5 already runs on Java 8, Spark 4 on 17 (https://spark.apache.org/docs/3.5.7/).
_OLDEST_JAVA: Final = 8
_JAVA_OF_SPARK_4: Final = 17
_SECONDS: Final = 180
#: A wrapper script may start another Spark one day without changing itself.
_KEPT_SECONDS: Final = 24 * 3600

_SPARK: Final = re.compile(r"\bversion (\d+\.\d+[\w.-]*)")
_SCALA: Final = re.compile(r"Using Scala version (\d+\.\d+)")


@dataclass(frozen=True)
class OwnSpark:
    """A Spark that pip did not install with FDS.

    Attributes:
        command: What is called: a name on PATH, or a path.
        path: The resolved file.
        version: Version of Spark, with a vendor's suffix.
        scala: Version of Scala: ``2.13``.
        home: Its folder, or ``None`` if unknown.
    """

    command: str
    path: str
    version: str
    scala: str
    home: Path | None = None

    def describe(self) -> str:
        """Return a description of this Spark and what starts it."""
        return f"{self.path} starts Spark {self.version} (Scala {self.scala})"

    def included_delta(self) -> list[str]:
        """Return the JARs of Delta in this Spark's own folder."""
        found = [] if self.home is None else self.home.glob("jars/delta-*.jar")
        return sorted(str(path) for path in found if DeltaJar.named(path.name) is not None)

    def delta_package(self, delta_version: str | None = None) -> str:
        """Return the Maven coordinates of the Delta for this Spark and its Scala.

        Args:
            delta_version: A version of Delta, instead of the one in FDS's table.

        Raises:
            SparkSetupError: The table has no Delta for this Spark.
        """
        version = delta_version or DELTA_OF_SPARK.get(of_minor(self.version))
        if version is None:
            known = ", ".join(DELTA_OF_SPARK)
            raise SparkSetupError(
                f"{self.describe()}; FDS knows the Delta versions for Spark {known}. Set delta_version (or packages, "
                f"or jars), set delta_version='{PROVIDED}' if the cluster has Delta, or use one of these Spark versions"
            )
        return delta_coordinates(self.version, self.scala, version)


def choose_spark(
    master: str,
    binary: str | None,
    env_vars: Mapping[str, str] | None = None,
    cache_dir: Path | None = None,
    *,
    driver_is_here: bool = True,
) -> OwnSpark | None:
    """Return the Spark to start, or ``None`` for that of the installed pyspark.

    A named spark-submit is always used. Without one, the installed pyspark is used on a local master, and on another
    master if neither SPARK_HOME nor PATH leads to a spark-submit.

    Raises:
        SparkSetupError: As :func:`find_own_spark`.
    """
    environ = {**os.environ, **(env_vars or {})}
    if binary is None and has_bundled_spark() and (is_local_master(master) or _unnamed(environ) is None):
        return None
    return find_own_spark(binary, environ, cache_dir, driver_is_here=driver_is_here)


def find_own_spark(
    binary: str | None, environ: Mapping[str, str], cache_dir: Path | None = None, *, driver_is_here: bool = True
) -> OwnSpark:
    """Return the Spark that a spark-submit starts.

    Args:
        binary: Name or path of spark-submit; ``None``: that of SPARK_HOME, else ``spark-submit`` on PATH.
        environ: The environment in which it will be started.
        cache_dir: Where its version is kept; default :func:`default_cache_dir`.
        driver_is_here: Whether the driver runs on this machine, and so needs its Java.

    Raises:
        SparkSetupError: No Spark was found, it does not print its version, or it or its Java is too old.
    """
    command = binary or _unnamed(environ)
    path = None if command is None else shutil.which(command, path=environ.get("PATH"))
    if path is None or command is None:
        raise SparkSetupError(_missing(binary, environ))
    java = find_java() if driver_is_here else None
    if java is not None and (problem := java.problem(_OLDEST_JAVA)):
        raise SparkSetupError(problem)
    home = _home(path, environ)
    version, scala = _versions(path, home, environ, default_cache_dir() if cache_dir is None else cache_dir)
    found = OwnSpark(command, path, version, scala, home)
    if minor(version) < _OLDEST:
        raise SparkSetupError(
            f"{found.describe()}; FDS needs Spark {'.'.join(map(str, _OLDEST))} or newer. Point spark-binary or "
            f"SPARK_HOME to one, or remove both and install one: {INSTALL_SPARK}"
        )
    if java is not None and minor(version)[0] > _OLDEST[0] and (problem := java.problem(_JAVA_OF_SPARK_4)):
        raise SparkSetupError(problem)
    return found


def own_delta_problems(spark: OwnSpark, brought: Iterable[str | None], delta_version: str | None = None) -> list[str]:
    """Return what is wrong with the Delta for the user's own Spark, one sentence each.

    Args:
        spark: The Spark.
        brought: Maven coordinates or files that the user gives, separated as in spark-submit.
        delta_version: See :meth:`OwnSpark.delta_package`; or :data:`PROVIDED`.
    """
    names = brought_deltas(*brought)
    included = spark.included_delta()
    problems = []
    for name in [*names, *included]:
        jar = DeltaJar.named(name)
        if jar is None or (jar.scala == spark.scala and jar.spark in (None, of_minor(spark.version))):
            continue
        needed = f"Delta for Spark {of_minor(spark.version)} and Scala {spark.scala}"
        instead = "remove it from that folder" if name in included else "remove it; FDS adds the right one itself"
        problems.append(f"{name} is {jar.describe()}, but {spark.describe()} and needs {needed}: {instead}")
    if len(names) + len(included) > 1:
        problems.append(f"there is more than one Delta for Spark: {', '.join([*names, *included])}. Keep one of them")
    if delta_version is not None and delta_version != PROVIDED and (names or included):
        problems.append(
            f"delta_version is {delta_version!r}, but Delta is already there: {', '.join([*names, *included])}. "
            "Omit delta_version, or remove that JAR"
        )
    if not names and not included and delta_version != PROVIDED:
        try:
            spark.delta_package(delta_version)
        except SparkSetupError as error:
            problems.append(str(error))
    return problems


def brought_deltas(*names: str | None) -> list[str]:
    """Return the Deltas among Maven coordinates and files, see :func:`brought_names`."""
    return [name for name in brought_names(*names) if DeltaJar.named(name) is not None]


def _unnamed(environ: Mapping[str, str]) -> str | None:
    """Return the spark-submit that starts if none is named; SPARK_HOME applies even if nothing exists there."""
    if home := environ.get("SPARK_HOME"):
        return str(Path(home) / "bin" / "spark-submit")
    return "spark-submit" if shutil.which("spark-submit", path=environ.get("PATH")) else None


def _missing(binary: str | None, environ: Mapping[str, str]) -> str:
    home = environ.get("SPARK_HOME")
    if binary is not None:
        where = "is not a program" if "/" in binary else "is not on this worker's PATH"
        found = f"the spark-binary {binary!r} {where}. Correct it"
    elif home:
        found = f"SPARK_HOME is {home}, which has no bin/spark-submit. Correct it"
    else:
        client = installed_client()
        only = "" if client is None else f" (pyspark-client {client} is, but contains no Spark)"
        found = (
            f"no Spark was found: pyspark is not installed{only}, SPARK_HOME is not set, and PATH has no "
            "spark-submit. Set SPARK_HOME to a Spark of version 3.5 or newer"
        )
    return f"{found}, or install a Spark with FDS ({INSTALL_SPARK}), or use a connection of type 'spark_connect'"


def _home(path: str, environ: Mapping[str, str]) -> Path | None:
    if home := environ.get("SPARK_HOME"):
        return Path(home)
    beside = Path(path).resolve().parent.parent
    places = (beside, *beside.glob("lib/python*/site-packages/pyspark"))
    return next((place for place in places if (place / "jars").is_dir()), None)


def _versions(path: str, home: Path | None, environ: Mapping[str, str], cache: Path) -> tuple[str, str]:
    """Return the versions of Spark and Scala; spark-submit is queried at most once a day."""
    facts = [path, str(home), environ.get("JAVA_HOME", "")]
    for file in (Path(path).resolve(), *([] if home is None else sorted(home.glob("jars/spark-core_*.jar")))):
        with suppress(OSError):
            found = file.stat()
            facts.append(f"{file}\t{found.st_size}\t{found.st_mtime_ns}")
    key = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:24]
    kept = cache / "sparks" / f"{key}.json"
    with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
        if time.time() - kept.stat().st_mtime < _KEPT_SECONDS:
            said = json.loads(kept.read_text(encoding="utf-8"))
            return str(said["spark"]), str(said["scala"])
    spark, scala = _asked(path, key, environ.get("SPARK_HOME"))
    partial = kept.with_name(f"{kept.name}.{os.getpid()}.tmp")
    with suppress(OSError):
        make_folder(cache)
        make_folder(kept.parent)
        partial.write_text(json.dumps({"path": path, "spark": spark, "scala": scala}), encoding="utf-8")
        partial.replace(kept)
    return spark, scala


@lru_cache(maxsize=16)
def _asked(path: str, _key: str, spark_home: str | None) -> tuple[str, str]:
    environ = child_environment()
    if spark_home is not None:
        environ["SPARK_HOME"] = spark_home
    needed = "expected the versions of Spark and Scala. Point spark-binary or SPARK_HOME to a complete Spark"
    try:
        ran = run_captured([path, "--version"], env=environ, seconds=_SECONDS)
    except OSError as error:
        raise SparkSetupError(f"{path} cannot be run ({error.strerror}): {needed}, or {INSTALL_SPARK}") from None
    except subprocess.TimeoutExpired:
        raise SparkSetupError(
            f"{path} --version did not answer in {_SECONDS} s: {needed}, or {INSTALL_SPARK}"
        ) from None
    spark, scala = _SPARK.search(ran.stdout), _SCALA.search(ran.stdout)
    if ran.returncode != 0 or spark is None or scala is None:
        said = " ".join(ran.stdout.split())[-300:]
        raise SparkSetupError(
            f"{path} --version ended with {ran.returncode} and printed {said!r}; {needed}, or {INSTALL_SPARK}"
        )
    return spark[1], scala[1]
