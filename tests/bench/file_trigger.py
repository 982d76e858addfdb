"""A trigger that does as little as one can that polls."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class FileTrigger(BaseTrigger):
    """Fires when a folder has another number of files; looks every second.

    Args:
        folder: Path of the folder.
        seen: Number of files that the task has seen.
    """

    def __init__(self, *, folder: str, seen: int) -> None:
        super().__init__()
        self.folder = folder
        self.seen = seen

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return f"{__name__}.FileTrigger", {"folder": self.folder, "seen": self.seen}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        while (files := files_in(self.folder)) == self.seen:  # noqa: ASYNC110 - a poll is what is measured
            await asyncio.sleep(1)
        yield TriggerEvent({"files": files})


def files_in(folder: str) -> int:
    """Return the number of files in a folder."""
    return len(list(Path(folder).iterdir()))
