"""Counts all faults of a session and prints their table at the end: a plugin, since several suites have chaos."""

from __future__ import annotations

import copy
import json
import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.chaos.actors import ROOT
from tests.chaos.profile import IS_LONG, PAGE, PAIRS, PROFILE, RECORD, SEED
from tests.chaos.tally import Tally

if TYPE_CHECKING:
    from collections.abc import Generator

_TALLY = pytest.StashKey[Tally]()
_PASSED = pytest.StashKey[set[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_TALLY] = tally = Tally()
    config.stash[_PASSED] = passed = set()
    if RECORD is None or not Path(RECORD).exists():
        return
    for line in Path(RECORD).read_text(encoding="utf-8").splitlines():
        said = json.loads(line)
        if said["seed"] != SEED:
            raise pytest.UsageError(f"{RECORD} is of a session with SEED={said['seed']}, and this one has {SEED}")
        passed.add(said["test"])
        tally.add(Tally.from_json(said))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    passed = [item for item in items if item.nodeid in config.stash[_PASSED]]
    config.hook.pytest_deselected(items=passed)
    items[:] = [item for item in items if item not in passed]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    tally, failures = item.config.stash[_TALLY], item.session.testsfailed
    before = copy.deepcopy(tally)
    done = yield
    counted = tally.since(before)
    if RECORD is not None and counted.total and item.session.testsfailed == failures:
        with Path(RECORD).open("a", encoding="utf-8") as file:
            file.write(json.dumps({"test": item.nodeid, "seed": SEED, **counted.to_json()}) + "\n")
    return done


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    tally = config.stash[_TALLY]
    if not tally.total:
        return
    terminalreporter.section(f"chaos, profile {PROFILE}, seed {SEED}")
    terminalreporter.write_line(tally.table())
    terminalreporter.write_line(tally.summary())
    if IS_LONG and tally.not_reached:
        terminalreporter.write_line(f"the page is not written, points were not reached: {tally.not_reached}", red=True)
    elif PAGE and exitstatus == 0:
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
