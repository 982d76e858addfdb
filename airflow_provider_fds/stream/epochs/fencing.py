"""The fence of a requested epoch: the Spark job that closes the earlier epochs in the sink, and its report."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.batch.report import FenceReport, fence_report_name
from airflow_provider_fds.batch.spec import FenceSpec, JobSpec
from airflow_provider_fds.batch.transactions import fence_version, txn_app_id
from airflow_provider_fds.errors import (
    BatchFailedError,
    LedgerError,
)
from airflow_provider_fds.ledger.values import Fence
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sinks import DeltaAppendSink, DeltaSink, ForeachBatchSink
from airflow_provider_fds.stream.attempt.batch_failure import failure_kind
from airflow_provider_fds.stream.attempt.reports import decoded, new_attempt_id, put_job, refused
from airflow_provider_fds.stream.attempt.result import Collected, RunWork
from airflow_provider_fds.stream.epochs import opening
from airflow_provider_fds.stream.epochs.sink_before import foreign_fence_error, lacks_committed
from airflow_provider_fds.stream.position.source_unchanged import table_id_now
from airflow_provider_fds.stream.sink_record.function_tables import floor_of, read_tables
from airflow_provider_fds.stream.sink_record.sink_evidence import evidence_of_bound

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.ledger.values import SinkBinding
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream.connected_stream import ConnectedStream

logger = logging.getLogger(__name__)

#: Requests after which a stream continues at its position.
_KEEPING: Final = ("replan", "rebind", "sink_appeared")


def fence_work(state: StreamState, sink: Sink | None) -> RunWork:
    """Return the work of a run that must close the earlier epochs in the sink first.

    Raises:
        LedgerError: The run has no sink.
    """
    if sink is None:
        why = "" if state.request is None else f" by a {state.request.asked} ({state.request.why})"
        raise LedgerError(
            f"stream {state.name!r}: epoch {state.epoch} was requested{why}. Only a run with Spark and the sink "
            "can begin it, because it closes the earlier epochs there: run the stream's DAG, or `fds run`",
            table=state.table,
            reason=Reason.EPOCH_NOT_OPENED,
        )
    return RunWork("fence", state.epoch, attempt_id=new_attempt_id())


def put_fence_job(connected: ConnectedStream, work: RunWork, sink: Sink) -> str:
    """Write the job that closes the earlier epochs to staging and return the URI that Spark reads it from.

    Args:
        connected: The stream; an epoch is requested and needs a fence.
        work: The result of :func:`fence_work`.
        sink: The sink of the run. Its settings apply to the fence; its location may differ from the fenced one.

    Raises:
        LedgerError: Rows are to be removed by their version, and the source is now another table.
        SinkError: Rows are to be removed, and the run's sink is not the one that the stream is bound to.
    """
    state = connected.state
    assert state.fence_sink is not None  # noqa: S101  # what needs a fence has a sink
    assert state.closed is not None  # noqa: S101  # epoch 1 needs no fence
    if state.request is not None and state.request.removal is not None:
        # how rows are removed depends on the sink as the run declares it
        opening.check_binding(connected, sink)
    is_same = _target_of(connected, sink) == state.fence_sink.target
    spec = JobSpec(
        batches=(),
        sink=_fenced(connected, sink, state.fence_sink).to_dict(),
        sink_table_id=state.closed.sink_table_id,
        sink_version=_known_version(state),
        reports=connected.staging_location(connected.folder.attempts),
        attempt_id=work.attempt_id,
        fence=_fence_spec(connected, state, stays=is_same),
    )
    return put_job(connected, connected.folder.fence_jobs(work.epoch), spec)


def _known_version(state: StreamState) -> int | None:
    """Return the version of the sink up to which the requested epoch accounts for the stream's commits.

    That is the one of its last commit or fence, and after a recovery the one whose newest batch the epoch continues
    after: log cleanup may have removed the commits up to there.
    """
    known = None if state.closed is None else state.closed.sink_version
    names, to = state.sink_names, None if state.request is None else state.request.to
    if names is None or to is None or to.get("offset") != names.end:
        return known
    return max(known or 0, names.version)


def _fenced(connected: ConnectedStream, sink: Sink, bound: SinkBinding) -> Sink:
    """Return what is to be fenced, as Spark reaches it: the tables of a function, or a sink's one table."""
    if bound.is_function:
        return ForeachBatchSink(bound.target, writes=bound.tables).located(connected.spark_sink)
    if not bound.has_log:
        found = bound.sink()
        assert found is not None  # noqa: S101  # this version has bound it
        connected.context.grant_database(found.database_conn_id)
        return found
    if not isinstance(sink, DeltaSink):
        # the run's own sink is not a Delta table
        sink = DeltaAppendSink(bound.target)
    return sink.located(lambda _: connected.spark_sink(bound.target))


def _target_of(connected: ConnectedStream, sink: Sink) -> str:
    return sink.identity()["target"] if sink.table_uri is None else connected.sink_target(sink.table_uri)


def collect_fence(connected: ConnectedStream, work: RunWork) -> Collected:
    """Read the report of the attempt, and open the requested epoch if the earlier ones are closed in the sink."""
    report = fence_report(connected, work.epoch, work.attempt_id)
    if isinstance(report, BatchFailedError):
        return Collected(failure=report)
    state = connected.load()
    if state.phase == "requested" and state.epoch == work.epoch:
        opening.open_epoch(connected, state, fence=fence_of(report, state), report=report)
        for warning in connected.state.sink_warnings:
            logger.warning("stream %s: %s", state.name, warning)
    return Collected()


def _fence_spec(connected: ConnectedStream, state: StreamState, *, stays: bool) -> FenceSpec:
    is_kept = state.request is not None and state.request.reason in _KEEPING
    fence = FenceSpec(
        stream=state.name,
        uuid=state.uuid,
        epoch=state.epoch,
        keeps_position=is_kept and stays,
        committed=floor_of(state) if state.fence_sink is not None and state.fence_sink.is_function else None,
    )
    removal = None if state.request is None else state.request.removal
    if removal is None:
        return fence
    newest = connected.log.latest()
    found = table_id_now(connected.log)
    if removal.what == "rows" and state.table_id is not None and found != state.table_id:
        raise LedgerError(
            f"stream {state.name!r}: the rewind removes rows by their source version, but {state.table} is now "
            f"another table (its id is {found}; the stream read {state.table_id}). Nothing was removed. "
            f"`fds rewind {state.name} --to start --replace --sink-rows empty --why …` empties the sink and loads the "
            "current table.",
            table=state.table,
            reason=Reason.STREAM_TABLE_CHANGED,
        )
    return replace(
        fence,
        removes=removal.what,
        from_version=removal.from_version,
        is_forced=removal.is_forced,
        closed_at_ms=opening.commit_time(connected.log, newest) if removal.what == "all" else None,
    )


def fence_report(connected: ConnectedStream, epoch: int, attempt_id: str) -> FenceReport | BatchFailedError:
    """Read an attempt's report about a fence; return an error if the report is missing or the fence failed."""
    table = connected.stream.table
    what = f"stream {connected.stream.name!r}: closing the epochs before epoch {epoch} in the sink"
    key = f"{connected.folder.attempts}/{fence_report_name(epoch, attempt_id)}"
    try:
        data, _ = connected.staging.get(key)
    except FileNotFoundError:
        return BatchFailedError(
            f"{what} was not finished: Spark ended without a report. A retry repeats it",
            table=table,
            reason=Reason.SPARK_ENDED_EARLY,
        )
    try:
        report = decoded(FenceReport, data, connected, key)
        if (report.uuid, report.epoch, report.attempt_id) != (connected.state.uuid, epoch, attempt_id):
            raise refused(connected, key, "it belongs to another stream, epoch or attempt")
        sink = connected.state.fence_sink
        if sink is not None and sink.is_function:
            problem = _function_problem(connected, connected.state, report) if report.outcome != "failed" else None
            if problem is not None:
                raise refused(connected, key, problem)
        elif report.outcome == "fenced" and sink is not None:
            found = evidence_of_bound(connected, sink)
            request = connected.state.request
            asked = None if request is None or not report.has_removed else request.removal
            removal = None if asked is None else {"what": asked.what, "from_version": asked.from_version}
            uuid, version, table_id = connected.state.uuid, report.sink_version, report.sink_table_id
            found.check_fence(uuid, epoch, version, report.landed, removal, table_id)
            found.check_before_fence(report, _known_version(connected.state), is_removing=removal is not None)
        elif report.outcome == "sink_missing" and sink is not None:
            evidence_of_bound(connected, sink).check_missing(epoch)
    except BatchFailedError as error:
        return error
    if report.outcome != "failed":
        return report
    kind, reason = failure_kind(report)
    text = f"{what} failed with {report.error_class}: {report.error_message}"
    return kind(text, error_class=report.error_class, table=table, reason=reason)


def fence_of(report: FenceReport, state: StreamState) -> Fence:
    """Return the report as the ledger records it."""
    if report.outcome == "sink_missing":
        return Fence(status="sink_missing")
    app_ids = state.fence_sink.app_ids if state.fence_sink is not None else ()
    if state.fence_sink is not None and state.fence_sink.is_function:
        app_ids = tuple(txn_app_id(state.uuid, write=name) for name in report.writes)
    fence = FenceSpec(stream=state.name, uuid=state.uuid, epoch=state.epoch)
    removal = None if state.request is None else state.request.removal
    removed = () if report.evidence is None else report.evidence.removed
    is_foreign = any(one.epoch == state.epoch and one.what is None for one in removed)
    if is_foreign or (removal is not None and not report.has_removed):
        raise foreign_fence_error(state, state.epoch, report.sink_version or 0)
    return Fence(
        status="done",
        versions=dict.fromkeys(app_ids, fence.txn_version),
        sink_version=report.sink_version,
        sink_table_id=report.sink_table_id,
        removal=removal,
        removed_rows=None if removal is None else report.removed_rows,
        lacks_committed=lacks_committed(state.closed, report.evidence),
        warnings=report.warnings,
    )


def _function_problem(connected: ConnectedStream, state: StreamState, report: FenceReport) -> str | None:
    """Return how the tables' logs contradict the report of a fence, or ``None`` if they do not."""
    tables = {} if state.fence_sink is None else state.fence_sink.tables
    fenced = report.writes
    if set(fenced) != set(report.tables):
        return "it does not say what the tables have: another version of FDS wrote it"
    if unknown := [name for name in fenced if name not in tables]:
        return f"it names {', '.join(map(repr, unknown))}, whose tables are unknown"
    for name, table in read_tables(state, connected.open_sink).items():
        found = None if table.newest is None else table.newest.transaction
        if name in fenced and found != fence_version(state.epoch):
            return f"the newest transaction of write {name!r} in {tables[name]} is {found}, not this fence"
        if name not in fenced and table.version >= 0:
            return f"{tables[name]} exists now, but is not fenced"
        if name not in fenced:
            logger.warning(
                "Stream %s: write %r has no table at %s yet, so nothing prevents a driver of an older epoch from "
                "creating it. Make sure that no Spark application of the stream is still running",
                state.name,
                name,
                tables[name],
            )
    return None
