"""Recovers a stream whose ledger was lost or is older than its sink, from the position in the sink.

Each commit of FDS in a sink names its stream, its batch and where the batch ends (``userMetadata``), so the sink has
the position of a stream even if nothing else does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import msgspec
from msgspec import UNSET

from airflow_provider_fds.batch.column_meaning import column_ids
from airflow_provider_fds.batch.sink.sink_account import kept
from airflow_provider_fds.batch.transactions import fence_version, txn_app_id, txn_version
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.reader.replay import transactions
from airflow_provider_fds.errors import ConfigurationError, FdsError, TableNotFoundError
from airflow_provider_fds.ledger.entries.epoch_entries import Created
from airflow_provider_fds.ledger.entries.request_entries import Requested
from airflow_provider_fds.ledger.state import newest_transaction
from airflow_provider_fds.ledger.values import Recovered, SinkBinding, SinkNames
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.source.offset import Offset, describe_position
from airflow_provider_fds.stream.actions.prepared_action import PreparedAction
from airflow_provider_fds.stream.sink_record.sink_commits import sink_commit
from airflow_provider_fds.stream.sink_record.sink_traces import LOST_INTERVALS

if TYPE_CHECKING:
    from airflow_provider_fds.batch.sink.sink_commit import SinkCommit
    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.ledger.position import Checkpoint
    from airflow_provider_fds.ledger.staging.log import Ledger
    from airflow_provider_fds.ledger.state import StreamState


@dataclass(frozen=True, slots=True)
class SinkAccount:
    """What a sink records about a stream.

    Attributes:
        uri: The sink.
        uuid: The stream's uuid.
        epoch: Newest epoch with a batch or a fence in the sink.
        batch_epoch: Epoch of the newest batch.
        batch_id: Its id.
        end: Its end (inclusive), offset JSON; empty if the stream is only registered in the sink, and has no batch.
        digest: Digest of its manifest.
        version: Version of the sink that holds it, -1 if log cleanup removed that commit.
        kind: Kind of the sink that wrote it.
        names: The sink's columns in that version, or in its newest; ``None`` if its schema cannot be read.
        broke_at: Version of a later RESTORE, REPLACE or CLONE, or of a fence that removed rows; ``None`` if there was
            none.
        namesake: UUID of another stream of this name in the sink; ``None`` if there is none, or if the caller has
            chosen the stream by its uuid.
    """

    uri: str
    uuid: str
    epoch: int
    batch_epoch: int
    batch_id: int
    end: str
    digest: str
    version: int
    kind: str = "delta_append"
    broke_at: int | None = None
    names: SinkNames | None = None
    namesake: str | None = None

    @property
    def has_batch(self) -> bool:
        """Whether the sink has a batch of the stream."""
        return bool(self.end)

    def describe(self) -> str:
        """Return the account in words."""
        if not self.has_batch:
            return f"no batch of the stream, which is registered there with uuid {self.uuid}"
        where = f"in version {self.version}" if self.version >= 0 else "(log cleanup removed its commit)"
        return f"batch {self.batch_id} of epoch {self.batch_epoch} {where}, up to {describe_position(self.end)}"


def ask_sink(storage: Storage, stream: str, uuid: str | None = None) -> SinkAccount | None:
    """Return what a sink records about a stream, or ``None`` if nothing; reads its whole log.

    Args:
        storage: The sink's folder.
        stream: Name of the stream.
        uuid: Its uuid, if known; then another stream of the same name is ignored.

    Raises:
        ConfigurationError: The stream reads data intervals.
    """
    log = DeltaLog(storage)
    try:
        newest = log.latest()
    except TableNotFoundError:
        return None
    commits = [sink_commit(commit) for commit in log.commits(log.earliest(), newest)]
    own = [commit for commit in commits if _is_of(commit, stream, uuid)]
    interval = next((commit for commit in own if "interval" in (commit.metadata or {})), None)
    if interval is not None:
        refuse_intervals(stream, interval.version, (interval.metadata or {})["interval"], log.table_uri)
    batches = [commit for commit in own if "batch_id" in (commit.metadata or {})]
    if not batches:
        return None
    # a stream of the same name may have been started anew; the newest one counts
    uuid = str((batches[-1].metadata or {})["uuid"])
    uuids = (str((commit.metadata or {})["uuid"]) for commit in reversed(batches))
    namesake = next((other for other in uuids if other != uuid), None)
    own = [commit for commit in own if (commit.metadata or {})["uuid"] == uuid]
    batches = [commit for commit in batches if commit in own]
    account = kept(commits, txn_app_id(uuid))
    there = [commit for commit in batches if account.place(commit.version) == "there"]
    newest_batch = there[-1] if there else batches[-1]
    broke_at = None if there else account.undone_at(newest_batch.version)
    for commit in own:
        removes = (commit.metadata or {}).get("removes")
        if commit.version > newest_batch.version and isinstance(removes, dict) and "to" not in removes:
            # an epoch without a batch has removed rows, which must be read again
            broke_at = commit.version
    found, version = newest_batch.metadata or {}, newest_batch.version
    epoch = max(int((commit.metadata or {})["epoch"]) for commit in own)
    return SinkAccount(
        uri=log.table_uri,
        uuid=found["uuid"],
        epoch=epoch,
        batch_epoch=int(found["epoch"]),
        batch_id=int(found["batch_id"]),
        end=found["end"],
        digest=found["digest"],
        version=version,
        kind=found.get("sink", "delta_append"),
        broke_at=broke_at,
        names=_names(log, found["end"], version),
        namesake=namesake,
    )


def refuse_intervals(stream: str, version: int, interval: str, uri: str) -> NoReturn:
    """Refuse to recover a stream of which a sink has a data interval."""
    raise ConfigurationError(
        f"stream {stream!r} reads data intervals (version {version} of the sink {uri} "
        f"has {interval}), so it has no offset that could be recovered. Restore the "
        f"staging folder from a copy, or {LOST_INTERVALS}",
        reason=Reason.RECOVERY_REFUSED,
    )


def _names(log: DeltaLog, end: str, version: int) -> SinkNames | None:
    try:
        schema = log.state_at(version).metadata.schemaString
    except FdsError:
        return None
    paths = column_ids(msgspec.json.decode(schema)) if schema else ()
    return SinkNames(end=end, version=version, paths=tuple(paths))


def _is_of(commit: SinkCommit, stream: str, uuid: str | None) -> bool:
    told = commit.metadata or {}
    return told.get("stream") == stream and (uuid is None or told.get("uuid") == uuid)


def ask_checkpoint(storage: Storage, checkpoint: Checkpoint) -> SinkAccount | None:
    """Return the account of a sink without FDS commits, if its newest transaction is the checkpoint's batch.

    Args:
        storage: The sink's folder.
        checkpoint: The checkpoint of a stream whose ledger was lost.
    """
    if checkpoint.batch_id is None or checkpoint.offset is None:
        return None
    log, app_id = DeltaLog(storage), txn_app_id(checkpoint.uuid)
    try:
        newest = log.latest()
        found = transactions(log, newest, [app_id]).get(app_id)
    except TableNotFoundError:
        return None
    if found != txn_version(checkpoint.epoch, checkpoint.batch_id):
        return None
    return SinkAccount(
        uri=log.table_uri,
        uuid=checkpoint.uuid,
        epoch=checkpoint.epoch,
        batch_epoch=checkpoint.epoch,
        batch_id=checkpoint.batch_id,
        end=checkpoint.offset,
        digest="",
        version=-1,
        names=_names(log, checkpoint.offset, newest),
    )


def check_account(name: str, account: SinkAccount, *, has_snapshot: bool = False) -> None:
    """Check that a sink's account determines the position of a stream.

    Args:
        name: Name of the stream.
        account: The sink's account.
        has_snapshot: Whether the frozen snapshot that the position may be in exists.

    Raises:
        ConfigurationError: It does not.
    """
    if account.broke_at is not None:
        raise ConfigurationError(
            f"stream {name!r}: the sink {account.uri} was restored or replaced at version {account.broke_at}, or "
            f"a fence removed rows there, after {account.describe()}: its commits do not say which rows it has. "
            "Find the last batch that it has, and rewind the stream to the next one",
            reason=Reason.RECOVERY_REFUSED,
        )
    if Offset.from_json(account.end).is_initial_snapshot and not has_snapshot:
        raise ConfigurationError(
            f"stream {name!r}: {account.describe()} is within the initial snapshot, whose frozen file list was in "
            "the staging folder. Without it the snapshot must be loaded again into an empty sink: start a stream "
            "with another name",
            reason=Reason.RECOVERY_REFUSED,
        )


def recovery(ledger: Ledger, account: SinkAccount, *, table: str, deployment: str, why: str) -> PreparedAction | None:
    """Work out how the stream continues after what its sink has, or ``None`` if the ledger is as recent.

    Args:
        ledger: The stream's ledger, read to its head; it may be empty.
        account: The sink's account.
        table: URI of the source table.
        deployment: The deployment that a stream without a ledger will belong to.
        why: The reason; it stays in the history.

    Raises:
        ConfigurationError: The sink's account does not determine the position.
    """
    state = ledger.state
    if not account.has_batch:
        return None if state.phase != "empty" else _registered(ledger, account, table, deployment)
    end = Offset.from_json(account.end)
    snapshot = state.snapshot if state.closed is None else state.closed.snapshot
    check_account(ledger.folder.name, account, has_snapshot=snapshot is not None and snapshot.version == end.version)
    after = f"epoch {max(account.epoch, state.epoch) + 1}, continues at {describe_position(account.end)}"
    notes = [f"The sink {account.uri} has {account.describe()}."]
    if account.version < 0:
        notes.append(
            "Its log no longer shows whether it was restored or overwritten since then: compare it with the source."
        )
    if account.namesake is not None:
        notes.append(
            f"Another stream of this name, uuid {account.namesake}, has written there, too. Uuid {account.uuid} has "
            "loaded last and is recovered: continue only if it was this one's ledger that was lost."
        )
    if account.epoch > max(account.batch_epoch, state.epoch):
        # a fence does not say where its epoch begins
        notes.append(
            f"Epoch {account.epoch} began later and has no batch in the sink. If it was requested to read rows again, "
            "request that again: `fds rewind`."
        )
    if state.phase == "empty":
        sink = SinkBinding(kind=account.kind, target=account.uri, app_ids=(txn_app_id(account.uuid),))
        command = Created(
            uuid=account.uuid,
            name=ledger.folder.name,
            table=table,
            deployment=deployment,
            recovered=Recovered(epoch=account.epoch, position=account.end, sink=sink, names=account.names or UNSET),
        )
        return PreparedAction(ledger.folder.name, (command,), "no ledger", after, tuple(notes))
    is_known = _is_known(state, account)
    asked = None if state.request is None or state.request.to is None else state.request.to.get("offset")
    if state.request is not None and state.request.reason == "recover" and asked is not None:
        # the sink may have had fewer batches when it was asked before, so only the position counts, not the epochs
        place = Offset.from_json(asked)
        is_known = end.table_id == place.table_id and end <= place
    if asked == account.end or is_known:
        return None
    request = Requested(
        epoch=account.epoch + 1,
        reason="recover",
        why=why,
        to={"offset": account.end},
        closes=state.epoch,
        replaces=True,
        names=account.names or UNSET,
    )
    before = f"epoch {state.epoch}, {describe_position(state.position)}"
    return PreparedAction(ledger.folder.name, (request,), before, after, tuple(notes))


def _registered(ledger: Ledger, account: SinkAccount, table: str, deployment: str) -> PreparedAction:
    """Return the change that begins a stream again that has no batch: under its uuid, its late drivers are known."""
    name = ledger.folder.name
    sink = SinkBinding(kind=account.kind, target=account.uri, app_ids=(txn_app_id(account.uuid),))
    # a stream of data intervals has no fence, and the account keeps two drivers from writing one of them
    recovered = Recovered(epoch=account.epoch, position=None, sink=sink) if account.epoch else None
    created = Created(uuid=account.uuid, name=name, table=table, deployment=deployment, recovered=recovered)
    after = f"epoch {account.epoch + 1}, begins by the options of the stream"
    notes = (f"The sink {account.uri} has {account.describe()}.",)
    return PreparedAction(name, (created,), "no ledger", after, notes)


def _is_known(state: StreamState, account: SinkAccount) -> bool:
    """Whether the ledger has planned or committed the newest batch of the sink, in the open or the closed epoch."""
    epoch = state if state.phase == "open" else state.closed
    if epoch is None:
        return False
    if account.batch_epoch <= epoch.epoch and account.end == epoch.position:
        # of a stream that was recovered, the ledger has no batch
        return True
    known = newest_transaction(epoch) or fence_version(epoch.epoch)
    is_known = txn_version(account.batch_epoch, account.batch_id) <= known
    if account.batch_epoch != epoch.epoch:
        return is_known
    # an older ledger has planned another batch with that number
    return is_known and all(
        batch.digest == account.digest for batch in epoch.planned if batch.batch_id == account.batch_id
    )
