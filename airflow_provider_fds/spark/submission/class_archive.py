"""An archive of Spark's and Delta's classes, which the JVM maps instead of loading and verifying them at every start.

Uses Java's application class-data sharing (JEP 310, 350). ``fds admin prepare`` makes the archive, by a small job of
FDS's own, and it holds no user classes. It belongs to one JVM, one Spark and one class path; all three are part of its
name. ``docs/decisions/2026-11-22-spark-sessions.md`` has what it saves. Standard library only.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from airflow_provider_fds.spark.installation.cache import SparkSetupError, check_folder, default_cache_dir
from airflow_provider_fds.spark.installation.install import (
    bundled_spark_home,
    child_environment,
    java_program,
    run_captured,
    spark_env,
)
from airflow_provider_fds.spark.runtime.settings import DEFAULT_JAVA_OPTIONS, lean_conf

#: ``off``: neither made nor used.
SWITCH: Final = "FDS_CLASS_ARCHIVE"

#: Part of the name of every archive; raise it when the options or the job that make the archive change.
_FORMAT: Final = 1

_PACKAGE: Final = Path(__file__).resolve().parents[2]

#: Each of these would add a folder with files to the class path, for which the JVM makes no archive.
_MORE_CLASS_PATH: Final = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_DIST_CLASSPATH")

_KEPT: Final = 3
_SECONDS: Final = 900


@dataclass(frozen=True)
class ClassArchive:
    """The location of the archive of one installation, whether or not it exists.

    Attributes:
        folder: Holds the archives, in FDS's cache.
        key: Digest of JVM, Spark, class path and options.
        class_path: The value of ``--driver-class-path``, colon separated.
        java_options: Options that are the same when the archive is made and when it is used.
    """

    folder: Path
    key: str
    class_path: str
    java_options: str

    def path(self) -> Path | None:
        """Return the archive, or ``None`` if there is no complete one.

        Its size is in its name, because the JVM would crash on a truncated file.
        """
        for found in self.folder.glob(f"{self.key}-*.jsa"):
            with suppress(OSError):
                if found.stem == f"{self.key}-{found.stat().st_size}":
                    return found
        return None

    def options(self) -> list[str]:
        """Return the options of a JVM that uses the archive; empty without an archive.

        A checksum detects damage; the JVM silently ignores an archive that does not fit.
        """
        found = self.path()
        # a space would end the option
        if found is None or " " in str(found):
            return []
        return [f"-XX:SharedArchiveFile={found}", "-Xshare:auto", "-XX:+VerifySharedSpaces", "-Xlog:cds*=off"]

    def make(self) -> Path:
        """Make and check the archive, and return it once it is complete. Waits for another process that is making it.

        Raises:
            SparkSetupError: It cannot be made; the message has the end of what Spark printed.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if (made := self.path()) is not None:
                return made
            # left by a killed process; the lock shows that no other process is using it
            for left in self.folder.glob("*.tmp"):
                shutil.rmtree(left, ignore_errors=True)
            with tempfile.TemporaryDirectory(dir=self.folder, suffix=".tmp", ignore_cleanup_errors=True) as work:
                try:
                    made = self._dump(Path(work))
                except (OSError, subprocess.TimeoutExpired) as error:
                    raise SparkSetupError(f"building the class archive failed: {error}") from error
            self._tidy()
            return made

    def _dump(self, work: Path) -> Path:
        dumped = work / "spark.jsa"
        job = str(Path(__file__).resolve())
        ran = self._submit(work, f"-XX:ArchiveClassesAtExit={dumped}", job, str(work / "tables"))
        if ran.returncode != 0 or not dumped.is_file():
            raise SparkSetupError(f"building the class archive ended with {ran.returncode}:\n{ran.stdout[-4000:]}")
        # with -Xshare:on, a JVM that cannot use the archive does not start
        checked = self._submit(work, f"-XX:SharedArchiveFile={dumped} -Xshare:on -XX:+VerifySharedSpaces", "--version")
        if checked.returncode != 0:
            raise SparkSetupError(f"a JVM cannot use the class archive that it built:\n{checked.stdout[-4000:]}")
        return dumped.replace(self.folder / f"{self.key}-{dumped.stat().st_size}.jsa")

    def _submit(self, work: Path, java_option: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        home = bundled_spark_home()
        # as a batch starts, except for the JVM options that are part of the key
        conf = {
            **lean_conf("local[1]"),
            DEFAULT_JAVA_OPTIONS: self.java_options,
            "spark.sql.warehouse.dir": f"file:{work / 'warehouse'}",
        }
        command = [
            *(str(home / "bin" / "spark-submit"), "--master", "local[1]", "--driver-class-path", self.class_path),
            *("--driver-java-options", java_option),
            *(word for key, value in conf.items() for word in ("--conf", f"{key}={value}")),
            *arguments,
        ]
        env = {**child_environment(), **spark_env(home), "SPARK_LOCAL_IP": "127.0.0.1"}
        # this file is the job, and imports its package
        env["PYTHONPATH"] = os.pathsep.join([str(_PACKAGE.parent), *filter(None, [env.get("PYTHONPATH")])])
        return run_captured(command, env=env, cwd=work, seconds=_SECONDS)

    def _tidy(self) -> None:
        """Remove archives of earlier installations; a JVM that uses one keeps it mapped."""
        archives = sorted(self.folder.glob("*.jsa"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in archives[_KEPT:]:
            path.unlink(missing_ok=True)


def class_archive(class_path: str, java_options: str, cache_dir: Path | None = None) -> ClassArchive | None:
    """Return the archive for a local driver of the bundled Spark, or ``None`` if there cannot be one.

    Starts no process.

    Args:
        class_path: The value of ``--driver-class-path``: FDS's own JARs, none of the user's.
        java_options: FDS's own options that decide what the JVM can map (collector, compiler).
        cache_dir: FDS's cache; default :func:`~airflow_provider_fds.spark.installation.cache.default_cache_dir`.
    """
    if os.environ.get(SWITCH, "on") == "off" or any(os.environ.get(name) for name in _MORE_CLASS_PATH):
        return None
    home = bundled_spark_home()
    if (home / "conf").exists() or (jvm := _jvm()) is None:
        return None
    seen = hashlib.sha256(f"{_FORMAT}\n{home}\n{class_path}\n{java_options}\n".encode())
    try:
        for path in (jvm, *map(Path, class_path.split(":")), *sorted((home / "jars").glob("*.jar"))):
            facts = path.stat()
            seen.update(f"{path}\t{facts.st_size}\t{facts.st_mtime_ns}\n".encode())
    except OSError:
        return None
    cache = default_cache_dir() if cache_dir is None else cache_dir
    folder = cache / "classes"
    # the JVM maps an archive as it is, so nobody else may write to it
    check_folder(cache)
    check_folder(folder)
    return ClassArchive(folder.absolute(), seen.hexdigest()[:24], class_path, java_options)


def _jvm() -> Path | None:
    """Return the library of the JVM that Spark would start; it changes with every build."""
    java = java_program()
    if java is None:
        return None
    jvm = Path(java).resolve().parents[1] / "lib" / "server" / "libjvm.so"
    return jvm if jvm.is_file() else None


def train(folder: str) -> None:
    """Do a little of everything that a batch does, so that its classes are in the archive: the job that makes it.

    It must end normally, because the JVM writes the archive when it exits.
    """
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("fds-class-archive").getOrCreate()
    rows = spark.range(100).selectExpr(
        "id", "cast(id as string) as text", "cast(id as double) as number", "timestamp_seconds(id) as at", "id % 2 as p"
    )
    source, sink = f"{folder}/source", f"{folder}/sink"
    for _ in range(2):
        rows.write.format("delta").mode("append").partitionBy("p").save(source)
    for version in range(2):
        read = spark.read.format("delta").load(source).where("id >= 0").drop("p")
        writer = read.write.format("delta").mode("append").option("txnAppId", "fds").option("txnVersion", str(version))
        writer.option("userMetadata", "{}").save(sink)
    spark.read.format("delta").load(source).drop("p").dropDuplicates(["id"]).createOrReplaceTempView("news")
    spark.sql(
        f"MERGE INTO delta.`{sink}` t USING news s ON t.id = s.id AND t.at = s.at AND s.id < 0 "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    ).collect()
    spark.sql(f"DESCRIBE HISTORY delta.`{sink}`").collect()
    spark.stop()


if __name__ == "__main__":
    train(sys.argv[1])
