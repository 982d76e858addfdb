"""A sink that is created like its source: what a job's spec says of partition columns and properties."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.batch.spec import JobSpec
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink
from airflow_provider_fds.stream.run.like_source import COPIED

if TYPE_CHECKING:
    from airflow_provider_fds.sinks import DeltaSink
    from airflow_provider_fds.stream import DeltaStream
    from tests.unit.stream.conftest import Bench

BOTH = ("partition_by", "properties")
PROPERTIES = {
    "delta.checkpointInterval": "20",
    "delta.enableChangeDataFeed": "true",
    "delta.ENABLETYPEWIDENING": "true",
    "delta.appendOnly": "true",
    "delta.columnMapping.maxColumnId": "7",
    "delta.setTransactionRetentionDuration": "interval 30 days",
    "team": "sales",
}


@pytest.fixture
def partitioned(log_builder: Any) -> None:
    log_builder.create([log_builder.field("id"), log_builder.field("day")], ["day"], PROPERTIES)
    log_builder.append(partitionValues={"day": "1"})


def spec_of(bench: Bench, sink: DeltaSink, stream: DeltaStream | None = None, run: str = "run-1") -> dict[str, Any]:
    """Begin a run; return the sink of its job."""
    session = bench.session(run, stream=stream)
    storage = open_storage(str(bench.staging))
    uri = session.job(session.begin(sink), sink)
    return JobSpec.from_json(storage.get(uri.removeprefix(storage.uri + "/"))[0]).sink


def test_the_first_batch_creates_the_table_with_the_sources_partitions_and_some_properties(
    bench: Bench, partitioned: None, sink: DeltaAppendSink
) -> None:
    spec = spec_of(bench, DeltaAppendSink(sink.uri, like_source=BOTH, properties={"delta.CheckpointInterval": 5}))
    assert spec["partition_by"] == ["day"]
    assert spec["properties"] == {
        "delta.CheckpointInterval": "5",
        "delta.enableChangeDataFeed": "true",
        "delta.enableTypeWidening": "true",
    }
    assert spec["like_source"] == []


def test_what_is_not_asked_for_is_not_copied(bench: Bench, partitioned: None, sink: DeltaAppendSink) -> None:
    spec = spec_of(bench, DeltaAppendSink(sink.uri, like_source=["partition_by"]))
    assert (spec["partition_by"], spec["properties"]) == (["day"], {})
    spec = spec_of(bench, sink, bench.stream("other", allow_overlap=True))
    assert (spec["partition_by"], spec["properties"]) == ([], {})


def test_a_table_with_changes_gets_no_change_feed_of_its_own_but_a_merged_one_does(
    bench: Bench, partitioned: None, sink: DeltaAppendSink
) -> None:
    stream = bench.stream(read_change_feed=True)
    properties = spec_of(bench, DeltaAppendSink(sink.uri, like_source=["properties"]), stream)["properties"]
    assert "delta.enableChangeDataFeed" not in properties
    merged = DeltaMergeSink(f"{sink.uri}-merged", keys=["id"], like_source=["properties"])
    properties = spec_of(bench, merged, bench.stream("merged", read_change_feed=True))["properties"]
    assert properties["delta.enableChangeDataFeed"] == "true"


def test_delta_creates_no_table_with_rows_that_has_column_mapping_and_a_change_feed(
    bench: Bench, log_builder: Any, sink: DeltaAppendSink
) -> None:
    log_builder.create(
        configuration={"delta.columnMapping.mode": "none", "delta.enableChangeDataFeed": "true"},
    )
    log_builder.append()
    asked = DeltaAppendSink(sink.uri, like_source=["properties"])
    assert spec_of(bench, asked)["properties"] == {
        "delta.columnMapping.mode": "none",
        "delta.enableChangeDataFeed": "true",
    }
    own = DeltaAppendSink(sink.uri, like_source=["properties"], properties={"delta.columnMapping.MODE": "name"})
    other = bench.stream("other", allow_overlap=True)
    assert spec_of(bench, own, other)["properties"] == {"delta.columnMapping.MODE": "name"}


def test_later_batches_do_not_read_the_source_for_it(
    bench: Bench, partitioned: None, log_builder: Any, sink: DeltaAppendSink
) -> None:
    sink = DeltaAppendSink(sink.uri, like_source=BOTH)
    bench.run_once(sink)
    log_builder.append(partitionValues={"day": "2"})
    spec = spec_of(bench, sink, run="run-2")
    assert (spec["partition_by"], spec["properties"], spec["like_source"]) == ([], {}, [])


@pytest.mark.parametrize(
    ("options", "columns", "whose"), [({"columns": ["id"]}, (), "stream"), ({}, ("id",), "sink"), ({}, ("ID",), "sink")]
)
def test_a_partition_column_that_is_left_out_is_refused_before_spark_starts(
    bench: Bench, partitioned: None, sink: DeltaAppendSink, options: Any, columns: tuple[str, ...], whose: str
) -> None:
    with pytest.raises(ConfigurationError, match=f"by day, but columns of the {whose} leaves out day"):
        spec_of(bench, DeltaAppendSink(sink.uri, columns=columns, like_source=BOTH), bench.stream(**options))


def test_the_page_lists_the_properties_that_are_copied() -> None:
    page = (Path(__file__).parents[4] / "docs" / "sinks.md").read_text(encoding="utf-8")
    section = page.split("## Tables like the source", 1)[1].split("\n## ", 1)[0]
    copied = section.split("never copied", 1)[0]
    assert [name for name in COPIED if f"`{name}`" not in copied] == []
