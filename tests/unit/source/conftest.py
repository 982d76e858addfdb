"""Plans of handmade logs, in a form that lets a test state its expectation in one line."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.storage.local import LocalStorage
from airflow_provider_fds.source.offset import BASE_INDEX, Offset
from airflow_provider_fds.source.options.options import SourceOptions
from airflow_provider_fds.source.planning.plan import BatchPlanner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from airflow_provider_fds.source.planned import PlanOutcome, SourceBatch


@dataclass
class Plan:
    """All batches from a position to a target."""

    batches: list[SourceBatch]
    outcome: PlanOutcome

    @property
    def files(self) -> list[list[str]]:
        """Paths in each batch."""
        return [[file.add.path for file in batch.files] for batch in self.batches]

    @property
    def paths(self) -> list[str]:
        """Paths of all batches."""
        return [path for batch in self.files for path in batch]

    @property
    def ends(self) -> list[tuple[int, Any, bool]]:
        """End offsets as (version, index or "BASE", is_initial_snapshot)."""
        return [shown(batch.end) for batch in self.batches]

    @property
    def skipped(self) -> dict[int, str]:
        """Version -> option that skipped it."""
        return {s.version: s.reason.split(" ")[0].rstrip(";") for batch in self.batches for s in batch.skipped}


def shown(offset: Offset) -> tuple[int, Any, bool]:
    """Return an offset without its table id."""
    return (offset.version, "BASE" if offset.index == BASE_INDEX else offset.index, offset.is_initial_snapshot)


class Planning:
    """Plans the table of a log builder."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder
        self.log = DeltaLog(LocalStorage(str(builder.root)))
        self.staging = LocalStorage(str(builder.root.parent / "staging"))

    def at(self, version: int, index: int = BASE_INDEX) -> Offset:
        """Return a position in the table."""
        return Offset(self.builder.table_id, version, index)

    def planner(self, start: Offset | int = 0, target: int | None = None, **given: Any) -> BatchPlanner:
        """Return the planner from a position (or the base of a version) to ``target`` or the newest version."""
        inner = {
            key: given.pop(key) for key in list(given) if key.startswith(("state", "snapshot", "keeps", "allowances"))
        }
        offset = self.at(start) if isinstance(start, int) else start
        if offset.is_initial_snapshot and "snapshot" not in inner:
            inner |= {"snapshot": self.freeze(offset.version)}
        newest = self.builder.version if target is None else target
        state = inner.pop("state", None)
        options = SourceOptions.parse(given)
        return BatchPlanner(self.log, offset, state, options, newest, snapshot_storage=self.staging, **inner)

    def __call__(self, start: Offset | int = 0, target: int | None = None, **given: Any) -> Plan:
        planner = self.planner(start, target, **given)
        batches = list(planner)
        assert planner.outcome is not None
        return Plan(batches, planner.outcome)

    def freeze(self, version: int) -> Any:
        """Freeze the snapshot of a version."""
        from airflow_provider_fds.delta.reader.snapshot import freeze_snapshot

        return freeze_snapshot(self.log, version, self.staging, "snapshots")

    def snapshot_start(self, version: int | None = None) -> Offset:
        """Return the position before the snapshot of a version."""
        found = self.builder.version if version is None else version
        return Offset(self.builder.table_id, found, is_initial_snapshot=True)


@pytest.fixture
def plan(log_builder: Any) -> Planning:
    """Plans the table of ``log_builder``."""
    return Planning(log_builder)


@pytest.fixture
def new_planning(log_builder: Any) -> Iterator[Callable[[], Planning]]:
    """Creates any number of tables, each with its planning; for tests that draw many logs."""
    folders: list[str] = []

    def new() -> Planning:
        while folders:
            shutil.rmtree(folders.pop())
        folders.append(tempfile.mkdtemp(prefix="fds-log-"))
        return Planning(type(log_builder)(Path(folders[-1]) / "table"))

    yield new
    for folder in folders:
        shutil.rmtree(folder)
