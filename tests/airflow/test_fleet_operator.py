"""``DeltaFleetOperator`` with a Spark that only leaves its reports: policies, waiting, events, arguments."""

from __future__ import annotations

import shutil
import time
from types import SimpleNamespace

import pytest
from airflow.providers.common.compat.sdk import AirflowSkipException, AirflowTaskTimeout, TaskDeferred
from airflow.sdk.execution_time.context import OutletEventAccessors

from airflow_provider_fds import (
    DeltaAppendSink,
    DeltaFleetOperator,
    DeltaStream,
    FleetStream,
    StreamAlerts,
    TablePattern,
)
from airflow_provider_fds.backends.base import Outcome, SparkBackend
from airflow_provider_fds.checkpoint.file import FileCheckpointStore
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import ConfigurationError, FleetFailedError
from airflow_provider_fds.hooks import lineage as installed_lineage
from airflow_provider_fds.hooks import stream_context
from airflow_provider_fds.hooks.exceptions import TaskFailedError
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.stream.monitoring.status_row import read_status_file
from tests.conftest import LogBuilder
from tests.unit.stream.conftest import Bench

pytestmark = pytest.mark.usefixtures("airflow_database")


class Spark(SparkBackend):
    """Writes every batch, except those of the streams in ``fails``."""

    def __init__(self, staging):
        self.staging = staging
        self.fails = {}
        self.benches = {}
        self.applications = []

    def run_fleet(self, application):
        self.applications.append([part.session.stream.name for part in application.parts])
        for part in application.parts:
            name = part.session.stream.name
            bench = self.benches.setdefault(name, Bench(part.session.stream.table, self.staging))
            failure = {}
            if (retryable := self.fails.get(name)) is not None:
                failure = {"outcome": "failed", "error_class": "Boom", "error_message": "no", "retryable": retryable}
                failure |= {"sink_version": None, "rows_written": None}
            bench.report(part.session, part.work, part.spec_uri, **failure)
        application.commit()
        return Outcome()


class Fleet:
    def __init__(self, root):
        self.root = root
        self.spark = Spark(root / "staging")
        self.logs = {}
        self.pushed = {}
        for name in ("a", "b"):
            self.table(name)

    def table(self, name):
        self.logs[name] = log = LogBuilder(self.root / "lake" / name)
        log.create()
        log.append()

    def one(self, name, **options):
        checkpoint = f"file:{self.root}/{name}.json"
        options = {"starting_version": 0, **options}
        stream = DeltaStream(name, table=str(self.logs[name].root), checkpoint=checkpoint, **options)
        return FleetStream(stream, DeltaAppendSink(str(self.root / "sinks" / name)))

    def operator(self, **arguments):
        given = {"streams": [self.one(name) for name in ("a", "b")], **arguments}
        operator = DeltaFleetOperator(task_id="load", **given)
        operator.find_spark = lambda _conn_id: self.spark
        return operator

    def state(self, name):
        return Ledger(open_storage(str(self.root / "staging")), name, deployment="http://fds.test").find()

    def context(self, run="r1", try_number=1):
        ti = SimpleNamespace(
            dag_id="dag",
            task_id="load",
            run_id=run,
            map_index=-1,
            try_number=try_number,
            max_tries=0,
            xcom_push=lambda key, value: self.pushed.update({key: value}),
            get_task_states=lambda run_ids, task_ids, **_: {run_ids[0]: {task_ids[0]: "failed"}},
            get_dr_count=lambda **_: 0,
        )
        dag_run = SimpleNamespace(run_id=run, run_type="manual", run_after=None)
        return {"ti": ti, "dag_run": dag_run, "outlet_events": OutletEventAccessors()}


@pytest.fixture
def fleet(tmp_path, monkeypatch):
    monkeypatch.setenv("AIRFLOW__FDS__STAGING", (tmp_path / "staging").as_uri())
    return Fleet(tmp_path)


def test_a_stream_that_fails_fails_the_task_at_its_end_and_the_retry_loads_only_that(fleet):
    fleet.spark.fails = {"b": True}
    with pytest.raises(FleetFailedError, match=r"1 of 2 streams of fleet dag\.load failed"):
        fleet.operator().execute(fleet.context())
    assert fleet.pushed["fds_fleet"]["streams"]["a"]["outcome"] == "loaded"
    assert fleet.pushed["fds_error"]["reason_code"] == "STREAMS_FAILED"
    fleet.spark.fails = {}
    context = fleet.context(try_number=2)
    result = fleet.operator().execute(context)
    assert fleet.spark.applications == [["a", "b"], ["b"]]
    assert result["counts"] == {"loaded": 2}
    (alias,) = context["outlet_events"]
    events = context["outlet_events"][alias].asset_alias_events
    assert [(one.dest_asset_key.uri.rsplit("/", 1)[-1], one.extra["rows"]) for one in events] == [("a", 10), ("b", 10)]


def test_a_timeout_of_airflow_leaves_the_status_of_the_streams_that_are_not_done(fleet):
    def run_fleet(application):
        raise AirflowTaskTimeout("60 s are over")

    fleet.spark.run_fleet = run_fleet
    with pytest.raises(AirflowTaskTimeout):
        fleet.operator().execute(fleet.context())
    staging = open_storage((fleet.root / "staging").as_uri())
    rows = [read_status_file(staging, name) for name in ("a", "b")]
    assert [(row.condition, row.planned_batches, row.dag_id) for row in rows] == [("failing", 1, "dag")] * 2
    assert all("[TASK_KILLED] The task was ended by AirflowTaskTimeout" in row.problem for row in rows)


def test_an_error_that_a_retry_would_meet_again_is_not_retried(fleet):
    fleet.spark.fails = {"b": False}
    with pytest.raises(TaskFailedError, match="STREAMS_REJECTED"):
        fleet.operator().execute(fleet.context())


def test_with_continue_the_task_succeeds_unless_all_streams_failed(fleet):
    fleet.spark.fails = {"b": True}
    result = fleet.operator(on_stream_failure="continue").execute(fleet.context())
    assert result["counts"] == {"loaded": 1, "failed": 1}
    assert result["streams"]["b"]["error"]["error"] == "BatchFailedError"
    fleet.spark.fails = {"a": True, "b": True}
    fleet.logs["a"].append()
    with pytest.raises(FleetFailedError, match="2 of 2"):
        fleet.operator(on_stream_failure="continue").execute(fleet.context("r2"))


def test_without_news_it_skips_succeeds_or_waits(fleet):
    fleet.operator().execute(fleet.context())
    with pytest.raises(AirflowSkipException, match="2 unchanged"):
        fleet.operator().execute(fleet.context("r2"))
    assert fleet.operator(on_no_data="succeed").execute(fleet.context("r3"))["counts"] == {"unchanged": 2}
    waiting = fleet.operator(wait=True, poll_interval=5, timeout=60)
    with pytest.raises(TaskDeferred) as deferred:
        waiting.execute(fleet.context("r4"))
    path, arguments = deferred.value.trigger.serialize()
    assert path.endswith("delta_fleet.DeltaFleetTrigger")
    assert (arguments["fleet"], len(arguments["streams"]), arguments["poll_interval"]) == ("dag.load", 2, 5.0)
    fleet.logs["b"].append()
    woken = waiting.execute_complete(fleet.context("r4"), {"status": "success", "reason": "b: data"}, 0.0)
    assert woken["counts"] == {"loaded": 1, "unchanged": 1}


def test_a_task_that_waits_no_longer_when_it_is_woken_in_vain_is_skipped(fleet):
    fleet.operator().execute(fleet.context())
    event = {"status": "success", "reason": "b: data"}
    with pytest.raises(AirflowSkipException, match="2 unchanged"):
        fleet.operator().execute_complete(fleet.context("r2"), event, time.time() + 60)


def test_a_task_that_is_woken_for_a_table_that_was_replaced_by_a_younger_one_says_so(fleet):
    fleet.operator().execute(fleet.context())
    log = fleet.logs["a"]
    shutil.rmtree(log.log)
    again = LogBuilder(log.root)
    again.table_id = "22222222-2222-3333-4444-555555555555"
    again.create()
    event = {"status": "success", "streams": ["a"], "reason": "a: position is lost"}
    waiting = fleet.operator(wait=True, poll_interval=5, timeout=60)
    with pytest.raises(TaskFailedError, match=r"a: .*it was deleted and created again"):
        waiting.execute_complete(fleet.context("r2"), event)
    assert fleet.pushed["fds_fleet"]["streams"]["a"]["error"]["reason_code"] == "TABLE_REPLACED"


def test_a_declared_asset_gets_the_event_of_its_stream_and_none_without_rows(fleet):
    from airflow.sdk import Asset

    uris = [f"file://{fleet.root}/sinks/{name}" for name in ("a", "b")]
    outlets = [Asset(uri) for uri in uris]
    fleet.operator(outlets=outlets).execute(fleet.context())
    fleet.logs["b"].append()
    context = fleet.context("r2")
    operator = fleet.operator(outlets=outlets)
    operator.execute(context)
    assert operator.outlets == [outlets[1]]
    assert context["outlet_events"][outlets[1]].extra["stream"] == "b"


def test_each_stream_has_its_own_alerts(fleet, caplog):
    told = []
    alerts = StreamAlerts(notifiers=[lambda context: told.append(context["fds_alert"]["stream"])])
    fleet.logs["b"].commit(fleet.logs["b"].remove(next(iter(fleet.logs["b"].live))), operation="DELETE")
    streams = [fleet.one(name, on_violation="quarantine") for name in ("a", "b")]
    operator = fleet.operator(streams=streams, alerts=alerts, on_no_data="succeed")
    operator.execute(fleet.context())
    assert caplog.text.count("Stream b: everything before this version was delivered") == 1
    for run in ("r2", "r3"):
        assert operator.execute(fleet.context(run))["counts"] == {"unchanged": 1, "paused": 1}
    assert told == ["b"]


@pytest.fixture
def of_a_pattern(fleet, monkeypatch):
    """Makes operators for the tables in the lake, ``a`` and ``b`` at first."""
    # no Variable can be written here
    monkeypatch.setattr(
        stream_context, "checkpoint_store", lambda name, *_: FileCheckpointStore(fleet.root / f"{name}.json")
    )
    pattern = TablePattern(
        f"{fleet.root}/lake/*",
        sink=DeltaAppendSink(f"{fleet.root}/sinks/{{table}}"),
        name="{table}",
        options={"starting_version": 0},
    )
    return lambda **arguments: fleet.operator(streams=[], patterns=[pattern], **arguments)


def events_of(context):
    """The sinks with an event, and the streams with an alert event."""
    events = [
        event for alias in context["outlet_events"] for event in context["outlet_events"][alias].asset_alias_events
    ]
    return [event.dest_asset_key.uri.rsplit("/", 1)[-1] for event in events if "rows" in event.extra]


def test_a_table_of_a_pattern_that_is_gone_is_an_alert_and_withholds_no_event_of_the_others(
    fleet, of_a_pattern, caplog
):
    told = []
    alerts = StreamAlerts(notifiers=[lambda context: told.append(context["fds_alert"])])
    operator = of_a_pattern(alerts=alerts)
    assert operator.execute(fleet.context())["counts"] == {"loaded": 2}
    fleet.table("c")
    shutil.rmtree(fleet.root / "lake" / "a")
    context = fleet.context("r2")
    result = operator.execute(context)
    assert result["counts"] == {"loaded": 1, "unchanged": 1, "gone": 1}
    assert "/lake/a of stream 'a' is gone" in result["streams"]["a"]["reason"]
    assert events_of(context) == ["c"]
    assert "/lake/a of stream 'a' is gone" in caplog.text
    shutil.rmtree(fleet.root / "lake" / "c")
    with pytest.raises(AirflowSkipException, match=r"1 unchanged, 2 gone"):
        operator.execute(fleet.context("r3"))
    assert [(one["stream"], one["state"]) for one in told] == [("a", "unreadable"), ("c", "unreadable")]
    assert "is gone" in told[0]["why"]


def test_a_table_of_a_pattern_that_is_gone_fails_the_task_with_on_gone_fail(fleet, of_a_pattern):
    operator = of_a_pattern(on_gone="fail")
    assert operator.execute(fleet.context())["counts"] == {"loaded": 2}
    fleet.table("c")
    shutil.rmtree(fleet.root / "lake" / "a")
    with pytest.raises(TaskFailedError, match="is gone"):
        operator.execute(fleet.context("r2"))
    assert fleet.pushed["fds_fleet"]["counts"] == {"loaded": 1, "unchanged": 1, "failed": 1}
    assert len(fleet.pushed["fds_fleet"]["warnings"]) == 1


def test_the_stream_of_a_table_that_is_gone_is_retired_with_on_gone_retire(fleet, of_a_pattern, caplog):
    operator = of_a_pattern(on_gone="retire")
    assert operator.execute(fleet.context())["counts"] == {"loaded": 2}
    kept = fleet.root / "elsewhere"
    for name in ("a", "b"):
        shutil.move(fleet.root / "lake" / name, kept / name)
    # a folder without any table may not be mounted
    with pytest.raises(AirflowSkipException, match="2 gone"):
        operator.execute(fleet.context("r2"))
    assert fleet.state("a").retired is None
    shutil.move(kept / "b", fleet.root / "lake" / "b")
    fleet.table("c")
    result = operator.execute(fleet.context("r3"))
    assert result["counts"] == {"loaded": 1, "unchanged": 1, "gone": 1}
    assert "stream 'a' is gone, and the stream was retired" in caplog.text
    assert "on_gone='retire'" in fleet.state("a").retired.why
    caplog.clear()
    with pytest.raises(AirflowSkipException, match=r"2 unchanged"):
        operator.execute(fleet.context("r4"))
    assert "gone" not in caplog.text


def test_a_backfill_run_is_refused_as_for_a_task_of_one_stream_unless_all_streams_are_backfills(fleet):
    context = fleet.context("backfill__2026-01-01")
    with pytest.raises(TaskFailedError, match=r"BACKFILL_RUN_REFUSED|is a backfill, but stream 'a'") as refused:
        fleet.operator().execute(context)
    assert refused.value.reason_code == "BACKFILL_RUN_REFUSED"
    assert fleet.state("a").phase == "empty"
    one = fleet.one("a")
    stream = one.stream.backfill(start=0, end=1)
    fleet.operator(streams=[FleetStream(stream, one.sink)]).execute(context)
    assert fleet.spark.applications == [[stream.name]]


@pytest.mark.parametrize("streams", [None, 5, "orders", {"stream": "orders"}])
def test_what_another_task_returns_must_be_a_list_of_streams(fleet, streams):
    operator = fleet.operator()
    operator.streams = streams
    with pytest.raises(TaskFailedError, match="streams must be a list of FleetStream or of dicts") as refused:
        operator.execute(fleet.context())
    assert repr(streams) in str(refused.value)


def test_bad_arguments_are_refused_together(fleet):
    with pytest.raises(ConfigurationError) as refused:
        fleet.operator(
            streams=[fleet.one("a"), fleet.one("a")],
            parallelism=0,
            on_stream_failure="ignore",
            on_gone="ignore",
            max_bytes_in_flight=0,
            batch_timeout=-1,
            timeout=5,
            application="x.py",
        )
    text = str(refused.value)
    for word in (
        "'a' is given twice",
        "parallelism",
        "on_stream_failure",
        "on_gone must be 'alert' or 'fail' or 'retire', got 'ignore'",
        "max_bytes",
        "batch_timeout",
        "timeout has",
    ):
        assert word in text
    with pytest.raises(ConfigurationError, match="needs streams or patterns"):
        fleet.operator(streams=[])


def test_templates_in_streams_and_sinks_are_rendered(fleet):
    one = FleetStream(DeltaStream("t", table="s3://lake/{{ ds }}"), DeltaAppendSink("s3://bronze/{{ ds }}"))
    operator = DeltaFleetOperator(task_id="load", streams=[one])
    (rendered,) = operator.render_template(operator.streams, {"ds": "2026-01-01"})
    assert (rendered.stream.table, rendered.sink.uri) == ("s3://lake/2026-01-01", "s3://bronze/2026-01-01")


def test_the_lineage_of_a_run_has_each_stream_and_what_it_has_committed(fleet, monkeypatch):
    monkeypatch.setattr(installed_lineage, "is_on", lambda: True)
    fleet.logs["b"].commit(fleet.logs["b"].remove(next(iter(fleet.logs["b"].live))), operation="DELETE")
    operator = fleet.operator(streams=[fleet.one(name, on_violation="quarantine") for name in ("a", "b")])
    operator.execute(fleet.context())
    found = operator.lineages
    assert {name: (one.source.version, one.result.get("rows")) for name, one in found.items()} == {
        "a": (1, 10), "b": (1, 10)
    }  # fmt: skip
    assert [one.uri for one in found["a"].sinks] == [f"file://{fleet.root}/sinks/a"]
    assert found["a"].source.metadata is not None
    # what has nothing to load is named, without versions
    fleet.logs["a"].append()
    operator.execute(fleet.context("r2"))
    assert {name: one.source.version for name, one in operator.lineages.items()} == {"a": 2, "b": None}


def test_without_openlineage_nothing_is_gathered(fleet):
    operator = fleet.operator()
    operator.execute(fleet.context())
    assert operator.lineages == {}


def test_the_link_to_spark_is_the_link_of_a_fleet(fleet):
    fleet.spark.links = lambda: {"Spark history": "http://history/app-1"}
    operator = fleet.operator()
    operator.execute(fleet.context())
    assert operator.known_links == {"Spark": "http://history/app-1"}
    assert [link.name for link in operator.operator_extra_links] == ["Spark"]
    idle = fleet.operator()
    with pytest.raises(AirflowSkipException):
        idle.execute(fleet.context("r2"))
    assert idle.known_links == {}


def test_a_fleet_that_lingers_loads_what_comes_and_its_result_and_events_cover_all_of_it(fleet):
    write = fleet.spark.run_fleet

    def run_fleet(application):
        outcome = write(application)
        if len(fleet.spark.applications) < 3:
            fleet.logs["b"].append()
        return outcome

    fleet.spark.run_fleet = run_fleet
    context = fleet.context()
    result = fleet.operator(linger=1).execute(context)
    assert fleet.spark.applications == [["a", "b"], ["b"], ["b"]]
    assert result["counts"] == {"loaded": 2}
    assert (result["streams"]["b"]["batches"], result["streams"]["b"]["rows"]) == (3, 30)
    (alias,) = context["outlet_events"]
    events = context["outlet_events"][alias].asset_alias_events
    assert {one.dest_asset_key.uri.rsplit("/", 1)[-1]: one.extra["rows"] for one in events} == {"a": 10, "b": 30}


def test_a_stream_that_fails_in_a_later_round_leaves_the_others_at_work_and_fails_the_task_at_its_end(fleet):
    write = fleet.spark.run_fleet

    def run_fleet(application):
        outcome = write(application)
        count = len(fleet.spark.applications)
        fleet.spark.fails = {"b": True} if count == 1 else {}
        for name in ("a", "b"):
            if count < 3:
                fleet.logs[name].append()
        return outcome

    fleet.spark.run_fleet = run_fleet
    with pytest.raises(FleetFailedError, match=r"1 of 2 streams"):
        fleet.operator(linger=1).execute(fleet.context())
    assert fleet.spark.applications == [["a", "b"], ["a", "b"], ["a"]]
    told = fleet.pushed["fds_fleet"]["streams"]
    assert {name: (one["outcome"], one["batches"]) for name, one in told.items()} == {
        "a": ("loaded", 3),
        "b": ("failed", 1),
    }
    # the retry loads the rest, and lingers again
    fleet.spark.run_fleet = write
    result = fleet.operator(linger=0.1).execute(fleet.context(try_number=2))
    assert {name: one["batches"] for name, one in result["streams"].items()} == {"a": 3, "b": 3}


def test_a_fleet_that_waits_elsewhere_does_not_linger_without_data(fleet):
    fleet.operator().execute(fleet.context())
    with pytest.raises(TaskDeferred):
        fleet.operator(wait=True, linger=600).execute(fleet.context("r2"))


@pytest.mark.parametrize("linger", [0, -1])
def test_a_time_to_linger_that_is_none_is_refused(fleet, linger):
    with pytest.raises(ConfigurationError, match="linger must be a positive timedelta, seconds, or text"):
        fleet.operator(linger=linger)
