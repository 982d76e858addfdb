"""One entry of a file's ``streams``: merged with the defaults, checked, and turned into a stream or a pattern."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from airflow_provider_fds.catalog.names import TableName
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.fleet.streams_file.fields import (
    NO_DEFAULT,
    ONLY_TABLE,
    ONLY_TABLES,
    SINKS,
    STREAM_KEYS,
    sink_keys,
    source_options,
    unknown_key,
)
from airflow_provider_fds.fleet.streams_file.sink_fields import DEFAULT_KIND, check_sink_keys, sink_of_fields
from airflow_provider_fds.fleet.table_pattern import TablePattern
from airflow_provider_fds.fleet.template import expanded, expanded_checkpoint, expanded_sink
from airflow_provider_fds.fleet.value import FleetStream
from airflow_provider_fds.source.options.option_values import boolean
from airflow_provider_fds.source.options.options import SourceOptions
from airflow_provider_fds.stream.declaration.delta_stream import DeltaStream

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_fds.fleet.streams_file.document import Document, Path
    from airflow_provider_fds.sinks import Sink

_OPTIONS: Final = frozenset(source_options())
_KEYS: Final = (*STREAM_KEYS, *source_options())
#: Keys of an entry that are no arguments of its stream.
_BESIDE: Final = frozenset({"table", "tables", "name", "group", "sink", "shares_sink", "batch_timeout"}) | ONLY_TABLES
_QUOTED: Final = re.compile(r"'(\w+)'")
_WORD: Final = re.compile(r"\w+")


class Given(NamedTuple):
    """A value and where the file has it."""

    value: Any
    path: Path


class Entry(NamedTuple):
    """A stream or pattern of the file.

    Attributes:
        path: Where the file has it.
        group: Name of its group.
        value: The stream or the pattern.
        shares_sink: Whether other streams may load into its sink.
    """

    path: Path
    group: str
    value: FleetStream | TablePattern
    shares_sink: bool


def check_keys(document: Document, path: Path, given: Mapping[str, Any], *, are_defaults: bool = False) -> None:
    """Add a problem for each key that an entry, or ``defaults``, cannot have."""
    where = "defaults" if are_defaults else "a stream"
    for key in given:
        if key in _KEYS:
            if are_defaults and key in NO_DEFAULT:
                document.add((*path, key), f"{key} belongs to a single stream. Move it to an entry of 'streams'.")
        elif any(key in sink_keys(kind) for kind in SINKS):
            document.add((*path, key), f"{key!r} is an argument of the sink. Write it below 'sink'.")
        else:
            document.add((*path, key), _about_unknown(key, where))
    if isinstance(sink := given.get("sink"), dict):
        check_sink_keys(document, (*path, "sink"), sink, are_defaults=are_defaults)


def read_entry(
    document: Document, path: Path, given: Mapping[str, Any], defaults: Mapping[str, Given], group: str
) -> Entry | None:
    """Return the stream or pattern of an entry whose keys were checked, or ``None`` if there is a problem with it."""
    num_problems = len(document.problems)
    merged = {key: one for key, one in defaults.items() if key != "sink"}
    merged |= {key: Given(value, (*path, key)) for key, value in given.items() if key != "sink"}
    is_pattern = merged.get("tables", Given(None, ())).value is not None
    if is_pattern is (merged.get("table", Given(None, ())).value is not None):
        found = "has both 'table' and 'tables'" if is_pattern else "has neither 'table' nor 'tables'"
        document.add(
            path,
            f"the stream {found}. Write table: for one table, or tables: with '*' for all in a folder or a schema.",
        )
        return None
    for key in (ONLY_TABLE if is_pattern else ONLY_TABLES) & given.keys():
        other = "table" if is_pattern else "tables"
        document.add((*path, key), f"{key} has no effect on an entry without {other!r}. Omit it.")
    if not is_pattern and isinstance(table := merged["table"].value, str) and "*" in table:
        document.add((*path, "table"), f"table is one table, got {table!r}. Write tables: for a pattern with '*'.")
        return None
    merged = {
        key: one
        for key, one in merged.items()
        if one.value is not None and (key in _KEYS) and key not in (ONLY_TABLE if is_pattern else ONLY_TABLES)
    }
    shares_sink = _flag(document, merged, "shares_sink")
    sink_fields = _sink_fields(document, path, given, defaults)
    if sink_fields is None or len(document.problems) > num_problems:
        return None
    try:
        sink = sink_of_fields({key: one.value for key, one in sink_fields.items()})
    except ConfigurationError as error:
        _add_problems(document, (*path, "sink"), error, sink_fields)
        return None
    try:
        value = _pattern(merged, sink) if is_pattern else _stream(merged, sink)
    except ConfigurationError as error:
        _add_problems(document, path, error, merged | {f"sink.{key}": one for key, one in sink_fields.items()})
        return None
    return Entry(path, group, value, shares_sink)


def _stream(merged: Mapping[str, Given], sink: Sink) -> FleetStream:
    table = merged["table"].value
    # what is no text is reported by the stream
    folders = _parts(table, "catalog_conn_id" in merged) if isinstance(table, str) else ["table"]
    parts = {"schema": folders[-2] if len(folders) > 1 else "", "table": folders[-1] if folders else ""}
    name = merged["name"].value if "name" in merged else "{table}"
    name = expanded(name, parts) if isinstance(name, str) else name
    arguments, options = _arguments(merged)
    if "checkpoint" in arguments:
        arguments["checkpoint"] = expanded_checkpoint(arguments["checkpoint"], name, parts)
    if isinstance(rejects := arguments.get("rejects"), str):
        arguments["rejects"] = expanded(rejects, {**parts, "name": str(name)})
    stream = DeltaStream(name, table=table, options=options, **arguments)
    return FleetStream(stream, expanded_sink(sink, parts), _value(merged, "batch_timeout"))


def _parts(table: str, is_name: bool) -> list[str]:
    if is_name:
        with suppress(ConfigurationError):
            return list(TableName.parse(table).parts)
    return [folder for folder in table.split("/") if folder]


def _pattern(merged: Mapping[str, Given], sink: Sink) -> TablePattern:
    arguments, options = _arguments(merged)
    own = {key: merged[key].value for key in ("name", "batch_timeout", *ONLY_TABLES) if key in merged}
    return TablePattern.from_dict(
        {"tables": merged["tables"].value, "sink": sink, "options": options, **arguments, **own}
    )


def _arguments(merged: Mapping[str, Given]) -> tuple[dict[str, Any], dict[str, Any]]:
    arguments = {key: one.value for key, one in merged.items() if key not in _BESIDE and key not in _OPTIONS}
    return arguments, {key: one.value for key, one in merged.items() if key in _OPTIONS}


def _value(merged: Mapping[str, Given], key: str) -> Any:
    return merged[key].value if key in merged else None


def _flag(document: Document, merged: Mapping[str, Given], key: str) -> bool:
    found = merged.get(key)
    if found is None:
        return False
    try:
        return boolean(found.value)
    except ValueError as error:
        document.add(found.path, f"{key} {error}.")
        return False


def _sink_fields(
    document: Document, path: Path, given: Mapping[str, Any], defaults: Mapping[str, Given]
) -> dict[str, Given] | None:
    """Return the sink's arguments, those of the defaults included, unless they belong to another kind of sink."""
    own = given.get("sink")
    here = (*path, "sink")
    base: dict[str, Given] = defaults["sink"].value if "sink" in defaults else {}
    if isinstance(own, str):
        own_fields = {"uri": Given(own, here)}
    elif isinstance(own, dict):
        own_fields = {key: Given(value, (*here, key)) for key, value in own.items()}
    elif own is None:
        own_fields = {}
    else:
        document.add(here, f"sink must be a URI or a mapping, got {own!r}.")
        return None
    if not own_fields and not base:
        document.add(path, "the stream has no sink. Write sink: with the URI of a table, here or in 'defaults'.")
        return None
    merged = {**base, **own_fields}
    kind = merged["kind"].value if "kind" in merged else DEFAULT_KIND
    if not isinstance(kind, str) or kind not in SINKS:
        # reported where the kind is
        return None
    known = sink_keys(kind)
    return {key: one for key, one in merged.items() if one.value is not None and (key == "kind" or key in known)}


def _about_unknown(key: str, where: str) -> str:
    message = unknown_key(key, _KEYS, where)
    if "Did you mean" in message:
        return message
    try:
        SourceOptions.parse({key: 1})
    except ConfigurationError as error:
        # options of Delta and of other systems have an answer of their own
        for problem in error.problems:
            if not problem.startswith("unknown option"):
                return problem
    return f"{where} has no key {key!r}. See docs/fleet.md for its keys, and docs/options.md for source options."


def _add_problems(document: Document, path: Path, error: ConfigurationError, found: Mapping[str, Given]) -> None:
    """Add each problem of a value at the key that it is about."""
    for problem in error.problems:
        document.add(_path_of(problem, found) or path, problem)


def _path_of(problem: str, found: Mapping[str, Given]) -> Path | None:
    """Return where the file has what a problem is about: the value that it shows, or the first key that it names."""
    for one in found.values():
        if isinstance(one.value, str) and repr(one.value) in problem:
            return one.path
    by_key = {key.rpartition(".")[2]: one for key, one in reversed(list(found.items()))}
    words = [*_QUOTED.findall(problem), *_WORD.findall(problem)[:3]]
    return next((by_key[word].path for word in words if word in by_key), None)
