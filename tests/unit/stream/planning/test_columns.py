"""A stream that reads some columns."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink, DeltaReplaceSink, ForeachBatchSink
from airflow_provider_fds.stream import DataInterval, DeltaStream, StreamSession
from airflow_provider_fds.stream.declaration.sink_needs import missing_columns_problem

if TYPE_CHECKING:
    from tests.unit.stream.conftest import Bench


def columns_of(bench: Bench, **options: Any) -> list[str]:
    """Plan a batch; return the columns that its manifest has."""
    session = bench.session(stream=bench.stream(**options))
    work = session.begin(DeltaAppendSink(str(bench.staging.parent / "sink")))
    (spec,) = session.scope.specs(work.batches)
    folder = Path(spec.manifest.removeprefix("file://"))
    head = (folder / "_delta_log" / f"{0:020d}.json").read_text().splitlines()[1]
    return [field["name"] for field in json.loads(json.loads(head)["metaData"]["schemaString"])["fields"]]


def test_its_batches_have_only_these_columns(bench: Bench, log_builder: Any) -> None:
    names = ("id", "name", "day")
    kinds = [{"name": name, "type": "string", "nullable": True, "metadata": {}} for name in names]
    log_builder.create(kinds)
    log_builder.append()
    assert columns_of(bench) == [*names, "_commit_version", "_commit_timestamp"]
    assert columns_of(bench, name="two", columns="DAY,id") == ["id", "day", "_commit_version", "_commit_timestamp"]


def test_an_unknown_column_stops_it_before_anything_is_planned(bench: Bench, two_appends: Any) -> None:
    session = bench.session(stream=bench.stream(columns=["nonsense"]))
    with pytest.raises(ConfigurationError, match="names 'nonsense'") as caught:
        session.begin(DeltaAppendSink(str(bench.staging.parent / "sink")))
    assert caught.value.table == open_storage(str(bench.table)).uri
    assert session.connected.load().planned == ()


@pytest.mark.parametrize(
    ("sink", "missing"),
    [
        (DeltaMergeSink("/sink", keys=["ID", "_change_type"]), None),
        (DeltaMergeSink("/sink", keys=["id", "country"], sequence_by="ts"), "country, ts. Add them to"),
        (DeltaMergeSink("/sink", keys=["country"], transform="pkg.module:function"), None),
        (DeltaAppendSink("/sink", columns=["id", "name"]), "needs name. Add it to"),
        (DeltaAppendSink("/sink", partition_by=["name"]), None),
        (DeltaAppendSink("/sink", constant_columns={"ID": 1}), "columns ID, which constant_columns of its"),
        (DeltaAppendSink("/sink", constant_columns={"ID": 1}, transform="pkg.module:function"), None),
        (DeltaMergeSink("/sink", keys=["id", "system"], constant_columns={"system": "crm"}), None),
        (DeltaReplaceSink("/sink", provenance=True, columns=["name"]), "needs name. Add it to"),
        (ForeachBatchSink("pkg.module:function"), None),
    ],
)
def test_a_stream_must_read_the_columns_that_its_sink_names(bench: Bench, sink: Any, missing: str | None) -> None:
    problem = missing_columns_problem(bench.stream(columns=["Id"]), sink)
    assert problem is None if missing is None else missing in str(problem)
    assert missing_columns_problem(bench.stream(), sink) is None


def test_a_merge_without_its_key_is_refused_before_the_stream_exists(bench: Bench, two_appends: Any) -> None:
    session = bench.session(stream=bench.stream(columns=["name"]))
    with pytest.raises(ConfigurationError, match="its DeltaMergeSink needs id"):
        session.begin(DeltaMergeSink(str(bench.staging.parent / "sink"), keys=["id"]))
    assert not list(bench.staging.rglob("*.json"))


def test_an_interval_whose_sink_needs_another_column_is_refused(bench: Bench, two_appends: Any) -> None:
    stream = DeltaStream("days", table=str(bench.table), read="data_interval", columns=["name"])
    interval = DataInterval(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))
    session = StreamSession(stream, bench.session().context, interval)
    with pytest.raises(ConfigurationError, match="its DeltaReplaceSink needs id"):
        session.begin(DeltaReplaceSink("/sink", provenance=True, columns=["id"]))


def test_staging_has_no_statistics_of_columns_either_from_commits_or_from_the_initial_snapshot(
    bench: Bench, log_builder: Any
) -> None:
    log_builder.create()
    secret = "Jane Doe"
    stats = json.dumps({"numRecords": 7, "minValues": {"id": secret}, "maxValues": {"id": secret}, "nullCount": {}})
    log_builder.commit(log_builder.add("a.parquet", stats=stats))
    for name, options, is_there in (
        ("all", {}, True),
        ("some", {"columns": "id"}, False),
        ("none", {"stage_statistics": False}, False),
    ):
        stream = bench.stream(name, **options, starting_version=None)
        session = bench.session(stream=stream)
        work = session.begin(DeltaAppendSink(str(bench.staging.parent / name)))
        (spec,) = session.scope.specs(work.batches)
        assert spec.num_rows == 7
        files = [path.read_bytes() for path in (bench.staging / name).rglob("*") if path.is_file()]
        assert any(b"PAR1" in data for data in files)
        assert any(secret.encode() in data for data in files) is is_there
