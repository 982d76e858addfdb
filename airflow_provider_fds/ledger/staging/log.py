"""The ledger of one stream in staging: read to the head, decide, write the next entry unless someone else has."""

from __future__ import annotations

import logging
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from airflow_provider_fds.errors import FdsError, LedgerError, StorageError, UnreadableEntryError
from airflow_provider_fds.fault_points import reach
from airflow_provider_fds.ledger.entries import refusals
from airflow_provider_fds.ledger.entries.conditions import check_deployment
from airflow_provider_fds.ledger.entries.entry import Entry, iso_time
from airflow_provider_fds.ledger.entries.epoch_entries import Created
from airflow_provider_fds.ledger.entries.fold import Fold
from airflow_provider_fds.ledger.entries.protocol import decide
from airflow_provider_fds.ledger.layout import StreamFolder, parse_numbered_name
from airflow_provider_fds.ledger.staging.access import ListNames, Put, PutIfAbsent, perform
from airflow_provider_fds.ledger.staging.reading import LedgerReader, retried
from airflow_provider_fds.ledger.staging.writing import self_test, write
from airflow_provider_fds.ledger.state import StreamState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from airflow_provider_fds.delta.reader.known_states import KnownState
    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.ledger.entries.action import BaseAction
    from airflow_provider_fds.ledger.owner import Actor, Owner
    from airflow_provider_fds.ledger.position import Checkpoint
    from airflow_provider_fds.ledger.records import RunRecord
    from airflow_provider_fds.ledger.staging.access import Steps

#: Number of entries between two folds; it bounds the entries that are read after a known fold.
FOLD_EVERY: Final = 50

#: Replaces a lost entry.
_NO_ENTRY: Final = b'{"gone":true}\n'

_log: Final = logging.getLogger(__name__)


class Ledger:
    """The ledger of one stream.

    Requests of a load: with the checkpoint of the last run and its fold, 3 GETs (fold, entry, "no next entry"); with an
    older one, one more LIST and GET, and one GET per entry since the newest fold before it. Without a checkpoint, 2
    LISTs and, if there is a ledger, a GET each for the fold, its entry and each entry after it. Writing an entry costs
    one PUT; a collision or a lost response, one more GET. A refusal, or "already done", costs one GET, because the
    ledger looks again before it answers.

    Not safe for use by several threads at once.

    Args:
        storage: Root of staging.
        name: Name of the stream.
        deployment: This Airflow installation; if given, loading a ledger of another one fails. ``None`` for readers
            that only look, and for a transfer.
        clock: Returns the time, with a zone, for the entries.

    Raises:
        ConfigurationError: ``name`` is not a valid stream name.
    """

    def __init__(
        self,
        storage: Storage,
        name: str,
        *,
        deployment: str | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.folder = StreamFolder(name)
        self.storage = storage
        self._deployment = deployment
        self._clock = clock
        self._reader = LedgerReader(self.folder, storage.uri, deployment)
        self._head: Fold | None = None
        self._fold_n = -1
        #: A known state of the source table, from the fold that was read and for the next one; a hint.
        self.source: KnownState | None = None

    @property
    def state(self) -> StreamState:
        """The state at the head, as of the last access; the empty state if the ledger was not read."""
        return self._empty().state if self._head is None else self._head.state

    @property
    def n(self) -> int:
        """Number of the last entry that was read, -1 if no entry was read."""
        return -1 if self._head is None else self._head.n

    @property
    def uri(self) -> str:
        """URI of the stream's folder in staging."""
        return f"{self.storage.uri}/{self.folder.name}"

    def load(self, checkpoint: Checkpoint | None) -> StreamState:
        """Read the ledger from the checkpoint to its head; without a checkpoint, find it by LIST.

        Raises:
            CheckpointError: Checkpoint and ledger disagree; the message names the command to run.
            LedgerError: An entry is missing or unreadable, or the stream belongs to another installation.
            StorageError: Staging did not answer.
        """
        return perform(self.load_steps(checkpoint), self.storage)

    def find(self) -> StreamState:
        """Read the ledger without a checkpoint, for readers that only look. Raises the errors of :meth:`load`."""
        return perform(self.find_steps(), self.storage)

    def refresh(self) -> StreamState:
        """Continue reading where the last access ended."""
        return perform(self.refresh_steps(), self.storage)

    def execute(
        self, action: BaseAction, actor: Actor, request_id: str | None = None, *, expected: int | None = None
    ) -> Entry | None:
        """Propose an action: decide on the state at the head, and write the entry if it is allowed.

        Args:
            action: The proposed action.
            actor: Who asks.
            request_id: Name of a person's request. A known name means the same request: its entry is returned, and
                nothing is written.
            expected: Number of the last entry on which the request is based; ``None``: any.

        Returns:
            The entry, or ``None`` if the ledger already records what the action asks for (a batch that is committed, a
            sink that is bound, …): the caller continues.

        Raises:
            StreamMovedError: There is an entry after the expected one.
            LedgerError: The state does not allow it, see :func:`~airflow_provider_fds.ledger.entries.protocol.decide`.
            SinkError: The sink is another one, or differs from what the ledger records.
            StorageError: Staging did not answer; reading the ledger again shows whether the entry was written.
        """
        return perform(self.execute_steps(action, actor, request_id, expected), self.storage)

    def entries(self, first: int = 0, *, needs_all: bool = False) -> Iterator[Entry]:
        """Yield the entries from number ``first``, to the head if the ledger was read. One GET each.

        A damaged entry is left out, and its number is missing, if the state is known without it.

        Args:
            first: Number of the first entry.
            needs_all: Leave out damaged entries only before the entry with which the ledger was begun again.

        Raises:
            UnreadableEntryError: An entry cannot be read, and the head was not read or a newer FDS wrote the entry.
        """
        begun_again = -1
        for found in self.readable(first) if self.n < 0 else self.read(range(first, self.n + 1)):
            if isinstance(found, Entry):
                yield found
                continue
            if found.is_newer or found.n > self.n:
                raise found
            if needs_all and found.n > begun_again:
                later = perform(self._reader.begun_again(found.n), self.storage)
                if later is None:
                    raise found
                begun_again = later[0].n
            _log.debug("%s", found)

    def readable(self, first: int = 0) -> Iterator[Entry | UnreadableEntryError]:
        """Yield all entries from number ``first``; for an entry that cannot be read, the error that says why.

        One LIST per 1,000 entries, and one GET each.
        """
        after = None if first <= 0 else self.folder.entry(first - 1).rsplit("/", 1)[-1]
        names = perform(retried(ListNames(self.folder.entries, after)), self.storage)
        return self.read(n for n in map(parse_numbered_name, names) if n is not None)

    def read(self, numbers: Iterable[int]) -> Iterator[Entry | UnreadableEntryError]:
        """Yield the entries of these numbers, as :meth:`readable` does; a missing one is left out. One GET each."""
        for n in numbers:
            try:
                found = perform(self._reader.entry(n), self.storage)
            except UnreadableEntryError as damage:
                yield damage
            else:
                if found is not None:
                    yield found[0]

    def begin_again(self, created: Created, actor: Actor, *, after: int, missing: Sequence[int] = ()) -> Entry:
        """Write an entry whose state depends on no earlier entry, after entries that cannot be read.

        Args:
            created: What is known of the stream.
            actor: Who asks.
            after: Number of the last existing entry, as the caller saw it.
            missing: Numbers before it without an entry. They are filled first, so that no writer that has read only the
                entries before them takes such a number.

        Raises:
            LedgerError: Another entry was written meanwhile.
            StorageError: Staging did not answer; the call can be repeated.
        """
        return perform(self.begin_again_steps(created, actor, after=after, missing=missing), self.storage)

    def checkpoint(self) -> Checkpoint:
        """Return the checkpoint of the head. Raises ``LedgerError`` if there is no entry."""
        if self._head is None or self._head.n < 0:
            raise LedgerError(
                f"stream {self.folder.name!r} has no ledger in {self.storage.uri}, so it has no checkpoint"
            )
        return self._head.checkpoint()

    def save_fold(self) -> None:
        """Write the fold of the head, at the end of a run, so that the next run starts with 3 requests."""
        perform(self._save_fold_steps(), self.storage)

    def find_run(self, owner: Owner, *, since: datetime | None = None) -> RunRecord | None:
        """Return what ``owner`` did last, or ``None`` if nothing.

        The state knows the newest runs. For an older one, the entries are read backwards, one GET each, up to the
        newest one of ``owner``.

        Args:
            owner: The run.
            since: A time, with a zone, before which the run cannot have worked: entries more than a day older are not
                read. ``None``: all are read.
        """
        # only when the run has ended
        from airflow_provider_fds.ledger.staging.last_run import last_run

        return perform(last_run(self._reader, self._head or self._empty(), owner, since), self.storage)

    def self_test(self) -> None:
        """Make sure that the store writes an object only if it does not exist. Runs automatically before ``created``.

        Raises:
            ConfigurationError: The store ignores the condition.
            StorageError: Staging cannot be written to.
        """
        perform(self_test(self.folder, self.storage.uri), self.storage)

    # -- procedures, also driven step by step in tests

    def load_steps(self, checkpoint: Checkpoint | None) -> Steps[StreamState]:
        """The procedure of :meth:`load`."""
        if checkpoint is None:
            state = yield from self.find_steps()
            if state.last_committed is not None:
                _log.warning(
                    "The checkpoint of stream %r is missing; the ledger %s has its position: entry %d, offset %s. "
                    "The next commit writes the checkpoint again",
                    self.folder.name,
                    self.uri,
                    self.n,
                    state.position,
                )
            return state
        return self._loaded(*(yield from self._reader.from_checkpoint(checkpoint)))

    def find_steps(self) -> Steps[StreamState]:
        """The procedure of :meth:`find`."""
        return self._loaded(*(yield from self._reader.found()))

    def refresh_steps(self) -> Steps[StreamState]:
        """The procedure of :meth:`refresh`."""
        if self._head is None:
            return (yield from self.find_steps())
        self._head = yield from self._reader.on_from(self._head)
        return self._head.state

    def execute_steps(
        self, action: BaseAction, actor: Actor, request_id: str | None = None, expected: int | None = None
    ) -> Steps[Entry | None]:
        """The procedure of :meth:`execute`."""
        is_fresh = self._head is None
        if is_fresh:
            yield from self.find_steps()
        while True:
            repeated = yield from self._repeated_steps(action, request_id)
            if repeated is not None:
                return repeated
            if expected is not None and self.n != expected:
                raise refusals.moved(
                    self.state, f"the ledger has entries after entry {expected}, on which the request was based"
                )
            decided = self._decided(action, actor)
            if isinstance(decided, FdsError | None) and not is_fresh:
                # what caused a refusal, or "already done", may have been undone since the head was read
                is_fresh = True
                if (yield from self._has_moved_steps()):
                    continue
            if decided is None:
                return None
            if isinstance(decided, FdsError):
                raise decided
            entry = self._entry(decided, actor, request_id)
            if (yield from self._append_steps(entry)):
                return entry
            yield from self.refresh_steps()
            is_fresh = True

    def begin_again_steps(
        self, created: Created, actor: Actor, *, after: int, missing: Sequence[int] = ()
    ) -> Steps[Entry]:
        """The procedure of :meth:`begin_again`."""
        for n in missing:
            yield from retried(PutIfAbsent(self.folder.entry(n), _NO_ENTRY))
        entry = replace(self._entry(created, actor, None), n=after + 1)
        data = self._checked(entry)
        reach("entry.before", created.kind)
        if not (yield from write(self._reader, entry, data)):
            raise LedgerError(
                f"stream {self.folder.name!r}: entry {entry.n} of its ledger was written in the meantime, so "
                f"nothing was done. Run `fds recover {self.folder.name}` again"
            )
        reach("entry.after", created.kind)
        self._head = self._empty().plus(entry, data)
        yield from self._save_fold_steps()
        return entry

    def _decided(self, action: BaseAction, actor: Actor) -> BaseAction | FdsError | None:
        """Return the action as it will be written in the current state; a refusal is returned as a value."""
        try:
            if action.new_deployment is None:
                check_deployment(self.state, actor.deployment)
            return decide(self.state, action)
        except FdsError as refusal:
            return refusal

    def _entry(self, action: BaseAction, actor: Actor, request_id: str | None) -> Entry:
        """Return the next entry."""
        return Entry(
            format=action.needs_format,
            n=self.n + 1,
            id=uuid.uuid4().hex,
            time=iso_time(self._clock()),
            actor=actor,
            request_id=request_id,
            action=action,
        )

    def _checked(self, entry: Entry) -> bytes:
        """Return the bytes of an entry that can be read back. Raises ``UnreadableEntryError`` if it cannot."""
        data = entry.to_json()
        Entry.from_json(data, where=f"{self._reader.where(entry.n)}, which was not written")
        return data

    def _append_steps(self, entry: Entry) -> Steps[bool]:
        """Write the entry after the head; ``False`` if another writer was faster."""
        if isinstance(entry.action, Created):
            yield from self_test(self.folder, self.storage.uri)
        data = self._checked(entry)
        reach("entry.before", entry.action.kind)
        if not (yield from write(self._reader, entry, data)):
            return False
        reach("entry.after", entry.action.kind)
        self._head = (self._head or self._empty()).plus(entry, data)
        if (entry.n + 1) % FOLD_EVERY == 0:
            yield from self._save_fold_steps()
        return True

    def _has_moved_steps(self) -> Steps[bool]:
        """Continue reading; return whether there was anything new."""
        before = self.n
        yield from self.refresh_steps()
        return self.n != before

    def _repeated_steps(self, action: BaseAction, request_id: str | None) -> Steps[Entry | None]:
        """Return the entry of a request that was answered before."""
        if request_id is None:
            return None
        known = next((a for a in self.state.answered if a.request_id == request_id), None)
        if known is None:
            return None
        found = yield from self._reader.entry(known.n)
        if found is None:
            raise LedgerError(f"ledger entry {self._reader.where(known.n)} is missing; restore it from a copy")
        if found[0].action.kind != action.kind:
            raise LedgerError(
                f"stream {self.folder.name!r}: request id {request_id!r} was already used, for {known.kind!r} "
                f"(entry {known.n}). Give this request another id"
            )
        return found[0]

    def _save_fold_steps(self) -> Steps[None]:
        if self._head is None or self._head.n <= self._fold_n:
            return
        reach("fold.before")
        try:
            yield Put(self.folder.fold(self._head.n), replace(self._head, source=self.source).to_json())
        except StorageError as error:
            _log.info("The fold of %s was not written, so the next reader reads more entries: %s", self.uri, error)
        else:
            self._fold_n = self._head.n

    def _loaded(self, fold: Fold, base: int) -> StreamState:
        if self._deployment is not None:
            check_deployment(fold.state, self._deployment)
        self._head, self._fold_n, self.source = fold, base, fold.source
        return fold.state

    def _empty(self) -> Fold:
        return Fold(n=-1, digest="", state=StreamState(name=self.folder.name))
