"""``StreamAlerts``: the states that alert, and which of them apply according to a status."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from airflow_provider_fds.credentials import redacted
from airflow_provider_fds.durations import format_duration
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.stream.monitoring.status import StreamStatus

#: The states that alert. All but the last three are conditions of ``fds status`` that need attention.
AlertState = Literal[
    "failing", "blocked", "quarantined", "lost_position", "unreadable", "lag", "retention_left", "name_in_use"
]

#: The states, each with its condition, as docs/alerting.md shows them.
STATES: Final[dict[AlertState, str]] = {
    "failing": "The last run has failed, and Airflow starts no other attempt of it.",
    "blocked": "The sink differs from a planned batch.",
    "quarantined": "The stream waits at a version or batch that it cannot pass.",
    "lost_position": "The table no longer has the next version of the stream.",
    "unreadable": "The table or the ledger cannot be read, and a retry does not help.",
    "lag": "The oldest version that is not committed is at least as old as `lag`.",
    "retention_left": "That version is safe from the table's retention for no longer than `retention_left`.",
    "name_in_use": "A run was refused, because its stream's name is that of a stream of another table or installation.",
}

_ALL: Final[frozenset[str]] = frozenset(STATES)
#: What a status of the stream does not tell: it is about runs of others.
_OF_OTHERS: Final = frozenset({"name_in_use"})
#: The states that begin at a threshold.
_THRESHOLDS: Final = frozenset({"lag", "retention_left"})
#: Retention left to a stream without a lag, in seconds; JSON has no infinity.
_FOR_EVER: Final = 1e18
#: Temporary reasons for an unknown status. They neither begin nor end an incident.
_PASSING: Final = frozenset(
    {Reason.STORAGE_FAILED.value, Reason.LOG_FILE_INCOMPLETE.value, Reason.AIRFLOW_UNAVAILABLE.value}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamAlerts:
    """When to alert, and which notifiers to call.

    A stream that is failing, blocked, quarantined or unreadable, or that has lost its position, always alerts, once per
    incident. So does a run that is refused because its stream's name is in use.

    Attributes:
        lag: Alert when the oldest version that is not committed is at least this old; ``None``: never.
        retention_left: Alert when that version is safe from the table's retention for no longer than this, after which
            the stream can lose its position; ``None``: never.
        notifiers: Airflow notifiers, or functions that take a task's context, as for ``on_failure_callback``. The
            alert is in the context as ``fds_alert``: ``stream``, ``table``, ``state``, ``version``, ``operation``,
            ``why``, ``action``, ``since`` and ``title``.

    Raises:
        ConfigurationError: A threshold is not a positive ``timedelta``, or a notifier cannot be called.

    Examples:
        >>> from datetime import timedelta
        >>> from airflow_provider_fds import StreamAlerts
        >>> StreamAlerts(lag=timedelta(minutes=10)).lag
        datetime.timedelta(seconds=600)
    """

    lag: timedelta | None = None
    retention_left: timedelta | None = None
    notifiers: Sequence[Callable[[Any], Any]] = ()

    def __post_init__(self) -> None:
        problems = [
            f"{name} must be a positive timedelta, such as timedelta(minutes=10), got {value!r}."
            for name, value in (("lag", self.lag), ("retention_left", self.retention_left))
            if value is not None and not (isinstance(value, timedelta) and value > timedelta())
        ]
        if not isinstance(self.notifiers, (list, tuple)):
            problems.append(f"notifiers must be a list or a tuple, got {self.notifiers!r}.")
        elif strange := [one for one in self.notifiers if not callable(one) or isinstance(one, type)]:
            problems.append(
                f"notifiers must be Airflow notifiers or functions that take the task's context, got {strange[0]!r}."
            )
        if problems:
            raise ConfigurationError(*problems, subject="StreamAlerts")

    def thresholds(self) -> dict[str, float | None]:
        """Return the thresholds in seconds, as JSON values."""
        return {
            "lag": None if self.lag is None else self.lag.total_seconds(),
            "retention_left": None if self.retention_left is None else self.retention_left.total_seconds(),
        }

    @classmethod
    def from_thresholds(cls, thresholds: Mapping[str, float | None]) -> StreamAlerts:
        """Return the alerts with the thresholds of :meth:`thresholds`, without notifiers."""
        lag, left = thresholds["lag"], thresholds["retention_left"]
        return cls(
            lag=None if lag is None else timedelta(seconds=lag),
            retention_left=None if left is None else timedelta(seconds=left),
        )


@dataclass(frozen=True, slots=True)
class Alert:
    """A state of a stream that is reported.

    Attributes:
        stream: Name of the stream.
        table: URI of its table.
        state: The state.
        key: What makes it differ from the next incident with the same state.
        why: Why it is in this state.
        action: The ``fds`` command to run.
        entry: Number of the last ledger entry when it was detected.
        version: Version of the table that it is about.
        operation: ``commitInfo.operation`` of that version.
        begun: Number of the ledger entry with which the state began; ``None`` if unknown.
    """

    stream: str
    table: str
    state: AlertState
    key: str
    why: str
    action: str
    entry: int
    version: int | None = None
    operation: str | None = None
    begun: int | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """Which states apply according to a status.

    Attributes:
        alerts: The states that apply.
        unknown: States that cannot be determined from the status: they neither begin nor end.
        thresholds: The keys of the thresholds that it was compared with, by state.
        seconds: The known values of the states that begin at a threshold. They end incidents of other thresholds, too.
    """

    alerts: tuple[Alert, ...] = ()
    unknown: frozenset[str] = frozenset()
    thresholds: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)

    def ends(self, state: str, key: str) -> bool:
        """Whether an open incident is over, unless it is one of the alerts."""
        if state in _THRESHOLDS:
            if self.thresholds.get(state) == key:
                return True
            return state in self.seconds and not _is_reached(state, self.seconds[state], float(key))
        return state not in self.unknown

    def to_dict(self) -> dict[str, Any]:
        """Return the values as JSON, for the event of a trigger."""
        alerts = [asdict(alert) for alert in self.alerts]
        return {
            "alerts": alerts,
            "unknown": sorted(self.unknown),
            "thresholds": dict(self.thresholds),
            "seconds": dict(self.seconds),
        }

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Found:
        """Return the value of :meth:`to_dict`."""
        alerts = tuple(Alert(**alert) for alert in found["alerts"])
        return cls(alerts, frozenset(found["unknown"]), dict(found["thresholds"]), dict(found["seconds"]))


def find_alerts(status: StreamStatus, alerts: StreamAlerts) -> Found:
    """Return which states apply to a stream. Pure."""
    # a DAG file declares alerts, and needs nothing of this
    from airflow_provider_fds.stream.monitoring.condition import hidden_by

    if status.condition == "unreadable" and status.reason_code in _PASSING:
        return Found(unknown=_ALL)
    if status.condition == "retired":
        return Found(unknown=_OF_OTHERS, seconds={"lag": 0.0, "retention_left": _FOR_EVER})
    found: list[Alert] = []
    compared: dict[str, str] = {}
    if status.attention is not None:
        found.append(_alert(status, cast("AlertState", status.condition), **status.attention))
    # without a lag, there is no version that the retention could take
    left = _FOR_EVER if status.lag_versions == 0 else status.retention_left_seconds
    known = {"lag": status.lag_seconds, "retention_left": left}
    values = {name: value for name, value in known.items() if value is not None}
    for name, threshold in _thresholds(alerts).items():
        value, key = values.get(name), _key(threshold)
        if value is None:
            continue
        compared[name] = key
        if _is_reached(name, value, threshold.total_seconds()):
            why = _why(status, name, timedelta(seconds=value), threshold)
            found.append(_alert(status, name, key=key, why=why, action=f"fds explain {status.name}"))
    hidden = hidden_by(status.condition, is_retried=status.will_retry)
    return Found(tuple(found), hidden | _OF_OTHERS, compared, values)


def name_in_use(state: StreamState, table: str, deployment: str, entry: int) -> Found:
    """Return that a run was refused from a stream, of which it says nothing else. Pure.

    Args:
        state: The stream's state.
        table: URI of the run's table.
        deployment: The Airflow installation of the run.
        entry: Number of the newest entry of the stream's ledger.
    """
    why = (
        f"A run of deployment {deployment!r} has used the name {state.name!r} for table {table}; the name is that of "
        f"the stream of {state.table} in deployment {state.deployment!r}. Nothing was loaded"
    )
    alert = Alert(
        stream=state.name,
        table=redacted(table),
        state="name_in_use",
        key=redacted(f"{table} {deployment}"),
        why=redacted(why),
        action=f"fds status {state.name}",
        entry=entry,
    )
    return Found((alert,), _ALL - _OF_OTHERS)


def _is_reached(state: str, seconds: float, threshold: float) -> bool:
    return seconds >= threshold if state == "lag" else seconds <= threshold


def _thresholds(alerts: StreamAlerts) -> dict[Literal["lag", "retention_left"], timedelta]:
    found: dict[Literal["lag", "retention_left"], timedelta] = {}
    if alerts.lag is not None:
        found["lag"] = alerts.lag
    if alerts.retention_left is not None:
        found["retention_left"] = alerts.retention_left
    return found


def _key(threshold: timedelta) -> str:
    return f"{threshold.total_seconds():g}"


def _why(status: StreamStatus, state: AlertState, time: timedelta, threshold: timedelta) -> str:
    count = status.lag_versions or 0
    versions = "1 version is" if count == 1 else f"{count:,} versions are"
    oldest = "the oldest for" if state == "lag" else "the oldest is safe from the table's retention for"
    return f"{versions} not committed, {oldest} {format_duration(time)} (threshold: {format_duration(threshold)})"


def _alert(status: StreamStatus, state: AlertState, **words: Any) -> Alert:
    # it leaves the installation: to a chat, by mail, as an asset event
    words["why"] = redacted(words["why"])
    return Alert(stream=status.name, table=redacted(status.table), state=state, entry=status.entries - 1, **words)
