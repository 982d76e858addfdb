"""The columns of a table of PostgreSQL, those of them that a batch writes, and those that it adds.

Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sinks.postgres import quoted
from airflow_provider_fds.spark.runtime.failures import RefusalError
from airflow_provider_fds.spark.writers.postgres.copy_text import TargetColumn, is_held, suggested, unfit, widened

if TYPE_CHECKING:
    from airflow_provider_fds.sinks import PostgresSink

#: PostgreSQL cuts a longer name without an error.
_MOST_BYTES = 63


def table_columns(connection: Any, parts: Tuple[str, str]) -> List[TargetColumn]:
    """Return the columns of a table, in its order."""
    rows = connection.execute(
        "SELECT a.attname, t.typname, a.atttypmod, a.attnotnull AND NOT a.atthasdef AND a.attidentity = '', "
        "a.attgenerated <> '', tn.nspname = 'pg_catalog' AND t.typtype = 'b', format_type(a.atttypid, a.atttypmod) "
        "FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
        "JOIN pg_type t ON t.oid = a.atttypid JOIN pg_namespace tn ON tn.oid = t.typnamespace "
        "WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
        parts,
    ).fetchall()
    return [TargetColumn(*row) for row in rows]


def fitted(columns: List[TargetColumn], types: Dict[str, str], sink: PostgresSink, what: str) -> List[TargetColumn]:
    """Return the columns of the table for those of a batch, in their order.

    Args:
        columns: Those of the table.
        types: The type of each column of the batch, as Spark writes it in short.
        sink: As declared.
        what: The batch, for messages.

    Raises:
        RefusalError: Columns are missing, need a value that the batch lacks, or could not hold each value.
    """
    found: List[TargetColumn] = []
    problems: List[str] = []
    missing: List[str] = []
    wider: List[str] = []
    for name, spark_type in types.items():
        same = _column(columns, name)
        if same is None:
            missing.append(f"ADD COLUMN {quoted(name)} {suggested(spark_type)}")
            continue
        found.append(same)
        if (problem := unfit(spark_type, same)) is not None:
            problems.append(f"{name}: {problem}")
            if (kind := widened(spark_type, same)) is not None:
                wider.append(f"ALTER COLUMN {quoted(same.name)} TYPE {kind}")
    table = quoted(*sink.parts)
    if missing:
        problems.append(f"the table lacks columns of the batch: `ALTER TABLE {table} {', '.join(missing)}`")
    if wider:
        problems.append(f"FDS does not change types: `ALTER TABLE {table} {', '.join(wider)}`")
    problems += _set_problems(columns, found, sink)
    if problems:
        raise RefusalError(
            Reason.SINK_SCHEMA_MISMATCH,
            f"{what} does not fit {sink.describe()}: {'; '.join(problems)}. Nothing was written",
        )
    return found


def _set_problems(columns: List[TargetColumn], found: List[TargetColumn], sink: PostgresSink) -> List[str]:
    """Return what is wrong with the columns that a batch writes, taken together."""
    problems = []
    if len({one.name for one in found}) < len(found):
        problems.append("two columns of the batch differ only in upper and lower case")
    needed = [one.name for one in columns if one.is_needed and one not in found]
    if needed:
        problems.append(f"the batch lacks {', '.join(needed)}, which the table needs (NOT NULL)")
    compared = {name.lower() for name in (*sink.keys, sink.sequence_by or "")}
    odd = [f"{one.name} ({one.shown})" for one in found if one.name.lower() in compared and not one.is_comparable]
    if odd:
        problems.append(f"a merge compares {', '.join(odd)}, which PostgreSQL cannot; use text")
    return problems


def creation(types: Dict[str, str], sink: PostgresSink, what: str) -> str:
    """Return the statement that creates the table for the columns of a batch.

    Raises:
        RefusalError: PostgreSQL has no type, or no name, for one of them.
    """
    keys = [name for name in types if name.lower() in {key.lower() for key in sink.keys}]
    key = f", PRIMARY KEY ({', '.join(map(quoted, keys))})" if keys else ""
    columns = (f"{quoted(name)} {kind}" for name, kind in _definitions(types, sink, what))
    return f"CREATE TABLE {quoted(*sink.parts)} ({', '.join(columns)}{key})"


def addition(columns: List[TargetColumn], types: Dict[str, str], sink: PostgresSink, what: str) -> Optional[str]:
    """Return the statement that adds the columns of a batch which the table lacks, ``None`` if it has them.

    Raises:
        RefusalError: PostgreSQL has no type, or no name, for one of them.
    """
    there = {one.name.lower() for one in columns}
    missing = {name: kind for name, kind in types.items() if name.lower() not in there}
    added = (f"ADD COLUMN IF NOT EXISTS {quoted(name)} {kind}" for name, kind in _definitions(missing, sink, what))
    return f"ALTER TABLE {quoted(*sink.parts)} {', '.join(added)}" if missing else None


def _definitions(types: Dict[str, str], sink: PostgresSink, what: str) -> List[Tuple[str, str]]:
    problems = [
        f"{name}: {kind} is not written to PostgreSQL; make it a string in transform"
        for name, kind in types.items()
        if not is_held(kind)
    ]
    problems += [
        f"{name}: its name is longer than {_MOST_BYTES} bytes" for name in types if len(name.encode()) > _MOST_BYTES
    ]
    if problems:
        raise RefusalError(
            Reason.SINK_SCHEMA_MISMATCH,
            f"{what} does not fit {sink.describe()}: {'; '.join(problems)}. Nothing was written",
        )
    return [(name, suggested(kind)) for name, kind in types.items()]


def _column(columns: List[TargetColumn], name: str) -> Optional[TargetColumn]:
    """Return the column of this name, or the only one that differs in upper and lower case."""
    same = [one for one in columns if one.name == name]
    same = same or [one for one in columns if one.name.lower() == name.lower()]
    return same[0] if len(same) == 1 else None
