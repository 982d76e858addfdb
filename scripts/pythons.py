"""Run the unit tests and one ingest on the newer Pythons, each in an environment of its own.

    scripts/pythons.py               all of them
    scripts/pythons.py 3.12          this one

A Python is looked for on PATH, and among those of pyenv. ``make test`` runs on 3.11, for which the pins are made; they
hold for the others too.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from environments import ROOT, pinned

ENVIRONMENTS = ROOT / ".compat"

PYTHONS = ("3.12", "3.13")


def interpreter(version: str) -> str | None:
    """Return the path of a Python, ``None`` where there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = shutil.which(f"python{version}")
    for candidate in (found, *sorted(map(str, pyenv.glob(f"{version}.*/bin/python")))):
        # a shim of pyenv is there for a Python that is not chosen
        if candidate and subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
            return candidate
    return None


def run(version: str, python: Path) -> bool:
    """Return whether everything passes on one Python."""
    variables = {**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"}
    for words in (
        [str(python), "-m", "pytest", "-p", "no:cacheprovider", "--timeout", "1200", "tests/unit"],
        [str(python), "-m", "pytest", "-p", "no:cacheprovider", "tests/airflow/test_submit_command.py"],
        [str(python), "scripts/ingest_once.py", f".compat/python-{version}-run"],
    ):
        print(f"== Python {version}: {' '.join(words[1:])}", flush=True)
        if subprocess.run(words, cwd=ROOT, env=variables, check=False).returncode:
            return False
    return True


def main() -> int:
    """Run what the command line names."""
    versions = sys.argv[1:] or PYTHONS
    found = {version: interpreter(version) for version in versions}
    if missing := [version for version, python in found.items() if python is None]:
        print(f"Python {' and '.join(missing)} not found: put python{missing[0]} on PATH, or install it with pyenv")
        return 2
    passed = []
    for version, python in found.items():
        own = pinned(ENVIRONMENTS / f"python-{version}", "dev", with_package=True, python=str(python))
        passed.append(run(version, own))
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
