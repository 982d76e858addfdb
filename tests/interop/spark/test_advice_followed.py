"""What a message about the sink says is typed as it stands, and each row of the source is in the sink once again."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from airflow_provider_fds.cli.main import main
from airflow_provider_fds.errors import FdsError
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink
from airflow_provider_fds.spark.application.job_run import run
from tests.interop.spark.test_epochs import EACH_ONCE, Desk, clean_up_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.interop.spark.conftest import Prepared

COMMAND = re.compile(r"`(fds [a-z-]+ [^`]+)`")


@pytest.fixture
def kind() -> str:
    """How the sink takes a batch, unless a test says it."""
    return "append"


@pytest.fixture
def desk(spark: SparkSession, prepared: Prepared, kind: str) -> Desk:
    """Twenty rows are in the sink, loaded as its versions 0 and 1, and ten more in the source."""

    def make(folder: Path) -> Desk:
        desk = Desk(spark, folder)
        desk.sink = DeltaMergeSink(desk.path, keys=["id"]) if kind == "merge" else DeltaAppendSink(desk.path)
        for first in (0, 10):
            desk.append(first)
        desk.load()
        desk.append(20)
        return desk

    return prepared.begin(kind, make)


def refused(desk: Desk) -> str:
    with pytest.raises(FdsError) as error:
        desk.load()
    return str(error.value)


def follow(desk: Desk, message: str, number: int | None = None, which: int = 0) -> None:
    """Type a command of a message, with a version or batch where it leaves one open."""
    command = COMMAND.findall(message)[which]
    # what is read again is not in the sink any more
    values = {
        "…": "a test",
        "N": str(number),
        "batch:N": f"batch:{number}",
        "URI": "",
        "keep|delete|empty": "keep",
        "keep|empty": "keep",
    }
    words = [values.get(word, word) for word in shlex.split(command)[1:]]
    for option, value in (("--sink", desk.path), ("--table", desk.source)):
        if "URI" in command:
            words[words.index(option) + 1] = value
    assert main([*words, "--staging", desk.staging, "--deployment", "test", "--yes"]) == 0


def test_a_restore_that_kept_all_committed_rows(desk, spark):
    spark.sql(f"ALTER TABLE {desk.table} SET TBLPROPERTIES ('a' = 'b')")
    spark.sql(f"RESTORE TABLE {desk.table} TO VERSION AS OF 1")
    message = refused(desk)
    assert "had a RESTORE at version 3" in message
    assert "committed rows are still there" in message
    follow(desk, message)
    desk.load()
    assert desk.ids() == EACH_ONCE


@pytest.mark.parametrize("kind", ["merge"])
def test_a_restore_that_took_committed_rows(desk):
    desk.restore(0)
    message = refused(desk)
    assert "loaded rows may be missing" in message
    follow(desk, message, 1)
    desk.load()
    assert desk.ids() == EACH_ONCE


@pytest.mark.parametrize("others", [0, 2])
def test_a_sink_that_was_restored_from_a_copy(spark, tmp_path, desk, others):
    folder, path = Path(desk.path), tmp_path / "copy"
    shutil.copytree(folder, path)
    newest = max((path / "_delta_log").glob("*1.json"))
    newest.unlink()
    for checksum in [*(path / "_delta_log").glob("*1.crc"), *(path / "_delta_log").glob(".*1.*crc")]:
        checksum.unlink()
    shutil.rmtree(folder)
    shutil.copytree(path, folder)
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    for _ in range(others):
        spark.sql(f"ALTER TABLE {desk.table} SET TBLPROPERTIES ('a' = 'b')")
    message = refused(desk)
    assert ("out of order" if others else "was restored from a copy, or created again") in message
    assert "--to batch:1 " in message
    follow(desk, message)
    desk.load()
    assert desk.ids() == EACH_ONCE


@pytest.mark.parametrize(("kind", "happened"), [("merge", "gone"), ("append", "created again")])
def test_a_sink_that_is_not_the_table_that_was_loaded(desk, spark, happened):
    shutil.rmtree(desk.path)
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    if happened == "created again":
        for _ in range(3):
            spark.sql("SELECT 100L AS id, 'x' AS name").write.format("delta").mode("append").save(desk.path)
    message = refused(desk)
    assert ("is missing" if happened == "gone" else "is another table") in message
    follow(desk, message)
    desk.load()
    assert [number for number in desk.ids() if number != 100] == EACH_ONCE


def test_a_ledger_that_is_older_than_the_sink(desk, tmp_path):
    ledger, copy = Path(desk.staging, "orders", "ledger"), tmp_path / "copy"
    shutil.copytree(ledger, copy)
    desk.load()
    shutil.rmtree(ledger)
    shutil.copytree(copy, ledger)
    desk.append(30)
    # other batches than the ones that are there
    desk.options = {"starting_version": 0, "max_versions_per_batch": 2}
    message = refused(desk)
    assert "the ledger is older than the sink" in message
    follow(desk, message)
    desk.load()
    assert desk.ids() == list(range(40))


@pytest.mark.parametrize("kind", ["append", "merge"])
def test_a_batch_that_landed_and_whose_commit_log_cleanup_took(desk, spark):
    run(spark, desk.zombie())
    for name in "abc":
        spark.sql(f"ALTER TABLE {desk.table} SET TBLPROPERTIES ('{name}' = 'x')")
    clean_up_log(desk, before=4)
    message = refused(desk)
    assert "log cleanup removed the commit" in message
    follow(desk, message)
    desk.load()
    assert desk.ids() == EACH_ONCE


@pytest.mark.parametrize(
    ("kind", "version", "way"),
    [
        ("append", 0, "read them again"),
        ("append", 2, "keep them"),
        ("merge", 2, "read them again"),
        ("merge", 0, "empty the sink"),
    ],
)
def test_a_batch_that_landed_and_would_be_read_again(desk, spark, kind, version, way):
    if version == 0:
        shutil.rmtree(desk.staging)
        shutil.rmtree(desk.path)
        spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    late = desk.zombie()
    desk.move("rewind", to="start", **({"sink_rows": "keep"} if kind == "merge" else {}))
    run(spark, late)
    message = refused(desk)
    assert "never committed" in message
    assert ("The last version of the sink without them is 1." in message) == (kind == "append" and version > 0)
    follow(desk, message, which=["keep them", "read them again", "empty the sink"].index(way))
    desk.load()
    assert desk.ids() == EACH_ONCE


@pytest.mark.parametrize("kind", ["merge"])
def test_a_replan_of_a_sink_that_lacks_committed_batches(desk):
    desk.restore(0)
    desk.move("replan")
    message = refused(desk)
    assert "committed rows may be missing" in message
    follow(desk, message, 1)
    desk.load()
    assert desk.ids() == EACH_ONCE


@pytest.mark.parametrize("kind", ["merge"])
def test_rows_that_another_writer_removed(desk, spark):
    spark.sql(f"DELETE FROM {desk.table} WHERE id >= 10")
    desk.load()
    (warning,) = desk.entries("committed")[-1].action.measures.warnings
    follow(desk, warning, 1)
    desk.load()
    assert desk.ids() == EACH_ONCE
