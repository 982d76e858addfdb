"""Streams that wait for a person: in quarantine, or held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import UNSET

from airflow_provider_fds.errors import LogTruncatedError, StoppedError
from airflow_provider_fds.ledger.entries.operator_entries import Quarantined
from airflow_provider_fds.ledger.facts import StoppedBatch
from airflow_provider_fds.ledger.state import KEPT_SKIPS
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.attempt.batch_failure import reason_of
from airflow_provider_fds.stream.attempt.batch_versions import describe_versions
from airflow_provider_fds.stream.attempt.result import RunWork
from airflow_provider_fds.stream.position.lost_position import lost_until

if TYPE_CHECKING:
    from airflow_provider_fds.batch.report import AttemptReport
    from airflow_provider_fds.batch.spec import Expectations
    from airflow_provider_fds.errors import LostPositionError
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.ledger.values import PlannedBatch
    from airflow_provider_fds.stream.connected_stream import ConnectedStream


def paused_work(state: StreamState) -> RunWork | None:
    """Return the work of a run of a stream in quarantine or on hold, or ``None`` if it is neither."""
    if (reason := pause_of(state)) is None:
        return None
    version = None if state.quarantined is None else state.quarantined.version
    code = Reason.STREAM_QUARANTINED if state.held is None else Reason.STREAM_HELD
    operation = None if state.quarantined is None else state.quarantined.operation
    stopped = StoppedError(reason, table=state.table, version=version, operation=operation, reason=code)
    return RunWork("paused", state.epoch, reason=reason, warning=stopped)


def pause_of(state: StreamState) -> str | None:
    """Return why the stream is paused and what resumes it, or ``None`` if it is not paused."""
    if state.held is None and state.quarantined is None:
        return None
    # only a stream that stops needs it
    from airflow_provider_fds.stream.monitoring.condition import Evidence, advice_on

    cause, commands = advice_on("quarantined" if state.held is None else "held", Evidence(state))
    ways = ", ".join(f"`{command}` {effect}" for command, effect in commands)
    return f"stream {state.name!r}{cause.removeprefix('The stream')}\n{ways}"


def quarantine(connected: ConnectedStream, error: StoppedError) -> RunWork | None:
    """Record that the stream stops before a version, and return the work of the run: none.

    Args:
        connected: The stream, with nothing planned.
        error: The violation.

    Raises:
        StreamMovedError: The stream has moved on since, or a person lets it pass the version.
        EpochClosedError: Another epoch was requested since.
    """
    state = connected.state
    entry = Quarantined(
        found_epoch=state.epoch,
        found_at=state.position or UNSET,
        why=str(error),
        version=error.version,
        can_be_acknowledged=error.way_on is not None,
        way_on=error.way_on or UNSET,
        operation=error.operation,
    )
    return paused_work(connected.execute(entry))


def quarantine_lost(connected: ConnectedStream, error: LostPositionError) -> RunWork:
    """Record that the log no longer has what the stream must read next, and return the work of the run: none.

    Versions that log cleanup removed may be skipped, unless the stream has read a part of the first one, or its sink
    merges. Otherwise nothing lets it pass.

    Args:
        connected: The stream; if batches are planned, their table is not there any more.
        error: What is known of the loss.

    Raises:
        LostPositionError: It, if the stream goes into quarantine for nothing.
        LedgerError: As :func:`quarantine`.
    """
    state = connected.state
    if connected.stream.options.on_violation == "fail":
        raise error
    assert state.position is not None  # noqa: S101  # an open epoch has a position
    position = Offset.from_json(state.position)
    last = lost_until(connected.log, position) if isinstance(error, LogTruncatedError) else None
    merges = state.sink is not None and state.sink.merges
    can_skip = last is not None and not merges and last - position.version < KEPT_SKIPS
    entry = Quarantined(
        found_epoch=state.epoch,
        found_at=state.position,
        why=str(error),
        version=position.version,
        can_be_acknowledged=can_skip,
        way_on="skip" if can_skip else UNSET,
        lost=error.reason_code,
        last=UNSET if last is None else last,
    )
    paused = paused_work(connected.execute(entry))
    if paused is None:
        raise error
    return paused


def quarantine_batch(connected: ConnectedStream, batch: PlannedBatch, report: AttemptReport | None) -> RunWork | None:
    """Record that the stream stops at a batch which leaves out too many rows, and return the work of the run: none.

    Returns ``None`` if the batch failed for another reason, the driver did not say its counts, or the stream goes into
    quarantine for nothing; then the failure counts.

    Args:
        connected: The stream, which reads by offset.
        batch: The batch.
        report: The driver's report of it.
    """
    expectations, options = connected.stream.expectations, connected.stream.options
    if report is None or reason_of(report) is not Reason.TOO_MANY_REJECTED or not report.rows_tested:
        return None
    if options.on_violation == "fail" or expectations is None or expectations.max_rejected is None:
        return None
    state = connected.state
    stop = StoppedBatch(
        epoch=report.epoch,
        batch_id=batch.batch_id,
        digest=batch.digest,
        owner=connected.context.owner,
        rows=report.rows_tested,
        rejected=report.rows_rejected,
        failed=report.failed_rows,
        max_rejected=expectations.max_rejected,
        rejects=expectations.rejects or UNSET,
    )
    what = f"batch {batch.batch_id} of {state.table} ({describe_versions([batch], state.snapshot)})"
    entry = Quarantined(
        why=f"{what} was not written: {_left_out(stop, expectations)}",
        version=batch.first_version,
        can_be_acknowledged=False,
        batch=stop,
    )
    return paused_work(connected.execute(entry))


def _left_out(stop: StoppedBatch, expectations: Expectations) -> str:
    """Return how many rows a batch leaves out, why and whereto; without any row, because a ledger is kept."""
    each = [
        f"{stop.failed.get(text, 0):,} fail {text!r} ({expectations.expect[text]})"
        for text in expectations.of_action("drop", "reject")
        if stop.failed.get(text)
    ]
    goes = "" if stop.rejects is UNSET else f"; rows that fail a 'reject' would go to {stop.rejects}"
    return (
        f"expectations would keep {stop.rejected:,} of {stop.rows:,} rows ({stop.rejected / stop.rows:.2%}) out of the "
        f"sink, more than max_rejected={stop.max_rejected:g} allows: {'; '.join(each)}{goes}"
    )
