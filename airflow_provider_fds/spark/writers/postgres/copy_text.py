"""Rows as lines of PostgreSQL's COPY text, made by Spark SQL, and which types a column may hold.

The JDBC writer of Spark moves times in a gap of the JVM's daylight saving and dates of October 1582, without an error.
Text does not: each type has one spelling, which does not depend on a time zone or a setting of the session. A pair of
types that could change a value is refused before anything is written. Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional

from airflow_provider_fds.spark.runtime.settings import in_utc
from airflow_provider_fds.spark.runtime.sql import quoted_name

_DECIMAL = re.compile(r"decimal\((\d+),(-?\d+)\)")

#: Types of PostgreSQL that hold each value of a type of Spark, for those without precision; the first is the nearest.
_HOLDING: Dict[str, tuple[str, ...]] = {
    "boolean": ("bool",),
    "tinyint": ("int2", "int4", "int8", "numeric"),
    "smallint": ("int2", "int4", "int8", "numeric"),
    "int": ("int4", "int8", "numeric"),
    "bigint": ("int8", "numeric"),
    "float": ("float4", "float8"),
    "double": ("float8",),
    "string": ("text", "varchar", "json"),
    "binary": ("bytea",),
    "date": ("date",),
    "timestamp": ("timestamptz",),
    "timestamp_ntz": ("timestamp",),
}
#: Beginning of the name of a nested type whose values JSON holds; the type as Spark writes it in short follows.
_JSON = "json of "
_IN_JSON = ("jsonb", "json")
#: How times are written in JSON, whatever the session says; a year of more than four digits gets a sign.
_JSON_OPTIONS = {
    "timestampFormat": "yyyy-MM-dd HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd HH:mm:ss.SSSSSS",
    "dateFormat": "yyyy-MM-dd",
    "timeZone": "UTC",
    "ignoreNullFields": "false",
}
#: Digits before the point that a ``numeric(p, s)`` needs for a type.
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
#: Types that become each other without loss if the new one is the nearest to a type of Spark that does not fit.
_WIDENED = (
    ("int2", "int4", "int8"), ("float4", "float8"), ("bpchar", "varchar", "text"), ("timestamptz",), ("timestamp",),
)  # fmt: skip
#: Types of exact numbers, and the digits of those that have no precision.
_EXACT = {"int2": 5, "int4": 10, "int8": 19, "numeric": 0}
#: PostgreSQL has no ``numeric(p, s)`` with more digits; without a precision it has more.
_MOST_DIGITS = 1000
#: Types that Spark's JSON calls otherwise than its SQL.
_SHORT = {"byte": "tinyint", "short": "smallint", "integer": "int", "long": "bigint"}
#: Microseconds, the precision of Spark's times.
_MICROSECONDS = 6

#: Characters by their code: in a literal, a setting determines what a backslash means.
_TAB, _NEWLINE, _RETURN, _BACKSLASH = "char(9)", "char(10)", "char(13)", "char(92)"
#: Characters that COPY wants to be escaped, and what follows a backslash for them; the backslash first.
_ESCAPES = {_BACKSLASH: _BACKSLASH, _NEWLINE: "'n'", _RETURN: "'r'", _TAB: "'t'"}
#: A regular expression of these characters.
_SET = f"concat('[', {_BACKSLASH}, {_BACKSLASH}, {_TAB}, {_NEWLINE}, {_RETURN}, ']')"


@dataclass(frozen=True)
class TargetColumn:
    """A column of the table.

    Attributes:
        type: Name of its type in ``pg_type``.
        typmod: ``pg_attribute.atttypmod``, -1 if the type has no precision.
        is_needed: Whether it must have a value, and has no default.
        is_generated: Whether the database computes it.
        is_plain: Whether the type is one of PostgreSQL's own, and no domain.
        shown: The type as SQL writes it.
        is_always_identity: Whether it is ``GENERATED ALWAYS AS IDENTITY``: it can be inserted, and not updated.
    """

    name: str
    type: str
    typmod: int
    is_needed: bool
    is_generated: bool
    is_plain: bool
    shown: str
    is_always_identity: bool = False

    @property
    def is_comparable(self) -> bool:
        """Whether values of its type can be compared."""
        return self.type != "json"


def unfit(spark_type: str, column: TargetColumn) -> Optional[str]:
    """Return why a column cannot hold each value of a type of Spark unchanged, or ``None`` if it can."""
    holding = _holding(spark_type)
    if holding is None:
        return f"{spark_type} is not written to PostgreSQL; make it a string in transform, for a column of type json"
    if column.is_generated:
        return "the database generates its values"
    if not column.is_plain or column.type not in holding:
        return f"{spark_type} needs {' or '.join(_shown(spark_type, each) for each in holding)}, not {column.shown}"
    if column.typmod < 0:
        return None
    if column.type == "numeric":
        digits, scale = _digits(spark_type)
        precision, own_scale = _precision_of(column.typmod)
        if own_scale < scale or precision - own_scale < digits:
            return f"{column.shown} does not hold each value of {spark_type}: it would be rounded, or too large"
    elif column.type == "varchar":
        return f"{column.shown} cuts blanks at the end of a text that is too long; use text"
    elif column.typmod < _MICROSECONDS:
        return f"{column.shown} rounds; a time of Spark has microseconds"
    return None


def column_types(schema: Any) -> Dict[str, str]:
    """Return the type of each column, as the other functions take it, by name.

    Args:
        schema: Schema of the rows.
    """
    return {
        one.name: (_JSON if _is_nested_json(one.dataType.jsonValue()) else "") + one.dataType.simpleString()
        for one in schema.fields
    }


def is_json(spark_type: str) -> bool:
    """Whether values of a type, by :func:`column_types`, are written as JSON."""
    return spark_type.startswith(_JSON)


def _is_nested_json(kind: Any) -> bool:
    return isinstance(kind, dict) and _fits_json(kind)


def _fits_json(kind: Any) -> bool:
    """Whether JSON made by Spark says each value of a type, without knowing more than the type."""
    if isinstance(kind, str):
        short = _SHORT.get(kind, kind)
        return short in _HOLDING or _DECIMAL.fullmatch(short) is not None
    if kind["type"] == "struct":
        return all(_fits_json(one["type"]) for one in kind["fields"])
    if kind["type"] == "array":
        return _fits_json(kind["elementType"])
    # other keys than texts get a text that does not say what they were
    return kind["type"] == "map" and kind["keyType"] == "string" and _fits_json(kind["valueType"])


def lines(frame: Any, types: Mapping[str, str]) -> Any:
    """Return a DataFrame with one column: each row of ``frame`` as a line of COPY text, with its line end.

    Args:
        frame: The rows.
        types: The type of each column by :func:`column_types`, in the order of the columns.
    """
    is_utc = "timestamp" in types.values() and in_utc(frame.sparkSession)
    fields = f", {_TAB}, ".join(_field(name, spark_type, is_utc=is_utc) for name, spark_type in types.items())
    return frame.selectExpr(f"concat({fields}, {_NEWLINE}) AS line")


def _field(name: str, spark_type: str, *, is_utc: bool) -> str:
    column = quoted_name(name)
    text = f"CAST({column} AS STRING)"
    if spark_type == "string":
        text = _escaped(column, " OR ".join(f"contains({column}, {what})" for what in _ESCAPES))
    elif is_json(spark_type):
        options = ", ".join(f"'{name}', '{value}'" for name, value in _JSON_OPTIONS.items())
        json = f"to_json({column}, map({options}))"
        # one look, for which Spark makes the JSON once
        text = _escaped(json, f"{json} RLIKE {_SET}")
    elif spark_type == "float":
        # enough digits for a column with more of them
        text = f"CAST(CAST({column} AS DOUBLE) AS STRING)"
    elif spark_type == "binary":
        text = f"concat({_BACKSLASH}, {_BACKSLASH}, 'x', hex({column}))"
    elif spark_type == "timestamp":
        if not is_utc:
            # the text of a timestamp depends on the session's time zone, that of a time without one does not; slower
            since = f"INTERVAL '0.000001' SECOND * unix_micros({column})"
            text = f"CAST(TIMESTAMP_NTZ '1970-01-01' + {since} AS STRING)"
        text = f"concat({text}, '+00')"
    return f"coalesce({text}, concat({_BACKSLASH}, 'N'))"


def _escaped(text: str, look: str) -> str:
    """Return a text as COPY wants it: a look costs less than the four replacements, which few texts need."""
    escaped = text
    for what, by in _ESCAPES.items():
        escaped = f"replace({escaped}, {what}, concat({_BACKSLASH}, {by}))"
    return f"IF({look}, {escaped}, {text})"


def suggested(spark_type: str) -> str:
    """Return the type of PostgreSQL for a type of Spark; ``json`` for one that must be made a string."""
    return _shown(spark_type, (_holding(spark_type) or ("json",))[0])


def _holding(spark_type: str) -> Optional[tuple[str, ...]]:
    if is_json(spark_type):
        return _IN_JSON
    return ("numeric",) if _DECIMAL.fullmatch(spark_type) else _HOLDING.get(spark_type)


def widened(spark_type: str, column: TargetColumn) -> Optional[str]:
    """Return a type that holds what an unfit column has and each value of a type of Spark; ``None``: none is known."""
    if column.is_generated or not column.is_plain:
        return None
    nearest = (_holding(spark_type) or ("",))[0]
    if any(column.type in kinds and nearest in kinds for kinds in _WIDENED):
        return suggested(spark_type)
    if column.type not in _EXACT or nearest not in _EXACT:
        return None
    digits, scale = _digits(spark_type)
    precision, own_scale = _precision_of(column.typmod) if column.typmod >= 0 else (_EXACT[column.type], 0)
    most = max(scale, own_scale)
    whole = max(digits, precision - own_scale)
    return f"numeric({whole + most},{most})" if whole + most <= _MOST_DIGITS else "numeric"


def is_held(spark_type: str) -> bool:
    """Whether PostgreSQL has a type for each value of a type of Spark."""
    return _holding(spark_type) is not None


def _shown(spark_type: str, name: str) -> str:
    decimal = _DECIMAL.fullmatch(spark_type)
    return f"numeric({decimal[1]},{decimal[2]})" if decimal and int(decimal[2]) >= 0 else name


def _digits(spark_type: str) -> tuple[int, int]:
    """Return the digits of a type before and after the point."""
    decimal = _DECIMAL.fullmatch(spark_type)
    return (int(decimal[1]) - int(decimal[2]), max(int(decimal[2]), 0)) if decimal else (_DIGITS[spark_type], 0)


def _precision_of(typmod: int) -> tuple[int, int]:
    """Return precision and scale of a ``numeric``, as PostgreSQL packs them."""
    packed = typmod - 4
    return (packed >> 16) & 0xFFFF, ((packed & 0x7FF) ^ 1024) - 1024
