"""The hosted checks: they call make targets that exist, with pinned actions and no more rights than they need."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import commit_subject  # noqa: E402  # scripts, not parts of the package
import long_runs  # noqa: E402
import release_notes  # noqa: E402
import run_tests  # noqa: E402

sys.path.pop(0)

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
#: What runs besides make targets.
OTHER_PROGRAMS = ("gh release create",)


def jobs(path):
    return yaml.safe_load(path.read_text())["jobs"]


def targets(command, matrix):
    words = [word for word in command.split() if "=" not in word][1:]
    return [target for word in words for target in (matrix.get("target", []) if word == '"$TARGET"' else [word])]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_each_step_calls_make_targets_that_exist(path):
    found = []
    for job in jobs(path).values():
        matrix = job.get("strategy", {}).get("matrix", {})
        for command in (step["run"] for step in job["steps"] if "run" in step):
            if not command.startswith(OTHER_PROGRAMS):
                assert command.startswith("make "), command
                found += targets(command, matrix)
    assert set(found) <= TARGETS


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_actions_are_pinned_by_digest_and_jobs_name_their_rights(path):
    uses = re.findall(r"^ *(?:- )?uses: (.*)$", path.read_text(), re.MULTILINE)
    assert uses == [use for use in uses if re.fullmatch(r"[\w.-]+/[\w./-]+@[0-9a-f]{40} # v[\d.]+", use)]
    assert yaml.safe_load(path.read_text())["permissions"] == {}
    assert [name for name, job in jobs(path).items() if "permissions" not in job or "timeout-minutes" not in job] == []


def test_the_shards_of_the_tests_have_each_suite_once():
    checks = jobs(ROOT / ".github" / "workflows" / "checks.yml")
    shards = [suite for shard in checks["tests"]["strategy"]["matrix"]["suites"] for suite in shard.split()]
    # the page is tested in Chromium by a job of its own
    assert sorted([*shards, *run_tests.QUICK, "ui"]) == sorted(run_tests.SUITES)


def test_the_nightly_runs_are_those_of_the_table_of_long_runs():
    nightly = jobs(ROOT / ".github" / "workflows" / "nightly.yml")["runs"]["strategy"]["matrix"]["target"]
    assert set(long_runs.RUNS) - {"ui-test"} <= set(nightly)


@pytest.mark.parametrize("form", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("[!c]*.yml")), ids=lambda p: p.stem)
def test_issue_forms_have_unique_fields_with_labels(form):
    parsed = yaml.safe_load(form.read_text())
    assert set(parsed) >= {"name", "description", "body"}
    fields = [field for field in parsed["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields) > 0
    assert all(field["attributes"]["label"] for field in fields)


def test_the_form_for_faults_asks_for_what_explain_says():
    assert "fds explain STREAM --output json" in (ROOT / ".github/ISSUE_TEMPLATE/fault.yml").read_text()


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("Add a sink\n\nBecause.", []),
        ("Merge branch 'x'", []),
        ("Add a sink\n\n# a comment\n", ["There is no body that says why."]),
        ("Add a sink\nBecause.", ["There is no empty line after the subject."]),
        ("Added a sink\n\nBecause.", ["The subject is imperative: 'Add', not 'Added', 'Adds' or 'Adding'."]),
        ("add a sink.\n\nBecause.", ["The subject begins with a capital letter and ends without a full stop."]),
        (f"A{'d' * 72}\n\nBecause.", ["The subject has 73 characters, more than 72."]),
        ("# only comments\n", ["The subject is empty."]),
    ],
)
def test_the_subject_of_a_commit_is_short_and_imperative_and_has_a_body(message, said, tmp_path):
    assert commit_subject.problems(message) == said
    (tmp_path / "message").write_text(message)
    ran = subprocess.run(
        [sys.executable, ROOT / "scripts" / "commit_subject.py", tmp_path / "message"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr.splitlines()) == (int(bool(said)), said)


CHANGELOG = """# Changelog

## 1.1.0 - unreleased

## 1.0.0 - 2026-12-01

- a thing ([docs](docs/a.md), [site](https://delta.io))

## 0.2.0 - 2026-11-01

- older
"""


def test_the_notes_of_a_release_are_its_section_with_links_to_the_tag():
    notes = release_notes.section("1.0.0", CHANGELOG)
    assert notes == "- a thing ([docs](../blob/v1.0.0/docs/a.md), [site](https://delta.io))\n"


@pytest.mark.parametrize(
    ("tag", "version", "said"),
    [
        ("v1.0.0", "1.0.0", None),
        ("v1.0.1", "1.0.0", "the tag v1.0.1 is not that of version 1.0.0"),
        ("v1.1.0", "1.1.0", "has no section '## 1.1.0 - YYYY-MM-DD'"),
    ],
)
def test_a_tag_makes_a_release_only_of_its_version_and_with_a_dated_section(tag, version, said):
    found = release_notes.problem(tag, version, CHANGELOG)
    assert (said is None) is (found is None)
    assert said is None or said in found
