"""The seconds of an estimate come from what the stream's own runs have measured."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider_fds.cli.estimate import totals
from airflow_provider_fds.ledger.measures import Measures
from airflow_provider_fds.ledger.owner import Owner
from airflow_provider_fds.ledger.records import RunRecord
from airflow_provider_fds.ledger.state import StreamState

ROWS: list[dict[str, Any]] = [
    {"first_version": version, "last_version": version, "num_files": 2, "num_bytes": 5_000, "num_rows": 10}
    for version in (4, 5)
]


def state(*runs: tuple[int, dict[str, float]]) -> StreamState:
    owner = Owner(kind="cli", deployment="cli", run_id="r")
    records = [
        RunRecord(owner=owner, epoch=1, batches=1, num_bytes=size, measures=Measures(seconds=seconds))
        for size, seconds in runs
    ]
    return StreamState(name="s", runs=tuple(records))


@pytest.mark.parametrize(
    ("runs", "seconds"),
    [
        ([], None),
        ([(1_000, {}), (0, {"write": 3.0})], None),
        ([(1_000, {"load": 1.0, "write": 4.0})], 50.0),
        # the largest run says what a byte costs; in a small one the fixed cost of a batch dominates
        ([(10, {"write": 5.0}), (100_000, {"load": 10.0, "write": 10.0}), (20, {"write": 5.0})], 2.0),
    ],
)
def test_seconds_are_known_once_a_run_has_measured_them(runs: Any, seconds: float | None) -> None:
    assert totals(ROWS, state(*runs), 200)["seconds"] == seconds


def test_rows_are_unknown_if_one_batch_does_not_know_them() -> None:
    found = totals([*ROWS, {**ROWS[0], "num_rows": None}], None, 2)
    assert found["num_rows"] is None
    assert (found["batches"], found["applications"], found["num_bytes"]) == (3, 2, 15_000)
