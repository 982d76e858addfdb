"""Reads a ledger, from the checkpoint or found by LIST. Procedures of single accesses (``access.py``)."""

from __future__ import annotations

import logging
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from airflow_provider_fds.delta.storage.client_limits import TRIES, pause_seconds
from airflow_provider_fds.errors import CheckpointError, LedgerError, StorageError, UnreadableEntryError
from airflow_provider_fds.ledger.entries.entry import Entry, digest_of
from airflow_provider_fds.ledger.entries.epoch_entries import Created
from airflow_provider_fds.ledger.entries.fold import Fold
from airflow_provider_fds.ledger.layout import StreamFolder, numbered_name, parse_numbered_name
from airflow_provider_fds.ledger.staging.access import Get, GetAll, ListNames, Pause
from airflow_provider_fds.ledger.state import StreamState

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.position import Checkpoint
    from airflow_provider_fds.ledger.staging.access import Access, Steps

#: After reading this many entries one by one, look for a newer fold.
FAR_BEHIND: Final = 60

#: Entries that are known to exist are read so many at a time.
_AHEAD: Final = 64

_log: Final = logging.getLogger(__name__)


def pause_before(attempt: int) -> Pause:
    """Return the wait before another attempt (from 1)."""
    return Pause(pause_seconds(attempt))


def retried(access: Access) -> Steps[Any]:
    """Perform a repeatable access, again if storage does not answer."""
    for attempt in range(1, TRIES):
        try:
            return (yield access)
        except StorageError as error:
            if not error.retryable:
                raise
            _log.info("%s; trying again", error)
        yield pause_before(attempt)
    return (yield access)


@dataclass(frozen=True, slots=True)
class LedgerReader:
    """The procedures that read one stream's ledger.

    Attributes:
        uri: URI of the staging root, for messages.
        deployment: This installation, for messages; ``None`` if unknown.
    """

    folder: StreamFolder
    uri: str
    deployment: str | None = None

    def where(self, n: int) -> str:
        """Return the URI of entry ``n``."""
        return f"{self.uri}/{self.folder.entry(n)}"

    def entry(self, n: int) -> Steps[tuple[Entry, bytes] | None]:
        """Read entry ``n`` with its bytes, or return ``None`` if it does not exist.

        Raises:
            UnreadableEntryError: It is damaged, has another number, or was written by a newer version of FDS.
        """
        return self._parsed(n, (yield from retried(Get(self.folder.entry(n)))))

    def _parsed(self, n: int, data: bytes | None) -> tuple[Entry, bytes] | None:
        """Return entry ``n``, of which ``data`` was read. Raises as :meth:`entry`."""
        if data is None:
            return None
        try:
            entry = Entry.from_json(data, where=self.where(n))
        except UnreadableEntryError as damage:
            raise self._with_way(damage, n) from damage
        if entry.n != n:
            raise UnreadableEntryError(
                f"ledger entry {self.where(n)} says it is number {entry.n}: the file was renamed or copied. Restore "
                f"the ledger from a copy of the staging folder, or run `fds recover {self.folder.name}`",
                n=n,
                data=data,
            )
        if isinstance(entry.action, Created) and entry.action.name != self.folder.name:
            raise LedgerError(
                f"ledger entry {self.where(n)} belongs to stream {entry.action.name!r}, not {self.folder.name!r}: the "
                "folder was renamed or copied. Rename it back, or remove it if it is a copy"
            )
        return entry, data

    def on_from(self, fold: Fold) -> Steps[Fold]:
        """Read the entries after ``fold`` to the end; if far behind, jump to the newest fold in staging."""
        start = fold.n
        while (longer := (yield from self._next(fold))) is not None:
            fold = longer
            if fold.n - start == FAR_BEHIND and (newest := (yield from self._newest_fold(None))).n > fold.n:
                fold = newest
        return fold

    def up_to(self, n: int) -> Steps[Fold]:
        """Return the fold of the entries 0 to ``n``, both inclusive; entry ``n`` must exist."""
        fold = yield from self._newest_fold(n)
        while fold.n < n:
            found = yield from self.entry(fold.n + 1)
            if found is None:
                raise self._hole(fold.n + 1, n)
            fold = fold.plus(*found)
        return fold

    def found(self) -> Steps[tuple[Fold, int]]:
        """Find the ledger by LIST and read it; return its fold, and the number of the staged fold it started from."""
        fold = base = yield from self._newest_fold(None)
        numbers = yield from self._numbers(_name_before(fold.n + 1))
        ahead: dict[int, bytes | None] = {}
        while numbers and fold.n < numbers[-1]:
            n = fold.n + 1
            if n not in ahead:
                wanted = range(n, min(n + _AHEAD, numbers[-1] + 1))
                contents = yield from retried(GetAll(tuple(map(self.folder.entry, wanted))))
                ahead = dict(zip(wanted, contents, strict=True))
            try:
                found = self._parsed(n, ahead[n])
                if found is None:
                    raise self._hole(n, numbers[-1])
                fold = fold.plus(*found)
            except UnreadableEntryError as damage:
                fold = yield from self._after(damage)
        return fold, base.n

    def from_checkpoint(self, checkpoint: Checkpoint) -> Steps[tuple[Fold, int]]:
        """Read the ledger up to entry ``checkpoint.n``, compare the two there, and read on to the head.

        Returns:
            The fold, and the number of the fold in staging it started from (-1 if there was none).

        Raises:
            CheckpointError: The two disagree.
        """
        if checkpoint.stream != self.folder.name:
            raise self._disagrees(
                checkpoint, f"it belongs to stream {checkpoint.stream!r}", f"fds recover {self.folder.name}"
            )
        data = yield from retried(Get(self.folder.fold(checkpoint.n)))
        fold = None
        if data is not None:
            fold = yield from self._if_true(Fold.from_json(data))
        if fold is None:
            fold = yield from self._newest_fold(checkpoint.n)
        base = fold.n
        while fold.n < checkpoint.n:
            longer = yield from self._next(fold)
            if longer is None:
                raise (yield from self._ahead(checkpoint))
            fold = longer
        # the state before an unreadable entry is no longer known, so only the uuid can be compared
        is_known = fold.n == checkpoint.n
        self._compare(checkpoint, fold.checkpoint() if is_known else replace(checkpoint, uuid=fold.state.uuid))
        return (yield from self.on_from(fold)), base

    def _newest_fold(self, limit: int | None) -> Steps[Fold]:
        """Return the newest usable fold in staging up to ``limit`` (inclusive), or the empty fold."""
        names = yield from retried(ListNames(self.folder.folds))
        numbers = [n for n in map(parse_numbered_name, names) if n is not None and (limit is None or n <= limit)]
        # one in 1,000 entries is kept for good, so that a damaged fold does not cost a read of everything
        for n in reversed(numbers):
            data = yield from retried(Get(self.folder.fold(n)))
            fold = yield from self._if_true(None if data is None else Fold.from_json(data))
            if fold is not None:
                return fold
        return Fold(n=-1, digest="", state=StreamState(name=self.folder.name))

    def _if_true(self, fold: Fold | None) -> Steps[Fold | None]:
        """Return ``fold`` if its last entry exists with its digest."""
        if fold is None:
            return None
        try:
            found = yield from self.entry(fold.n)
        except UnreadableEntryError as damage:
            _log.warning("%s", damage)
            return None
        if found is not None and digest_of(found[1]) == fold.digest:
            return fold
        _log.warning("The fold of %s does not belong to this ledger and is not used", self.where(fold.n))
        return None

    def _next(self, fold: Fold) -> Steps[Fold | None]:
        """Return the fold with the next entry, or one past an unreadable entry; ``None`` at the end."""
        try:
            found = yield from self.entry(fold.n + 1)
        except UnreadableEntryError as damage:
            return (yield from self._after(damage))
        return None if found is None else fold.plus(*found)

    def _after(self, damage: UnreadableEntryError) -> Steps[Fold]:
        """Return a state that does not depend on an unreadable entry.

        Raises:
            UnreadableEntryError: Every state after the entry depends on it.
        """
        if damage.is_newer:
            raise damage
        fold = yield from self._newest_fold(None)
        if fold.n <= damage.n:
            begun_again = yield from self.begun_again(damage.n)
            if begun_again is None:
                raise damage
            entry, data = begun_again
            fold = Fold(n=-1, digest="", state=StreamState(name=self.folder.name)).plus(entry, data)
        _log.warning("%s. It is skipped, because the fold of entry %d has the state after it", damage, fold.n)
        return fold

    def begun_again(self, n: int) -> Steps[tuple[Entry, bytes] | None]:
        """Return the newest entry after ``n`` with which the ledger was begun again, or ``None``.

        The state after it depends on no earlier entry.
        """
        for later in reversed((yield from self._numbers(_name_before(n + 1)))):
            try:
                found = yield from self.entry(later)
            except UnreadableEntryError as damage:
                if damage.is_newer:
                    raise
                continue
            if found is not None and isinstance(found[0].action, Created):
                return found
        return None

    def _numbers(self, after: str | None) -> Steps[list[int]]:
        names = yield from retried(ListNames(self.folder.entries, after))
        return [n for n in map(parse_numbered_name, names) if n is not None]

    def _with_way(self, damage: UnreadableEntryError, n: int) -> UnreadableEntryError:
        way = f". `fds recover {self.folder.name}` shows what is lost without it and how the stream continues"
        return UnreadableEntryError(
            str(damage) + ("" if damage.is_newer else way), n=n, data=damage.data, is_newer=damage.is_newer
        )

    def _hole(self, missing: int, last: int) -> UnreadableEntryError:
        return UnreadableEntryError(
            f"ledger entry {self.where(missing)} is missing, although entry {last} exists: files were removed "
            f"from the staging folder. Restore it from a copy, or run `fds recover {self.folder.name}`",
            n=missing,
        )

    def _ahead(self, checkpoint: Checkpoint) -> Steps[CheckpointError]:
        numbers = yield from self._numbers(None)
        found = f"ends at entry {numbers[-1]}" if numbers else "has no entry"
        foreign = ""
        if self.deployment is not None and checkpoint.deployment != self.deployment:
            foreign = (
                f"it was written by the installation {checkpoint.deployment!r} and imported into this one, "
                f"{self.deployment!r}; or "
            )
        return self._disagrees(
            checkpoint,
            f"it names entry {checkpoint.n}, but the ledger {found}: {foreign}the ledger was lost or restored "
            "from an older copy, or this is another staging folder",
            f"fds recover {self.folder.name}"
            + ("" if numbers else f" --sink URI --table URI --deployment {shlex.quote(checkpoint.deployment)}"),
            can_be_discarded=bool(foreign),
        )

    def _compare(self, checkpoint: Checkpoint, ledger: Checkpoint) -> None:
        """Refuse a checkpoint that differs from what the ledger results in at that entry."""
        # the words for people may be those of another version, and decide nothing
        if replace(checkpoint, position=None) == replace(ledger, position=None):
            return
        name = self.folder.name
        if checkpoint.uuid != ledger.uuid:
            what = f"it belongs to the stream with uuid {checkpoint.uuid}, but the ledger belongs to {ledger.uuid}"
        elif checkpoint.deployment != ledger.deployment:
            what = (
                f"it belongs to the installation {checkpoint.deployment!r}, but the ledger belongs to "
                f"{ledger.deployment!r}"
            )
            raise self._disagrees(
                checkpoint,
                what,
                f"fds recover {name}",
                f"; if the stream has moved to {checkpoint.deployment!r}, then also run `fds transfer {name} "
                f"--deployment {shlex.quote(checkpoint.deployment)} --why …`",
            )
        elif checkpoint.digest != ledger.digest:
            what = f"entry {ledger.n} has digest {ledger.digest}, but the checkpoint says {checkpoint.digest}"
        else:
            fields = [f for f in ("epoch", "batch_id", "offset") if getattr(checkpoint, f) != getattr(ledger, f)]
            what = "it was edited: " + "; ".join(
                f"{f} is {getattr(checkpoint, f)!r}, but {getattr(ledger, f)!r} in entry {ledger.n}" for f in fields
            )
            what += f" (to move a position, use `fds rewind {name} --to N --why …`)"
            raise self._disagrees(checkpoint, what, f"fds recover {name}", can_be_discarded=True)
        raise self._disagrees(checkpoint, what, f"fds recover {name}")

    def _disagrees(
        self, checkpoint: Checkpoint, what: str, command: str, then: str = "", *, can_be_discarded: bool = False
    ) -> CheckpointError:
        return CheckpointError(
            f"the checkpoint of stream {self.folder.name!r} does not match its ledger "
            f"{self.uri}/{self.folder.entries}: {what}. Found: {checkpoint.to_json()}. Nothing was written; run "
            f"`{command}` to repair it, with --airflow, or with --checkpoint FILE if it is a file{then}",
            can_be_discarded=can_be_discarded,
        )


def _name_before(n: int) -> str | None:
    """Return the name after which a LIST begins with entry ``n``."""
    return numbered_name(n - 1) if n > 0 else None
