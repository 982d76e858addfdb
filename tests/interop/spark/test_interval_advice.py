"""What a message says of the sink of data intervals is done, and each row of the source is in the sink once again."""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import deltalake
import pyarrow as pa
import pytest

from airflow_provider_fds.batch.spec import JobSpec
from airflow_provider_fds.errors import BatchFailedError, LedgerError
from airflow_provider_fds.ledger.owner import Actor, Owner
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaReplaceSink
from airflow_provider_fds.spark.application.job_run import run
from airflow_provider_fds.stream import DataInterval, DeltaStream, StreamContext, StreamSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_provider_fds.sinks import DeltaSink

START = datetime(2024, 1, 1, tzinfo=UTC)


class Days:
    """A source with ten rows per interval, and runs of the intervals."""

    def __init__(self, spark: SparkSession, folder: Path, kind: type[DeltaSink], **options: Any) -> None:
        self.spark, self.folder = spark, folder
        self.sink = kind(str(folder / "sink"), **options)
        self.name = "days"
        self._runs = 0
        for version in range(4):
            table = pa.table({"id": list(range(version * 10, version * 10 + 10))})
            deltalake.write_deltalake(folder / "source", table, mode="append")
            time = (START + timedelta(minutes=version)).timestamp()
            os.utime(folder / "source" / "_delta_log" / f"{version:020}.json", (time, time))

    def load(self, *numbers: int, minutes: int = 1) -> None:
        """Run intervals, or clear their runs; each has so many minutes."""
        for number in numbers:
            self._runs += 1
            owner = Owner(kind="airflow", deployment="test", dag_id="d", run_id=f"r{self._runs}", task_id="t")
            context = StreamContext(
                staging_uri=str(self.folder / "staging"),
                deployment="test",
                actor=Actor(deployment="test", user="ann", host="desk"),
                owner=owner,
                owner_is_running=lambda _owner: False,
            )
            begin = START + timedelta(minutes=number)
            overlaps = self.name == "days2" and isinstance(self.sink, DeltaAppendSink)
            table = str(self.folder / "source")
            stream = DeltaStream(self.name, table=table, read="data_interval", allow_overlap=overlaps)
            session = StreamSession(stream, context, DataInterval(begin, begin + timedelta(minutes=minutes)))
            work = session.begin(self.sink)
            if work.status != "work":
                continue
            job = Path(unquote(urlsplit(session.job(work, self.sink)).path)).read_bytes()
            run(self.spark, JobSpec.from_json(job))
            if (failure := session.collect(work).failure) is not None:
                raise failure

    def refused(self, number: int) -> str:
        with pytest.raises(BatchFailedError) as error:
            self.load(number)
        return str(error.value)

    def ids(self) -> list[int]:
        return sorted(deltalake.DeltaTable(self.sink.uri).to_pyarrow_table(columns=["id"]).column("id").to_pylist())


MISSING = "and clearing the runs of the data intervals that the sink lacks"


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param("RESTORE TABLE {} TO VERSION AS OF 0", id="restored"),
        pytest.param("DELETE FROM {} WHERE id >= 10", id="deleted from"),
    ],
)
def test_an_appending_sink_that_lacks_intervals_gets_them_under_another_name_of_the_stream(spark, tmp_path, statement):
    days = Days(spark, tmp_path, DeltaAppendSink, on_sink_overwritten="fail")
    days.load(0, 1)
    spark.sql(statement.format(f"delta.`{days.sink.uri}`"))
    assert MISSING in days.refused(2)
    # what is done returns its result, and writes nothing
    days.load(1)
    assert days.ids() == list(range(10))

    days.name = "days2"
    days.load(1, 2)
    assert days.ids() == list(range(30))


def test_a_replacing_sink_that_is_gone_is_loaded_under_another_name_of_the_stream(spark, tmp_path):
    days = Days(spark, tmp_path, DeltaReplaceSink, provenance=True)
    days.load(0, 1)
    shutil.rmtree(days.sink.uri)
    message = days.refused(1)
    assert "giving the stream another name and clearing the runs of all data intervals" in message

    days.name = "days2"
    days.load(0, 1, 2)
    assert days.ids() == list(range(30))


def test_an_older_copy_of_a_replacing_sink_is_loaded_under_another_name_of_the_stream(spark, tmp_path):
    days = Days(spark, tmp_path, DeltaReplaceSink, provenance=True)
    days.load(0)
    shutil.copytree(days.sink.uri, tmp_path / "copy")
    days.load(1)
    shutil.rmtree(days.sink.uri)
    (tmp_path / "copy").rename(days.sink.uri)
    assert MISSING in days.refused(1)

    days.name = "days2"
    days.load(1, 2)
    assert days.ids() == list(range(30))


def test_runs_with_overlapping_intervals_do_not_append_their_rows_twice(spark, tmp_path):
    days = Days(spark, tmp_path, DeltaAppendSink)
    days.load(0, 1)
    with pytest.raises(LedgerError, match=r"versions 0 to 1 are|version 0 is .*duplicated"):
        days.load(0, minutes=3)
    assert days.ids() == list(range(20))

    # as the message says
    days.load(2)
    assert days.ids() == list(range(30))


@pytest.mark.parametrize("way", ["partitions", "predicate", "versions"])
def test_an_interval_that_replaces_rows_of_others_warns(spark, tmp_path, way, caplog):
    options = {
        "partitions": {"dynamic_partition_overwrite": True, "partition_by": ["day"]},
        "predicate": {"replace_where": "id >= 0"},
        "versions": {"provenance": True},
    }[way]
    (tmp_path / "of_days.py").write_text("def with_day(rows):\n    return rows.selectExpr('*', '1 AS day')\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        days = Days(spark, tmp_path, DeltaReplaceSink, transform="of_days:with_day", **options)
        days.load(0, 1)
        # cleared: it replaces what it has written itself
        days.load(1)
    told = [record.getMessage() for record in caplog.records if "has replaced rows of interval" in record.getMessage()]
    if way == "versions":
        assert (told, days.ids()) == ([], list(range(20)))
        return
    assert days.ids() == list(range(10, 20))
    (message,) = told
    assert "interval 2024-01-01T00:01:00.000Z/2024-01-01T00:02:00.000Z of stream 'days'" in message
    assert "replaced rows of interval 2024-01-01T00:00:00.000Z/2024-01-01T00:01:00.000Z: it replaces more" in message
