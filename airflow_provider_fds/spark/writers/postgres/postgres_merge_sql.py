"""The statements of a merge into a table of PostgreSQL, from a temporary table with the newest row of each key.

The temporary table has the columns of the table itself, with their types and collations, so that a key is the same
where the table says so. ``ON CONFLICT`` would need a unique index on the keys, and MERGE may read the whole table.
These statements need no index, and use one. Text only. Standard library, Python 3.9 syntax.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, List, Optional, Tuple

from airflow_provider_fds.sinks.postgres import quoted

if TYPE_CHECKING:
    from airflow_provider_fds.spark.writers.postgres.copy_text import TargetColumn

#: The temporary table, and its column that says whether the last change to a key is a deletion.
STAGED = "pg_temp.fds_batch"
DELETED = "_fds_deleted"
#: Types whose values a collation compares: different texts may be equal, and their order is not Spark's.
_COLLATED = ("text", "varchar")


@dataclass(frozen=True)
class PostgresMergeSql:
    """Builds the statements of one merge.

    Attributes:
        table: Schema and name of the table.
        columns: Columns of the table that are written.
        keys: Names of those that identify a row, as the sink declares them.
        sequence_by: Name of the column that orders the changes to a key.
    """

    table: Tuple[str, str]
    columns: Tuple[TargetColumn, ...]
    keys: Tuple[str, ...]
    sequence_by: Optional[str]

    def create(self) -> str:
        """Return the statement that creates the temporary table."""
        chosen = ", ".join(quoted(one.name) for one in self.columns)
        return (
            f"CREATE TEMPORARY TABLE fds_batch ON COMMIT DROP AS SELECT {chosen}, false AS {DELETED} "
            f"FROM {self._table} WITH NO DATA"
        )

    def lock(self) -> str:
        """Return the statement that keeps others from writing to the table until the end of the transaction.

        A row that they insert between UPDATE and INSERT would be there twice if no unique index forbids it.
        """
        return f"LOCK TABLE {self._table} IN SHARE ROW EXCLUSIVE MODE"

    def doubled(self) -> Optional[str]:
        """Return a query of two keys that Spark tells apart and the table does not; ``None`` if there can be none."""
        if not any(one.type in _COLLATED for one in self._keys):
            return None
        listed = ", ".join(quoted(one.name) for one in self._keys)
        shown = f"min(concat_ws(', ', {listed}) COLLATE \"C\"), max(concat_ws(', ', {listed}) COLLATE \"C\")"
        return f"SELECT {shown} FROM {STAGED} WHERE NOT {DELETED} GROUP BY {listed} HAVING count(*) > 1 LIMIT 1"

    def first_deleted(self) -> str:
        """Return a query that has a row if the last change to a key is a deletion."""
        return f"SELECT 1 FROM {STAGED} WHERE {DELETED} LIMIT 1"

    def statements(self, *, deletes: bool) -> List[Tuple[str, str]]:
        """Return the statements in their order, each with a query of how many rows it must change, asked just before.

        Args:
            deletes: Whether rows of deleted keys are deleted.
        """
        rows = f"SELECT count(*) FROM (SELECT DISTINCT t.tableoid, t.ctid FROM {self._table} AS t, {STAGED} AS s WHERE "
        found = []
        if deletes:
            # first: by its collation, a deleted key may be one that is inserted
            chosen = f"s.{DELETED} AND {self._same_key}{self._is_newer}"
            found.append(
                (f"DELETE FROM {self._table} AS t USING {STAGED} AS s WHERE {chosen}", f"{rows}{chosen}) AS n")
            )
        # a key with a collation may have changed, although it is still the same one
        changed = [one.name for one in self.columns if one not in self._keys or one.type in _COLLATED]
        if changed:
            values = ", ".join(f"{quoted(name)} = s.{quoted(name)}" for name in changed)
            chosen = f"NOT s.{DELETED} AND {self._same_key}{self._is_newer}"
            update = f"UPDATE {self._table} AS t SET {values} FROM {STAGED} AS s WHERE {chosen}"
            found.append((update, f"{rows}{chosen}) AS n"))
        listed = ", ".join(quoted(one.name) for one in self.columns)
        values = ", ".join(f"s.{quoted(one.name)}" for one in self.columns)
        chosen = f"NOT s.{DELETED} AND NOT EXISTS (SELECT FROM {self._table} AS t WHERE {self._same_key})"
        of_staged = f"FROM {STAGED} AS s WHERE {chosen}"
        insert = f"INSERT INTO {self._table} ({listed}) OVERRIDING SYSTEM VALUE SELECT {values} {of_staged}"
        return [*found, (insert, f"SELECT count(*) {of_staged}")]

    @property
    def _table(self) -> str:
        return quoted(*self.table)

    @property
    def _keys(self) -> Tuple[TargetColumn, ...]:
        names = {name.lower() for name in self.keys}
        return tuple(one for one in self.columns if one.name.lower() in names)

    @property
    def _same_key(self) -> str:
        return " AND ".join(f"t.{quoted(one.name)} = s.{quoted(one.name)}" for one in self._keys)

    @property
    def _is_newer(self) -> str:
        found = [one for one in self.columns if one.name.lower() == (self.sequence_by or "").lower()]
        if not found:
            return ""
        name = quoted(found[0].name)
        # Spark orders text by its bytes
        order = ' COLLATE "C"' if found[0].type in _COLLATED else ""
        return f" AND (t.{name} IS NULL OR s.{name}{order} >= t.{name}{order})"
