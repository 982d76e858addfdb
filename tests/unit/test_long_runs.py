"""The table of runs that no suite makes: what is recorded, and when a run counts as too old."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import long_runs  # noqa: E402  # a script, not part of the package

sys.path.pop(0)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / long_runs.PAGE).write_text(f"# Testing\n\n{long_runs.BEGIN}{long_runs.END}\nMore.\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    commit(tmp_path)
    return tmp_path


def git(root: Path, *words: str) -> str:
    identity = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    return subprocess.run(["git", *identity, *words], cwd=root, check=True, capture_output=True, text=True).stdout


def commit(root: Path) -> None:
    git(root, "commit", "--quiet", "--all", "--allow-empty", "--message", "x")


def problem(root: Path, name: str, most_commits: int = 2) -> str:
    return "".join(line for line in long_runs.problems(root, most_commits) if line.startswith(f"make {name}"))


def test_a_run_that_was_never_made_is_a_problem(repository):
    assert problem(repository, "compat") == "make compat has no green run on record"
    assert len(long_runs.problems(repository)) == len(long_runs.RUNS)


def test_a_recorded_run_is_one_until_too_many_commits_follow(repository):
    assert "is recorded" in long_runs.record(repository, "compat")
    assert problem(repository, "compat") == ""
    commit(repository)
    commit(repository)
    assert problem(repository, "compat") == ""
    commit(repository)
    assert problem(repository, "compat") == ("make compat: 3 commits since its last green run; at most 2 are allowed")
    # the other rows and the rest of the page stay
    assert problem(repository, "s3") == "make s3 has no green run on record"
    assert (repository / long_runs.PAGE).read_text().endswith("\nMore.\n")


def test_a_second_record_does_not_need_a_commit_of_the_first(repository):
    long_runs.record(repository, "compat")
    assert "is recorded" in long_runs.record(repository, "s3")
    assert problem(repository, "compat") == problem(repository, "s3") == ""


def test_a_table_that_the_run_itself_has_written_is_no_change(repository):
    faults = repository / "docs" / "failures.md"
    faults.write_text("none\n")
    git(repository, "add", ".")
    commit(repository)
    faults.write_text("one\n")
    assert "is recorded" in long_runs.record(repository, "adversary")


def test_a_run_on_changed_files_is_not_recorded(repository):
    (repository / "code.py").write_text("x = 1\n")
    git(repository, "add", "code.py")
    commit(repository)
    (repository / "code.py").write_text("x = 2\n")
    assert long_runs.record(repository, "compat") == "make compat is not recorded: 1 files differ from the commit"
    assert problem(repository, "compat") == "make compat has no green run on record"


def test_a_run_on_a_commit_of_another_history_is_a_problem(repository):
    runs = long_runs.read(repository)
    long_runs.write(repository, {**runs, "compat": ("2026-01-01", "0123456789ab")})
    assert "is not in the history" in problem(repository, "compat")


def test_a_run_in_parts_is_as_old_as_its_oldest_part(repository):
    results = repository / long_runs.RESULTS["chaos"]
    results.parent.mkdir(parents=True)
    results.write_text("{}")
    git(repository, "add", ".")
    commit(repository)
    assert "is not recorded: a result in tests/chaos/results.json is not of" in long_runs.record(repository, "chaos")

    first = {"date": "2026-01-01", "commit": long_runs.now(repository)[1], "faults": [["killed", "submit.before", 1]]}
    commit(repository)
    second = {"date": "2026-01-02", "commit": long_runs.now(repository)[1]}
    results.write_text(json.dumps({"b": second, "a": first}))
    assert "is recorded" in long_runs.record(repository, "chaos")
    assert long_runs.read(repository)["chaos"] == ("2026-01-01", first["commit"])

    results.write_text(json.dumps({"a": first, "b": {**second, "commit": ""}}))
    assert "is not recorded" in long_runs.record(repository, "chaos")


def test_a_result_counts_for_a_number_of_commits(repository, monkeypatch):
    monkeypatch.setattr(long_runs, "MOST_COMMITS", 1)
    _, now = long_runs.now(repository)
    commit(repository)
    assert long_runs.is_recent(repository, now)
    commit(repository)
    assert not long_runs.is_recent(repository, now)
    assert not long_runs.is_recent(repository, "0123456789ab")
    assert not long_runs.is_recent(repository, "")


def test_every_run_of_the_table_is_a_target_that_records_itself():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for name in long_runs.RUNS:
        assert f"\n{name}:" in makefile
        assert f"long_runs.py record {name}" in makefile
