"""``FleetStream``: a stream of a fleet, as a value for a DAG file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

from airflow_provider_fds.checkpoint.registry import place_of
from airflow_provider_fds.durations import parse_duration
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.stream.declaration.delta_stream import DeltaStream
from airflow_provider_fds.stream.declaration.sink_needs import (
    coerce_sink,
    missing_columns_problem,
    whole_commits_problem,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_provider_fds.sinks import Sink


@dataclass(frozen=True)
class FleetStream:
    """A stream of a fleet, with its sink.

    Args:
        stream: The stream; it reads by offset. A dict of its arguments is accepted.
        sink: Where its rows go. A dict of its arguments is accepted.
        batch_timeout: The longest time that Spark may take for one batch, also as ``"30m"`` or in seconds; ``None``:
            no limit.

    Raises:
        ConfigurationError: A value is invalid, or a fleet cannot load the stream.

    Examples:
        >>> from airflow_provider_fds import DeltaStream, DeltaAppendSink
        >>> orders = FleetStream(DeltaStream("orders", table="s3://lake/orders"), DeltaAppendSink("s3://bronze/orders"))
        >>> orders.name
        'orders'
    """

    stream: DeltaStream
    sink: Sink
    batch_timeout: timedelta | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "stream", DeltaStream.coerce(self.stream))
        object.__setattr__(self, "sink", coerce_sink(self.sink))
        object.__setattr__(self, "batch_timeout", positive_timeout(self.batch_timeout))
        problems = [missing_columns_problem(self.stream, self.sink), whole_commits_problem(self.stream, self.sink)]
        if self.stream.reads_by_interval or self.sink.replaces:
            problems.append(
                f"stream {self.stream.name!r} loads data intervals, but a fleet reads by offset. Use a "
                "DeltaIngestOperator for it, or omit read='data_interval' and use a sink that does not replace."
            )
        if self.stream.options.on_violation == "ask":
            problems.append(
                f"stream {self.stream.name!r} has on_violation='ask', but the task of a fleet waits for nobody. Use "
                "'quarantine' and alerts on the task: the page and `fds` offer the same choices. Or use a "
                "DeltaIngestOperator for this stream."
            )
        if found := [problem for problem in problems if problem is not None]:
            raise ConfigurationError(*found, subject=f"stream {self.stream.name!r}", reason=Reason.INVALID_OPTION)

    @property
    def name(self) -> str:
        """Name of the stream."""
        return self.stream.name

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-compatible values that :meth:`from_dict` accepts. Contains no secret."""
        found: dict[str, Any] = {"stream": self.stream.to_dict(), "sink": self.sink.serialize()}
        if self.batch_timeout is not None:
            found["batch_timeout"] = self.batch_timeout.total_seconds()
        return found

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> FleetStream:
        """Build the value from the result of :meth:`to_dict`.

        Raises:
            ConfigurationError: ``stream`` or ``sink`` is missing, there is another key, or a value is invalid.
        """
        return cls(**checked_fields(value, "a fleet's stream", {"stream", "sink"}, {"batch_timeout"}))

    @classmethod
    def coerce(cls, value: object) -> FleetStream:
        """Return ``value`` if it is a :class:`FleetStream`; build one from a mapping.

        Raises:
            ConfigurationError: The value is anything else.
        """
        return coerced(cls, value, "a fleet's stream", "'stream' and 'sink'")

    @classmethod
    def coerce_all(cls, values: object) -> tuple[FleetStream, ...]:
        """Return the streams of a list, each as :meth:`coerce` does: what a task has declared, or another returned.

        Raises:
            ConfigurationError: It is not a list, or a value in it is anything else.
        """
        if not isinstance(values, Sequence) or isinstance(values, str):
            raise ConfigurationError(
                f"streams must be a list of FleetStream or of dicts of its arguments, got {values!r}."
            )
        return tuple(cls.coerce(one) for one in values)

    def serialize(self) -> dict[str, Any]:
        """Return what Airflow shows for the value in a serialised DAG."""
        return self.to_dict()


def problems_between(streams: Iterable[FleetStream]) -> list[str]:
    """Return what keeps streams from being one fleet, one sentence each: names and checkpoints that are not unique."""
    problems: list[str] = []
    names: set[str] = set()
    places: dict[str, str] = {}
    for one in streams:
        if one.name in names:
            problems.append(f"stream {one.name!r} is given twice. Each stream needs a name of its own.")
            continue
        names.add(one.name)
        place = place_of(one.stream.checkpoint)
        if place is not None and (other := places.setdefault(place, one.name)) != one.name:
            problems.append(
                f"stream {one.name!r} has the checkpoint {one.stream.checkpoint!r} of stream {other!r}. Give each "
                "stream its own, or use checkpoint 'variable'."
            )
    return list(dict.fromkeys(problems))


def positive_timeout(value: object) -> timedelta | None:
    """Return a time limit for a batch, ``None`` for none.

    Raises:
        ConfigurationError: It is no positive duration.
    """
    if value is None:
        return None
    duration = parse_duration(value)
    if duration is None or duration <= timedelta():
        raise ConfigurationError(
            f"batch_timeout must be a positive duration, such as '30m' or timedelta(minutes=30), got {value!r}.",
            reason=Reason.INVALID_OPTION,
        )
    return duration


class _FromMapping(Protocol):
    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """Build the value from a mapping of its arguments."""


Value = TypeVar("Value", bound=_FromMapping)


def coerced(kind: type[Value], value: object, what: str, needs: str) -> Value:
    """Return a value of a fleet, or build it from a mapping.

    Raises:
        ConfigurationError: The value is anything else.
    """
    if isinstance(value, kind):
        return value
    if isinstance(value, Mapping):
        return kind.from_dict(value)
    raise ConfigurationError(f"{what} must be a {kind.__name__} or a dict with {needs}, got {value!r}.")


def checked_fields(value: Mapping[str, Any], what: str, required: set[str], optional: set[str]) -> dict[str, Any]:
    """Return the arguments of a value of a fleet.

    Raises:
        ConfigurationError: A required one is missing, or there is another key.
    """
    problems = [
        f"{what} needs {key!r}; it has {', '.join(map(str, value)) or 'nothing'}."
        for key in sorted(required - set(value))
    ]
    problems += [
        f"{what} has no argument {key!r}; expected {', '.join(sorted(required | optional))}."
        for key in value
        if key not in required | optional
    ]
    if problems:
        raise ConfigurationError(*problems, subject=what, reason=Reason.INVALID_OPTION)
    return dict(value)
