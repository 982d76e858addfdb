"""A real Hive metastore of Spark's own JARs, on loopback with Derby."""

from __future__ import annotations

import os
import subprocess
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

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


def metastore_program(folder: Path) -> Program:
    """Return a metastore that starts; it prints its port, and keeps its tables in ``folder``."""
    quick = ["-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Dderby.stream.error.file={folder}/derby.log"]
    classes = str(bundled_spark_home() / "jars" / "*")
    return Program(["java", *_OPENED, *quick, "-cp", classes, str(HERE / "Metastore.java"), str(folder)], folder)


def register(uri: str, name: str, location: str, provider: str = "delta") -> None:
    """Let the metastore know an external table, and its database, as Spark would."""
    from pymetastore.hive_metastore import ttypes

    database, _, table = name.partition(".")
    serde = ttypes.SerDeInfo(parameters={"path": location})
    entry = ttypes.Table(
        dbName=database,
        tableName=table,
        sd=ttypes.StorageDescriptor(cols=[], location=location, serdeInfo=serde),
        partitionKeys=[],
        parameters={"spark.sql.sources.provider": provider, "EXTERNAL": "TRUE"},
        tableType="EXTERNAL_TABLE",
    )
    with _client(uri) as client:
        if database not in client.get_all_databases():
            client.create_database(ttypes.Database(name=database, parameters={}))
        client.create_table(entry)


def unregister(uri: str, name: str) -> None:
    """Let the metastore forget a table, if it has it; the files stay."""
    database, _, table = name.partition(".")
    with _client(uri) as client:
        if database in client.get_all_databases() and table in client.get_all_tables(database):
            client.drop_table(database, table, deleteData=False)


def move(uri: str, name: str, location: str) -> None:
    """Let a table point to another folder, as ALTER TABLE … SET LOCATION does."""
    database, _, table = name.partition(".")
    with _client(uri) as client:
        entry = client.get_table(database, table)
        entry.sd.location, entry.sd.serdeInfo.parameters = location, {"path": location}
        client.alter_table(database, table, entry)


@contextmanager
def _client(uri: str) -> Iterator[Any]:
    from pymetastore.hive_metastore import ThriftHiveMetastore
    from thrift.protocol.TBinaryProtocol import TBinaryProtocol
    from thrift.transport.TSocket import TSocket
    from thrift.transport.TTransport import TBufferedTransport

    host, _, port = uri.removeprefix("thrift://").partition(":")
    transport = TBufferedTransport(TSocket(host, int(port)))
    transport.open()
    try:
        yield ThriftHiveMetastore.Client(TBinaryProtocol(transport))
    finally:
        transport.close()
