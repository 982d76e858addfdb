"""What the page of one stream shows from the ledger: batches, planned work, decisions and skipped versions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.credentials import redacted
from airflow_provider_fds.errors import UnreadableEntryError
from airflow_provider_fds.ledger.entries.commit_entries import Committed
from airflow_provider_fds.ledger.entries.plan_entries import Advanced, Claimed, Planned
from airflow_provider_fds.ledger.staging.access import perform
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.ledger.staging.reading import LedgerReader
from airflow_provider_fds.stream.attempt.batch_versions import describe_versions
from airflow_provider_fds.ui.intervals import describe_intervals

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.ledger.entries.entry import Entry
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.ledger.values import PlannedBatch, Skipped

#: Newest entries of a ledger that are read.
READ_ENTRIES: Final = 600
#: Newest batches, and skipped versions, that are shown.
SHOWN: Final = 200

#: Entries that are read at the same time.
_THREADS: Final = 32

#: Kinds of entries that record a decision of a user, or that the stream stopped.
_DECISIONS: Final = frozenset(
    {
        "requested",
        "shown",
        "quarantined",
        "held",
        "resumed",
        "acknowledged",
        "blocked",
        "accepted",
        "claimed",
        "transferred",
        "retired",
    }
)


class StreamHistory:
    """The newest entries of a stream's ledger, each read once. Safe for use by several threads.

    Args:
        staging: Root of staging.
        name: Name of the stream.
    """

    def __init__(self, staging: Storage, name: str) -> None:
        self._ledger = Ledger(staging, name)
        self._reader = LedgerReader(self._ledger.folder, staging.uri)
        self._entries: dict[int, Entry | None] = {}
        self._lock = Lock()

    @property
    def newest(self) -> int:
        """Number of the newest entry that was read."""
        return self._ledger.n

    def read(self) -> tuple[StreamState, list[Entry]]:
        """Return the state, and the newest entries in order; those that cannot be read are left out.

        Raises:
            FdsError: The ledger cannot be read.
        """
        with self._lock:
            state = self._ledger.refresh()
            last = self._ledger.n
            wanted = range(max(0, last + 1 - READ_ENTRIES), last + 1)
            new = [n for n in wanted if n not in self._entries]
            with ThreadPoolExecutor(_THREADS) as threads:
                self._entries |= dict(zip(new, threads.map(self._entry, new), strict=True))
            for old in [n for n in self._entries if n not in wanted]:
                del self._entries[old]
            return state, [entry for n in wanted if (entry := self._entries[n]) is not None]

    def _entry(self, n: int) -> Entry | None:
        try:
            found = perform(self._reader.entry(n), self._ledger.storage)
        except UnreadableEntryError:
            return None
        return None if found is None else found[0]


def describe_history(state: StreamState, entries: Sequence[Entry]) -> dict[str, Any]:
    """Return what the page shows of a ledger, as JSON values, the newest first.

    Args:
        state: The state of the stream.
        entries: Its newest entries, in order.
    """
    return {
        "watermark": state.watermark,
        "offset": state.position,
        "epoch": state.epoch,
        "batches": _batches(state, entries),
        "planned": [_planned(batch, state) for batch in _all_planned(state)],
        "decisions": [_decision(entry) for entry in reversed(entries) if entry.action.kind in _DECISIONS],
        "skipped": _skipped(entries),
        "intervals": describe_intervals(state),
    }


def _batches(state: StreamState, entries: Iterable[Entry]) -> list[dict[str, Any]]:
    waiting: dict[tuple[str | None, int], list[PlannedBatch]] = {}
    found: list[dict[str, Any]] = []
    for entry in entries:
        action = entry.action
        if isinstance(action, Planned):
            waiting[action.interval, action.epoch] = list(action.batches)
        elif isinstance(action, Committed):
            planned = waiting.get((action.interval, action.epoch), [])
            parts = [batch for batch in planned if batch.batch_id <= action.batch_id]
            waiting[action.interval, action.epoch] = planned[len(parts) :]
            found.append(_committed(entry, action, parts, state))
    return found[: -SHOWN - 1 : -1]


def _committed(entry: Entry, action: Committed, parts: Sequence[PlannedBatch], state: StreamState) -> dict[str, Any]:
    measures = action.measures
    phases = {} if measures is None else dict(measures.seconds)
    return {
        "batch_id": action.batch_id,
        "epoch": action.epoch,
        "interval": action.interval,
        # the plan may be older than the entries that were read
        "versions": describe_versions(parts, state.snapshot) if parts else "not known",
        "first_version": parts[0].first_version if parts else None,
        "last_version": parts[-1].last_version if parts else None,
        "files": sum(part.num_files for part in parts) if parts else None,
        "rows_read": None if measures is None else measures.rows_read,
        "rows_written": action.rows,
        "rows_rejected": 0 if measures is None else measures.rows_rejected,
        "failed_rows": {} if measures is None else dict(measures.failed_rows),
        "bytes_written": None if measures is None else measures.bytes_written,
        "phases": phases,
        "seconds": round(sum(phases.values()), 3) if phases else None,
        "committed_at": entry.time,
        "dag_id": entry.actor.dag_id,
        "task_id": entry.actor.task_id,
        "run_id": entry.actor.run_id,
    }


def _all_planned(state: StreamState) -> list[PlannedBatch]:
    return [*state.planned, *(batch for record in state.intervals for batch in record.planned)]


def _planned(batch: PlannedBatch, state: StreamState) -> dict[str, Any]:
    return {
        "batch_id": batch.batch_id,
        "versions": describe_versions((batch,), state.snapshot),
        "files": batch.num_files,
        "bytes": batch.num_bytes,
        "rows": batch.num_rows,
    }


def _decision(entry: Entry) -> dict[str, Any]:
    action: Any = entry.action
    name = str(action.kind)
    if name == "requested":
        name = str(action.reason)
    elif name == "acknowledged":
        name = action.decision
    why = getattr(action, "why", None) or (getattr(action, "reason", None) if action.kind == "blocked" else None)
    return {
        "at": entry.time,
        "by": entry.actor.describe(),
        "action": name.replace("_", " "),
        "why": None if why is None else redacted(why),
        "details": _details(action),
        "entry": entry.n,
    }


def _details(action: Any) -> str:
    if isinstance(action, Claimed):
        return f"from {action.previous.describe()} to {action.owner.describe()}"
    if action.kind == "transferred":
        return f"from {action.previous} to {action.deployment}"
    found = []
    for name, words in (("version", "version"), ("interval", "interval"), ("batch_id", "batch"), ("epoch", "epoch")):
        if (value := getattr(action, name, None)) is not None:
            found.append(f"{words} {value}")
    for name, value in (getattr(action, "to", None) or {}).items():
        if name.startswith("starting_"):
            found.append(f"from {name.removeprefix('starting_')} {value}")
    if (removal := getattr(action, "removal", None)) is not None:
        rows = "all rows" if removal.what == "all" else f"rows from version {removal.from_version} on"
        found.append(f"removes {rows} from the sink")
    return ", ".join(found)


def _skipped(entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Return the versions without rows, with consecutive versions of one reason as a range."""
    found: list[dict[str, Any]] = []
    for entry in entries:
        for one in _skipped_by(entry):
            last = found[-1] if found else None
            # the row names the versions, so that equal reasons are equal
            why = one.reason.replace(f"version {one.version}", "the version")
            if last is not None and (last["why"], last["last_version"] + 1) == (why, one.version):
                last.update(last_version=one.version, at=entry.time, by=entry.actor.describe())
                continue
            found.append(
                {
                    "first_version": one.version,
                    "last_version": one.version,
                    "why": why,
                    "by": entry.actor.describe(),
                    "at": entry.time,
                }
            )
    return found[: -SHOWN - 1 : -1]


def _skipped_by(entry: Entry) -> list[Skipped]:
    action = entry.action
    if isinstance(action, Advanced):
        return list(action.skipped)
    if isinstance(action, Planned):
        skipped = [*action.skipped, *(one for batch in action.batches for one in batch.skipped)]
        return sorted(skipped, key=lambda one: one.version)
    return []
