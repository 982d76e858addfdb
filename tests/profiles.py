"""The profiles of the tests: ``make test`` leaves out what ``tests/extended.txt`` lists, ``make test-all`` does not.

``FDS_PROFILE=short`` runs what is not listed, ``extended`` what is listed; without it, all tests run. After a failure,
pytest prints the command that runs the test alone.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

LIST = Path(__file__).with_name("extended.txt")
PROFILE = os.environ.get("FDS_PROFILE", "")


def extended() -> tuple[str, ...]:
    """Return the listed tests: node ids, or files with all their tests."""
    lines = LIST.read_text(encoding="utf-8").splitlines()
    return tuple(line for line in lines if line and not line.startswith("#"))


def is_extended(node_id: str, listed: tuple[str, ...]) -> bool:
    """Return whether a test is listed: by itself, with all its parameters, or with its file."""
    return any(node_id == one or node_id.startswith((f"{one}::", f"{one}[")) for one in listed)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of the other profile."""
    if not PROFILE:
        return
    listed = extended()
    left_out = [item for item in items if is_extended(item.nodeid, listed) != (PROFILE == "extended")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the command that repeats each failure."""
    failed = [*terminalreporter.stats.get("failed", ()), *terminalreporter.stats.get("error", ())]
    if failed:
        terminalreporter.section("to run a failure alone")
    for node_id in dict.fromkeys(report.nodeid for report in failed):
        terminalreporter.write_line(f"make test ONLY={shlex.quote(node_id)}")
