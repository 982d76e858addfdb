"""The versions in a driver, checked before it touches the sink. Standard library and pyspark, Python 3.9 syntax."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Optional, Tuple
from weakref import WeakKeyDictionary

from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.spark.runtime.attempt_identity import is_connect
from airflow_provider_fds.spark.runtime.failures import RefusalError
from airflow_provider_fds.spark.runtime.versions import DELTA_OF_SPARK, DeltaJar, minor, of_minor, spark_of


@dataclass(frozen=True)
class DriverVersions:
    """The versions in a driver.

    Attributes:
        pyspark: Version of the Python package that the job imports.
        spark: Version of the Spark in the JVM.
        delta: Version of the Delta in the JVM, or ``None`` if it does not say.
        delta_jar: The file it was loaded from, or ``None`` if unknown.
        class_path: The places that classes are loaded from, whatever they hold.
    """

    pyspark: str
    spark: str
    delta: Optional[str] = None
    delta_jar: Optional[str] = None
    class_path: Tuple[str, ...] = ()

    @classmethod
    def of(cls, spark: Any) -> DriverVersions:
        """Read the versions from a driver's session."""
        import pyspark

        return cls(pyspark.__version__, str(spark.version), *_delta(spark._jvm))

    @classmethod
    def without_session(cls) -> Optional[DriverVersions]:
        """Read the versions from the folder of the Spark that started this Python; ``None`` if it names none."""
        import pyspark

        for jar in Path(os.environ.get("SPARK_HOME", "")).glob("jars/spark-core_*.jar"):
            return cls(pyspark.__version__, jar.stem.split("-", 2)[-1])
        return None

    def problem(self) -> Optional[str]:
        """Return in words which versions are incompatible, or ``None`` if all are compatible."""
        if minor(self.pyspark) != minor(self.spark):
            return (
                f"the driver's Python has pyspark {self.pyspark}, its JVM is Spark {self.spark}: use the spark-submit "
                "of that pyspark (no spark-binary, no other SPARK_HOME), or install the Python package of that Spark "
                f"where the driver runs: pip install 'pyspark=={of_minor(self.spark)}.*'"
            )
        if self.delta is None:
            return None
        deltas = self._deltas()
        if len(deltas) > 1:
            return (
                f"the JVM has more than one Delta on its class path: {', '.join(deltas.values())}. Spark {self.spark} "
                f"needs one: {self._needed_delta()}. Remove the others from the packages, jars and class path of the "
                "job, from spark-defaults.conf and from the jars folder of that Spark, or set delta_version='provided' "
                "to have FDS add none"
            )
        jar = DeltaJar.named(self.delta_jar or "")
        built_for = jar.spark if jar is not None else spark_of(self.delta)
        if built_for is None or minor(built_for) == minor(self.spark):
            return None
        where = "" if self.delta_jar is None else f" ({self.delta_jar})"
        return (
            f"the JVM has Delta {self.delta}{where}, which was built for Spark {built_for}, but this is Spark "
            f"{self.spark}. Remove that JAR from the packages, jars and class path of the job and from the jars "
            f"folder of that Spark; FDS adds {self._needed_delta()} itself"
        )

    def _deltas(self) -> Dict[DeltaJar, str]:
        """Return the Deltas on the class path, each with the first of its places."""
        found: Dict[DeltaJar, str] = {}
        for place in self.class_path:
            jar = DeltaJar.named(place)
            if jar is not None:
                # a cluster has copies of what a job brings
                found.setdefault(jar, place)
        return found

    def _needed_delta(self) -> str:
        known = DELTA_OF_SPARK.get(of_minor(self.spark))
        return f"Delta {known}" if known is not None else f"the Delta for Spark {of_minor(self.spark)}"


#: By the JVM.
_deltas: WeakKeyDictionary[Any, Tuple[Optional[str], Optional[str], Tuple[str, ...]]] = WeakKeyDictionary()


def _delta(jvm: Any) -> Tuple[Optional[str], Optional[str], Tuple[str, ...]]:
    """Return version and JAR of a JVM's Delta, and its class path.

    They are asked once: that takes longer than all other calls for a small batch.
    """
    if jvm not in _deltas:
        delta = delta_jar = None
        class_path: Tuple[str, ...] = ()
        try:
            delta = str(jvm.io.delta.package.VERSION())
            loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
            source = loader.loadClass("io.delta.package").getProtectionDomain().getCodeSource()
            delta_jar = str(source.getLocation().getPath())
            class_path = _class_path(jvm, loader)
        except Exception:  # noqa: BLE001, S110 - a Spark with its own Delta may not expose its version, and is accepted
            pass
        _deltas[jvm] = delta, delta_jar, class_path
    return _deltas[jvm]


def _class_path(jvm: Any, loader: Any) -> Tuple[str, ...]:
    """Return the JVM's class path and what spark-submit added to it: names alone, nothing is opened."""
    own = str(jvm.java.lang.System.getProperty("java.class.path")).split(os.pathsep)
    return (*own, *(str(url.toString()) for url in loader.getURLs()))


def check_versions(spark: Any) -> None:
    """Refuse a driver with incompatible versions. A Spark Connect server is checked when it is reached.

    Raises:
        RefusalError: They are incompatible; the message says what to install or remove.
    """
    if is_connect(spark):
        return
    problem = DriverVersions.of(spark).problem()
    if problem is not None:
        raise RefusalError(Reason.SPARK_VERSION_MISMATCH, f"{problem}. Nothing was read or written")


def no_session(error: Exception) -> Exception:
    """Return why there is no session: incompatible versions if that is the cause, else ``error`` itself."""
    found = DriverVersions.without_session()
    problem = None if found is None else found.problem()
    return (
        error
        if problem is None
        else RefusalError(Reason.SPARK_VERSION_MISMATCH, f"{problem}. Spark could not be started")
    )
