"""The parts of a table's URI in the texts of a pattern: ``{schema}``, ``{table}``, ``{1}``."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.schemes import PATH_SAFE
from airflow_provider_fds.sinks import sink_from_dict
from airflow_provider_fds.stream.declaration.backfill_range import is_template
from airflow_provider_fds.stream.declaration.delta_stream import NAME_PATTERN

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_provider_fds.sinks import Sink

#: A part, or a template of Airflow, whose braces are not a part's.
_PART: Final = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{([^{}]*)\}", re.DOTALL)

#: Strings of a sink that are code: the name of a folder must not become a part of them.
_CODE: Final = frozenset({"kind", "where", "replace_where", "transform", "function"})


def expanded(text: str, parts: Mapping[str, str]) -> str:
    """Return ``text`` with its parts replaced, encoded if it is a URI; Airflow's templates stay as they are.

    Raises:
        ConfigurationError: There is no such part, or its value is a template itself.

    >>> expanded("s3://bronze/{schema}/{table}", {"schema": "raw", "table": "orders"})
    's3://bronze/raw/orders'
    """

    def value_of(found: re.Match[str]) -> str:
        part = found[1]
        if part is None:
            return found[0]
        if part not in parts:
            near = get_close_matches(part, parts, n=1, cutoff=0.5)
            hint = f" Did you mean {{{near[0]}}}?" if near else ""
            known = ", ".join(f"{{{one}}}" for one in parts)
            raise ConfigurationError(f"{text!r} has the unknown part {found[0]}; the parts are {known}.{hint}")
        if is_template(parts[part]):
            raise ConfigurationError(f"the folder {parts[part]!r} would be a template of Airflow.")
        return quote(parts[part], safe=PATH_SAFE) if "://" in text else parts[part]

    return _PART.sub(value_of, text)


def expanded_checkpoint(checkpoint: str, name: str, parts: Mapping[str, str]) -> str:
    """Return ``checkpoint`` with its parts replaced; ``{name}`` is the name of the stream.

    Raises:
        ConfigurationError: There is no such part, or its value is a template itself.

    >>> expanded_checkpoint("file:offsets/{name}.json", "orders", {})
    'file:offsets/orders.json'
    """
    return expanded(checkpoint, {**parts, "name": str(name)}) if isinstance(checkpoint, str) else checkpoint


def expanded_sink(sink: Sink, parts: Mapping[str, str]) -> Sink:
    """Return a sink with the parts replaced in all its strings that are not code.

    Raises:
        ConfigurationError: There is no such part, or the result is not a valid sink.
    """
    if not parts_in(sink):
        return sink
    given = _replaced(sink.to_dict(), lambda text: expanded(text, parts))
    try:
        return sink_from_dict(given)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"invalid sink: {error}.") from error


def parts_in(sink: Sink) -> frozenset[str]:
    """Return the parts that the strings of a sink contain."""
    found: set[str] = set()

    def collect(text: str) -> str:
        found.update(part for part in _PART.findall(text) if part)
        return text

    _replaced(sink.to_dict(), collect)
    return frozenset(found)


def template_problems(name: object, checkpoint: object, sink: Sink, parts: Mapping[str, str]) -> list[str]:
    """Return what is wrong with the templates of a pattern, one sentence each."""
    if not isinstance(name, str | None):
        return [f"name must be a string with parts such as '{{table}}', got {name!r}."]
    problems: list[str] = []
    # what is no text is refused by the streams
    place = checkpoint if isinstance(checkpoint, str) else ""
    for check in (
        lambda: expanded(name or "", parts),
        lambda: expanded(place, {**parts, "name": "x"}),
        lambda: expanded_sink(sink, parts),
    ):
        try:
            check()
        except ConfigurationError as error:
            problems += error.problems
    if name is not None and not any(_PART.findall(name)):
        problems.append(f"name {name!r} is the same for all tables. Use a part in it, such as '{{table}}'.")
    if name is not None and not problems and not NAME_PATTERN.fullmatch(_PART.sub("x", name)):
        problems.append(f"name {name!r} must consist of parts, letters, digits, '.', '_' and '-'.")
    if ":" in place and not any(_PART.findall(place)):
        problems.append(
            f"checkpoint {place!r} is the same for all tables, but each stream needs its own. Use a part in it, such "
            f"as '{place.removesuffix('.json')}.{{name}}.json', or checkpoint 'variable'."
        )
    return problems


def _replaced(value: Any, replace: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return replace(value)
    if isinstance(value, dict):
        return {key: one if key in _CODE else _replaced(one, replace) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_replaced(one, replace) for one in value]
    return value
