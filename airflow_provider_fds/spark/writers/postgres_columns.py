"""The columns of a table of PostgreSQL, and those of them that a batch writes. Standard library and pyspark.

Python 3.9 syntax.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Tuple

from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sinks.postgres import quoted
from airflow_provider_fds.spark.runtime.failures import RefusalError
from airflow_provider_fds.spark.writers.copy_text import TargetColumn, suggested, unfit

if TYPE_CHECKING:
    from airflow_provider_fds.sinks import PostgresSink


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
    for name, spark_type in types.items():
        same = [one for one in columns if one.name == name]
        same = same or [one for one in columns if one.name.lower() == name.lower()]
        if len(same) != 1:
            missing.append(f"ADD COLUMN {quoted(name)} {suggested(spark_type)}")
            continue
        found.append(same[0])
        if (problem := unfit(spark_type, same[0])) is not None:
            problems.append(f"{name}: {problem}")
    if len({one.name for one in found}) < len(found):
        problems.append("two columns of the batch differ only in upper and lower case")
    needed = [one.name for one in columns if one.is_needed and one not in found]
    if needed:
        problems.append(f"the batch lacks {', '.join(needed)}, which the table needs (NOT NULL)")
    if missing:
        table = quoted(*sink.parts)
        problems.append(f"the table lacks columns of the batch: `ALTER TABLE {table} {', '.join(missing)}`")
    if not missing and sink.needs_keys:
        compared = {name.lower() for name in (*sink.keys, sink.sequence_by or "")}
        odd = [f"{one.name} ({one.shown})" for one in found if one.name.lower() in compared and not one.is_comparable]
        if odd:
            problems.append(f"a merge compares {', '.join(odd)}, which PostgreSQL cannot; use text")
    if problems:
        raise RefusalError(
            Reason.SINK_SCHEMA_MISMATCH,
            f"{what} does not fit {sink.describe()}: {'; '.join(problems)}. Nothing was written",
        )
    return found


__all__: List[str] = ["fitted", "table_columns"]
