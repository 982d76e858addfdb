"""A stream that reads data intervals, in a sink to which another stream appends: no version is duplicated."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.batch.sink.commit_metadata import commit_metadata
from airflow_provider_fds.batch.spec import BatchSpec
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaReplaceSink
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream import DataInterval, DeltaStream, StreamSession

if TYPE_CHECKING:
    from pathlib import Path

    from tests.unit.stream.conftest import Bench


OTHER = "00000000-0000-0000-0000-000000000001"


@pytest.fixture
def sink(tmp_path: Path) -> DeltaAppendSink:
    return DeltaAppendSink(str(tmp_path / "sink"))


@pytest.fixture
def table(log_builder: Any) -> Any:
    """Versions 0 to 6, each but the first with one file, one minute apart from 2024-01-01."""
    log_builder.create()
    for _ in range(6):
        log_builder.append()
    return log_builder


class SinkLog:
    """A sink into which another stream of the table has loaded versions."""

    def __init__(self, builder: Any, table_id: str) -> None:
        self.builder, self._table_id = builder, table_id
        self.uri = str(builder.root)
        builder.create()

    def load(self, first: int, end: int, same_values: dict[str, Any] | None = None) -> None:
        start, after = (Offset.after(version, self._table_id).to_json() for version in (first - 1, end - 1))
        spec = BatchSpec("live", OTHER, 1, first, start, after, start, first, end - 1, "m", "d", 1, 1, 1, None)
        told = commit_metadata(spec, "try", {}, same_values=same_values)
        self.builder.commit(self.builder.add(), userMetadata=told)

    def add_partitions(self, *names: str) -> None:
        self.builder.commit(self.builder.metadata(partitionColumns=list(names)))


@pytest.fixture
def sink_log(log_builder: Any, tmp_path: Path) -> SinkLog:
    return SinkLog(type(log_builder)(tmp_path / "sink"), log_builder.table_id)


def minutes(bench: Bench, first: int, end: int, **options: Any) -> StreamSession:
    """A run of the versions ``first`` (inclusive) to ``end`` (exclusive)."""
    start = datetime(2024, 1, 1, tzinfo=UTC)
    interval = DataInterval(start + timedelta(minutes=first), start + timedelta(minutes=end))
    stream = DeltaStream(options.pop("name", "days"), table=str(bench.table), read="data_interval", **options)
    return StreamSession(stream, bench.session("run-1").context, interval)


def load(bench: Bench, session: StreamSession, sink: Any) -> list[tuple[int, int]]:
    work = session.begin(sink)
    if work.status == "work":
        bench.report(session, work, session.job(work, sink))
        session.collect(work)
    return [(batch.first_version, batch.last_version) for batch in work.batches]


def test_an_interval_that_a_stream_by_offset_has_loaded_is_refused_before_it_is_planned(bench, table, sink):
    offsets = bench.stream(starting_version=2, ending_version=4)
    load(bench, bench.session(stream=offsets), sink)
    assert load(bench, minutes(bench, 0, 2), sink) == [(0, 1)]
    session = minutes(bench, 1, 3)
    with pytest.raises(ConfigurationError) as caught:
        session.begin(sink)
    for part in ("'days' would append versions 1 to 2", "'orders' already appends versions 2 to 4", "allow_overlap"):
        assert part in str(caught.value)
    (record,) = session.connected.load().intervals
    assert record.first_version == 0
    assert load(bench, minutes(bench, 5, 7), sink) == [(5, 6)]


def test_an_interval_that_a_stream_by_offset_will_load_is_refused(bench, table, sink):
    live = bench.stream(starting_version=2, max_files_per_batch=1)
    session = bench.session(stream=live)
    work = session.begin(sink, max_batches=1)
    bench.report(session, work, session.job(work, sink))
    session.collect(work)
    with pytest.raises(ConfigurationError, match="'orders' already appends versions from 2 on"):
        minutes(bench, 5, 6).begin(sink)


def test_a_stream_that_is_refused_is_not_bound_and_may_take_another_sink(bench, table, sink, tmp_path):
    load(bench, bench.session(stream=bench.stream(starting_version=1)), sink)
    with pytest.raises(ConfigurationError, match=r"or another sink \(with `fds replan .* --new-sink"):
        minutes(bench, 1, 3).begin(sink)
    assert load(bench, minutes(bench, 1, 3), DeltaAppendSink(str(tmp_path / "other"))) == [(1, 2)]


def test_an_interval_that_a_backfill_has_loaded_is_refused(bench, table, sink):
    load(bench, bench.session(stream=bench.stream().backfill(start=1, end=3)), sink)
    with pytest.raises(ConfigurationError, match=r"'orders\.bf\..*' already appends versions 1 to 3"):
        minutes(bench, 3, 5).begin(sink)
    assert load(bench, minutes(bench, 4, 6), sink) == [(4, 5)]


def test_an_interval_that_another_stream_of_intervals_has_loaded_is_refused(bench, table, sink):
    load(bench, minutes(bench, 1, 3, name="one"), sink)
    with pytest.raises(ConfigurationError, match="'one' already appends versions 1 to 2"):
        minutes(bench, 2, 4, name="two").begin(sink)
    assert load(bench, minutes(bench, 3, 5, name="two"), sink) == [(3, 4)]


def test_a_stream_by_offset_that_comes_after_an_interval_is_refused(bench, table, sink):
    load(bench, minutes(bench, 1, 3), sink)
    with pytest.raises(ConfigurationError, match="'days' already appends versions 1 to 2"):
        bench.session(stream=bench.stream(starting_version=2)).begin(sink)


def test_an_overlap_is_allowed_on_request(bench, table, sink):
    load(bench, bench.session(stream=bench.stream(starting_version=1)), sink)
    assert load(bench, minutes(bench, 1, 3, allow_overlap=True), sink) == [(1, 2)]


def test_an_interval_that_is_planned_continues_although_its_range_was_allowed_to_another_stream(bench, table, sink):
    begun = minutes(bench, 1, 3)
    begun.begin(sink)
    load(bench, bench.session(stream=bench.stream(starting_version=1, allow_overlap=True)), sink)
    assert load(bench, minutes(bench, 1, 3), sink) == [(1, 2)]


def test_an_interval_without_versions_overlaps_nothing(bench, table, sink):
    load(bench, bench.session(stream=bench.stream(starting_version=1)), sink)
    work = minutes(bench, -9, -5).begin(sink)
    assert work.status == "up_to_date"


def test_an_interval_that_would_replace_the_rows_of_another_stream_by_version_is_refused(bench, table, sink):
    load(bench, bench.session(stream=bench.stream(starting_version=1)), DeltaAppendSink(sink.uri, provenance=True))
    replacing = DeltaReplaceSink(sink.uri, provenance=True)
    with pytest.raises(ConfigurationError, match="one stream would replace those of the other"):
        load(bench, minutes(bench, 1, 3), replacing)
    assert load(bench, minutes(bench, 1, 3, allow_overlap=True), replacing) == [(1, 2)]


@pytest.mark.parametrize(
    "replaced",
    [
        {"replace_where": "day = '2024-01-01'"},
        {"replace_where": "_source_version BETWEEN 0 AND 9"},
        {"replace_where": "origin = 'a' OR origin = 'b'", "constant_columns": {"origin": "a"}},
        {"dynamic_partition_overwrite": True, "constant_columns": {"origin": "a"}},
    ],
)
def test_an_interval_that_may_replace_rows_of_another_stream_is_refused(bench, table, sink_log, replaced):
    sink_log.load(0, 3)
    replacing = DeltaReplaceSink(sink_log.uri, provenance=True, merge_schema=True, **replaced)
    with pytest.raises(ConfigurationError) as caught:
        minutes(bench, 4, 6).begin(replacing)
    for part in ("'days', versions 4 to 5, would replace", "'live' has loaded versions 0 to 2", "allow_overlap=True"):
        assert part in str(caught.value)
    assert minutes(bench, 4, 6, allow_overlap=True).begin(replacing).status == "work"


@pytest.mark.parametrize(
    ("replaced", "same_values"),
    [
        ({"replace_where": "n > 0 AND _source_version BETWEEN {first_version} AND {last_version}"}, None),
        ({"replace_where": "origin = 'a' AND day = '2024-01-01'"}, {"origin": "b"}),
        ({"replace_where": "`Origin` = 1 AND (n > 0 OR day IS NULL)"}, {"origin": 2}),
        ({"dynamic_partition_overwrite": True, "constant_columns": {"origin": "a"}}, {"origin": "b"}),
    ],
)
def test_an_interval_that_replaces_certainly_other_rows_is_loaded(bench, table, sink_log, replaced, same_values):
    sink_log.load(0, 3, same_values)
    sink_log.load(3, 4, same_values)
    sink_log.add_partitions("origin")
    replacing = DeltaReplaceSink(sink_log.uri, provenance=True, merge_schema=True, **replaced)
    assert minutes(bench, 4, 6).begin(replacing).status == "work"
    # one batch with another value is enough
    if same_values is not None:
        sink_log.load(4, 5, {"origin": "A " if isinstance(same_values["origin"], str) else "1"})
        with pytest.raises(ConfigurationError, match="nothing shows that its rows are others"):
            minutes(bench, 6, 7).begin(replacing)
