"""The versions that batches cover, in words. Standard library only, Python 3.9 syntax."""
# The driver may run Python 3.9, so the annotations stay in its syntax.
# ruff: noqa: UP045

from __future__ import annotations

import json
from typing import Optional


def describe_range(first: int, last: int) -> str:
    """Return ``version 3`` or ``versions 3 to 5``, both inclusive; ``no versions`` if the last is below the first."""
    if last < first:
        return "no versions"
    return f"version {first}" if first == last else f"versions {first} to {last}"


def describe_covered(
    start: str, end: str, first_version: int, last_version: int, num_files: Optional[int] = None
) -> str:
    """Return what lies between two offsets: files of the initial snapshot, versions of the table, or both.

    The text is for people and must not fail: if an offset is damaged, it has the versions only.

    Args:
        start: Where it starts (exclusive), Delta streaming offset JSON; empty if unknown.
        end: Where it ends (inclusive), likewise.
        first_version: First version, inclusive.
        last_version: Last version, inclusive.
        num_files: Number of files of the initial snapshot, ``None`` if unknown.
    """
    try:
        return _covered(start, end, first_version, last_version, num_files)
    except (ValueError, KeyError, TypeError):
        return describe_range(first_version, last_version)


def _covered(start: str, end: str, first_version: int, last_version: int, num_files: Optional[int]) -> str:
    version, next_index, is_snapshot = _position(start) if start else (first_version, 0, False)
    if not is_snapshot:
        return describe_range(first_version, last_version)
    _, end_index, ends_within = _position(end)
    text = f"initial snapshot of version {version}"
    last_index = (end_index if ends_within else num_files or 0) - 1
    if last_index >= next_index:
        is_one = last_index == next_index
        text += f", file {last_index:,}" if is_one else f", files {next_index:,} to {last_index:,}"
        text += "" if num_files is None else f" of {num_files:,}"
    elif num_files is None and next_index > 0:
        text += f", files from {next_index:,} on"
    if last_version > version:
        text += f", and {describe_range(version + 1, last_version)}"
    return text


def _position(offset: str) -> tuple[int, int, bool]:
    """Return version, index of the first file that is not consumed, and whether the index counts the snapshot."""
    value = json.loads(offset)
    return value["reservoirVersion"], max(value["index"] + 1, 0), value["isStartingVersion"]
