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
from airflow_provider_fds.type_widening import is_wider

if TYPE_CHECKING:
    from airflow_provider_fds.delta.actions import Metadata, Protocol

Kind = Literal["none", "additive", "breaking"]

#: What happens to one column. ``"rename"`` includes another spelling; ``"type"`` is a type that is not wider.
#: ``"other"``: nullability, partition columns, column mapping.
ColumnChangeKind = Literal["add", "widen", "rename", "drop", "type", "other"]

_PHYSICAL_NAME: Final = "delta.columnMapping.physicalName"
_WIDENING_FEATURES: Final = ("typeWidening", "typeWidening-preview")
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
class ColumnChange:
    """One difference between two schemas.

    Attributes:
        kind: What happens to the column.
        line: The difference as a line of a diff: ``+ name: type``, ``- name: type``, ``~ name: old -> new`` or, for a
            rename, ``~ old -> new``.
        is_additive: Whether earlier rows read the same under the new schema, with NULL in a new column.
        unreadable: Path of a column whose earlier files cannot be read with its new type; empty for other differences.
    """

    kind: ColumnChangeKind
    line: str
    is_additive: bool
    unreadable: str = ""


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """The difference between two schemas.

    Attributes:
        columns: Each difference, those that are not additive first.
    """

    columns: tuple[ColumnChange, ...] = ()

    @property
    def kind(self) -> Kind:
        """``"none"``: rows look the same (comments, properties, constraints). ``"additive"``: every difference is."""
        if not self.columns:
            return "none"
        return "additive" if all(change.is_additive for change in self.columns) else "breaking"

    @property
    def diff(self) -> tuple[str, ...]:
        """The lines of the diff."""
        return tuple(change.line for change in self.columns)


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
        comparison.note("other", f"~ column mapping: {old_mode} -> {new_mode}", is_additive=old_mode == "none")
    old_schema, new_schema = _schema(old), _schema(new)
    if old_schema is None or new_schema is None:
        if old.schemaString != new.schemaString:
            comparison.note("other", "~ schema: not JSON that can be compared")
    elif old_mode in ("none", new_mode):
        comparison.structs(old_schema, new_schema, "")
    partitions = tuple(comparison.renamed.get(name, name) for name in old.partitionColumns)
    if partitions != new.partitionColumns:
        line = f"~ partition columns: {_listed(old.partitionColumns)} -> {_listed(new.partitionColumns)}"
        comparison.note("other", line)
    return SchemaChange(tuple(sorted(comparison.found, key=lambda change: change.is_additive)))


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
    """Walks two schemas in parallel and records the differences.

    Attributes:
        found: The differences in their order.
        renamed: New names of top-level columns by their old ones.
    """

    def __init__(self, *, by_physical_name: bool, may_widen: bool) -> None:
        self._by_physical_name = by_physical_name
        self._may_widen = may_widen
        self.found: list[ColumnChange] = []
        self.renamed: dict[str, str] = {}

    def note(self, kind: ColumnChangeKind, line: str, *, is_additive: bool = False, unreadable: str = "") -> None:
        self.found.append(ColumnChange(kind, line, is_additive, unreadable))

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
                self._field(field, added.pop(respelled), path)
            else:
                self.note("drop", f"- {path}{field['name']}: {_describe(field['type'])}")
        for field in added.values():
            line = f"+ {path}{field['name']}: {_describe(field['type'])}"
            if field.get("nullable", True):
                self.note("add", line, is_additive=True)
            else:
                self.note("other", f"{line} not null")

    def _field(self, old: dict[str, Any], new: dict[str, Any], path: str) -> None:
        name = f"{path}{old['name']}"
        if old["name"] != new["name"]:
            self.note("rename", f"~ {name} -> {path}{new['name']}")
            if not path:
                self.renamed[old["name"]] = new["name"]
        self._nullability(name, is_old=old.get("nullable", True), is_new=new.get("nullable", True))
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
                self._nullability(f"{name}.element", is_old=old["containsNull"], is_new=new["containsNull"])
                self._types(old["elementType"], new["elementType"], f"{name}.element")
                return
            if kind == "map":
                self._nullability(f"{name}.value", is_old=old["valueContainsNull"], is_new=new["valueContainsNull"])
                self._types(old["keyType"], new["keyType"], f"{name}.key")
                self._types(old["valueType"], new["valueType"], f"{name}.value")
                return
            if old == new:
                return
        line = f"~ {name}: {_describe(old)} -> {_describe(new)}"
        if old in _NULL_TYPES or (self._may_widen and is_wider(old, new)):
            self.note("widen", line, is_additive=True)
        else:
            self.note("type", line, unreadable="" if is_wider(old, new) else name)

    def _nullability(self, name: str, *, is_old: bool, is_new: bool) -> None:
        words = {True: "nullable", False: "not null"}
        if is_old != is_new:
            self.note("other", f"~ {name}: {words[is_old]} -> {words[is_new]}", is_additive=is_new)

    def _identity(self, field: dict[str, Any]) -> str:
        name: str = field["name"]
        # before column mapping was enabled, the physical name is the name
        return str((field.get("metadata") or {}).get(_PHYSICAL_NAME, name)) if self._by_physical_name else name


def is_mapped(metadata: Metadata) -> bool:
    """Return whether files name columns by their physical names (protocol, "Column Mapping")."""
    return _mapping_mode(metadata) != "none"


def physical_name(field: dict[str, Any], metadata: Metadata) -> str:
    """Return the name of a column, or of a field of a struct, in data files and statistics."""
    name: str = field["name"]
    return str((field.get("metadata") or {}).get(_PHYSICAL_NAME, name)) if is_mapped(metadata) else name


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


def _describe(type_: Any) -> str:
    """Return a type as Spark writes it, shortened if it is long."""
    text = _type_text(type_)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _type_text(type_: Any) -> str:
    if not isinstance(type_, dict):
        return str(type_)
    kind = type_.get("type", "unknown")
    if kind == "struct":
        inner = [f"{field['name']}: {_type_text(field['type'])}" for field in type_.get("fields", ())]
    elif kind in _INNER_TYPES:
        inner = [_type_text(type_.get(name)) for name in _INNER_TYPES[kind][1:]]
    else:
        return str(kind)
    return f"{kind}<{', '.join(inner)}>"


def _listed(columns: tuple[str, ...]) -> str:
    return ", ".join(columns) or "none"
