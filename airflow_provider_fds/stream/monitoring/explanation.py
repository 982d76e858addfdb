"""Why a stream does not move: the cause, what shows it, and what to run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.durations import format_duration
from airflow_provider_fds.errors import BatchRejectedError
from airflow_provider_fds.sizes import format_count
from airflow_provider_fds.stream.attempt.reports import reports_about
from airflow_provider_fds.stream.monitoring.status import status_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_fds.ledger.owner import Actor, Owner
    from airflow_provider_fds.stream.connected_stream import ConnectedStream
    from airflow_provider_fds.stream.monitoring.condition import Condition
    from airflow_provider_fds.stream.monitoring.status import StreamStatus

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


def explain(
    connected: ConnectedStream,
    owner_runs: Callable[[Owner], bool | None] = lambda _owner: None,
    has_dag: Callable[[Actor], bool | None] = lambda _task: None,
) -> Explanation:
    """Explain why a stream does not move, or that it does. Writes nothing.

    Args:
        connected: The stream.
        owner_runs: Returns whether the owner of planned batches is running, ``None`` if it cannot know.
        has_dag: Returns whether Airflow still has the DAG of a task, ``None`` if it cannot know.

    Raises:
        LedgerError: The ledger cannot be read.
    """
    status = status_of(connected, owner_runs=owner_runs)
    return Explanation(
        name=status.name,
        condition=status.condition,
        cause=status.cause,
        evidence=tuple(_evidence(connected, status, has_dag)),
        commands=status.commands,
        exit_code=status.exit_code,
    )


def _evidence(connected: ConnectedStream, status: StreamStatus, has_dag: Callable[[Actor], bool | None]) -> list[str]:
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
        found.append(f"last batch committed {committed.describe_writing()}")
    if newest and newest[-1] is not committed:
        found.append(f"last entry of the ledger: {newest[-1].action.kind} {newest[-1].describe_writing()}")
    task = next((one.actor for one in reversed(newest) if one.actor.dag_id is not None), None)
    if task is not None and has_dag(task) is False:
        found.append(
            f"Airflow no longer has the DAG {task.dag_id!r}, which worked on the stream last. If it was renamed, "
            f"`fds fork {status.name} NEW_NAME` continues the stream. If it has ended: `fds retire {status.name} "
            "--why …`"
        )
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


def _duration(seconds: float) -> str:
    return format_duration(timedelta(seconds=seconds))


def _oldest(status: StreamStatus) -> str:
    return "" if status.lag_seconds is None else f", the oldest for {_duration(status.lag_seconds)}"
