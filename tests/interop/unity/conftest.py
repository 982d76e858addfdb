"""A real Unity Catalog server, keys that expire, and streams that are loaded by name."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.batch.spec import JobSpec
from airflow_provider_fds.catalog.table import CatalogPlaces
from airflow_provider_fds.catalog.unity import UnityCatalog
from airflow_provider_fds.catalog.unity_http import UnityHttp
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.ledger.owner import Actor, Owner
from airflow_provider_fds.sinks import DeltaAppendSink
from airflow_provider_fds.spark.application.job_run import run
from airflow_provider_fds.stream import DeltaStream, StreamContext, StreamSession
from tests.interop.unity.managed import ManagedTable
from tests.interop.unity.server import UnityServer
from tests.interop.unity.sts import KeyedLake, Sts

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

_NUMBERS = count(1)


@pytest.fixture(scope="session")
def sts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sts]:
    sts = Sts(tmp_path_factory.mktemp("sts") / "certificates")
    yield sts
    sts.close()


@pytest.fixture(scope="session")
def unity(sts: Sts, tmp_path_factory: pytest.TempPathFactory) -> Iterator[UnityServer]:
    """The server that all tests share. Tables of its catalog ``main`` are on local disk, those of ``cloud`` on S3."""
    lake = tmp_path_factory.mktemp("lake")
    with UnityServer(tmp_path_factory.mktemp("unity"), lake, sts.environment) as server:
        server.make_catalog("main", f"file://{lake}")
        server.make_catalog("cloud", "s3://lake/tables")
        yield server


@pytest.fixture(scope="session")
def shared_lake(sts: Sts) -> Iterator[KeyedLake]:
    lake = KeyedLake(sts)
    lake.new_bucket("lake")
    yield lake
    lake.stop()


@pytest.fixture
def s3_lake(shared_lake: KeyedLake, sts: Sts) -> Iterator[KeyedLake]:
    """The bucket of the tables of ``cloud``, and keys that live for an hour."""
    sts.lifetime_seconds, sts.is_refusing = 3600.0, False
    shared_lake.refused.clear()
    shared_lake.keys_by_bucket.clear()
    yield shared_lake
    sts.lifetime_seconds, sts.is_refusing = 3600.0, False


@pytest.fixture
def name() -> str:
    """The name of a table in ``main`` that no other test uses."""
    return f"main.sales.t{next(_NUMBERS)}"


@pytest.fixture
def table(unity: UnityServer, name: str) -> ManagedTable:
    """Versions 1 to 3, which the catalog names, beside others that it does not."""
    table = ManagedTable(unity, name, open_storage)
    table.create_by_hand()
    for _ in range(3):
        table.append_by_hand()
    table.publish(1)
    table.lose(3)
    table.leave_half_written(4)
    return table


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the requests to the catalog, in order."""
    paths: list[str] = []
    send = UnityHttp._authorized

    def noted(self: UnityHttp, method: str, path: str, *rest: Any) -> Any:
        paths.append(path)
        return send(self, method, path, *rest)

    monkeypatch.setattr(UnityHttp, "_authorized", noted)
    return paths


@dataclass
class Loads:
    """Runs of streams that read tables by their names into sinks of their own, in the tests' Spark.

    Attributes:
        places: Finds tables; each test has a connection of its own to the catalog.
    """

    spark: SparkSession
    folder: Path
    places: CatalogPlaces
    _runs: count[int] = field(default_factory=lambda: count(1))

    def stream(self, table: str, name: str = "orders", **options: Any) -> DeltaStream:
        return DeltaStream(name, table=table, catalog_conn_id="unity", **{"starting_version": 0, **options})

    def session(self, stream: DeltaStream) -> StreamSession:
        run_id = f"run-{next(self._runs)}"
        owner = Owner(kind="airflow", deployment="test", dag_id="dag", run_id=run_id, task_id="load")
        return StreamSession(
            stream,
            StreamContext(
                staging_uri=str(self.folder / "staging"),
                deployment="test",
                actor=Actor(deployment="test", dag_id="dag", run_id=run_id, task_id="load", try_number=1),
                owner=owner,
                owner_is_running=lambda _: False,
                places=self.places,
            ),
        )

    def load(self, stream: DeltaStream) -> StreamSession:
        """Let a run plan what is new, Spark write it, and the ledger record it; return the session."""
        session = self.session(stream)
        sink = DeltaAppendSink(str(self.sink(stream)), merge_schema=True)
        work = session.begin(sink)
        assert work.status in ("work", "up_to_date"), work
        if work.status == "work":
            staging = session.connected.staging
            spec = session.job(work, sink)
            assert run(self.spark, JobSpec.from_json(staging.get(spec.removeprefix(f"{staging.uri}/"))[0])) == 0
            assert session.collect(work).failure is None
        return session

    def sink(self, stream: DeltaStream) -> Path:
        return self.folder / f"sink-{stream.name}"

    def loaded(self, stream: DeltaStream) -> DataFrame:
        return self.spark.read.format("delta").load(str(self.sink(stream)))


@pytest.fixture
def loads(spark: SparkSession, unity: UnityServer, tmp_path: Path) -> Loads:
    places = CatalogPlaces(UnityCatalog(unity.url), lambda _: {})
    return Loads(spark, tmp_path, places)


def counted(frame: DataFrame) -> Counter[str]:
    """The rows of a frame."""
    return Counter(repr(row) for row in frame.collect())
