"""What a task does with alerts when a part of it fails: no notifier and no stream hides another."""

from __future__ import annotations

import sys
from collections import defaultdict
from types import SimpleNamespace

import pytest

from airflow_provider_fds import DeltaAppendSink, DeltaStreamMonitorOperator, StreamAlerts
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.errors import AccessDeniedError, FdsError
from airflow_provider_fds.hooks.stats import sending_status
from airflow_provider_fds.operators.lineage.outlets import alert_outlet, is_alert_outlet
from airflow_provider_fds.operators.run.alerting import Alerting
from airflow_provider_fds.stream.monitoring.alerts import Alert, Found
from airflow_provider_fds.stream.monitoring.incidents import IncidentLog
from tests.unit.stream.conftest import bench

__all__ = ["bench"]

pytestmark = pytest.mark.usefixtures("airflow_home")

#: The context of the only attempt of a task.
FIRST_OF_ONE = {"ti": SimpleNamespace(try_number=1, max_tries=0)}


class Events(defaultdict):
    def __init__(self):
        super().__init__(lambda: SimpleNamespace(add=lambda asset, extra: self.told.append(extra["stream"])))
        self.told = []


@pytest.fixture
def context():
    return {"outlet_events": Events(), "ti": SimpleNamespace(xcom_push=lambda **_: None)}


def found(stream):
    return Found((Alert(stream, "t", "quarantined", "7", "deletes rows", "fds …", 5, 7, "DELETE"),))


def test_an_alias_of_the_user_is_no_outlet_of_alerts():
    from airflow.sdk import AssetAlias

    assert is_alert_outlet(alert_outlet("dag", "task"))
    assert not is_alert_outlet(AssetAlias("sales:alerts"))


def test_a_notifier_that_exits_hides_no_other(tmp_path, context):
    told = []
    alerts = StreamAlerts(notifiers=[lambda _: sys.exit(1), lambda alert: told.append(alert["fds_alert"]["stream"])])
    operator = DeltaStreamMonitorOperator(task_id="monitor", alerts=alerts)
    Alerting(operator, context, alerts).tell(LocalStorage(str(tmp_path)), "orders", found("orders"))
    assert told == ["orders"]


@pytest.mark.parametrize("streams", [["denied", "orders"], ["orders", "denied"]])
def test_a_stream_whose_incidents_cannot_be_written_hides_no_other(tmp_path, context, monkeypatch, streams, caplog):
    staging = LocalStorage(str(tmp_path))
    put = staging.put_if_absent

    def refused(key, data):
        if key.startswith("denied/"):
            raise AccessDeniedError("403", table="t")
        return put(key, data)

    monkeypatch.setattr(staging, "put_if_absent", refused)
    monkeypatch.setattr("airflow_provider_fds.hooks.places.open_storage", lambda *_: staging)
    told = []
    alerts = StreamAlerts(notifiers=[lambda one: told.append(one["fds_alert"]["stream"])])
    operator = DeltaStreamMonitorOperator(task_id="monitor", staging=str(tmp_path), alerts=alerts)

    def resume(*names):
        event = {"status": "alerts", "rounds": 1, "streams": {name: found(name).to_dict() for name in names}}
        return operator.execute_complete(context, event)

    assert resume(*streams) == 1
    assert (told, context["outlet_events"].told) == (["orders"], ["orders"])
    assert "denied" in caplog.text
    # a task that could tell of nothing fails, so that it does not run again and again in silence
    with pytest.raises(Exception, match="403"):
        resume("denied")


def test_a_run_that_cannot_read_its_ledger_alerts(bench, log_builder, tmp_path):
    log_builder.create()
    session, _ = bench.run_once(DeltaAppendSink(str(tmp_path / "sink")))
    staging = session.connected.staging
    for one in list(staging.list_after("orders/ledger")):
        staging.put(one.key, b"{")
    for one in list(staging.list_after("orders/ledger/_checkpoint")):
        staging.put(one.key, b"{")
    told = []
    alerts = StreamAlerts(notifiers=[lambda one: told.append(one["fds_alert"]["state"])])
    operator = DeltaStreamMonitorOperator(task_id="monitor", alerts=alerts)
    session = bench.session("run-2")
    with pytest.raises(FdsError), sending_status(session, FIRST_OF_ONE, Alerting(operator, {}, alerts)):
        session.begin(DeltaAppendSink(str(tmp_path / "sink")))
    assert told == ["unreadable"]
    assert [one.state for one in IncidentLog(staging, "orders").open()] == ["unreadable"]
