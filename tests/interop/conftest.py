"""Real Spark and real Delta tables: one session for all interop tests of a process."""

from __future__ import annotations

import logging
import os
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import Row

from airflow_provider_fds.batch.manifest.manifest import build_manifest
from airflow_provider_fds.batch.manifest.publish import manifest_folder, write_manifest
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.reader.snapshot import freeze_snapshot
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.source.options.options import SourceOptions
from airflow_provider_fds.source.planning.plan import BatchPlanner
from airflow_provider_fds.spark.application.batch_rows import listed_rows
from airflow_provider_fds.spark.sessions.connect_server import ConnectServer
from tests.interop import quick_spark
from tests.interop.s3_server import Server

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_fds.source.planned import SourceBatch
    from tests.interop.connect_server import RunningServer

HERE = Path(__file__).parent
PROVENANCE = ("_commit_version", "_commit_timestamp")

#: Larger tables are too large to be compared row by row each time they are read.
_FEW_BYTES = 200_000

#: A session of many minutes is worth well-compiled code.
_IS_LONG = any(int(os.environ.get(name, "0")) > 20 for name in ("FDS_FUZZ_HISTORIES", "FDS_FUZZ_TABLES"))
_JVM = "-XX:+UseSerialGC" if _IS_LONG else f"{quick_spark.JVM} {quick_spark.MEMORY}"

#: Warnings of pyspark and py4j that ``filterwarnings = error`` would turn into failures of these tests.
PYSPARK_WARNINGS = (
    # py4j closes the sockets of its threads when they are collected, not when they end
    "ignore:unclosed <socket:ResourceWarning",
    # the same, raised in a destructor
    "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning",
    # pyspark.testing warns whenever pandas 3 is installed; pandas is not used here
    "ignore:PySpark does not yet fully support pandas:FutureWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            for warning in PYSPARK_WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The Spark session of the process: two cores, Delta, no UI, UTC."""
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    folder = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": f"{_JVM} -Dderby.system.home={folder}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        **quick_spark.SMALL_LOGS,
        **quick_spark.few_processes(),
        **quick_spark.mapped_classes(),
        **({} if _IS_LONG else quick_spark.INTERPRETED),
        # Spark 4.2.0 hangs on a Python UDF over a Parquet or Delta scan without it
        "spark.sql.execution.arrow.pythonUDF.columnarInput.enabled": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("fds-interop")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    gateway = SparkContext._gateway
    session.stop()
    # The JVM ends when its standard input does; without this it lives until the interpreter exits.
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(timeout=60)
    SparkContext._gateway = SparkContext._jvm = None


def rows(frame: DataFrame, without: tuple[str, ...] = PROVENANCE) -> Counter[str]:
    """The rows of a frame as a multiset, without the columns that a manifest adds."""
    return Counter(repr(row) for row in frame.drop(*without).collect())


def without_provenance(found: Iterable[Row]) -> Counter[str]:
    """Return rows as a multiset, as :func:`rows` does of a frame."""
    shown: Counter[str] = Counter()
    for row in found:
        names = [name for name in row.__fields__ if name not in PROVENANCE]
        shown[repr(Row(*names)(*(row[name] for name in names)))] += 1
    return shown


class Lab:
    """Delta tables on local disk, their batches as FDS plans them, and Spark's own readers as oracles."""

    rows = staticmethod(rows)
    without_provenance = staticmethod(without_provenance)

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.staging = LocalStorage(str(folder / "staging é %41"))
        self._count = 0

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def create(self, name: str, definition: str) -> str:
        """Create a table, ``definition`` being what follows its name in DDL; return its path."""
        path = self.path(name)
        self.sql(f"CREATE TABLE {{}} {definition}", path)
        return path

    def sql(self, statement: str, path: str) -> DataFrame:
        """Run a statement in which ``{}`` stands for the table."""
        return self.spark.sql(statement.replace("{}", f"delta.`{path}`"))

    def log(self, path: str) -> DeltaLog:
        return DeltaLog(LocalStorage(path))

    def batches(
        self, path: str, first_version: int = 0, target: int | None = None, **options: Any
    ) -> list[SourceBatch]:
        """Plan everything from ``first_version`` to ``target`` (both inclusive); changed files are read whole."""
        log = self.log(path)
        target = log.latest() if target is None else target
        state = log.state_at(first_version)
        start = Offset.after(first_version - 1, state.metadata.id)
        planner = BatchPlanner(log, start, state, SourceOptions.parse({"ignore_changes": True, **options}), target)
        batches = [batch for batch in planner if batch.files]
        assert planner.outcome is not None
        if planner.outcome.error is not None:
            raise planner.outcome.error
        return batches

    def snapshot_batches(self, path: str, **options: Any) -> list[SourceBatch]:
        """Plan the initial snapshot of the table's current version."""
        log = self.log(path)
        version = log.latest()
        frozen = freeze_snapshot(log, version, self.staging, "snapshots")
        state = log.state_at(version)
        start = Offset(state.metadata.id, version, is_initial_snapshot=True)
        parsed = SourceOptions.parse(options)
        return list(BatchPlanner(log, start, state, parsed, version, snapshot=frozen, snapshot_storage=self.staging))

    def publish(self, batch: SourceBatch, path: str, *, stats: bool = True, columns: Sequence[str] = ()) -> str:
        """Write the manifest of a batch of the table at ``path``; return its URI."""
        manifest = build_manifest(batch, table_uri=self.log(path).table_uri, stats=stats, columns=columns)
        self._count += 1
        return write_manifest(manifest, self.staging, f"s/{manifest_folder(1, self._count, manifest.digest)}")

    def read(self, batch: SourceBatch, path: str, *, stats: bool = True, columns: Sequence[str] = ()) -> DataFrame:
        """Return the frame of a batch as a user would read it: of its manifest, see :meth:`collect`."""
        manifest = self.publish(batch, path, stats=stats, columns=columns)
        self._compared(batch, manifest)
        # one that was not read yet: Spark counts once what a frame opens
        return self.spark.read.format("delta").load(manifest)

    def collect(self, batch: SourceBatch, path: str, *, columns: Sequence[str] = ()) -> list[Row]:
        """Read a batch as a user would: load its manifest. The driver's shorter way returns the same rows."""
        frame, found = self._compared(batch, self.publish(batch, path, columns=columns))
        return frame.collect() if found is None else found

    def _compared(self, batch: SourceBatch, manifest: str) -> tuple[DataFrame, list[Row] | None]:
        """Return the frame of a manifest, and its rows, compared with the driver's way, if they are few."""
        frame = self.spark.read.format("delta").load(manifest)
        listed = listed_rows(self.spark, frame, manifest, batch.num_files)
        assert listed is not frame
        if batch.num_bytes >= _FEW_BYTES:
            return frame, None
        found = frame.collect()
        assert Counter(map(repr, found)) == rows(listed, without=())
        return frame, found

    def read_all(self, path: str, first_version: int = 0, **options: Any) -> Counter[str]:
        """The rows of all batches from ``first_version``."""
        total: Counter[str] = Counter()
        for batch in self.batches(path, first_version, **options):
            total += without_provenance(self.collect(batch, path))
        return total

    def read_one(self, path: str, first_version: int = 0, **options: Any) -> DataFrame:
        """Read what must be a single batch."""
        (batch,) = self.batches(path, first_version, **options)
        return self.read(batch, path)

    def streamed(self, path: str, first_version: int = 0) -> Counter[str]:
        """The oracle: the rows that Structured Streaming delivers from ``first_version``."""
        self._count += 1
        seen: Counter[str] = Counter()
        stream = self.spark.readStream.format("delta").option("ignoreChanges", "true")
        query = (
            stream.option("startingVersion", first_version)
            .load(path)
            .writeStream.foreachBatch(lambda frame, _: seen.update(rows(frame)))
            .option("checkpointLocation", self.path(f"checkpoint{self._count}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return seen

    def table(self, path: str) -> Counter[str]:
        """The other oracle: the current rows of the table."""
        return rows(self.spark.read.format("delta").load(path))

    @contextmanager
    def session_zone(self, zone: str) -> Iterator[None]:
        """Read in another session time zone."""
        self.spark.conf.set("spark.sql.session.timeZone", zone)
        try:
            yield
        finally:
            self.spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.fixture(scope="module")
def lab(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A folder of tables of one test file. Its name is the worst that a file system accepts."""
    return Lab(spark, tmp_path_factory.mktemp("lake é %20 #1 ", numbered=True))


@pytest.fixture(scope="session")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A Spark Connect server with Delta, one for all tests."""
    pytest.importorskip("grpc", reason="the environments of older Sparks have no client")
    from tests.interop.connect_server import running_server

    with running_server(tmp_path_factory.mktemp("connect"), **quick_spark.server_settings()) as server:
        yield server


@pytest.fixture(scope="session")
def connect_session(connect_server: RunningServer) -> Iterator[SparkSession]:
    """A session on the server, besides the classic one of the process."""
    session = ConnectServer(connect_server.url, "the tests' server").open(is_active=False)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def moto() -> Iterator[Server]:
    """An S3 server of this process."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def server(moto: Server, request: pytest.FixtureRequest) -> Iterator[Server]:
    """The server with an empty bucket that no other test uses."""
    moto.new_bucket(f"b{abs(hash(request.node.nodeid)):x}")
    moto.keys_by_bucket.clear()
    yield moto
    moto.heal()
