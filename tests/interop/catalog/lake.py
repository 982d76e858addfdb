"""A source that grows, and the runs that load it into a sink by its name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa

from airflow_provider_fds.fault_points import ASKED_BY, MARKS_IN
from tests.fds_command import Ran, fds

if TYPE_CHECKING:
    from pathlib import Path


class Lake:
    """A source that grows, and what loads it into a sink of the catalog."""

    def __init__(self, folder: Path, catalog: str, spark: str) -> None:
        self.folder = folder
        self._words = ("--staging", str(folder / "staging"), "--remote", spark, "--sink-catalog", catalog)

    def append(self, *ids: int, **more: Any) -> None:
        columns = {"id": list(ids), **{name: [value] * len(ids) for name, value in more.items()}}
        deltalake.write_deltalake(self.folder / "orders", pa.table(columns), mode="append", schema_mode="merge")

    def words(self, sink: str, *options: str) -> tuple[str, ...]:
        asked = [word for option in options for word in ("--sink-option", option)]
        start = ("--option", "starting_version=0")
        return ("run", str(self.folder / "orders"), "--stream", "orders", *self._words, "--sink", sink, *asked, *start)

    def run(self, sink: str, *options: str) -> Ran:
        return fds(*self.words(sink, *options))

    def load(self, sink: str, *options: str) -> None:
        done = self.run(sink, *options)
        assert done.returncode == 0, done.stderr[-3000:]

    def die(self, point: str, sink: str, *options: str) -> None:
        """Let a run be killed at a point."""
        environment = {**os.environ, ASKED_BY: f"kill@{point}", MARKS_IN: str(self.folder)}
        command = [sys.executable, "-m", "airflow_provider_fds.cli.main", *self.words(sink, *options)]
        done = subprocess.run(command, env=environment, check=False, capture_output=True, timeout=300)
        assert done.returncode == -signal.SIGKILL, done.stderr[-2000:]
