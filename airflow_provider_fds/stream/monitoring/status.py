"""The status of a stream: where it is, how far the table is ahead, and whether it can continue."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from airflow_provider_fds.errors import EXIT_OK, FdsError, LostPositionError
from airflow_provider_fds.ledger.position import watermark_at
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.position.changed_start import describe_changed_start
from airflow_provider_fds.stream.position.lost_position import age_of, nearly_lost, oldest_commit, retention_left
from airflow_provider_fds.stream.position.source_unchanged import check_planned, check_position
from airflow_provider_fds.stream.position.stream_end import end_of, reason_to_end
from airflow_provider_fds.stream.position.unread_files import Amount, planned_amount
from airflow_provider_fds.stream.sink_record.sink_now import sink_now

if TYPE_CHECKING:
    from airflow_provider_fds.delta.reader.log import DeltaLog
    from airflow_provider_fds.ledger.facts import CommittedFacts
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.stream.connected_stream import ConnectedStream
    from airflow_provider_fds.stream.position.unread_files import UnreadFiles


#: What a stream is doing, in one word.
Condition = Literal[
    "up_to_date",
    "waiting",
    "loading",
    "finished",
    "held",
    "retired",
    "not_begun",
    "stopped",
    "quarantined",
    "lost_position",
    "unreadable",
]

#: The conditions that last until someone acts.
STUCK: Final[frozenset[Condition]] = frozenset({"stopped", "quarantined", "lost_position", "unreadable"})


@dataclass(frozen=True, slots=True)
class StreamStatus:
    """The status of a stream. Reading it writes nothing.

    Attributes:
        condition: What the stream is doing: ``up_to_date``; ``waiting`` for the run that loads what is new;
            ``loading`` (batches are planned); ``finished``; ``held``; ``retired``; ``not_begun``; and those of
            :data:`STUCK`, which need attention: ``stopped`` (a batch is blocked), ``quarantined``, ``lost_position``,
            ``unreadable`` (the table or the ledger).
        position: Committed offset (Delta streaming offset JSON), or ``None`` before the stream was opened.
        newest_version: Newest version of the table, or ``None`` if the table could not be read (``problem`` says why).
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
        sink: Its ``kind`` and ``target``, and ``delivery``: what keeps a repeated batch from being written twice. This
            is a ``transaction`` of the table, a ``token`` that the writer looks up, or nothing (``at_least_once``). A
            user job has none.
        finished: A sentence if the stream has read everything up to its end; ``None`` if it has not, or has no end.
        problem: Why the stream cannot continue, or the table cannot be read; ``None`` if it can. With a problem, the
            lag is unknown.
        reason_code: What the problem is, one of :class:`~.reasons.Reason`; ``None`` without a problem.
        exit_code: Exit code of `fds status`: that of the problem, else 0.
        attention: What requires attention, in a condition of :data:`STUCK`: ``key`` (what makes it differ from the
            next one), ``why``, ``action`` (a command of ``fds``), ``version`` and ``operation`` of the commit, if it
            is about one; of a quarantine also ``begun``, the number of its ledger entry, if known.
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
    sink: dict[str, str] | None = None
    sink_version: int | None = None
    blocked: str | None = None
    finished: str | None = None
    entries: int = 0
    problem: str | None = None
    reason_code: str | None = None
    exit_code: int = EXIT_OK
    attention: dict[str, Any] | None = None
    extra: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the status as JSON values, the problem first."""
        found = asdict(self)
        return {"problem": found.pop("problem"), **found}


def status_of(connected: ConnectedStream, unread: UnreadFiles | None = None) -> StreamStatus:
    """Return the status of the stream; an unreadable table is reported in it.

    Args:
        connected: The stream.
        unread: Counts the files of unread commits, which it reads; ``None`` to read none.
    """
    state = connected.load()
    newest: int | None = None
    problem: FdsError | None = None
    extra: dict[str, Any] = {}
    finished: str | None = None
    try:
        newest = connected.log.latest()
        finished = _checked(connected, state, newest)
    except FdsError as error:
        problem = error
    lag: int | None = None
    age: timedelta | None = None
    left: timedelta | None = None
    pending: Amount | None = None
    if newest is not None and problem is None and state.position is not None:
        position = Offset.from_json(state.position)
        end = end_of(connected, state)
        last = newest if end is None else end.target(position, newest)
        lag = max(0, last + 1 - position.version)
        if position.is_initial_snapshot:
            lag += 1
        age, left = _unread(connected.log, oldest_commit(position), newest) if lag else (timedelta(), None)
        pending = _pending(connected, state, last, unread) if lag else Amount()
        if (warning := nearly_lost(connected.log, oldest_commit(position), newest)) is not None:
            extra["warning"] = warning
    if problem is None and finished is None and state.retired is None:
        now = sink_now(connected, state)
        problem = now.problem
        if now.warning is not None:
            extra["sink warning"] = now.warning
    extra.update(_more_of(state))
    condition = condition_of(state, problem, lag=lag, is_finished=finished is not None)
    return StreamStatus(
        name=connected.stream.name,
        table=connected.table.uri,
        # intervals are loaded without an open epoch, so a requested phase would mislead
        phase="open" if state.reads_by_interval else state.phase,
        condition=condition,
        uuid=state.uuid or None,
        deployment=state.deployment or None,
        epoch=state.epoch,
        position=state.position,
        newest_version=newest,
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
        sink=_sink_of(state),
        sink_version=state.sink_version,
        blocked=None if state.blocked is None else state.blocked.reason,
        finished=finished,
        entries=connected.ledger.n + 1,
        problem=None if problem is None else str(problem),
        reason_code=None if problem is None else problem.reason_code,
        exit_code=EXIT_OK if problem is None else problem.exit_code,
        attention=attention_of(state, problem) if condition in STUCK else None,
        extra=extra,
    )


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


def condition_of(state: StreamState, problem: FdsError | None, *, lag: int | None, is_finished: bool) -> Condition:
    """Return the condition; of several that apply, the one that a person has to end first.

    Args:
        state: The stream's state.
        problem: Why the table cannot be read, or the stream not continue.
        lag: Versions that are not committed; ``None`` if unknown.
        is_finished: Whether the stream has read everything up to its end.
    """
    loads = bool(state.planned) or any(not record.is_done for record in state.intervals)
    found: tuple[tuple[bool, Condition], ...] = (
        (state.retired is not None, "retired"),
        (isinstance(problem, LostPositionError), "lost_position"),
        (problem is not None, "unreadable"),
        (state.blocked is not None or any(record.blocked is not None for record in state.intervals), "stopped"),
        (state.quarantined is not None, "quarantined"),
        (state.held is not None, "held"),
        (is_finished, "finished"),
        (loads, "loading"),
        (state.position is None and not state.reads_by_interval, "not_begun"),
        (lag == 0, "up_to_date"),
    )
    return next((condition for applies, condition in found if applies), "waiting")


def _more_of(state: StreamState) -> dict[str, Any]:
    """Return the optional fields of a status: those that have something to report."""
    more: dict[str, Any] = {}
    if state.start_kept is not None and state.epoch_start is not None:
        more["start option"] = describe_changed_start(state, state.start_kept)
    if state.origin is not None:
        more["fork of"] = f"{state.origin.stream} (uuid {state.origin.uuid}), from {state.origin.offset}"
    if state.request is not None:
        more["requested"] = f"{state.request.reason}: {state.request.why}"
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


def _checked(connected: ConnectedStream, state: StreamState, newest: int) -> str | None:
    """Return why the stream is finished, or ``None`` if it is not; in that case check its position and its plan.

    Raises:
        LostPositionError: The stream cannot continue from its position, or the planned batches belong to another table.
    """
    if state.position is None:
        return None
    finished = reason_to_end(state, end_of(connected, state))
    if finished is None and state.retired is None:
        log = connected.log
        check_position(log, state)
        Offset.from_json(state.position).ensure_table(log.state_at(newest).metadata.id, table=log.table_uri)
        if state.planned and state.blocked is None and state.accepted is None:
            check_planned(log, state.planned)
    return finished


def attention_of(state: StreamState, problem: FdsError | None) -> dict[str, Any]:
    """Return the ``attention`` of :class:`StreamStatus` for a stream that needs attention.

    Args:
        state: The state of its ledger.
        problem: Why its table or its ledger cannot be read; ``None`` if they can.
    """
    if problem is not None:
        return attention_of_problem(state.name, problem)
    name = state.name
    blocked = state.blocked or next((one.blocked for one in reversed(state.intervals) if one.blocked is not None), None)
    if blocked is not None:
        scope = f"--batch {blocked.batch_id}" if blocked.interval is None else f"--interval {blocked.interval}"
        return _attention(
            f"{blocked.interval or ''}:{blocked.epoch}:{blocked.batch_id}",
            f"batch {blocked.batch_id} is blocked until someone compares the sink with the source: {blocked.reason}",
            f"fds accept {name} {scope} --why …",
        )
    found = state.quarantined
    if found is None:
        return _attention("", "the stream needs attention", f"fds explain {name}")
    action = f"fds {found.ways_on[0]} {name} --version {found.version}" if found.ways_on else f"fds resume {name}"
    action += " --why …"
    begun = {"begun": state.quarantined_at}
    return _attention(str(found.version), found.why, action, version=found.version, operation=found.operation) | begun


def attention_of_problem(name: str, problem: FdsError) -> dict[str, Any]:
    """Return the ``attention`` of a stream whose table or ledger cannot be read."""
    return _attention(
        problem.reason_code,
        str(problem),
        f"fds explain {name}",
        version=problem.version,
        operation=problem.operation,
    )


def _attention(
    key: str, why: str, action: str, *, version: int | None = None, operation: str | None = None
) -> dict[str, Any]:
    return {"key": key, "why": why, "action": action, "version": version, "operation": operation}
