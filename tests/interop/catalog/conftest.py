"""A real Hive metastore, and a Spark that keeps its tables there."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.catalog.hive import HiveCatalog
from tests.interop.catalog.metastore import Program, metastore_program

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """A metastore that starts."""
    with metastore_program(tmp_path_factory.mktemp("metastore")) as program:
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
