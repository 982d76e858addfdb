"""A real Hive metastore of Spark's own JARs, on loopback with Derby, and a Spark that keeps its tables there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest

from airflow_provider_fds.catalog.hive import HiveCatalog
from airflow_provider_fds.spark.installation.install import bundled_spark_home

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

HERE = Path(__file__).parent
_OPENED = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in ("lang", "net", "util")]
_START_SECONDS = 120


class Program:
    """A process that answers lines by lines; what else it prints is in a log."""

    def __init__(self, command: list[str], folder: Path, **environment: str) -> None:
        self._log = folder / "log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **environment},
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.stdin.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def send(self, line: str) -> None:
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def receive(self, first_word: str) -> str:
        """Return what follows this word on the next line that begins with it."""
        timer = threading.Timer(_START_SECONDS, self._process.kill)
        timer.start()
        try:
            for line in self._process.stdout:
                word, _, rest = line.rstrip("\n").partition(" ")
                if word == first_word:
                    return rest
        finally:
            timer.cancel()
        raise RuntimeError(f"it ended:\n{self._log.read_text(errors='replace')[-4000:]}")


@pytest.fixture(scope="session")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """A metastore that starts."""
    folder = tmp_path_factory.mktemp("metastore")
    quick = ["-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Dderby.stream.error.file={folder}/derby.log"]
    classes = str(bundled_spark_home() / "jars" / "*")
    command = ["java", *_OPENED, *quick, "-cp", classes, str(HERE / "Metastore.java"), str(folder)]
    with Program(command, folder) as program:
        yield program


@pytest.fixture(scope="session")
def starting_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """A Spark that starts, and waits for the address of its metastore."""
    folder = tmp_path_factory.mktemp("spark")
    command = [sys.executable, str(HERE / "hive_spark.py"), str(folder)]
    with Program(command, folder, SPARK_LOCAL_IP="127.0.0.1", PYTHONPATH=str(HERE.parents[2])) as program:
        yield program


@pytest.fixture(scope="session")
def metastore_uri(metastore: Program, starting_spark: Program) -> str:
    """The address of the metastore that all tests share; Spark starts at the same time."""
    return f"thrift://127.0.0.1:{metastore.receive('port')}"


class HiveSpark:
    """A Spark whose catalog is the metastore.

    Attributes:
        folder: Where tests put external tables. Its name is the worst that a file system accepts.
    """

    def __init__(self, program: Program, folder: Path) -> None:
        self._program = program
        self.folder = folder

    def sql(self, statement: str) -> list[Any]:
        self._program.send(json.dumps(statement))
        answer = json.loads(self._program.receive("answer"))
        assert "error" not in answer, answer["error"]
        return answer["rows"]


@pytest.fixture(scope="session")
def hive_spark(metastore_uri: str, starting_spark: Program, tmp_path_factory: pytest.TempPathFactory) -> HiveSpark:
    """The Spark that all tests share, with the empty database ``lab``."""
    starting_spark.send(metastore_uri)
    spark = HiveSpark(starting_spark, tmp_path_factory.mktemp("lake é %20 #1 ", numbered=True))
    spark.sql("CREATE DATABASE lab")
    return spark


@pytest.fixture(scope="session")
def catalog(metastore_uri: str) -> Iterator[HiveCatalog]:
    catalog = HiveCatalog(metastore_uri)
    yield catalog
    catalog.close()
