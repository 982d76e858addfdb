"""What a ``metaData`` action changes about the rows (Delta protocol, "Schema Serialization Format").

Columns are identified by physical name under column mapping, else by name. Type names are compared as text, so that
types of a newer protocol need not be known.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from airflow_provider_fds.delta.damage import DAMAGE, MAX_INT64, describe

if TYPE_CHECKING:
    from airflow_provider_fds.delta.actions import Metadata, Protocol

Kind = Literal["none", "additive", "breaking"]

_PHYSICAL_NAME: Final = "delta.columnMapping.physicalName"
_WIDENING_FEATURES: Final = ("typeWidening", "typeWidening-preview")
_INTEGERS: Final = ("byte", "short", "integer", "long")
#: Digits before the decimal point that a decimal needs to hold every value of an integer type (protocol, "Type
#: Widening").
_INTEGER_DIGITS: Final = {"byte": 10, "short": 10, "integer": 10, "long": 20}
_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
_MAX_ID: Final = "delta.columnMapping.maxColumnId"
_FIELD_ID: Final = "delta.columnMapping.id"
_NUMBER: Final = re.compile(r"[0-9]{1,18}", re.ASCII)
#: Nested types: the flag that allows nulls, then the inner types.
_INNER_TYPES: Final = {
    "array": ("containsNull", "elementType"),
    "map": ("valueContainsNull", "keyType", "valueType"),
}
_SHOWN: Final = 100
_NULL_TYPES: Final = ("void", "null")


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """The difference between two schemas.

    Attributes:
        kind: ``"none"``: rows look the same (comments, properties, constraints). ``"additive"``: earlier rows read the
            same under the new schema, with NULL in new columns. ``"breaking"``: anything else.
        details: Each change in words, breaking ones first.
    """

    kind: Kind
    details: tuple[str, ...] = ()


def schema_change(old: Metadata, new: Metadata, protocol: Protocol | None = None) -> SchemaChange:
    """Compare the metadata of two versions, ``old`` before ``new``.

    Args:
        old: Metadata in force before.
        new: Metadata in force after. The table id is not compared.
        protocol: Protocol in force after. A wider type is additive only if the protocol has type widening; without a
            protocol the table property decides.
    """
    old_mode, new_mode = _mapping_mode(old), _mapping_mode(new)
    comparison = _Comparison(
        by_physical_name=new_mode != "none",
        may_widen=_may_widen(new, protocol),
    )
    if old_mode != new_mode:
        if old_mode == "none":
            comparison.additive.append(f"column mapping was switched on (mode {new_mode})")
        else:
            comparison.breaking.append(f"column mapping changed from mode {old_mode} to {new_mode}")
    old_schema, new_schema = _schema(old), _schema(new)
    if old_schema is None or new_schema is None:
        if old.schemaString != new.schemaString:
            comparison.breaking.append("the schema is not JSON that can be compared")
    elif not comparison.breaking:
        comparison.structs(old_schema, new_schema, "")
    if old.partitionColumns != new.partitionColumns:
        comparison.breaking.append(
            f"the partition columns changed from {_listed(old.partitionColumns)} to {_listed(new.partitionColumns)}"
        )
    kind: Kind = "breaking" if comparison.breaking else "additive" if comparison.additive else "none"
    return SchemaChange(kind, tuple(comparison.breaking + comparison.additive))


def check_schema(metadata: Metadata) -> None:
    """Check that a ``metaData`` action has a schema in the protocol's form, and numbers where numbers are expected.

    Type names are not checked: those of a newer protocol need not be known.

    Raises:
        ValueError: It does not; says what is wrong.
    """
    if not metadata.schemaString:
        return
    try:
        schema = msgspec.json.decode(metadata.schemaString)
    except DAMAGE as error:
        raise ValueError(f"schemaString is not JSON ({describe(error)})") from error
    _require(isinstance(schema, dict) and schema.get("type") == "struct", "schemaString is not a struct")
    try:
        _check_type(schema, "schemaString")
    except RecursionError as error:
        raise ValueError("schemaString is nested too deeply") from error
    highest = metadata.property(_MAX_ID)
    if highest is not None and not _NUMBER.fullmatch(highest):
        raise ValueError(f"{_MAX_ID} is {highest[:_SHOWN]!r}, expected a number")


def _check_type(kind: Any, where: str) -> None:
    if isinstance(kind, str):
        return
    _require(isinstance(kind, dict) and isinstance(kind.get("type"), str), f"{where} has no type")
    if kind["type"] == "struct":
        _require(isinstance(kind.get("fields"), list), f"{where} has no list of fields")
        for field in kind["fields"]:
            _check_field(field, where)
    elif kind["type"] in _INNER_TYPES:
        flag, *inner = _INNER_TYPES[kind["type"]]
        _require(isinstance(kind.get(flag), bool), f"{where} has no {flag}")
        for name in inner:
            _check_type(kind.get(name), f"{where}.{name}")


def _check_field(field: Any, where: str) -> None:
    _require(isinstance(field, dict) and isinstance(field.get("name"), str), f"{where} has a field without a name")
    where = f"column {field['name'][:_SHOWN]}"
    metadata = field.get("metadata")
    _require(
        isinstance(field.get("nullable", True), bool), f"{where} has a nullable flag that is neither true nor false"
    )
    _require(isinstance(metadata or {}, dict), f"{where} has metadata that is not an object")
    number = (metadata or {}).get(_FIELD_ID, 0)
    is_id = isinstance(number, int) and 0 <= number <= MAX_INT64
    _require(is_id, f"{where} has a {_FIELD_ID} that is not an id")
    _check_type(field.get("type"), where)


def _require(condition: bool, otherwise: str) -> None:
    if not condition:
        raise ValueError(otherwise)


class _Comparison:
    """Walks two schemas in parallel and records the differences."""

    def __init__(self, *, by_physical_name: bool, may_widen: bool) -> None:
        self._by_physical_name = by_physical_name
        self._may_widen = may_widen
        self.additive: list[str] = []
        self.breaking: list[str] = []

    def structs(self, old: dict[str, Any], new: dict[str, Any], path: str) -> None:
        old_fields = {self._identity(field): field for field in old.get("fields", ())}
        new_fields = {self._identity(field): field for field in new.get("fields", ())}
        added = {name: field for name, field in new_fields.items() if name not in old_fields}
        for name, field in old_fields.items():
            if name in new_fields:
                self._field(field, new_fields[name], path)
                continue
            respelled = next((other for other in added if other.lower() == name.lower()), None)
            if respelled is not None and not self._by_physical_name:
                del added[respelled]
                self.breaking.append(f"column {path}{field['name']} is now spelled {path}{respelled}")
            else:
                self.breaking.append(f"column {path}{field['name']} was dropped")
        for field in added.values():
            what = f"column {path}{field['name']} {_describe(field['type'])} was added"
            if field.get("nullable", True):
                self.additive.append(what)
            else:
                self.breaking.append(f"{what} as NOT NULL")

    def _field(self, old: dict[str, Any], new: dict[str, Any], path: str) -> None:
        name = f"{path}{old['name']}"
        if old["name"] != new["name"]:
            self.breaking.append(f"column {name} was renamed to {path}{new['name']}")
        self._nullability(f"column {name}", is_old=old.get("nullable", True), is_new=new.get("nullable", True))
        self._types(old["type"], new["type"], name)

    def _types(self, old: Any, new: Any, name: str) -> None:
        if old == new and not isinstance(old, dict):
            return
        if isinstance(old, dict) and isinstance(new, dict) and old.get("type") == new.get("type"):
            kind = old.get("type")
            if kind == "struct":
                self.structs(old, new, f"{name}.")
                return
            if kind == "array":
                self._nullability(f"elements of {name}", is_old=old["containsNull"], is_new=new["containsNull"])
                self._types(old["elementType"], new["elementType"], f"{name}.element")
                return
            if kind == "map":
                self._nullability(f"values of {name}", is_old=old["valueContainsNull"], is_new=new["valueContainsNull"])
                self._types(old["keyType"], new["keyType"], f"{name}.key")
                self._types(old["valueType"], new["valueType"], f"{name}.value")
                return
            if old == new:
                return
        what = f"column {name} changed from {_describe(old)} to {_describe(new)}"
        if old in _NULL_TYPES or (self._may_widen and _is_wider(old, new)):
            self.additive.append(what)
        else:
            self.breaking.append(what)

    def _nullability(self, what: str, *, is_old: bool, is_new: bool) -> None:
        if is_new and not is_old:
            self.additive.append(f"{what} can now be NULL")
        elif is_old and not is_new:
            self.breaking.append(f"{what} can no longer be NULL")

    def _identity(self, field: dict[str, Any]) -> str:
        name: str = field["name"]
        # before column mapping was enabled, the physical name is the name
        return str((field.get("metadata") or {}).get(_PHYSICAL_NAME, name)) if self._by_physical_name else name


def _mapping_mode(metadata: Metadata) -> str:
    return metadata.property("delta.columnMapping.mode") or "none"


def _may_widen(new: Metadata, protocol: Protocol | None) -> bool:
    if protocol is None:
        return (new.property("delta.enableTypeWidening") or "").lower() == "true"
    return any(feature in (protocol.readerFeatures or ()) for feature in _WIDENING_FEATURES)


def _schema(metadata: Metadata) -> dict[str, Any] | None:
    if not metadata.schemaString:
        return {"type": "struct", "fields": []}
    try:
        return msgspec.json.decode(metadata.schemaString, type=dict[str, Any])
    except DAMAGE:
        return None


def _is_wider(old: Any, new: Any) -> bool:
    """Return whether every value of ``old`` is a value of ``new``, by the protocol's list of type changes."""
    if not isinstance(old, str) or not isinstance(new, str):
        return False
    if old in _INTEGERS and new in _INTEGERS:
        return _INTEGERS.index(old) < _INTEGERS.index(new)
    if (old, new) in (("float", "double"), ("date", "timestamp_ntz")):
        return True
    if new == "double":
        return old in ("byte", "short", "integer")
    wide = _DECIMAL.fullmatch(new)
    if wide is None:
        return False
    precision, scale = int(wide[1]), int(wide[2])
    if old in _INTEGERS:
        return scale >= 0 and precision - scale >= _INTEGER_DIGITS[old]
    narrow = _DECIMAL.fullmatch(old)
    if narrow is None:
        return False
    return scale >= int(narrow[2]) and precision - scale >= int(narrow[1]) - int(narrow[2])


def _describe(type_: Any) -> str:
    if isinstance(type_, dict):
        return str(type_.get("type", "unknown"))
    return str(type_)


def _listed(columns: tuple[str, ...]) -> str:
    return ", ".join(columns) or "none"
