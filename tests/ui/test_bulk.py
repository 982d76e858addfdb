"""Hold and resume of several streams at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.ui.sample_streams import row

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from tests.ui.page_server import PageServer

NAMES = ("customers", "orders", "payments", "refunds")


def allowed(name: str) -> tuple[int, dict[str, Any]]:
    shown = [f"stream {name}", "  after:  is held until `fds resume`"]
    return 200, {"allowed": True, "refusal": None, "preview": shown, "expected": f"entry-{name}"}


@pytest.fixture
def opened(page: Page, server: PageServer) -> Page:
    """The list, with streams of which each can be held."""
    server.show([row(name) for name in NAMES])
    for name in NAMES:
        server.answers[f"POST streams/id-{name}/actions/hold/preview"] = allowed(name)
        server.answers[f"POST streams/id-{name}/actions/hold"] = (200, {"done": True, "message": f"{name} is held."})
    page.goto(f"{server.url}/fds/")
    expect(page.locator("table.streams tbody tr")).to_have_count(len(NAMES))
    return page


def hold(page: Page, *names: str) -> Locator:
    for name in names:
        page.get_by_label(f"Select {name}", exact=True).check()
    page.get_by_role("button", name="Hold …").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator(".preview")).to_be_visible()
    return dialog


def confirm(dialog: Locator) -> None:
    dialog.get_by_label("Why").fill("maintenance of the lake")
    dialog.get_by_role("button", name="Confirm: Hold").click()


def performed(server: PageServer) -> dict[str, dict[str, Any]]:
    found = server.asked("POST")
    return {path.split("/")[1].removeprefix("id-"): body for path, body in found if path.endswith("/hold")}


def test_several_streams_are_held_with_one_reason_each_by_its_own_request(opened, server):
    dialog = hold(opened, "customers", "orders")
    expect(dialog.get_by_role("heading", name="Hold: 2 streams")).to_be_visible()
    expect(dialog.locator(".preview")).to_contain_text("stream orders")
    confirm(dialog)
    expect(dialog.get_by_role("status")).to_have_text("Hold is done for 2 of 2 streams.")
    expect(dialog.locator(".outcomes li")).to_have_text(["customers is held.", "orders is held."])
    sent = performed(server)
    assert sorted(sent) == ["customers", "orders"]
    assert {name: body["expected"] for name, body in sent.items()} == {
        "customers": "entry-customers",
        "orders": "entry-orders",
    }
    assert {body["why"] for body in sent.values()} == {"maintenance of the lake"}
    assert len({body["request_id"] for body in sent.values()}) == 2
    dialog.get_by_role("button", name="Close").click()
    expect(opened.get_by_role("button", name="Hold …")).to_be_focused()


def test_what_fails_for_one_stream_is_shown_and_can_be_repeated(opened, server):
    forbidden = (403, {"detail": "Forbidden"})
    server.answers["POST streams/id-customers/actions/hold/preview"] = forbidden
    server.answers["POST streams/id-orders/actions/hold/preview"] = (
        200,
        {"allowed": False, "refusal": "The stream has ended.", "preview": [], "expected": "x"},
    )
    server.answers["POST streams/id-payments/actions/hold"] = (409, {"detail": "The stream has changed."})
    dialog = hold(opened, *NAMES)
    preview = dialog.locator(".preview")
    expect(preview).to_contain_text("stream customers: refused: You do not have the right to do this.")
    expect(preview).to_contain_text("stream orders: refused: The stream has ended.")
    confirm(dialog)
    expect(dialog.get_by_role("status")).to_have_text("Hold is done for 1 of 4 streams.")
    expect(dialog.locator(".outcomes li")).to_have_text(
        [
            "stream payments: not done: The stream has changed.",
            "refunds is held.",
            "stream customers: refused: You do not have the right to do this. Ask an Airflow administrator for it.",
            "stream orders: refused: The stream has ended.",
        ]
    )
    assert sorted(performed(server)) == ["payments", "refunds"]
    server.answers["POST streams/id-payments/actions/hold"] = (200, {"done": True, "message": "payments is held."})
    dialog.get_by_role("button", name="Preview the failed ones again").click()
    expect(preview).to_contain_text("stream payments")
    confirm(dialog)
    expect(dialog.get_by_role("status")).to_have_text("Hold is done for 1 of 1 stream.")


def test_if_no_stream_allows_it_nothing_can_be_confirmed(opened, server):
    server.answers["POST streams/id-orders/actions/hold/preview"] = (403, {"detail": "Forbidden"})
    dialog = hold(opened, "orders")
    expect(dialog).to_contain_text("No selected stream allows this now.")
    expect(dialog.get_by_role("button", name="Confirm: Hold")).to_have_count(0)


def test_only_streams_that_are_shown_are_selected(opened):
    everything = opened.get_by_label("Select all shown streams")
    everything.check()
    expect(opened.locator(".bulk")).to_contain_text("4 selected")
    opened.get_by_role("searchbox").fill("orders")
    expect(opened.locator(".bulk")).to_contain_text("1 selected")
    opened.get_by_role("searchbox").fill("")
    expect(opened.locator(".bulk")).to_contain_text("1 selected")
    assert everything.evaluate("one => one.indeterminate")
    # a refresh keeps the selection
    opened.get_by_role("button", name="Refresh", exact=True).click()
    expect(opened.get_by_label("Select orders", exact=True)).to_be_checked()
    opened.get_by_label("Select orders", exact=True).uncheck()
    expect(opened.locator(".bulk")).to_be_empty()
