"""The message about a key that a file may not have."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection


def unknown_key(key: str, known: Collection[str], where: str) -> str:
    """Return what is wrong with a key, with the nearest known one.

    >>> unknown_key("shedule", ["schedule", "pool"], "a group")
    "a group has no key 'shedule'. Did you mean 'schedule'?"
    """
    near = get_close_matches(key.lower().replace("-", "_"), list(known), n=1, cutoff=0.55)
    hint = f"Did you mean {near[0]!r}?" if near else f"Its keys are {', '.join(known)}."
    return f"{where} has no key {key!r}. {hint}"


__all__ = ["unknown_key"]
