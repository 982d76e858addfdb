"""Actions on a stream: arguments, preview, reason, confirmation, and what can go wrong."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import expect

from tests.ui.sample_streams import HOSTILE, PREVIEW, detail, row

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

    from tests.ui.page_server import PageServer

STREAM = detail(row("orders", "quarantined"))
ACTIONS = "streams/id-orders/actions"
UUID4 = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"


def preview(**changed: Any) -> tuple[int, dict[str, Any]]:
    return 200, {"allowed": True, "refusal": None, "preview": PREVIEW, "expected": "entry-7"} | changed


@pytest.fixture
def opened(page: Page, server: PageServer) -> Page:
    """The page of the stream."""
    server.show_stream(STREAM)
    server.answers[f"POST {ACTIONS}/rewind/preview"] = preview()
    server.answers[f"POST {ACTIONS}/accept/preview"] = preview(preview=["the quarantine ends"])
    server.answers[f"POST {ACTIONS}/hold/preview"] = preview(preview=["nothing new is planned"])
    page.goto(f"{server.url}/fds/#/streams/id-orders")
    expect(page.get_by_role("heading", name="Actions")).to_be_visible()
    return page


def start(page: Page, action: str) -> Locator:
    page.get_by_role("button", name=action, exact=True).click()
    return page.get_by_role("dialog")


def accept(page: Page) -> Locator:
    """Go on until the preview of an acceptance is shown."""
    dialog = start(page, "Accept")
    dialog.get_by_label("Version").fill("214")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.locator(".preview")).to_have_text("the quarantine ends")
    return dialog


def confirmations(server: PageServer) -> list[dict[str, Any]]:
    return [body for path, body in server.asked("POST") if not path.endswith("/preview")]


def test_an_action_is_previewed_confirmed_with_a_reason_and_shown_at_once(opened, server):
    server.answers[f"POST {ACTIONS}/accept"] = (200, {"done": True, "message": "Version 214 is accepted."})
    dialog = accept(opened)
    server.show_stream(STREAM | {"condition": "waiting"})
    dialog.get_by_label("Why").fill("the deletion was asked for")
    dialog.get_by_role("button", name="Confirm: Accept").click()
    expect(dialog.get_by_role("status")).to_have_text("Version 214 is accepted.")
    expect(opened.locator(".part-state")).to_contain_text("Waiting")
    ((path, body),) = [asked for asked in server.asked("POST") if not asked[0].endswith("/preview")]
    assert path == f"{ACTIONS}/accept"
    assert re.fullmatch(UUID4, body.pop("request_id"))
    assert body == {"arguments": {"version": 214}, "why": "the deletion was asked for", "expected": "entry-7"}
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_be_hidden()
    expect(opened.get_by_role("button", name="Accept", exact=True)).to_be_focused()


def test_the_form_has_a_field_for_each_kind_of_argument_and_sends_what_is_given(opened, server):
    dialog = start(opened, "Rewind")
    expect(dialog.get_by_text("This changes the sink")).to_be_visible()
    dialog.get_by_label("To version").fill("300")
    dialog.get_by_label("Sink").select_option("keep")
    dialog.get_by_label("Force").check()
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.locator(".preview")).to_contain_text("reads from version 300 on")
    assert server.asked("POST") == [
        (
            f"{ACTIONS}/rewind/preview",
            {"arguments": {"to_version": 300, "sink": "keep", "force": True}},
        )
    ]
    # what was given is still there
    dialog.get_by_role("button", name="Back").click()
    expect(dialog.get_by_label("To version")).to_have_value("300")
    dialog.get_by_label("Sink").select_option("")
    dialog.get_by_label("Force").uncheck()
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_label("Why")).to_be_visible()
    assert server.asked("POST")[-1][1] == {"arguments": {"to_version": 300}}


def test_nothing_is_asked_for_before_a_required_field_is_filled(opened, server):
    dialog = start(opened, "Accept")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_label("Version")).to_be_focused()
    assert server.asked("POST") == []


def test_exactly_one_argument_of_a_group_is_given(opened, server):
    dialog = start(opened, "Rewind")
    ask = dialog.get_by_role("button", name="Preview")
    ask.click()
    expect(dialog.get_by_label("To version")).to_be_focused()
    dialog.get_by_label("To version").fill("300")
    dialog.get_by_label("To timestamp").fill("2026-11-20T06:30:15")
    ask.click()
    assert server.asked("POST") == []
    told = dialog.get_by_label("To timestamp").evaluate("input => input.validationMessage")
    assert told == "Fill in exactly one of: To version, To timestamp."
    dialog.get_by_label("To version").fill("")
    ask.click()
    expect(dialog.locator(".preview")).to_be_visible()
    assert server.asked("POST")[0][1] == {"arguments": {"to_timestamp": "2026-11-20T06:30:15Z"}}


def test_nothing_is_done_without_a_reason(opened, server):
    dialog = accept(opened)
    dialog.get_by_role("button", name="Confirm: Accept").click()
    expect(dialog.get_by_label("Why")).to_be_focused()
    dialog.get_by_label("Why").fill("   ")
    dialog.get_by_role("button", name="Confirm: Accept").click()
    assert confirmations(server) == []


def test_an_action_without_arguments_begins_with_its_preview(opened):
    dialog = start(opened, "Hold")
    expect(dialog.locator(".preview")).to_have_text("nothing new is planned")
    expect(dialog.get_by_role("button", name="Back")).to_have_count(0)


def test_a_refusal_is_shown_as_one_and_cannot_be_confirmed(opened, server):
    refusal = "Version 300 is later than the current position. A rewind can only move backwards."
    server.answers[f"POST {ACTIONS}/rewind/preview"] = preview(allowed=False, refusal=refusal, preview=[])
    dialog = start(opened, "Rewind")
    dialog.get_by_label("To version").fill("300")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog).to_contain_text(f"Refused. {refusal}")
    expect(dialog.get_by_role("button", name="Confirm")).to_have_count(0)
    dialog.get_by_role("button", name="Back").click()
    expect(dialog.get_by_label("To version")).to_have_value("300")


def test_a_stream_that_changed_since_the_preview_is_previewed_again(opened, server):
    changed = "The stream changed since the preview: a run planned batch 42. Preview again."
    server.answers[f"POST {ACTIONS}/accept"] = (409, {"detail": changed})
    dialog = accept(opened)
    dialog.get_by_label("Why").fill("asked for")
    dialog.get_by_role("button", name="Confirm: Accept").click()
    expect(dialog.get_by_role("alert")).to_contain_text(changed)
    expect(dialog.get_by_role("button", name="Confirm")).to_have_count(0)
    server.answers[f"POST {ACTIONS}/accept/preview"] = preview(preview=["now this"], expected="entry-8")
    server.answers[f"POST {ACTIONS}/accept"] = (200, {"done": True, "message": "Done."})
    dialog.get_by_role("button", name="Preview again").click()
    expect(dialog.locator(".preview")).to_have_text("now this")
    # the reason is still there
    expect(dialog.get_by_label("Why")).to_have_value("asked for")
    dialog.get_by_role("button", name="Confirm: Accept").click()
    expect(dialog.get_by_role("status")).to_have_text("Done.")
    first, second = confirmations(server)
    assert (first["expected"], second["expected"]) == ("entry-7", "entry-8")
    assert first["request_id"] != second["request_id"]


def test_a_confirmation_that_is_sent_again_has_the_same_request_id(opened, server):
    server.answers[f"POST {ACTIONS}/accept"] = (503, {"detail": "The staging folder does not answer."})
    dialog = accept(opened)
    dialog.get_by_label("Why").fill("asked for")
    confirm = dialog.get_by_role("button", name="Confirm: Accept")
    confirm.click()
    expect(dialog.get_by_role("alert")).to_have_text("The staging folder does not answer.")
    server.answers[f"POST {ACTIONS}/accept"] = (200, {"done": True, "message": "Done."})
    confirm.click()
    expect(dialog.get_by_role("status")).to_have_text("Done.")
    first, second = confirmations(server)
    assert first == second


def test_a_request_id_is_made_where_the_page_is_served_by_plain_http(opened, server):
    server.answers[f"POST {ACTIONS}/hold"] = (200, {"done": True, "message": "Held."})
    opened.evaluate("() => Object.defineProperty(crypto, 'randomUUID', { value: undefined })")
    dialog = start(opened, "Hold")
    dialog.get_by_label("Why").fill("maintenance")
    dialog.get_by_role("button", name="Confirm: Hold").click()
    expect(dialog.get_by_role("status")).to_have_text("Held.")
    assert re.fullmatch(UUID4, confirmations(server)[0]["request_id"])


@pytest.mark.parametrize(
    ("status", "detail", "words"),
    [
        (422, "to_version must be a number, got 'x'.", "to_version must be a number"),
        (422, [{"loc": ["body", "arguments", "to_version"], "msg": "not a number"}], "arguments.to_version: not a"),
        (403, "Forbidden", "You do not have the right to do this."),
        (401, "Not authenticated", "Your session has ended. Sign in to Airflow again."),
        (500, None, "responded with status 500"),
    ],
)
def test_what_goes_wrong_in_a_preview_is_told_in_words(opened, server, status, detail, words):
    server.answers[f"POST {ACTIONS}/rewind/preview"] = (status, {"detail": detail})
    dialog = start(opened, "Rewind")
    dialog.get_by_label("To version").fill("300")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_role("alert")).to_contain_text(words)
    expect(dialog.get_by_role("link", name="Sign in")).to_have_count(1 if status == 401 else 0)
    expect(dialog.get_by_role("button", name="Preview")).to_be_enabled()


def test_the_actions_are_those_of_the_answer_in_its_order_and_what_is_known_is_filled_in(page, server):
    version = {"name": "version", "type": "integer", "required": False, "help": "x", "one_of": "accepted", "value": 214}
    held, accepted, _, rewind, _ = STREAM["actions"]
    server.show_stream(STREAM | {"actions": [held, accepted | {"arguments": [version]}, rewind]})
    server.answers[f"POST {ACTIONS}/accept/preview"] = preview()
    page.goto(f"{server.url}/fds/#/streams/id-orders")
    expect(page.locator(".part-actions .button")).to_have_text(["Hold", "Accept", "Rewind"])
    dialog = start(page, "Accept")
    expect(dialog.locator("input, select")).to_have_count(1)
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_label("Why")).to_be_visible()
    assert server.asked("POST")[-1][1] == {"arguments": {"version": 214}}


def test_an_action_that_no_longer_applies_leaves_the_focus_on_the_first_that_does(opened, server):
    server.answers[f"POST {ACTIONS}/hold"] = (200, {"done": True, "message": "Held."})
    server.show_stream(STREAM | {"actions": STREAM["actions"][1:]})
    dialog = start(opened, "Hold")
    dialog.get_by_label("Why").fill("maintenance")
    dialog.get_by_role("button", name="Confirm: Hold").click()
    expect(opened.get_by_role("button", name="Hold", exact=True)).to_have_count(0)
    dialog.get_by_role("button", name="Close").click()
    expect(opened.get_by_role("button", name="Accept", exact=True)).to_be_focused()


def test_a_stream_without_an_action_says_why(page, server):
    server.show_stream(STREAM | {"actions": []})
    page.goto(f"{server.url}/fds/#/streams/id-orders")
    expect(page.get_by_text("No action is possible here: the stream has ended")).to_be_visible()


def test_who_may_not_act_is_told_why(page, server):
    server.show_stream(STREAM | {"may_act": False})
    page.goto(f"{server.url}/fds/#/streams/id-orders")
    expect(page.get_by_text("that needs the right to edit its DAG")).to_be_visible()
    expect(page.get_by_role("button", name="Rewind", exact=True)).to_be_disabled()


def test_the_dialog_is_used_and_left_by_keyboard(opened, server):
    server.answers[f"POST {ACTIONS}/accept"] = (200, {"done": True, "message": "Done."})
    button = opened.get_by_role("button", name="Accept", exact=True)
    button.focus()
    opened.keyboard.press("Enter")
    dialog = opened.get_by_role("dialog")
    expect(dialog.get_by_label("Version")).to_be_focused()
    opened.keyboard.type("214")
    opened.keyboard.press("Enter")
    expect(dialog.get_by_label("Why")).to_be_focused()
    opened.keyboard.type("asked for")
    # the focus goes round inside and by way of the browser, and never to what is behind
    for _ in range(8):
        opened.keyboard.press("Tab")
        assert opened.evaluate("document.activeElement.matches('body, dialog, dialog *')")
    dialog.get_by_role("button", name="Confirm: Accept").focus()
    opened.keyboard.press("Enter")
    expect(dialog.get_by_role("status")).to_have_text("Done.")
    expect(dialog.get_by_role("button", name="Close")).to_be_focused()
    opened.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(button).to_be_focused()


def test_a_refresh_leaves_the_dialog_alone(opened, server):
    dialog = start(opened, "Rewind")
    dialog.get_by_label("To version").fill("123")
    server.show_stream(STREAM | {"lag_versions": 5, "actions": STREAM["actions"][:2]})
    opened.get_by_role("button", name="Refresh", exact=True).evaluate("button => button.click()")
    expect(opened.locator(".figures")).to_contain_text("5 versions")
    expect(dialog.get_by_label("To version")).to_have_value("123")
    expect(dialog.get_by_label("To version")).to_be_focused()


def test_going_back_closes_the_dialog(opened, server):
    server.show([row("orders")])
    start(opened, "Rewind")
    opened.evaluate("location.hash = '#/'")
    expect(opened.get_by_role("dialog")).to_have_count(0)


def test_data_in_a_preview_are_text(opened, server):
    server.answers[f"POST {ACTIONS}/hold/preview"] = preview(preview=[HOSTILE])
    server.answers[f"POST {ACTIONS}/hold"] = (200, {"done": True, "message": HOSTILE})
    dialog = start(opened, "Hold")
    expect(dialog.locator(".preview")).to_have_text(HOSTILE)
    dialog.get_by_label("Why").fill("x")
    dialog.get_by_role("button", name="Confirm: Hold").click()
    expect(dialog.get_by_role("status")).to_have_text(HOSTILE)
    assert opened.locator("img").count() == 0
