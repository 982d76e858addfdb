"""The rows that an operator action loads again, and whether the fence can remove exactly them from the sink first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from airflow_provider_fds.ledger.entries.commit_entries import Committed
from airflow_provider_fds.ledger.entries.epoch_entries import Created, Opened
from airflow_provider_fds.ledger.entries.plan_entries import Planned
from airflow_provider_fds.ledger.entries.request_entries import Requested
from airflow_provider_fds.sizes import format_batches
from airflow_provider_fds.source.offset import Offset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_fds.ledger.entries.entry import Entry
    from airflow_provider_fds.ledger.staging.log import Ledger
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.ledger.values import PlannedBatch, Removal


@dataclass(frozen=True, slots=True)
class Load:
    """A batch that was committed, or that was in the sink and counted as loaded by a replan.

    Attributes:
        epoch: Its epoch.
        batch_id: Its id in that epoch.
        start: Where it begins (exclusive).
        end: Where it ends (inclusive).
        rows: Rows that it added, or ``None`` if unknown.
        sink_version: Version of the sink that holds it, or ``None`` if unknown.
        before: A version later than its own, if its own is unknown.
    """

    epoch: int
    batch_id: int
    start: Offset
    end: Offset
    rows: int | None
    sink_version: int | None
    before: int | None = None

    def is_in_sink_since(self, version: int) -> bool:
        """Return whether it was written at a version of the sink or later, or may have been."""
        if self.sink_version is None:
            return self.before is None or self.before > version
        return self.sink_version >= version

    def reaches(self, start: Offset | None) -> bool:
        """Return whether any row of it is read again from ``start`` (exclusive); ``None`` is the very beginning."""
        return start is None or start.reads_rows_up_to(self.end)

    def is_wholly_after(self, start: Offset | None) -> bool:
        """Return whether all rows of it are read again from ``start`` (exclusive)."""
        return start is None or start.reads_all_of(self.start)


def removal_problem(ledger: Ledger, what: Literal["rows", "all"], start: Offset | None) -> str | None:
    """Return why the fence cannot remove exactly the rows that are read again, or ``None`` if it can.

    Args:
        ledger: The stream's ledger.
        what: As in ``ledger.values.Removal``.
        start: Where the stream continues (exclusive); ``None``: from its very beginning.
    """
    entries = tuple(ledger.entries())
    state = ledger.state
    loads = _loads(entries, state)
    if what == "all":
        is_whole = start is None or (
            _forgotten(entries, state) is None and all(load.is_wholly_after(start) for load in loads)
        )
        return None if is_whole else "the sink has rows that are not read again"
    if _forgotten(entries, state) is not None:
        return "the history lacks batches from before the ledger was lost, whose rows may be among them"
    return _version_problem(loads, start)


def _version_problem(loads: Sequence[Load], start: Offset | None) -> str | None:
    """Return why the version of a row does not tell whether it is read again, or ``None`` if it does."""
    if not _is_told_by_version([load for load in loads if load.reaches(start)], start):
        return (
            "_source_version does not identify the rows that are read again: they begin within a version, or were "
            "loaded with an initial snapshot"
        )
    if len({load.end.table_id for load in loads} | ({start.table_id} if start is not None else set())) > 1:
        return "the sink has rows of more than one source table, whose versions differ"
    return None


def reads_again(ledger: Ledger, start: Offset | None) -> bool:
    """Return whether rows that are in the sink, or may be, are read again from ``start`` (exclusive)."""
    entries = tuple(ledger.entries())
    forgotten = _forgotten(entries, ledger.state)
    is_forgotten = forgotten is not None and (start is None or start.reads_rows_up_to(forgotten))
    return is_forgotten or any(load.reaches(start) for load in _loads(entries, ledger.state))


def repeated_notes(
    ledger: Ledger, start: Offset | None, *, to_start: bool = False, removal: Removal | None = None
) -> tuple[str, ...]:
    """Return notes on which rows in the sink are read again, and on what becomes of them.

    Args:
        ledger: The stream's ledger.
        start: Where the stream continues (exclusive); ``None``: from its very beginning.
        to_start: Whether the stream's start options, which are unknown here, decide where it begins.
        removal: What the fence removes.
    """
    state = ledger.state
    # each entry costs a request, so they are read once
    entries = tuple(ledger.entries())
    loads = _loads(entries, state)
    again = [load for load in loads if load.reaches(start)]
    forgotten = _forgotten(entries, state)
    is_forgotten = forgotten is not None and (start is None or start.reads_rows_up_to(forgotten))
    if not again and not is_forgotten:
        none = "No committed batch is read again."
        return (none,) if removal is None else (none, *_removal_notes(state, removal))
    in_part = [load for load in again if not load.is_wholly_after(start)]
    lead = _lead(again, in_part)
    if is_forgotten:
        lead = (
            "The history lacks batches from before the ledger was lost: everything that the sink has from there "
            "on is read again"
        )
    if to_start:
        lead += ", if it begins where it began before"
    if removal is not None:
        return (f"{lead}.", *_removal_notes(state, removal))
    sink = state.sink
    if sink is not None and sink.merges:
        history = ", and with scd=2 the history that is read again is duplicated" if sink.has_log else ""
        stays = f"Nothing is removed from the sink: a row whose key the source no longer has stays{history}."
        return (f"{lead} and merged again by their keys.", stays)
    if sink is None and state.fence_sink is not None:
        return (f"{lead}, for the sink of the next run. If that sink already has their rows, they are duplicated.",)
    if sink is None or not sink.can_remove_rows:
        return (f"{lead}: unless the job replaces them, remove their rows from its table before the next run.",)
    last = None if is_forgotten or not sink.has_log else _last_without(loads, again, start)
    known = "" if last is None else f" The last version of the sink without them is {last}."
    ways = f"`fds rewind {state.name} --to start --replace --sink-rows empty --why …`"
    if not sink.has_log:
        ways += " (without provenance, with --force-sink, too)"
    if start is not None and forgotten is None and _version_problem(loads, start) is None:
        ways = (
            f"`fds rewind {state.name} --replace --to {start.version} --sink-rows delete --why …` (with "
            f"provenance), or {ways}"
        )
    return (
        f"{lead}. Their rows stay in the sink, and are duplicated unless you remove them.{known}",
        f"To have the next run remove them, use instead: {ways}.",
    )


def _removal_notes(state: StreamState, removal: Removal) -> tuple[str, ...]:
    target = "" if state.sink is None else f" {state.sink.target}"
    if removal.what == "rows":
        what = f"deletes the rows with _source_version >= {removal.from_version} from the sink{target}"
    else:
        what = f"empties the sink{target}"
        if state.sink is not None and state.sink.merges:
            what += " (with scd=2 it closes the current rows, and the history stays)"
    others = (
        "Rows of other writers are removed, too."
        if removal.is_forced
        else (
            "It refuses to if the sink's log shows rows of other writers, or does not reach back to its beginning "
            "(--force-sink removes them, too)."
            if state.sink is None or state.sink.has_log
            else "It refuses to if another stream writes to the table, or rows have no _source_version (--force-sink "
            "removes them, too)."
        )
    )
    return (f"The next run {what}, in the transaction that closes the old epoch. {others}",)


def _is_told_by_version(again: Sequence[Load], start: Offset | None) -> bool:
    # rows of a snapshot carry its version, whenever they were committed; part of a version cannot be selected by
    # version
    if start is None or start.is_initial_snapshot or start.next_index:
        return False
    return all(load.is_wholly_after(start) for load in again if load.start.is_initial_snapshot)


def _forgotten(entries: Sequence[Entry], state: StreamState) -> Offset | None:
    """Return the end of the newest batches that are in the sink but not in the history, or ``None``."""
    found = None
    expected = 0
    for entry in entries:
        action = entry.action
        if entry.n > expected:
            # the folder was emptied while a run continued; or an entry is damaged, and a later fold contains its effect
            found = state.position if state.closed is None else state.closed.position
        expected = entry.n + 1
        if isinstance(action, Created) and action.recovered is not None:
            found = action.recovered.position
        elif isinstance(action, Requested) and action.reason == "recover" and action.to is not None:
            found = action.to["offset"]
    return None if found is None else Offset.from_json(found)


def _last_without(loads: Sequence[Load], again: Sequence[Load], start: Offset | None) -> int | None:
    """Return the last version of the sink without the rows that are read again, if it lacks no other rows."""
    versions = [load.sink_version for load in again]
    first = min((version for version in versions if version is not None), default=0)
    is_exact = all(load.is_wholly_after(start) for load in loads if load.is_in_sink_since(first))
    return first - 1 if first and None not in versions and is_exact else None


def _lead(again: Sequence[Load], in_part: Sequence[Load]) -> str:
    known = [load.rows for load in again]
    rows = sum(n for n in known if n is not None)
    counted = "rows" if None in known else f"{rows:,} rows"
    described, verb = format_batches(len(again), "committed"), "is" if len(again) == 1 else "are"
    if not in_part:
        return f"{described} ({counted}) {verb} read again"
    part = "only the last part of one of them" if len(in_part) == 1 else f"only the last part of {len(in_part)} of them"
    return f"{described} (up to {counted}) {verb} read again, {part}"


def _loads(entries: Sequence[Entry], state: StreamState) -> list[Load]:
    """Return the batches that were committed to the current sink, or counted as loaded there, in order.

    Without those whose rows a fence has removed since.
    """
    sink_table_id = _sink_table_id(state)
    sink = state.sink or state.fence_sink
    planned: dict[tuple[int, int], PlannedBatch] = {}
    on_their_way: dict[tuple[int, int], PlannedBatch] = {}
    loads: list[Load] = []
    is_counted = True
    for entry in entries:
        action = entry.action
        if isinstance(action, Planned):
            new = {(action.epoch, batch.batch_id): batch for batch in action.batches}
            planned |= new
            on_their_way |= new
        elif isinstance(action, Committed):
            key = (action.epoch, action.batch_id)
            on_their_way.pop(key, None)
            if key in planned and _is_here(planned[key], action.sink_table_id, sink_table_id):
                loads.append(_load(key, planned[key], action.rows, action.sink_version))
        elif isinstance(action, Requested):
            # a rewind gives up planned batches, wherever its epoch begins
            is_counted = action.reason not in ("rewind", "reset")
        elif isinstance(action, Opened):
            start, fence = Offset.from_json(action.start), action.fence
            ends = {key: Offset.from_json(batch.end) for key, batch in on_their_way.items()}
            # the epoch begins after these batches, so they were in the sink
            counted = [
                key
                for key, end in ends.items()
                if is_counted and end.table_id == start.table_id and not start.reads_rows_up_to(end)
            ]
            loads += [
                _load(key, planned[key], planned[key].num_rows, None, fence.sink_version)
                for key in counted
                if _is_here(planned[key], fence.sink_table_id, sink_table_id)
            ]
            on_their_way.clear()
            # emptying a sink that merges may keep the history of its rows
            if fence.removal is not None and not (sink is not None and sink.merges):
                loads = [load for load in loads if not _is_removed(load, fence.removal, start)]
    return loads


def _is_removed(load: Load, removal: Removal, start: Offset) -> bool:
    if removal.what == "all":
        return True
    first = Offset(start.table_id, removal.from_version or 0)
    return load.end.table_id == start.table_id and load.is_wholly_after(first)


def _load(
    key: tuple[int, int], batch: PlannedBatch, rows: int | None, sink_version: int | None, before: int | None = None
) -> Load:
    return Load(*key, Offset.from_json(batch.start), Offset.from_json(batch.end), rows, sink_version, before)


def _is_here(batch: PlannedBatch, table_id: str | None, sink_table_id: str | None) -> bool:
    """Return whether a batch wrote rows to the current sink, judging by the tables' ids."""
    return bool(batch.num_files) and (None in (sink_table_id, table_id) or table_id == sink_table_id)


def _sink_table_id(state: StreamState) -> str | None:
    known = state.sink_table_id if state.closed is None else state.closed.sink_table_id
    return known or (None if state.last_committed is None else state.last_committed.sink_table_id)
