"""All streams as a table: of plain text, or drawn by rich on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.cli.status_text import describe_age
from airflow_provider_fds.sizes import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_fds.stream.monitoring.status import StreamStatus

_HEADER: Final = ("STREAM", "STATE", "LAG", "OLDEST UNREAD", "RETENTION LEFT", "TABLE", "SINK")

#: The columns with numbers and durations, which are aligned to the right.
_RIGHT: Final = frozenset({"LAG", "TO READ", "OLDEST UNREAD", "RETENTION LEFT"})

#: Blanks between two columns.
_GAP: Final = 2
#: The narrowest column of a table or sink.
_SHORTEST_PLACE: Final = 8

_COLOURS: Final = {
    "up_to_date": "green",
    "live": "green",
    "finished": "green",
    "loading": "cyan",
    "failing": "yellow",
    "behind": "yellow",
    "waiting": "blue",
    "held": "magenta",
}


def plain_table(statuses: Sequence[StreamStatus]) -> str:
    """Return the streams as aligned text."""
    rows = [_row(one) for one in statuses]
    widths = [max(map(len, column)) for column in zip(_HEADER, *rows, strict=True)]
    lines = []
    for row in (_HEADER, *rows):
        cells = [
            text.rjust(width) if name in _RIGHT else text.ljust(width)
            for name, text, width in zip(_HEADER, row, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def rich_table(statuses: Sequence[StreamStatus], width: int, *, with_pending: bool = False) -> Any:
    """Return the streams as a table of rich, in colour. If it is too wide, tables and sinks lose their beginning.

    Args:
        statuses: The streams, in the order of the rows.
        width: Columns of the terminal.
        with_pending: Whether the table has the bytes to read, which a monitor knows.
    """
    from rich.table import Table
    from rich.text import Text

    rows = [_row(one) for one in statuses]
    header: tuple[str, ...] = _HEADER
    if with_pending:
        header = (*header[:3], "TO READ", *header[3:])
        rows = [(*row[:3], _pending(one), *row[3:]) for row, one in zip(rows, statuses, strict=True)]
    widths = _fitted_widths([max(map(len, column)) for column in zip(header, *rows, strict=True)], width)
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, _GAP, 0, 0))
    for name, space in zip(header, widths, strict=True):
        table.add_column(name, justify="right" if name in _RIGHT else "left", no_wrap=True, width=space)
    for one, row in zip(statuses, rows, strict=True):
        colour = "bold red" if one.needs_attention else _COLOURS.get(one.condition, "")
        cells = [_cut(text, space) for text, space in zip(row, widths, strict=True)]
        table.add_row(*(Text(text, style=colour if number == 1 else "") for number, text in enumerate(cells)))
    return table


def _cut(text: str, width: int) -> str:
    """Return the end of a text: the ends of places differ."""
    return text if len(text) <= width else "…" + text[1 - width :]


def _fitted_widths(widths: list[int], width: int) -> list[int]:
    """Return the widths of the columns within ``width``: the last two, which are places, share what is left."""
    *others, table, sink = widths
    left = max(2 * _SHORTEST_PLACE, width - sum(others) - _GAP * len(others) - _GAP)
    if table + sink > left:
        table = min(table, max(left // 2, left - sink))
        sink = min(sink, left - table)
    return [*others, table, sink]


def by_urgency(statuses: Sequence[StreamStatus]) -> list[StreamStatus]:
    """Return the streams by urgency: those that need attention first, then by the age of what is unread."""
    return sorted(statuses, key=lambda one: (not one.needs_attention, -(one.lag_seconds or 0), one.name))


def _row(one: StreamStatus) -> tuple[str, ...]:
    return (
        one.name,
        one.condition.replace("_", " "),
        "" if one.lag_versions is None else f"{one.lag_versions:,}",
        describe_age(one.lag_seconds or None),
        describe_age(one.retention_left_seconds),
        one.table,
        "" if one.sink is None else one.sink["target"],
    )


def _pending(one: StreamStatus) -> str:
    if not one.pending_files:
        return ""
    return f"{one.pending_files:,}" if one.pending_bytes is None else format_bytes(one.pending_bytes)
