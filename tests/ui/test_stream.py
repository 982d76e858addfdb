"""The page of one stream, and what it shares with Airflow's UI around it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.ui.sample_streams import HOSTILE, UNKNOWN, batch, detail, row, samples, typical

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.ui.page_server import PageServer

ORDERS = typical()[1]


def open_stream(page: Page, server: PageServer, stream: dict, around: str = "/fds/") -> None:
    server.show_stream(stream)
    page.goto(f"{server.url}{around}#/streams/{stream['id']}")
    expect(page.get_by_role("heading", name=stream["name"], exact=True)).to_be_visible()
    expect(page.locator(".part-facts .card")).to_be_visible()


def test_the_page_says_where_the_stream_is_and_what_it_did(page, server):
    open_stream(page, server, detail(ORDERS))
    figures = page.locator(".figures").inner_text()
    for words in ("12 versions", "9 min 40 s", "1.84 GB", "96 files, 2,400,000 rows", "6 days 22 h", "18,204 rows/s"):
        assert words in figures
    facts = page.locator(".part-facts").inner_text()
    for words in ("version 354", "366", "a repeated batch lands once (transaction)"):
        assert words in facts
    newest = page.locator(".part-batches tbody tr").first.locator("td").all_inner_texts()
    assert newest[:4] == ["41\nepoch 0", "versions 347 to 354", "336,776\n30 files", "336,776\n49.8 MB"]
    assert newest[4] == "17.6\ncheck 0.3, load 0.8, write 16.0, verify 0.4"
    assert "versions 355 to 358" in page.locator(".part-planned").inner_text()
    decisions = page.locator(".part-decisions").inner_text()
    for words in ("maria", "skipped", "GDPR", "version 187"):
        assert words in decisions
    assert "skipped by maria" in page.locator(".part-skipped").inner_text()
    assert page.title() == f"orders {UNKNOWN} Delta streams"


def test_a_stream_of_data_intervals_shows_the_last_the_unfinished_the_gaps_and_the_next(page, server):
    def span(day: int, **fields: object) -> dict[str, object]:
        return {"start": f"2026-11-{day}T00:00:00.000Z", "end": f"2026-11-{day + 1}T00:00:00.000Z"} | fields

    loaded = {"generation": 2, "versions": "versions 3 to 5", "is_blocked": False}
    intervals = {
        "last": span(20, rows=10_250, **loaded),
        "unfinished": [span(18, rows=None, **loaded), span(17, rows=None, **loaded | {"is_blocked": True})],
        "gaps": [span(16)],
        "next": span(21),
    }
    open_stream(page, server, detail(ORDERS, intervals=intervals))
    lines = [line.split("\t") for line in page.locator(".part-intervals tbody tr").all_inner_texts()]
    assert [line[0] for line in lines] == ["Last loaded", "Unfinished", "Blocked", "Gap: no run has begun it", "Next"]
    times = ["2026-11-20 01:00:00 GMT+1", "2026-11-21 01:00:00 GMT+1"]
    assert lines[0][1:] == [*times, "versions 3 to 5", "2", "10,250"]
    assert lines[4][1] == times[1]
    assert lines[4][3:] == [UNKNOWN] * 3


def test_a_stream_by_offset_has_no_part_for_data_intervals(page, server):
    open_stream(page, server, detail(ORDERS))
    expect(page.locator(".part-intervals")).to_be_empty()


def test_the_newest_batches_come_first_and_the_others_on_demand(page, server):
    open_stream(page, server, detail(ORDERS))
    assert page.locator(".part-batches tbody tr").count() == 20
    page.get_by_role("button", name="Show 22 older batches").click()
    assert page.locator(".part-batches tbody tr").count() == 42


def test_the_checkpoint_is_shown_as_delta_writes_it(page, server):
    open_stream(page, server, detail(ORDERS))
    page.get_by_text("Checkpoint (Delta offset)").click()
    expect(page.locator(".part-facts pre")).to_contain_text('"reservoirVersion": 355')


def test_a_stream_that_needs_a_person_says_why_and_what_to_do(page, server):
    open_stream(page, server, detail(typical()[2]))
    problem = page.locator(".problem")
    expect(problem).to_contain_text("Version 214 of s3://lake/payments removes rows (DELETE)")
    expect(problem).to_contain_text("What to do: Skip version 214")


def test_a_stream_that_waits_for_another_one_says_so_in_the_list_and_on_its_page(page, server):
    reason = "Stream 'orders' is waiting for stream 'payments', whose watermark is 2026-01-01: version 4 is later."
    waiting = row("orders", "waiting", lag_versions=1, waits_for=reason)
    server.show([waiting, row("refunds")])
    page.goto(f"{server.url}/fds/")
    expect(page.get_by_title(reason)).to_have_text(reason)
    open_stream(page, server, detail(waiting))
    expect(page.locator(".waits")).to_have_text(reason)
    expect(page.locator(".problem")).to_have_count(0)


def test_a_driver_in_a_cluster_is_shown_with_what_it_has_done_and_a_link_to_its_log(page, server):
    log = "http://node:8081/logPage?driverId=driver-1&logType=stderr"
    driver = {
        "cluster": "standalone", "driver": "driver-1", "batch_id": 3, "batches": 5, "batches_done": 2, "rows": 1500,
        "since": "2026-01-01T00:00:00.000Z", "stage": "stage 7: 3 of 8 tasks done", "log_url": log,
        "noted_at": "2026-01-01T00:05:00.000Z",
    }  # fmt: skip
    open_stream(page, server, detail(row("orders", "loading", driver=driver)))
    expect(page.get_by_role("link", name="driver-1")).to_have_attribute("href", log)
    words = page.get_by_text("standalone: since")
    expect(words).to_contain_text("2 of 5 batches done, 1,500 rows out, at batch 3: stage 7: 3 of 8 tasks done")


def test_charts_have_units_and_a_text_for_those_who_do_not_see_them(page, server):
    open_stream(page, server, detail(ORDERS))
    versions = page.get_by_role("img", name="Lag in versions")
    expect(versions).to_have_accessible_description(re.compile(r"now 12 versions, at most 27 versions at \d{4}-"))
    assert versions.locator("title").count() == 28
    assert versions.locator("title").first.text_content().startswith("3 versions at ")
    lag = page.get_by_role("img", name="Lag in time")
    assert [text for text in lag.locator(".chart-tick").all_text_contents() if "min" in text] == [
        "10 min", "20 min", "30 min",
    ]  # fmt: skip
    ticks = [text for text in lag.locator(".chart-tick").all_text_contents() if ":" in text]
    assert re.fullmatch(r"\d\d:\d\d GMT\+[12]", ticks[-1])
    rows = page.get_by_role("img", name="Rows per batch")
    assert rows.locator(".chart-bar").count() == 42
    assert rows.locator("title").last.text_content() == "batch 41: 336,776 rows, versions 347 to 354"


def test_the_point_under_the_mouse_is_told_in_words(page, server):
    open_stream(page, server, detail(ORDERS))
    figure = page.locator("figure", has_text="Rows per batch")
    figure.locator(".chart-hit").last.hover()
    expect(figure.locator(".readout")).to_have_text("batch 41: 336,776 rows, versions 347 to 354")


def test_a_stream_without_history_has_sentences_and_no_empty_charts(page, server):
    nothing = {"batches": [], "planned": [], "decisions": [], "skipped": [], "samples": [], "actions": []}
    stream = row("returns", "not_begun", last_batch=None, sink=None, watermark=None, offset=None, epoch=0, **nothing)
    open_stream(page, server, stream)
    for words in (
        "No batch is committed yet.",
        "Nothing is planned.",
        "No version is skipped.",
        "The lag has not been",
    ):
        assert page.get_by_text(words).first.is_visible()
    assert page.locator("svg").count() == 0


def test_one_sample_and_values_of_zero_make_a_chart(page, server):
    open_stream(page, server, detail(ORDERS, samples=samples([0]), batches=[batch(0, seconds_ago=5, rows=0)]))
    assert page.locator(".chart-end").count() == 2
    assert "NaN" not in page.locator("svg").first.inner_html()


def test_measures_that_nobody_knows_are_dashes(page, server):
    unknown = batch(3, seconds_ago=5, rows=1) | {
        "files": None, "rows_read": None, "rows_written": None, "bytes_written": None, "phases": {}, "seconds": None,
        "run_id": None,
    }  # fmt: skip
    open_stream(page, server, detail(ORDERS, batches=[unknown]))
    cells = page.locator(".part-batches tbody td").all_inner_texts()
    assert cells[2:] == [f"{UNKNOWN}\n{UNKNOWN}", f"{UNKNOWN}\n{UNKNOWN}", UNKNOWN, cells[5], UNKNOWN]


@pytest.mark.parametrize("width", [1_100, 1_600])
def test_no_table_of_the_page_is_wider_than_the_window(page, server, width):
    page.set_viewport_size({"width": width, "height": 900})
    run = "manual__2026-11-23T08:15:42.123456+00:00_3f8Qk2Lz"
    wide = batch(1_204_567, seconds_ago=9, rows=123_456_789_012) | {
        "epoch": 12, "interval": "2026-11-23T00:00:00Z/2026-11-24T00:00:00Z", "run_id": run,
        "versions": "versions 1,204,001 to 1,204,567",
    }  # fmt: skip
    open_stream(page, server, detail(ORDERS, batches=[wide]))
    too_wide = page.evaluate(
        """() => [...document.querySelectorAll(".stream .scroller")]
            .filter((one) => one.scrollWidth > one.clientWidth)
            .map((one) => `${one.ariaLabel}: ${one.scrollWidth} of ${one.clientWidth}`)"""
    )
    assert too_wide == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_an_unknown_stream_is_told_in_words(page, server):
    page.goto(f"{server.url}/fds/#/streams/gone")
    expect(page.get_by_role("alert")).to_contain_text("There is no such stream.")
    server.show(typical())
    page.get_by_role("link", name="Delta streams").click()
    expect(page.locator("table.streams tbody tr")).to_have_count(len(typical()))
    expect(page.get_by_role("alert")).to_be_empty()


def test_a_refresh_keeps_what_was_opened(page, server):
    open_stream(page, server, detail(ORDERS))
    page.get_by_text("Checkpoint (Delta offset)").click()
    page.get_by_role("button", name="Show 22 older batches").click()
    server.show_stream(detail(ORDERS | {"lag_versions": 11}))
    page.get_by_role("button", name="Refresh", exact=True).click()
    expect(page.locator(".figures")).to_contain_text("11 versions")
    expect(page.locator(".part-facts pre")).to_be_visible()
    assert page.locator(".part-batches tbody tr").count() == 42


def test_data_are_text_and_never_markup(page, server):
    stream = detail(
        row(HOSTILE, "blocked", problem=HOSTILE, what_to_do=HOSTILE, owner=HOSTILE, table=HOSTILE, position=HOSTILE),
        offset=HOSTILE,
        batches=[batch(1, seconds_ago=9, rows=5) | {"versions": HOSTILE, "run_id": HOSTILE}],
        planned=[{"batch_id": 2, "versions": HOSTILE, "files": 1, "bytes": 1, "rows": 1}],
        decisions=[{"at": HOSTILE, "by": HOSTILE, "action": HOSTILE, "why": HOSTILE, "details": HOSTILE}],
        skipped=[{"first_version": 1, "last_version": 2, "why": HOSTILE, "by": HOSTILE, "at": HOSTILE}],
    )
    open_stream(page, server, stream)
    assert page.locator("img").count() == 0
    assert page.get_by_text(HOSTILE, exact=True).count() >= 8
    assert page.title() == f"{HOSTILE} {UNKNOWN} Delta streams"


def test_the_theme_is_that_of_airflow_and_changes_with_it(page, server):
    page.emulate_media(color_scheme="light")
    server.show_stream(detail(ORDERS))
    page.goto(f"{server.url}/plugin/delta-streams")
    inner = page.frame_locator("iframe")
    expect(inner.locator("h1")).to_be_visible()

    def background() -> str:
        return inner.locator("body").evaluate("body => getComputedStyle(body).backgroundColor")

    light = background()
    # as Airflow's switch does it, in the window around the page
    page.evaluate("""localStorage.setItem("theme", "dark")""")
    expect(inner.locator("html")).to_have_attribute("data-theme", "dark")
    dark = background()
    assert dark != light
    page.evaluate("""localStorage.setItem("theme", "system")""")
    expect(inner.locator("html")).not_to_have_attribute("data-theme", "dark")
    assert background() == light
    page.emulate_media(color_scheme="dark")
    assert background() == dark


def test_links_to_airflow_work_in_its_sandbox_which_forbids_them(page, server):
    server.show(typical())
    page.goto(f"{server.url}/plugin/delta-streams/fds/")
    inner = page.frame_locator("iframe")
    inner.get_by_role("link", name="orders_to_bronze", exact=True).click()
    expect(page).to_have_url(f"{server.url}/dags/orders_to_bronze")


def test_the_address_bar_of_airflow_names_the_stream(page, server):
    server.show(typical())
    server.show_stream(detail(ORDERS))
    page.goto(f"{server.url}/plugin/delta-streams/fds/")
    page.frame_locator("iframe").get_by_role("link", name="orders", exact=True).click()
    expect(page).to_have_url(f"{server.url}/plugin/delta-streams/fds/#/streams/id-orders")
