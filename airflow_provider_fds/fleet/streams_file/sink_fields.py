"""The fields of a sink as a person writes them: below ``sink`` in a file of streams, or with ``--sink-option``."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.fleet.streams_file.document import Document
from airflow_provider_fds.fleet.streams_file.fields import SINKS, sink_keys, unknown_key
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sinks import sink_from_dict
from airflow_provider_fds.source.options import option_values

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_provider_fds.fleet.streams_file.document import Path
    from airflow_provider_fds.sinks import Sink

#: The kind of a sink that does not name it.
DEFAULT_KIND: Final = "delta_append"


def check_sink_keys(document: Document, path: Path, given: Mapping[str, Any], *, are_defaults: bool = False) -> None:
    """Add a problem for each key that a sink cannot have, and for an unknown kind."""
    kind = given.get("kind")
    if kind is not None and not (isinstance(kind, str) and kind in SINKS):
        hint = " It replaces data intervals, which only a DeltaIngestOperator loads." if kind == "delta_replace" else ""
        document.add((*path, "kind"), f"the kind of a sink must be {', '.join(SINKS)}, got {kind!r}.{hint}")
        return
    of_all = dict.fromkeys(key for one in SINKS for key in sink_keys(one))
    # without a kind, the one of the defaults decides, which an entry may leave to another
    known = sink_keys(kind) if kind is not None and not are_defaults else tuple(of_all)
    for key in given:
        if key == "kind" or key in known:
            continue
        where = f"a sink of kind {kind}" if kind is not None else "a sink"
        document.add((*path, key), unknown_key(key, ("kind", *known), where))


def sink_of_fields(given: Mapping[str, Any]) -> Sink:
    """Return the sink with these fields, whose keys were checked. A text may stand for a value of any other type.

    Raises:
        ConfigurationError: A value is invalid, or a field is missing.
    """
    values = {"kind": DEFAULT_KIND, **given}
    try:
        types = {field.name: str(field.type) for field in fields(SINKS[values["kind"]])}
        for key, value in values.items():
            read = _READERS.get(types.get(key, "")) if isinstance(value, str) else None
            values[key] = value if read is None else _read(key, value, read)
        return sink_from_dict(values)
    except (TypeError, ValueError) as error:
        text = str(error)
        if "required positional argument" in text:
            missing = text.rpartition("'")[0].rpartition("'")[2]
            text = f"a sink of kind {values['kind']} needs {missing!r}"
        raise ConfigurationError(f"{text.removesuffix('.')}.") from error


def sink_of_options(given: Mapping[str, str], flag: str) -> Sink:
    """Return the sink with fields of the command line.

    Raises:
        ConfigurationError: A key does not exist, a value is invalid, or a field is missing.
    """
    values = {"kind": DEFAULT_KIND, **given}
    document = Document(flag)
    check_sink_keys(document, (), values)
    if document.problems:
        problems = [one.text for one in document.problems]
        raise ConfigurationError(*problems, subject=flag, reason=Reason.INVALID_OPTION)
    return sink_of_fields(values)


def _read(key: str, text: str, read: Callable[[str], Any]) -> Any:
    try:
        return read(text)
    except ValueError as error:
        raise ValueError(f"{key} {error}") from None


def _flag(text: str) -> bool:
    return option_values.boolean({"yes": "true", "no": "false"}.get(text.strip().lower(), text))


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise ValueError(f"must be names such as 'id,region', got {text!r}")
    return names


def _mapping(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ValueError(  # noqa: TRY004  # a problem of the file
            f'must be a mapping such as {{"name": "value"}}, got {text!r}'
        )
    return found


def _writes(text: str) -> tuple[str, ...] | dict[str, Any]:
    return _mapping(text) if text.lstrip().startswith("{") else _names(text)


#: How a text is read, by the type of the field.
_READERS: Final[dict[str, Callable[[str], Any]]] = {
    "bool": _flag,
    "int": option_values.count,
    "tuple[str, ...]": _names,
    "Mapping[str, str]": _mapping,
    "Mapping[str, Constant]": _mapping,
    "tuple[str, ...] | Mapping[str, str | None]": _writes,
}
