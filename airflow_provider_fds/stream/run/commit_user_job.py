"""The commit of a batch that a user job has loaded (docs/design/ledger.md, "A user job")."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.batch.spec import USER_JOB_PREFIX
from airflow_provider_fds.batch.transactions import txn_app_id, txn_version
from airflow_provider_fds.errors import ConfigurationError, LedgerError, VerificationError
from airflow_provider_fds.ledger.entries.commit_entries import Blocked, Committed
from airflow_provider_fds.ledger.measures import Measures
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.stream.attempt.reports import reports_about
from airflow_provider_fds.stream.position.source_unchanged import check_range_unchanged
from airflow_provider_fds.stream.sink_record.function_tables import read_table_writes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_provider_fds.ledger.owner import Owner
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.ledger.values import PlannedBatch
    from airflow_provider_fds.sinks import DeltaSink
    from airflow_provider_fds.stream.connected_stream import ConnectedStream

_NEEDED = ("uuid", "epoch", "batch_id", "digest")

#: The name that all attempts of a user job have in the ledger.
_ATTEMPT = "user-job"


def commit_user_job(
    connected: ConnectedStream,
    batch: Mapping[str, str],
    *,
    verify: DeltaSink | None = None,
    on_committed: Callable[[Committed, int], None],
) -> Owner:
    """Move the offset past a batch that the user job reports as loaded.

    Args:
        connected: The stream.
        batch: The values handed out by the plan: ``uuid``, ``epoch``, ``batch_id``, ``digest``; all strings.
        verify: A Delta table that must hold exactly the transaction of this batch.
        on_committed: Called with the entry and the number of batches, unless the batch was committed before.

    Returns:
        The owner of the batch: the run, identified by its plan task.

    Raises:
        ConfigurationError: A value is missing in ``batch``.
        LedgerError: The batch is not the next one, or does not belong to this run.
        VerificationError: The sink has another transaction, or the source's log no longer matches the plan.
    """
    missing = [key for key in _NEEDED if not batch.get(key)]
    if missing:
        raise ConfigurationError(
            f"the batch to commit lacks {', '.join(missing)}; it must be the output of DeltaPlanOperator "
            "(`batch=plan.output`)"
        )
    state = connected.load_to_work()
    epoch, batch_id = int(batch["epoch"]), int(batch["batch_id"])
    if state.uuid != batch["uuid"]:
        raise LedgerError(
            f"stream {connected.stream.name!r} {f'has uuid {state.uuid}' if state.uuid else 'has no ledger'}, but "
            f"the batch belongs to uuid {batch['uuid']}: the stream was created again, or this is another staging "
            "folder. Plan again",
            reason=Reason.BATCH_NOT_PLANNED,
        )
    if state.epoch == epoch and batch_id < state.first_uncommitted:
        return _owner_of(connected, state)  # an earlier attempt of this task has already committed it
    planned = next((b for b in state.planned if b.batch_id == batch_id), None) if state.epoch == epoch else None
    if planned is None or planned.digest != batch["digest"]:
        raise LedgerError(
            f"stream {connected.stream.name!r}: batch {batch_id} of epoch {epoch} is no longer planned: the stream is "
            f"in epoch {state.epoch}, and its next batch is {state.first_uncommitted}. Run the plan again",
            reason=Reason.BATCH_NOT_PLANNED,
        )
    owner = _owner_of(connected, state)
    if (changed := check_range_unchanged(connected.log, planned)) is not None:
        _block(connected, Blocked(epoch=epoch, batch_id=batch_id, owner=owner, attempt_id=_ATTEMPT, reason=changed))
    if verify is not None:
        _verify_transaction(connected, verify, txn_app_id(state.uuid), txn_version(epoch, batch_id))
    committed = Committed(
        epoch=epoch,
        batch_id=batch_id,
        owner=owner,
        attempt_id=_ATTEMPT,
        outcome="user_job",
        digest=planned.digest,
        rows=_reported_rows(connected, planned),
        # only the job knows how many rows it wrote; the log knows how many it was given
        measures=Measures(rows_read=planned.num_rows),
    )
    connected.execute(committed)
    on_committed(committed, 1)
    return owner


def _reported_rows(connected: ConnectedStream, planned: PlannedBatch) -> int | None:
    """Return the rows that the job's last report says it wrote, or ``None`` without a report."""
    found = reports_about(connected.ledger, connected.state.epoch, planned, USER_JOB_PREFIX)
    report = next(found, None)
    return None if report is None else report.rows_written


def _block(connected: ConnectedStream, command: Blocked) -> None:
    """Block the batch and raise; return if a person has already accepted exactly this."""
    if connected.execute(command).blocked is None:
        return
    raise VerificationError(
        f"stream {connected.stream.name!r}, batch {command.batch_id}: {command.reason}. The offset does not move "
        "until this is resolved: compare what the job loaded with the source, then run `fds accept "
        f"{connected.stream.name} --batch {command.batch_id} --why …`",
        table=connected.log.table_uri,
    )


def _owner_of(connected: ConnectedStream, state: StreamState) -> Owner:
    """Return this run as an owner: its plan task plans the batch that another of its tasks commits."""
    asking = connected.context.owner
    run = state.run
    if run is not None and run.owner.is_three_task:
        owner = run.owner
        if (owner.deployment, owner.dag_id, owner.run_id, owner.map_index) == (
            asking.deployment,
            asking.dag_id,
            asking.run_id,
            asking.map_index,
        ):
            return owner
    return asking


def _verify_transaction(connected: ConnectedStream, sink: DeltaSink, app_id: str, wanted: int) -> None:
    storage = connected.open_sink(sink.table_uri)
    found = read_table_writes(storage, app_id).newest
    if found is None or found.transaction != wanted:
        transaction = None if found is None else found.transaction
        raise VerificationError(
            f"the sink {storage.uri} has {transaction} as the newest transaction of application {app_id}, "
            f"expected exactly {wanted}: the job did not write the batch, or wrote it without .option('txnAppId', "
            "…) and .option('txnVersion', …) from the plan. The offset does not move",
            table=storage.uri,
        )
    if found.place != "there":
        # a transaction survives a RESTORE, its rows do not
        raise VerificationError(
            f"the sink {storage.uri} has the batch in its history, but was restored or replaced after version "
            f"{found.version}, so its rows may be missing. The offset does not move; check the sink, and write the "
            "batch again or restore the rows",
            table=storage.uri,
            version=found.version,
        )
