"""The tutorial, followed line by line: its files are written, its commands run, and they print what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from airflow_provider_fds.spark.installation.cache import default_cache_dir

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorial.md"
FENCE = re.compile(r"^```([^`\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r'python title="([^"]+)"')
#: What a shell remembers for the commands after it.
STATE = ("export ", "cd ")


class Command(NamedTuple):
    """A line after ``$``, with what the page shows below it."""

    text: str
    shown: list[str]

    @property
    def fails(self) -> bool:
        """Whether the page says that the command fails."""
        return self.text.endswith("  # fails")


class Reader:
    """Somebody who follows the page: a home of their own, and the environment of these tests as the one installed."""

    def __init__(self, home: Path) -> None:
        self.folder = ROOT
        self.home = home
        self.installed = home / "installed"
        self.ran: list[str] = []
        self._before = [f"cd {ROOT}"]
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("AIRFLOW", "SPARK", "PYSPARK"))}
        path = os.pathsep.join([str(self.installed / "bin"), str(Path(sys.executable).parent), os.environ["PATH"]])
        self._environment = {
            **kept,
            "HOME": str(home),
            "FDS_CACHE_DIR": str(default_cache_dir()),
            "PATH": path,
            "PYTHONPATH": str(self.installed),
            # everything that is required is here: pip says so, or fails
            "PIP_NO_INDEX": "1",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }

    def write(self, name: str, text: str) -> None:
        """Save a file of the page."""
        path = self.home / "first_hour" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(self, command: Command) -> None:
        """Run a command, and compare what it prints."""
        script = "\n".join(["set -e", *self._before, command.text])
        environment = dict(self._environment)
        if command.text == "pip install --no-deps .":
            # beside the environment of the tests, not into it; 0 means that the build is not isolated
            environment |= {"PIP_TARGET": str(self.installed), "PIP_NO_BUILD_ISOLATION": "0"}
        done = subprocess.run(
            ["bash", "-c", script],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=280,
        )
        assert (done.returncode != 0) == command.fails, f"{command.text}: {done.returncode}\n{done.stdout[-4000:]}"
        if command.shown:
            assert re.search(pattern(command.shown), done.stdout, re.MULTILINE), (
                f"{command.text}\n{done.stdout[-4000:]}"
            )
        self.ran.append(command.text)
        if command.text.startswith(STATE):
            self._before.append(command.text)


def pattern(shown: list[str]) -> str:
    """Return an expression for lines of which ``…`` stands for anything, alone in a line for any lines."""
    lines = (
        r"(?:.*\n)*?" if line == "…" else r".*".join(map(re.escape, line.split("…"))) + r"\s*?\n" for line in shown
    )
    return "^" + "".join(lines)


def commands(block: str) -> list[Command]:
    """Return the commands of a block."""
    parts = [part.splitlines() for part in ("\n" + block).split("\n$ ")[1:]]
    return [Command(lines[0], lines[1:]) for lines in parts]


def test_the_page_has_only_kinds_of_code_that_this_test_runs():
    kinds = {FILE.sub("python", kind) for kind, _ in FENCE.findall(PAGE.read_text(encoding="utf-8"))}
    assert kinds == {"console", "python"}


@pytest.mark.timeout(900)
def test_the_tutorial_works_line_by_line(tmp_path):
    reader = Reader(tmp_path)
    for kind, text in FENCE.findall(PAGE.read_text(encoding="utf-8")):
        if file := FILE.fullmatch(kind):
            reader.write(file[1], text)
            continue
        for command in commands(text):
            reader.run(command)

    assert len(reader.ran) > 20
    assert (reader.installed / "airflow_provider_fds" / "__init__.py").is_file()
