"""Constants as Spark evaluates them: typed, and the same under any settings of a session."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from airflow_provider_fds.sinks.constants import constant_columns, sql_literal


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("it's \\ ${env:HOME}", "decode(unhex('69742773205c20247b656e763a484f4d457d'), 'UTF-8')"),
        (True, "true"),
        (-5, "CAST('-5' AS BIGINT)"),
        (0.1, "CAST('0.1' AS DOUBLE)"),
        (date(2026, 1, 31), "DATE '2026-01-31'"),
        (datetime(2026, 1, 31, 12, 30, 0, 5, tzinfo=UTC), "TIMESTAMP_LTZ '2026-01-31T12:30:00.000005+00:00'"),
    ],
)
def test_a_constant_is_a_literal_of_its_type(value, text):
    assert sql_literal(value) == text


def test_times_are_kept_in_utc():
    found = constant_columns({"at": datetime.fromisoformat("2026-01-31T23:00:00-02:00")}, "constant_columns")
    assert found == {"at": datetime(2026, 2, 1, 1, tzinfo=UTC)}
    assert found["at"].tzinfo is UTC
