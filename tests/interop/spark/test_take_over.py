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
from airflow_provider_fds.errors import ConfigurationError, FdsError
from airflow_provider_fds.ledger.owner import Actor, Owner
from airflow_provider_fds.sinks import DeltaAppendSink
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.spark.application.job_run import run
from airflow_provider_fds.stream import DeltaStream, StreamContext, StreamSession

if TYPE_CHECKING:
    from collections.abc import Callable

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
        """Add a commit of one file with two rows."""
        table = pa.table({"id": [first, first + 1]})
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
        to = DeltaAppendSink(str(self.lake / sink))
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


def commands(site: Site) -> Callable[..., None]:
    """Return a function that runs ``fds`` at a site."""

    def fds(*arguments: str) -> None:
        place = ("--staging", site.staging, "--deployment", site.deployment)
        assert main([*arguments, *place]) == 0

    return fds


WHY = ("--why", "a move")


# -- forks


def test_a_fork_loads_into_its_own_sink_what_its_stream_has_not_read(site):
    site.append_files(0, 3)
    site.append(6)
    live = site.stream(max_files_per_batch=2)
    site.load(live, "bronze", max_batches=1)
    before = site.ids("bronze")
    audit = live.fork("audit", max_files_per_batch=100)
    site.session(audit).ensure_open()
    site.append(8)

    site.load(audit, "audit")
    site.load(live, "bronze")

    assert len(before) == 4
    assert site.ids("bronze") == list(range(10))
    assert sorted(before + site.ids("audit")) == list(range(10))
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


@pytest.mark.parametrize("options", [{"starting_version": 0}, {}], ids=["commit", "snapshot"])
def test_a_query_reads_on_from_an_exported_checkpoint(site, capsys, options):
    site.append_files(0, 3)
    site.append(6)
    options = {**options, "max_files_per_batch": 2}
    state = site.load(site.stream(**options), "bronze", max_batches=1).connected.state
    assert Offset.from_json(state.position).index == 1
    fds = commands(site)
    fds("hold", "orders", *WHY)
    checkpoint = str(site.lake / "checkpoint é")
    capsys.readouterr()
    fds(
        "admin",
        "export-checkpoint",
        "orders",
        checkpoint,
        *(f"--option={name}={value}" for name, value in options.items()),
    )
    said = capsys.readouterr().out
    for part in (f".load('file://{site.source}')", f".option('checkpointLocation', 'file://{checkpoint}')"):
        assert part in said
    assert ".option('maxFilesPerTrigger', '2')" in said
    site.append(8)

    follow(site, checkpoint, "bronze", maxFilesPerTrigger=2)
    assert site.ids("bronze") == list(range(10))


# -- another deployment goes on


def test_a_stream_that_is_imported_elsewhere_goes_on_there_and_is_refused_where_it_was(site, spark):
    for number in range(3):
        site.append(number * 2)
    stream, there = site.stream(max_files_per_batch=1), Site(spark, site.lake, "other")
    here_fds, there_fds = commands(site), commands(there)
    site.load(stream, "bronze", max_batches=1)
    # a run that has planned, and whose driver comes late
    session, to = site.session(stream), DeltaAppendSink(str(site.lake / "bronze"))
    late = session.job(session.begin(to, max_batches=1), to)
    file = str(site.lake / "orders.fds")
    here_fds("hold", "orders", *WHY)
    here_fds("admin", "export", "orders", file)
    there_fds("admin", "import", file, "--yes")
    there_fds("resume", "orders", *WHY)
    # its batch counts as loaded
    run(spark, JobSpec.from_json(Path(unquote(urlsplit(late).path)).read_bytes()))

    assert there.load(stream, "bronze").connected.state.epoch == 2
    assert site.ids("bronze") == list(range(6))

    site.append(6)
    with pytest.raises(FdsError, match="the stream is held"):
        site.load(stream, "bronze")
    here_fds("resume", "orders", *WHY)
    with pytest.raises(FdsError, match="Nothing was written: another run has continued"):
        site.load(stream, "bronze")
    here_fds("replan", "orders", *WHY, "--yes")
    with pytest.raises(FdsError, match="belongs to a later epoch than 2"):
        site.load(stream, "bronze")
    assert site.ids("bronze") == list(range(6))
    there.load(stream, "bronze")
    assert site.ids("bronze") == list(range(8))


def test_what_the_old_deployment_loads_after_the_export_is_not_loaded_again(site, spark):
    for number in range(2):
        site.append(number * 2)
    stream, there = site.stream(max_files_per_batch=1), Site(spark, site.lake, "other")
    here_fds, there_fds = commands(site), commands(there)
    site.load(stream, "bronze", max_batches=1)
    file = str(site.lake / "orders.fds")
    here_fds("hold", "orders", *WHY)
    here_fds("admin", "export", "orders", file)
    there_fds("admin", "import", file, "--yes")
    there_fds("resume", "orders", *WHY)
    here_fds("resume", "orders", *WHY)
    site.load(stream, "bronze")
    with pytest.raises(FdsError, match="the ledger does not know its manifest"):
        there.load(stream, "bronze")
    there_fds("recover", "orders", "--yes")
    there.load(stream, "bronze")
    site.append(4)
    there.load(stream, "bronze")
    assert site.ids("bronze") == list(range(6))
