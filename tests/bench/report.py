"""The page and the plot of the measurements."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parents[2] / "docs"

TITLES = {
    "polling": "Polling",
    "monitor": "Watching many streams",
    "far": "A store with 50 ms a request",
    "planning": "Planning",
    "snapshot": "Initial snapshot",
    "reading": "Reading a batch in a warm session",
    "warm": "Loading in a warm session",
    "fleet": "Many tables in one application",
    "scan": "Scanning big files",
    "merge": "Merging into a big table",
    "postgres": "Into PostgreSQL",
    "submit": "One micro-batch by spark-submit",
    "connect": "Spark Connect",
    "latency": "Through Airflow, on Spark Connect",
    "linger": "A run that lingers",
    "linger_memory": "A run that lingers for many batches",
    "linger_fleet": "A fleet that lingers",
    "expectations": "Testing rows",
    "reattach": "A driver in a cluster, after a kill",
    "task": "The task's process",
    "history": "A stream with a long history",
}


class Row(NamedTuple):
    """One number.

    Attributes:
        what: What was measured; ``…`` continues the previous row.
        value: The median.
        unit: Its unit.
        target: The required maximum (or minimum), or ``None`` for a number without a target.
        at_least: Whether more is better.
    """

    what: str
    value: float
    unit: str
    target: float | None = None
    at_least: bool = False

    @property
    def is_met(self) -> bool | None:
        """Whether the target is met, or ``None`` without a target."""
        if self.target is None:
            return None
        return self.value >= self.target if self.at_least else self.value <= self.target

    def describe(self) -> str:
        """Return the row as one line of text."""
        verdict = {True: "met", False: "MISSED", None: ""}[self.is_met]
        return f"{self.what}: {number(self.value)} {self.unit}  {self._wanted()} {verdict}".rstrip()

    def markdown(self) -> str:
        """Return the row of the table."""
        verdict = {True: "met", False: "**missed**", None: ""}[self.is_met]
        return f"| {self.what} | {number(self.value)} {self.unit} | {self._wanted()} | {verdict} |"

    def _wanted(self) -> str:
        if self.target is None:
            return ""
        return f"{'≥' if self.at_least else '≤'} {number(self.target)} {self.unit}".rstrip()


def number(value: float) -> str:
    """Return a number formatted for people."""
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


class Group(NamedTuple):
    """The numbers of one benchmark, with the day and the commit of the measurement."""

    day: str
    commit: str
    rows: list[Row]


def write(groups: dict[str, Group], *, machine: str) -> None:
    """Write ``docs/benchmarks.md`` and ``docs/benchmarks.svg``."""
    lines = [
        "# Benchmarks",
        "",
        f"Written by `make bench`: {machine}. Values are medians. The programs that are compared ran in turn in",
        "the same run, so ratios hold on other machines; seconds do not. Each measurement is a separate process;",
        "memory is its peak.",
        "",
        "![How far each number is from its target](benchmarks.svg)",
        "",
    ]
    for name, (day, commit, rows) in groups.items():
        lines += [
            f"## {TITLES[name]}",
            "",
            f"On {day}, commit `{commit}`.",
            "",
            "| what | measured | target | |",
            "|---|---|---|---|",
        ]
        lines += [row.markdown() for row in rows]
        lines.append("")
    notes = DOCS / "benchmarks-notes.md"
    if notes.exists():
        lines += [notes.read_text().rstrip(), ""]
    (DOCS / "benchmarks.md").write_text("\n".join(lines))
    _plot([row for group in groups.values() for row in group.rows if row.target])


def _plot(rows: list[Row]) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "fds"
    from matplotlib import pyplot as plt

    names, parts = [], []
    for row in rows:
        assert row.target is not None
        names.append(row.what.lstrip("… "))
        parts.append((row.target / row.value if row.at_least else row.value / row.target) if row.value else 0.0)
    figure, axes = plt.subplots(figsize=(9, 0.32 * len(rows) + 1))
    axes.barh(range(len(rows)), parts, color=["#3b7" if part <= 1 else "#c44" for part in parts])
    axes.axvline(1, color="#444", linewidth=1)
    axes.set_yticks(range(len(rows)), names, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("part of the target used (1 = at the target)")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(DOCS / "benchmarks.svg", metadata={"Date": None})
