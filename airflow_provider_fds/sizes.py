"""Sizes as messages show them. Standard library only, Python 3.9 syntax."""

from __future__ import annotations

from typing import Final

_UNITS: Final = (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10))


def format_bytes(num_bytes: int) -> str:
    """Return a number of bytes in its largest unit.

    >>> format_bytes(4096), format_bytes(1_600_000), format_bytes(12)
    ('4 KiB', '1.5 MiB', '12 bytes')
    """
    for unit, shift in _UNITS:
        if num_bytes >= 1 << shift:
            return f"{num_bytes / (1 << shift):.1f}".removesuffix(".0") + f" {unit}"
    return f"{num_bytes} bytes"


def format_count(number: int, singular: str, plural: str | None = None) -> str:
    """Return a number with its noun.

    >>> format_count(1, "file"), format_count(1200, "file"), format_count(2, "batch", "batches")
    ('1 file', '1,200 files', '2 batches')
    """
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def format_batches(number: int, kind: str = "planned") -> str:
    """Return a number of batches.

    >>> format_batches(1), format_batches(3, "committed")
    ('1 planned batch', '3 committed batches')
    """
    return f"{number} {kind} batch" if number == 1 else f"{number} {kind} batches"
