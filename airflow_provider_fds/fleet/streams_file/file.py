"""Reads ``streams.yaml``: a file that declares the streams of a fleet, or of several."""

from __future__ import annotations

import os
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.fleet.streams_file.document import Document, read_document
from airflow_provider_fds.fleet.streams_file.entry import Entry, Given, check_keys, read_entry
from airflow_provider_fds.fleet.streams_file.fields import NO_DEFAULT, TOP_KEYS, unknown_key
from airflow_provider_fds.fleet.streams_file.file_checks import check_entries, check_own_dag
from airflow_provider_fds.fleet.streams_file.group import FleetFile, FleetGroup, read_group
from airflow_provider_fds.fleet.table_pattern import TablePattern
from airflow_provider_fds.fleet.value import FleetStream
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_fds.fleet.streams_file.document import Path

#: The group of streams that name none.
DEFAULT_GROUP: Final = "default"

#: Keys of ``defaults`` that do not become keys of each stream as they are.
_NOT_MERGED: Final = NO_DEFAULT | {"sink"}


def read_fleet_file(path: str | os.PathLike[str], environment: Mapping[str, str] | None = None) -> FleetFile:
    """Read a file of streams. Nothing else is read: no table, no connection, no Airflow.

    Args:
        path: The file.
        environment: The variables for ``${NAME}``; default: those of the process.

    Raises:
        ConfigurationError: Reports all problems at once, each as ``file:line:column: text``.
    """
    found, document = open_fleet_file(path, environment)
    if document.problems:
        raise _error(document)
    return found


def read_fleet_groups(path: str | os.PathLike[str]) -> tuple[FleetGroup, ...]:
    """Read a file of streams as :func:`read_fleet_file` does, but leave streams that clash to their groups.

    Two streams with one name, one sink or one checkpoint, or a table inside another one, are then ``refused`` in their
    groups, so that they do not hold back the other streams.

    Raises:
        ConfigurationError: Anything else is wrong; reports all problems at once.
    """
    found, document = open_fleet_file(path)
    if any(not one.between for one in document.problems):
        raise _error(document)
    return found.groups


def _error(document: Document) -> ConfigurationError:
    return ConfigurationError(*document.messages(), subject="file", reason=Reason.INVALID_OPTION)


def open_fleet_file(
    path: str | os.PathLike[str], environment: Mapping[str, str] | None = None
) -> tuple[FleetFile, Document]:
    """Read a file of streams, and return what is wrong with it in the document; see :func:`read_fleet_file`.

    Raises:
        ConfigurationError: The file cannot be read at all.
    """
    name = os.fspath(path)
    try:
        text = FilePath(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        cause = (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8 text"
        raise ConfigurationError(f"{name}: the file cannot be read: {cause}. Check its path and encoding.") from error
    return parse_fleet_file(text, name, os.environ if environment is None else environment)


def parse_fleet_file(text: str, name: str, environment: Mapping[str, str]) -> tuple[FleetFile, Document]:
    """Return the content of a file of streams, and what is wrong with it in the document.

    Args:
        text: The file's text.
        name: The file, for messages.
        environment: The variables for ``${NAME}``.
    """
    document = read_document(text, name, environment)
    if isinstance(document.value, dict):
        return FleetFile(_read(document)), document
    if not document.problems:
        document.add((), "the file has no key 'streams'. Write streams: with at least one stream.")
    return FleetFile(()), document


def _read(document: Document) -> tuple[FleetGroup, ...]:
    top: dict[str, Any] = document.value
    for key in top:
        if key not in TOP_KEYS:
            document.add((key,), unknown_key(key, TOP_KEYS, "the file"))
    groups = _mapping(document, ("groups",), top.get("groups"))
    defaults = _defaults(document, ("defaults",), top.get("defaults"), {})
    of_groups: dict[str, dict[str, Given]] = {}
    arguments: dict[str, dict[str, Any]] = {}
    for name, given in groups.items():
        found = _mapping(document, ("groups", name), given)
        arguments[name] = read_group(document, name, found)
        place: Path = ("groups", name, "defaults")
        of_groups[name] = _defaults(document, place, found.get("defaults"), defaults)
        if isinstance(own := found.get("defaults"), dict) and "group" in own:
            document.add((*place, "group"), "the defaults of a group cannot name a group. Omit it.")
    entries = _entries(document, top.get("streams"), defaults, of_groups)
    check_entries(document, entries)
    for entry in entries:
        check_own_dag(document, entry, arguments.get(entry.group, {}))
    names = dict.fromkeys([entry.group for entry in entries])
    return tuple(_group(document, arguments.get(name) or read_group(document, name, {}), entries) for name in names)


def _group(document: Document, arguments: dict[str, Any], entries: list[Entry]) -> FleetGroup:
    own = [entry for entry in entries if entry.group == arguments["name"]]
    values = [entry.value for entry in own]
    refused: dict[str, tuple[str, ...]] = {}
    for entry in own:
        if isinstance(entry.value, FleetStream) and (clashes := document.messages_between(entry.path)):
            name = entry.value.name
            refused[name] = tuple(dict.fromkeys([*refused.get(name, ()), *clashes]))
    declared = [entry.value for entry in entries if isinstance(entry.value, FleetStream)]
    return FleetGroup(
        streams=tuple(value for value in values if isinstance(value, FleetStream) and value.name not in refused),
        patterns=tuple(value.without(declared) for value in values if isinstance(value, TablePattern)),
        refused=refused,
        **arguments,
    )


def _entries(
    document: Document, given: Any, defaults: dict[str, Given], of_groups: Mapping[str, dict[str, Given]]
) -> list[Entry]:
    path: Path = ("streams",)
    if not isinstance(given, list) or not given:
        document.add(path, "streams must be a list with at least one stream, such as - table: s3://lake/orders.")
        return []
    entries = []
    for number, one in enumerate(given):
        here = (*path, number)
        if not isinstance(one, dict):
            document.add(here, f"a stream must be a mapping such as table: s3://lake/orders, got {one!r}.")
            continue
        check_keys(document, here, one)
        group = one.get("group") or (defaults["group"].value if "group" in defaults else DEFAULT_GROUP)
        if not isinstance(group, str) or (group not in of_groups and group != DEFAULT_GROUP):
            known = ", ".join(of_groups) or "none"
            document.add((*here, "group"), f"there is no group {group!r} in 'groups'; the groups are {known}.")
            group = DEFAULT_GROUP
        entry = read_entry(document, here, one, of_groups.get(group, defaults), group)
        if entry is not None:
            entries.append(entry)
    return entries


def _defaults(document: Document, path: Path, given: Any, base: Mapping[str, Given]) -> dict[str, Given]:
    """Return default values by key; those of the sink are merged with those of ``base``."""
    found = _mapping(document, path, given)
    check_keys(document, path, found, are_defaults=True)
    merged = {**base, **{key: Given(value, (*path, key)) for key, value in found.items() if key not in _NOT_MERGED}}
    sink = found.get("sink")
    if isinstance(sink, str):
        sink = {"uri": sink}
        document.places[(*path, "sink", "uri")] = document.places[(*path, "sink")]
    if sink is not None:
        own = {
            key: Given(value, (*path, "sink", key)) for key, value in _mapping(document, (*path, "sink"), sink).items()
        }
        merged["sink"] = Given({**(base["sink"].value if "sink" in base else {}), **own}, (*path, "sink"))
    return merged


def _mapping(document: Document, path: Path, given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        document.add(path, f"{path[-1]} must be a mapping, got {given!r}.")
        return {}
    return given
