"""Which versions of Spark, Scala, Delta and Python packages are compatible, and how to fix a mismatch.

Checked in Airflow before anything starts (``install.py``) and on the driver before it touches the sink. Only major and
minor versions are compared: Spark and Delta keep their interfaces stable within these. Standard library and pyspark,
Python 3.9 syntax.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Iterable, List, Optional, Tuple

from airflow_provider_fds.spark.failures import RefusalError
from airflow_provider_fds.spark.identity import is_connect

#: A JAR of Delta, as a file or as Maven coordinates; since 4.1 it names the version of Spark it was built for.
_DELTA_JAR = re.compile(
    r"(?P<name>delta-(?:spark|core)(?:_(?P<spark>\d+\.\d+))?_(?P<scala>\d+\.\d+))[:-](?P<delta>\d+\.[\w.]*\w)"
)


def minor(version: str) -> Tuple[int, int]:
    """Return major and minor version; a vendor's suffix is ignored."""
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    return (numbers[0] if numbers else 0, numbers[1] if len(numbers) > 1 else 0)


def of_minor(version: str) -> str:
    """Return major and minor version as text: ``4.2``."""
    return ".".join(str(number) for number in minor(version))


@dataclass(frozen=True)
class DeltaJar:
    """A JAR of Delta, described by its name.

    Attributes:
        delta: Version of Delta.
        scala: Version of Scala, ``2.13``.
        spark: Version of Spark that it was built for (``4.2``), ``None`` if the name does not say.
    """

    name: str
    delta: str
    scala: str
    spark: Optional[str]

    @classmethod
    def named(cls, text: str) -> Optional[DeltaJar]:
        """Parse the name of a file or Maven coordinates; ``None`` if it is not a JAR of Delta."""
        found = _DELTA_JAR.search(re.sub(r"\.jar$", "", text.strip()))
        if found is None:
            return None
        delta = found["delta"]
        return cls(found["name"], delta, found["scala"], found["spark"] or spark_of(delta))

    def describe(self) -> str:
        """Return the JAR in words."""
        spark = "" if self.spark is None else f"Spark {self.spark} and "
        return f"Delta {self.delta} for {spark}Scala {self.scala}"


#: The Delta that FDS adds to a Spark, by Spark's major and minor version: the table by which all Sparks are supplied.
DELTA_OF_SPARK = {"3.5": "3.3.2", "4.0": "4.0.0", "4.1": "4.4.0", "4.2": "4.4.0"}


def delta_coordinates(spark: str, scala: str, delta: str) -> str:
    """Return the Maven coordinates of a release of Delta for a Spark and a Scala (``2.13``)."""
    # since 4.1 Delta is built for several versions of Spark, and says for which
    built_for = "" if minor(delta) <= (4, 0) else f"_{of_minor(spark)}"
    return f"io.delta:delta-spark{built_for}_{scala}:{delta}"


def spark_of(delta: str) -> Optional[str]:
    """Return the one version of Spark that a release of Delta is for, ``None`` if there are several (since 4.1)."""
    if minor(delta) == (4, 0):
        return "4.0"
    return "3.5" if minor(delta)[0] == 3 else None  # noqa: PLR2004


@dataclass(frozen=True)
class DriverVersions:
    """The versions in a driver.

    Attributes:
        pyspark: Version of the Python package that the job imports.
        spark: Version of the Spark in the JVM.
        delta: Version of the Delta in the JVM, ``None`` if it does not say.
        delta_jar: The file it was loaded from, ``None`` if unknown.
    """

    pyspark: str
    spark: str
    delta: Optional[str] = None
    delta_jar: Optional[str] = None

    @classmethod
    def of(cls, spark: Any) -> DriverVersions:
        """Read the versions from a driver's session."""
        import pyspark

        delta = delta_jar = None
        try:
            jvm = spark._jvm
            delta = str(jvm.io.delta.package.VERSION())
            loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
            source = loader.loadClass("io.delta.package").getProtectionDomain().getCodeSource()
            delta_jar = str(source.getLocation().getPath())
        except Exception:  # noqa: BLE001, S110 - a Spark with its own Delta may not expose its version, and is accepted
            pass
        return cls(pyspark.__version__, str(spark.version), delta, delta_jar)

    @classmethod
    def without_session(cls) -> Optional[DriverVersions]:
        """Read the versions from the folder of the Spark that started this Python; ``None`` if it names none."""
        import pyspark

        for jar in Path(os.environ.get("SPARK_HOME", "")).glob("jars/spark-core_*.jar"):
            return cls(pyspark.__version__, jar.stem.split("-", 2)[-1])
        return None

    def problem(self) -> Optional[str]:
        """Return in words which versions are incompatible, ``None`` if all are compatible."""
        if minor(self.pyspark) != minor(self.spark):
            return (
                f"the driver's Python has pyspark {self.pyspark}, its JVM is Spark {self.spark}: use the spark-submit "
                "of that pyspark (no spark-binary, no other SPARK_HOME), or install the Python package of that Spark "
                f"where the driver runs: pip install 'pyspark=={of_minor(self.spark)}.*'"
            )
        if self.delta is None:
            return None
        jar = DeltaJar.named(self.delta_jar or "")
        built_for = jar.spark if jar is not None else spark_of(self.delta)
        if built_for is None or minor(built_for) == minor(self.spark):
            return None
        where = "" if self.delta_jar is None else f" ({self.delta_jar})"
        return (
            f"the JVM has Delta {self.delta}{where}, which was built for Spark {built_for}, and is Spark {self.spark}: "
            "take that JAR out of the packages, jars and class path of the job, and out of the jars folder of that "
            f"Spark; FDS adds {self._needed_delta()} by itself"
        )

    def _needed_delta(self) -> str:
        known = DELTA_OF_SPARK.get(of_minor(self.spark))
        return f"Delta {known}" if known is not None else f"the Delta for Spark {of_minor(self.spark)}"


def check_versions(spark: Any) -> None:
    """Refuse a driver with incompatible versions. A Spark Connect server is checked when it is reached.

    Raises:
        RefusalError: They are incompatible; the message says what to install or remove.
    """
    if is_connect(spark):
        return
    problem = DriverVersions.of(spark).problem()
    if problem is not None:
        raise RefusalError("VersionMismatch", f"{problem}. Nothing was read or written")


def no_session(error: Exception) -> Exception:
    """Return why there is no session: incompatible versions if that is the cause, else ``error`` itself."""
    found = DriverVersions.without_session()
    problem = None if found is None else found.problem()
    return error if problem is None else RefusalError("VersionMismatch", f"{problem}. Spark could not be started")


def server_problem(
    server: str, pyspark: str, jars: Iterable[str] = (), packages: Iterable[str] = ("pyspark", "pyspark-client")
) -> Optional[str]:
    """Return why this pyspark cannot work with a Spark Connect server, ``None`` if Spark guarantees that it can.

    Spark guarantees it for a server of the client's own minor version or of a newer one.

    Args:
        server: Version of the server's Spark.
        pyspark: Version of the installed pyspark.
        jars: Files or Maven coordinates that the server was started with, which may include a Delta for another Spark.
        packages: The packages that the client is installed by.
    """
    for name in jars:
        jar = DeltaJar.named(name)
        if jar is not None and jar.spark not in (None, of_minor(server)):
            return (
                f"it was started with {name.strip()}, which is {jar.describe()}, and is Spark {server}: start it with "
                f"the Delta that was built for Spark {of_minor(server)}"
            )
    theirs, mine = minor(server), minor(pyspark)
    if theirs[0] == mine[0] and theirs >= mine:
        return None
    install = " ".join(f"'{name}=={of_minor(server)}.*'" for name in packages)
    return (
        f"the server is Spark {server}, the installed pyspark is {pyspark}. Spark promises that a client works with a "
        "server of its own or of a newer minor version, and with no other: upgrade the server, or install its version "
        f"here: pip install {install}"
    )


__all__: List[str] = [
    "DELTA_OF_SPARK",
    "DeltaJar",
    "DriverVersions",
    "check_versions",
    "delta_coordinates",
    "minor",
    "no_session",
    "of_minor",
    "server_problem",
    "spark_of",
]
