"""Which tables of PostgreSQL keep what is committed, and which may leave out rows that are written to them.

Standard library, Python 3.9 syntax.
"""

from __future__ import annotations

from typing import Any, Optional, Tuple

from airflow_provider_fds.sinks.postgres import quoted

#: The first of a table and its partitions that is no ordinary or partitioned table, or is emptied by a crash.
_UNSUITABLE = """
    SELECT c.oid = t.own, c.oid::regclass::text, c.relpersistence::text FROM (
      SELECT to_regclass(%(table)s)::oid AS own, to_regclass(%(table)s)::oid AS id
      UNION SELECT to_regclass(%(table)s)::oid, relid FROM pg_partition_tree(to_regclass(%(table)s))
    ) AS t JOIN pg_class AS c ON c.oid = t.id
    WHERE c.relkind NOT IN ('r', 'p') OR c.relpersistence <> 'p' ORDER BY c.oid <> t.own, c.oid LIMIT 1"""
#: Rules of a table, and triggers of it, its partitions or the tables that inherit from it.
_MAY_LEAVE_OUT = """
    WITH RECURSIVE tables (id) AS (
      SELECT to_regclass(%(table)s)::oid UNION SELECT inhrelid FROM pg_inherits JOIN tables ON inhparent = id)
    SELECT EXISTS (
      SELECT FROM pg_trigger JOIN tables ON tgrelid = id
      WHERE NOT tgisinternal AND tgenabled <> 'D' AND tgtype & 3 = 3
    ) OR EXISTS (
      SELECT FROM pg_rewrite WHERE ev_class = to_regclass(%(table)s) AND is_instead AND ev_enabled <> 'D')"""


def unsuitable(connection: Any, parts: Tuple[str, str]) -> Optional[str]:
    """Return what of a table could lose rows that are committed, as the end of a sentence about it, or ``None``.

    Args:
        connection: To the database.
        parts: Schema and name of the table.
    """
    row = connection.execute(_UNSUITABLE, {"table": quoted(*parts)}).fetchone()
    if row is None:
        return None
    place = "is" if row[0] else f"has the partition {row[1]}, which is"
    kind = "no ordinary table" if row[2] == "p" else "unlogged or temporary, so a crash empties it"
    return f"{place} {kind}"


def may_leave_out(connection: Any, parts: Tuple[str, str]) -> bool:
    """Return whether a trigger or a rule may leave out rows that a statement inserts, updates or deletes.

    Args:
        connection: With the transaction of the statement.
        parts: Schema and name of the table.
    """
    return bool(connection.execute(_MAY_LEAVE_OUT, {"table": quoted(*parts)}).fetchone()[0])
