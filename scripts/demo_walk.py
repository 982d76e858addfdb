"""``make demo-walk``: play the walk of docs/demo.md in a headless Chromium, check each step, and take its pictures.

    python scripts/demo_walk.py docs/images

It runs ``make demo SERVE=1`` and does what a new user does: reads the terminal, opens Airflow, finds the page, sees the
lag shrink, runs the DELETE that the terminal shows, gets one alert, skips the version, and watches the stream go
on. The exit code is 0 only if each step showed what the page promises, and no row was lost or doubled.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from airflow_client import AirflowClient
from deltalake import DeltaTable
from demo_verdict import chain_problems, committed_version, compare_keys, ledger_entries, sink_batches
from PIL import Image
from playwright.sync_api import Error, expect, sync_playwright
from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from playwright.sync_api import FrameLocator, Locator, Page

ROOT: Final = Path(__file__).resolve().parent.parent
STREAM: Final = "flights_to_bronze"
LAKE: Final = ROOT / ".demo" / "lake"
LEDGER: Final = ROOT / ".demo" / "staging" / STREAM / "ledger"
#: How long the paused DAG lets the lag grow, in seconds.
PAUSED_LAG: Final = 30
#: What the lag is at most while the DAG runs, in seconds.
SMALL_LAG: Final = 10
#: How long a page may take on a busy machine, and how long it draws what it has loaded, in milliseconds.
PATIENCE_MS: Final = 120_000
SETTLE_MS: Final = 4_000
#: Largest picture, in bytes.
MOST_BYTES: Final = 200_000


class WalkError(Exception):
    """A step did not show what the page promises."""


class Terminal:
    """The demo in its terminal: what it prints, as a user reads it."""

    def __init__(self) -> None:
        self.text = ""
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "scripts" / "demo.py")],
            env={**os.environ, "SERVE": "1", "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=ROOT,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def find(self, pattern: str, seconds: float) -> str:
        """Return the first group of a pattern, once it is printed."""
        found = wait(lambda: re.search(pattern, self.text), seconds, f"the terminal did not show {pattern!r}")
        return str(found[1])

    def end(self) -> None:
        """Press Ctrl-C, and wait for the end."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        self.process.wait(120)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            print(line, end="", flush=True)
            self.text += line


class Walk:
    """The steps, in order.

    Args:
        terminal: The running demo.
        page: A tab.
        pictures: Where pictures go.
    """

    def __init__(self, terminal: Terminal, page: Page, pictures: Path) -> None:
        self._terminal = terminal
        self._page = page
        self._pictures = pictures
        self._inner: FrameLocator = page.frame_locator("iframe[title='Delta streams']")
        self._url = terminal.find(r"Airflow is up: (http://\S+?)/dags", 300)
        self._delete = terminal.find(r"(?m)^ +(\.venv\S+ .*--delete .*)$", 500)
        self._client = AirflowClient(self._url)

    def play(self) -> None:
        """Play all steps."""
        self._find_the_page()
        self._watch_the_lag()
        version = self._stop_at_a_delete()
        self._read_the_alert()
        self._skip(version)
        self._end(version)

    def _find_the_page(self) -> None:
        self._open_airflow()
        link = self._page.get_by_role("link", name="Delta streams")
        expect(link).to_be_visible()
        self._page.wait_for_timeout(SETTLE_MS)
        self._take("airflow")
        link.click()
        expect(self._stream_link()).to_be_visible()
        self._take("list")
        said("found the page in the navigation")

    def _watch_the_lag(self) -> None:
        self._pause(is_paused=True)
        wait(lambda: self._lag() >= PAUSED_LAG, 150, "the monitor did not show the lag of a paused DAG")
        self._page.reload()
        expect(self._stream_link()).to_be_visible()
        self._take("paused")
        said(f"the monitor shows a lag of {self._lag():.0f} s while the DAG is paused")
        self._pause(is_paused=False)
        self._wait_for_small_lag()
        self._stream_link().click()
        expect(self._inner.locator(".chart-bar").first).to_be_visible()
        self._page.wait_for_timeout(3 * SETTLE_MS)  # the chart of the lag gets points after the peak
        self._open_stream()
        self._take("caught-up", 1000)
        said(f"the lag is down to {self._lag():.1f} s")

    def _stop_at_a_delete(self) -> int:
        subprocess.run([sys.executable, *shlex.split(self._delete)[1:]], cwd=ROOT, check=True)
        wait(lambda: self._row()["condition"] == "quarantined", 60, "the stream did not stop at the DELETE")
        self._open_list()
        expect(self._inner.locator("table.streams tbody")).to_contain_text("Quarantined")
        self._take("quarantined")
        held = [entry["action"] for entry in ledger_entries(LEDGER) if entry["action"]["kind"] == "quarantined"]
        check(len(held) == 1, f"one quarantine is expected, the ledger has {len(held)}")
        said(f"the stream waits before version {held[0]['version']}")
        return int(held[0]["version"])

    def _read_the_alert(self) -> None:
        self._terminal.find(r"ALERT: (.*)", 60)
        events = wait(self._alert_events, 60, "there is no asset event of the alert")
        self._page.goto(f"{self._url}/assets/{events[0]['asset_id']}", wait_until="domcontentloaded")
        expect(self._page.get_by_text(f"fds://{STREAM}/state").first).to_be_visible()
        self._page.wait_for_timeout(SETTLE_MS)
        self._take("alert")
        said("the alert is in the terminal and on the asset's page")

    def _skip(self, version: int) -> None:
        self._open_list()
        self._stream_link().click()
        self._inner.get_by_role("button", name="Skip", exact=True).click()
        dialog = self._inner.get_by_role("dialog")
        dialog.get_by_label("Version").fill(str(version))
        dialog.get_by_role("button", name="Preview").click()
        expect(dialog.locator(".preview")).to_be_visible()
        dialog.get_by_label("Why").fill("a test deletion; bronze keeps the rows")
        self._take("skip")
        dialog.get_by_role("button", name="Confirm: Skip").click()
        expect(dialog.get_by_role("status")).to_contain_text("is recorded as ledger entry")
        dialog.get_by_role("button", name="Close").click()
        said(f"version {version} is skipped on the page")

    def _end(self, version: int) -> None:
        wait(lambda: committed_version(ledger_entries(LEDGER)) > version, 60, "the stream did not go on")
        self._wait_for_small_lag()
        self._open_stream()
        self._take("goes-on", 1000)
        said("the stream goes on")
        self._pause(is_paused=True)
        wait(lambda: self._client.runs(STREAM)[0]["state"] == "success", 60, "the last run did not end")
        alerts = self._terminal.text.count("ALERT:")
        check(alerts == 1, f"one alert is expected, {alerts} came")
        events = self._alert_events()
        check(len(events) == 1, f"one event of the alert is expected, {len(events)} came")
        for line in judge():
            said(line)

    def _alert_events(self) -> list[dict[str, Any]]:
        events = [event for dag in ("fds_monitor", STREAM) for event in self._client.asset_events(dag)]
        return [event for event in events if event["uri"] == f"fds://{STREAM}/state"]

    def _open_list(self) -> None:
        # another page first: a change of the fragment alone loads nothing
        self._page.goto("about:blank")
        self._open_airflow()
        self._page.get_by_role("link", name="Delta streams").click()
        expect(self._stream_link()).to_be_visible()

    def _open_stream(self) -> None:
        self._open_list()
        self._stream_link().click()
        expect(self._inner.locator(".chart-bar").first).to_be_visible()

    def _stream_link(self) -> Locator:
        # the DAG has the same name
        return self._inner.get_by_role("rowheader", name=STREAM).get_by_role("link")

    def _open_airflow(self) -> None:
        self._page.goto(self._url, wait_until="domcontentloaded")

    def _row(self) -> dict[str, Any]:
        """The stream's row, as the page gets it."""
        streams = self._client.call("GET", "/fds/api/streams")["streams"]
        return next(dict(row) for row in streams if row["name"] == STREAM)

    def _lag(self) -> float:
        """The stream's lag on the page, in seconds."""
        return float(self._row()["lag_seconds"] or 0)

    def _wait_for_small_lag(self) -> None:
        wait(lambda: self._lag() < SMALL_LAG, 120, f"the lag did not fall below {SMALL_LAG} s")

    def _pause(self, *, is_paused: bool) -> None:
        self._client.call("PATCH", f"/api/v2/dags/{STREAM}", body={"is_paused": is_paused})

    def _take(self, name: str, height: int = 700) -> None:
        self._page.set_viewport_size({"width": 1440, "height": height})
        self._page.mouse.move(0, 0)
        taken = self._page.screenshot(animations="disabled", caret="hide")
        path = self._pictures / f"demo-{name}.png"
        # a palette: a third of the bytes
        picture = Image.open(io.BytesIO(taken)).convert("RGB")
        picture.quantize(256, Image.Quantize.MAXCOVERAGE, 2, dither=Image.Dither.NONE).save(path, optimize=True)
        check(path.stat().st_size < MOST_BYTES, f"{path} has {path.stat().st_size:,} bytes")


def judge() -> list[str]:
    """Compare the sink with what the source had up to the committed version; the deleted rows stay in the sink.

    Raises:
        WalkError: A row is lost, doubled or foreign, or the chain of batches has a gap.
    """
    entries = ledger_entries(LEDGER)
    committed = committed_version(entries)
    source, sink = _ids(LAKE / "flights", committed), _ids(LAKE / "bronze_flights")
    keys = compare_keys(source, sink)
    problems = chain_problems(sink_batches(LAKE / "bronze_flights"), entries)
    check(not problems, "; ".join(problems))
    check(not keys.lost and not keys.duplicated, f"{keys.lost} rows lost, {keys.duplicated} duplicated")
    check(keys.foreign == 100, f"the sink keeps {keys.foreign} deleted rows, expected 100")
    return [f"{keys.sink_rows:,} rows up to version {committed}: 0 lost, 0 duplicated, 100 deleted ones kept"]


def _ids(table: Path, version: int | None = None) -> pa.ChunkedArray:
    files = SubTreeFileSystem(str(table), LocalFileSystem())
    return DeltaTable(table, version=version).to_pyarrow_table(columns=["flight_id"], filesystem=files)["flight_id"]


def wait(is_reached: Callable[[], Any], seconds: float, problem: str) -> Any:
    """Return the first true value.

    Raises:
        WalkError: There was none in time.
    """
    deadline = time.monotonic() + seconds
    while not (value := is_reached()):
        check(time.monotonic() < deadline, f"{problem} within {seconds:.0f} s")
        time.sleep(0.5)
    return value


def check(is_right: object, problem: str) -> None:
    """Raise ``problem`` unless something is right."""
    if not is_right:
        raise WalkError(problem)


def said(text: str) -> None:
    """Print a step that is done."""
    print(f"  WALK  {text}", flush=True)


@contextmanager
def new_tab() -> Iterator[Page]:
    """A tab of a headless Chromium."""
    names = (os.environ.get("FDS_CHROMIUM"), "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    found = next(found for name in names if name and (found := shutil.which(name)))
    # a container's root has no sandbox
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=arguments)
        page = browser.new_page(viewport={"width": 1440, "height": 700}, color_scheme="light", locale="en-US")
        page.set_default_timeout(PATIENCE_MS)
        try:
            yield page
        finally:
            browser.close()


def main(pictures: Path) -> int:
    """Play the walk."""
    pictures.mkdir(parents=True, exist_ok=True)
    terminal = Terminal()
    try:
        with new_tab() as page:
            Walk(terminal, page, pictures).play()
    except (WalkError, AssertionError, Error) as error:
        print(f"WALK FAILED: {error}", file=sys.stderr)
        return 1
    finally:
        terminal.end()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
