"""Partitions of assets: a partitioned run reads its time span, and a load gives its keys to those who wait for them."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from uuid import uuid4

import pytest
from airflow.sdk.execution_time.context import OutletEventAccessor

from airflow_provider_fds import DeltaAppendSink, DeltaIngestOperator, DeltaStream
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.hooks.data_interval import run_interval
from airflow_provider_fds.operators.lineage.asset_event import uncovered
from airflow_provider_fds.operators.lineage.asset_partitions import add_partitions, partition_keys
from airflow_provider_fds.source.offset import Offset

STREAM = DeltaStream("orders", table="s3://lake/orders", read="data_interval")
HAS_KEYS = hasattr(OutletEventAccessor, "add_partitions")


def partitioned(key, timetable=None, **context):
    run = SimpleNamespace(run_id="run", partition_key=key)
    return {"dag_run": run, "partition_key": key, "dag": SimpleNamespace(timetable=timetable), **context}


def span(context):
    interval = run_interval(context, STREAM)
    return f"{interval.start:%Y-%m-%dT%H}", f"{interval.end:%Y-%m-%dT%H}"


def cron_partitions(*arguments, **more):
    trigger = pytest.importorskip("airflow.sdk.definitions.timetables.trigger")
    if not hasattr(trigger, "CronPartitionTimetable"):
        pytest.skip("this Airflow has no partitions")
    return trigger.CronPartitionTimetable(*arguments, **more)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("2026-01-31", ("2026-01-31T00", "2026-02-01T00")),
        ("2025-12", ("2025-12-01T00", "2026-01-01T00")),
        ("2026", ("2026-01-01T00", "2027-01-01T00")),
        ("2026-01-31T23", ("2026-01-31T23", "2026-02-01T00")),
    ],
)
def test_a_run_that_a_partition_started_reads_the_time_that_its_key_names(key, expected):
    assert span(partitioned(key)) == expected


def test_a_partition_by_cron_reaches_to_the_next_date_of_its_expression():
    daily = cron_partitions("0 0 * * *", timezone="UTC", run_offset=-1, key_format="%Y%m%d")
    date = datetime(2026, 1, 31, tzinfo=UTC)
    assert span(partitioned("20260131", daily, partition_date=date)) == ("2026-01-31T00", "2026-02-01T00")
    weekly = cron_partitions("0 6 * * 1", timezone="UTC")
    date = datetime(2026, 1, 5, 6, tzinfo=UTC)
    assert span(partitioned("any", weekly, partition_date=date)) == ("2026-01-05T06", "2026-01-12T06")


def test_a_day_is_as_long_as_it_is_in_the_zone_of_the_timetable():
    daily = cron_partitions("0 0 * * *", timezone="Europe/Berlin", key_format="%Y-%m-%d")
    context = partitioned("2026-03-29", daily, partition_date=datetime(2026, 3, 28, 23, tzinfo=UTC))
    assert span(context) == ("2026-03-28T23", "2026-03-29T22")
    # a run that was started by hand before its date was known
    assert span(partitioned("2026-03-29", daily, partition_date=None)) == ("2026-03-28T23", "2026-03-29T22")


@pytest.mark.parametrize(
    ("cron", "key_format", "key", "expected"),
    [
        ("0 2 * * *", "%Y-%m-%d", "2026-01-31", ("2026-01-31T02", "2026-02-01T02")),
        ("0 6 * * 1", "%Y-%m-%d", "2026-01-05", ("2026-01-05T06", "2026-01-12T06")),
        ("0 0 15 * *", "%Y-%m", "2026-01", ("2026-01-15T00", "2026-02-15T00")),
        # no date of the expression has this key
        ("0 6 * * 1", "%Y-%m-%d", "2026-01-06", ("2026-01-06T00", "2026-01-12T06")),
    ],
)
def test_a_run_by_hand_reads_what_the_scheduled_run_of_its_partition_reads(cron, key_format, key, expected):
    timetable = cron_partitions(cron, timezone="UTC", key_format=key_format)
    # Airflow makes it from the key, which does not have the time of day
    date = datetime.strptime(key, key_format).replace(tzinfo=UTC)
    assert span(partitioned(key, timetable, partition_date=date)) == expected
    assert span(partitioned(key, timetable, partition_date=None)) == expected


def test_a_key_of_an_hour_that_is_there_twice_is_refused_and_an_offset_asks_for_the_second():
    hourly = cron_partitions("0 * * * *", timezone="America/New_York", key_format="%Y-%m-%dT%H")
    both = "2026-11-01T05:00:00Z and 2026-11-01T06:00:00Z"
    with pytest.raises(ConfigurationError, match=f"names two partitions, because the clocks are set back.*{both}"):
        span(partitioned("2026-11-01T01", hourly, partition_date=None))
    second = partitioned("2026-11-01T01", hourly, partition_date=datetime(2026, 11, 1, 6, tzinfo=UTC))
    assert span(second) == ("2026-11-01T06", "2026-11-01T07")
    for key, expected in (("00", ("04", "05")), ("02", ("07", "08"))):
        assert span(partitioned(f"2026-11-01T{key}", hourly, partition_date=None)) == tuple(
            f"2026-11-01T{hour}" for hour in expected
        )
    zoned = cron_partitions("0 * * * *", timezone="America/New_York", key_format="%Y-%m-%dT%H%z")
    for offset, hour in (("-0400", 5), ("-0500", 6)):
        found = span(partitioned(f"2026-11-01T01{offset}", zoned, partition_date=None))
        assert found == (f"2026-11-01T{hour:02}", f"2026-11-01T{hour + 1:02}")


def test_airflow_32_tells_no_partition_date_and_writes_keys_in_utc():
    daily = cron_partitions("0 0 * * *", timezone="Europe/Berlin")
    context = partitioned("2026-01-30T23:00:00", daily)
    del context["partition_key"]
    assert span(context) == ("2026-01-30T23", "2026-01-31T23")


def test_a_data_interval_takes_precedence_over_a_key_that_is_no_time():
    first, second = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    context = partitioned("shop 7", data_interval_start=first, data_interval_end=second)
    assert span(context) == ("2026-01-01T00", "2026-01-02T00")
    empty = partitioned("2026-01-05", data_interval_start=first, data_interval_end=first)
    assert span(empty) == ("2026-01-05T00", "2026-01-06T00")


@pytest.mark.parametrize("key", ["shop 7", "2026-02-30", "2026-01-01T00:00:00", "9999"])
def test_a_key_that_names_no_time_is_refused_with_the_format_that_works(key):
    with pytest.raises(ConfigurationError, match="has no data interval, and its partition key") as refused:
        run_interval(partitioned(key), STREAM)
    assert refused.value.reason_code == "DATA_INTERVAL_UNUSABLE"


def test_a_key_in_another_format_than_the_timetables_is_refused():
    daily = cron_partitions("0 0 * * *", timezone="UTC", key_format="%Y-%m-%d")
    with pytest.raises(ConfigurationError, match="does not match the timetable's key_format '%Y-%m-%d'"):
        run_interval(partitioned("yesterday", daily, partition_date=None), STREAM)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"asset_partitions": "%Y-%m-%d", "outlets": True}, "requires a stream with read='data_interval'"),
        ({"asset_partitions": "day"}, r"requires outlets=\[Asset"),
        ({"asset_partitions": " ", "outlets": True}, "must be a date format"),
        ({"asset_partitions": 7, "outlets": True}, "must be a date format"),
    ],
)
def test_bad_arguments_are_refused_where_the_dag_is_parsed(arguments, said):
    from airflow.sdk import Asset

    if arguments.get("outlets"):
        arguments = {**arguments, "outlets": [Asset("orders")]}
    stream, sink = DeltaStream("orders", table="s3://lake/orders"), DeltaAppendSink("s3://lake/copy")
    with pytest.raises(ConfigurationError, match=said):
        DeltaIngestOperator(task_id="load", stream=stream, sink=sink, **arguments)


def test_an_airflow_without_keys_gets_the_event_alone(caplog):
    with caplog.at_level("INFO"):
        add_partitions(SimpleNamespace(extra={}), ["2026-01-01"])
    assert "need Airflow 3.3: 2026-01-01" in caplog.text


class Events:
    """The events of an asset, newest first: those of a load have one for each partition."""

    def __init__(self, *loads):
        self._events = [SimpleNamespace(extra=extra) for extra, partitions in loads for _ in range(partitions)]

    def __getitem__(self, asset):
        return self

    def ascending(self, *, ascending):
        assert not ascending
        return self

    def limit(self, number):
        return self._events[:number]


def load_of(stream, batch):
    return {"stream": stream, "epoch": 1, "last_batch_id": batch, "end": Offset.after(batch, "t").to_json()}


def covered_by(monkeypatch, *loads):
    monkeypatch.setattr("airflow.sdk.execution_time.context.InletEventsAccessors", lambda _: Events(*loads))
    own = {"stream": "a", "epoch": 1, "first_batch_id": 9, "last_batch_id": 9, "first_version": 9, "rows": 5}
    start = Offset.after(0, "t").to_json()
    found = uncovered(SimpleNamespace(outlets=[]), own, "s3://lake/copy", epoch_start=start)
    return None if found is None else (found["first_batch_id"], found["rows"])


def test_events_of_many_partitions_of_another_stream_do_not_hide_the_last_one_of_this_stream(monkeypatch):
    assert covered_by(monkeypatch, (load_of("b", 3), 5), (load_of("a", 8), 1)) == (9, 5)
    assert covered_by(monkeypatch, (load_of("b", 3), 300), (load_of("a", 8), 300)) == (9, 5)
    # a run that failed for good before its event
    assert covered_by(monkeypatch, (load_of("b", 3), 300), (load_of("a", 7), 1)) == (8, None)


def test_without_an_event_of_this_stream_all_is_covered_unless_there_are_too_many_to_know(monkeypatch):
    assert covered_by(monkeypatch, (load_of("b", 3), 300)) == (0, None)
    assert covered_by(monkeypatch, (load_of("b", 3), 9000), (load_of("a", 8), 1)) == (9, 5)


def test_what_an_event_has_covered_gets_no_second_one(monkeypatch):
    assert covered_by(monkeypatch, (load_of("b", 3), 5), (load_of("a", 9), 1)) is None
    assert covered_by(monkeypatch, (load_of("a", 12), 1)) is None
    # of another epoch, whose batches have other rows
    assert covered_by(monkeypatch, ({**load_of("a", 9), "epoch": 0}, 1)) == (0, None)


class Event:
    """The event of an asset, as strict as Airflow's."""

    def __init__(self):
        self.keys = []

    def add_partitions(self, keys):
        assert all(key.strip() and len(key) <= 250 for key in keys)
        self.keys += keys


def test_keys_that_airflow_does_not_accept_are_left_out_and_named(caplog):
    event = Event()
    add_partitions(event, [" ", "2026-01-01", "x" * 251])
    assert event.keys == ["2026-01-01"]
    assert "2 partition keys" in caplog.text
    assert "' ', 'xxx" in caplog.text


@pytest.fixture
def cleaned_up(tmp_path):
    """A session of a table partitioned by day, with versions 0 to 3, of which the log has 2 and 3."""
    import deltalake
    import pyarrow as pa

    for day in (1, 2, 3, 4):
        rows = pa.table({"id": pa.array([day], pa.int64()), "day": [f"2026-01-0{day}"]})
        deltalake.write_deltalake(tmp_path / "orders", rows, mode="append", partition_by=["day"])
        if day == 2:
            deltalake.DeltaTable(tmp_path / "orders").create_checkpoint()
    for version in (0, 1):
        (tmp_path / "orders" / "_delta_log" / f"{version:020d}.json").unlink()
    log = DeltaLog(open_storage(str(tmp_path / "orders"), {}))
    stream = DeltaStream("orders", table=str(tmp_path / "orders"))
    return SimpleNamespace(stream=stream, connected=SimpleNamespace(log=log))


def keys_of(session, covered, own):
    ranges = [{"first_version": first, "last_version": last} for first, last in (covered, own)]
    return partition_keys("day", {}, session, *ranges)


def test_a_log_that_was_cleaned_up_fails_no_load_and_leaves_the_keys_of_its_own_versions(cleaned_up, caplog):
    assert keys_of(cleaned_up, (2, 3), (3, 3)) == ["2026-01-03", "2026-01-04"]
    assert caplog.text == ""
    # an outlet that is new on an old stream has had no event yet
    assert keys_of(cleaned_up, (0, 3), (3, 3)) == ["2026-01-04"]
    assert "no partition keys for versions 0 to 2" in caplog.text


def test_a_load_whose_own_versions_were_cleaned_up_gets_an_event_without_keys(cleaned_up, caplog):
    assert keys_of(cleaned_up, (0, 3), (1, 3)) == ()
    assert "no partition keys for versions 0 to 3" in caplog.text


DAG_TEXT = """
from datetime import datetime, timezone
from airflow.sdk import Asset, CronDataIntervalTimetable, DAG
from airflow_provider_fds import DeltaIngestOperator, DeltaReplaceSink, DeltaStream, DeltaAppendSink

with DAG("{dag_id}", schedule={schedule}, start_date=datetime(2026, 1, 1, tzinfo=timezone.utc), catchup=False):
    DeltaIngestOperator(
        task_id="load",
        stream=DeltaStream("{dag_id}", table="{lake}/orders", {stream}),
        sink={sink},
        outlets=[Asset("{asset}")],
        asset_partitions="{partitions}",
    )
"""
CONSUMER = """
from airflow.sdk import Asset, DAG, PartitionedAssetTimetable, task

with DAG("{dag_id}", schedule=PartitionedAssetTimetable(assets=Asset("{asset}"))):
    task(lambda: None, task_id="use")()
"""


def partitions_of(asset: str, consumer: str) -> tuple[list[str], list[str]]:
    """The partition keys of an asset's events, and those for which runs of the consumer are queued."""
    from airflow.models.asset import AssetEvent, AssetModel, AssetPartitionDagRun
    from airflow.utils.session import create_session
    from sqlalchemy import select

    events = select(AssetEvent.partition_key).join(AssetModel, AssetEvent.asset_id == AssetModel.id)
    queued = select(AssetPartitionDagRun.partition_key).where(AssetPartitionDagRun.target_dag_id == consumer)
    with create_session() as session:
        return (
            sorted(session.scalars(events.where(AssetModel.name == asset))),
            sorted(session.scalars(queued)),
        )


@pytest.mark.skipif(not HAS_KEYS, reason="this Airflow cannot give keys to an event")
def test_a_consumer_runs_for_exactly_the_days_that_were_loaded(installation, on_server, lake):
    asset, consumer = f"orders_{uuid4().hex}", f"consumer_{uuid4().hex}"
    for version, day in enumerate((1, 1, 2, 4)):
        lake.append("orders", version)
        at = (datetime(2026, 1, day, tzinfo=UTC) + timedelta(hours=version)).timestamp()
        os.utime(lake.root / "orders" / "_delta_log" / f"{version:020d}.json", (at, at))
    installation.run(installation.add(CONSUMER.format(dag_id=consumer, asset=asset)))
    producer = installation.add(
        DAG_TEXT.format(
            dag_id=f"days_{uuid4().hex}",
            schedule='CronDataIntervalTimetable("0 0 * * *", timezone="UTC")',
            lake=lake.uri,
            stream='read="data_interval"',
            sink=f'DeltaAppendSink("{lake.uri}/days")',
            asset=asset,
            partitions="%Y-%m-%d",
        )
    )
    for day, state in ((1, "success"), (2, "success"), (3, "skipped")):
        run = installation.run(producer, logical_date=datetime(2026, 1, day + 1, tzinfo=UTC))
        assert run.state("load") == state
    assert partitions_of(asset, consumer) == (["2026-01-01", "2026-01-02"],) * 2


@pytest.mark.skipif(not HAS_KEYS, reason="this Airflow cannot give keys to an event")
def test_a_load_of_a_table_that_is_partitioned_by_day_emits_the_days_it_has_loaded(installation, on_server, lake):
    import deltalake
    import pyarrow as pa

    asset, consumer = f"orders_{uuid4().hex}", f"consumer_{uuid4().hex}"

    def append(*days):
        rows = pa.table({"id": pa.array(range(len(days)), pa.int64()), "day": [f"2026-01-0{day}" for day in days]})
        deltalake.write_deltalake(lake.root / "orders", rows, mode="append", partition_by=["day"])

    append(1, 2)
    installation.run(installation.add(CONSUMER.format(dag_id=consumer, asset=asset)))
    producer = installation.add(
        DAG_TEXT.format(
            dag_id=f"loads_{uuid4().hex}",
            schedule=None,
            lake=lake.uri,
            stream="",
            sink=f'DeltaAppendSink("{lake.uri}/copy")',
            asset=asset,
            partitions="day",
        )
    )
    assert installation.run(producer).state("load") == "success"
    assert partitions_of(asset, consumer) == (["2026-01-01", "2026-01-02"],) * 2
    append(2, 5)
    assert installation.run(producer).state("load") == "success"
    events, queued = partitions_of(asset, consumer)
    assert events == ["2026-01-01", "2026-01-02", "2026-01-02", "2026-01-05"]
    assert sorted(set(queued)) == ["2026-01-01", "2026-01-02", "2026-01-05"]
