"""The range of a backfill: which versions of its table a bounded stream reads, by version or by commit time."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.source.options import option_values as values_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: The end that means: up to the version before the one where the live stream began.
LIVE_START: Final = "live_start"

#: Options of a stream that its backfill replaces.
PLACES: Final = (
    "starting_version",
    "starting_timestamp",
    "ending_version",
    "ending_timestamp",
    "version_as_of",
    "timestamp_as_of",
    "on_changed_start",
)

#: Characters that a backfill adds to the name of its stream.
_NAME_SUFFIX: Final = len(".bf.") + 12

_LONGEST_NAME: Final = 100

#: What a template without a value is rendered to.
_NOTHING: Final = ("", "None")

_COMPACT_DATE: Final = re.compile(r"(19|2\d)\d\d(0[1-9]|1[0-2])([0-2]\d|3[01])", re.ASCII)


@dataclass(frozen=True, slots=True)
class BackfillRange:
    """The range of a backfill, both ends inclusive, as given: possibly with templates.

    Attributes:
        of: Name of the live stream.
        checkpoint: Where the live stream keeps its offset.
        start: A version, a time, or ``"earliest"``.
        end: A version, a time, or ``"live_start"``.
        end_version: The version that ``"live_start"`` means, ``None`` until it is looked up.
    """

    of: str
    checkpoint: str
    start: int | str
    end: int | str
    end_version: int | None = None

    @classmethod
    def parse(cls, of: str, checkpoint: str, given: Mapping[str, Any]) -> BackfillRange:
        """Build the range from a user's values, or from :meth:`to_dict`.

        Raises:
            ConfigurationError: Reports all problems at once.
        """
        problems = [
            f"backfill has no argument {key!r}: give start and end."
            for key in given
            if key not in ("start", "end", "end_version")
        ]
        start, end = _text(given.get("start", "earliest")), _text(given.get("end", LIVE_START))
        places: dict[str, tuple[str, Any]] = {}
        for name, value in (("start", start), ("end", end)):
            try:
                if not is_template(value):
                    places[name] = _place(name, value)
            except ValueError as error:
                problems.append(f"backfill: {name} {error}.")
        start, end = (
            places[name][1] if name in places and isinstance(places[name][1], int) else value
            for name, value in (("start", start), ("end", end))
        )
        # two times are compared with the other options of the stream
        if isinstance(start, int) and isinstance(end, int) and end < start:
            problems.append(f"backfill: end {end} is before start {start}. Both are inclusive.")
        if problems:
            raise ConfigurationError(*problems, subject=f"stream {of!r}")
        return cls(of, checkpoint, start, end, given.get("end_version"))

    @property
    def is_rendered(self) -> bool:
        """Whether both ends are values, not templates."""
        return not is_template(self.start) and not is_template(self.end)

    @property
    def ends_at_live_start(self) -> bool:
        """Whether the end is the version before the one where the live stream began."""
        return self.end == LIVE_START

    @property
    def suffix(self) -> str:
        """What the backfill adds to the name of its stream: equal for equal ranges, however they are written."""
        if not self.is_rendered:
            return ".bf"
        places = [_place("start", self.start), _place("end", self.end)]
        return f".bf.{hashlib.sha256(json.dumps(places).encode()).hexdigest()[:12]}"

    @property
    def own_name(self) -> str:
        """Name of the backfill's stream."""
        return self.of + self.suffix

    @property
    def own_checkpoint(self) -> str:
        """Where the backfill keeps its offset: as the live stream does, but not in the same file."""
        return self.checkpoint + self.suffix if self.checkpoint.startswith("file:") else self.checkpoint

    def options(self) -> dict[str, Any]:
        """Return the range as source options; an end that is not known yet is left out."""
        if not self.is_rendered:
            return {}
        (first, _), (last, _) = _place("start", self.start), _place("end", self.end)
        found = {f"starting_{first}": self.start}
        if not self.ends_at_live_start:
            found[f"ending_{last}"] = self.end
        elif self.end_version is not None:
            found["ending_version"] = self.end_version
        return found

    def rendered(self, render: Callable[[str], str]) -> dict[str, Any]:
        """Return the range as :meth:`to_dict` does, with its templates rendered."""
        rendered = {
            name: render(value) if isinstance(value, str) else value
            for name, value in (("start", self.start), ("end", self.end))
        }
        return {**self.to_dict(), **rendered}

    def ending_at(self, version: int) -> BackfillRange:
        """Return the range with the version that ``"live_start"`` means."""
        return replace(self, end_version=version)

    def to_dict(self) -> dict[str, Any]:
        """Return the range as JSON-compatible values that :meth:`parse` accepts."""
        more = {} if self.end_version is None else {"end_version": self.end_version}
        return {"start": self.start, "end": self.end, **more}


def declared_range(
    name: str, checkpoint: str, read: str, given: Mapping[str, Any], options: Mapping[str, Any]
) -> tuple[BackfillRange | None, list[str]]:
    """Return the range of a backfill of the stream ``name``, and what is wrong with it."""
    problems = []
    if read != "offset":
        problems.append("Airflow backfills a stream with read='data_interval': `airflow backfill create --dag-id …`.")
    if len(name) + _NAME_SUFFIX > _LONGEST_NAME:
        problems.append(
            f"name {name!r} has {len(name)} characters; a backfill adds {_NAME_SUFFIX}, and a name has at most "
            f"{_LONGEST_NAME}."
        )
    problems += [f"backfill and option {key!r} cannot be combined." for key in options if key in PLACES]
    try:
        return BackfillRange.parse(name, checkpoint, given), problems
    except ConfigurationError as error:
        return None, [*problems, *error.problems]


def is_template(value: object) -> bool:
    """Whether Airflow would have to replace the value at run time: a Jinja template, or another task's output."""
    if isinstance(value, str):
        return "{{" in value or "{%" in value
    # recognises XComArg and similar classes without importing Airflow
    return hasattr(value, "iter_references")


def _text(value: Any) -> Any:
    if isinstance(value, (date, datetime)):
        return value.isoformat()
    return value.strip() if isinstance(value, str) else value


def _place(name: str, value: Any) -> tuple[str, Any]:
    """Return ``("version", N)``, ``("timestamp", "<UTC>")`` or ``("version", "<word>")``.

    Raises:
        ValueError: The value is not one of them.
    """
    from airflow_provider_fds.delta.moments import parse_timestamp

    word = "earliest" if name == "start" else LIVE_START
    if hasattr(value, "iter_references"):
        raise ValueError(
            f"is another task's output ({value!r}); Airflow does not look inside a stream. Use a template such as "
            "{{ ti.xcom_pull('task_id') }}"
        )
    if value is None or value in _NOTHING:
        raise ValueError(
            f"is empty; expected a version, a time or {word!r}. If it is a template, its parameter has no value"
        )
    if value == word:
        return "version", word
    if isinstance(value, str) and not re.fullmatch(r"[0-9]+", value, re.ASCII):
        try:
            milliseconds = parse_timestamp(values_of.timestamp(value))
        except ValueError as error:
            raise ValueError(f"must be a version, a time or {word!r}, got {value!r}: {error}") from None
        return "timestamp", (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)).isoformat()
    if isinstance(value, str) and _COMPACT_DATE.fullmatch(value):
        raise ValueError(
            f"is {value!r}, which may be a date or a version: write a date as "
            f"'{value[:4]}-{value[4:6]}-{value[6:]}', or give the version as a number"
        )
    return "version", values_of.version(value)
