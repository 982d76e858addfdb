"""What a stream may delete: manifests, attempts, snapshots and folds that nobody needs any longer.

The newest batches are kept *and* everything committed recently (docs/design/ledger.md, "Retention"), everything about
planned batches and the run that works on them, and the snapshot of the open epoch. Entries are never removed: a ledger
can always be read from its beginning.

A note in staging remembers how far the entries were read and what the next one waits for, so that a run that has
nothing to remove reads the note and no more, however long the stream has existed.

``leftovers.py`` handles what dead writers have left.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import msgspec

from airflow_provider_fds.delta.damage import DAMAGE
from airflow_provider_fds.ledger.entries.commit_entries import Committed
from airflow_provider_fds.ledger.entries.entry import iso_time
from airflow_provider_fds.ledger.entries.epoch_entries import Opened
from airflow_provider_fds.ledger.entries.interval_entries import IntervalOpened
from airflow_provider_fds.ledger.entries.plan_entries import Planned
from airflow_provider_fds.ledger.entries.request_entries import Requested
from airflow_provider_fds.ledger.intervals import interval_folder
from airflow_provider_fds.ledger.layout import parse_numbered_name
from airflow_provider_fds.ledger.staging.leftovers import LOOK_EVERY, remove_leftovers

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from airflow_provider_fds.delta.storage.storage import ObjectMeta, Storage
    from airflow_provider_fds.ledger.entries.entry import Entry
    from airflow_provider_fds.ledger.layout import StreamFolder
    from airflow_provider_fds.ledger.staging.log import Ledger
    from airflow_provider_fds.ledger.state import StreamState

#: The number of newest folds to keep. Of the others, one per ``FOLD_STRIDE`` entries is kept, for checkpoints that are
#: far behind.
KEPT_FOLDS: Final = 5
FOLD_STRIDE: Final = 1000
#: Number of entries after which to list the folds again.
_LIST_FOLDS_EVERY: Final = 50

_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Retention:
    """How long the files of a committed batch are kept: as long as either limit requires it.

    Attributes:
        batches: Number of newest batches to keep.
        age: Time since the commit. Use the source's file retention if it is shorter: without its files, a manifest is
            useless.
    """

    batches: int = 100
    age: timedelta = timedelta(days=14)


@dataclass(frozen=True, slots=True)
class Removable:
    """What may be removed.

    Attributes:
        manifests: Folders of manifests, relative to the stream's folder.
        batches: Epoch and id of the batches whose attempts and jobs may be removed.
        interval_attempts: Removable folders of attempts and jobs of data intervals, relative to the stream's folder.
        fences: Epochs whose fence is written, so that its attempts may be removed; epochs already done are included as
            long as their entries are read.
        next_entry: The entry to begin with the next time; earlier entries are no longer needed.
        young: Time of the first entry that was too young, at which reading ended; empty if it ended elsewhere.
        kept: The batch that is old enough but among the newest, at which reading ended, and the number of decided
            batches of its epoch, or of the open one, that is needed to remove it; ``None`` if reading ended elsewhere.
        leftovers: Folders of manifests that no entry names.
    """

    manifests: tuple[str, ...] = ()
    batches: tuple[tuple[int, int], ...] = ()
    interval_attempts: tuple[str, ...] = ()
    fences: tuple[int, ...] = ()
    next_entry: int = 0
    young: str = ""
    kept: Kept | None = None
    leftovers: tuple[str, ...] = ()


class Kept(msgspec.Struct, frozen=True):
    """What must change before the next batch can be removed.

    Attributes:
        epoch: The epoch that was open; in any other one, the batch is looked at again.
        decided: Number of decided batches that the open epoch needs.
    """

    epoch: int
    decided: int

    def applies(self, state: StreamState) -> bool:
        """Whether the batch must still be kept."""
        return state.epoch == self.epoch and state.first_uncommitted < self.decided


def removable(
    entries: Iterable[Entry],
    state: StreamState,
    now: datetime,
    retention: Retention,
) -> Removable:
    """Return what may be removed of batches. Pure.

    Reads up to the first entry that is too young, or that decides a batch which is kept because it is among the newest:
    all later batches are kept as well.

    Args:
        entries: Entries in order, beginning with the last :attr:`Removable.next_entry`, else with 0.
        state: The state at the head of the ledger.
        now: The time, with a time zone.
        retention: How long files are kept.
    """
    earliest = iso_time(now - retention.age)
    planned: dict[tuple[int, int], tuple[str, int]] = {}
    gone: dict[tuple[int, int], str] = {}
    intervals = _OldIntervals()
    fences: list[int] = []
    next_entry = 0
    young = ""
    kept: Kept | None = None
    for entry in entries:
        if entry.time > earliest:
            young = entry.time
            break
        next_entry = entry.n + 1
        match entry.action:
            case IntervalOpened() | Planned(interval=str()) | Committed(interval=str()):
                intervals.see(entry)
            case Planned(epoch=epoch, batches=batches):
                planned |= {(epoch, batch.batch_id): (batch.manifest, entry.n) for batch in batches}
            case Opened(epoch=epoch):
                fences.append(epoch)
        old = [key for key in planned if _decides(entry, key)]
        gone |= {key: planned.pop(key)[0] for key in old if not _is_kept(state, retention, *key)}
        still = [key for key in old if key in planned]
        if still:
            kept = _kept(state, retention, *still[0])
            break
    return Removable(
        manifests=tuple(manifest for manifest in (*gone.values(), *intervals.manifests) if manifest),
        batches=tuple(gone),
        interval_attempts=tuple(intervals.attempts),
        fences=tuple(fences),
        next_entry=min([next_entry, *(n for _, n in planned.values()), *intervals.needed_entries]),
        young=young,
        kept=kept,
    )


def _decides(entry: Entry, key: tuple[int, int]) -> bool:
    """Whether the batch, given by epoch and id, is decided by the entry: committed, or of an epoch that it closes."""
    match entry.action:
        case Committed(interval=None, epoch=epoch, batch_id=batch_id):
            return key == (epoch, batch_id)
        case Requested(epoch=epoch):
            return key[0] < epoch
        case _:
            return False


class _OldIntervals:
    """Data intervals in entries that are old enough: a plan is removable once it is committed or planned again."""

    def __init__(self) -> None:
        self.manifests: list[str] = []
        self.attempts: list[str] = []
        self._planned: dict[str, tuple[int, Planned]] = {}

    @property
    def needed_entries(self) -> tuple[int, ...]:
        """Numbers of the plans that are not decided."""
        return tuple(n for n, _ in self._planned.values())

    def see(self, entry: Entry) -> None:
        match entry.action:
            case Planned(interval=str() as interval) as planned if planned.batches:
                self._planned.setdefault(interval, (entry.n, planned))
            case IntervalOpened(interval=interval):
                self._decide(interval)
            case Committed(interval=str() as interval, batch_id=batch_id):
                known = self._planned.get(interval)
                if known is not None and known[1].batches[-1].batch_id == batch_id:
                    self._decide(interval)

    def _decide(self, interval: str) -> None:
        if interval not in self._planned:
            return
        _, planned = self._planned.pop(interval)
        self.manifests += [batch.manifest for batch in planned.batches]
        folder = f"{interval_folder(interval)}/{planned.epoch}"
        self.attempts += [f"{kind}/{folder}/{b.batch_id}" for kind in ("attempts", "jobs") for b in planned.batches]


def removable_snapshots(
    files: Iterable[ObjectMeta], state: StreamState, now: datetime, retention: Retention
) -> tuple[str, ...]:
    """Return the keys of the frozen snapshots that no open or requested epoch can continue in. Pure.

    A young snapshot is kept, because it may belong to an epoch that is about to be opened.
    """
    refs = [state.snapshot]
    if state.phase == "requested":
        refs += [one.snapshot for one in (state.closed, state.origin) if one is not None]
    in_use = {f"{state.name}/{ref.key}" for ref in refs if ref is not None}
    earliest_ms = (now - retention.age).timestamp() * 1000
    return tuple(meta.key for meta in files if meta.key not in in_use and meta.modified_ms < earliest_ms)


def removable_folds(numbers: Iterable[int]) -> tuple[int, ...]:
    """Return which of the given folds may be removed. Pure."""
    return tuple(n for n in sorted(numbers)[:-KEPT_FOLDS] if (n + 1) % FOLD_STRIDE)


def purge_expired(ledger: Ledger, storage: Storage, *, now: datetime, retention: Retention | None = None) -> Removable:
    """Remove what may be removed, and record the progress. Safe to repeat, and while the stream is in use.

    Args:
        ledger: The ledger, read to its head.
        storage: Root of staging.
        now: The time, with a time zone.
        retention: How long files are kept; ``None``: 100 batches and 14 days.

    Returns:
        What was removed of batches.

    Raises:
        StorageError: Staging did not answer; the rest is removed the next time.
    """
    folder, state = ledger.folder, ledger.state
    retention = retention or Retention()
    note = _noted(storage, folder.cleaned)
    if note.next_entry > ledger.n + 1:
        note = _Note(next_entry=0)  # the ledger was restored from an older copy
    new_note, found = note, Removable(next_entry=note.next_entry)
    # once a day everything is looked at, whatever the note says: the retention may have been changed
    is_daily = note.looked <= iso_time(now - LOOK_EVERY)
    if is_daily or note.is_due(state, iso_time(now - retention.age)):
        found = removable(ledger.entries(note.next_entry, needs_all=True), state, now, retention)
        found = replace(found, fences=tuple(epoch for epoch in found.fences if epoch > note.fence))
        _remove_batches(storage, folder, found)
        new_note = msgspec.structs.replace(
            note,
            next_entry=max(note.next_entry, found.next_entry),
            fence=max(found.fences, default=note.fence),
            young=found.young,
            kept=found.kept,
        )
    if is_daily or not 0 <= ledger.n - note.folds < _LIST_FOLDS_EVERY:
        numbers = [parse_numbered_name(meta.key.rsplit("/", 1)[-1]) for meta in storage.list_after(folder.folds)]
        for n in removable_folds(n for n in numbers if n is not None):
            storage.delete(folder.fold(n))
        new_note = msgspec.structs.replace(new_note, folds=ledger.n)
    if is_daily:
        for key in removable_snapshots(list(storage.list_after(folder.snapshots)), state, now, retention):
            storage.delete(key)

        def is_kept(batch: tuple[int, int]) -> bool:
            return _is_kept(state, retention, *batch)

        first = new_note.next_entry
        leftovers = remove_leftovers(ledger, storage, first_entry=first, is_kept=is_kept, now=now)
        found = replace(found, leftovers=leftovers)
        new_note = msgspec.structs.replace(new_note, looked=iso_time(now))
    if new_note != note:
        storage.put(folder.cleaned, msgspec.json.encode(new_note))
    if found.manifests or found.leftovers:
        _log.info(
            "Stream %r: removed %d manifests of old batches and %d leftover files",
            folder.name,
            len(found.manifests),
            len(found.leftovers),
        )
    return found


def _remove_batches(storage: Storage, folder: StreamFolder, found: Removable) -> None:
    for manifest in found.manifests:
        storage.delete_folder(folder.below(manifest))
    for epoch, batch_id in found.batches:
        storage.delete_folder(folder.attempt_reports(epoch, batch_id))
        storage.delete_folder(folder.job_specs(epoch, batch_id))
    for epoch in found.fences:
        storage.delete_folder(folder.fence_reports(epoch))
        storage.delete_folder(folder.fence_jobs(epoch))
    for attempts in found.interval_attempts:
        for meta in list(storage.list_after(folder.below(attempts))):
            storage.delete(meta.key)


class _Note(msgspec.Struct):
    """The progress of housekeeping; a hint.

    Attributes:
        next_entry: The entry to begin with the next time.
        looked: When leftovers were last looked for.
        fence: Newest epoch whose fence attempts are removed.
        young: Time of the entry that must become old before more can be removed; empty if there is none.
        kept: What must change before more can be removed; ``None`` if only time must pass.
        folds: Number of the last entry when the folds were last listed.
    """

    next_entry: int
    looked: str = ""
    fence: int = 0
    young: str = ""
    kept: Kept | None = None
    folds: int = -_LIST_FOLDS_EVERY
    format: int = 1

    def is_due(self, state: StreamState, earliest: str) -> bool:
        """Whether entries must be read, if those written at ``earliest`` or before are old enough."""
        if self.kept is not None:
            return not self.kept.applies(state)
        return self.young <= earliest


_NOTE: Final = msgspec.json.Decoder(_Note)


def _noted(storage: Storage, key: str) -> _Note:
    try:
        note = _NOTE.decode(storage.get(key)[0])
    except (FileNotFoundError, *DAMAGE):
        return _Note(next_entry=0)
    return note if note.format == 1 else _Note(next_entry=0)


def _is_kept(state: StreamState, retention: Retention, epoch: int, batch_id: int) -> bool:
    if epoch < state.epoch:
        return state.first_uncommitted < retention.batches
    run = state.run
    first = state.first_uncommitted if run is None or run.first_batch_id is None else run.first_batch_id
    if state.planned and batch_id >= first:
        return True
    return batch_id >= state.first_uncommitted - retention.batches


def _kept(state: StreamState, retention: Retention, epoch: int, batch_id: int) -> Kept:
    """Return what must change before a batch that is kept can be removed."""
    needed = retention.batches if epoch < state.epoch else batch_id + retention.batches + 1
    # a batch of the run that works on planned batches is kept until they are decided
    return Kept(state.epoch, max(needed, state.first_uncommitted + 1))
