"""Which states of a stream alert, from its status; and that the page says so."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_provider_fds import StreamAlerts
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.ledger.entries.operator_entries import Held, Quarantined, Resumed
from airflow_provider_fds.sinks import DeltaAppendSink
from airflow_provider_fds.stream.monitoring.alerts import STATES, Found, find_alerts
from airflow_provider_fds.stream.monitoring.condition import ATTENTION as CONDITIONS
from airflow_provider_fds.stream.monitoring.status import StreamStatus, status_of

PAGE = Path(__file__).parents[4] / "docs" / "alerting.md"
ALL = StreamAlerts(lag=timedelta(minutes=10), retention_left=timedelta(days=2))
ATTENTION = {"key": "7", "why": "deletes rows", "action": "fds …", "version": 7, "operation": "DELETE"}


def status(**fields):
    return StreamStatus(name="orders", table="s3://lake/orders", phase="open", **fields)


def states(found):
    return [alert.state for alert in found.alerts]


def test_the_page_has_each_state_and_when_it_begins():
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert [row for row in rows if row[0] in STATES] == list(STATES.items())


@pytest.mark.parametrize("condition", sorted(CONDITIONS))
def test_each_condition_that_needs_a_person_alerts_without_an_option(condition):
    (alert,) = find_alerts(status(condition=condition, attention=ATTENTION), StreamAlerts()).alerts
    assert (alert.state, alert.version, alert.operation, alert.why) == (condition, 7, "DELETE", "deletes rows")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"lag_seconds": 600.0, "lag_versions": 3}, ["lag"]),
        ({"lag_seconds": 599.0, "lag_versions": 3}, []),
        ({"retention_left_seconds": 172_800.0}, ["retention_left"]),
        ({"retention_left_seconds": 172_801.0}, []),
        ({"lag_seconds": 1e6, "retention_left_seconds": 0.0}, ["lag", "retention_left"]),
        ({"lag_seconds": 1e6, "condition": "retired"}, []),
        ({"lag_seconds": 1e6, "condition": "quarantined", "attention": ATTENTION}, ["quarantined", "lag"]),
    ],
)
def test_a_threshold_is_inclusive(fields, expected):
    assert states(find_alerts(status(**fields), ALL)) == expected


def test_a_lag_names_the_numbers_and_a_command():
    (alert,) = find_alerts(status(lag_seconds=900.0, lag_versions=3), ALL).alerts
    assert alert.why == "3 versions are not committed, the oldest for 15 min (threshold: 10 min)"
    assert alert.action == "fds explain orders"


def test_a_storage_that_does_not_answer_begins_and_ends_nothing():
    found = find_alerts(status(condition="unreadable", reason_code="STORAGE_FAILED", attention=ATTENTION), ALL)
    assert found.alerts == ()
    assert not any(found.ends(state, key) for state in STATES for key in ("", "600", "172800"))


def test_a_condition_does_not_end_what_it_hides():
    hidden = find_alerts(status(condition="unreadable", reason_code="ACCESS_DENIED", attention=ATTENTION), ALL)
    assert states(hidden) == ["unreadable"]
    assert not any(hidden.ends(state, "") for state in ("failing", "blocked", "quarantined", "lost_position"))
    # the lag is unknown
    assert not hidden.ends("lag", "600")


def test_a_stream_without_lag_ends_both_thresholds_and_a_lag_does_not_end_a_lower_one_of_another_task():
    found = find_alerts(status(condition="up_to_date", lag_seconds=0.0, lag_versions=0), ALL)
    assert found.ends("lag", "600")
    assert found.ends("retention_left", "172800")
    lagging = find_alerts(status(lag_seconds=100.0, lag_versions=1), ALL)
    assert lagging.ends("lag", "600")
    assert not lagging.ends("lag", "60")


def test_what_is_found_goes_through_the_event_of_a_trigger():
    found = find_alerts(status(lag_seconds=900.0, lag_versions=3), ALL)
    assert Found.from_dict(found.to_dict()) == found
    assert StreamAlerts.from_thresholds(ALL.thresholds()) == ALL


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lag": 600}, "lag must be a positive timedelta"),
        ({"retention_left": timedelta()}, "retention_left must be a positive timedelta"),
        ({"notifiers": print}, "notifiers must be a list"),
        ({"notifiers": ["ops@example.com"]}, "got 'ops@example.com'"),
        ({"notifiers": [dict]}, "functions that take the task's context"),
    ],
)
def test_bad_arguments_are_refused(arguments, message):
    with pytest.raises(ConfigurationError, match=message):
        StreamAlerts(**arguments)


def test_what_looks_like_a_credential_is_not_told():
    why = "GET https://lake.test/a?X-Amz-Signature=abc123secret was refused"
    (alert,) = find_alerts(status(condition="unreadable", attention={**ATTENTION, "why": why}), ALL).alerts
    assert "abc123secret" not in alert.why
    assert alert.why.endswith("was refused")


def test_a_quarantine_that_was_resumed_and_found_again_began_with_its_own_entry(bench, log_builder, tmp_path):
    log_builder.create()
    log_builder.append(1)
    connected = bench.run_once(DeltaAppendSink(str(tmp_path / "sink")))[0].connected
    began = []
    for _ in range(2):
        connected.execute(Quarantined(why="a DELETE", version=3))
        (alert,) = find_alerts(status_of(connected), StreamAlerts()).alerts
        began.append((alert.begun, alert.entry))
        connected.execute(Held(why="meanwhile"))
        (later,) = find_alerts(status_of(connected), StreamAlerts()).alerts
        assert later.begun == alert.begun
        connected.execute(Resumed(why="looked at it"))
    (first, _), (second, entry) = began
    assert second == first + 3 == entry


@pytest.mark.parametrize(
    ("fields", "is_over"),
    [
        ({"lag_seconds": 0.0, "lag_versions": 0}, True),
        ({"lag_seconds": 599.0, "lag_versions": 1}, True),
        ({"lag_seconds": 600.0, "lag_versions": 1}, False),
        ({}, False),
        ({"condition": "retired"}, True),
    ],
)
def test_an_incident_of_a_threshold_that_is_no_longer_used_ends_with_the_lag(fields, is_over):
    # otherwise the next one is silent if the threshold is used again
    for alerts in (StreamAlerts(), StreamAlerts(lag=timedelta(hours=1))):
        found = Found.from_dict(find_alerts(status(**fields), alerts).to_dict())
        assert found.ends("lag", "600") is is_over


def test_an_incident_of_the_retention_ends_for_every_threshold_if_everything_is_committed():
    for fields, is_over in (({"lag_versions": 0}, True), ({"lag_versions": 1, "retention_left_seconds": 9.0}, False)):
        assert find_alerts(status(**fields), StreamAlerts()).ends("retention_left", "86400") is is_over
