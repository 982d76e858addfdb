"""Repairs a ledger with unreadable entries: what is lost with them, and how the stream continues after its sink.

An entry is never passed over, because it may forbid what comes next. Instead, the ledger begins again: a ``created``
entry after all others records what the sink knows of the stream, and requests an epoch later than any that may have
been requested. Its fence closes all of them in the sink, as after any request.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from msgspec import UNSET
from msgspec.structs import replace

from airflow_provider_fds.batch.transactions import txn_app_id
from airflow_provider_fds.errors import ConfigurationError, LedgerError, UnreadableEntryError
from airflow_provider_fds.ledger.entries.commit_entries import Accepted, Blocked, Committed
from airflow_provider_fds.ledger.entries.entry import Entry
from airflow_provider_fds.ledger.entries.epoch_entries import Bound, Created, Named, Opened
from airflow_provider_fds.ledger.entries.interval_entries import Boundary
from airflow_provider_fds.ledger.entries.operator_entries import Acknowledged, Held, Resumed, Retired
from airflow_provider_fds.ledger.entries.plan_entries import Planned
from airflow_provider_fds.ledger.entries.request_entries import Requested
from airflow_provider_fds.ledger.state import StreamState
from airflow_provider_fds.ledger.values import Acknowledgement, GivenUp, Recovered, SinkBinding
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.source.offset import Offset, describe_position
from airflow_provider_fds.stream.actions.recovery import check_account
from airflow_provider_fds.stream.sink_record.sink_traces import LOST_INTERVALS

if TYPE_CHECKING:
    from typing import Any, TypeVar

    from airflow_provider_fds.ledger.owner import Actor
    from airflow_provider_fds.ledger.position import Checkpoint
    from airflow_provider_fds.ledger.staging.log import Ledger
    from airflow_provider_fds.ledger.values import SnapshotRef
    from airflow_provider_fds.stream.actions.recovery import SinkAccount

    _A = TypeVar("_A")

#: More missing entries than this mean that a file has a name that FDS never gave it.
MOST_MISSING: Final = 1000

#: Patterns that recover from an entry's bytes what it was.
_KIND: Final = re.compile(rb'"kind":"([a-z_]{1,30})"')
_BATCH: Final = re.compile(rb'"batch_id":(\d{1,9})\b')
_EPOCH: Final = re.compile(rb'"action":\{.{0,4000}?"epoch":(\d{1,9})\b', re.DOTALL)


@dataclass(frozen=True, slots=True)
class LedgerDamage:
    """The contents of a ledger's folder, entry by entry.

    Attributes:
        entries: The readable entries, in order.
        unreadable: The unreadable ones, including missing ones, in order.
        last: Number of the last entry, -1 if the ledger is empty.
        begun_again: Number of the newest entry with which the ledger began again, -1 if it never did.
    """

    entries: tuple[Entry, ...]
    unreadable: tuple[UnreadableEntryError, ...]
    last: int
    begun_again: int

    @property
    def missing(self) -> tuple[int, ...]:
        """Numbers without an entry."""
        return tuple(damage.n for damage in self.unreadable if not damage.data)

    def describe(self) -> list[str]:
        """Return a line for each unreadable entry, and a summary of the others; empty if all entries are readable."""
        lines = []
        for damage in self.unreadable:
            passed = ", skipped" if damage.n < self.begun_again else ""
            lines.append(f"entry {damage.n} of 0 to {self.last} cannot be read{passed}: {_first_sentence(damage)}")
            if (said := _said(damage.data)) is not None:
                lines.append(f"  its bytes look like {said}")
        if self.unreadable and self.unreadable[-1].n > self.begun_again:
            first = next(damage.n for damage in self.unreadable if damage.n > self.begun_again)
            before = [entry for entry in self.entries if entry.n < first]
            after = [entry for entry in self.entries if entry.n > first]
            lines += [f"  before it: {_summary(before)}", f"  after it:  {_summary(after)}"]
        return lines

    def of_kind(self, kind: type[_A]) -> list[_A]:
        """Return the actions of one kind, in order."""
        return [entry.action for entry in self.entries if isinstance(entry.action, kind)]


@dataclass(frozen=True, slots=True)
class Repair:
    """How a ledger begins again.

    Attributes:
        created: The entry that is written.
        after: Number of the last existing entry.
        missing: Numbers without an entry.
        notes: The consequences.
    """

    created: Created
    after: int
    missing: tuple[int, ...]
    notes: tuple[str, ...]

    def describe(self) -> str:
        """Return the repair as shown to people before they confirm it."""
        return "\n".join([f"stream {self.created.name}", *(f"  {note}" for note in self.notes)])

    def perform(self, ledger: Ledger, actor: Actor) -> str:
        """Begin the ledger again and return the outcome in one sentence."""
        entry = ledger.begin_again(self.created, actor, after=self.after, missing=self.missing)
        return (
            f"stream {self.created.name}: its ledger continues with entry {entry.n}. The next run closes the "
            f"epochs before epoch {ledger.state.epoch} in the sink and begins that epoch"
        )


def inspect(ledger: Ledger) -> LedgerDamage:
    """Read all entries of a ledger, one by one.

    Raises:
        ConfigurationError: So many entries are missing that a file must have a name that FDS never gave it.
    """
    entries: list[Entry] = []
    unreadable: list[UnreadableEntryError] = []
    last = -1
    for found in ledger.readable():
        if found.n - last - 1 > MOST_MISSING:
            raise ConfigurationError(
                f"the ledger {ledger.uri}/ledger has a file for entry {found.n}, but none for the "
                f"{found.n - last - 1} before it. FDS does not write such a file: remove it, or restore the "
                "folder from a copy",
                reason=Reason.RECOVERY_REFUSED,
            )
        unreadable += [
            UnreadableEntryError(f"ledger entry {ledger.storage.uri}/{ledger.folder.entry(n)} is missing", n=n)
            for n in range(last + 1, found.n)
        ]
        last = found.n
        if isinstance(found, Entry):
            entries.append(found)
        else:
            unreadable.append(found)
    begun_again = max((entry.n for entry in entries if entry.n and isinstance(entry.action, Created)), default=-1)
    return LedgerDamage(tuple(entries), tuple(unreadable), last, begun_again)


def repair(
    ledger: Ledger,
    damage: LedgerDamage,
    account: SinkAccount | None,
    *,
    table: str | None,
    deployment: str,
    is_sink_named: bool,
    checkpoint: Checkpoint | None = None,
) -> Repair:
    """Work out how an unreadable ledger begins again.

    Args:
        ledger: The ledger.
        damage: What can be read of it.
        account: The sink's account, or ``None`` if the sink has no batch of the stream.
        table: URI of the source table, if a person named it.
        deployment: The deployment that the stream will belong to if the ledger does not say.
        is_sink_named: Whether a person named the sink.
        checkpoint: The stream's checkpoint, if there is one.

    Raises:
        UnreadableEntryError: A newer FDS wrote one of the entries.
        LedgerError: The stream has ended, or a batch in the sink failed verification.
        ConfigurationError: The sink's account does not determine the position.
    """
    name = ledger.folder.name
    for one in damage.unreadable:
        if one.is_newer:
            raise one
    _refuse_what_no_sink_tells(name, damage)
    created = damage.of_kind(Created)
    source = table or _table_of(damage)
    if source is None:
        raise ConfigurationError(
            f"stream {name!r}: its ledger does not say which table it reads; name it: --table URI",
            reason=Reason.RECOVERY_REFUSED,
        )
    if account is None:
        raise ConfigurationError(
            f"stream {name!r}: its ledger cannot be read, and the sink has no batch of the stream that says where "
            "it continues. Restore the ledger from a copy. If nothing was ever loaded, end the stream's runs, "
            f"remove {ledger.uri}, and start the stream again",
            reason=Reason.RECOVERY_REFUSED,
        )
    _refuse_another_sink(name, damage, account, checkpoint, is_sink_named=is_sink_named)
    _refuse_blocked(name, damage, account)
    planned, snapshot = _plan_of(damage, account), _snapshot_of(ledger, damage, account)
    check_account(name, account, has_snapshot=snapshot is not None)
    position = Offset.from_json(account.end)
    is_within = position.next_index > 0 and not position.is_initial_snapshot
    newest_epoch = max([account.epoch, *(getattr(entry.action, "epoch", 0) for entry in damage.entries)])
    held = _held(damage)
    moved = [to for entry in damage.entries if (to := entry.action.new_deployment) is not None]
    owner = moved[-1] if moved else created[-1].deployment if created else deployment
    recovered = Recovered(
        epoch=account.epoch,
        position=account.end,
        sink=SinkBinding(kind=account.kind, target=account.uri, app_ids=(txn_app_id(account.uuid),)),
        names=account.names or UNSET,
        # each unreadable entry may have requested an epoch
        after=newest_epoch + len(damage.unreadable),
        snapshot=snapshot,
        meaning_digest=planned.meaning_digest if planned is not None and is_within else None,
        held=held,
        acknowledged=_acknowledged(damage),
        origin=created[-1].known_origin if created else None,
        given_up=tuple(
            GivenUp(n=one.n, sha256=hashlib.sha256(one.data).hexdigest() if one.data else "", why=_first_sentence(one))
            for one in damage.unreadable
        ),
    )
    which = ", ".join(str(one.n) for one in damage.unreadable)
    lost = (
        f"Lost: the decisions of entry {which}, including accepted schemas and skipped versions, and the results "
        "of earlier runs, so that clearing their tasks no longer returns them."
    )
    notes = (
        f"The sink {account.uri} has {account.describe()}.",
        f"Epoch {recovered.after + 1} continues at {describe_position(account.end)}; the rest is planned again.",
        lost,
        "A rewind to an earlier position cannot tell which rows to remove.",
        *(("The stream stays on hold.",) if held is not None else ()),
    )
    new = Created(uuid=account.uuid, name=name, table=source, deployment=owner, recovered=recovered)
    return Repair(new, damage.last, damage.missing, notes)


def known_sink(damage: LedgerDamage) -> SinkBinding | None:
    """Return the sink that the newest readable entry names, or ``None`` if no entry names one."""
    bound = [found.sink for found in damage.of_kind(Bound)]
    recovered = [found.recovered.sink for found in damage.of_kind(Created) if found.recovered is not None]
    sinks = bound or recovered
    return sinks[-1] if sinks else None


def known_uuid(damage: LedgerDamage) -> str | None:
    """Return the uuid of the stream, or ``None`` if no entry has it."""
    return next((created.uuid for created in reversed(damage.of_kind(Created))), None)


def _refuse_what_no_sink_tells(name: str, damage: LedgerDamage) -> None:
    if damage.of_kind(Retired):
        raise LedgerError(f"stream {name!r} has ended for good, so its ledger is not recovered")
    reads_by_interval = (getattr(entry.action, "interval", None) is not None for entry in damage.entries)
    if damage.of_kind(Boundary) or any(reads_by_interval):
        raise ConfigurationError(
            f"stream {name!r} reads data intervals, so the sink does not show an offset. Restore the ledger from "
            f"a copy, or {LOST_INTERVALS}",
            reason=Reason.RECOVERY_REFUSED,
        )
    bound = damage.of_kind(Bound)
    if bound and bound[-1].sink.is_user_defined:
        raise ConfigurationError(
            f"stream {name!r} is loaded by {bound[-1].sink.describe()}, so FDS has no log of "
            "a sink to check for what was loaded. Restore the ledger from a copy, or find out what was loaded and "
            "continue with a stream of another name",
            reason=Reason.RECOVERY_REFUSED,
        )


def _refuse_another_sink(
    name: str, damage: LedgerDamage, account: SinkAccount, checkpoint: Checkpoint | None, *, is_sink_named: bool
) -> None:
    """Refuse a sink that cannot be the one that the stream has written to last."""
    committed = [(found.epoch, found.batch_id) for found in damage.of_kind(Committed) if found.sink_version is not None]
    if checkpoint is not None and checkpoint.batch_id is not None and checkpoint.uuid == account.uuid:
        committed.append((checkpoint.epoch, checkpoint.batch_id))
    newest = max(committed, default=(0, -1))
    if newest > (account.batch_epoch, account.batch_id):
        raise ConfigurationError(
            f"stream {name!r}: batch {newest[1]} of epoch {newest[0]} was committed, but the newest that the sink "
            f"{account.uri} has is {account.describe()}. It is another sink, or was restored from a copy: name "
            "the sink that the stream last wrote to (--sink URI)",
            reason=Reason.RECOVERY_REFUSED,
        )
    kinds = [entry.action for entry in damage.entries if isinstance(entry.action, Bound | Requested)]
    is_left = bool(kinds) and isinstance(kinds[-1], Requested) and kinds[-1].reason == "rebind"
    # binding a stream to another sink takes three entries
    if not is_sink_named and (is_left or len(damage.unreadable) > 1):
        raise ConfigurationError(
            f"stream {name!r}: the unreadable entries may have bound it to another sink. Name the sink that it "
            "last wrote to: --sink URI",
            reason=Reason.RECOVERY_REFUSED,
        )


def _refuse_blocked(name: str, damage: LedgerDamage, account: SinkAccount) -> None:
    """Refuse to count a batch as loaded if its verification failed and nobody has accepted it."""
    newest = (account.batch_epoch, account.batch_id)
    words = [
        entry.action
        for entry in damage.entries
        if isinstance(entry.action, Blocked | Accepted) and (entry.action.epoch, entry.action.batch_id) == newest
    ]
    if words and isinstance(words[-1], Blocked):
        raise LedgerError(
            f"stream {name!r}: the newest batch that the sink {account.uri} has is {account.describe()}, but its "
            f"verification failed: {words[-1].reason}. A recovered ledger would count it as loaded. Restore the "
            "ledger from a copy, or correct the sink's rows and continue under another stream name"
        )


def _plan_of(damage: LedgerDamage, account: SinkAccount) -> Planned | None:
    """Return the entry that planned the newest batch in the sink, or ``None`` if it is unreadable."""
    plans = (found for found in damage.of_kind(Planned) if found.epoch == account.batch_epoch)
    return next((found for found in plans if any(batch.digest == account.digest for batch in found.batches)), None)


def _table_of(damage: LedgerDamage) -> str | None:
    """Return the table that the stream has read last, or ``None`` if no readable entry has it."""
    actions = (entry.action for entry in reversed(damage.entries))
    return next((one.table for one in actions if isinstance(one, Created | Named) and one.table is not UNSET), None)


def _snapshot_of(ledger: Ledger, damage: LedgerDamage, account: SinkAccount) -> SnapshotRef | None:
    """Return the frozen snapshot that the newest batch in the sink belongs to, or ``None`` if it no longer exists."""
    position = Offset.from_json(account.end)
    for found in damage.of_kind(Opened):
        snapshot = found.snapshot
        if (
            position.is_initial_snapshot
            and snapshot is not None
            and (found.epoch, snapshot.version) == (account.batch_epoch, position.version)
            and ledger.storage.head(ledger.folder.below(snapshot.key)) is not None
        ):
            return snapshot
    return None


def _held(damage: LedgerDamage) -> str | None:
    """Return why the stream is held, or ``None`` if no readable entry holds it."""
    why = None
    for action in (entry.action for entry in damage.entries):
        if isinstance(action, Held):
            why = action.why
        elif isinstance(action, Resumed):
            why = None
        elif isinstance(action, Created) and action.recovered is not None:
            why = action.recovered.held
    return why


def _acknowledged(damage: LedgerDamage) -> tuple[Acknowledgement, ...]:
    """Return what people have decided on versions; those before the position count for a later rewind."""
    state = StreamState(name="")
    for entry in damage.entries:
        if isinstance(entry.action, Created):
            state = replace(state, acknowledged=entry.action.passes)
        elif isinstance(entry.action, Acknowledged):
            state = entry.action.apply_as(state, entry.actor)
        elif isinstance(entry.action, Opened):
            table_id = entry.action.table_id
            state = replace(state, table_id=table_id, acknowledged=state.decisions_on(table_id))
    return state.acknowledged


def _first_sentence(damage: UnreadableEntryError) -> str:
    """Return what is wrong with an entry, without its location and the advice."""
    return re.sub(r"^ledger entry \S+ ", "", str(damage)).partition(". ")[0]


def _said(data: bytes) -> str | None:
    """Return what an unreadable entry was, from the parts of its bytes that can be recognised."""
    kind = _KIND.search(data)
    if kind is None:
        return None
    text = f"`{kind[1].decode()}`"
    if (batch := _BATCH.search(data)) is not None:
        text += f" of batch {int(batch[1])}"
    if (epoch := _EPOCH.search(data)) is not None:
        text += f", epoch {int(epoch[1])}"
    return text


def _summary(entries: list[Entry]) -> str:
    """Return a one-line summary of entries."""
    if not entries:
        return "no entry"
    kinds = Counter(entry.action.kind for entry in entries)
    text = f"{len(entries)} entries ({', '.join(f'{count} {kind}' for kind, count in kinds.items())})"
    committed: list[Any] = [entry.action for entry in entries if isinstance(entry.action, Committed)]
    if committed:
        last = committed[-1]
        text += f", up to batch {last.batch_id} of epoch {last.epoch}, which ends at {describe_position(last.end)}"
    return text
