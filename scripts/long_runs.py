"""The runs that no test suite makes, each with its last green one, as a table in docs/testing.md.

scripts/long_runs.py record compat    write down that `make compat` has passed on the current commit
scripts/long_runs.py check            warn of runs that are older than 100 commits
scripts/long_runs.py check --strict   fail because of them
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = Path("docs/testing.md")
#: What runs write: this table, and the tables of faults.
WRITTEN = (str(PAGE), "docs/failures.md")
BEGIN, END = "<!-- long runs: begin -->\n", "<!-- long runs: end -->\n"
HEAD = "| run | last green | commit |\n|---|---|---|\n"
NEVER = "never"

#: How many commits may follow a green run.
MOST_COMMITS = 100

RUNS = (
    "adversary", "chaos", "compat", "docker-test", "k8s-test", "lowest", "matrix", "pythons", "s3", "services",
    "test-nightly", "ui-test", "upgrade-test",
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


def record(root: Path, name: str) -> str:
    """Write down that a run has passed, and return what to print.

    The commit is that of the files only if nothing differs from it but what runs write.
    """
    changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    if changed is None:
        return f"make {name} is not recorded: this is no git repository"
    if others := [line for line in changed.splitlines() if not line.endswith(WRITTEN)]:
        return f"make {name} is not recorded: {len(others)} files differ from the commit"
    runs = read(root)
    runs[name] = (datetime.now(UTC).date().isoformat(), _git(root, "rev-parse", "--short=12", "HEAD") or "")
    write(root, runs)
    return f"make {name} is recorded in {PAGE}"


def problems(root: Path, most_commits: int = MOST_COMMITS) -> list[str]:
    """Return a line for each run that was never made, is too old, or is of a commit that this history lacks."""
    found = []
    for name, (_, commit) in read(root).items():
        if not commit:
            found.append(f"make {name} has no green run on record")
            continue
        is_here = _git(root, "merge-base", "--is-ancestor", commit, "HEAD") is not None
        if not is_here:
            found.append(f"make {name}: its last green run, on {commit}, is not in the history of this commit")
        elif (later := int(_git(root, "rev-list", "--count", f"{commit}..HEAD") or 0)) > most_commits:
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
