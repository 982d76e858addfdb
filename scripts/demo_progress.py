"""How far the demo is: what the source has, what the stream has committed, what lies in the sink."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from demo_verdict import committed_version, ledger_entries

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class Progress:
    """One look.

    Attributes:
        newest_version: Newest version of the source.
        committed_version: Newest version that the stream has committed, -1 before the first.
        rows_loaded: Rows in the sink.
        lag_seconds: Age of the oldest version that is not committed, 0 if all are.
    """

    newest_version: int
    committed_version: int
    rows_loaded: int
    lag_seconds: float

    @property
    def versions_behind(self) -> int:
        """How many versions are not committed yet."""
        return self.newest_version - self.committed_version

    def describe(self) -> str:
        """The look as one line."""
        committed = "nothing" if self.committed_version < 0 else f"version {self.committed_version:3d}"
        return (
            f"source at version {self.newest_version:3d}, {committed} committed, {self.versions_behind:3d} behind; "
            f"{self.rows_loaded:7,} rows loaded, lag {self.lag_seconds:4.1f} s"
        )


class DemoProgress:
    """Looks at the folders of source, sink and ledger; asks neither Airflow nor Spark."""

    def __init__(self, source: Path, sink: Path, ledger: Path) -> None:
        self._source = source
        self._sink = sink
        self._ledger = ledger
        self._rows = (-1, 0)

    def look(self) -> Progress:
        """Return where things stand now."""
        log = self._source / "_delta_log"
        newest = max(int(commit.stem) for commit in log.glob("[0-9]*.json"))
        committed = committed_version(ledger_entries(self._ledger))
        lag = 0.0
        if committed < newest:
            lag = max(0.0, time.time() - (log / f"{committed + 1:020d}.json").stat().st_mtime)
        return Progress(newest, committed, self._count(), lag)

    def _count(self) -> int:
        if not DeltaTable.is_deltatable(str(self._sink)):
            return 0
        table = DeltaTable(self._sink)
        if table.version() != self._rows[0]:
            self._rows = (table.version(), table.count())
        return self._rows[1]
