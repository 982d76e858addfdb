from __future__ import annotations

import pytest

from tests.bench.compare import compare
from tests.bench.report import TITLES, Row


def runs(*values, unit="s", at_least=False):
    return {"planning": [[Row("time", value, unit, None, at_least)] for value in values]}


@pytest.mark.parametrize(
    ("before", "now", "ratio", "is_worse"),
    [
        (runs(1.0, 9.0, 2.0), runs(2.0, 2.0, 2.1), 1.0, False),
        (runs(1.0), runs(1.1), 1.1, True),
        (runs(1.0), runs(1.04), 1.04, False),
        # a few milliseconds are noise, whatever their ratio
        (runs(0.02), runs(0.04), 2.0, False),
        (runs(1000, unit="tables/s", at_least=True), runs(800, unit="tables/s", at_least=True), 1.25, True),
        (runs(1000, unit="tables/s", at_least=True), runs(1200, unit="tables/s", at_least=True), 1000 / 1200, False),
        (runs(0, unit="HEAD"), runs(1, unit="HEAD"), 2.0, True),
    ],
)
def test_medians_are_compared_in_the_direction_of_the_row(before, now, ratio, is_worse):
    (row,) = compare(before, now)

    assert row.ratio == pytest.approx(ratio)
    assert row.is_worse == is_worse


def test_only_rows_that_both_trees_have_are_compared():
    before = {"planning": [[Row("time", 1.0, "s"), Row("old", 1.0, "s")]], "gone": [[Row("time", 1.0, "s")]]}
    now = {
        "planning": [[Row("time", 1.0, "s"), Row("new", 9.0, "s"), Row("more", 1.0, "s")]],
        "new": [[Row("x", 1, "s")]],
    }

    assert [row.what for row in compare(before, now)] == ["planning: time"]


def test_each_benchmark_has_a_title_on_the_page():
    from tests.bench.__main__ import BENCHES

    assert set(TITLES) == set(BENCHES)
