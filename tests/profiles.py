"""The profiles of the tests, each a value of ``FDS_PROFILE``; without one, all tests run.

``short`` (``make test``) leaves out what ``tests/extended.txt`` and ``tests/nightly.txt`` list, ``all``
(``make test-all``) the latter. ``extended`` runs what ``all`` has and ``short`` has not, ``nightly`` what ``all`` has
not. After a failure, pytest prints the command that runs the test alone.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

PROFILE = os.environ.get("FDS_PROFILE", "")


def listed(name: str) -> tuple[str, ...]:
    """Return the tests of ``tests/<name>.txt``: node ids, or files with all their tests."""
    lines = Path(__file__).with_name(f"{name}.txt").read_text(encoding="utf-8").splitlines()
    return tuple(line for line in lines if line and not line.startswith("#"))


def is_listed(node_id: str, tests: tuple[str, ...]) -> bool:
    """Return whether a test is listed: by itself, with all its parameters, or with its file."""
    return any(node_id == one or node_id.startswith((f"{one}::", f"{one}[")) for one in tests)


def of_profile(profile: str, node_ids: Iterable[str]) -> list[bool]:
    """Return for each test whether the profile runs it."""
    extended, nightly = listed("extended"), listed("nightly")
    found = []
    for node_id in node_ids:
        lists = "nightly" if is_listed(node_id, nightly) else "extended" if is_listed(node_id, extended) else "short"
        found.append(lists in {"short", "extended"} if profile == "all" else lists == profile)
    return found


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the tests of the other profile."""
    if not PROFILE:
        return
    runs = of_profile(PROFILE, [item.nodeid for item in items])
    config.hook.pytest_deselected(items=[item for item, is_run in zip(items, runs, strict=True) if not is_run])
    items[:] = [item for item, is_run in zip(items, runs, strict=True) if is_run]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the command that repeats each failure."""
    failed = [*terminalreporter.stats.get("failed", ()), *terminalreporter.stats.get("error", ())]
    if failed:
        terminalreporter.section("to run a failure alone")
    for node_id in dict.fromkeys(report.nodeid for report in failed):
        terminalreporter.write_line(f"make test ONLY={shlex.quote(node_id)}")
