"""What a terminal needs, and a pipe does not: lines that fit."""

from __future__ import annotations

import shutil
import sys
import textwrap
from typing import Final

#: A terminal narrower than this gets lines that are cut by itself.
_NARROWEST: Final = 40


def is_terminal() -> bool:
    """Whether stdout is a terminal."""
    return sys.stdout.isatty()


def fitted(text: str, indent: int) -> str:
    """Return a text whose lines are at most as wide as the terminal; a pipe gets it as it is.

    Args:
        text: May have several lines.
        indent: Number of blanks before every line but the first.
    """
    width = shutil.get_terminal_size().columns if is_terminal() else 0
    first, *rest = text.splitlines() or [""]
    lines = [first, *(" " * indent + line for line in rest)]
    if width >= _NARROWEST:
        blanks = " " * min(indent, width // 2)
        lines = [
            part
            for line in lines
            for part in textwrap.wrap(line, width, subsequent_indent=blanks, break_on_hyphens=False) or [""]
        ]
    return "\n".join(lines)


__all__ = ["fitted", "is_terminal"]
