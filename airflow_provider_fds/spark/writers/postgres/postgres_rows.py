"""How the rows of a batch get into a table of PostgreSQL, inside the transaction that the writer has begun.

Both ways copy lines of text that Spark has made: :class:`AppendedRows` into the table, :class:`MergedRows` into a
temporary table, from which they are merged. Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Iterator, List, Sequence, Tuple, Union

from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sinks.constants import PROVENANCE
from airflow_provider_fds.sinks.postgres import quoted
from airflow_provider_fds.spark.runtime.failures import RefusalError
from airflow_provider_fds.spark.runtime.postgres_tables import changed_by_delete, may_leave_out
from airflow_provider_fds.spark.runtime.sql import temporary_view
from airflow_provider_fds.spark.writers.postgres.copy_text import column_types, is_json, lines
from airflow_provider_fds.spark.writers.postgres.line_chunks import line_chunks
from airflow_provider_fds.spark.writers.postgres.postgres_merge_sql import DELETED, STAGED, PostgresMergeSql
from airflow_provider_fds.spark.writers.rows.merge_changes import MergeChanges, merge_rows
from airflow_provider_fds.spark.writers.rows.sink_columns import with_provenance

if TYPE_CHECKING:
    from airflow_provider_fds.batch.spec import BatchSpec
    from airflow_provider_fds.sinks import PostgresSink
    from airflow_provider_fds.spark.writers.postgres.copy_text import TargetColumn


class AppendedRows:
    """Rows that are copied into the table.

    Args:
        frame: The rows.
        sink: As declared.
        batch: The batch.
        what: The batch, for messages.

    Attributes:
        types: The type of each column, as Spark writes it in short.
    """

    def __init__(self, frame: Any, sink: PostgresSink, batch: BatchSpec, what: str) -> None:
        self._frame = frame
        self._sink = sink
        self._batch = batch
        self._what = what
        self.types = column_types(frame.schema)

    def write(self, connection: Any, columns: Sequence[TargetColumn]) -> int:
        """Copy the rows; return their number.

        Raises:
            RefusalError: The table did not take each line, or it is not the number of rows that the log counts.
        """
        names = [one.name for one in columns]
        sent, taken = _copy(connection, quoted(*self._sink.parts), names, lines(self._frame, self.types))
        if taken != sent:
            raise _left_out(self._sink, self._what, f"took {taken:,} of {sent:,} rows")
        planned = self._batch.num_rows
        if planned is not None and self._sink.writes_rows_as_they_are and sent != planned:
            raise RefusalError(
                Reason.ROWS_DIFFER,
                f"{self._what}: Spark reads {sent:,} rows, but the source's log counts {planned:,}. Nothing "
                "was written. Find out why; if the log is wrong, set where='true' on the sink, with which FDS does not "
                "compare the two",
            )
        return sent


class MergedRows:
    """The last change to each key, which updates, inserts or deletes a row of the table.

    Args:
        frame: One row a key, with the flag whether it is deleted.
        sink: As declared.
        changes: The changes of the batch.
        what: The batch, for messages.

    Attributes:
        types: The type of each column that is written, as Spark writes it in short.
    """

    def __init__(self, frame: Any, sink: PostgresSink, changes: MergeChanges, what: str) -> None:
        self._frame = frame
        self._sink = sink
        self._changes = changes
        self._what = what
        self.types = {name: kind for name, kind in column_types(frame.schema).items() if name != DELETED}

    def write(self, connection: Any, columns: Sequence[TargetColumn]) -> int:
        """Merge the rows; return how many rows of the table were updated, inserted or deleted.

        Raises:
            RefusalError: The table did not take each change, or takes two keys of the batch for one.
        """
        sql = PostgresMergeSql(self._sink.parts, tuple(columns), self._sink.keys, self._sink.sequence_by)
        # rows that a policy hides would be inserted again: an error instead
        connection.execute("SELECT set_config('row_security', 'off', true)")
        connection.execute(sql.create())
        names = [*(one.name for one in columns), DELETED]
        _copy(connection, STAGED, names, lines(self._frame, {**self.types, DELETED: "boolean"}))
        doubled = sql.doubled()
        found = None if doubled is None else connection.execute(doubled).fetchone()
        if found is not None:
            raise self._changes.unordered(
                f"{found[0]!r} and {found[1]!r} are one key ({', '.join(self._sink.keys)}) by the table's collation"
            )
        connection.execute(sql.lock())
        if self._sink.delete_rows:
            self._refuse_cascade(connection, sql)
        is_counted = may_leave_out(connection, self._sink.parts)
        total = 0
        for statement, count in sql.statements(deletes=self._sink.delete_rows):
            expected = connection.execute(count).fetchone()[0] if is_counted else None
            changed = int(connection.execute(statement).rowcount)
            if expected not in (None, changed):
                raise _left_out(self._sink, self._what, f"changed {changed:,} of {expected:,} rows")
            total += changed
        return total

    def _refuse_cascade(self, connection: Any, sql: PostgresMergeSql) -> None:
        """Refuse to delete keys if rows of other keys go with them, which the source may still have."""
        changed = changed_by_delete(connection, self._sink.parts, only_itself=True)
        # most tables have no such key, and need no look at each row of the batch
        if changed is not None and connection.execute(sql.first_deleted()).fetchone() is not None:
            raise RefusalError(
                Reason.SINK_UNSUITABLE,
                f"{self._what} deletes keys, which would remove or change rows of other keys in {changed}. Nothing was "
                "written. Make the foreign key NO ACTION DEFERRABLE INITIALLY DEFERRED, drop it, or set "
                "delete_rows=False on the sink",
            )


@contextmanager
def rows_of(
    spark: Any, frame: Any, sink: PostgresSink, batch: BatchSpec, what: str
) -> Iterator[Union[AppendedRows, MergedRows]]:
    """Yield the prepared rows of a batch, as the mode of the sink says.

    Raises:
        RefusalError: They do not fit the options of the sink, or leave open which row of a key is the last.
    """
    place = sink.describe()
    if not sink.needs_keys:
        rows = with_provenance(frame, sink, place) if sink.provenance else frame.drop(*PROVENANCE)
        _refuse_legacy_times(spark, rows, what)
        yield AppendedRows(rows, sink, batch, what)
        return
    changes = MergeChanges(sink, place, batch, what)
    rows = merge_rows(frame, sink, place)
    _refuse_legacy_times(spark, rows, what)
    with temporary_view(spark, rows) as view:
        sql = changes.sql(view, rows)
        changes.check_order(spark, sql)
        yield MergedRows(spark.sql(sql.newest()), sink, changes, what)


def _refuse_legacy_times(spark: Any, rows: Any, what: str) -> None:
    """Refuse a setting with which times in JSON lose their microseconds, and move before 1582."""
    if not any(map(is_json, column_types(rows.schema).values())):
        return
    if spark.conf.get("spark.sql.legacy.timeParserPolicy").upper() == "LEGACY":
        raise RefusalError(
            Reason.SINK_UNSUITABLE,
            f"{what} has nested columns, in which Spark changes times with spark.sql.legacy.timeParserPolicy=LEGACY. "
            "Set it to CORRECTED in conf",
        )


def _left_out(sink: PostgresSink, what: str, found: str) -> RefusalError:
    return RefusalError(
        Reason.ROWS_DIFFER,
        f"{what}: {sink.describe()} {found}, so a trigger or a "
        "rule left some out. Nothing was written: FDS loads all rows of a batch, or none",
    )


def _copy(connection: Any, table: str, names: List[str], frame: Any) -> Tuple[int, int]:
    """Copy lines into a table; return how many were sent and taken."""
    columns = ", ".join(quoted(name) for name in names)
    sent = 0
    with connection.cursor() as cursor:
        with cursor.copy(f"COPY {table} ({columns}) FROM STDIN") as copy:
            for text, count in line_chunks(frame):
                copy.write(text)
                sent += count
        return sent, int(cursor.rowcount)
