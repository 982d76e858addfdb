"""Why a stream does not move: the cause, what shows it, and what to run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.durations import format_duration
from airflow_provider_fds.errors import BatchRejectedError
from airflow_provider_fds.sizes import format_count
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.attempt.reports import reports_about
from airflow_provider_fds.stream.monitoring.status import status_of
from airflow_provider_fds.stream.position.lost_position import oldest_commit

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_fds.ledger.entries import Entry
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.stream.connected_stream import ConnectedStream
    from airflow_provider_fds.stream.monitoring.status import Condition, StreamStatus

#: Newest entries that are read for the evidence.
_ENTRIES: Final = 20


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a stream does not move.

    Attributes:
        name: Name of the stream.
        condition: As in :class:`~.status.StreamStatus`.
        cause: One paragraph.
        evidence: What shows it, from the ledger and the table's log.
        commands: Commands to choose from, each with its effect; empty if nothing has to be done.
        exit_code: That of `fds status`.
    """

    name: str
    condition: Condition
    cause: str
    evidence: tuple[str, ...]
    commands: tuple[tuple[str, str], ...]
    exit_code: int

    def to_dict(self) -> dict[str, Any]:
        """Return the explanation as JSON values; a command is an object with ``command`` and ``effect``."""
        return {
            **asdict(self),
            "evidence": list(self.evidence),
            "commands": [{"command": command, "effect": effect} for command, effect in self.commands],
        }


@dataclass(frozen=True, slots=True)
class _Facts:
    state: StreamState
    status: StreamStatus
    owner_runs: bool | None
    waits_for: str | None = None


@dataclass(frozen=True, slots=True)
class _Answer:
    cause: str
    commands: tuple[tuple[str, str], ...] = ()


def explain(
    connected: ConnectedStream, known_wait: Callable[[StreamStatus], str | None] = lambda _status: None
) -> Explanation:
    """Explain why a stream does not move, or that it does. Writes nothing.

    Args:
        connected: The stream.
        known_wait: Returns what the data of a waiting stream wait for, if somebody has seen it.

    Raises:
        LedgerError: The ledger cannot be read.
    """
    status = status_of(connected)
    state = connected.state
    owner = state.owner
    runs = None if owner is None or owner.only_plans else connected.context.owner_is_running(owner)
    answer = _ANSWERS[status.condition](_Facts(state, status, runs, known_wait(status)))
    return Explanation(
        name=status.name,
        condition=status.condition,
        cause=answer.cause,
        evidence=tuple(_evidence(connected, status)),
        commands=answer.commands,
        exit_code=status.exit_code,
    )


def advice(state: StreamState, status: StreamStatus) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return why a stream does not move, and the commands to choose from, each with its effect. Reads nothing.

    Args:
        state: The stream's state.
        status: Its status, of the same moment.
    """
    answer = _ANSWERS[status.condition](_Facts(state, status, None))
    return answer.cause, answer.commands


def _evidence(connected: ConnectedStream, status: StreamStatus) -> list[str]:
    found = [f"table {status.table}"]
    if status.newest_version is not None:
        found[0] += f", newest version {status.newest_version}"
    if status.lag_versions:
        found.append(f"{format_count(status.lag_versions, 'version')} not committed" + _oldest(status))
    if status.retention_left_seconds is not None:
        found.append(
            f"the oldest of them is safe from the table's retention for {_duration(status.retention_left_seconds)}"
        )
    found += _last_attempt(connected)
    newest = list(connected.ledger.entries(max(0, connected.ledger.n + 1 - _ENTRIES)))
    committed = next((one for one in reversed(newest) if one.action.kind == "committed"), None)
    if committed is not None:
        found.append(f"last batch committed {_when(committed)}")
    if newest and newest[-1] is not committed:
        found.append(f"last entry of the ledger: {newest[-1].action.kind} {_when(newest[-1])}")
    return found


def _last_attempt(connected: ConnectedStream) -> list[str]:
    """Return what the last attempt on the next batch failed with, if it did."""
    planned, epoch = connected.state.planned, connected.state.epoch
    if not planned or connected.state.reads_by_interval:
        return []
    try:
        report = next(reports_about(connected.ledger, epoch, planned[0]), None)
    except BatchRejectedError as error:
        return [str(error)]
    if report is None or report.outcome != "failed":
        return []
    return [f"the last attempt on batch {report.batch_id} failed: {report.error_class}: {report.error_message}"]


def _when(entry: Entry) -> str:
    ago = datetime.now(UTC) - datetime.fromisoformat(entry.time)
    return f"at {entry.time} ({format_duration(max(timedelta(), ago))} ago) by {entry.actor.describe()}"


def _duration(seconds: float) -> str:
    return format_duration(timedelta(seconds=seconds))


def _oldest(status: StreamStatus) -> str:
    return "" if status.lag_seconds is None else f", the oldest for {_duration(status.lag_seconds)}"


def _up_to_date(_: _Facts) -> _Answer:
    return _Answer("The stream is up to date. It moves when the table gets a new version.")


def _waiting(facts: _Facts) -> _Answer:
    name, state = facts.state.name, facts.state
    if state.reads_by_interval:
        cause = (
            "All intervals that a run has begun are loaded. The stream moves with the next data interval of its DAG: "
            "if one is due, check that the DAG is not paused and that its run was not skipped."
        )
        return _Answer(cause, ((f"fds history {name}", "shows the intervals that were loaded"),))
    if state.request is not None:
        return _requested(facts)
    if facts.waits_for is not None:
        return _Answer(facts.waits_for)
    cause = (
        "Nothing in the ledger stops the stream, but no run has planned the new data. Either no run has started since "
        "then (the DAG is paused, or its next run is not due), or runs fail before they plan, for example at a version "
        "that the stream's options do not let it pass, or they wait for more data (min_batch_bytes) or for another "
        "stream (align_with). The log of the newest task says which."
    )
    dry = f"fds plan {state.table} --dry-run --option starting_version={_next_version(facts)}"
    return _Answer(cause, ((dry, "with the other options of the stream, shows the version that stops it"),))


def _next_version(facts: _Facts) -> int:
    assert facts.state.position is not None  # noqa: S101  # a stream without a position has not begun
    return oldest_commit(Offset.from_json(facts.state.position))


def _loading(facts: _Facts) -> _Answer:
    name, owner, planned = facts.state.name, facts.state.owner, len(facts.state.planned)
    batches = "1 batch is" if planned == 1 else f"{planned:,} batches are"
    if owner is None:
        cause = (
            "A data interval is planned but not loaded. Only its own task can load it: check that task, and clear it "
            "if it failed."
        )
        return _Answer(cause, ((f"fds status {name}", "lists the unfinished intervals"),))
    if owner.only_plans:
        return _Answer(
            f"{batches} planned, but not taken by a run yet. The next run of the stream loads what is planned."
        )
    if facts.owner_runs is False:
        return _Answer(
            f"{batches} planned. The owner, {owner.describe()}, is no longer running: it was killed or failed. The "
            "next run of the stream takes over, and checks the sink before it writes."
        )
    cause = (
        f"{batches} planned and owned by {owner.describe()}, which appears to be running. Check its log and its Spark "
        "application."
    )
    effect = "only if that owner is gone: releases the batches; the next run checks the sink first"
    return _Answer(cause, ((f"fds adopt {name} --force --why …", effect),))


def _held(facts: _Facts) -> _Answer:
    why = facts.state.held.why if facts.state.held is not None else ""
    return _Answer(f"The stream was paused: {why}", ((f"fds resume {facts.state.name} --why …", "continues it"),))


def _quarantined(facts: _Facts) -> _Answer:
    name, found = facts.state.name, facts.state.quarantined
    assert found is not None  # noqa: S101  # the condition says so
    resume = (f"fds resume {name} --why …", "tries again, for example after its options were changed")
    cause = f"The stream is in quarantine, and its runs are skipped: {found.why}"
    effects = {
        "accept": "lets its schema take effect and loads its rows",
        "skip": "continues without the rows of the version",
    }
    ways = ((f"fds {way} {name} --version {found.version} --why …", effects[way]) for way in found.ways_on)
    return _Answer(cause, (*ways, resume))


def _stopped(facts: _Facts) -> _Answer:
    name, state = facts.state.name, facts.state
    found = state.blocked or next(one.blocked for one in reversed(state.intervals) if one.blocked is not None)
    cause = (
        f"Batch {found.batch_id} is blocked until someone compares the sink with the source: {found.reason} "
        f"(planned rows: {found.rows_planned}, written: {found.rows_written}, sink version {found.sink_version})."
    )
    scope = f"--batch {found.batch_id}" if found.interval is None else f"--interval {found.interval}"
    accept = (f"fds accept {name} {scope} --why …", "accepts the batch as it is in the sink")
    if found.interval is not None:
        return _Answer(cause, (accept,))
    return _Answer(cause, (accept, (f"fds replan {name} --why …", "plans it again in a new epoch")))


def _problem(facts: _Facts) -> _Answer:
    # the message names what to run
    return _Answer(f"[{facts.status.reason_code}] {facts.status.problem}")


def _finished(facts: _Facts) -> _Answer:
    return _Answer(f"The stream has reached its end and reads nothing more: {facts.status.finished}")


def _retired(facts: _Facts) -> _Answer:
    why = facts.state.retired.why if facts.state.retired is not None else ""
    return _Answer(
        f"The stream was ended permanently ({why}). Only a stream with another name can read the table again."
    )


def _not_begun(facts: _Facts) -> _Answer:
    if facts.state.request is not None:
        return _requested(facts)
    return _Answer("The stream was created, but no run has planned anything yet. The next run begins it.")


def _requested(facts: _Facts) -> _Answer:
    request = facts.state.request
    assert request is not None  # noqa: S101  # the callers have looked
    return _Answer(
        f"A new epoch was requested ({request.reason}: {request.why}). The next run of the stream begins it."
    )


_ANSWERS: Final[dict[Condition, Callable[[_Facts], _Answer]]] = {
    "up_to_date": _up_to_date,
    "waiting": _waiting,
    "loading": _loading,
    "finished": _finished,
    "held": _held,
    "retired": _retired,
    "not_begun": _not_begun,
    "stopped": _stopped,
    "quarantined": _quarantined,
    "lost_position": _problem,
    "unreadable": _problem,
}

__all__ = ["Explanation", "advice", "explain"]
