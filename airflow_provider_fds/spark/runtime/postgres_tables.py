"""What the catalog of PostgreSQL says of a table: whether it keeps rows, leaves some out, or takes others with them.

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
#: A table, its partitions, and the tables that inherit from it.
_TABLES = """
    WITH RECURSIVE tables (id) AS (
      SELECT to_regclass(%(table)s)::oid UNION SELECT inhrelid FROM pg_inherits JOIN tables ON inhparent = id)"""
#: Rules of the table, and triggers of all of them.
_MAY_LEAVE_OUT = f"""{_TABLES}
    SELECT EXISTS (
      SELECT FROM pg_trigger JOIN tables ON tgrelid = id
      WHERE NOT tgisinternal AND tgenabled <> 'D' AND tgtype & 3 = 3
    ) OR EXISTS (
      SELECT FROM pg_rewrite WHERE ev_class = to_regclass(%(table)s) AND is_instead AND ev_enabled <> 'D')"""
#: Foreign keys by which a DELETE in them removes or changes rows, also those of removed rows.
_CHANGED = f"""{_TABLES}, removed (id) AS (
      SELECT id FROM tables UNION SELECT conrelid FROM pg_constraint JOIN removed ON confrelid = id
      WHERE contype = 'f' AND confdeltype = 'c')
    SELECT conrelid::regclass::text, conname, confdeltype::text FROM pg_constraint JOIN removed ON confrelid = id
    WHERE contype = 'f' AND confdeltype IN ('c', 'n', 'd')
    AND (conrelid IN (SELECT id FROM tables) OR NOT %(itself)s) ORDER BY 1 LIMIT 1"""


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


def changed_by_delete(connection: Any, parts: Tuple[str, str], *, only_itself: bool = False) -> Optional[str]:
    """Return a table whose rows a DELETE in this one removes or changes, with the foreign key, or ``None``.

    Args:
        connection: With the transaction.
        parts: Schema and name of the table.
        only_itself: Whether the table itself is the only one asked for.
    """
    row = connection.execute(_CHANGED, {"table": quoted(*parts), "itself": only_itself}).fetchone()
    if row is None:
        return None
    action = {"c": "CASCADE", "n": "SET NULL", "d": "SET DEFAULT"}[row[2]]
    return f"{row[0]} (foreign key {row[1]} with ON DELETE {action})"
