"""``FleetGroup``: the streams of a file that one task loads, and how it does."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from airflow_provider_fds.durations import parse_duration
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.fleet.streams_file.fields import ALERT_KEYS, GROUP_KEYS, SPARK_KEYS, unknown_key
from airflow_provider_fds.source.options.option_values import boolean, count, size
from airflow_provider_fds.stream.monitoring.alerts import StreamAlerts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta

    from airflow_provider_fds.fleet.streams_file.document import Document, Path
    from airflow_provider_fds.fleet.table_pattern import TablePattern
    from airflow_provider_fds.fleet.value import FleetStream

#: Keys about streams that one task loads together.
_OF_FLEETS: Final = frozenset({"parallelism", "on_stream_failure", "on_gone", "max_bytes_in_flight"})
_PRESETS: Final = ("@once", "@continuous", "@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly")
_CRON: Final = re.compile(r"\S+(?: +\S+){4,5}")
_NOTIFIER: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
#: Names of groups and ids of DAGs, as Airflow accepts them.
_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,200}")


@dataclass(frozen=True)
class FleetGroup:
    """Streams that one task loads in one Spark application.

    Attributes:
        name: Name of the group.
        streams: The streams that the file lists, in its order.
        patterns: Its table patterns, in its order.
        refused: The streams that are not among them because they cannot be together with others: by name, why.
        conn_id: Airflow connection of Spark.
        schedule: Schedule of the DAG: a cron expression or preset, a time between runs, or ``None``.
        dag_id: Id of the group's DAG.
        dag_per: ``"group"``: one DAG; ``"stream"``: one DAG for each stream, named ``<dag_id>.<stream>``.
        tags: Tags of the DAGs.
        parallelism: How many streams Spark loads at the same time.
        pool: Airflow pool of the tasks.
        on_stream_failure: What a failed stream means for the task.
        on_gone: What a table of a pattern that is gone means for the task.
        max_bytes_in_flight: Bytes of all batches that Spark loads at the same time; ``None``: no limit.
        run_time_limit: Once this much time has passed, a run starts no further batch.
        batches_per_application: Maximum number of batches of a stream in one Spark application; ``None``: as the
            operator.
        wait: Whether the task waits until a table has something new.
        poll_interval: With ``wait``: time between two polls.
        linger: Once everything is loaded, the task stays for what comes until nothing has come for this long.
        alerts: When to alert, without notifiers; ``None``: never.
        notifiers: Notifiers of the alerts, each as ``"pkg.module:name"``.
        spark: Arguments of SparkSubmitOperator.
    """

    name: str
    streams: tuple[FleetStream, ...] = ()
    patterns: tuple[TablePattern, ...] = ()
    refused: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    conn_id: str = "spark_default"
    schedule: str | timedelta | None = None
    dag_id: str = ""
    dag_per: Literal["group", "stream"] = "group"
    tags: tuple[str, ...] = ()
    parallelism: int = 8
    pool: str | None = None
    on_stream_failure: Literal["fail_at_end", "continue", "fail_fast"] = "fail_at_end"
    on_gone: Literal["alert", "fail", "retire"] = "alert"
    max_bytes_in_flight: int | None = None
    run_time_limit: timedelta | None = None
    batches_per_application: int | None = None
    wait: bool = False
    poll_interval: timedelta | None = None
    linger: timedelta | None = None
    alerts: StreamAlerts | None = None
    notifiers: tuple[str, ...] = ()
    spark: Mapping[str, Any] = field(default_factory=dict, hash=False)


def read_group(document: Document, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a :class:`FleetGroup` besides its streams; problems are added to the document."""
    path: Path = ("groups", name)
    found: dict[str, Any] = {"name": name, "dag_id": f"fds_{name}"}
    if not _ID.fullmatch(name):
        document.add(path, f"the group {name!r} must have 1 to 200 letters, digits, '.', '_' and '-'. Rename it.")
    for key, value in given.items():
        if key not in GROUP_KEYS:
            document.add((*path, key), unknown_key(key, GROUP_KEYS, "a group"))
        elif value is not None and key not in ("defaults", "alerts", "spark"):
            try:
                found[key] = _READERS[key](value)
            except ValueError as error:
                document.add((*path, key), f"{key} {error}.")
    if not _ID.fullmatch(found["dag_id"]):
        document.add((*path, "dag_id"), f"dag_id {found['dag_id']!r} must have letters, digits, '.', '_' and '-'.")
    if found.get("poll_interval") and not found.get("wait"):
        document.add((*path, "poll_interval"), "poll_interval has no effect without wait: true. Omit it.")
    if found.get("dag_per") == "stream":
        for key in _OF_FLEETS & found.keys():
            document.add((*path, key), f"{key} has no effect with dag_per: stream. Omit it.")
    found |= _alerts(document, path, given.get("alerts"))
    found["spark"] = _spark(document, path, given.get("spark"))
    return found


def _alerts(document: Document, path: Path, given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    here = (*path, "alerts")
    if not isinstance(given, dict):
        document.add(here, f"alerts must be a mapping with {', '.join(ALERT_KEYS)}, got {given!r}.")
        return {}
    found: dict[str, Any] = {}
    for key, value in given.items():
        if key not in ALERT_KEYS:
            document.add((*here, key), unknown_key(key, ALERT_KEYS, "alerts"))
        elif value is not None:
            try:
                found[key] = (_texts if key == "notifiers" else _duration)(value)
            except ValueError as error:
                document.add((*here, key), f"{key} {error}.")
    notifiers = found.pop("notifiers", ())
    for number, notifier in enumerate(notifiers):
        if not _NOTIFIER.fullmatch(notifier):
            document.add(
                (*here, "notifiers", number), f"a notifier must be named as 'pkg.module:name', got {notifier!r}."
            )
    return {"alerts": StreamAlerts(**found), "notifiers": notifiers}


def _spark(document: Document, path: Path, given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    here = (*path, "spark")
    if not isinstance(given, dict):
        document.add(here, f"spark must be a mapping of arguments such as conf, got {given!r}.")
        return {}
    found: dict[str, Any] = {}
    for key, value in given.items():
        if key not in SPARK_KEYS:
            document.add((*here, key), unknown_key(key, SPARK_KEYS, "spark"))
            continue
        read: Callable[[Any], Any] = {"object": _settings, "integer": count}.get(SPARK_KEYS[key].schema["type"], _text)
        try:
            found[key] = read(value)
        except ValueError as error:
            document.add((*here, key), f"{key} {error}.")
    return found


def _settings(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"must be a mapping, got {value!r}")  # noqa: TRY004  # a problem of the file
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"must be a text, got {value!r}; quote it if it is one")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
        raise ValueError(f"must be a list of texts, got {value!r}")
    return tuple(value)


def _duration(value: Any) -> timedelta:
    found = parse_duration(value)
    if found is None or not found:
        raise ValueError(f"must be a time such as 90s, 15m, 2h or 1d, above 0, got {value!r}")
    return found


def _schedule(value: Any) -> str | timedelta:
    if isinstance(value, str) and (value in _PRESETS or _CRON.fullmatch(value.strip())):
        return value.strip()
    found = parse_duration(value) if isinstance(value, str) else None
    if not found:
        raise ValueError(
            f"must be a cron expression such as '*/15 * * * *', a preset ({', '.join(_PRESETS)}), or a time between "
            f"runs such as 15m, got {value!r}"
        )
    return found


def _choice(key: str) -> Callable[[Any], str]:
    values = GROUP_KEYS[key].schema["enum"]

    def read(value: Any) -> str:
        if value not in values:
            raise ValueError(f"must be {', '.join(values[:-1])} or {values[-1]}, got {value!r}")
        return str(value)

    return read


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "conn_id": _text,
    "schedule": _schedule,
    "dag_id": _text,
    "dag_per": _choice("dag_per"),
    "tags": _texts,
    "parallelism": count,
    "pool": _text,
    "on_stream_failure": _choice("on_stream_failure"),
    "on_gone": _choice("on_gone"),
    "max_bytes_in_flight": size,
    "run_time_limit": _duration,
    "batches_per_application": count,
    "wait": boolean,
    "poll_interval": _duration,
    "linger": _duration,
}


@dataclass(frozen=True)
class FleetFile:
    """A file of streams.

    Attributes:
        groups: Its groups that have a stream or a pattern, in the order in which the file first names them.
    """

    groups: tuple[FleetGroup, ...]

    def group(self, name: str) -> FleetGroup:
        """Return the group with this name.

        Raises:
            ConfigurationError: There is none.
        """
        for group in self.groups:
            if group.name == name:
                return group
        known = ", ".join(repr(group.name) for group in self.groups) or "none"
        raise ConfigurationError(f"there is no group {name!r} in the file; its groups are {known}.")
