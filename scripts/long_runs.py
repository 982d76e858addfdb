"""The runs that no test suite makes, each with its last green one, as a table in docs/testing.md.

scripts/long_runs.py record compat    write down that `make compat` has passed on the current commit
scripts/long_runs.py check            warn of runs that are older than 100 commits
scripts/long_runs.py check --strict   fail because of them

The longest runs can be made in parts: each part is kept in a file of results with its date and commit, ``RESUME=1``
runs the parts whose results are too old, and the row of the table is that of the oldest part.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = Path("docs/testing.md")
#: The results of the runs that are made in parts.
RESULTS = {"chaos": Path("tests/chaos/results.json"), "matrix": Path("docs/compatibility.json")}
#: What runs write: this table, their results, and the tables of those.
WRITTEN = (str(PAGE), "docs/failures.md", "docs/compatibility.md", *map(str, RESULTS.values()))
BEGIN, END = "<!-- long runs: begin -->\n", "<!-- long runs: end -->\n"
HEAD = "| run | last green | commit |\n|---|---|---|\n"
NEVER = "never"

#: How many commits may follow a green run.
MOST_COMMITS = 100

RUNS = (
    "adversary", "catalog-test", "chaos", "compat", "docker-test", "k8s-test", "lowest", "matrix", "pythons", "s3",
    "services", "test-nightly", "ui-test", "upgrade-test",
)  # fmt: skip


def _git(root: Path, *words: str) -> str | None:
    ran = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    return ran.stdout.strip() if ran.returncode == 0 else None


def read(root: Path) -> dict[str, tuple[str, str]]:
    """Return day and commit of the last green run of each, ``never`` and ``""`` where there is none."""
    table = (root / PAGE).read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    rows = re.findall(r"^\| `make ([\w-]+)` \| ([\w-]+) \| `?(\w*)`? \|$", table, re.MULTILINE)
    found = {name: (day, commit) for name, day, commit in rows}
    return {name: found.get(name, (NEVER, "")) for name in RUNS}


def write(root: Path, runs: dict[str, tuple[str, str]]) -> None:
    """Write the table."""
    rows = (f"| `make {name}` | {day} | {f'`{commit}`' if commit else ''} |\n" for name, (day, commit) in runs.items())
    before, _, rest = (root / PAGE).read_text(encoding="utf-8").partition(BEGIN)
    (root / PAGE).write_text(f"{before}{BEGIN}{HEAD}{''.join(rows)}{END}{rest.partition(END)[2]}", encoding="utf-8")


def now(root: Path) -> tuple[str, str]:
    """Return today's date, and the commit of the files, ``""`` if more differs from it than what runs write."""
    commit = "" if _difference(root) else _git(root, "rev-parse", "--short=12", "HEAD")
    return datetime.now(UTC).date().isoformat(), commit or ""


def _difference(root: Path) -> str:
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    if changed is None:
        return "this is no git repository"
    others = [line for line in changed.splitlines() if not line.endswith(WRITTEN)]
    return f"{len(others)} files differ from the commit" if others else ""


def age(root: Path, commit: str) -> int | None:
    """Return how many commits have followed a commit, ``None`` if it is not in the history of this one."""
    if not commit or _git(root, "merge-base", "--is-ancestor", commit, "HEAD") is None:
        return None
    return int(_git(root, "rev-list", "--count", f"{commit}..HEAD") or 0)


def is_recent(root: Path, commit: str) -> bool:
    """Whether a result on a commit still counts."""
    later = age(root, commit)
    return later is not None and later <= MOST_COMMITS


def record(root: Path, name: str) -> str:
    """Write down that a run has passed, and return what to print."""
    if difference := _difference(root):
        return f"make {name} is not recorded: {difference}"
    green = now(root)
    if name in RESULTS:
        parts = _parts(root / RESULTS[name])
        ages = {part: age(root, part[1]) for part in parts}
        if not parts or None in ages.values():
            return f"make {name} is not recorded: a result in {RESULTS[name]} is not of a commit of this history"
        green = max(parts, key=lambda part: ages[part] or 0)
    write(root, {**read(root), name: green})
    return f"make {name} is recorded in {PAGE}"


def _parts(results: Path) -> list[tuple[str, str]]:
    """Return date and commit of each result in a file: of each innermost object."""
    found: list[tuple[str, str]] = []

    def taken(value: dict[str, Any]) -> dict[str, Any]:
        if "date" in value:
            found.append((value["date"], value.get("commit", "")))
        return value

    json.loads(results.read_text(encoding="utf-8"), object_hook=taken)
    return found


def problems(root: Path, most_commits: int = MOST_COMMITS) -> list[str]:
    """Return a line for each run that was never made, is too old, or is of a commit that this history lacks."""
    found = []
    for name, (_, commit) in read(root).items():
        if not commit:
            found.append(f"make {name} has no green run on record")
        elif (later := age(root, commit)) is None:
            found.append(f"make {name}: its last green run, on {commit}, is not in the history of this commit")
        elif later > most_commits:
            found.append(f"make {name}: {later} commits since its last green run; at most {most_commits} are allowed")
    return found


def main() -> int:
    """Do what the command line says."""
    parser = argparse.ArgumentParser(description="The runs that no test suite makes.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("record").add_argument("name", choices=RUNS)
    commands.add_parser("check").add_argument("--strict", action="store_true")
    arguments = parser.parse_args()
    if arguments.command == "record":
        print(record(ROOT, arguments.name))
        return 0
    if _git(ROOT, "rev-parse", "HEAD") is None:
        print("The ages of the long runs are unknown: this is no git repository")
        return int(arguments.strict)
    found = problems(ROOT)
    for line in found:
        print(f"{'' if arguments.strict else 'warning: '}{line}")
    return int(arguments.strict and bool(found))


if __name__ == "__main__":
    sys.exit(main())
