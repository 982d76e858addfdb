"""The status of a stream: where it is, how far the table is ahead, and whether it can continue."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import asdict

from airflow_provider_fds.errors import EXIT_ATTENTION, EXIT_OK, FdsError
from airflow_provider_fds.ledger.entries.entry import iso_time
from airflow_provider_fds.ledger.position import watermark_at
from airflow_provider_fds.source.offset import Offset, describe_position
from airflow_provider_fds.stream.monitoring.condition import (
    Evidence,
    advice_on,
    attention_on,
    condition_of,
    needs_attention,
)
from airflow_provider_fds.stream.monitoring.driver_progress import read_driver
from airflow_provider_fds.stream.monitoring.run_failure import failure_of, failures_after
from airflow_provider_fds.stream.monitoring.status_row import is_live, known_row, waits_for
from airflow_provider_fds.stream.position.changed_start import describe_changed_start
from airflow_provider_fds.stream.position.lost_position import age_of, nearly_lost, oldest_commit, retention_left
from airflow_provider_fds.stream.position.source_unchanged import check_planned, check_position
from airflow_provider_fds.stream.position.stream_end import end_of, reason_to_end
from airflow_provider_fds.stream.position.unread_files import Amount, planned_amount
from airflow_provider_fds.stream.sink_record.sink_now import sink_now

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_fds.delta.reader.log import DeltaLog
    from airflow_provider_fds.ledger.facts import CommittedFacts
    from airflow_provider_fds.ledger.owner import Owner
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.stream.connected_stream import ConnectedStream
    from airflow_provider_fds.stream.monitoring.condition import Commands, Condition
    from airflow_provider_fds.stream.monitoring.driver_progress import DriverProgress
    from airflow_provider_fds.stream.monitoring.run_failure import RunEnd, RunFailure
    from airflow_provider_fds.stream.position.unread_files import UnreadFiles


#: What ``fds explain`` shows.
_NOT_SHOWN: Final = frozenset({"cause", "commands", "failures"})


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """The status of a stream. Reading it writes nothing.

    Attributes:
        condition: What the stream is doing, see :data:`~.condition.Condition`.
        position: Committed offset (Delta streaming offset JSON), or ``None`` before the stream was opened.
        newest_version: Newest version of the table, or ``None`` if the table could not be read (``problem`` says why).
        last_version: The last version that the stream reads now: that one, or the one at which the stream ends.
        lag_versions: Versions of the table that are not yet committed, up to the stream's end if it has one; ``None``
            if unknown.
        lag_seconds: Age of the oldest version that is not committed, by the time of its commit; 0 if there is none,
            ``None`` if unknown.
        retention_left_seconds: For how long that version is safe from the table's retention, after which the stream
            can lose its position; ``None`` if everything is committed, or unknown.
        pending_files: Data files that the stream still has to read, before its filters; ``None`` if unknown. A status
            reads no commits to count them, so they are known if all that is unread is planned.
        pending_bytes: Bytes of these files.
        last_commit: Measures of the last committed batch: ``epoch``, ``batch_id``, ``rows`` and, if known,
            ``rows_read``, ``files_written``, ``bytes_written``, ``seconds``.
        watermark: The latest event time that is committed (ISO 8601, UTC), ``None`` if it is unknown.
        planned_batches: Number of batches that are planned and not committed.
        owner: The run that owns them, in words.
        driver: The driver in a cluster that was started for them, ``None`` if there is none.
        sink: Its ``kind`` and ``target``, and ``delivery``: what keeps a repeated batch from being written twice. This
            is a ``transaction`` of the table, a ``token`` that the writer looks up, or nothing (``at_least_once``). A
            user job has none.
        finished: A sentence if the stream has read everything up to its end; ``None`` if it has not, or has no end.
        waits_for: What the newest data of a ``waiting`` stream wait for.
        problem: Why the stream cannot continue, why the table cannot be read, or why the last run failed; ``None``
            if nothing is known to be wrong.
        reason_code: What the problem is, one of :class:`~.reasons.Reason`; ``None`` without a problem.
        since: When the first of the runs that failed in a row ended (ISO 8601, UTC).
        failed_runs: Number of them.
        will_retry: Whether Airflow starts another attempt of the last one by itself.
        exit_code: Exit code of `fds status`: that of the problem, 1 if the stream needs attention otherwise, else 0.
        attention: What requires attention: ``key`` (what makes it differ from the next one), ``why``, ``action`` (a
            command of ``fds``), ``version`` and ``operation`` of the commit, if it is about one; of a quarantine also
            ``begun``, the number of its ledger entry, if known.
        cause: Why the stream is in its condition, one paragraph.
        commands: Commands to choose from, each with its effect.
        failures: Why its last runs failed, the newest last; of a stream by offset at most one, which may be over.
    """

    name: str
    table: str
    phase: str
    condition: Condition = "not_begun"
    uuid: str | None = None
    deployment: str | None = None
    epoch: int = 0
    position: str | None = None
    newest_version: int | None = None
    last_version: int | None = None
    lag_versions: int | None = None
    lag_seconds: float | None = None
    retention_left_seconds: float | None = None
    pending_files: int | None = None
    pending_bytes: int | None = None
    last_batch_id: int | None = None
    last_commit: dict[str, Any] | None = None
    watermark: str | None = None
    planned_batches: int = 0
    owner: str | None = None
    driver: DriverProgress | None = None
    sink: dict[str, str] | None = None
    sink_version: int | None = None
    blocked: str | None = None
    finished: str | None = None
    entries: int = 0
    waits_for: str | None = None
    problem: str | None = None
    reason_code: str | None = None
    since: str | None = None
    failed_runs: int = 0
    will_retry: bool = False
    exit_code: int = EXIT_OK
    attention: dict[str, Any] | None = None
    cause: str = ""
    commands: Commands = ()
    failures: tuple[RunFailure, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def needs_attention(self) -> bool:
        """Whether the condition lasts until someone acts."""
        return needs_attention(self.condition, is_retried=self.will_retry)

    def to_dict(self) -> dict[str, Any]:
        """Return the status as JSON values, the problem first."""
        found = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in _NOT_SHOWN}
        found["driver"] = None if self.driver is None else asdict(self.driver)
        return {"problem": found.pop("problem"), **found, "needs_attention": self.needs_attention}


def status_of(
    connected: ConnectedStream,
    unread: UnreadFiles | None = None,
    *,
    end: RunEnd | None = None,
    seen_waiting: str | None = None,
    seen_live: bool = False,
    owner_runs: Callable[[Owner], bool | None] | None = None,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> StreamStatus:
    """Return the status of the stream; an unreadable table is reported in it.

    Args:
        connected: The stream.
        unread: Counts the files of unread commits, which it reads; ``None`` to read none.
        end: How a run of the stream has just ended; ``None``: what its status file says of the last run holds.
        seen_waiting: What the newest data wait for, as a trigger has just seen it.
        seen_live: Whether the caller is a run that lingers; otherwise its status file says so for a while.
        owner_runs: Returns whether the owner of planned batches is running, ``None`` if it cannot know.
        clock: Returns the time, with a zone.
    """
    with connected.log.one_answer():
        return _status_of(connected, unread, end, seen_waiting, seen_live, owner_runs, clock)


def _status_of(
    connected: ConnectedStream,
    unread: UnreadFiles | None,
    end: RunEnd | None,
    seen_waiting: str | None,
    seen_live: bool,
    owner_runs: Callable[[Owner], bool | None] | None,
    clock: Callable[[], datetime],
) -> StreamStatus:
    state = connected.load()
    entry, owner = connected.ledger.n, state.owner
    newest: int | None = None
    problem: FdsError | None = None
    extra: dict[str, Any] = {}
    finished: str | None = None
    try:
        newest, finished = _checked(connected, state)
    except FdsError as error:
        # a stream that has ended needs its table no more
        problem = error if state.retired is None else None
        with suppress(FdsError):
            newest = connected.log.latest()
    lag: int | None = None
    last: int | None = None
    age: timedelta | None = None
    left: timedelta | None = None
    pending: Amount | None = None
    if newest is not None and problem is None and state.position is not None:
        position = Offset.from_json(state.position)
        stream_end = end_of(connected, state)
        last = newest if stream_end is None else stream_end.target(position, newest)
        # a stream that has ended has nothing left to read
        lag = lag_of(position, last) if state.retired is None else 0
        age, left = _unread(connected.log, oldest_commit(position), newest) if lag else (timedelta(), None)
        pending = _pending(connected, state, last, unread) if lag else Amount()
        if finished is None and (warning := nearly_lost(connected.log, oldest_commit(position), newest)) is not None:
            extra["warning"] = warning
    sink_problem: FdsError | None = None
    if problem is None and finished is None and state.retired is None:
        now = sink_now(connected, state)
        sink_problem = now.problem
        if now.warning is not None:
            extra["sink warning"] = now.warning
    extra.update(_more_of(state))
    before = known_row(connected.staging, state)
    failures = failures_after(() if before is None else before.failures, end, state, entry, iso_time(clock()))
    evidence = Evidence(
        state=state,
        problem=problem,
        sink_problem=sink_problem,
        lag=lag,
        finished=finished,
        failure=failure_of(failures, state, entry),
        waits_for=seen_waiting or (waits_for(before, state) if end is None else end.waits_for),
        owner_runs=None if owner_runs is None or owner is None or owner.only_plans else owner_runs(owner),
        is_live=seen_live or (end is None and is_live(before, clock())),
    )
    return StreamStatus(
        name=connected.stream.name,
        table=connected.table.uri,
        # intervals are loaded without an open epoch, so a requested phase would mislead
        phase="open" if state.reads_by_interval else state.phase,
        uuid=state.uuid or None,
        deployment=state.deployment or None,
        epoch=state.epoch,
        position=state.position,
        newest_version=newest,
        last_version=last,
        lag_versions=lag,
        lag_seconds=None if age is None else round(age.total_seconds(), 3),
        retention_left_seconds=None if left is None else round(left.total_seconds(), 3),
        pending_files=None if pending is None else pending.files,
        pending_bytes=None if pending is None else pending.size_bytes,
        last_batch_id=state.last_batch_id,
        last_commit=_last_commit(state.last_committed),
        watermark=watermark_at(state.position, state.watermark),
        planned_batches=len(state.planned),
        owner=state.owner.describe() if state.owner is not None else None,
        driver=read_driver(connected.staging, state),
        sink=_sink_of(state),
        sink_version=state.sink_version,
        blocked=None if state.blocked is None else state.blocked.reason,
        finished=finished,
        entries=entry + 1,
        failures=failures,
        extra=extra,
        **said_of(evidence),
    )


def said_of(evidence: Evidence) -> dict[str, Any]:
    """Return the fields of a status that follow from its condition."""
    condition = condition_of(evidence)
    cause, commands = advice_on(condition, evidence)
    failure = evidence.failure if condition == "failing" else None
    error = evidence.problem or (evidence.sink_problem if failure is None else None)
    attention = attention_on(condition, evidence)
    return {
        "condition": condition,
        "cause": cause,
        "commands": commands,
        "attention": attention,
        "waits_for": evidence.waits_for if condition == "waiting" else None,
        "problem": cause if failure is not None else None if error is None else str(error),
        "reason_code": failure.reason_code if failure is not None else None if error is None else error.reason_code,
        "since": None if failure is None else failure.since,
        "failed_runs": 0 if failure is None else failure.runs,
        "will_retry": failure is not None and failure.will_retry,
        "exit_code": error.exit_code if error is not None else EXIT_OK if attention is None else EXIT_ATTENTION,
    }


def lag_of(position: Offset, last: int) -> int:
    """Return the number of versions that are not committed; of a snapshot, its version counts until it is read whole.

    Args:
        position: The committed position.
        last: The last version that the stream reads now: the table's newest one, or that of the stream's end.
    """
    return max(0, last + 1 - position.version)


def _unread(log: DeltaLog, version: int, newest: int) -> tuple[timedelta | None, timedelta | None]:
    """Return the age of the oldest unread version and the retention left to it, each ``None`` if unknown."""
    if version > newest:
        return timedelta(), None  # a frozen snapshot is read from staging, and its commits are done
    try:
        age = age_of(log, version)
        return age, None if age is None else retention_left(log, age, newest)
    except FdsError:
        return None, None


def _pending(connected: ConnectedStream, state: StreamState, last: int, unread: UnreadFiles | None) -> Amount | None:
    """Return what is left to read, ``None`` if it is unknown."""
    try:
        return planned_amount(state, last) if unread is None else unread.count(connected, last)
    except FdsError:
        return None


def _more_of(state: StreamState) -> dict[str, Any]:
    """Return the optional fields of a status: those that have something to report."""
    more: dict[str, Any] = {}
    if state.start_kept is not None and state.epoch_start is not None:
        more["start option"] = describe_changed_start(state, state.start_kept)
    if state.origin is not None:
        more["fork of"] = (
            f"{state.origin.stream} (uuid {state.origin.uuid}), from {describe_position(state.origin.offset)}"
        )
    if state.request is not None:
        more["requested"] = f"{state.request.asked}: {state.request.why}"
    if state.sink_warnings:
        more["warnings"] = list(state.sink_warnings)
    passed = [change for batch in state.planned for change in batch.schema_changes]
    if passed:
        more["schema changes"] = [
            f"version {one.version}: {', '.join(one.changes)} (allowed by: {one.allowed_by})" for one in passed
        ]
    if state.quarantined is not None:
        more["quarantined"] = state.quarantined.why
    if state.held is not None:
        more["held"] = state.held.why
    if state.reads_by_interval:
        more["intervals"] = len(state.intervals)
        more["unfinished intervals"] = [record.interval for record in state.intervals if not record.is_done]
    if state.retired is not None:
        more["retired"] = state.retired.why
    return more


def _sink_of(state: StreamState) -> dict[str, str] | None:
    sink = state.sink
    if sink is None:
        return None
    found = {"kind": sink.kind, "target": sink.target}
    return found if sink.delivery is None else {**found, "delivery": sink.delivery}


def _last_commit(last: CommittedFacts | None) -> dict[str, Any] | None:
    if last is None:
        return None
    measures = {} if last.measures is None else msgspec.to_builtins(last.measures)
    return {"epoch": last.epoch, "batch_id": last.batch_id, "rows": last.rows, **measures}


def _checked(connected: ConnectedStream, state: StreamState) -> tuple[int, str | None]:
    """Return the newest version, and why the stream is finished; if it is not, check its position and its plan.

    Raises:
        TableNotFoundError: There is no table.
        LostPositionError: The stream cannot continue from its position, or the planned batches belong to another table.
    """
    log = connected.log
    finished = None if state.position is None else reason_to_end(state, end_of(connected, state))
    if state.position is None or finished is not None or state.retired is not None:
        return log.latest(), finished
    # the log from the position on says which version is the newest
    newest = check_position(log, state)
    Offset.from_json(state.position).ensure_table(log.state_at(newest).metadata.id, table=log.table_uri)
    if state.planned and state.blocked is None and state.accepted is None:
        check_planned(log, state.planned)
    return newest, None
