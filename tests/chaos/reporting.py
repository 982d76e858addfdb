"""Counts all faults of a session and prints their table at the end: a plugin, since several suites have chaos."""

from __future__ import annotations

import copy
import json
import random
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.chaos.actors import ROOT
from tests.chaos.profile import IS_LONG, PAGE, PAIRS, PROFILE, RESULTS, RESUMES, SEED
from tests.chaos.rounds import REJECTING, WATCHING
from tests.chaos.tally import Tally

sys.path.insert(0, str(ROOT / "scripts"))
import long_runs  # a script, not part of the package

sys.path.pop(0)

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

_TALLY = pytest.StashKey[Tally]()
_KNOWN = pytest.StashKey[dict[str, dict[str, Any]]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_TALLY] = Tally()
    config.stash[_KNOWN] = _recent_results(ROOT / RESULTS) if RESULTS is not None and RESUMES else {}


def _recent_results(file: Path) -> dict[str, dict[str, Any]]:
    """Return what tests have shown with this seed and these pairs, on commits that still count, by test."""
    found: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    asked = (SEED, PAIRS)
    return {
        test: said
        for test, said in found.items()
        if (said["seed"], said["pairs"]) == asked and long_runs.is_recent(ROOT, said["commit"])
    }


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    recent, known = config.stash[_KNOWN], {}
    passed = [item for item in items if item.nodeid in recent]
    for item in passed:
        known[item.nodeid] = recent[item.nodeid]
        config.stash[_TALLY].add(Tally.from_json(recent[item.nodeid]))
    # without those of tests that are no more
    config.stash[_KNOWN] = known
    config.hook.pytest_deselected(items=passed)
    items[:] = [item for item in items if item not in passed]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    tally, failures = item.config.stash[_TALLY], item.session.testsfailed
    before = copy.deepcopy(tally)
    done = yield
    counted = tally.since(before)
    if RESULTS is not None and counted.total and item.session.testsfailed == failures:
        day, commit = long_runs.now(ROOT)
        when = {"date": day, "commit": commit, "seed": SEED, "pairs": PAIRS}
        known = item.config.stash[_KNOWN]
        known[item.nodeid] = {**when, **counted.to_json()}
        lines = ",\n".join(f"{json.dumps(test)}: {json.dumps(said)}" for test, said in sorted(known.items()))
        (ROOT / RESULTS).write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    return done


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and session.config.stash[_KNOWN]:
        # all tests have recent results
        session.exitstatus = pytest.ExitCode.OK


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    tally = config.stash[_TALLY]
    if not tally.total:
        return
    terminalreporter.section(f"chaos, profile {PROFILE}, seed {SEED}")
    terminalreporter.write_line(tally.table())
    terminalreporter.write_line(tally.summary())
    missing = [point for point in tally.not_reached if point not in (*WATCHING, *REJECTING)]
    if IS_LONG and missing:
        terminalreporter.write_line(f"the page is not written, points were not reached: {missing}", red=True)
    elif PAGE and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        page = ROOT / PAGE
        page.write_text(
            tally.written_into(
                page.read_text(encoding="utf-8"), asked=f"SEED={SEED}" + (f" PAIRS={PAIRS}" if PAIRS else "")
            ),
            encoding="utf-8",
        )


@pytest.fixture(scope="session")
def tally(request: pytest.FixtureRequest) -> Tally:
    return request.config.stash[_TALLY]


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> random.Random:
    """The random generator of one test, the same for the same seed in any order of tests."""
    return random.Random(f"{SEED} {request.node.name}")
