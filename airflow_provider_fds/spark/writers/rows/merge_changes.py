"""The changes of a batch to a table with keys, and what must be known of them before they are merged.

Whatever the table is, it takes the same changes, and refuses the same batches. Standard library and pyspark, Python 3.9
syntax.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Optional, Sequence, Tuple, Union

from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.spark.runtime.failures import RefusalError
from airflow_provider_fds.spark.writers.rows.merge_sql import MergeSql
from airflow_provider_fds.spark.writers.rows.prepared_rows import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from airflow_provider_fds.spark.writers.rows.sink_columns import with_provenance

if TYPE_CHECKING:
    from airflow_provider_fds.batch.spec import BatchSpec
    from airflow_provider_fds.sinks import DeltaMergeSink, PostgresSink

#: Columns that order the changes to a key, and are not written.
ORDER = (COMMIT_VERSION, COMMIT_TIMESTAMP)


class MergeChanges:
    """The changes of one batch.

    Args:
        sink: As declared.
        place: The table, for messages.
        batch: The batch.
        what: The batch, for messages.
    """

    def __init__(self, sink: Union[DeltaMergeSink, PostgresSink], place: str, batch: BatchSpec, what: str) -> None:
        self._sink = sink
        self._place = place
        self._batch = batch
        self._what = what
        self._is_feed = False

    def refuse_part(self, frame: Any) -> None:
        """Refuse a batch of changes with only part of a commit, unless the source's log shows that this is harmless."""
        batch = self._batch
        inner = batch.inner_versions
        if CHANGE_TYPE not in frame.columns or not inner or batch.divides_commit is False:
            return
        which = f"version {inner[0]}" if len(inner) == 1 else "versions " + " and ".join(map(str, inner))
        is_known = "adds and removes rows" if batch.divides_commit else "may add and remove rows"
        raise RefusalError(
            Reason.COMMIT_DIVIDED,
            f"{self._what} has only a part of {which} of the source, which {is_known}. A merge into "
            f"{self._place} needs all of it to know which keys still exist. Nothing was written; plan again with "
            f"`fds replan {batch.stream} --why …`",
        )

    def sql(self, view: str, rows: Any, snapshot: Optional[int] = None) -> MergeSql:
        """Return the statements of the merge of ``rows``, which are the view.

        Args:
            view: The rows, for SQL.
            rows: The rows, as :func:`merge_rows` returns them.
            snapshot: See :class:`MergeSql`.
        """
        self._is_feed = CHANGE_TYPE in rows.columns
        return MergeSql(
            view,
            self._sink.keys,
            tuple(name for name in rows.columns if name.lower() not in (*ORDER, CHANGE_TYPE)),
            self._sink.sequence_by,
            has_change_types=self._is_feed,
            snapshot=snapshot,
            text_keys=self._text_keys(rows) if self._sink.target == "delta_table" else (),
        )

    def _text_keys(self, rows: Any) -> Tuple[str, ...]:
        texts = {one.name.lower() for one in rows.schema.fields if one.dataType.simpleString().startswith("string")}
        return tuple(name for name in self._sink.keys if name.lower() in texts)

    def check_order(self, spark: Any, sql: MergeSql, partitions: Callable[[], Sequence[str]] = tuple) -> int:
        """Refuse a batch whose rows lack a key or an order within their key, or are not the planned rows.

        Args:
            spark: The session.
            sql: The statements.
            partitions: Returns the columns by which a Delta table is partitioned; asked if rows have an empty key.

        Returns:
            The number of its rows.
        """
        batch = self._batch
        found = spark.sql(sql.problems()).collect()[0]
        if self._sink.takes_all_rows and batch.num_rows not in (None, found["num_rows"]):
            raise RefusalError(
                Reason.ROWS_DIFFER,
                f"{self._what} cannot be merged into {self._place}: Spark reads {found['num_rows']:,} rows, "
                f"but the source's log counts {batch.num_rows:,}. Nothing was written. Find out why: source files may "
                "have been changed in place, or settings may exclude files",
            )
        keys = ", ".join(self._sink.keys)
        order = "are of one commit" if sql.sequence_by is None else f"have the same {sql.sequence_by} and commit"
        problems = []
        if found["null_keys"]:
            problems.append(f"{found['null_keys']:,} rows have NULL in a key ({keys}), such as {found['null_key']}")
        if found["null_sequences"]:
            problems.append(
                f"{found['null_sequences']:,} rows have NULL in sequence_by ({sql.sequence_by}), such as "
                f"{found['null_sequence']}"
            )
        if found["ties"]:
            problems.append(
                f"several rows of one key ({keys}) {order}, such as {found['tie']} ({found['ties']:,} in all), so it "
                "is unknown which one is the last"
            )
        if found["odd_types"]:
            problems.append(f"{found['odd_types']:,} rows have an invalid _change_type, such as {found['odd_type']!r}")
        if problems:
            raise self.unordered("; ".join(problems))
        self._refuse_empty(found, sql, partitions)
        return int(found["num_rows"])

    def _refuse_empty(self, found: Any, sql: MergeSql, partitions: Callable[[], Sequence[str]]) -> None:
        """Refuse rows whose key Delta would not keep: an empty text in a partition column becomes NULL."""
        empty = [n for n, name in enumerate(sql.keys) if name in sql.text_keys and found[f"empty{n}"]]
        kept_as_null = {name.lower() for name in partitions()} if empty else set()
        for n in empty:
            key = sql.keys[n]
            if key.lower() in kept_as_null:
                raise self._refused(
                    f"{found[f'empty{n}']:,} rows have an empty text in the key {key}, such as "
                    f"{found[f'empty_key{n}']}, and Delta keeps it as NULL in a partition column, where a later change "
                    "would not find it. Nothing was written. Exclude such rows (where='…'), replace the text "
                    f"(transform='pkg.module:function'), or use a table that is not partitioned by {key}"
                )

    def unordered(self, problem: str) -> RefusalError:
        """Return the error of a batch that leaves open which row of a key is the last."""
        if self._is_feed:
            return self._refused(f"{problem}. Nothing was written. {self._unique_keys()}")
        other = "" if self._sink.sequence_by is None else f"other than {self._sink.sequence_by} "
        return self._refused(
            f"{problem}. Nothing was written. Set sequence_by to a "
            f"column {other}by which the rows of a key have an order, choose other keys, correct the source, exclude "
            "such rows (where='…'), or resolve them in your own function (transform='pkg.module:function')",
        )

    def twice(self, key: str, snapshot: int) -> RefusalError:
        """Return the error of a batch of a snapshot with a key, as JSON, that an earlier batch of it has written."""
        return self._refused(
            f"two rows of the source at version {snapshot}, its initial snapshot, have the key {key}, and an earlier "
            f"batch has written one of them. Nothing was written. {self._unique_keys()}"
        )

    def _unique_keys(self) -> str:
        name = self._batch.stream
        again = f"`fds rewind {name} --to start --sink-rows keep --why …`"
        if self._sink.can_remove_rows:
            again = f"`fds rewind {name} --to start --sink-rows empty --why …`"
        return (
            "With read_change_feed keys must be unique in the source, because the delete of a row deletes its key: "
            "choose other keys, exclude such rows (where='…'), or correct the source; then load everything again by "
            f"running {again}"
        )

    def _refused(self, why: str) -> RefusalError:
        return RefusalError(Reason.MERGE_ORDER_UNKNOWN, f"{self._what} cannot be merged into {self._place}: {why}")


def merge_rows(frame: Any, sink: Union[DeltaMergeSink, PostgresSink], place: str) -> Any:
    """Return the changes: the columns to be written, and the columns that order the changes.

    Raises:
        RefusalError: A key, or a column of the order, is missing.
    """
    rows = frame
    if sink.provenance:
        # keep the originals for the order
        named = with_provenance(rows, sink, place)
        rows = named.selectExpr("*", "_source_version AS _commit_version", "_source_timestamp AS _commit_timestamp")
    needed = [*sink.keys, *([sink.sequence_by] if sink.sequence_by else []), *ORDER]
    there = {name.lower() for name in rows.columns}
    missing = [name for name in needed if name.lower() not in there]
    if missing:
        by = "the batch lacks" if sink.transform is None else f"transform {sink.transform} must return"
        raise RefusalError(
            Reason.SINK_SCHEMA_MISMATCH,
            f"the merge into {place} needs the columns {', '.join(needed)}; {by} {', '.join(missing)}. "
            f"The columns are {', '.join(rows.columns)}",
        )
    return rows
