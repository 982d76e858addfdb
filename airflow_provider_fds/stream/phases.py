"""How long the phases of a run took, outside Spark."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class PhaseSeconds:
    """Wall-clock seconds by phase, summed over the applications of a run."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of the body to the phase ``name``, however the body ends."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._seconds[name] = self._seconds.get(name, 0.0) + time.monotonic() - began

    def to_dict(self) -> dict[str, float]:
        """Return the seconds by phase, rounded to milliseconds, in the order in which the phases first began."""
        return {name: round(took, 3) for name, took in self._seconds.items()}


__all__ = ["PhaseSeconds"]
