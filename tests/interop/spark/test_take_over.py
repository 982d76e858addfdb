"""Another stream goes on where one was, on real Spark: each row of the source is read once between the two."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import deltalake
import pyarrow as pa
import pytest

from airflow_provider_fds.batch.spec import JobSpec
from airflow_provider_fds.cli.main import main
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.ledger.owner import Actor, Owner
from airflow_provider_fds.sinks import DeltaTableSink
from airflow_provider_fds.source.offset import BASE_INDEX, Offset
from airflow_provider_fds.spark.job import run
from airflow_provider_fds.stream import DeltaStream, StreamContext, StreamSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Site:
    """One deployment with a staging folder of its own; the lake with sources and sinks is shared."""

    def __init__(self, spark: SparkSession, lake: Path, deployment: str = "test") -> None:
        self.spark = spark
        self.lake = lake
        self.deployment = deployment
        self.staging = str(lake / f"staging of {deployment}")
        self._runs = 0

    @property
    def source(self) -> str:
        return str(self.lake / "orders é")

    def append(self, first: int) -> None:
        """Add a commit of ten rows."""
        table = pa.table({"id": list(range(first, first + 10))})
        deltalake.write_deltalake(self.source, table, mode="append")

    def append_files(self, first: int, count: int) -> None:
        """Add a commit of ``count`` files with two rows each."""
        rows = self.spark.range(first, first + 2 * count, 1, count)
        rows.write.format("delta").mode("append").save(self.source)

    def stream(self, name: str = "orders", **options: Any) -> DeltaStream:
        return DeltaStream(name, table=self.source, **options)

    def session(self, stream: DeltaStream) -> StreamSession:
        """The next run; the ones before it are taken for dead."""
        self._runs += 1
        owner = Owner(kind="airflow", deployment=self.deployment, dag_id="d", run_id=f"r{self._runs}", task_id="t")
        actor = Actor(deployment=self.deployment, dag_id="d", run_id=owner.run_id, task_id="t", try_number=1)
        return StreamSession(
            stream,
            StreamContext(
                staging_uri=self.staging,
                deployment=self.deployment,
                actor=actor,
                owner=owner,
                owner_is_running=lambda _owner: False,
            ),
        )

    def load(self, stream: DeltaStream, sink: str, max_batches: int = 200) -> StreamSession:
        """One run into a sink, of at most ``max_batches`` batches."""
        session = self.session(stream)
        to = DeltaTableSink(str(self.lake / sink))
        while (work := session.begin(to, max_batches=max_batches)).status in ("fence", "work"):
            place = Path(unquote(urlsplit(session.job(work, to)).path))
            run(self.spark, JobSpec.from_json(place.read_bytes()))
            collected = session.collect(work)
            if collected.failure is not None:
                raise collected.failure
            if work.status == "work" and max_batches < 200:
                break
        return session

    def ids(self, sink: str) -> list[int]:
        path = self.lake / sink
        return sorted(deltalake.DeltaTable(path).to_pyarrow_table(columns=["id"]).column("id").to_pylist())


@pytest.fixture
def site(spark: SparkSession, tmp_path: Path) -> Site:
    return Site(spark, tmp_path)


# -- forks


@pytest.mark.parametrize("options", [{"starting_version": 0}, {}], ids=["commits", "snapshot"])
def test_a_fork_loads_into_its_own_sink_what_its_stream_has_not_read(site, options):
    for number in range(2):
        site.append_files(number * 6, 3)
    live = site.stream(max_files_per_batch=2, **options)
    site.load(live, "bronze", max_batches=2)
    before = site.ids("bronze")
    audit = live.fork("audit")
    site.session(audit).ensure_open()
    site.append_files(12, 3)

    site.load(audit, "audit")
    site.load(live, "bronze")

    assert len(before) == 8
    assert site.ids("bronze") == list(range(18))
    assert sorted(before + site.ids("audit")) == list(range(18))
    with pytest.raises(ConfigurationError, match="which itself loads the same versions into the sink"):
        site.load(live.fork("third"), "bronze")


# -- a Structured Streaming query goes on


def follow(site: Site, checkpoint: str, sink: str, **options: Any) -> None:
    """Let a real query read everything new from its checkpoint into a sink."""
    reader = site.spark.readStream.format("delta")
    for name, value in options.items():
        reader = reader.option(name, value)
    query = (
        reader.load(site.source)
        .writeStream.format("delta")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(str(site.lake / sink))
    )
    query.awaitTermination()


@pytest.mark.parametrize(
    ("options", "batches", "index"),
    [
        ({"starting_version": 0, "max_files_per_batch": 2}, 2, 0),
        ({"max_files_per_batch": 2}, 2, 3),
        ({"starting_version": 0}, 1, BASE_INDEX),
    ],
    ids=["commit", "snapshot", "base"],
)
def test_a_query_reads_on_from_an_exported_checkpoint(site, capsys, options, batches, index):
    for number in range(2):
        site.append_files(number * 6, 3)
    state = site.load(site.stream(**options), "bronze", max_batches=batches).connected.state
    assert Offset.from_json(state.position).index == index
    place = ("--staging", site.staging)
    assert main(["hold", "orders", *place, "--why", "a query takes over", "--deployment", "test"]) == 0
    checkpoint = str(site.lake / "checkpoint é")
    given = [word for name, value in options.items() for word in ("--option", f"{name}={value}")]
    capsys.readouterr()
    assert main(["export-checkpoint", "orders", checkpoint, *place, *given]) == 0
    said = capsys.readouterr().out
    for part in (f".load('file://{site.source}')", f".option('checkpointLocation', 'file://{checkpoint}')"):
        assert part in said
    assert ("maxFilesPerTrigger" in said) == ("max_files_per_batch" in options)
    site.append_files(12, 3)

    follow(site, checkpoint, "bronze", maxFilesPerTrigger=2)
    assert site.ids("bronze") == list(range(18))
    site.append_files(18, 1)
    follow(site, checkpoint, "bronze", maxFilesPerTrigger=2)
    assert site.ids("bronze") == list(range(20))
