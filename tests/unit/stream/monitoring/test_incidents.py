"""Incidents are told once: whoever finds them, whoever dies, and in whichever order."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest

from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.errors import AccessDeniedError
from airflow_provider_fds.stream.monitoring.alerts import Alert, Found, StreamAlerts
from airflow_provider_fds.stream.monitoring.incident_watch import IncidentWatch
from airflow_provider_fds.stream.monitoring.incidents import LEASE_SECONDS, MOST_ATTEMPTS, IncidentLog
from airflow_provider_fds.stream.monitoring.status import StreamStatus


class Clock:
    def __init__(self):
        self.now = 1_000_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def staging(tmp_path):
    return LocalStorage(str(tmp_path))


@pytest.fixture
def log(staging, clock):
    return IncidentLog(staging, "orders", clock)


def alert(version=7, entry=5, state="quarantined"):
    return Alert("orders", "s3://lake/orders", state, str(version), "deletes rows", "fds …", entry, version, "DELETE")


def found(*alerts, unknown=()):
    return Found(alerts, frozenset(unknown))


NOTHING = found()


def tell(log, what, **options):
    """Claim, notify with success, and return the versions that were told."""
    claimed = log.claim(what, **options)
    for incident in claimed:
        log.settle(incident, ["0:mail"], is_told=True)
    return [incident.version for incident in claimed]


def test_an_incident_is_told_once_and_again_after_it_has_ended(log):
    assert tell(log, found(alert())) == [7]
    assert tell(log, found(alert())) == []
    assert tell(log, NOTHING) == []
    assert log.open() == ()
    assert tell(log, found(alert())) == [7]


def test_another_version_is_another_incident(log):
    assert tell(log, found(alert(7))) == [7]
    assert tell(log, found(alert(9))) == [9]
    assert [incident.version for incident in log.open()] == [9]


def test_a_stream_that_was_resumed_and_stops_at_the_same_version_is_another_incident(log):
    assert tell(log, found(alert(entry=5))) == [7]
    # the run that wrote the quarantine again, as entry 8
    assert tell(log, found(alert(entry=8)), fresh_entry=8) == [7]
    # a run that finds it at the same time, or the run itself at its next look
    assert tell(log, found(alert(entry=9)), fresh_entry=8) == []


def test_a_quarantine_that_was_resumed_and_found_again_is_told_by_whoever_looks_next(log, staging, watch):
    assert tell(log, found(alert(entry=5))) == [7]
    log.emit()
    again = replace(alert(entry=9), begun=8)
    # the run that wrote entry 8 died, or has no alerts; a monitor
    assert list(watch.check(staging, [quarantined(begun=5)])) == []
    due = watch.check(staging, [quarantined(begun=8)])
    assert list(due) == ["orders"]
    assert tell(log, found(again)) == [7]
    log.emit()
    assert tell(log, found(again)) == []
    assert watch.check(staging, [quarantined(begun=8)]) == {}


def test_of_many_that_look_at_the_same_time_one_tells(staging):
    def look(_):
        return tell(IncidentLog(staging, "orders"), found(alert()))

    with ThreadPoolExecutor(8) as threads:
        told = list(threads.map(look, range(16)))
    assert max(told, key=len) == [7]
    assert sum(map(len, told)) == 1


def test_of_many_that_emit_at_the_same_time_one_does(staging):
    IncidentLog(staging, "orders").observe(found(alert()))
    with ThreadPoolExecutor(8) as threads:
        emitted = list(threads.map(lambda _: IncidentLog(staging, "orders").emit(), range(16)))
    assert sum(map(len, emitted)) == 1


def test_while_one_notifies_nobody_else_does_and_if_it_died_another_takes_over(log, clock):
    (claimed,) = log.claim(found(alert()))
    assert log.claim(found(alert())) == ()
    clock.now += LEASE_SECONDS
    (again,) = log.claim(found(alert()))
    assert (claimed.attempts, again.attempts) == (1, 2)


def test_a_notifier_that_failed_is_called_at_the_next_look_but_not_for_ever(log, clock):
    for attempt in range(1, MOST_ATTEMPTS + 1):
        clock.now += 1
        (claimed,) = log.claim(found(alert()))
        assert (claimed.attempts, claimed.told) == (attempt, ("0:chat",) if attempt > 1 else ())
        log.settle(claimed, ["0:chat"], is_told=False)
    clock.now += 1e6
    assert log.claim(found(alert())) == ()


def test_what_is_unknown_neither_begins_nor_ends(log):
    tell(log, found(alert()))
    assert tell(log, found(unknown={"quarantined"})) == []
    assert len(log.open()) == 1


def test_an_incident_that_ends_while_its_notifiers_are_called_stays_ended(log):
    (claimed,) = log.claim(found(alert()))
    log.observe(NOTHING)
    log.settle(claimed, ["0:mail"], is_told=True)
    assert log.open() == ()


def test_a_damaged_list_tells_again_instead_of_being_silent(log, staging, caplog):
    tell(log, found(alert()))
    newest = max(one.key for one in staging.list_after("orders/alerts"))
    staging.put(newest, b"{")
    assert tell(log, found(alert())) == [7]
    assert "cannot be read" in caplog.text


def test_a_steady_state_writes_nothing_and_few_lists_are_kept(log, staging):
    assert tell(log, NOTHING) == []
    assert list(staging.list_after("orders/alerts")) == []
    for _ in range(20):
        tell(log, found(alert()))
        tell(log, NOTHING)
    assert len(list(staging.list_after("orders/alerts"))) <= 18


def status(lag, name="orders"):
    return StreamStatus(name=name, table="t", phase="open", lag_seconds=lag, lag_versions=int(lag > 0), entries=3)


def quarantined(begun):
    attention = {"key": "7", "why": "w", "action": "a", "version": 7, "operation": "DELETE", "begun": begun}
    return replace(status(0), condition="quarantined", attention=attention, entries=begun + 2)


@pytest.fixture
def watch():
    thresholds = StreamAlerts(lag=timedelta(minutes=10)).thresholds()
    return IncidentWatch(thresholds, has_notifiers=True, pause=60)


def test_a_watch_returns_what_a_task_must_tell_and_ends_what_is_over(watch, staging, clock):
    log = IncidentLog(staging, "orders")
    assert watch.check(staging, [status(599)]) == {}
    due = watch.check(staging, [status(600), status(1, "other")])
    assert list(due) == ["orders"]
    # it is the task that remembers it
    assert log.open() == ()
    assert len(tell(log, due["orders"])) == 1
    assert list(watch.check(staging, [status(700)])) == ["orders"], "its asset event is due"
    log.emit()
    assert watch.check(staging, [status(800)]) == {}
    assert watch.check(staging, [status(0)]) == {}
    assert log.open() == ()


def test_a_watch_waits_before_a_notifier_that_failed_is_called_again(watch, staging):
    log = IncidentLog(staging, "orders")
    (claimed,) = log.claim(watch.check(staging, [status(700)])["orders"])
    log.emit()
    log.settle(claimed, [], is_told=False)
    assert watch.check(staging, [status(700)]) == {}
    watch._pause = 0
    assert list(watch.check(staging, [status(700)])) == ["orders"]


def test_a_watch_reads_a_stream_that_did_not_change_no_more(watch, staging, monkeypatch):
    watch.check(staging, [status(1)])
    monkeypatch.setattr(IncidentLog, "open", None)
    assert watch.check(staging, [status(2)]) == {}


def test_a_stream_whose_incidents_cannot_be_read_hides_no_other(watch, staging, monkeypatch, caplog):
    read = staging.list_after

    def refused(folder, after=None):
        if folder.startswith("denied/"):
            raise AccessDeniedError("403", table="t")
        return read(folder, after)

    monkeypatch.setattr(staging, "list_after", refused)
    assert list(watch.check(staging, [status(700, "denied"), status(700)])) == ["orders"]
    assert "denied" in caplog.text


def test_an_old_list_that_cannot_be_removed_hides_no_incident(log, staging, monkeypatch):
    def refused(_key):
        raise AccessDeniedError("403", table="t")

    monkeypatch.setattr(staging, "delete", refused)
    for _ in range(20):
        assert tell(log, found(alert())) == [7]
        assert tell(log, NOTHING) == []
