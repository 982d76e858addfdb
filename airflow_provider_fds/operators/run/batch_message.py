"""A planned batch as it travels from plan to load to commit: a flat dict of strings in an XCom."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from airflow_provider_fds.batch.spec import UserJobBatch
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from airflow_provider_fds.batch.spec import BatchSpec
    from airflow_provider_fds.ledger.owner import Owner
    from airflow_provider_fds.stream import DeltaStream


def batch_message(
    batch: BatchSpec,
    stream: DeltaStream,
    *,
    reports: str,
    owner: Owner,
    task_id: str,
    map_index: int,
    try_number: int,
    py_files: str,
) -> dict[str, str]:
    """Return the batch as strings, one per XCom key; ``""`` means unknown.

    All values are strings because the Spark provider joins an application's arguments as strings. The dict is flat
    because ``plan.output["a"]["b"]`` silently means the key ``b``. The key ``batch`` alone contains everything that a
    job needs.

    Args:
        batch: The batch.
        stream: Its stream.
        reports: URI of the folder for reports.
        owner: The run that planned it.
        task_id: The task that planned it.
        map_index: That task's map index.
        try_number: Which try of that task.
        py_files: URI of the driver's modules, ``""`` if they are not in staging.
    """
    return {
        "batch": UserJobBatch(batch, reports).to_json(),
        "manifest": batch.manifest,
        "digest": batch.manifest_digest,
        "txn_app_id": batch.txn_app_id,
        "txn_version": str(batch.txn_version),
        "stream": batch.stream,
        "uuid": batch.uuid,
        "epoch": str(batch.epoch),
        "batch_id": str(batch.batch_id),
        "start": batch.start,
        "end": batch.end,
        "first_version": str(batch.first_version),
        "last_version": str(batch.last_version),
        "num_files": str(batch.num_files),
        "num_bytes": str(batch.num_bytes),
        "num_rows": "" if batch.num_rows is None else str(batch.num_rows),
        "where": batch.where or "",
        "stream_definition": json.dumps(stream.to_dict(), sort_keys=True),
        "plan_task_id": task_id,
        "plan_map_index": str(map_index),
        "token": _token(batch, owner, task_id, map_index, try_number),
        "py_files": py_files,
    }


def _token(batch: BatchSpec, owner: Owner, *attempt: str | int) -> str:
    """Return the name of this attempt to hand out the batch, for services that start one job per name.

    All tries of a load have the same. A plan that is cleared, or another run that takes the batch over, has another:
    a service that has run a job to its failure would answer with that job forever.

    The characters and the length are those that all services accept.
    """
    names = [batch.txn_app_id, batch.txn_version, owner.deployment, owner.dag_id, owner.run_id, *attempt]
    return f"fds-{hashlib.sha256(json.dumps(names).encode()).hexdigest()[:32]}"


def stream_of(batch: object) -> DeltaStream:
    """Return the stream that a batch belongs to.

    Raises:
        ConfigurationError: ``batch`` is not the output of a DeltaPlanOperator.
    """
    from airflow_provider_fds.stream import DeltaStream

    if not isinstance(batch, dict) or "stream_definition" not in batch or "plan_task_id" not in batch:
        raise ConfigurationError(
            f"batch must be the whole output of a DeltaPlanOperator (batch=plan.output), got {batch!r}. If the "
            "plan was skipped, there is no batch and this task must be skipped too: keep its trigger rule at "
            "all_success.",
            reason=Reason.WIRING_INVALID,
        )
    return DeltaStream.from_dict(json.loads(batch["stream_definition"]))
