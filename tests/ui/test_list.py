"""The list of streams, as a person sees and uses it."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.ui.sample_streams import HOSTILE, UNKNOWN, ago, detail, many, row, typical

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.ui.page_server import PageServer


def names(page: Page) -> list[str]:
    return page.locator("table.streams tbody th").all_inner_texts()


def cells(page: Page, name: str) -> str:
    """Return what the row of a stream says, its lines joined."""
    return page.locator("table.streams tbody tr", has=page.get_by_role("link", name=name, exact=True)).inner_text()


def open_list(page: Page, server: PageServer, location: str = "#/") -> None:
    page.goto(f"{server.url}/fds/{location}")
    expect(page.locator("table.streams tbody tr").first).to_be_visible()


def test_a_row_says_where_a_stream_is_in_units_that_people_read(page, server):
    server.show(typical())
    open_list(page, server)
    said = cells(page, "orders")
    for words in (
        "Loading",
        "12 versions",
        "9 min 40 s",
        "1.84 GB",
        "96 files",
        "6 days 22 h",
        "336,776 rows",
        "18,204",
    ):
        assert words in said
    assert "s3://lake/orders" in said
    assert "s3://lake/bronze/orders" in said
    link = page.get_by_role("link", name="ingest").nth(names(page).index("orders"))
    assert link.get_attribute("target") == "_top"
    assert link.get_attribute("href").endswith(
        "/dags/orders_to_bronze/runs/scheduled__2026-11-23T13%3A00%3A00%2B00%3A00/tasks/ingest"
    )


def test_every_state_is_a_word_and_those_that_need_a_person_come_first(page, server):
    server.show(typical())
    open_list(page, server)
    assert names(page)[:3] == ["exports.partner-a", "payments", "shipments"]
    badges = page.locator("table.streams .badge").all_inner_texts()
    assert set(badges) == {
        "Blocked", "Quarantined", "Failing", "Failing, retrying", "On hold", "Loading", "Waiting", "Behind",
        "Not begun", "Up to date", "Finished",
    }  # fmt: skip


def test_after_those_that_need_attention_the_largest_lag_in_time_comes_first(page, server):
    server.show(typical())
    open_list(page, server)
    assert names(page)[3:] == [
        "sensors_eu", "clicks", "orders", "refunds", "inventory_snapshots", "archive_2024", "customers", "returns",
    ]  # fmt: skip


#: A stream whose texts do not fit.
LONG = row(
    "warehouse.finance.general_ledger_entries_of_all_companies",
    "failing",
    table="abfss://lake@companystorageaccount.dfs.core.windows.net/raw/finance/general_ledger/entries",
    sink={
        "kind": "delta_table",
        "target": "abfss://lake@companystorageaccount.dfs.core.windows.net/bronze/finance/entries",
        "delivery": "transaction",
    },
    problem="The last run failed: [SCHEMA_CHANGED] version 1,204 renames the column amount_in_local_currency to amount",
    dag_id="finance_general_ledger_entries_to_bronze_every_five_minutes",
    task_id="ingest_general_ledger_entries",
    will_retry=True,
    since=ago(5_400),
    failed_runs=1_203,
    lag_versions=1_204,
    lag_seconds=86_400 * 12 + 3_600 * 23.0,
    pending_files=120_400,
    pending_bytes=999_400_000_000,
    rows_per_second=1_204_300.0,
    retention_left_seconds=-1.0,
    last_batch=row("x")["last_batch"] | {"rows_written": 123_456_789, "committed_at": ago(86_400 * 12)},
    observed_at=ago(86_400),
    stale=True,
)


@pytest.mark.parametrize("width", [1_100, 1_600])
def test_no_column_is_cut_off_and_long_texts_keep_their_beginning_and_end(page, server, width):
    page.set_viewport_size({"width": width, "height": 900})
    server.show([*typical(), LONG])
    open_list(page, server)
    outside = page.evaluate(
        """() => {
            const scroller = document.querySelector(".list .scroller");
            const most = scroller.getBoundingClientRect().right + 0.5;
            const found = scroller.scrollWidth > scroller.clientWidth ? ["the table scrolls"] : [];
            for (const cell of scroller.querySelectorAll("th, td")) {
                const [edge, range] = [cell.getBoundingClientRect().right, document.createRange()];
                range.selectNodeContents(cell);
                const content = [...cell.querySelectorAll(".badge, .end, .sort"), ...(cell.matches(".number") ? [range] : [])];
                const right = Math.max(edge, ...content.map((one) => one.getBoundingClientRect().right));
                if (right > Math.min(most, edge + 0.5)) found.push(`${cell.className}: ${cell.innerText}`);
            }
            return found;
        }"""  # noqa: E501  # one statement a line
    )
    assert outside == []
    for text in (LONG["name"], LONG["table"], LONG["problem"], LONG["dag_id"]):
        cell = page.get_by_title(text)
        assert text.endswith(cell.locator(".end").inner_text())
        assert cell.locator(".beginning").evaluate("one => one.scrollWidth > one.clientWidth")
        # what is copied is the whole
        assert cell.inner_text() == text


def test_a_condition_of_a_newer_server_is_shown_by_its_name(page, server):
    server.show([row("orders", "being_rebuilt")])
    open_list(page, server)
    assert "being rebuilt" in cells(page, "orders")


def test_an_unknown_value_is_a_dash_and_not_zero(page, server):
    server.show([row("orders", lag_versions=None, lag_seconds=None, pending_bytes=None, last_batch=None)])
    open_list(page, server)
    assert "0" not in page.locator(".col-lag_versions, .col-pending_bytes, .col-last_batch").all_inner_texts()
    assert page.locator("td.col-lag_versions").inner_text() == UNKNOWN


def test_a_stale_status_says_so(page, server):
    server.show(typical())
    open_list(page, server)
    assert "Stale: from 7 h ago" in cells(page, "sensors_eu")
    assert "Stale" not in cells(page, "orders")


SORTS = [
    ("Lag in versions", lambda one: one["lag_versions"], True),
    ("Lag in time", lambda one: one["lag_seconds"], True),
    ("Unread bytes", lambda one: one["pending_bytes"], True),
    ("Unread files", lambda one: one["pending_files"], True),
    ("Retention left", lambda one: one["retention_left_seconds"], False),
    ("Rows/s", lambda one: one["rows_per_second"], True),
    ("Status", lambda one: one["age_seconds"], True),
    ("Table", lambda one: one["table"], False),
    ("Sink", lambda one: (one["sink"] or {}).get("target"), False),
    ("DAG", lambda one: one["dag_id"], False),
]


@pytest.mark.parametrize(("button", "value", "is_descending"), SORTS, ids=[sort[0] for sort in SORTS])
def test_each_column_sorts_both_ways_and_what_is_unknown_stays_last(page, server, button, value, is_descending):
    streams = typical()
    by_name = {one["name"]: value(one) for one in streams}
    known = sorted((found for found in by_name.values() if found is not None), reverse=is_descending)
    server.show(streams)
    open_list(page, server)
    header = page.get_by_role("button", name=button, exact=True)
    header.click()
    first = [by_name[name] for name in names(page)]
    assert first == known + [None] * (len(first) - len(known))
    cell = page.locator("th", has=header)
    assert cell.get_attribute("aria-sort") == ("descending" if is_descending else "ascending")
    header.click()
    assert [by_name[name] for name in names(page)] == known[::-1] + [None] * (len(first) - len(known))
    assert cell.get_attribute("aria-sort") == ("ascending" if is_descending else "descending")
    assert page.locator("th[aria-sort]").count() == 1


def test_text_and_state_filter_the_rows_and_the_location_keeps_them(page, server):
    server.show(typical())
    open_list(page, server)
    page.get_by_role("searchbox").fill("bronze/pay")
    assert names(page) == ["payments"]
    expect(page.locator(".count")).to_have_text("1 of 11 streams")
    page.get_by_role("searchbox").fill("")
    page.get_by_role("button", name="Waiting").click()
    assert names(page) == ["inventory_snapshots"]
    page.get_by_role("button", name="Needs attention").click()
    assert len(names(page)) == 4
    location = page.evaluate("location.hash")
    page.goto("about:blank")
    open_list(page, server, location)
    assert len(names(page)) == 4
    expect(page.get_by_role("button", name="Waiting")).to_have_attribute("aria-pressed", "true")


def test_dag_and_owner_filter_the_rows_and_the_location_keeps_them(page, server):
    streams = [
        row("a", dag_id="load", dag_owners=["anna", "sales"]),
        row("b", dag_id="load", dag_owners=["anna", "sales"]),
        row("c", dag_id="other", dag_owners=["sales"]),
        row("d", dag_id=None, dag_owners=[]),
    ]
    server.show(streams)
    open_list(page, server)
    owners, dags = page.get_by_label("Filter by owner"), page.get_by_label("Filter by DAG")
    expect(owners.locator("option")).to_have_text(["All owners", "anna", "sales"])
    owners.select_option("sales")
    assert names(page) == ["a", "b", "c"]
    dags.select_option("load")
    assert names(page) == ["a", "b"]
    location = page.evaluate("location.hash")
    assert location == "#/?dag=load&owner=sales"
    page.goto("about:blank")
    open_list(page, server, location)
    assert names(page) == ["a", "b"]
    expect(dags).to_have_value("load")
    # a value that no stream has now stays chosen
    server.show([streams[3]])
    page.get_by_role("button", name="Refresh", exact=True).click()
    page.get_by_role("button", name="Clear the filters").click()
    assert names(page) == ["d"]
    expect(owners).to_be_hidden()


def test_the_streams_of_a_fleet_are_chosen_by_its_task(page, server):
    fleet = {"dag_id": "load", "task_id": "fleet"}
    server.show([row("a", **fleet), row("b", **fleet), row("c", dag_id="load", task_id="alone")])
    open_list(page, server)
    fleets = page.get_by_label("Filter by fleet")
    expect(fleets.locator("option")).to_have_text(["All fleets", "load.fleet"])
    fleets.select_option("load.fleet")
    assert names(page) == ["a", "b"]
    assert page.evaluate("location.hash") == "#/?fleet=load.fleet"
    server.show([row("a", **fleet), row("c", dag_id="load", task_id="alone")])
    page.goto("about:blank")
    open_list(page, server)
    expect(page.get_by_label("Filter by fleet")).to_be_hidden()


def test_a_stream_whose_dag_is_gone_is_marked_in_the_list_and_on_its_page(page, server):
    gone = row("orders", dag_is_gone=True, last_run_at="2026-01-02T03:04:05+00:00")
    unknown = row("refunds", dag_is_gone=True, last_run_at=None, last_batch=None)
    server.show([gone, unknown, row("customers")])
    open_list(page, server)
    assert page.locator("tr", has=page.locator(".no-dag")).locator("th").all_inner_texts() == ["orders", "refunds"]
    said = (
        "Airflow no longer has the DAG orders_to_bronze. No run since 2026-01-02 04:04:05 GMT+1. Was it renamed? "
        "Continue under the new name with `fds fork`. Has it ended? Use `fds retire`."
    )
    expect(page.locator(".no-dag").first).to_have_attribute("title", said)
    assert "since" not in page.locator(".no-dag").last.get_attribute("title")
    assert page.get_by_role("link", name="orders_to_bronze", exact=True).count() == 0
    server.show_stream(detail(gone))
    page.get_by_role("link", name="orders", exact=True).click()
    expect(page.locator(".part-state .notice")).to_have_text(said)


def test_filters_that_match_nothing_can_be_cleared(page, server):
    server.show(typical())
    open_list(page, server)
    page.get_by_role("searchbox").fill("nothing has this name")
    expect(page.get_by_text("No stream matches.")).to_be_visible()
    page.get_by_role("button", name="Clear the filters").click()
    assert len(names(page)) == len(typical())


def test_the_list_is_used_by_keyboard_alone(page, server):
    server.show(typical())
    open_list(page, server)
    page.get_by_role("searchbox").focus()
    page.keyboard.type("orders")
    expect(page.locator("table.streams tbody tr")).to_have_count(1)
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "orders":
            break
    # what has the focus is seen to have it
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    server.show_stream(typical()[1] | {"batches": [], "samples": [], "planned": [], "decisions": [], "skipped": []})
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="orders")).to_be_focused()
    page.go_back()
    # the link that was followed has the focus again
    expect(page.get_by_role("link", name="orders", exact=True)).to_be_focused()


def test_a_refresh_keeps_focus_scroll_sort_and_filter(page, server):
    server.show(many(200))
    open_list(page, server)
    page.get_by_role("button", name="Stream", exact=True).click()
    page.get_by_role("searchbox").fill("team")
    link = page.get_by_role("link", name="team10.table_0110", exact=True)
    link.focus()
    before = page.locator(".list .scroller").evaluate("element => element.scrollTop")
    assert before > 0
    changed = [one | {"lag_versions": 77_777} for one in many(200)]
    server.show([*changed[5:], *changed[:5]])
    page.get_by_role("button", name="Refresh", exact=True).evaluate("button => button.click()")
    expect(page.get_by_text("77,777 versions").first).to_be_visible()
    expect(link).to_be_focused()
    assert page.locator(".list .scroller").evaluate("element => element.scrollTop") == before
    assert names(page) == sorted(names(page))
    assert page.get_by_role("searchbox").input_value() == "team"


def test_the_list_is_refreshed_by_itself_while_it_is_visible(page, server):
    page.clock.install()
    server.show([row("orders")])
    open_list(page, server)
    server.show([row("orders"), row("customers")])
    page.clock.run_for(10_500)
    expect(page.get_by_role("link", name="customers", exact=True)).to_be_visible()
    page.get_by_label("Refresh every 10 s").uncheck()
    asked = len(server.requests)
    page.clock.run_for(60_000)
    assert len(server.requests) == asked


def test_a_hidden_page_asks_for_nothing_until_it_is_seen_again(page, server):
    page.clock.install()
    server.show([row("orders")])
    open_list(page, server)

    def turn(state: str) -> None:
        page.evaluate(
            """state => {
                Object.defineProperty(document, "visibilityState", { value: state, configurable: true });
                document.dispatchEvent(new Event("visibilitychange"));
            }""",
            state,
        )

    turn("hidden")
    asked = len(server.requests)
    page.clock.run_for(60_000)
    assert len(server.requests) == asked
    server.show([row("customers")])
    turn("visible")
    expect(page.get_by_role("link", name="customers", exact=True)).to_be_visible()


def test_an_error_is_told_in_words_and_the_last_good_data_stay(page, server):
    server.show(typical())
    open_list(page, server)
    server.answers["GET streams"] = (503, {"detail": "The staging folder s3://lake/_fds does not answer. Try later."})
    page.get_by_role("button", name="Refresh", exact=True).click()
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("The staging folder s3://lake/_fds does not answer. Try later.")
    expect(alert).to_contain_text("What you see is from")
    assert len(names(page)) == len(typical())
    server.show(typical())
    alert.get_by_role("button", name="Try again").click()
    expect(alert).to_be_empty()


def test_who_is_signed_out_is_told_to_sign_in_again(page, server):
    server.answers["GET streams"] = (401, {"detail": "Not authenticated"})
    page.goto(f"{server.url}/fds/")
    expect(page.get_by_role("alert")).to_contain_text("Sign in to Airflow again")
    link = page.get_by_role("link", name="Sign in")
    assert re.search(r"/api/v2/auth/login\?next=http", link.get_attribute("href"))


def test_an_answer_that_is_not_json_and_no_answer_are_told(page, server):
    server.show(typical())
    open_list(page, server)
    page.route("**/api/streams", lambda route: route.fulfill(status=200, body="<html>proxy</html>"))
    page.get_by_role("button", name="Refresh", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("not JSON")
    page.unroute("**/api/streams")
    page.route("**/api/streams", lambda route: route.abort())
    page.get_by_role("button", name="Refresh", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("cannot be reached")


def test_a_staging_folder_that_cannot_be_read_is_named_above_the_others(page, server):
    server.show(typical(), problems=[{"staging": "s3://other/_fds", "message": "Access denied."}])
    open_list(page, server)
    expect(page.locator(".notices")).to_have_text("s3://other/_fds Access denied.")
    assert len(names(page)) == len(typical())


def test_an_empty_installation_is_told_what_to_do(page, server):
    server.show([], staging=())
    page.goto(f"{server.url}/fds/")
    expect(page.get_by_role("heading", name="No streams yet")).to_be_visible()
    expect(page.locator(".empty")).to_contain_text("[fds] staging = s3://lake/_fds")
    expect(page.locator(".empty")).to_contain_text("DeltaIngestOperator")
    server.show([])
    page.get_by_role("button", name="Refresh", exact=True).click()
    expect(page.locator(".empty")).to_contain_text("The staging folder is s3://lake/_fds.")
    server.show([row("orders")])
    page.get_by_role("button", name="Refresh", exact=True).click()
    expect(page.get_by_role("link", name="orders", exact=True)).to_be_visible()
    expect(page.locator(".empty")).to_be_hidden()


def test_data_are_text_and_never_markup(page, server):
    hostile = row(
        HOSTILE,
        "quarantined",
        id="id-hostile",
        table=f"s3://lake/{HOSTILE}",
        sink={"kind": HOSTILE, "target": HOSTILE, "delivery": None},
        problem=HOSTILE,
        dag_id=HOSTILE,
        task_id=HOSTILE,
    )
    server.show([hostile], problems=[{"staging": HOSTILE, "message": HOSTILE}])
    open_list(page, server)
    assert names(page) == [HOSTILE]
    assert page.locator("img").count() == 0
    assert page.title() == "Delta streams"


def test_the_policy_of_the_page_refuses_scripts_from_elsewhere(page, server, problems):
    server.show([row("orders")])
    open_list(page, server)
    refused = page.evaluate(
        """() => new Promise((resolve) => {
            document.addEventListener("securitypolicyviolation", (event) => resolve(event.violatedDirective));
            const script = document.createElement("script");
            script.src = "https://example.com/x.js";
            document.head.append(script);
        })"""
    )
    assert refused == "script-src-elem"
    page.wait_for_timeout(0)  # lets the browser's message about it arrive
    assert "Content Security Policy" in problems.pop()


def test_a_thousand_streams_are_shown_filtered_and_sorted_at_once(page, server, record_property):
    server.show(many(1_000))
    began = time.monotonic()
    open_list(page, server)
    shown = time.monotonic() - began
    assert page.locator("table.streams tbody tr").count() == 1_000
    took = page.evaluate(
        """async () => {
            const painted = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
            const time = async (act) => {
                const began = performance.now();
                act();
                await painted();
                return performance.now() - began;
            };
            const search = document.querySelector("input[type=search]");
            const type = (text) => { search.value = text; search.dispatchEvent(new Event("input")); };
            return {
                sort: await time(() => document.querySelector("[data-sort=lag_versions]").click()),
                filter: await time(() => type("table_05")),
                all: await time(() => type("")),
            };
        }"""
    )
    print(f"1,000 streams: shown after {shown:.2f} s; in ms:", {name: round(ms) for name, ms in took.items()})
    record_property("shown_seconds", shown)
    assert shown < 30  # a machine that does other things too; what it took is in the report
    assert max(took.values()) < 10_000


def test_times_are_those_of_the_zone_that_is_chosen_in_airflow(page, server):
    server.show([row("orders", observed_at="2026-01-02T03:04:05+00:00", last_batch=None, age_seconds=1.0)])
    open_list(page, server)
    status = page.locator("td.col-age_seconds div")
    assert status.get_attribute("title") == "Written 2026-01-02 04:04:05 GMT+1"
    page.evaluate("""localStorage.setItem("timezone", JSON.stringify("America/New_York"))""")
    page.reload()
    expect(status).to_have_attribute("title", "Written 2026-01-01 22:04:05 EST")
    page.evaluate("""localStorage.setItem("timezone", JSON.stringify("UTC"))""")
    page.reload()
    expect(status).to_have_attribute("title", "Written 2026-01-02 03:04:05 UTC")
    expect(page.locator(".updated")).to_have_text(re.compile(r"Updated \d\d:\d\d:\d\d UTC"))


def test_an_age_grows_while_the_api_does_not_answer(page, server):
    page.clock.install()
    server.show([row("orders", observed_at=ago(12))])
    open_list(page, server)
    server.answers["GET streams"] = (503, {"detail": "No."})
    page.clock.run_for(3_600_000)
    expect(page.get_by_role("alert")).to_contain_text("What you see is from")
    expect(page.locator("td.col-age_seconds")).to_have_text("1 h ago")
