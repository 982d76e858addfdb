"""The metrics: one table for the code and the page, and their values from a status."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airflow_provider_fds.ledger.entries.commit_entries import Committed
from airflow_provider_fds.ledger.measures import Measures
from airflow_provider_fds.ledger.owner import Owner
from airflow_provider_fds.stream.monitoring.condition import ATTENTION
from airflow_provider_fds.stream.monitoring.metrics import METRICS, batch_samples, exposition, status_samples
from airflow_provider_fds.stream.monitoring.status import StreamStatus

PAGE = Path(__file__).parents[4] / "docs" / "metrics.md"


def status(**fields):
    return StreamStatus(name="orders", table="s3://lake/orders", phase="open", **fields)


def values(found):
    return {sample.metric.name: sample.value for sample in status_samples(found)}


def test_the_page_says_of_each_metric_what_the_code_says():
    rows = re.findall(r"^\| `(fds\..*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    written = [tuple(cell.strip() for cell in row.split(" | ")) for row in rows]
    tags = [", ".join(f"`{tag}`" for tag in metric.tags) for metric in METRICS]
    assert written == [
        (f"{metric.name}`", metric.kind, metric.unit, shown, metric.meaning)
        for metric, shown in zip(METRICS, tags, strict=True)
    ]


def test_each_metric_is_sent_by_something():
    everything = status(lag_versions=0, lag_seconds=0.0, retention_left_seconds=1.0, pending_files=0, pending_bytes=0)
    assert [*values(everything)] == [metric.name for metric in METRICS if metric.kind == "gauge"]
    owner = Owner(kind="cli", deployment="d")
    committed = Committed(
        epoch=1,
        batch_id=0,
        owner=owner,
        attempt_id="a",
        outcome="written",
        digest="",
        rows=4,
        measures=Measures(rows_read=5, seconds={"load": 1.5, "write": 2.0}),
    )
    samples = [(one.metric.name, one.value, dict(one.tags)) for one in batch_samples("orders", committed, 2)]
    assert samples == [
        ("fds.batches", 2, {"stream": "orders"}),
        ("fds.rows_read", 5, {"stream": "orders"}),
        ("fds.rows_written", 4, {"stream": "orders"}),
        ("fds.batch_seconds", 1.5, {"stream": "orders", "phase": "load"}),
        ("fds.batch_seconds", 2.0, {"stream": "orders", "phase": "write"}),
    ]


def test_rows_that_expectations_kept_out_are_counted_if_the_stream_has_any():
    for failed, expected in (({}, []), ({"a > 0": 0}, [0]), ({"a > 0": 3}, [3])):
        committed = Committed(
            epoch=1, batch_id=1, owner=Owner(kind="cli", deployment="d", run_id="r"), attempt_id="t",
            outcome="written", digest="d", rows=4,
            measures=Measures(rows_read=7, rows_rejected=sum(failed.values()), failed_rows=failed),
        )  # fmt: skip
        samples = batch_samples("orders", committed, 1)
        assert [one.value for one in samples if one.metric.name == "fds.rows_rejected"] == expected


def test_what_is_unknown_is_not_sent():
    assert "fds.lag_versions" not in values(status(condition="unreadable"))
    assert "fds_lag_versions{" not in exposition([status(condition="unreadable")])


@pytest.mark.parametrize("condition", ["up_to_date", "held", *sorted(ATTENTION)])
def test_streams_that_need_a_person_are_told_apart_by_a_tag(condition):
    found = {one.metric.name: one for one in status_samples(status(condition=condition))}["fds.needs_attention"]
    assert (found.value, found.tags["state"]) == (condition in ATTENTION, condition)


def test_a_run_that_airflow_repeats_needs_nobody_yet():
    found = values(status(condition="failing", failed_runs=2, will_retry=True))
    assert (found["fds.failed_runs"], found["fds.needs_attention"]) == (2, 0)
