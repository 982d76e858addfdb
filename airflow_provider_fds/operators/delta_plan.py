"""``DeltaPlanOperator``: plan the next batch of a stream, for your own job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException, BaseOperator

from airflow_provider_fds.errors import ConfigurationError, StreamBusyError
from airflow_provider_fds.hooks.failures import task_failures, with_staging_of
from airflow_provider_fds.hooks.rendering import ValueTemplates
from airflow_provider_fds.operators.lineage.emits_lineage import EmitsLineage
from airflow_provider_fds.operators.lineage.outlets import add_checkpoint_inlet
from airflow_provider_fds.operators.links import ShowsLinks
from airflow_provider_fds.operators.task.on_busy import BusyPolicy, give_way
from airflow_provider_fds.operators.task.wiring import begun_before, check_wiring, commits_of
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.stream import DeltaStream

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream.connected_stream import ConnectedStream


class DeltaPlanOperator(ValueTemplates, ShowsLinks, EmitsLineage, BaseOperator):
    """Plans the next batch of a stream and passes it as strings to your own load job.

    The batch is a Delta table: ``spark.read.format("delta").load(manifest)`` returns the new rows.

    Contract:
        - The batch belongs to this DAG run alone until the run has ended.
        - This task does not move the offset. :class:`DeltaCommitOperator` does, and only if every task between the two
          has succeeded. A run that fails in between leaves the batch to the next run, with the same rows and the same
          transaction.
        - If nothing is new, or the stream is finished, this task and its downstream tasks are skipped.

    Result:
        The XCom has one key per value, all strings: ``batch`` (for ``current_batch(spark)`` in the job), ``manifest``,
        ``txn_app_id``, ``txn_version``, ``stream``, ``uuid``, ``epoch``, ``batch_id``, ``start`` (exclusive), ``end``
        (inclusive), ``first_version``, ``last_version`` (both inclusive), ``num_files``, ``num_bytes``, ``num_rows``
        (``""`` if the log does not say), ``where`` (``""`` without one), ``token`` (names this attempt to load the
        batch: the same for all tries of the load, another one once the plan has been cleared), ``py_files`` (``""``
        without ``ship_modules``). ``plan.output["manifest"]`` is the key
        ``manifest``; pass ``plan.output`` as a whole to the commit.

    Filter:
        With ``where`` on the stream, ``current_batch(spark).dataframe()`` returns only the rows that satisfy it. A job
        that loads the manifest itself filters by the key ``where``, a predicate in Spark's SQL.

    Change feed:
        A commit that both adds and removes rows is one batch, even if it exceeds the limits, because the job may apply
        the rows by key. ``whole_commits=False`` on the stream lets the limits cut such a commit, for a job that only
        appends.

    Clearing:
        Clear the plan with its downstream tasks. A plan that is cleared without its load hands out the batch that the
        load has already loaded. If that batch was discarded (``fds replan``), the plan task fails, because no task
        would load a new one.

    Misuse:
        A job that overwrites, or that does not use ``txn_app_id`` and ``txn_version`` (Delta's write options
        ``txnAppId``, ``txnVersion``), loads a batch again when it is retried after its write.

    Args:
        stream: The stream, or a dict of its arguments.
        on_busy: What to do while another run still owns the next batch: ``"skip"``, ``"wait"`` or ``"fail"``.
        ship_modules: Put the zip with FDS's modules for the driver into staging, and its URI into the key ``py_files``,
            for a job in a cluster that cannot read the worker's files.

    Examples:
        >>> from airflow_provider_fds import DeltaPlanOperator, DeltaStream
        >>> orders = DeltaStream("orders_user_job", table="s3://lake/orders")
        >>> plan = DeltaPlanOperator(task_id="plan", stream=orders)
        >>> plan.output["manifest"].key
        'manifest'
    """

    template_fields: Sequence[str] = ("stream",)
    ui_color = "#d9f2e6"

    def __init__(
        self,
        *,
        stream: DeltaStream | Mapping[str, Any],
        on_busy: BusyPolicy = "skip",
        ship_modules: bool = False,
        **kwargs: Any,
    ) -> None:
        DeltaStream.refuse_others(stream)
        kwargs.setdefault("multiple_outputs", True)
        super().__init__(**kwargs)
        self.stream = stream
        add_checkpoint_inlet(self, stream)
        self.on_busy = on_busy
        self.ship_modules = ship_modules

    def execute(self, context: Any) -> dict[str, str]:
        """Plan one batch and return it. Raises ``AirflowSkipException`` if there is nothing new."""
        from airflow_provider_fds.hooks.data_interval import refuse_backfill, refuse_intervals
        from airflow_provider_fds.hooks.stats import sending_status
        from airflow_provider_fds.operators.run.batch_message import batch_message
        from airflow_provider_fds.operators.run.sessions import session_context
        from airflow_provider_fds.stream.run.session import StreamSession

        ti = context["ti"]
        self.show_links({})
        with task_failures(context, self.stream):
            # stored so that map_index_template can use {{ task.stream.name }} even for a dict from an XCom
            self.stream = stream = DeltaStream.coerce(self.stream)
            refuse_intervals(stream, "DeltaPlanOperator")
            refuse_backfill(context, stream)
            if stream.expectations is not None:
                raise ConfigurationError(
                    f"Stream {stream.name!r} has expectations, but DeltaPlanOperator hands its rows to a job of your "
                    "own, which FDS cannot test. Omit expect, or use DeltaIngestOperator.",
                    table=stream.table,
                )
            between: set[str] = set()
            for commit in commits_of(self.dag, self.task_id):
                between |= check_wiring(self.dag, self.task_id, commit)
            session = StreamSession(stream, session_context(context, stream, None, is_three_task=True))
            if (stale := begun_before(ti, between)) and not session.has_batch():
                raise ConfigurationError(
                    f"Stream {stream.name!r}: {ti.task_id!r} would hand out a new batch, but tasks of this run "
                    f"that should load it started earlier ({stale}). The commit would move the offset past rows "
                    f"that were never loaded, so nothing was planned. Clear {ti.task_id!r} with its downstream "
                    "tasks.",
                    table=stream.table,
                    reason=Reason.BATCH_NOT_LOADED,
                )
            try:
                with sending_status(session, context), self.showing_links(session, None):
                    work = session.begin(None, max_batches=1, user_job=True, retry=ti.try_number > 1)
            except StreamBusyError as busy:
                give_way(self.on_busy, busy)
        if work.warning is not None:
            self.log.warning("The stream stops after this batch: %s", work.warning)
        if work.status == "done":
            raise AirflowSkipException("This run has already committed its batch; there is nothing to load.")
        if work.reason or work.status != "work":
            # finished, in quarantine or held; or up to date
            message = work.reason or f"Nothing new in table {stream.table} for stream {stream.name!r}."
            if (note := session.option_notes()) is not None:
                message = f"{message} {note}"
            raise AirflowSkipException(with_staging_of(message, stream))
        batch = session.scope.specs(work.batches)[0]
        self.log.info(
            "Batch %d of stream %s: versions %d to %d, %d files, manifest %s",
            batch.batch_id,
            batch.stream,
            batch.first_version,
            batch.last_version,
            batch.num_files,
            batch.manifest,
        )
        with task_failures(context, stream):
            py_files = self._shipped_modules(session.connected)
        return batch_message(
            batch,
            stream,
            reports=session.scope.reports_location,
            owner=session.connected.context.owner,
            task_id=ti.task_id,
            map_index=ti.map_index,
            try_number=ti.try_number,
            py_files=py_files,
        )

    def _shipped_modules(self, connected: ConnectedStream) -> str:
        """Return the URI of the driver's modules in staging, ``""`` if the job does not need them there."""
        if not self.ship_modules:
            return ""
        from airflow_provider_fds.backends.staged_files import ship
        from airflow_provider_fds.spark.submission.driver_zip import driver_zip

        return ship(connected.staging, str(driver_zip()))

    def _lineage_ends(self) -> tuple[DeltaStream, Sink | None]:
        return DeltaStream.coerce(self.stream), None
