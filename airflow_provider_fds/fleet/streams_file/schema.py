"""The JSON Schema of a file of streams, for editors. ``streams.schema.json`` is its result; a test compares the two."""

from __future__ import annotations

import re
from dataclasses import fields
from importlib.resources import files
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds import fleet
from airflow_provider_fds.fleet.streams_file.fields import (
    ALERT_KEYS,
    COUNT,
    DURATION,
    FLAG,
    GROUP_KEYS,
    NO_DEFAULT,
    SINKS,
    SIZE,
    SPARK_KEYS,
    STREAM_KEYS,
    TEXT,
    one_of,
    sink_keys,
)
from airflow_provider_fds.sinks import DeltaMergeSink, DeltaSink, ForeachBatchSink
from airflow_provider_fds.source.options.options import SourceOptions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_provider_fds.fleet.streams_file.fields import Key

#: Name of the schema in the package.
SCHEMA_FILE: Final = "streams.schema.json"

#: A variable of the environment may stand for any value.
_VARIABLE: Final = {"type": "string", "pattern": r"\$\{"}
_NAMES: Final = {"anyOf": [TEXT, {"type": "array", "items": {"type": ["string", "integer"]}}]}

#: Values by the type of an argument.
_BY_TYPE: Final[dict[str, dict[str, Any]]] = {
    "bool": FLAG,
    "bool | None": FLAG,
    "int": COUNT,
    "int | None": {"type": "integer", "minimum": 0},
    "int | str | None": {"type": ["integer", "string"]},
    "str": TEXT,
    "str | None": TEXT,
    "timedelta": DURATION,
    "timedelta | None": DURATION,
    "tuple[str, ...]": _NAMES,
    "values_of.VersionRanges": {"anyOf": [_NAMES, {"type": "integer"}]},
    "Rules": {"type": ["object", "string"]},
    "Mapping[str, str]": {"type": "object"},
    "Mapping[str, Constant]": {"type": "object"},
    "tuple[str, ...] | Mapping[str, str | None]": {"anyOf": [{"type": "object"}, _NAMES]},
}

#: Values of arguments that accept less or more than their types say.
_BY_NAME: Final[dict[str, dict[str, Any]]] = {
    "max_bytes_per_batch": SIZE,
    "min_batch_bytes": SIZE,
    "target_file_size": SIZE,
    "on_changed_start": one_of("warn", "fail"),
    "on_violation": one_of("fail", "quarantine"),
    "on_lost_position": one_of("fail", "earliest"),
    "on_sink_overwritten": one_of("warn", "fail"),
    "scd": {"enum": [1, 2]},
    "mode": one_of("append", "merge"),
}

_ARGUMENT: Final = re.compile(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)


def streams_schema() -> dict[str, Any]:
    """Return the schema."""
    options = _properties(SourceOptions, (field.name for field in fields(SourceOptions)))
    stream = {**{name: _property(key) for name, key in STREAM_KEYS.items()}, **options}
    stream["sink"] = {"description": STREAM_KEYS["sink"].about, "$ref": "#/$defs/sink"}
    defaults = {name: {"$ref": f"#/$defs/stream/properties/{name}"} for name in stream if name not in NO_DEFAULT}
    group = {name: _property(key) for name, key in GROUP_KEYS.items()}
    group["alerts"] = _object({name: _property(key) for name, key in ALERT_KEYS.items()}, GROUP_KEYS["alerts"].about)
    group["spark"] = _object({name: _property(key) for name, key in SPARK_KEYS.items()}, GROUP_KEYS["spark"].about)
    group["defaults"] = {"description": GROUP_KEYS["defaults"].about, "$ref": "#/$defs/defaults"}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Streams of FDS",
        "type": "object",
        "additionalProperties": False,
        "required": ["streams"],
        "properties": {
            "defaults": {"description": "Values for each stream that does not set them.", "$ref": "#/$defs/defaults"},
            "groups": {
                "description": "How the streams of each group are loaded, by the group's name.",
                "type": "object",
                "additionalProperties": {"$ref": "#/$defs/group"},
            },
            "streams": {
                "description": "The streams: single tables, and patterns that find tables.",
                "type": "array",
                "minItems": 1,
                "items": {"$ref": "#/$defs/stream"},
            },
        },
        "$defs": {
            "defaults": _object(defaults, "Values for each stream.", may_be_empty=True),
            "group": _object(group, "A group of streams, loaded by one task.", may_be_empty=True),
            "stream": {
                **_object(stream, "A stream, or a pattern that finds tables."),
                "oneOf": [{"required": ["table"]}, {"required": ["tables"]}],
            },
            "sink": {
                "anyOf": [
                    {"type": "string", "minLength": 1},
                    _object(_sink_properties(), "A sink; uri and the other arguments of its kind."),
                ]
            },
        },
    }


def published_schema() -> str:
    """Return the schema as the package has it, JSON text."""
    return files(fleet).joinpath(SCHEMA_FILE).read_text(encoding="utf-8")


def _sink_properties() -> dict[str, Any]:
    found: dict[str, Any] = {"kind": {"description": "The kind of the sink.", "enum": list(SINKS)}}
    for kind, sink in SINKS.items():
        own = [name for name in sink_keys(kind) if name not in found]
        found |= _properties(sink, own, DeltaSink, DeltaMergeSink, ForeachBatchSink)
    return found


def _properties(described: type, names: Iterable[str], *also: type) -> dict[str, Any]:
    """Return the schemas of the fields of a class, described by the docstrings of the class and of others."""
    about = {
        name: re.sub(r"\s+", " ", text)
        for one in (*also, described)
        for name, text in _ARGUMENT.findall(cleandoc(one.__doc__ or ""))
    }
    found = {}
    types = {field.name: str(field.type) for field in fields(described)}
    for name in names:
        schema = _BY_NAME.get(name) or _BY_TYPE[types[name]]
        found[name] = {"description": _plain(about.get(name, name)), **_or_variable(schema)}
    return found


def _property(key: Key) -> dict[str, Any]:
    return {"description": key.about, **_or_variable(key.schema)}


def _or_variable(schema: Any) -> dict[str, Any]:
    takes_text = schema.get("type") == "string" or schema == {} or "string" in schema.get("type", ())
    return dict(schema) if takes_text else {"anyOf": [dict(schema), {"type": "null"}, _VARIABLE]}


def _object(properties: dict[str, Any], about: str, *, may_be_empty: bool = False) -> dict[str, Any]:
    kind: str | list[str] = ["object", "null"] if may_be_empty else "object"
    return {"description": about, "type": kind, "additionalProperties": False, "properties": properties}


def _plain(text: str) -> str:
    """Return a docstring's text without its markup."""
    return re.sub(r":\w+:`~?\.?([^`]*)`", r"\1", text).replace("``", "").strip()
