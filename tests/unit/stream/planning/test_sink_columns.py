"""A batch that does not fit the columns of the sink is refused when it is planned, where the sink can be read."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider_fds.cli.main import main
from airflow_provider_fds.errors import SchemaMismatchError
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaMergeSink, DeltaReplaceSink
from airflow_provider_fds.stream import DataInterval, DeltaStream, StreamSession
from tests.conftest import FIRST_COMMIT_MS
from tests.unit.stream.conftest import SINK_ID

MAPPED = {"delta.columnMapping.mode": "name"}
PROTOCOL = {"minReaderVersion": 2, "minWriterVersion": 5}
FOLLOW = {"starting_version": 0, "on_schema_change": {"rename": "follow", "drop": "follow"}}


@pytest.fixture
def sink_log(log_builder: Any, tmp_path: Any) -> Any:
    """The log of the sink, written by hand."""
    builder = type(log_builder)(tmp_path / "sink")
    builder.table_id = SINK_ID
    return builder


def fields(builder: Any, **columns: str) -> list[dict[str, Any]]:
    return [builder.field(name, kind) for name, kind in columns.items()]


def mapped(builder: Any, **columns: str) -> list[dict[str, Any]]:
    """Columns with their physical names."""
    key = "delta.columnMapping.physicalName"
    return [builder.field(name, "string", **{key: physical}) for name, physical in columns.items()]


def test_a_type_that_the_sink_cannot_hold_is_an_error_before_spark(bench, sink, sink_log, log_builder):
    log_builder.create(fields(log_builder, id="string", n="integer"))
    log_builder.append()
    sink_log.create(fields(sink_log, id="integer", n="long"))
    session = bench.session(stream=bench.stream(starting_version=0))
    with pytest.raises(SchemaMismatchError) as caught:
        session.begin(sink)
    lines = [line.split() for line in str(caught.value).splitlines() if line.startswith("  ")]
    assert lines == [["column", "batch", "sink"], ["id", "string", "int"]]
    assert not caught.value.retryable
    assert session.connected.state.planned == ()


def test_what_fits_is_loaded_before_a_column_that_the_sink_lacks_is_an_error(bench, sink, sink_log, log_builder):
    log_builder.create(fields(log_builder, id="long"))
    log_builder.append()
    log_builder.commit(log_builder.metadata(fields(log_builder, id="long", more="date")), operation="ADD COLUMNS")
    log_builder.append()
    sink_log.create(fields(sink_log, id="long"))
    stream = bench.stream(starting_version=0)
    work = bench.load_once(sink, stream=stream)
    assert [batch.last_version for batch in work.batches] == [1]
    assert isinstance(work.warning, SchemaMismatchError)
    with pytest.raises(SchemaMismatchError, match="has columns more that the sink"):
        bench.load_once(sink, run="run-2", stream=stream)
    sink_log.version = 1
    sink_log.commit(sink_log.metadata(fields(sink_log, id="long", more="date")), operation="ADD COLUMNS")
    bench.sink_version = 2
    assert bench.load_once(sink, run="run-3", stream=stream).batches


def test_what_the_sink_adds_to_a_batch_is_compared_too(bench, sink_log, log_builder):
    log_builder.create(fields(log_builder, id="long", x="string"))
    log_builder.append()
    columns = {"id": "long", "origin": "long", "n": "long", "_source_version": "long", "_source_timestamp": "date"}
    sink_log.create(fields(sink_log, **columns))
    sink = DeltaAppendSink(
        str(sink_log.root), columns=("id",), constant_columns={"origin": "crm", "n": 1}, provenance=True
    )
    with pytest.raises(SchemaMismatchError) as caught:
        bench.load_once(sink, stream=bench.stream(starting_version=0))
    shown = [line.split()[0] for line in str(caught.value).splitlines() if line.startswith("  ")]
    assert shown == ["column", "origin", "_source_timestamp"]


@pytest.mark.parametrize("schema", ["", '{"type":"struct","fields":[]}'])
def test_a_sink_without_columns_or_with_a_transform_is_left_to_the_driver(bench, sink_log, log_builder, schema):
    log_builder.create(fields(log_builder, id="string"))
    log_builder.append()
    sink_log.create(fields(sink_log, id="long"))
    transformed = DeltaAppendSink(str(sink_log.root), transform="jobs:cast")
    assert bench.load_once(transformed, stream=bench.stream(starting_version=0)).batches
    sink_log.root = sink_log.root.parent / "empty"
    sink_log.log, sink_log.version = sink_log.root / "_delta_log", -1
    sink_log.commit(
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, sink_log.metadata(schemaString=schema)
    )
    empty = DeltaAppendSink(str(sink_log.root))
    assert bench.load_once(empty, stream=bench.stream("other", starting_version=0)).batches


class TestMeaning:
    """The source has column mapping: a name can come to mean another column."""

    @pytest.fixture(autouse=True)
    def loaded(self, bench, sink_log, log_builder):
        log_builder.create(mapped(log_builder, id="p1", x="p2", y="p3"), configuration=MAPPED, protocol=PROTOCOL)
        log_builder.append()
        sink_log.create(fields(sink_log, id="string", x="string", y="string"))
        self.sink = DeltaMergeSink(str(sink_log.root), keys=["id"])
        self.stream = bench.stream(**FOLLOW)
        (batch,) = bench.load_once(self.sink, stream=self.stream).batches
        assert batch.columns == {"id": "p1", "x": "p2", "y": "p3"}
        sink_log.version = 1

    def change(self, builder, **columns):
        metadata = builder.metadata(mapped(builder, **columns), configuration=MAPPED)
        builder.commit(metadata, operation="CHANGE COLUMN")

    def test_the_ledger_records_only_what_is_new(self, bench, log_builder):
        log_builder.append()
        session = bench.session("run-2", stream=self.stream)
        (spec,) = session.scope.specs(session.begin(self.sink).batches)
        assert (spec.columns, spec.fed, spec.fed_since) == ({}, {}, None)
        entry = bench.staging / "orders" / "ledger" / f"{session.connected.ledger.n:020}.json"
        (planned,) = json.loads(entry.read_bytes())["action"]["batches"]
        assert "columns" not in planned
        assert session.connected.state.columns == {"id": "p1", "x": "p2", "y": "p3"}

    def test_a_swap_in_several_steps_without_rows_is_refused_until_the_sink_swaps_too(
        self, bench, sink_log, log_builder
    ):
        for columns in ({"t": "p2", "y": "p3"}, {"t": "p2", "x": "p3"}, {"y": "p2", "x": "p3"}):
            self.change(log_builder, id="p1", **columns)
            bench.load_once(self.sink, run=f"step {columns}", stream=self.stream)
        log_builder.append()
        with pytest.raises(SchemaMismatchError, match="the columns y, x of the batch are not what the sink") as caught:
            bench.load_once(self.sink, run="run-2", stream=self.stream)
        assert str(caught.value).count("RENAME COLUMN") == 3
        for old, new in (("x", "t"), ("y", "x"), ("t", "y")):
            sink_log.commit(
                sink_log.metadata(fields(sink_log, id="string", x="string", y="string")),
                operation="RENAME COLUMN",
                parameters={"oldColumnPath": old, "newColumnPath": new},
            )
        bench.sink_version = sink_log.version
        session, work = bench.run_once(self.sink, run="run-3", stream=self.stream)
        assert work.batches
        state = session.connected.state
        assert (state.columns, state.columns_since) == ({"id": "p1", "y": "p2", "x": "p3"}, sink_log.version + 1)

    def test_where_the_sink_cannot_be_read_the_driver_gets_what_it_must_compare(self, bench, sink_log, log_builder):
        (sink_log.log / f"{0:020}.json").unlink()
        self.change(log_builder, id="p1", x="p3", y="p2")
        log_builder.append()
        session = bench.session("run-2", stream=self.stream)
        (spec,) = session.scope.specs(session.begin(self.sink).batches)
        assert spec.columns == {"id": "p1", "x": "p3", "y": "p2"}
        assert (spec.fed, spec.fed_since) == ({"id": "p1", "x": "p2", "y": "p3"}, 1)

    def test_a_ledger_without_this_record_compares_with_the_source_at_its_position(self, bench, log_builder):
        session = bench.session("old", stream=self.stream)
        session.connected.load()
        ledger = bench.staging / "orders" / "ledger"
        for path in ledger.glob("*.json"):
            entry = json.loads(path.read_bytes())
            for batch in entry["action"].get("batches", ()):
                assert batch.pop("columns")
                path.write_text(json.dumps(entry, separators=(",", ":")))
        for fold in (ledger / "_checkpoint").glob("*"):
            fold.unlink()
        self.change(log_builder, id="p1", x="p3", y="p2")
        log_builder.append()
        with pytest.raises(SchemaMismatchError, match="the columns x, y of the batch"):
            bench.load_once(self.sink, run="run-2", stream=self.stream)


def test_an_interval_that_is_one_write_does_not_mix_two_columns_of_one_name(bench, tmp_path, log_builder):
    log_builder.create(mapped(log_builder, id="p1", x="p2", y="p3"), configuration=MAPPED, protocol=PROTOCOL)
    log_builder.append()
    log_builder.commit(log_builder.metadata(mapped(log_builder, id="p1", x="p3"), configuration=MAPPED))
    log_builder.append()
    rules = {"rename": "follow", "drop": "follow"}
    stream = DeltaStream("day", table=str(log_builder.root), read="data_interval", on_schema_change=rules)
    begin = datetime.fromtimestamp(FIRST_COMMIT_MS / 1000, UTC)
    interval = DataInterval(begin, begin + timedelta(minutes=3, seconds=30))
    session = StreamSession(stream, bench.session().context, interval)
    with pytest.raises(SchemaMismatchError, match="from version 2 on, the source has another column as x"):
        session.begin(DeltaReplaceSink(str(tmp_path / "day"), provenance=True))


@pytest.mark.parametrize("in_one_plan", [True, False])
def test_without_column_mapping_a_name_that_comes_back_is_another_column(bench, sink_log, log_builder, in_one_plan):
    def write(**columns):
        log_builder.commit(log_builder.metadata(fields(log_builder, **columns)), log_builder.add(), operation="WRITE")

    stream = bench.stream(starting_version=0, on_schema_change={"drop": "follow"})
    sink_log.create(fields(sink_log, id="long", x="string", more="date"))
    sink = DeltaMergeSink(str(sink_log.root), keys=["id"])
    log_builder.create(fields(log_builder, id="long", x="string"))
    for number, columns in enumerate(({"id": "long", "x": "string"}, {"id": "long"}, {"id": "long", "more": "date"})):
        write(**columns)
        if not in_one_plan:
            bench.load_once(sink, run=f"run-{number}", stream=stream)
    if in_one_plan:
        assert len(bench.load_once(sink, stream=stream).batches) == 3
    session = bench.session("look", stream=stream)
    assert session.connected.load().columns == {"id": "id", "x": "", "more": "more"}
    write(id="long", more="date", x="string")
    with pytest.raises(SchemaMismatchError, match="the column x of the batch is not what the sink") as caught:
        bench.load_once(sink, run="again", stream=stream)
    assert "RENAME COLUMN `x` TO `x_old`" in str(caught.value)


def test_without_column_mapping_nothing_is_recorded_before_a_column_is_dropped(bench, sink, log_builder):
    log_builder.create(fields(log_builder, id="long"))
    log_builder.append()
    log_builder.commit(log_builder.metadata(fields(log_builder, id="long", x="date")), operation="ADD COLUMNS")
    log_builder.append()
    stream = bench.stream(starting_version=0)
    bench.load_once(sink, stream=stream)
    log_builder.append()
    bench.load_once(sink, run="run-2", stream=stream)
    assert bench.session("look", stream=stream).connected.load().columns == {}


def check_emptied(bench, sink, stream, *, to, fits):
    """Ask for an empty sink and another start, and prepare the fence, which is refused if the first rows do not fit."""
    words = ("orders", "--to", to, "--sink-rows", "empty", "--why", "a test", "--yes")
    assert main(["rewind", *words, "--staging", str(bench.staging), "--deployment", "test"]) == 0
    session = bench.session("run-2", stream=stream)
    work = session.begin(sink)
    assert work.status == "fence"
    if fits:
        session.job(work, sink)
        return
    with pytest.raises(SchemaMismatchError, match="no row of the sink was removed"):
        session.job(work, sink)


@pytest.mark.parametrize("kind", ["string", "integer"])
def test_no_row_is_removed_for_a_snapshot_that_the_sink_cannot_take(bench, sink, sink_log, log_builder, kind):
    log_builder.create(fields(log_builder, id="integer"))
    log_builder.append()
    sink_log.create(fields(sink_log, id="integer"))
    stream = bench.stream(starting_version=None)
    bench.run_once(sink, "run-1", stream)
    log_builder.commit(
        log_builder.metadata(fields(log_builder, id=kind)), log_builder.add("new"), log_builder.remove("old")
    )
    check_emptied(bench, sink, stream, to="start", fits=kind == "integer")


@pytest.mark.parametrize("kind", ["string", "integer"])
def test_no_row_is_removed_for_a_version_that_the_sink_cannot_take(bench, sink, sink_log, log_builder, kind):
    log_builder.create(fields(log_builder, id=kind))
    log_builder.append()
    log_builder.commit(
        log_builder.metadata(fields(log_builder, id="integer")), log_builder.add("new"), log_builder.remove("old")
    )
    log_builder.append()
    sink_log.create(fields(sink_log, id="integer"))
    stream = bench.stream(starting_version=3)
    bench.run_once(sink, "run-1", stream)
    check_emptied(bench, sink, stream, to="1", fits=kind == "integer")
