"""Checks of values that several sinks accept, made when the DAG is read. Standard library only, Python 3.9 syntax."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from airflow_provider_fds.credentials import redacted_uri, secret_part

_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SIZE = re.compile(r"(\d+)\s*([kmg]?)b?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}

#: What cannot be the path of a folder by mistake.
_LIKE_A_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*){1,2}$|[\w.-]*`")
#: How many parts a name in a catalog can have.
_NAME_PARTS = (2, 3)

#: Delta forgets transactions after this time, and with them batches; a sink of FDS leaves the property unchanged.
_RETENTION = "delta.settransactionretentionduration"

#: Commits of a table with one of these properties do not appear in its log at once.
_COMMITS_ELSEWHERE = (
    "delta.coordinatedcommits",
    "delta.feature.catalogmanaged",
    "delta.feature.catalogowned",
    "delta.feature.coordinatedcommits",
)


def names(value: Any, what: str) -> tuple[str, ...]:
    """Return a list of column names as a tuple.

    Raises:
        ValueError: The value is one string instead of a list, contains something other than strings, or has a name
            twice.
    """
    listed = () if isinstance(value, (str, bytes, Mapping)) else tuple(value)
    if isinstance(value, (str, bytes, Mapping)) or not all(isinstance(name, str) and name for name in listed):
        raise ValueError(f"{what} must be a list of columns, got {value!r}")
    if len({name.lower() for name in listed}) < len(listed):
        raise ValueError(f"{what} lists a column twice: {', '.join(listed)}")
    return listed


def chosen(value: Any, known: tuple[str, ...], what: str) -> tuple[str, ...]:
    """Return a list of known words as a tuple. Raises ``ValueError`` if it is not a list, or has other words."""
    listed = (value,) if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__iter__") else tuple(value)
    if listed == (value,) or not set(listed) <= set(known) or len(set(listed)) < len(listed):
        raise ValueError(f"{what} must be a list of {', '.join(map(repr, known))}; got {value!r}")
    return listed


def flags(sink: Any) -> None:
    """Raise ``ValueError`` if a flag of a sink is anything but true or false: the text ``"no"`` would count as yes.

    Args:
        sink: The sink, a dataclass.
    """
    for each in fields(sink):
        value = getattr(sink, each.name)
        if each.type == "bool" and not isinstance(value, bool):
            raise ValueError(f"{type(sink).__name__}: {each.name} must be True or False, got {value!r}")


def warn_or_fail(value: Any, what: str) -> None:
    """Raise ``ValueError`` for anything but ``"warn"`` and ``"fail"``."""
    if value not in ("warn", "fail"):
        raise ValueError(f"{what} must be 'warn' or 'fail', got {value!r}")


def uuids(value: Any, what: str) -> tuple[str, ...]:
    """Return uuids of streams as a tuple. Raises ``ValueError`` if the value is not a list of uuids."""
    listed = () if isinstance(value, (str, bytes, Mapping)) else tuple(value)
    is_listed = not isinstance(value, (str, bytes, Mapping))
    if not is_listed or not all(isinstance(text, str) and _UUID.fullmatch(text) for text in listed):
        raise ValueError(f"{what} must be a list of uuids, as `fds status` shows them, got {value!r}")
    return listed


def function(value: str, what: str) -> str:
    """Return the name of a function, ``pkg.module:function``. Raises ``ValueError`` if it is invalid."""
    if not isinstance(value, str) or not _FUNCTION.fullmatch(value):
        raise ValueError(
            f"{what} must name a function as 'pkg.module:function', got {value!r}: the driver imports it by that "
            "name, so a function object is not accepted"
        )
    return value


def predicate(value: str, what: str) -> str:
    """Return a SQL predicate. Raises ``ValueError`` if it is not a string, or empty."""
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{what} must be a SQL predicate, got {value!r}")
    return value


def is_template(text: str) -> bool:
    """Whether the string looks like an Airflow template."""
    return "{{" in text or "{%" in text


def columns_only(value: str, what: str) -> None:
    """Raise ``ValueError`` if a predicate is more than an expression of columns."""
    from airflow_provider_fds.sinks.expression import expression_problem

    problem = expression_problem(value)
    if problem is not None:
        raise ValueError(
            f"{what} contains {problem}, but must be a plain expression of columns, because Spark evaluates it "
            f"with all permissions of the driver: {value!r}. Use transform instead, or set unsafe_sql=True if "
            "nobody else can change the text"
        )


def size_bytes(value: Any, what: str) -> int:
    """Return a size in bytes, given as a number or as ``"128m"``. Raises ``ValueError`` for anything below 1 MiB."""
    found = _SIZE.fullmatch(str(value).strip())
    size = int(found[1]) * _UNITS[found[2].lower()] if found and not isinstance(value, bool) else 0
    if size < 1 << 20:
        raise ValueError(f"{what} must be a number of bytes or a string such as '128m', at least 1 MiB; got {value!r}")
    return size


def table_properties(value: Any, what: str) -> dict[str, str]:
    """Return properties of a Delta table, all strings.

    Raises:
        ValueError: The value is not a mapping, or has a name that does not begin with ``delta.`` or that FDS depends
            on.
    """
    if not isinstance(value, Mapping):
        raise ValueError(  # noqa: TRY004  # one kind of error for what cannot work
            f"{what} must be a mapping of table properties, got {value!r}"
        )
    for name in value:
        if not str(name).startswith("delta."):
            raise ValueError(f"{what}: {name!r} is not a Delta table property (delta.…) and would be ignored")
        if str(name).lower() == _RETENTION:
            raise ValueError(
                f"{what}: {name} sets when Delta forgets which batches it has, so a batch could be written twice. "
                "Omit it"
            )
        if str(name).lower().startswith(_COMMITS_ELSEWHERE):
            raise ValueError(
                f"{what}: {name} keeps the table's newest commits out of its log, where FDS looks for its "
                "batches. Omit it"
            )
    return {
        str(name): str(text).lower() if isinstance(text, bool) else str(text) for name, text in sorted(value.items())
    }


def check_place(sink: str, uri: str, catalog_conn_id: Any, *, create: bool, location: Any) -> None:
    """Check the arguments of a Delta sink that say where its table is.

    Args:
        sink: Name of the sink's class, for messages.
        uri: URI or path of the table, or its name.
        catalog_conn_id: The catalog that has the name; ``None``: the table is given by its URI.
        create: Whether a table that is missing in the catalog is created.
        location: URI of the folder of a table that is created, or ``None``.

    Raises:
        ValueError: The URI has credentials or looks like a name, the name is none, or arguments exclude each other.
    """
    if location is not None and not (isinstance(location, str) and location.strip()):
        raise ValueError(f"{sink}: location must be the URI of a folder, got {location!r}")
    for what, text in (("uri", uri), ("location", location or "")):
        part = secret_part(text) if "://" in text and not is_template(text) else None
        if part is not None:
            raise ValueError(
                f"{sink}: {what} {redacted_uri(text)} contains {part}, visible to everyone who can see the DAG. "
                "Put credentials into the Airflow connection (storage_conn_id) and Spark's settings"
            )
    if catalog_conn_id is None:
        _check_uri(sink, uri, has_more=create or location is not None)
        return
    if not isinstance(catalog_conn_id, str) or not catalog_conn_id.strip():
        raise ValueError(f"{sink}: catalog_conn_id must be the id of a connection, got {catalog_conn_id!r}")
    if location is not None and not create:
        raise ValueError(
            f"{sink}: location is where a missing table is created, which needs create=True. Omit it: the catalog "
            "knows where an existing table is"
        )
    _check_name(sink, uri)


def _check_uri(sink: str, uri: str, *, has_more: bool) -> None:
    if has_more:
        raise ValueError(
            f"{sink}: create and location are for a table that is given by its name, with catalog_conn_id. Omit them: "
            "the first batch creates a table that is given by its URI"
        )
    if _LIKE_A_NAME.match(uri):
        raise ValueError(
            f"{sink}: {uri!r} looks like a name in a catalog. Set catalog_conn_id to the Airflow connection of that "
            f"catalog (`fds`: --sink-catalog), or give the URI of its location (DESCRIBE DETAIL {uri} shows it); for a "
            f"folder of that name, write ./{uri}"
        )


def _check_name(sink: str, name: str) -> None:
    if "{" in name:
        # a template, or a text with parts such as {table}: it is checked once it is complete
        return
    from airflow_provider_fds.table_names import name_parts

    try:
        parts = name_parts(name)
    except ValueError as error:
        raise ValueError(f"{sink}: uri {error}") from None
    if len(parts) not in _NAME_PARTS:
        raise ValueError(
            f"{sink}: uri {name!r} has {len(parts)} part{'' if len(parts) == 1 else 's'}, but a table in a catalog has "
            "a name such as 'sales.orders' (Hive metastore, Glue) or 'main.sales.orders' (Unity Catalog)"
        )
