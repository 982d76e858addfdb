"""A source with a few commits, its batches as FDS plans them, and jobs that load them into a sink."""

from __future__ import annotations

import copy
import json
import shutil
import sys
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import pytest

from airflow_provider_fds.batch.manifest.manifest import build_manifest
from airflow_provider_fds.batch.manifest.publish import manifest_folder, write_manifest
from airflow_provider_fds.batch.report import AttemptReport, decode, report_name, started_name
from airflow_provider_fds.batch.spec import BatchSpec, JobSpec, job_name
from airflow_provider_fds.batch.transactions import txn_version
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.reader.snapshot import freeze_snapshot
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.sinks import DeltaAppendSink
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.source.options.options import SourceOptions
from airflow_provider_fds.source.planned import SourceBatch
from airflow_provider_fds.source.planning.plan import BatchPlanner
from airflow_provider_fds.spark.application.job_run import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

ROWS_PER_COMMIT = 10

Made = TypeVar("Made")
Key = TypeVar("Key")


@pytest.fixture(scope="session")
def source_template(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three commits of ten rows: id, name, p; tests that change it use a copy."""
    path = tmp_path_factory.mktemp("source é %20 ") / "orders"
    for commit in range(3):
        first = commit * ROWS_PER_COMMIT
        frame = spark.range(first, first + ROWS_PER_COMMIT, 1, 1).selectExpr(
            "id", "concat('name ', id) AS name", "id % 2 AS p"
        )
        frame.write.format("delta").mode("append").save(str(path))
    return path


@pytest.fixture
def adaptive(spark: SparkSession) -> Iterator[None]:
    """Let Spark change its plans while it runs them, as it does for users."""
    key = "spark.sql.adaptive.enabled"
    before = spark.conf.get(key)
    spark.conf.set(key, "true")
    yield
    spark.conf.set(key, before)


def ids_of(frames: Mapping[Key, Iterable[DataFrame]]) -> dict[Key, list[int]]:
    """Return the sorted ids of the rows of frames, by key; one Spark job reads them all."""
    marked = [
        frame.selectExpr("id", f"{number} AS number") for number, those in enumerate(frames.values()) for frame in those
    ]
    rows = reduce(lambda one, other: one.union(other), marked).collect() if marked else []
    found: dict[Key, list[int]] = {key: [] for key in frames}
    keys = list(frames)
    for row in rows:
        found[keys[row.number]].append(row.id)
    return {key: sorted(ids) for key, ids in found.items()}


class Prepared:
    """A folder for one test after another, which begin with what was made in it once.

    Ledgers and manifests have absolute URIs, so what was made is only right in the folder where it was made.
    """

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self._spark, self._root = spark, root
        self._made: dict[str, Any] = {}

    def begin(self, name: str, make: Callable[[Path], Made]) -> Made:
        """Return a copy of what ``make`` returned for the folder, with the folder as it was then."""
        folder, kept = self._root / "folder", self._root / name
        shutil.rmtree(folder, ignore_errors=True)
        # Delta remembers the tables of the test before
        self._spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
        if name in self._made:
            shutil.copytree(kept, folder)
        else:
            folder.mkdir()
            self._made[name] = make(folder)
            shutil.copytree(folder, kept)
        return copy.copy(self._made[name])


@pytest.fixture(scope="module")
def prepared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    """The folder of the module's tests."""
    return Prepared(spark, tmp_path_factory.mktemp("prepared"))


@dataclass(frozen=True)
class Begun:
    """What the first job of a stream left: its sink, and what it reported."""

    sink: Path
    uuid: str
    reports: list[AttemptReport]


class Stream:
    """One stream in its own folder: plans batches, runs jobs in the session, reads the reports.

    Args:
        folder: Of the stream.
        source: Its table.
        begun: By the number of batches, what :meth:`begin` has made for the streams of this source.
    """

    def __init__(self, folder: Path, source: Path, begun: dict[int, Begun] | None = None) -> None:
        self.folder = folder
        self.source = source
        self._begun = {} if begun is None else begun
        self.uuid = str(uuid4())
        self.staging = LocalStorage(str(folder / "staging"))
        self.sink_path = folder / "sink é %20"
        self.reports = folder / "staging" / "orders" / "attempts"
        self.options: dict[str, Any] = {"max_versions_per_batch": 1}
        self._tries = 0

    @property
    def sink(self) -> DeltaAppendSink:
        return DeltaAppendSink(str(self.sink_path))

    def plan(
        self, epoch: int = 1, first_id: int = 0, *, from_snapshot: bool = False, **changes: Any
    ) -> list[BatchSpec]:
        """One batch per commit of the source, consecutive, the first one without a predecessor in the sink."""
        log = DeltaLog(LocalStorage(str(self.source)))
        first = log.latest() if from_snapshot else 0
        state = log.state_at(first)
        table_id = state.metadata.id
        start = Offset(table_id, first, is_initial_snapshot=True) if from_snapshot else Offset.after(-1, table_id)
        frozen = freeze_snapshot(log, first, self.staging, "orders/snapshots") if from_snapshot else None
        options = SourceOptions.parse(self.options)
        batches: list[BatchSpec] = []
        for planned in BatchPlanner(
            log, start, state, options, log.latest(), snapshot=frozen, snapshot_storage=self.staging
        ):
            if not planned.files:
                continue
            manifest = build_manifest(
                planned, table_uri=log.table_uri, columns=options.columns, stats=options.keeps_statistics
            )
            number = first_id + len(batches)
            folder = f"orders/{manifest_folder(epoch, number, manifest.digest)}"
            batch = BatchSpec(
                stream="orders",
                uuid=self.uuid,
                epoch=epoch,
                batch_id=number,
                start=planned.start.to_json(),
                end=planned.end.to_json(),
                after=planned.start.to_json(),
                first_version=planned.first_version,
                last_version=planned.last_version,
                manifest=write_manifest(manifest, self.staging, folder),
                manifest_digest=manifest.digest,
                num_files=planned.num_files,
                num_bytes=planned.num_bytes,
                num_rows=planned.num_rows,
                prev_txn_version=txn_version(epoch, number - 1) if batches else None,
                where=planned.where or None,
            )
            batches.append(replace(batch, **changes))
        return batches

    def empty(self) -> BatchSpec:
        """A batch whose manifest lists no file, like that of a data interval without commits."""
        log = DeltaLog(LocalStorage(str(self.source)))
        start = Offset(log.state_at(0).metadata.id, 1)
        manifest = build_manifest(
            SourceBatch(start, start, (), log.state_at(0), (), 1, 0, "", ""), table_uri=log.table_uri
        )
        place = write_manifest(manifest, self.staging, f"orders/{manifest_folder(1, 0, manifest.digest)}")
        return replace(self.plan()[0], manifest=place, manifest_digest=manifest.digest, num_files=0, num_bytes=0)

    def begin(self, spark: SparkSession, count: int = 1) -> list[AttemptReport]:
        """Let the sink have the first batches as a first job leaves it, and return the reports; call it before `plan`.

        One job writes them for the streams of all tests, which get copies.
        """
        if (made := self._begun.get(count)) is None:
            code, reports = self.work(spark, self.job(*self.plan()[:count]))
            assert code == 0, reports
            made = self._begun[count] = Begun(self.source.parent / f"begun {count}", self.uuid, reports)
            shutil.copytree(self.sink_path, made.sink)
        else:
            self.uuid, self._tries = made.uuid, 1
            shutil.copytree(made.sink, self.sink_path)
        return made.reports

    def job(self, *batches: BatchSpec, sink: DeltaAppendSink | None = None, **fields: Any) -> JobSpec:
        """A spec for a new attempt."""
        self._tries += 1
        return JobSpec(
            batches=batches,
            sink=(sink or self.sink).to_dict(),
            **{
                "sink_table_id": None,
                "sink_version": None,
                "reports": self.reports.as_uri(),
                "attempt_id": f"try-{self._tries}",
                **fields,
            },
        )

    def after(self, report: AttemptReport) -> dict[str, Any]:
        """What the ledger knows of the sink once the batch of ``report`` is committed."""
        return {"sink_table_id": report.sink_table_id, "sink_version": report.sink_version}

    def work(self, spark: SparkSession, spec: JobSpec) -> tuple[int, list[AttemptReport]]:
        """Run a job in this session; return its exit code and its reports."""
        code = run(spark, spec)
        return code, self.read_reports(spec)

    def read_reports(self, spec: JobSpec) -> list[AttemptReport]:
        paths = [self.reports / report_name(b.epoch, b.batch_id, spec.attempt_id) for b in spec.batches]
        return [decode(AttemptReport, path.read_bytes()) for path in paths if path.exists()]

    def was_started(self, spec: JobSpec, batch: BatchSpec) -> bool:
        return (self.reports / started_name(batch.epoch, batch.batch_id, spec.attempt_id)).exists()

    def save(self, spec: JobSpec) -> str:
        """Write the spec to a file; return its URI."""
        data = spec.to_json()
        path = self.folder / job_name(spec.attempt_id, data)
        path.write_bytes(data)
        return path.as_uri()

    def sink_commits(self) -> list[dict[str, Any]]:
        """The actions of each commit of the sink."""
        logs = sorted((self.sink_path / "_delta_log").glob("*.json"))
        return [{k: v for line in log.read_text().splitlines() for k, v in json.loads(line).items()} for log in logs]


@pytest.fixture(scope="session")
def begun() -> dict[int, Begun]:
    """What the streams of the shared source begin with, by the number of batches."""
    return {}


@pytest.fixture
def stream(tmp_path: Path, source_template: Path, begun: dict[int, Begun]) -> Stream:
    """A stream of the shared source."""
    return Stream(tmp_path, source_template, begun)


@pytest.fixture
def stream_of_a_copy(tmp_path: Path, source_template: Path) -> Stream:
    """A stream with its own source, which may be damaged."""
    source = tmp_path / "source"
    shutil.copytree(source_template, source)
    return Stream(tmp_path, source)


@pytest.fixture
def joined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[DataFrame], tuple[str, str]]]:
    """Saves a frame as a table; returns its path, and a transform that joins it to the rows by their id."""
    table = str(tmp_path / "joined")

    def save(frame: DataFrame) -> tuple[str, str]:
        frame.write.format("delta").save(table)
        (tmp_path / "joining_functions.py").write_text(
            f"def joined(df):\n    return df.join(df.sparkSession.read.format('delta').load({table!r}), 'id', 'left')\n"
        )
        return table, "joining_functions:joined"

    monkeypatch.syspath_prepend(tmp_path)
    yield save
    sys.modules.pop("joining_functions", None)
