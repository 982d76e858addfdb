"""Pictures of the page, as the docs show them; ``make ui-test PICTURES=docs/images`` writes those."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PIL import Image
from playwright.sync_api import expect

from tests.ui.sample_streams import PREVIEW, detail, many, typical

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.ui.page_server import PageServer

#: What a page of the docs should not make its reader wait for.
MOST_BYTES = 150_000


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Where pictures go."""
    folder = Path(os.environ.get("FDS_UI_PICTURES") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def take(page: Page, folder: Path, name: str) -> None:
    path = folder / f"{name}.png"
    # the mouse shows nothing, and no cursor blinks
    page.mouse.move(0, 0)
    taken = page.screenshot(animations="disabled", caret="hide")
    # a palette: a third of the bytes
    picture = Image.open(io.BytesIO(taken)).convert("RGB")
    kmeans = 2 if os.environ.get("FDS_UI_PICTURES") else 0  # better, and slow
    picture.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans, dither=Image.Dither.NONE).save(path, optimize=True)
    assert path.stat().st_size < MOST_BYTES, path


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pictures_of_list_stream_and_preview(page: Page, server: PageServer, pictures, theme):
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size({"width": 1440, "height": 760})
    server.show(typical())
    orders = detail(typical()[1])
    server.show_stream(orders)
    server.answers[f"POST streams/{orders['id']}/actions/rewind/preview"] = (
        200,
        {"allowed": True, "refusal": None, "preview": PREVIEW, "expected": "7"},
    )
    page.goto(f"{server.url}/fds/")
    expect(page.locator("table.streams tbody tr").first).to_be_visible()
    take(page, pictures, f"ui-list-{theme}")
    page.set_viewport_size({"width": 1440, "height": 1100})
    page.goto(f"{server.url}/fds/#/streams/{orders['id']}")
    expect(page.locator(".chart-bar").first).to_be_visible()
    take(page, pictures, f"ui-stream-{theme}")
    page.set_viewport_size({"width": 1440, "height": 760})
    page.get_by_role("button", name="Rewind", exact=True).click()
    page.get_by_label("To version").fill("300")
    page.get_by_role("button", name="Preview").click()
    page.get_by_label("Why").fill("wrong exchange rates from version 300 on")
    take(page, pictures, f"ui-action-preview-{theme}")


def test_pictures_of_an_empty_installation_and_of_many_streams(page: Page, server: PageServer, pictures):
    page.set_viewport_size({"width": 1440, "height": 640})
    server.show([])
    page.goto(f"{server.url}/fds/")
    expect(page.locator(".empty")).to_be_visible()
    take(page, pictures, "ui-empty")
    server.show(many(1_000))
    page.reload()
    expect(page.locator(".count")).to_have_text("1,000 streams")
    take(page, pictures, "ui-many")
