"""``DeltaPlanOperator``: plan the next batch of a stream, for a job of one's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException, BaseOperator

from airflow_provider_fds.errors import ConfigurationError, StreamBusyError
from airflow_provider_fds.hooks.backfill import refuse_backfill, refuse_intervals
from airflow_provider_fds.hooks.failures import task_failures, with_staging_of
from airflow_provider_fds.hooks.rendering import ValueTemplates
from airflow_provider_fds.operators.batch_message import batch_message
from airflow_provider_fds.operators.on_busy import BusyPolicy, give_way
from airflow_provider_fds.operators.sessions import open_session
from airflow_provider_fds.operators.wiring import begun_before, check_wiring, commits_of
from airflow_provider_fds.stream import DeltaStream

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class DeltaPlanOperator(ValueTemplates, BaseOperator):
    """Plans the next batch of a stream and hands it on as texts, for a load job of one's own.

    The batch is a Delta table: ``spark.read.format("delta").load(manifest)`` gives the rows that are new. It is
    handed to this DAG run alone until the run has ended. The offset does not move here but in
    :class:`DeltaCommitOperator`, and only if every task between the two has succeeded; a run that fails in between
    leaves the batch to the next one, with the same rows and the same transaction.

    **XCom.** One key each, all texts: ``batch`` (for ``current_batch(spark)`` in the job), ``manifest``,
    ``txn_app_id``, ``txn_version``, ``stream``, ``uuid``, ``epoch``,
    ``batch_id``, ``start`` (exclusive), ``end`` (inclusive), ``first_version``, ``last_version`` (both inclusive),
    ``num_files``, ``num_bytes``, ``num_rows`` (``""`` if the log does not say). ``plan.output["manifest"]`` is the
    key ``manifest``; ``plan.output`` as a whole is what the commit takes.

    **If it is misused.** A job that does not use ``txn_app_id`` and ``txn_version`` (Delta's write options
    ``txnAppId``, ``txnVersion``) or an overwrite of its own loads a batch again when it is retried after its write.

    **Change feed.** A commit that both adds and removes rows is one batch, because the job may apply the rows by key;
    it may exceed the limits. ``whole_commits=False`` on the stream lets the limits cut it, for a job that only appends.

    **Clearing.** Clear the plan with its downstream tasks. A plan that is cleared without its load hands out the batch
    that the load has loaded; where that was given up (``fds replan``), it fails, because nobody would load another one.

    Nothing new is a skip, downstream included; so is a stream that is finished.

    Args:
        stream: The stream, or a dict of its arguments.
        on_busy: What to do while another run still owns the next batch: ``"skip"``, ``"wait"`` or ``"fail"``.

    Example:
        >>> from airflow_provider_fds import DeltaPlanOperator, DeltaStream
        >>> orders = DeltaStream("orders_user_job", table="s3://lake/orders")
        >>> plan = DeltaPlanOperator(task_id="plan", stream=orders)
        >>> plan.output["manifest"].key
        'manifest'
    """

    template_fields: Sequence[str] = ("stream",)
    ui_color = "#d9f2e6"

    def __init__(self, *, stream: DeltaStream | Mapping[str, Any], on_busy: BusyPolicy = "skip", **kwargs: Any) -> None:
        kwargs.setdefault("multiple_outputs", True)
        super().__init__(**kwargs)
        self.stream = stream
        self.on_busy = on_busy

    def execute(self, context: Any) -> dict[str, str]:
        """Plan one batch and return it. Raises ``AirflowSkipException`` if there is nothing new."""
        ti = context["ti"]
        with task_failures(self.stream):
            # kept, so that map_index_template may say {{ task.stream.name }} for a dict out of an XCom too
            self.stream = stream = DeltaStream.coerce(self.stream)
            refuse_intervals(stream, "DeltaPlanOperator")
            refuse_backfill(context, stream)
            between: set[str] = set()
            for commit in commits_of(self.dag, self.task_id):
                between |= check_wiring(self.dag, self.task_id, commit)
            session = open_session(context, stream, None, is_three_task=True)
            if (stale := begun_before(ti, between)) and not session.has_batch():
                raise ConfigurationError(
                    f"Stream {stream.name!r}: {ti.task_id!r} would hand out a new batch, and tasks of this run that "
                    f"should load it have begun before it ({stale}). The commit would move the offset past rows that "
                    f"nobody has loaded, so nothing was planned. Clear {ti.task_id!r} with its downstream tasks.",
                    table=stream.table,
                )
            try:
                work = session.begin(None, max_batches=1, user_job=True, retry=ti.try_number > 1)
            except StreamBusyError as busy:
                give_way(self.on_busy, busy)
        if work.warning is not None:
            self.log.warning("The stream stops after this batch: %s", work.warning)
        if work.status == "done":
            raise AirflowSkipException("This run has committed its batch already; there is nothing to load.")
        if work.reason:
            # finished, in quarantine or held
            raise AirflowSkipException(with_staging_of(work.reason, stream))
        if work.status != "work":
            raise AirflowSkipException(f"Nothing new in table {stream.table} for stream {stream.name!r}.")
        batch = session.batch_specs(work)[0]
        self.log.info(
            "Batch %d of stream %s: versions %d to %d, %d files, manifest %s",
            batch.batch_id,
            batch.stream,
            batch.first_version,
            batch.last_version,
            batch.num_files,
            batch.manifest,
        )
        return batch_message(
            batch, stream, reports=session.reports_location(), task_id=ti.task_id, map_index=ti.map_index
        )
