"""The count of all faults of a session, with its table at the end: a plugin, since more than one suite has chaos."""

from __future__ import annotations

import random

import pytest

from tests.chaos.actors import ROOT
from tests.chaos.profile import IS_LONG, PAGE, PROFILE, SEED
from tests.chaos.tally import Tally

_TALLY = pytest.StashKey[Tally]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_TALLY] = Tally()


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
        page.write_text(tally.written_into(page.read_text(encoding="utf-8"), seed=SEED), encoding="utf-8")


@pytest.fixture(scope="session")
def tally(request: pytest.FixtureRequest) -> Tally:
    return request.config.stash[_TALLY]


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> random.Random:
    """Chance of one test, the same for the same seed whatever order the tests run in."""
    return random.Random(f"{SEED} {request.node.name}")
