"""The page inside a real Airflow: found in its navigation, signed in by its session, with the real API."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

# pieces of the demo are scripts, not a package
sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from airflow_stack import AirflowStack

from airflow_provider_fds.cli.main import main
from airflow_provider_fds.delta.storage.open import open_storage
from airflow_provider_fds.ledger.entries.operator_entries import Held
from airflow_provider_fds.ledger.owner import Actor
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.stream.monitoring.status import StreamStatus
from airflow_provider_fds.stream.monitoring.status_file import write_status_file
from tests.conftest import LogBuilder

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import FrameLocator, Page

DEPLOYMENT = "ui-test"


@pytest.fixture(scope="module")
def airflow(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowStack]:
    """An API server with a stream that has planned work. The other processes of Airflow are not needed."""
    home = tmp_path_factory.mktemp("airflow")
    staging = home / "staging"
    table = LogBuilder(home / "lake" / "orders").with_appends(12)
    common = ["--staging", str(staging), "--stream", "orders", "--deployment", DEPLOYMENT]
    assert main(["plan", table.uri, *common, "--option", "starting_version=0"]) == 0
    storage = open_storage(staging.as_uri())
    state = Ledger(storage, "orders").refresh()
    status = StreamStatus(
        name="orders",
        table=table.uri,
        phase="open",
        condition="loading",
        deployment=DEPLOYMENT,
        epoch=state.epoch,
        position=state.position,
        lag_versions=13,
        lag_seconds=65.0,
    )
    write_status_file(storage, status, state, written_by="run")
    (home / "dags").mkdir()
    settings = {"AIRFLOW__FDS__STAGING": staging.as_uri(), "AIRFLOW__FDS__DEPLOYMENT": DEPLOYMENT}
    stack = AirflowStack(home, home / "dags", env=settings)
    stack.output.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "airflow", "db", "migrate"], env=stack.env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    try:
        stack.start_process("api-server")
        stack.wait(lambda: is_up(stack), 180, "the API server did not answer")
        yield stack
    finally:
        stack.stop()


def is_up(stack: AirflowStack) -> bool:
    try:
        return stack.client.health()["metadatabase"]["status"] == "healthy"
    except (OSError, ValueError):
        return False


def find_page(page: Page, airflow: AirflowStack) -> FrameLocator:
    """Go the way of a person who has never seen it."""
    page.goto(airflow.url)
    page.get_by_role("link", name="Delta streams").click()
    inner = page.frame_locator("iframe[title='Delta streams']")
    expect(inner.get_by_role("link", name="orders", exact=True)).to_be_visible()
    return inner


def test_a_stream_is_found_in_airflow_and_held_there(page: Page, airflow: AirflowStack):
    inner = find_page(page, airflow)
    expect(inner.locator("table.streams tbody tr")).to_contain_text("13 versions")
    inner.get_by_role("link", name="orders", exact=True).click()
    expect(inner.locator(".part-planned tbody tr").first).to_be_visible()
    inner.get_by_role("button", name="Hold", exact=True).click()
    dialog = inner.get_by_role("dialog")
    expect(dialog.locator(".preview")).to_contain_text("stream orders")
    dialog.get_by_label("Why").fill("maintenance of the lake")
    dialog.get_by_role("button", name="Confirm: Hold").click()
    expect(dialog.get_by_role("status")).to_contain_text("hold is recorded as ledger entry")
    dialog.get_by_role("button", name="Close").click()
    expect(inner.locator(".part-state")).to_contain_text("On hold")
    expect(inner.locator(".part-decisions")).to_contain_text("maintenance of the lake")
    assert Ledger(open_storage((airflow.home / "staging").as_uri()), "orders").refresh().held is not None
    # a reload of Airflow's page shows the same stream again
    page.reload()
    expect(inner.get_by_role("heading", name="orders", exact=True)).to_be_visible()


def test_streams_are_resumed_from_the_list(page: Page, airflow: AirflowStack):
    ledger = Ledger(open_storage((airflow.home / "staging").as_uri()), "orders", deployment=DEPLOYMENT)
    ledger.refresh()
    ledger.execute(Held(why="maintenance"), Actor(deployment=DEPLOYMENT, user="anna"))
    inner = find_page(page, airflow)
    inner.get_by_label("Select all shown streams").check()
    inner.get_by_role("button", name="Resume …").click()
    dialog = inner.get_by_role("dialog")
    expect(dialog.locator(".preview")).to_contain_text("continues with its next run")
    dialog.get_by_label("Why").fill("the maintenance is over")
    dialog.get_by_role("button", name="Confirm: Resume").click()
    expect(dialog.locator(".outcomes li")).to_contain_text("resume is recorded as ledger entry")
    assert ledger.refresh().held is None


def test_the_theme_of_airflow_is_the_page_s(page: Page, airflow: AirflowStack):
    page.emulate_media(color_scheme="light")
    inner = find_page(page, airflow)
    light = inner.locator("body").evaluate("body => getComputedStyle(body).backgroundColor")
    page.get_by_role("button", name="User").click()
    page.get_by_text("Appearance").click()
    page.get_by_text("Dark").click()
    expect(inner.locator("html")).to_have_attribute("data-theme", "dark")
    assert inner.locator("body").evaluate("body => getComputedStyle(body).backgroundColor") != light
