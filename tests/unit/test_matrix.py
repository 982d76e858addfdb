"""The tables of ``docs/compatibility.md`` say what was run, and nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import matrix

PASSED = {"verdict": "passed", "what": "Apache-Spark/4.1.4 Delta-Lake/4.4.0", "date": "2026-11-22"}


@pytest.fixture
def page():
    return matrix.PAGE.read_text(encoding="utf-8")


def line(page, table, row):
    inside = page.partition(f"this table: {table} -->")[2].partition("<!-- end")[0]
    return next(text for text in inside.splitlines() if text.startswith(f"| {row}"))


def test_the_tables_of_the_page_are_those_of_the_results(page):
    assert matrix.with_tables(page, matrix.known_results()) == page


def test_a_cell_without_a_result_is_shown_as_not_run(page):
    written = matrix.with_tables(page, {"spark-4.1": {"DeltaMergeSink": PASSED}})
    assert line(written, "spark", "4.1.4") == ("| 4.1.4 | not run | passed, 2026-11-22 | not run | not run | not run |")
    assert line(written, "airflow", "3.2") == "| 3.2 | not run | not run | not run |"


def test_a_failure_is_shown_and_its_text_is_not():
    page = "".join(matrix._BEGIN.format(name) + matrix._END.format(name) for name in matrix.HEADS)
    failed = {"verdict": "failed", "what": "WrongRowsError: missing 1", "date": "2026-11-22"}
    written = matrix.with_tables(page, {"connect-4.0": {"newest client": failed}})
    assert line(written, "connect", "4.0.1").endswith("| **failed**, 2026-11-22 |")


def test_results_are_kept_cell_by_cell_so_that_a_run_continues_where_it_was_broken_off(monkeypatch, tmp_path, page):
    monkeypatch.setattr(matrix, "RESULTS", tmp_path / "results.json")
    monkeypatch.setattr(matrix, "PAGE", tmp_path / "page.md")
    (tmp_path / "page.md").write_text(page)
    ran = []

    def work(name):
        ran.append(name)
        return {name: matrix.Result("failed" if name == "b" and ran.count("b") == 1 else "passed", "Delta-Lake/1")}

    runs = tuple(((name,), lambda name=name: work(name)) for name in "ab")
    monkeypatch.setattr(matrix, "ROWS", {"spark-4.0": matrix.Row("spark-4.0", "spark", ("a", "b"), runs)})
    recent = {"1"}
    monkeypatch.setattr(matrix.long_runs, "now", lambda root: ("2026-01-01", "1"))
    monkeypatch.setattr(matrix.long_runs, "is_recent", lambda root, commit: commit in recent)
    monkeypatch.setattr(sys, "argv", ["matrix.py", "--resume"])
    assert matrix.main() == 1
    assert matrix.main() == 0
    assert matrix.main() == 0
    assert ran == ["a", "b", "b"]
    # results of a commit that many have followed
    recent.clear()
    assert matrix.main() == 0
    assert ran == ["a", "b", "b", "a", "b"]
    del ran[3:]

    before = (tmp_path / "results.json").read_text()
    monkeypatch.setattr(sys, "argv", ["matrix.py", "--check", "spark-4.0/a"])
    assert matrix.main() == 0
    assert ran == ["a", "b", "b", "a"]
    assert (tmp_path / "results.json").read_text() == before


def test_the_pins_of_the_older_airflows_name_no_index_and_are_of_that_airflow():
    for airflow in matrix.AIRFLOWS[:-1]:
        text = (matrix.ROOT / "requirements" / f"airflow-{airflow.replace('.', '-')}.txt").read_text()
        assert "://" not in text
        assert f"\napache-airflow=={airflow}." in text
