"""Statistics for Spark: without what :mod:`.statistics` widens or ignores.

Spark skips files by the statistics of a manifest, and answers ``count``, ``min`` and ``max`` from them. It takes them
as they are written, except that it knows that times are cut to milliseconds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec

from airflow_provider_fds.delta.damage import DAMAGE, MAX_INT64
from airflow_provider_fds.delta.schema import physical_name
from airflow_provider_fds.delta.statistics import INTEGERS, comparable_type, decimal_digits, kind_of, statistics_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from airflow_provider_fds.delta.actions import Metadata

#: A decimal with so many digits passes through a floating-point number unchanged.
_EXACT_DIGITS: Final = 15
_DATE: Final = "(19[0-9]{2}|[2-9][0-9]{3})-[0-9]{2}-[0-9]{2}"
#: Later than the last zone whose offset had seconds, which are cut off.
_LATE_DATE: Final = "(19(7[3-9]|[89][0-9])|[2-9][0-9]{3})-[0-9]{2}-[0-9]{2}"
_TIME: Final = "[T ][0-9]{2}:[0-9]{2}:[0-9]{2}([.][0-9]{1,9})?"


def _matching(pattern: str) -> Any:
    return Annotated[str, msgspec.Meta(pattern=f"^(?:{pattern})$")]


_TYPES: Final[dict[str, Any]] = {
    "date": _matching(_DATE),
    "timestamp": _matching(f"{_LATE_DATE}{_TIME}(Z|[+-][0-9]{{2}}:[0-9]{{2}})"),
    "timestamp_ntz": _matching(f"{_DATE}({_TIME})?"),
    **{
        type_: Annotated[int, msgspec.Meta(ge=-(1 << (bits - 1)), le=(1 << (bits - 1)) - 1)]
        for type_, bits in INTEGERS.items()
    },
}
#: A maximum that is short, or that its writer has raised after it was cut.
_MAX_TEXT: Final = Annotated[str, msgspec.Meta(pattern="^[^\0]{0,31}$|[\U0010ffff\ufffd\x7f]$")]
_COUNT: Final = Annotated[int, msgspec.Meta(ge=0, le=MAX_INT64)]
_PARTS: Final = ("minValues", "maxValues", "nullCount")


class CertainStatistics:
    """Returns the certain part of statistics, under one schema.

    Args:
        metadata: Metadata of the table.
    """

    def __init__(self, metadata: Metadata) -> None:
        partitions = {name.lower() for name in metadata.partitionColumns}
        schema = msgspec.json.decode(metadata.schemaString) if metadata.schemaString else {}
        fields = [field for field in schema.get("fields", ()) if field["name"].lower() not in partitions]
        types = {part: _types(part, fields, metadata) for part in _PARTS}
        self._decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(
            _struct(
                {
                    "numRecords": _COUNT,
                    **{part: _struct(columns) for part, columns in types.items()},
                    "tightBounds": bool,
                }
            )
        )
        self._decoders = {
            part: {key: msgspec.json.Decoder(type_) for key, type_ in columns.items()}
            for part, columns in types.items()
        }

    def of(self, stats: str | None) -> str | None:
        """Return what is certain of statistics; ``None`` if there are none, or damaged ones."""
        if not stats:
            return None
        try:
            found = self._decoder.decode(stats)
        except msgspec.ValidationError:
            return self._one_by_one(stats)
        except DAMAGE:
            return None
        rows, _, _, nulls, _ = msgspec.structs.astuple(found)
        if nulls is not None and rows is not None and _most(msgspec.structs.astuple(nulls)) > rows:
            return self._one_by_one(stats)
        return msgspec.json.encode(found).decode()

    def _one_by_one(self, stats: str) -> str | None:
        found = statistics_of(stats)
        rows = found.numRecords
        parts: dict[str, Any] = {"numRecords": rows, "tightBounds": found.tightBounds}
        for part, decoders in self._decoders.items():
            values: Mapping[str, msgspec.Raw] | None = getattr(found, part)
            certain = {}
            for key, raw in (values or {}).items():
                if bytes(raw) == b"null":
                    continue
                try:
                    value = decoders[key].decode(raw)
                except DAMAGE:
                    continue
                if part != "nullCount" or rows is None or not isinstance(value, int) or value <= rows:
                    certain[key] = raw
            parts[part] = certain or None
        known = {name: value for name, value in parts.items() if value is not None}
        return msgspec.json.encode(known).decode() if known else None


def _types(part: str, fields: Iterable[dict[str, Any]], metadata: Metadata) -> dict[str, Any]:
    """Return the types of certain statistics by physical name; a column of another type has none."""
    found: dict[str, Any] = {}
    for field in fields:
        type_ = field["type"]
        if isinstance(type_, dict) and type_.get("type") == "struct":
            certain = _struct(_types(part, type_.get("fields", ()), metadata))
        else:
            certain = _type(part, comparable_type(field))
        if certain is not None:
            found[physical_name(field, metadata)] = certain
    return found


def _type(part: str, type_: str) -> Any:
    if part == "nullCount":
        return None if type_ in ("array", "map") else _COUNT
    kind = kind_of(type_)
    if kind == "decimal":
        return msgspec.Raw if decimal_digits(type_)[0] <= _EXACT_DIGITS else None
    if kind == "text":
        return str if part == "minValues" else _MAX_TEXT
    return _TYPES.get(type_)


def _struct(types: Mapping[str, Any]) -> Any:
    """Return a struct of optional values; others are passed over."""
    names = {f"f{number}": key for number, key in enumerate(types)}
    fields = [
        (name, types[key] | msgspec.UnsetType, msgspec.UNSET)
        if types[key] is msgspec.Raw
        else (name, types[key] | None, None)
        for name, key in names.items()
    ]
    return msgspec.defstruct("Values", fields, rename=names, frozen=True, gc=False, omit_defaults=True)


def _most(counts: Iterable[Any]) -> int:
    return max((count for count in counts if type(count) is int), default=0)
