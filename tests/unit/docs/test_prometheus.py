"""The alerts and the dashboard of docs/prometheus have names of FDS's gauges, and Prometheus takes them."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from airflow_provider_fds.stream.monitoring.metrics import METRICS
from tests.programs import find_program

FOLDER = Path(__file__).parents[3] / "docs" / "prometheus"
ALERTS, DASHBOARD = FOLDER / "alerts.yml", FOLDER / "dashboard.json"
GAUGES = {metric.prometheus_name for metric in METRICS if metric.kind == "gauge"}

PROMTOOL = find_program("promtool")

needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed (Debian: prometheus)")


def rules():
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def expressions():
    return [target["expr"] for panel in json.loads(DASHBOARD.read_text())["panels"] for target in panel["targets"]]


def promtool(*words):
    done = subprocess.run([str(PROMTOOL), *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_they_name_gauges_and_labels_that_are_served():
    asked = [*(rule["expr"] for rule in rules()), *expressions()]
    named = {name for text in asked for name in re.findall(r"\bfds_\w+", text)}
    assert named <= GAUGES
    labels = set(re.findall(r"\$labels\.(\w+)", ALERTS.read_text()))
    assert labels == {"stream", "table"}


def test_the_dashboard_has_a_panel_for_each_number_of_a_stream():
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    places = {(x, y) for panel in panels for x, y in cells(panel["gridPos"])}
    # no panel lies on another, and none is outside of the grid
    assert len(places) == sum(panel["gridPos"]["w"] * panel["gridPos"]["h"] for panel in panels)
    assert max(x for x, _ in places) < 24


def cells(grid):
    return ((grid["x"] + x, grid["y"] + y) for x in range(grid["w"]) for y in range(grid["h"]))


@needs_promtool
def test_prometheus_takes_the_alerts_and_what_the_dashboard_asks(tmp_path):
    promtool("check", "rules", str(ALERTS))
    asked = [
        {"record": f"panel:{number}", "expr": text.replace("$stream", ".*")}
        for number, text in enumerate(expressions())
    ]
    (tmp_path / "panels.yml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": asked}]}))
    promtool("check", "rules", str(tmp_path / "panels.yml"))


STREAM = '{stream="orders", table="s3://lake/orders"}'


@needs_promtool
@pytest.mark.parametrize(
    ("alert", "fine", "wrong", "minutes"),
    [
        ("FdsStreamNeedsAttention", f"fds_needs_attention{STREAM} 0", f"fds_needs_attention{STREAM} 1", 6),
        ("FdsStreamFailsRepeatedly", f"fds_failed_runs{STREAM} 2", f"fds_failed_runs{STREAM} 3", 1),
        ("FdsStreamIsLate", f"fds_lag_seconds{STREAM} 7200", f"fds_lag_seconds{STREAM} 7201", 11),
        (
            "FdsVersionsWillBeRemoved",
            f"fds_retention_left_seconds{STREAM} 86400",
            f"fds_retention_left_seconds{STREAM} 86399",
            1,
        ),
        ("FdsMonitorIsSilent", 'up{job="fds"} 1', 'up{job="fds"} 0', 11),
    ],
)
def test_an_alert_fires_when_it_should_and_not_before(tmp_path, alert, fine, wrong, minutes):
    def fired(series, at):
        name, _, value = series.rpartition(" ")
        up = [] if name.startswith("up") else [{"series": 'up{job="fds"}', "values": "1x30"}]
        return {
            "interval": "1m",
            "input_series": [{"series": name, "values": f"{value}x30"}, *up],
            # labels and texts of what fires
            "alert_rule_test": [{"eval_time": f"{at}m", "alertname": alert, "exp_alerts": expected(series)}],
        }

    def expected(series):
        if series == fine:
            return []
        (rule,) = [rule for rule in rules() if rule["alert"] == alert]
        labels = {"severity": rule["labels"]["severity"]}
        labels |= {"job": "fds"} if alert == "FdsMonitorIsSilent" else {"stream": "orders", "table": "s3://lake/orders"}
        shown = {"3": "3", "7201": "2h 0m 1s", "86399": "23h 59m 59s"}.get(series.rpartition(" ")[2], "")
        texts = {
            name: text.replace("{{ $labels.stream }}", "orders")
            .replace("{{ $labels.table }}", "s3://lake/orders")
            .replace("{{ $value }}", shown)
            .replace("{{ $value | humanizeDuration }}", shown)
            for name, text in rule["annotations"].items()
        }
        return [{"exp_labels": labels, "exp_annotations": texts}]

    tests = [fired(fine, 30), fired(wrong, minutes)]
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}))
    promtool("test", "rules", str(file))
