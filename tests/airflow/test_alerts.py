"""Alerts in real runs: notifiers, asset events, and who tells of an incident that several tasks see."""

from __future__ import annotations

import json
import socketserver
import threading
import time

import pytest

from airflow_provider_fds import DeltaAppendSink, DeltaIngestOperator, DeltaStream, DeltaStreamMonitorTrigger
from airflow_provider_fds.cli.main import main
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.stream.monitoring.incidents import IncidentLog
from airflow_provider_fds.stream.monitoring.status_row import read_status_file

pytestmark = pytest.mark.usefixtures("airflow_database")

DAG_TEXT = """
import json
from datetime import datetime, timedelta
from airflow.sdk import DAG, Asset
from airflow.sdk.bases.notifier import BaseNotifier
from airflow_provider_fds import (
    DeltaIngestOperator, DeltaStream, DeltaStreamMonitorOperator, DeltaAppendSink, StreamAlerts,
)

def write(context):
    with open("{told}", "a") as file:
        file.write(json.dumps({{**context["fds_alert"], "task": context["ti"].task_id}}) + "\\n")

def fail(context):
    with open("{told}", "a") as file:
        file.write(json.dumps("failed") + "\\n")
    raise RuntimeError("the chat is away")

class Templated(BaseNotifier):
    template_fields = ("text",)

    def __init__(self, text):
        super().__init__()
        self.text = text

    def notify(self, context):
        with open("{told}", "a") as file:
            file.write(json.dumps(self.text) + "\\n")

with DAG("{dag}", schedule=None, start_date=datetime(2026, 1, 1)):
    {task}
"""

INGEST = """DeltaIngestOperator(
        task_id="ingest",
        stream=DeltaStream("{name}", table="{lake}/orders", starting_version="earliest", on_violation="quarantine"),
        sink=DeltaAppendSink("{lake}/sink"),
        alerts=StreamAlerts({alerts}),
        {more}
    )"""

MONITOR = """DeltaStreamMonitorOperator(
        task_id="monitor",
        poll_interval=timedelta(seconds=0.2),
        duration=timedelta(seconds=1),
        alerts=StreamAlerts({alerts}),
    )"""


class Dags:
    def __init__(self, installation, lake, told):
        self.installation, self.lake, self.path = installation, lake, told

    def add(self, dag, task):
        return self.installation.add(DAG_TEXT.format(told=self.path, dag=dag, task=task))

    def ingest(self, name, alerts="notifiers=[write]", more=""):
        return self.add(name, INGEST.format(name=name, lake=self.lake.uri, alerts=alerts, more=more))

    def monitor(self, alerts="notifiers=[write]"):
        return self.add("monitor", MONITOR.format(alerts=alerts))

    def events(self, stream="orders"):
        """The events of this test; those of others stay in the database."""
        found = self.installation.events(f"fds://{stream}/state")
        return [event for event in found if str(self.path.parent) in event["action"]]

    def told(self):
        return [json.loads(line) for line in self.path.read_text().splitlines()] if self.path.exists() else []


@pytest.fixture
def dags(installation, on_server, lake, tmp_path):
    return Dags(installation, lake, tmp_path / "told.jsonl")


@pytest.fixture
def deleted(lake):
    """A table whose version 2 deletes rows."""
    lake.append("orders", 1)
    lake.append("orders", 2)
    lake.delete("orders", "id = 1")
    return lake


def fds(tmp_path, *words):
    staging = str(tmp_path / "staging")
    assert main([*words, "--staging", staging, "--deployment", "http://fds.test", "--why", "looked at it"]) == 0


def incidents(tmp_path, name):
    return IncidentLog(open_storage(str(tmp_path / "staging")), name).open()


def test_a_quarantine_is_told_once_until_it_is_skipped_and_the_next_one_again(dags, deleted, installation, tmp_path):
    dag = dags.ingest("orders")
    assert installation.run(dag).state("ingest") == "success"
    assert dags.told() == []
    skipped = installation.run(dag)
    assert skipped.state("ingest") == "skipped"
    (alert,) = dags.told()
    assert (alert["state"], alert["stream"], alert["version"], alert["task"]) == ("quarantined", "orders", 2, "ingest")
    assert alert["operation"].startswith("DELETE")
    assert "version 2" in alert["why"]
    assert alert["action"].startswith("fds skip orders --version 2 --why … --staging file:")
    assert installation.run(dag).state("ingest") == "skipped"
    assert len(dags.told()) == 1

    fds(tmp_path, "skip", "orders", "--version", "2", "--yes")
    deleted.append("orders", 3)
    assert installation.run(dag).state("ingest") == "success"
    assert incidents(tmp_path, "orders") == ()

    deleted.delete("orders", "id = 2")
    assert installation.run(dag).state("ingest") == "skipped"
    assert [alert["version"] for alert in dags.told()] == [2, 4]
    # resumed without a change: it stops at the same version, which is news to the person who resumed it
    fds(tmp_path, "resume", "orders")
    assert installation.run(dag).state("ingest") == "skipped"
    assert [alert["version"] for alert in dags.told()] == [2, 4, 4]


def test_a_run_that_fails_is_told_once_per_reason_and_position(dags, deleted, installation, tmp_path):
    text = INGEST.format(name="orders", lake=deleted.uri, alerts="notifiers=[write]", more="retries=2")
    dag = dags.add("fails", text.replace('on_violation="quarantine"', 'on_violation="fail"'))
    assert installation.run(dag).state("ingest") == "success"
    assert installation.run(dag).state("ingest") == "failed"
    (alert,) = dags.told()
    assert (alert["state"], alert["version"], alert["task"]) == ("failing", 2, "ingest")
    assert "[SOURCE_ROWS_DELETED]" in alert["why"]
    assert alert["action"].startswith("fds explain orders --staging file:")
    assert installation.run(dag).state("ingest") == "failed"
    assert len(dags.told()) == 1
    monitor = dags.monitor()
    installation.run(monitor)
    assert [event["state"] for event in dags.events()] == ["failing"]
    assert len(dags.told()) == 1

    fds(tmp_path, "skip", "orders", "--version", "2", "--yes")
    deleted.append("orders", 3)
    assert installation.run(dag).state("ingest") == "success"
    assert incidents(tmp_path, "orders") == ()


def test_a_run_that_uses_the_name_of_another_stream_is_told_once_and_says_nothing_about_that(
    dags, lake, installation, tmp_path
):
    text = INGEST.format(name="orders", lake=lake.uri, alerts="notifiers=[write]", more="")
    owner = dags.add("owner_of_the_name", text)
    lake.append("orders", 1)
    assert installation.run(owner).state("ingest") == "success"
    before = read_status_file(open_storage(str(tmp_path / "staging")), "orders")
    stranger = dags.add("user_of_the_name", text.replace("/orders", "/customers"))
    for _ in range(2):
        assert installation.run(stranger).state("ingest") == "failed"
    (alert,) = dags.told()
    assert (alert["state"], alert["stream"]) == ("name_in_use", "orders")
    assert alert["table"].endswith("/customers")
    assert "the name is that of the stream of" in alert["why"]
    assert read_status_file(open_storage(str(tmp_path / "staging")), "orders") == before
    # the stream itself goes on, and its runs neither repeat nor end this
    assert installation.run(owner).state("ingest") == "skipped"
    installation.run(dags.monitor())
    assert len(dags.told()) == 1
    assert [event["state"] for event in dags.events()] == ["name_in_use"]


def test_the_monitor_emits_the_event_of_an_incident_that_a_run_has_told_of_and_tells_of_none_twice(
    dags, deleted, installation, tmp_path
):
    dag = dags.ingest("orders")
    installation.run(dag)
    assert installation.run(dag).state("ingest") == "skipped"
    assert dags.events() == []
    monitor = dags.monitor()
    run = installation.run(monitor)
    assert (run.state("monitor"), run.xcom("monitor")) == ("success", 1)
    (event,) = dags.events()
    assert (event["state"], event["version"]) == ("quarantined", 2)
    assert set(event) >= {"state", "version", "operation", "why", "action"}
    # the next run watches on, to the end of its time
    assert installation.run(monitor).xcom("monitor") > 1
    assert len(dags.events()) == 1
    assert [alert["task"] for alert in dags.told()] == ["ingest"]


def test_the_monitor_tells_of_lag_while_the_dag_of_the_stream_is_paused(dags, lake, installation, tmp_path):
    lake.append("orders", 1)
    assert installation.run(dags.ingest("orders", alerts="")).state("ingest") == "success"
    lake.append("orders", 2)
    time.sleep(0.3)
    monitor = dags.monitor("lag=timedelta(seconds=0.2), notifiers=[write]")
    installation.run(monitor)
    (alert,) = dags.told()
    assert (alert["state"], alert["task"]) == ("lag", "monitor")
    assert alert["why"].startswith("1 version is not committed, the oldest for ")
    installation.run(monitor)
    assert len(dags.told()) == len(dags.events()) == 1
    # the stream catches up, which ends it
    installation.run(dags.ingest("orders", alerts=""))
    installation.run(monitor)
    assert incidents(tmp_path, "orders") == ()
    lake.append("orders", 3)
    time.sleep(0.3)
    installation.run(monitor)
    assert len(dags.told()) == len(dags.events()) == 2


def test_a_notifier_that_fails_is_a_warning_and_is_called_again_at_the_next_look(dags, deleted, installation):
    dag = dags.ingest("orders", alerts="notifiers=[fail, write]")
    installation.run(dag)
    for expected in (1, 2, 3):
        assert installation.run(dag).state("ingest") == "skipped"
        assert dags.told().count("failed") == expected
    # the one that succeeded is not called again
    assert len(dags.told()) == 4


def test_a_run_that_succeeds_emits_the_event_itself_and_none_about_the_sink(dags, deleted, installation):
    dag = dags.ingest("orders", more='on_no_data="succeed", outlets=[Asset("my_orders")]')
    assert installation.run(dag).state("ingest") == "success"
    assert installation.run(dag).state("ingest") == "success"
    assert [event["state"] for event in dags.events()] == ["quarantined"]
    assert installation.events(f"{deleted.uri}/sink") == []
    assert len(dags.told()) == 1


def test_templates_of_a_notifier_see_the_alert(dags, deleted, installation):
    dag = dags.ingest(
        "orders", alerts='notifiers=[Templated("{{ fds_alert.title }}, version {{ fds_alert.version }}")]'
    )

    installation.run(dag)
    installation.run(dag)
    assert dags.told() == ["Stream orders: quarantined, version 2"]


class Mail(socketserver.StreamRequestHandler):
    """An SMTP server that keeps what it gets."""

    def handle(self):
        self.wfile.write(b"220 here\r\n")
        while line := self.rfile.readline():
            word = line.split()[0].upper() if line.split() else b""
            if word == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                body = b""
                while (part := self.rfile.readline()) != b".\r\n":
                    body += part
                self.server.mails.append(body.decode())
            self.wfile.write(b"221 bye\r\n" if word == b"QUIT" else b"250 ok\r\n")
            if word == b"QUIT":
                return


@pytest.fixture
def mails(monkeypatch):
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Mail) as server:
        server.daemon_threads = True
        server.mails = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        extra = {"disable_ssl": True, "disable_tls": True, "from_email": "fds@example.com"}
        connection = {"conn_type": "smtp", "host": "127.0.0.1", "port": server.server_address[1], "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_SMTP_DEFAULT", json.dumps(connection))
        yield server.mails
        server.shutdown()


def test_the_smtp_notifier_of_airflow_sends_one_mail(dags, deleted, installation, mails):
    pytest.importorskip("airflow.providers.smtp.notifications.smtp")
    smtp = (
        '__import__("airflow.providers.smtp.notifications.smtp", fromlist=["x"]).SmtpNotifier('
        'to="ops@example.com", subject="{{ fds_alert.title }}", html_content="{{ fds_alert.why }}")'
    )
    dag = dags.ingest("orders", alerts=f"notifiers=[{smtp}]")
    for _ in range(3):
        installation.run(dag)
    (mail,) = mails
    assert "Subject: Stream orders: quarantined" in mail


def test_the_example_of_one_stream_tells_once(dags, installation, lake, deleted, monkeypatch, tmp_path):
    monkeypatch.setenv("FDS_EXAMPLE_LAKE", lake.uri)
    dag = installation.add_example("orders_alerts")
    assert installation.run(dag).state("ingest") == "success"
    assert installation.run(dag).state("ingest") == "skipped"
    (incident,) = incidents(tmp_path, "orders_alerts")
    assert (incident.state, incident.is_told, incident.is_emitted) == ("quarantined", True, False)
    run = installation.run(installation.add_example("fds_alerts"))
    assert run.state("monitor") == "success"
    assert len(dags.events("orders_alerts")) == 1


def test_the_trigger_of_the_monitor_keeps_its_arguments():
    thresholds = {"lag": 60.0, "retention_left": None}
    trigger = DeltaStreamMonitorTrigger(staging="file:///s", interval=1, until=2, alerts=thresholds, has_notifiers=True)
    assert DeltaStreamMonitorTrigger(**trigger.serialize()[1]).serialize() == trigger.serialize()


def test_something_else_than_stream_alerts_is_refused(tmp_path):
    stream = DeltaStream("orders", table=str(tmp_path))
    with pytest.raises(ConfigurationError, match="alerts must be StreamAlerts"):
        DeltaIngestOperator(task_id="t", stream=stream, sink=DeltaAppendSink(str(tmp_path / "s")), alerts=[print])
