"""The statements of a merge: what the batch changes per key, in which order, and the MERGE that applies it.

Text only, so that it is the same for a session in this process and for one on Spark Connect. Standard library only,
Python 3.9 syntax.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional, Sequence, Tuple

from airflow_provider_fds.sinks.merge import VALIDITY
from airflow_provider_fds.spark.runtime.sql import quoted_name
from airflow_provider_fds.spark.writers.rows.prepared_rows import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION

#: Change types of a change data feed that show the row before the commit, and after it.
_BEFORE = ("delete", "update_preimage")
_AFTER = ("insert", "update_postimage")

_FROM, _TO, _CURRENT = VALIDITY

#: Begins the error of a MERGE at a key that must not be there; the key follows.
_TWICE = "fds: key twice "


@dataclass(frozen=True)
class MergeSql:
    """Builds the statements of one merge.

    Attributes:
        view: The batch.
        keys: Columns that identify a row.
        columns: Columns that are written, including the keys.
        sequence_by: Column that orders the changes to a key; the commit decides among equal values.
        has_change_types: Whether the rows of the batch have a change type.
        snapshot: Version of an initial snapshot of which the table must not have a key that the batch has, too;
            ``None``: it may have any key.
        text_keys: Keys whose empty texts :meth:`problems` counts, as ``empty<n>`` with an example ``empty_key<n>``.
    """

    view: str
    keys: Tuple[str, ...]
    columns: Tuple[str, ...]
    sequence_by: Optional[str]
    has_change_types: bool
    snapshot: Optional[int] = None
    text_keys: Tuple[str, ...] = ()

    def problems(self) -> str:
        """Return a query of one row: the number of rows, and how many lack an order or a key, with examples."""
        any_key_null = " OR ".join(f"k{n} IS NULL" for n in range(len(self.keys)))
        key = ", ".join(f"k{n} AS {quoted_name(name)}" for n, name in enumerate(self.keys))
        key = f"to_json(struct({key}), map('ignoreNullFields', 'false'))"
        order = "concat(' in version ', version)"
        tie = f"afters > 1 AND NOT ({any_key_null}) AND sequence IS NOT NULL"
        known = ", ".join(f"'{name}'" for name in (*_BEFORE, *_AFTER))
        odd = f"NOT coalesce({CHANGE_TYPE} IN ({known}), false)" if self.has_change_types else "false"
        odd_text = f"coalesce({CHANGE_TYPE}, 'NULL')" if self.has_change_types else "''"
        empty = "".join(
            f", coalesce(sum(if(k{n} = '', changes, 0)), 0) AS empty{n}, "
            f"min(if(k{n} = '', concat({key}, {order}), NULL)) AS empty_key{n}"
            for n, name in enumerate(self.keys)
            if name in self.text_keys
        )
        keys = ", ".join(f"{quoted_name(name)} AS k{n}" for n, name in enumerate(self.keys))
        groups = ", ".join(f"k{n}" for n in range(len(self.keys)))
        return f"""
            WITH changes AS (
              SELECT {keys}, {self._sequence} AS sequence, {COMMIT_VERSION} AS version,
                     {self._is_before} AS is_before, {odd} AS is_odd, {odd_text} AS type
              FROM {self.view}
            ), groups AS (
              SELECT {groups}, sequence, version, count(*) AS changes, count_if(NOT is_before) AS afters,
                     count_if(is_odd) AS odd, min(if(is_odd, type, NULL)) AS odd_example
              FROM changes GROUP BY {groups}, sequence, version
            )
            SELECT coalesce(sum(changes), 0) AS num_rows,
                   coalesce(sum(if({any_key_null}, changes, 0)), 0) AS null_keys,
                   min(if({any_key_null}, concat({key}, {order}), NULL)) AS null_key,
                   coalesce(sum(if(sequence IS NULL, changes, 0)), 0) AS null_sequences,
                   min(if(sequence IS NULL, concat({key}, {order}), NULL)) AS null_sequence,
                   count_if({tie}) AS ties, min(if({tie}, concat({key}, {order}), NULL)) AS tie,
                   coalesce(sum(odd), 0) AS odd_types, min(odd_example) AS odd_type{empty}
            FROM groups"""

    def newest(self) -> str:
        """Return a query of one row per key: its last change, and whether that is a deletion."""
        partition = self._key_list
        first = shown = ""
        if self.snapshot is not None:
            first, shown = f", min(_fds_commit) OVER (PARTITION BY {partition}) AS _fds_first", ", _fds_first"
        return f"""
            SELECT {self._column_list}, _fds_before AS _fds_deleted{shown} FROM (
              SELECT *, row_number() OVER (
                PARTITION BY {partition} ORDER BY _fds_sequence DESC, _fds_commit DESC) AS _fds_rank{first}
              FROM ({self._effective()})
            ) WHERE _fds_rank = 1"""

    def history(self) -> str:
        """Return a query of the changes of each key, with their validity period and their number."""
        window = f"OVER (PARTITION BY {self._key_list} ORDER BY _fds_commit)"
        first = "" if self.snapshot is None else ", _fds_commit AS _fds_first"
        return f"""
            SELECT {self._column_list}, _fds_before AS _fds_deleted, _fds_time AS {_FROM},
                   lead(_fds_time) {window} AS {_TO}, row_number() {window} AS _fds_number{first}
            FROM ({self._effective()})"""

    def first_rows(self) -> str:
        """Return a query of the first rows of a sink that does not exist yet."""
        return f"SELECT {self._column_list} FROM ({self.newest()}) WHERE NOT _fds_deleted"

    def first_history(self) -> str:
        """Return a query of the first rows of a sink with history that does not exist yet."""
        return f"SELECT {self._column_list}, {self._validity} FROM ({self.history()}) WHERE NOT _fds_deleted"

    def upsert(self, table: str, evolves: bool) -> str:
        """Return the MERGE that leaves the newest row of each key.

        Args:
            table: The sink, quoted.
            evolves: Whether columns that the sink lacks are added to it.
        """
        others = [name for name in self.columns if name.lower() not in {key.lower() for key in self.keys}]
        is_late = ""
        if self.sequence_by is not None:
            name = quoted_name(self.sequence_by)
            is_late = f" AND (t.{name} IS NULL OR s.{name} >= t.{name})"
        delete = f"WHEN MATCHED AND s._fds_deleted{is_late} THEN DELETE" if self.has_change_types else ""
        kept = " AND NOT s._fds_deleted" if self.has_change_types else ""
        update = ""
        if others:
            values = ", ".join(f"{quoted_name(name)} = s.{quoted_name(name)}" for name in others)
            update = f"WHEN MATCHED{kept}{is_late} THEN UPDATE SET {values}"
        return f"""
            MERGE{_evolution(evolves)} INTO {table} AS t USING ({self.newest()}) AS s ON {self._same_key}
            {self._refuse_twice}
            {delete}
            {update}
            WHEN NOT MATCHED{kept} THEN INSERT ({self._column_list}) VALUES ({self._values})"""

    def upsert_history(self, table: str, evolves: bool) -> str:
        """Return the MERGE that closes the current rows and inserts the new ones."""
        names = (*VALIDITY, "_fds_close")
        rows = f"{self._column_list}, {self._validity}" + ("" if self.snapshot is None else ", _fds_first")
        return f"""
            MERGE{_evolution(evolves)} INTO {table} AS t USING (
              WITH history AS ({self.history()})
              SELECT {rows}, false AS _fds_close FROM history WHERE NOT _fds_deleted
              UNION ALL
              SELECT {rows}, true AS _fds_close FROM history WHERE _fds_number = 1
            ) AS s ON s._fds_close AND t.{_CURRENT} AND {self._same_key}
            {self._refuse_twice}
            WHEN MATCHED THEN UPDATE SET {_TO} = s.{_FROM}, {_CURRENT} = false
            WHEN NOT MATCHED AND NOT s._fds_close THEN
              INSERT ({self._column_list}, {", ".join(VALIDITY)})
              VALUES ({self._values}, {", ".join(f"s.{name}" for name in names[:-1])})"""

    def _effective(self) -> str:
        """Return a query of the effective changes: for each commit and key, the row after the commit.

        A commit removes and adds rows at once. A row from before the commit matters only if there is no row of its key
        after the commit (a deletion, or an update of the key itself).
        """
        time = f", {COMMIT_TIMESTAMP} AS _fds_time"
        changes = f"""
            SELECT {self._column_list}, {self._sequence} AS _fds_sequence, {COMMIT_VERSION} AS _fds_commit{time},
                   {self._is_before} AS _fds_before
            FROM {self.view}"""
        if not self.has_change_types:
            return changes
        # distributed once, for this window and the next
        return f"""
            SELECT * FROM (
              SELECT *, row_number() OVER (
                PARTITION BY {self._key_list}, _fds_commit ORDER BY _fds_before, _fds_sequence DESC) AS _fds_of_commit
              FROM ({changes} DISTRIBUTE BY {self._key_list})
            ) WHERE _fds_of_commit = 1"""

    @property
    def _refuse_twice(self) -> str:
        """Return a clause that fails the MERGE at a row of the snapshot whose key the table has."""
        if self.snapshot is None:
            return ""
        each = ", ".join(f"s.{quoted_name(name)} AS {quoted_name(name)}" for name in self.keys)
        failed = f"raise_error(concat('{_TWICE}', to_json(struct({each}))))"
        return f"WHEN MATCHED AND s._fds_first = {self.snapshot} THEN UPDATE SET {quoted_name(self.keys[0])} = {failed}"

    @property
    def _is_before(self) -> str:
        befores = ", ".join(f"'{name}'" for name in _BEFORE)
        return f"{CHANGE_TYPE} IN ({befores})" if self.has_change_types else "false"

    @property
    def _sequence(self) -> str:
        return COMMIT_VERSION if self.sequence_by is None else quoted_name(self.sequence_by)

    @property
    def _validity(self) -> str:
        return f"{_FROM}, {_TO}, {_TO} IS NULL AS {_CURRENT}"

    @property
    def _key_list(self) -> str:
        return _listed(self.keys)

    @property
    def _column_list(self) -> str:
        return _listed(self.columns)

    @property
    def _values(self) -> str:
        return ", ".join(f"s.{quoted_name(name)}" for name in self.columns)

    @property
    def _same_key(self) -> str:
        return " AND ".join(f"t.{quoted_name(name)} = s.{quoted_name(name)}" for name in self.keys)


def key_twice(error: BaseException) -> Optional[str]:
    """Return the key at which a MERGE failed because the table has it, as JSON; ``None``: it failed otherwise."""
    found = re.search(_TWICE + r"(\{.*\})", str(error))
    return None if found is None else found[1]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(quoted_name(name) for name in names)


def _evolution(evolves: bool) -> str:
    return " WITH SCHEMA EVOLUTION" if evolves else ""
