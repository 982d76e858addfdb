"""Which versions of Spark, Scala, Delta and Python packages are compatible, and how to fix a mismatch.

Checked in Airflow before anything starts (``install.py``) and on the driver (``driver_versions.py``). Only major and
minor versions are compared: Spark and Delta keep their interfaces stable within these. Standard library and pyspark,
Python 3.9 syntax.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Dict, Iterable, Optional, Tuple

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
        spark: Version of Spark that it was built for (``4.2``), or ``None`` if the name does not say.
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


#: The first version of pyspark-client. The client within pyspark 3.5 lacks what FDS needs.
OLDEST_CLIENT = (4, 0)

#: The Delta that FDS adds to a Spark, by Spark's major and minor version: the table by which all Sparks are supplied.
DELTA_OF_SPARK = {"3.5": "3.3.2", "4.0": "4.0.0", "4.1": "4.4.0", "4.2": "4.4.0"}


def delta_coordinates(spark: str, scala: str, delta: str) -> str:
    """Return the Maven coordinates of a release of Delta for a Spark and a Scala (``2.13``)."""
    # since 4.1 Delta is built for several versions of Spark, and says for which
    built_for = "" if minor(delta) <= (4, 0) else f"_{of_minor(spark)}"
    return f"io.delta:delta-spark{built_for}_{scala}:{delta}"


def spark_of(delta: str) -> Optional[str]:
    """Return the one version of Spark that a release of Delta is for, or ``None`` if there are several (since 4.1)."""
    if minor(delta) == (4, 0):
        return "4.0"
    return "3.5" if minor(delta)[0] == 3 else None  # noqa: PLR2004


def server_problem(
    server: str, pyspark: str, jars: Iterable[str] = (), packages: Iterable[str] = ("pyspark", "pyspark-client")
) -> Optional[str]:
    """Return why this pyspark cannot work with a Spark Connect server, or ``None`` if Spark guarantees that it can.

    Spark guarantees it for a server of the client's own minor version or of a newer one.

    Args:
        server: Version of the server's Spark.
        pyspark: Version of the installed pyspark.
        jars: Files or Maven coordinates that the server was started with, which may include a Delta for another Spark.
        packages: The packages that the client is installed by.
    """
    deltas: Dict[DeltaJar, str] = {}
    for name in jars:
        jar = DeltaJar.named(name)
        if jar is None:
            continue
        # Spark 4 has one Scala
        other_scala = minor(server) >= (4, 0) and jar.scala != "2.13"
        if other_scala or jar.spark not in (None, of_minor(server)):
            return (
                f"it was started with {name.strip()}, which is {jar.describe()}, but it is Spark {server}. Start "
                f"it with the Delta that was built for Spark {of_minor(server)}"
            )
        # packages are listed twice: by their coordinates, and as the files that Ivy fetched
        deltas.setdefault(jar, name.strip())
    if len(deltas) > 1:
        return (
            f"it was started with more than one Delta: {', '.join(deltas.values())}. Start it with one of them: its "
            "packages, its jars and the jars folder of its Spark must name one Delta together"
        )
    theirs, mine = minor(server), minor(pyspark)
    if theirs[0] == mine[0] and theirs >= mine:
        return None
    if theirs < OLDEST_CLIENT:
        return (
            f"the server is Spark {server}, but the installed pyspark is {pyspark}. FDS needs a Spark Connect server "
            f"of Spark {'.'.join(map(str, OLDEST_CLIENT))} or newer. Upgrade the server, or use its Spark with "
            "spark-submit, through a connection of type 'spark'"
        )
    install = " ".join(f"'{name}=={of_minor(server)}.*'" for name in packages)
    return (
        f"the server is Spark {server}, but the installed pyspark is {pyspark}. Spark guarantees only that a "
        "client works with a server of the same or a newer minor version. Upgrade the server, or install its "
        f"version here: pip install {install}"
    )
