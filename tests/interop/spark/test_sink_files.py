"""A commit of the sink lists files that are not there, as if a Spark worker lacked the mount of the sink's folder.

Nothing of it is taken for loaded, and both ways that the message names load each row once.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pytest

from airflow_provider_fds.errors import BatchRejectedError, FdsError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink, DeltaReplaceSink
from airflow_provider_fds.spark.fence import close_epochs
from airflow_provider_fds.spark.writers import delta_append_writer
from tests.interop.spark.test_advice_followed import follow
from tests.interop.spark.test_epochs import EACH_ONCE, Desk
from tests.interop.spark.test_interval_advice import Days

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tests.interop.spark.conftest import Prepared


class Unmounted:
    """From a point in the driver on, new files of a sink are on the disk of another machine."""

    def __init__(
        self, folder: Path, there: Path, monkeypatch: pytest.MonkeyPatch, module: Any, point: str, files: str
    ) -> None:
        self.folder, self.there, self.files = folder, there, files
        self._point, self._patch = point, monkeypatch
        self._before = set(self._files()) if folder.exists() else set()
        self._module, self._reach = module, module.reach
        monkeypatch.setattr(module, "reach", self._at)

    def _files(self) -> list[Path]:
        return sorted(self.folder.rglob(self.files))

    def _at(self, point: str) -> None:
        if point == self._point:
            for file in set(self._files()) - self._before:
                kept = self.there / file.relative_to(self.folder)
                kept.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(file, kept)
        self._reach(point)

    def mount(self) -> None:
        self._patch.setattr(self._module, "reach", self._reach)

    def move_back(self) -> None:
        shutil.copytree(self.there, self.folder, dirs_exist_ok=True)


@pytest.fixture
def unmount(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Unmounted]:
    def unmounted(
        folder: str,
        module: Any = delta_append_writer,
        point: str = "driver.commit.after",
        files: str = "*.parquet",
    ) -> Unmounted:
        return Unmounted(Path(folder), tmp_path / "worker", monkeypatch, module, point, files)

    return unmounted


@pytest.fixture
def kind() -> str:
    return "append"


@pytest.fixture
def desk(spark: SparkSession, prepared: Prepared, kind: str) -> Desk:
    """Ten rows are in the sink, loaded as its version 0, and twenty more in the source."""

    def make(folder: Path) -> Desk:
        desk = Desk(spark, folder)
        desk.sink = DeltaMergeSink(desk.path, keys=["id"]) if kind == "merge" else DeltaAppendSink(desk.path)
        desk.append(0)
        desk.load()
        for first in (10, 20):
            desk.append(first)
        return desk

    return prepared.begin(kind, make)


def refused(desk: Desk) -> FdsError:
    with pytest.raises(FdsError) as error:
        desk.load()
    return error.value


def missing(desk: Desk) -> str:
    """A run whose first batch has no files; the ledger does not take it for loaded, and neither does the next run."""
    error = refused(desk)
    assert isinstance(error, BatchRejectedError)
    assert (error.reason_code, error.retryable) == (Reason.SINK_FILES_MISSING, False)
    assert len(desk.entries("committed")) == 1
    return str(error)


@pytest.mark.usefixtures("adaptive")
@pytest.mark.parametrize("kind", ["append", "merge"])
def test_files_that_a_spark_worker_wrote_elsewhere_are_missed_and_moved_into_the_sink(desk, unmount):
    sink = unmount(desk.path)
    message = missing(desk)
    assert "epoch 1, batch 1 is in the sink" in message
    assert "as version 1, but 1 of its 1 data files are not there (part-" in message
    sink.mount()
    assert missing(desk) == message

    sink.move_back()
    desk.load()
    assert desk.ids() == EACH_ONCE
    assert len(desk.entries("committed")) == 3


@pytest.mark.parametrize("kind", ["append", "merge"])
def test_lost_files_are_loaded_again_once_the_sink_is_restored_to_before_them(desk, unmount):
    sink = unmount(desk.path)
    message = missing(desk)
    sink.mount()
    assert "restore version 0 of the sink, the last without this commit" in message
    desk.restore(0)
    follow(desk, message)
    desk.load()
    assert desk.ids() == EACH_ONCE


def test_a_deletion_vector_that_a_spark_worker_wrote_elsewhere_is_missed(spark, tmp_path, unmount):
    desk = Desk(spark, tmp_path)
    desk.sink = DeltaMergeSink(desk.path, keys=["id"], properties={"delta.enableDeletionVectors": "true"})
    desk.append(0)
    desk.load()
    # rows with the same keys, whose former values are deleted
    desk.append(5)
    sink = unmount(desk.path, files="deletion_vector_*.bin")
    assert "data files are not there (deletion_vector_" in missing(desk)
    sink.mount()
    sink.move_back()
    desk.load()
    rows = spark.read.format("delta").load(desk.path).orderBy("id").collect()
    assert [row.id for row in rows] == list(range(15))


def test_an_epoch_does_not_begin_after_a_batch_without_its_files(desk, unmount):
    sink = unmount(desk.path)
    missing(desk)
    sink.mount()
    desk.move("replan")
    message = str(refused(desk))
    assert "epoch 1, batch 1 is in the sink" in message
    assert "data files are not there" in message
    assert len(desk.entries("committed")) == 1

    desk.restore(0)
    desk.load()
    assert desk.ids() == EACH_ONCE


def test_the_first_batch_of_a_sink_is_loaded_again_once_the_sink_is_removed(spark, tmp_path, unmount):
    desk = Desk(spark, tmp_path)
    desk.append(0)
    sink = unmount(desk.path)
    message = str(refused(desk))
    sink.mount()
    assert f"remove file:{desk.path}, whose first commit this is" in message
    shutil.rmtree(desk.path)
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    desk.load()
    assert desk.ids() == list(range(10))


def test_an_interval_without_its_files_is_replaced_again_once_the_sink_is_restored(spark, tmp_path, unmount):
    days = Days(spark, tmp_path, DeltaReplaceSink, provenance=True)
    days.load(0)
    sink = unmount(days.sink.uri)
    message = days.refused(1)
    sink.mount()
    assert "restore version 0 of the sink, the last without this commit" in message
    assert "clearing the runs of their data intervals" in message
    deltalake.DeltaTable(days.sink.uri).restore(0)
    days.load(1, 2)
    assert days.ids() == EACH_ONCE


def test_a_fence_whose_rewritten_rows_are_elsewhere_is_not_taken_for_done(spark, tmp_path, unmount):
    desk = Desk(spark, tmp_path)
    desk.options = {"starting_version": 0}
    for first in (0, 10, 20):
        desk.append(first)
    desk.load()
    spark.sql(f"OPTIMIZE {desk.table}")
    # the file with all rows is rewritten without the removed ones
    desk.move("rewind", to=1, sink_rows="delete")
    sink = unmount(desk.path, close_epochs, "fence.commit.after")
    message = str(refused(desk))
    assert "the fence of epoch 2 is in the sink" in message
    assert "data files are not there" in message
    sink.mount()
    sink.move_back()
    desk.load()
    assert desk.ids() == EACH_ONCE


def test_a_file_of_another_size_is_not_there(spark, stream):
    first = stream.plan()[0]
    sink = DeltaAppendSink(str(stream.sink_path), partition_by=["name"])
    spec = stream.job(first, sink=sink)
    assert stream.work(spark, spec)[0] == 0
    file = max(stream.sink_path.rglob("*.parquet"))
    file.write_bytes(file.read_bytes()[:-1])
    code, (report,) = stream.work(spark, replace(spec, attempt_id="again"))
    assert (code, report.outcome, report.reason) == (11, "failed", Reason.SINK_FILES_MISSING)
    assert "but 1 of its 10 data files are not there (name=name " in report.error_message
