"""The page in a headless Chromium, with answers that the test decides."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect, sync_playwright

from tests.ui.page_server import serve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser, Page

    from tests.ui.page_server import PageServer

#: Milliseconds that an assertion waits.
PATIENCE_MS = 30_000


def find_chromium() -> str | None:
    """Return the path of an installed Chromium or Chrome."""
    named = os.environ.get("FDS_CHROMIUM")
    names = (named,) if named else ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return next((found for name in names if (found := shutil.which(name))), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless browser; without one, the tests are skipped, or fail in ``make ui-test``."""
    chromium = find_chromium()
    if chromium is None:
        reason = "no Chromium is on PATH (Debian: apt-get install chromium); FDS_CHROMIUM can name one"
        (pytest.fail if os.environ.get("FDS_UI_TEST") else pytest.skip)(reason)
    expect.set_options(timeout=PATIENCE_MS)
    # a container's root has no sandbox
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=chromium, args=arguments)
        yield found
        found.close()


@pytest.fixture
def server() -> Iterator[PageServer]:
    """Serves the page; ``show`` and ``answers`` decide what the API says."""
    found, http = serve()
    yield found
    http.shutdown()
    http.server_close()


@pytest.fixture
def problems() -> list[str]:
    """Errors of the page's own code, and what its policy refused; they fail the test."""
    return []


@pytest.fixture
def page(browser: Browser, server: PageServer, problems: list[str]) -> Iterator[Page]:
    """A tab."""
    context = browser.new_context(viewport={"width": 1440, "height": 900}, timezone_id="Europe/Berlin", locale="en-US")
    context.set_default_timeout(PATIENCE_MS)
    found = context.new_page()
    found.on("pageerror", lambda error: problems.append(str(error)))
    found.on(
        "console",
        # that an answer has an error status is what some tests are about
        lambda message: (
            problems.append(message.text)
            if message.type == "error" and "Failed to load resource" not in message.text
            else None
        ),
    )
    yield found
    context.close()
    assert problems == []
