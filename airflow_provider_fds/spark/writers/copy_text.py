"""Rows as lines of PostgreSQL's COPY text, made by Spark SQL, and which types a column may hold.

The JDBC writer of Spark moves times in a gap of the JVM's daylight saving and dates of October 1582, without an error.
Text does not: each type has one spelling, which does not depend on a time zone or a setting of the session. A pair of
types that could change a value is refused before anything is written. Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional

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
#: Digits before the point that a ``numeric(p, s)`` needs for a type.
_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
#: Microseconds, the precision of Spark's times.
_MICROSECONDS = 6

#: Characters by their code: in a literal, a setting determines what a backslash means.
_TAB, _NEWLINE, _RETURN, _BACKSLASH = "char(9)", "char(10)", "char(13)", "char(92)"


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
    """

    name: str
    type: str
    typmod: int
    is_needed: bool
    is_generated: bool
    is_plain: bool
    shown: str

    @property
    def is_comparable(self) -> bool:
        """Whether values of its type can be compared."""
        return self.type != "json"


def unfit(spark_type: str, column: TargetColumn) -> Optional[str]:
    """Return why a column cannot hold each value of a type of Spark unchanged, or ``None`` if it can."""
    decimal = _DECIMAL.fullmatch(spark_type)
    holding = ("numeric",) if decimal else _HOLDING.get(spark_type)
    if holding is None:
        return f"{spark_type} is not written to PostgreSQL; make it a string in transform, for a column of type json"
    if column.is_generated:
        return "the database generates its values"
    if not column.is_plain or column.type not in holding:
        return f"{spark_type} needs {' or '.join(_shown(spark_type, each) for each in holding)}, not {column.shown}"
    if column.typmod < 0:
        return None
    if column.type == "numeric":
        digits = int(decimal[1]) - int(decimal[2]) if decimal else _DIGITS[spark_type]
        scale = max(int(decimal[2]), 0) if decimal else 0
        precision, own_scale = _precision_of(column.typmod)
        if own_scale < scale or precision - own_scale < digits:
            return f"{column.shown} does not hold each value of {spark_type}: it would be rounded, or too large"
    elif column.type == "varchar":
        return f"{column.shown} cuts blanks at the end of a text that is too long; use text"
    elif column.typmod < _MICROSECONDS:
        return f"{column.shown} rounds; a time of Spark has microseconds"
    return None


def lines(frame: Any, types: Mapping[str, str]) -> Any:
    """Return a DataFrame with one column: each row of ``frame`` as a line of COPY text, with its line end.

    Args:
        frame: The rows.
        types: The type of each column, as Spark writes it in short, in the order of the columns.
    """
    fields = f", {_TAB}, ".join(_field(name, spark_type) for name, spark_type in types.items())
    return frame.selectExpr(f"concat({fields}, {_NEWLINE}) AS line")


def _field(name: str, spark_type: str) -> str:
    column = quoted_name(name)
    text = f"CAST({column} AS STRING)"
    if spark_type == "string":
        text = column
        for what, by in ((_BACKSLASH, _BACKSLASH), (_NEWLINE, "'n'"), (_RETURN, "'r'"), (_TAB, "'t'")):
            text = f"replace({text}, {what}, concat({_BACKSLASH}, {by}))"
    elif spark_type == "binary":
        text = f"concat({_BACKSLASH}, {_BACKSLASH}, 'x', hex({column}))"
    elif spark_type == "timestamp":
        # the text of a timestamp depends on the session's time zone, that of a time without one does not
        seconds = f"CAST(CAST(unix_micros({column}) AS DECIMAL(20, 0)) / 1000000 AS DECIMAL(18, 6))"
        text = f"concat(CAST(TIMESTAMP_NTZ '1970-01-01' + make_dt_interval(0, 0, 0, {seconds}) AS STRING), '+00')"
    return f"coalesce({text}, concat({_BACKSLASH}, 'N'))"


def suggested(spark_type: str) -> str:
    """Return the type of PostgreSQL for a type of Spark; ``json`` for one that must be made a string."""
    return _shown(spark_type, "numeric" if _DECIMAL.fullmatch(spark_type) else _HOLDING.get(spark_type, ("json",))[0])


def _shown(spark_type: str, name: str) -> str:
    decimal = _DECIMAL.fullmatch(spark_type)
    return f"numeric({decimal[1]},{decimal[2]})" if decimal and int(decimal[2]) >= 0 else name


def _precision_of(typmod: int) -> tuple[int, int]:
    """Return precision and scale of a ``numeric``, as PostgreSQL packs them."""
    packed = typmod - 4
    return (packed >> 16) & 0xFFFF, ((packed & 0x7FF) ^ 1024) - 1024


__all__: List[str] = ["TargetColumn", "lines", "suggested", "unfit"]
