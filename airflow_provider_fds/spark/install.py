"""What Spark needs on this machine before it starts: Java, pyspark, the JARs, and an environment without secrets.

An Airflow worker has Airflow's keys in its environment: connections, variables, the URI of the metadata database, the
Fernet key. A user's code in Spark could read and print them and needs none of them, so Spark starts without them.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.spark.cache import (
    SparkSetupError,
    check_folder,
    check_jar,
    check_jar_folder,
    default_cache_dir,
    locked,
)
from airflow_provider_fds.spark.versions import DELTA_OF_SPARK, DeltaJar, delta_coordinates, minor, of_minor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_LOG = logging.getLogger(__name__)

#: Spark's S3 file system, for the Hadoop version of the bundled Spark.
HADOOP_AWS_PACKAGE: Final = "org.apache.hadoop:hadoop-aws:3.5.0"

#: Required by Spark 4 (https://spark.apache.org/docs/4.2.0/).
MINIMUM_JAVA: Final = 17

#: Names the variables that are passed to Spark anyway, comma separated; ``*``: all.
PASSED: Final = "FDS_SPARK_ENVIRONMENT"

_AIRFLOWS: Final = re.compile(r"_?AIRFLOW_(?:CONN|VAR)_.+|_?AIRFLOW__.+|_AIRFLOW_.+|SQLALCHEMY_DATABASE_URI")

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
    without = set(held_back(environ))
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
        only = f" (pyspark-client {client} has no Spark in it)" if client is not None else ""
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
            f"delta-spark is {delta}, which is for {' and '.join(needed)}, but pyspark is {pyspark}: "
            f"pip install 'pyspark=={pyspark}' delta-spark chooses the one that goes with this pyspark"
        )
    return _files_problem(pyspark)


def client_problem() -> str | None:
    """Return what is wrong with the installed client of Spark Connect servers, or ``None``.

    pyspark-client is enough; a full pyspark includes the client.
    """
    pyspark, client = _version("pyspark"), _version("pyspark-client")
    if pyspark is None and client is None:
        return f"neither pyspark-client nor pyspark is installed: {INSTALL_CLIENT}"
    if pyspark is None:
        return None
    return _client_conflict(pyspark, client) or _files_problem(pyspark)


def client_packages() -> list[str]:
    """Return the names of the installed packages that have the client of Spark Connect servers in them."""
    return [name for name in ("pyspark", "pyspark-client") if _version(name) is not None]


def installed_client() -> str | None:
    """Return the version of the installed pyspark-client, ``None`` if there is none."""
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
        names: Maven coordinates or files, separated as in spark-submit (``,``, on class paths ``:``); ``None`` for
            none.
    """
    found = [name for text in names if text for name in re.split(r",|:(?=/)", text)]
    # problems of the installation are reported separately
    if not found or spark_problem() is not None:
        return []
    return brought_problems(found, spark=metadata.version("pyspark"), delta=_delta_of_pip(), expected=delta_package())


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
            f"{name.strip()} is {jar.describe()}, but the installed pyspark is {spark} (Scala {wanted.scala}) and the "
            f"installed delta-spark {delta}. Leave it out: FDS adds {expected} by itself"
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
    """Return that the files of pyspark differ from the version that pip records, ``None`` if they do not."""
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
    """Return the Java that Spark would start, ``None`` if PATH has none; one in JAVA_HOME may not exist."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / "java") if home else shutil.which("java")


def java_problem(minimum: int = MINIMUM_JAVA) -> str | None:
    """Return why Spark cannot start with the Java of this machine, and what to install, or ``None`` if it can.

    Args:
        minimum: The oldest Java on which that Spark starts.
    """
    home, java = os.environ.get("JAVA_HOME"), java_program()
    if java is None:
        return f"Spark needs Java {minimum} or newer and found none on PATH: {_INSTALL_JAVA}"
    try:
        ran = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    except OSError as e:
        where = f"JAVA_HOME is {home}, but there is no" if home else "cannot run"
        return f"Spark needs Java {minimum} or newer; {where} {java} ({e.strerror}): {_INSTALL_JAVA}"
    except subprocess.TimeoutExpired:
        return f"Spark needs Java {minimum} or newer; {java} -version did not answer: {_INSTALL_JAVA}"
    said = ran.stderr + ran.stdout
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found is None:
        return f"Spark needs Java {minimum} or newer; {java} -version says {said.strip()[:200]!r}: {_INSTALL_JAVA}"
    if int(found[1]) < minimum:
        return f"Spark needs Java {minimum} or newer; {java} is Java {found[1]}: {_INSTALL_JAVA}"
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
            f"cannot keep Delta's JARs in {jars} ({e}): set FDS_CACHE_DIR to a writable folder"
        ) from e
    with locked(cache / "jars.lock"):
        if not all(jar.is_file() for jar in kept):
            # the Ivy versions of Spark 3.5 and Spark 4 cannot read each other's folders
            ivy = cache / ("ivy" if spark_submit is None else f"ivy-{artifact.removeprefix('delta-spark_')}")
            resolved = _resolve(package, ivy, spark_submit)
            for jar in kept:
                _keep(resolved, jar, package)
    return _checked(kept)


def s3a_jars(cache_dir: Path | None = None) -> tuple[Path, ...]:
    """Return the JARs of Spark's S3 file system, resolved through Ivy the first time and offline from then on.

    The bundled Spark has none. The AWS library among them is about 700 MB. JARs are either complete or absent.

    Args:
        cache_dir: Where they are kept; default :func:`default_cache_dir`.

    Raises:
        SparkSetupError: No Java, no pyspark, or the JARs cannot be resolved.
    """
    cache = default_cache_dir() if cache_dir is None else cache_dir
    kept = cache / "jars" / HADOOP_AWS_PACKAGE.split(":", 1)[1].replace(":", "-")
    _check_folders(cache, cache / "jars", kept)
    if not kept.is_dir():
        if problem := java_problem():
            raise SparkSetupError(problem)
        _LOG.info("Fetching Spark's S3 file system (%s), some 700 MB, once per machine.", HADOOP_AWS_PACKAGE)
        partial = cache / f"s3a.{os.getpid()}.tmp"
        try:
            for folder in (cache, kept.parent):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with locked(cache / "jars.lock"):
                if not kept.is_dir():
                    _resolve(HADOOP_AWS_PACKAGE, partial).replace(kept)
        except OSError as e:
            raise SparkSetupError(
                f"cannot keep the JARs of {HADOOP_AWS_PACKAGE} in {kept} ({e}): set FDS_CACHE_DIR to a writable folder"
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


def _resolve(package: str, ivy: Path, spark_submit: str | None = None) -> Path:
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
            *("--conf", f"spark.jars.ivy={ivy}", "--conf", "spark.ui.enabled=false", str(application)),
        ]
        ran = subprocess.run(command, capture_output=True, text=True, env=env, cwd=folder, check=False)  # noqa: S603
    if ran.returncode != 0:
        tail = "\n".join((ran.stdout + ran.stderr).strip().splitlines()[-15:])
        raise SparkSetupError(
            f"the JARs of {package} could not be resolved into {ivy}: a Maven repository must be reachable the "
            "first time, or the JARs copied by hand into the folder 'jars' of the cache (FDS_CACHE_DIR); "
            f"spark-submit ended with {ran.returncode}:\n{tail}"
        )
    return ivy / "jars"


def _keep(resolved: Path, jar: Path, package: str) -> None:
    found = resolved / f"io.delta_{jar.name}"
    if not found.is_file():
        raise SparkSetupError(
            f"{package} was resolved into {resolved}, but {found.name} is not there: the versions of Spark "
            "and Delta may not belong together"
        )
    partial = jar.with_name(f"{jar.name}.{os.getpid()}.tmp")
    shutil.copyfile(found, partial)
    partial.replace(jar)


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
