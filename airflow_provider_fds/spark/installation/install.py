"""What Spark needs on this machine before it starts: Java, pyspark, and an environment without secrets.

An Airflow worker has Airflow's keys in its environment: connections, variables, the URI of the metadata database, the
Fernet key. A user's code in Spark could read and print them and needs none of them, so Spark starts without them.
"""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from airflow_provider_fds.spark.installation.cache import SparkSetupError
from airflow_provider_fds.spark.runtime.versions import (
    DELTA_OF_SPARK,
    OLDEST_CLIENT,
    DeltaJar,
    delta_coordinates,
    minor,
    of_minor,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: Required by Spark 4 (https://spark.apache.org/docs/4.2.0/).
MINIMUM_JAVA: Final = 17

#: Names the variables that are passed to Spark anyway, comma separated; ``*``: all.
PASSED: Final = "FDS_SPARK_ENVIRONMENT"

_AIRFLOWS: Final = re.compile(r"_?AIRFLOW_(?:CONN|VAR)_.+|_?AIRFLOW__.+|_AIRFLOW_.+|SQLALCHEMY_DATABASE_URI")

#: Between files; Maven coordinates have colons in them.
_SEPARATOR: Final = re.compile(r",|:(?=/)|(?<=\.jar):|(?<=\*):")

#: What installs a Spark into the worker's environment, and what the client of a Spark Connect server.
INSTALL_SPARK: Final = "pip install 'airflow-provider-fds[local]'"
INSTALL_CLIENT: Final = "pip install 'airflow-provider-fds[connect]'"

_INSTALL_JAVA: Final = (
    f"install Java {MINIMUM_JAVA} (Debian, Ubuntu: apt-get install openjdk-{MINIMUM_JAVA}-jre-headless; "
    f"macOS: brew install openjdk@{MINIMUM_JAVA}; others: https://adoptium.net) "
    "and put it on PATH or point JAVA_HOME at it"
)


def bundled_spark_home() -> Path:
    """Return the Spark that pip installed with pyspark. Does not import pyspark.

    Raises:
        SparkSetupError: pyspark is not installed, or only its Connect client is.
    """
    home = _pyspark_folder()
    if home is None or not (home / "bin" / "spark-submit").is_file():
        found = "is not installed" if home is None else f"in {home} is only the client, without bin/spark-submit"
        raise SparkSetupError(f"pyspark {found}: install Spark into {sys.executable}: {INSTALL_SPARK}")
    return home


def has_bundled_spark() -> bool:
    """Whether pip installed a Spark with pyspark, of any version; pyspark-client contains none."""
    home = _pyspark_folder()
    return home is not None and (home / "bin" / "spark-submit").is_file()


def _pyspark_folder() -> Path | None:
    spec = util.find_spec("pyspark")
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def spark_env(home: Path) -> dict[str, str]:
    """Return the environment in which the Spark at ``home`` starts with this Python."""
    return {"SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}


def held_back(environ: Mapping[str, str] | None = None) -> list[str]:
    """Return the names of the variables that are withheld from Spark."""
    environ = os.environ if environ is None else environ
    passed = {name.strip() for name in environ.get(PASSED, "").split(",")}
    return [] if "*" in passed else [name for name in environ if _AIRFLOWS.fullmatch(name) and name not in passed]


def child_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment for Spark, to which a task's ``env_vars`` are added."""
    environ = os.environ if environ is None else environ
    # by the last one, pyspark tells a process with Connect sessions: they are of this process, and not of its Spark
    without = {*held_back(environ), "SPARK_CONNECT_MODE_ENABLED"}
    return {name: value for name, value in environ.items() if name not in without}


def run_captured(
    command: Sequence[str], *, env: Mapping[str, str], seconds: float, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program without input; its errors are part of its output.

    Raises:
        OSError: It cannot be run.
        subprocess.TimeoutExpired: It did not end in that time.
    """
    return subprocess.run(  # noqa: S603
        command,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=seconds,
        check=False,
    )


def spark_problem() -> str | None:
    """Return what is wrong with the installed pyspark, pyspark-client and delta-spark, or ``None``.

    pyspark-client (a requirement of the Spark provider) shares its files with pyspark: with two versions, the one
    installed last overwrites the other's files, and removing one removes files of the other.
    """
    pyspark, client, delta = (_version(name) for name in ("pyspark", "pyspark-client", "delta-spark"))
    if pyspark is None:
        only = f" (pyspark-client {client} contains no Spark)" if client is not None else ""
        return f"pyspark is not installed{only}: {INSTALL_SPARK}"
    if (problem := _client_conflict(pyspark, client)) is not None:
        return problem
    if delta is None:
        if of_minor(pyspark) not in DELTA_OF_SPARK:
            return f"delta-spark is not installed, and FDS knows no Delta for pyspark {pyspark}: {INSTALL_SPARK}"
        return _files_problem(pyspark)
    needed = [text for text in metadata.requires("delta-spark") or () if re.match(r"pyspark\s*[<>=!~(]", text)]
    if not allows(needed, pyspark):
        return (
            f"delta-spark is {delta}, which is for {' and '.join(needed)}, but pyspark is {pyspark}: pip install "
            f"'pyspark=={pyspark}' delta-spark chooses the matching one"
        )
    return _files_problem(pyspark)


def client_problem() -> str | None:
    """Return what is wrong with the installed client of Spark Connect servers, or ``None``.

    pyspark-client is enough; a full pyspark includes the client.
    """
    pyspark, client = _version("pyspark"), _version("pyspark-client")
    if pyspark is None and client is None:
        return f"neither pyspark-client nor pyspark is installed: {INSTALL_CLIENT}"
    version = pyspark or client or ""
    if minor(version) < OLDEST_CLIENT:
        return (
            f"pyspark is {version}, and FDS needs a client of Spark {'.'.join(map(str, OLDEST_CLIENT))} or newer for "
            f"Spark Connect: {INSTALL_CLIENT} in an environment without that pyspark, or use a connection of type "
            "'spark'"
        )
    if pyspark is None:
        return None
    return _client_conflict(pyspark, client) or _files_problem(pyspark)


def client_packages() -> list[str]:
    """Return the names of the installed packages that have the client of Spark Connect servers in them."""
    return [name for name in ("pyspark", "pyspark-client") if _version(name) is not None]


def installed_client() -> str | None:
    """Return the version of the installed pyspark-client, or ``None`` if it is not installed."""
    return _version("pyspark-client")


def client_version() -> str:
    """Return the version of the client of Spark Connect servers, see :func:`client_problem`.

    Raises:
        SparkSetupError: None is installed.
    """
    version = _version("pyspark") or _version("pyspark-client")
    if version is None:
        raise SparkSetupError(f"neither pyspark-client nor pyspark is installed: {INSTALL_CLIENT}")
    return version


def _client_conflict(pyspark: str, client: str | None) -> str | None:
    if client is None or client == pyspark:
        return None
    return (
        f"pyspark is {pyspark} but pyspark-client is {client}; they share their files, so neither works: "
        f"pip install --force-reinstall --no-deps pyspark=={pyspark} pyspark-client=={pyspark}"
    )


def brought_delta_problems(*names: str | None) -> list[str]:
    """Return what is wrong with the Delta JARs that a user brings for the bundled Spark, one sentence each.

    Args:
        names: As in :func:`brought_names`.
    """
    found = brought_names(*names)
    # problems of the installation are reported separately
    if not found or spark_problem() is not None:
        return []
    return brought_problems(found, spark=metadata.version("pyspark"), delta=_delta_of_pip(), expected=delta_package())


def brought_names(*names: str | None) -> list[str]:
    """Return the files and Maven coordinates that arguments of spark-submit name, each once.

    Args:
        names: Separated as in spark-submit (``,``, on class paths ``:``); ``None`` for none. A pattern, such as
            ``/opt/jars/*``, stands for the files of that folder on this machine.
    """
    found = [name.strip() for text in names if text for name in _SEPARATOR.split(text)]
    return list(dict.fromkeys(file for name in found for file in (_files(name) if "*" in name else [name])))


def _files(pattern: str) -> list[str]:
    return sorted(str(path) for path in Path(pattern).parent.glob(Path(pattern).name))


def brought_problems(names: Iterable[str], *, spark: str, delta: str, expected: str) -> list[str]:
    """Return what is wrong with the Delta JARs that a user brings for the bundled Spark, one sentence each.

    Args:
        names: Files or Maven coordinates, of Delta or not.
        spark: Version of the installed pyspark.
        delta: Version of the installed delta-spark.
        expected: Coordinates of the JAR that FDS adds itself.
    """
    wanted = DeltaJar.named(expected)
    problems = []
    for name in names:
        jar = DeltaJar.named(name)
        if jar is None or wanted is None:
            continue
        fits_spark = jar.scala == wanted.scala and jar.spark in (None, of_minor(spark))
        if fits_spark and jar.delta == delta:
            continue
        problems.append(
            f"{name.strip()} is {jar.describe()}, but the installed pyspark is {spark} (Scala {wanted.scala}) and "
            f"the installed delta-spark {delta}. Omit it: FDS adds {expected} itself"
        )
    return problems


def allows(requirements: Iterable[str], version: str) -> bool:
    """Whether requirements such as ``pyspark<=4.2.0,>=4.0.1`` allow this major and minor version."""
    from packaging.requirements import Requirement

    for requirement in requirements:
        bounds = Requirement(requirement).specifier
        # bounds exclude a whole minor version only if they exclude its first, its last and the ones they name
        named = (bound.version.removesuffix(".*") for bound in bounds)
        of_this_minor = [version, f"{of_minor(version)}.0", f"{of_minor(version)}.999"]
        of_this_minor += [text for text in named if minor(text) == minor(version)]
        if not any(bounds.contains(each, prereleases=True) for each in of_this_minor):
            return False
    return True


def _files_problem(pyspark: str) -> str | None:
    """Return that the files of pyspark differ from the version that pip records, or ``None`` if they do not."""
    home = _pyspark_folder()
    if home is None:
        return None
    found = {}
    file = home / "version.py"
    said = re.search(r"__version__[^\"']*[\"']([^\"']+)", file.read_text()) if file.is_file() else None
    if said is not None:
        found["its Python files are of"] = said[1]
    for jar in (home / "jars").glob("spark-core_*.jar"):
        found["its JARs are of"] = jar.stem.split("-", 2)[-1]
    other = [f"{what} {version}" for what, version in found.items() if minor(version) != minor(pyspark)]
    if not other:
        return None
    return (
        f"pip reports pyspark {pyspark}, but {' and '.join(other)}, in {home}: another version was installed "
        f"over it. Run: pip install --force-reinstall --no-deps pyspark=={pyspark}"
    )


def spark_major() -> int:
    """Return the major version of the installed pyspark; every Spark that FDS starts must have the same one."""
    return int(metadata.version("pyspark").partition(".")[0])


def java_program() -> str | None:
    """Return the Java that Spark would start, or ``None`` if PATH has no java; one in JAVA_HOME may not exist."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java")


class FoundJava(NamedTuple):
    """The Java that Spark would start.

    Attributes:
        program: Its path, or name.
        major: Its version, or ``None`` if it is unknown.
        failure: The end of a sentence that says why it is unknown.
    """

    program: str
    major: int | None
    failure: str = ""

    def problem(self, minimum: int) -> str | None:
        """Return why Spark cannot start with it, and what to install, or ``None`` if it can.

        Args:
            minimum: The oldest Java on which that Spark starts.
        """
        needed = f"Spark needs Java {minimum} or newer"
        if self.major is None:
            return f"{needed}{self.failure}: {_INSTALL_JAVA}"
        if self.major < minimum:
            return f"{needed}; {self.program} is Java {self.major}: {_INSTALL_JAVA}"
        return None


def find_java() -> FoundJava:
    """Return the Java of this machine. Starts it once."""
    home, java = os.environ.get("JAVA_HOME"), java_program()
    if java is None:
        return FoundJava("java", None, ", but PATH has no java")
    try:
        ran = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    except OSError as e:
        where = f"JAVA_HOME is {home}, but there is no" if home else "cannot run"
        return FoundJava(java, None, f"; {where} {java} ({e.strerror})")
    except subprocess.TimeoutExpired:
        return FoundJava(java, None, f"; {java} -version did not answer")
    said = ran.stderr + ran.stdout
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found is None:
        return FoundJava(java, None, f"; {java} -version says {said.strip()[:200]!r}")
    return FoundJava(java, int(found[1]))


def java_problem(minimum: int = MINIMUM_JAVA) -> str | None:
    """Return why Spark cannot start with the Java of this machine, and what to install, or ``None`` if it can."""
    return find_java().problem(minimum) or _user_problem()


def _user_problem() -> str | None:
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:
        return (
            f"the user of this process, uid {os.getuid()}, has no name, and Spark's Hadoop accepts no user without "
            "one. Add a line for it to /etc/passwd when the container starts, or use libnss_wrapper as Spark's own "
            "image does, or run with a user that has one"
        )
    return None


def delta_package(delta_version: str | None = None) -> str:
    """Return the Maven coordinates of Delta for the installed pyspark and delta-spark.

    Args:
        delta_version: A version of Delta, instead of that of delta-spark.

    Raises:
        SparkSetupError: As :func:`spark_problem`.
    """
    if problem := spark_problem():
        raise SparkSetupError(problem)
    spark, delta = metadata.version("pyspark"), _delta_of_pip() if delta_version is None else delta_version
    scala = "2.12" if spark_major() < 4 else "2.13"  # noqa: PLR2004
    return delta_coordinates(spark, scala, delta)


def _delta_of_pip() -> str:
    """Return the version of the installed delta-spark; without one, the table's version for the installed pyspark."""
    return _version("delta-spark") or DELTA_OF_SPARK[of_minor(metadata.version("pyspark"))]


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
