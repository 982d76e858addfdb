"""The action ``recover``: what ledger and sink record of a stream, and the change that reconciles the ledger.

Unlike the other actions, it also works without a ledger, and with one whose entries cannot be read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_provider_fds.delta.storage.open import canonical_uri
from airflow_provider_fds.errors import CheckpointError, ConfigurationError, UnreadableEntryError
from airflow_provider_fds.fault_points import reach
from airflow_provider_fds.ledger.values import SinkBinding
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.source.offset import describe_position
from airflow_provider_fds.stream.actions.prepared_action import perform
from airflow_provider_fds.stream.actions.recorded_batches import record_of
from airflow_provider_fds.stream.actions.recovery import recovery
from airflow_provider_fds.stream.actions.repair import Repair, inspect, known_sink, known_uuid, repair

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.ledger.owner import Actor
    from airflow_provider_fds.ledger.position import Checkpoint
    from airflow_provider_fds.ledger.staging.log import Ledger
    from airflow_provider_fds.stream.actions.prepared_action import PreparedAction
    from airflow_provider_fds.stream.actions.recovery import SinkAccount
    from airflow_provider_fds.stream.actions.repair import LedgerDamage

    class ReadableCheckpoint(Protocol):
        """A place that may hold a checkpoint."""

        def read(self) -> Checkpoint | None:
            """Return the checkpoint, or ``None`` if it does not exist."""


@dataclass(frozen=True)
class RecoverySurvey:
    """What ledger and sink record of a stream.

    Attributes:
        ledger: The stream's ledger; empty if it cannot be read.
        damage: What can be read of it, entry by entry.
        is_readable: Whether every entry that matters can be read.
        account: What the sink records; ``None`` if the sink has no batch of the stream or is unknown.
        lines: All of this as text for people.
        checkpoint: Where the checkpoint is; ``None`` if that is unknown.
        sink_uri: The sink that a person named, as ``SinkBinding.target``.
        table: The source that a person named.
        deployment: The installation that a stream without a ledger will belong to.
        why: The reason; it stays in the history.
    """

    ledger: Ledger
    damage: LedgerDamage
    is_readable: bool
    account: SinkAccount | None
    lines: tuple[str, ...]
    checkpoint: ReadableCheckpoint | None
    sink_uri: str | None
    table: str | None
    deployment: str
    why: str

    def prepare(self) -> PreparedAction | Repair | None:
        """Return the change that makes the ledger agree with the sink, or ``None`` if it already does.

        Raises:
            FdsError: It is not possible, with the reason.
        """
        table = canonical_uri(self.table) if self.table else None
        if not self.is_readable:
            return repair(
                self.ledger,
                self.damage,
                self.account if self.account is not None and self.account.has_batch else None,
                table=table,
                deployment=self.deployment,
                is_sink_named=self.sink_uri is not None,
                checkpoint=_read(self.checkpoint),
            )
        state, name, staging = self.ledger.state, self.ledger.folder.name, self.ledger.storage.uri
        if state.phase == "empty" and self.account is None and self.sink_uri and table:
            raise ConfigurationError(
                f"stream {name!r} has no ledger in {staging}, and nothing was done: the commits of "
                f"{self.sink_uri} name no batch of the stream, and its newest transaction does not match a "
                "checkpoint. If log cleanup removed the commits, name the checkpoint (--checkpoint FILE, or "
                "--airflow). Otherwise restore a copy of the staging folder, or load everything into an empty "
                "sink under another stream name",
                reason=Reason.RECOVERY_REFUSED,
            )
        if state.phase == "empty" and (self.account is None or table is None):
            raise ConfigurationError(
                f"stream {name!r} has no ledger in {staging}, and nothing was done. If staging is another folder, "
                "name it; if it was lost, name the sink and the source: --sink URI --table URI",
                reason=Reason.RECOVERY_REFUSED,
            )
        if self.account is None:
            return None
        return recovery(
            self.ledger,
            self.account,
            table=table or state.table,
            deployment=state.deployment or self.deployment,
            why=self.why,
        )

    def perform(self, change: PreparedAction | Repair, actor: Actor, request_id: str | None = None) -> str:
        """Apply the change to the ledger, and return a sentence with the outcome.

        Args:
            change: As :meth:`prepare` returns it.
            actor: Who asks. The deployment is that of the stream.
            request_id: Name of the request.
        """
        reach("recover.before")
        if isinstance(change, Repair):
            return change.perform(self.ledger, actor)
        return perform(self.ledger, change, actor, request_id)

    def owner_of(self, change: PreparedAction | Repair) -> str:
        """Return the deployment that the stream belongs to after the change."""
        if isinstance(change, Repair):
            return change.created.deployment
        return self.ledger.state.deployment or self.deployment


def survey(
    ledger: Ledger,
    why: str,
    *,
    open_table: Callable[[str], Storage],
    grant_database: Callable[[str | None], object] = lambda _conn_id: None,
    deployment: str,
    sink_uri: str | None = None,
    table: str | None = None,
    checkpoint: ReadableCheckpoint | None = None,
) -> RecoverySurvey:
    """Read what ledger and sink record of a stream.

    Args:
        ledger: The stream's ledger, not read yet.
        why: The reason; it stays in the history.
        open_table: Opens a sink that is a Delta table.
        grant_database: Lets this process open the database of a connection.
        deployment: The installation that a stream without a ledger will belong to.
        sink_uri: The sink, as ``SinkBinding.target``; ``None``: the one in the ledger.
        table: The source, for a stream without a ledger.
        checkpoint: Where the checkpoint is.

    Raises:
        UnreadableEntryError: A newer FDS wrote an entry.
    """
    damage, name = inspect(ledger), ledger.folder.name
    lines: list[str] = []
    is_readable = True
    try:
        state = ledger.find()
    except UnreadableEntryError as error:
        if error.is_newer:
            raise
        is_readable = False
        bound, uuid = known_sink(damage), known_uuid(damage)
        lines.append("ledger:     cannot be read")
    else:
        bound, uuid = state.sink, state.uuid or None
        position = state.position or (state.closed.position if state.closed is not None else None)
        lines.append(
            "ledger:     none"
            if state.phase == "empty"
            else f"ledger:     entry {ledger.n}, epoch {state.epoch}, {describe_position(position)}"
        )
    lines += [f"            {line}" for line in damage.describe()]
    if is_readable and any(one.n > damage.begun_again for one in damage.unreadable):
        lines.append("            a fold of a later entry has its effect: only its line in the history is lost")
    account = None
    if sink_uri:
        bound = SinkBinding.of_target(sink_uri)
    if bound is not None and (record := record_of(bound, open_table, grant_database)) is not None:
        account = record.of_stream(name, uuid)
        is_lost = is_readable and ledger.state.phase == "empty"
        if account is None and is_lost and (found := _read(checkpoint)) is not None:
            account = record.of_checkpoint(found)
        lines.append(f"sink:       {account.describe() if account is not None else 'has no batch of this stream'}")
    return RecoverySurvey(
        ledger, damage, is_readable, account, tuple(lines), checkpoint, sink_uri, table, deployment, why
    )


def fits(store: ReadableCheckpoint, ledger: Ledger) -> bool:
    """Whether the checkpoint is absent or consistent with the ledger."""
    try:
        found = store.read()
        if found is not None:
            ledger.load(found)
    except CheckpointError:
        return False
    return True


def _read(store: ReadableCheckpoint | None) -> Checkpoint | None:
    try:
        return None if store is None else store.read()
    except CheckpointError:
        return None
