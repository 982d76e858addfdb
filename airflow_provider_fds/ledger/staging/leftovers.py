"""Removes what dead writers have left in staging: manifests that no entry names, probes, half-written files.

A manifest is written before the entry that names it. Its writer may die in between, or find that another writer has
planned the batch; then the manifest is useless. It may be removed once its batch is decided, because within an epoch a
batch is planned once. Before that, its writer may still be about to name it.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.ledger.entries.interval_entries import IntervalOpened
from airflow_provider_fds.ledger.entries.plan_entries import Planned
from airflow_provider_fds.ledger.intervals import interval_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.ledger.entries.entry import Entry
    from airflow_provider_fds.ledger.layout import StreamFolder
    from airflow_provider_fds.ledger.staging.log import Ledger
    from airflow_provider_fds.ledger.state import StreamState

#: How often to look for leftovers: they are rare, and finding them costs a few listings.
LOOK_EVERY: Final = timedelta(days=1)
#: Age at which a probe or a half-written file is a leftover: its writer is gone or stuck for good.
_UNFINISHED: Final = timedelta(days=1)
#: Epoch and batch id.
Batch = tuple[int, int]
#: Folder of a data interval, and its generation.
Generation = tuple[str, int]

_MANIFEST: Final = re.compile(r"(\d+)-[^/]+")


def manifest_folders(storage: Storage, folder: StreamFolder) -> dict[Batch, set[str]]:
    """Return the folders of manifests in staging by epoch and batch id, relative to the stream's folder.

    Costs one listing, and one for each epoch.
    """
    found: dict[Batch, set[str]] = {}
    for epoch in storage.list_folders(folder.manifests):
        if not epoch.isdecimal():
            continue
        for name in storage.list_folders(f"{folder.manifests}/{epoch}"):
            if (match := _MANIFEST.fullmatch(name)) is not None:
                found.setdefault((int(epoch), int(match[1])), set()).add(f"manifests/{epoch}/{name}")
    return found


def orphans(
    folders: dict[Batch, set[str]], entries: Iterable[Entry], state: StreamState, is_kept: Callable[[Batch], bool]
) -> tuple[str, ...]:
    """Return the folders of manifests that no entry names or will name. Pure.

    Args:
        folders: What is in staging, by epoch and batch id.
        entries: The entries in order, beginning with the first that names a manifest which housekeeping has not
            removed; read only as far as needed.
        state: The state at the head of the ledger, or at a time before ``folders``.
        is_kept: Whether the manifest of a batch must stay, wherever ``entries`` begin.
    """
    decided = {batch for batch in folders if batch < (state.epoch, state.next_batch_id)}
    # a decided batch has one folder, that of its plan, unless housekeeping has passed it
    doubtful = {batch for batch in decided if len(folders[batch]) > 1}
    named = {batch.manifest for batch in state.planned}
    known: set[Batch] = set()
    first: Batch | None = None
    for entry in entries:
        if not isinstance(entry.action, Planned):
            continue
        planned = {(entry.action.epoch, batch.batch_id): batch.manifest for batch in entry.action.batches}
        first = first or min(planned)
        named.update(planned.values())
        known |= doubtful & set(planned)
        if all(batch in known or batch < first for batch in doubtful):
            break
    if first is None:
        return ()
    known |= {batch for batch in decided if batch < first and not is_kept(batch)}
    return tuple(sorted(folder for batch in known for folder in folders[batch] - named))


def interval_manifest_folders(storage: Storage, folder: StreamFolder) -> dict[Generation, set[str]]:
    """Return the folders of manifests of data intervals in staging, relative to the stream's folder.

    Costs one listing, and one for each interval and generation.
    """
    return {
        (interval, int(generation)): {f"manifests/{interval}/{generation}/{name}" for name in names}
        for interval in storage.list_folders(folder.manifests)
        if not interval.isdecimal()
        for generation in storage.list_folders(f"{folder.manifests}/{interval}")
        if generation.isdecimal() and (names := storage.list_folders(f"{folder.manifests}/{interval}/{generation}"))
    }


def interval_orphans(folders: dict[Generation, set[str]], entries: Iterable[Entry]) -> tuple[str, ...]:
    """Return the folders of manifests of data intervals that no entry names or will name. Pure.

    A generation is planned once. Until it is planned, or the next generation is opened, a writer may be about to name
    its folders.

    Args:
        folders: What is in staging.
        entries: The entries in order, beginning with the first that names a manifest which housekeeping has not
            removed; none newer than ``folders``.
    """
    named: dict[Generation, set[str]] = {}
    for entry in entries:
        match entry.action:
            case Planned(interval=str() as interval, epoch=generation, batches=batches):
                of_plan = named.setdefault((interval_folder(interval), generation), set())
                of_plan.update(batch.manifest for batch in batches)
            case IntervalOpened(interval=interval, generation=generation):
                named.setdefault((interval_folder(interval), generation - 1), set())
    return tuple(sorted(folder for place, of_plan in named.items() for folder in folders.get(place, set()) - of_plan))


def remove_leftovers(
    ledger: Ledger, storage: Storage, *, first_entry: int, is_kept: Callable[[Batch], bool], now: datetime
) -> tuple[str, ...]:
    """Remove what dead writers have left, and return the removed folders of manifests.

    Args:
        ledger: The ledger, read to its head.
        storage: Root of staging.
        first_entry: First entry that names a manifest which housekeeping has not removed.
        is_kept: Whether the manifest of a batch must stay.
        now: The time, with a time zone.

    Raises:
        StorageError: Staging did not answer; the rest is removed the next time.
    """
    folder = ledger.folder
    entries = ledger.entries(first_entry, needs_all=True)
    if ledger.state.reads_by_interval:
        found = interval_orphans(interval_manifest_folders(storage, folder), entries)
    else:
        found = orphans(manifest_folders(storage, folder), entries, ledger.state, is_kept)
    for manifest in found:
        storage.delete_folder(folder.below(manifest))
    before_ms = int((now - _UNFINISHED).timestamp() * 1000)
    for meta in list(storage.list_after(folder.probes)):
        if meta.modified_ms < before_ms:
            storage.delete(meta.key)
    for place in (folder.name, folder.entries, folder.folds, folder.snapshots):
        storage.remove_unfinished(place, before_ms)
    return found
