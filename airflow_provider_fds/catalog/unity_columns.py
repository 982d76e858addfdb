"""The columns of a Delta table as Unity Catalog's API for tables takes them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_fds.delta.actions import Metadata

#: SQL names of types that a log calls otherwise.
_SQL: Final = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
#: Names of types in the API, where they are not those of the log.
_NAMES: Final = {"integer": "INT"}
_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")


def column_infos(table: Metadata) -> list[dict[str, Any]]:
    """Return the columns of a table, in their order (``ColumnInfo`` of the API).

    >>> from airflow_provider_fds.delta.actions import Metadata
    >>> field = {"name": "id", "type": "long", "nullable": False, "metadata": {}}
    >>> [one] = column_infos(Metadata("1", json.dumps({"type": "struct", "fields": [field]})))
    >>> one["type_text"], one["type_name"], one["position"], one["nullable"]
    ('bigint', 'LONG', 0, False)
    """
    fields = json.loads(table.schemaString)["fields"]
    partitions = list(table.partitionColumns)
    return [_info(field, position, partitions) for position, field in enumerate(fields)]


def _info(field: Mapping[str, Any], position: int, partitions: list[str]) -> dict[str, Any]:
    of, name = field["type"], field["name"]
    info = {
        "name": name,
        "type_text": _text(of),
        "type_json": json.dumps(field),
        "type_name": _type_name(of),
        "position": position,
        "nullable": field.get("nullable", True),
    }
    if isinstance(of, str) and (decimal := _DECIMAL.fullmatch(of)):
        info |= {"type_precision": int(decimal[1]), "type_scale": int(decimal[2])}
    if name in partitions:
        info["partition_index"] = partitions.index(name)
    if comment := (field.get("metadata") or {}).get("comment"):
        info["comment"] = comment
    return info


def _type_name(of: Any) -> str:
    kind = of["type"] if isinstance(of, dict) else of.partition("(")[0]
    return _NAMES.get(kind, str(kind).upper())


def _text(of: Any) -> str:
    """Return a type as SQL has it."""
    if not isinstance(of, dict):
        return _SQL.get(of, str(of))
    if of["type"] == "array":
        return f"array<{_text(of['elementType'])}>"
    if of["type"] == "map":
        return f"map<{_text(of['keyType'])},{_text(of['valueType'])}>"
    fields = ",".join(f"{field['name']}:{_text(field['type'])}" for field in of["fields"])
    return f"struct<{fields}>"
