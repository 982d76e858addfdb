"""The table of rejected rows: the rows of a batch that fail an expectation with the action ``reject``, once.

A batch's rejected rows are written before the sink, whose commit is the evidence for both: while the sink lacks the
batch, a later attempt comes here again. The rows have a transaction of their own (``fds:<uuid>#rejects``), so that they
land once, whatever dies in between. An epoch that reads rows again first removes what earlier epochs rejected of them,
in the commit that closes those epochs in this table. Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING, Any, Dict, Optional

from airflow_provider_fds.batch.sink.commit_metadata import write_metadata
from airflow_provider_fds.batch.transactions import fence_version, txn_app_id, txn_epoch
from airflow_provider_fds.fault_points import reach
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sinks import DeltaAppendSink
from airflow_provider_fds.sinks.constants import sql_literal
from airflow_provider_fds.spark.fence.empty_append import append_nothing
from airflow_provider_fds.spark.runtime.failures import RefusalError, is_conflict
from airflow_provider_fds.spark.runtime.hadoop_files import hadoop_path
from airflow_provider_fds.spark.runtime.settings import session_conf, transaction_conf
from airflow_provider_fds.spark.sink_log.history import SinkLog, quoted
from airflow_provider_fds.spark.sink_log.sink_place import check_place, check_table
from airflow_provider_fds.spark.writers.rows.prepared_rows import COMMIT_TIMESTAMP, COMMIT_VERSION

if TYPE_CHECKING:
    from airflow_provider_fds.batch.sink.sink_commit import SinkCommit
    from airflow_provider_fds.batch.spec import BatchSpec, Expectations
    from airflow_provider_fds.spark.writers.rows.expected_rows import ExpectedRows

#: The column beside those of the rows: where a row comes from, and which expectations it failed.
REJECTED = "_rejected"
#: What the table's transactions, and their commits, call this write.
_WRITE = "rejects"
#: Streams of a fleet, and data intervals, write at once; a write that conflicts is repeated this many times.
_ATTEMPTS = 6


class RejectsTable:
    """The Delta table of rejected rows, for one batch.

    Args:
        spark: The session.
        expectations: Those of the stream, with its location.
        sink: The sink, which must be another table.
        batch: The batch.
        attempt_id: The attempt that writes it.
        what: The batch, for messages.
    """

    def __init__(
        self, spark: Any, expectations: Expectations, sink: Any, batch: BatchSpec, attempt_id: str, what: str
    ) -> None:
        self._spark = spark
        self._expectations = expectations
        self._sink = sink
        self._batch = batch
        self._attempt_id = attempt_id
        self._what = what
        self._path = hadoop_path(str(expectations.rejects), spark)
        self._log = SinkLog(spark, self._path)
        self._app_id = txn_app_id(batch.uuid, batch.interval, _WRITE)

    def write(self, tested: ExpectedRows, num_rows: int) -> None:
        """Let the table have the rejected rows of the batch, and none that earlier epochs rejected of its rows.

        Raises:
            RefusalError: The table is unsuitable, or has the batch's rows by other expectations.
        """
        for attempt in range(1, _ATTEMPTS):
            try:
                return self._write(tested, num_rows)
            except Exception as error:
                if not is_conflict(error):
                    raise
            # the same transaction lands once
            time.sleep(random.uniform(0.1, 0.3) * 2**attempt)  # noqa: S311  # no secret is made of it
            self._log = SinkLog(self._spark, self._path)
        return self._write(tested, num_rows)

    def _write(self, tested: ExpectedRows, num_rows: int) -> None:
        self._check_place()
        newest = self._newest()
        if newest is not None and newest > self._batch.txn_version:
            raise RefusalError(
                Reason.EPOCH_OVERTAKEN,
                f"{self._what} was not written: the table of rejected rows {self._path} has transaction {newest} of "
                f"the stream, a later one than {self._batch.txn_version}: another run has continued",
                retryable=True,
            )
        if self._batch.epoch > 1 and (newest is None or txn_epoch(newest) < self._batch.epoch):
            self._close_epochs(newest)
        landed = self._landed()
        if landed is None and num_rows:
            reach("driver.rejects.before")
            fields = self._provenance(tested.rows)
            self._append(tested.rejected(f"named_struct({fields}, 'expectations', {{failed}}) AS {REJECTED}"))
            reach("driver.rejects.after")
            landed = self._landed()
            if landed is None or landed.rows_written != num_rows:
                wrote = "has no commit of it" if landed is None else f"took {landed.rows_written} rows of it"
                raise RefusalError(
                    Reason.ROWS_DIFFER,
                    f"{self._what}: {num_rows:,} rows are to be rejected, but {self._path} {wrote}. The sink was not "
                    "written",
                    retryable=landed is None,
                )
        elif landed is not None and (other := self._difference(landed, num_rows)) is not None:
            raise RefusalError(
                Reason.EXPECTATION_UNUSABLE,
                f"{self._what} was not written: an earlier attempt has rejected rows of it into {self._path} by "
                f"{other} until the batch is committed, or have it planned again, which removes those rows: `fds "
                f"replan {self._batch.stream} --why …`",
            )

    def _difference(self, landed: SinkCommit, num_rows: int) -> Optional[str]:
        """Return what made other rejected rows than this attempt has, and what to do, or ``None`` if nothing has.

        A row on which two attempts do not agree would be in both tables, or in none.
        """
        then = landed.write or {}
        if then.get("expect") != self._expectations.expect:
            return f"other expectations, {json.dumps(then.get('expect'))}. Declare these"
        chosen = self._chosen()
        # earlier versions did not record it
        if (before := then.get("chosen", chosen)) != chosen:
            shown = ", ".join(f"{name}={before.get(name)!r}" for name in sorted({*before, *chosen}))
            return f"a sink with {shown}. Declare this"
        if landed.rows_written not in (None, num_rows):
            return (
                f"rules that rejected {landed.rows_written:,} rows, not {num_rows:,} as now, so that transform is "
                "another one or does not return the same rows each time. Use that of before"
            )
        return None

    def _chosen(self) -> Dict[str, Any]:
        """Return what chooses the rows before they are tested."""
        declared = self._sink.to_dict()
        names = ("where", "transform", "constant_columns")
        return {name: declared[name] for name in names if declared.get(name)}

    def _check_place(self) -> None:
        place = self._path.rstrip("/")
        tables = [hadoop_path(table, self._spark).rstrip("/") for table in self._sink.known_tables]
        if place in tables:
            raise RefusalError(
                Reason.SINK_PLACE_REFUSED, f"{self._what}: rejects {self._path} is the sink itself. Use another folder"
            )
        single = bool(getattr(self._sink, "allow_single_driver_s3", False))
        as_sink = DeltaAppendSink(str(self._expectations.rejects), allow_single_driver_s3=single)
        check_place(self._spark, as_sink, self._path, self._batch)

    def _newest(self) -> Optional[int]:
        """Return the stream's newest transaction in the table, ``None`` if it has none or there is no table."""
        if self._log.history(1 << 62) is None:
            return None
        check_table(self._spark, self._path)
        return self._log.transaction(self._app_id)

    def _landed(self) -> Optional[SinkCommit]:
        """Return the commit that has the batch's rejected rows."""
        history = self._log.since_transaction(self._app_id, self._batch.txn_version)
        wanted = self._batch.txn_version
        commits = () if history is None else history.commits
        return next((one for one in commits if one.transaction_of(self._app_id) == wanted), None)

    def _close_epochs(self, newest: Optional[int]) -> None:
        """Close earlier epochs in the table, and remove what they rejected of the rows that this epoch reads again.

        Rows of a batch that ends where this one begins, or before, were committed.
        """
        batch = self._batch
        transaction = fence_version(batch.epoch)
        metadata = self._metadata(fence=transaction)
        if newest is not None:
            scope = f"{REJECTED}.uuid = {sql_literal(batch.uuid)} AND {REJECTED}.epoch < {batch.epoch}"
            if batch.interval is None:
                start = json.loads(batch.start)
                version, index = start["reservoirVersion"], start["index"]
                later = f"{REJECTED}.end_version = {version} AND {REJECTED}.end_index > {index}"
                scope += (
                    f" AND {REJECTED}.interval IS NULL AND ({REJECTED}.end_version > {version} OR {later}) AND "
                    f"coalesce({REJECTED}.source_version, {batch.first_version}) >= {batch.first_version}"
                )
            else:
                scope += f" AND {REJECTED}.interval = {sql_literal(batch.interval)}"
            with session_conf(self._spark, transaction_conf(self._app_id, transaction, metadata)):
                self._spark.sql(f"DELETE FROM {quoted(self._path)} WHERE {scope}").collect()
            newest = self._newest()
        if self._log.newest_version is not None and (newest is None or newest < transaction):
            # nothing was to be removed, which makes no commit
            append_nothing(self._spark, self._path, self._app_id, transaction, metadata)

    def _append(self, rows: Any) -> None:
        (
            rows.write.format("delta")
            .mode("append")
            .option("mergeSchema", "true")
            .option("txnAppId", self._app_id)
            .option("txnVersion", str(self._batch.txn_version))
            .option("userMetadata", self._metadata())
            .save(self._path)
        )

    def _metadata(self, **more: int) -> str:
        told = json.loads(write_metadata(self._batch, _WRITE))
        told |= {"attempt": self._attempt_id, "expect": self._expectations.expect}
        told |= {"chosen": self._chosen(), **more}
        return json.dumps(told, sort_keys=True, separators=(",", ":"))

    def _provenance(self, rows: Any) -> str:
        """Return fields of the column beside the rows, in SQL, without those about expectations."""
        batch, there = self._batch, {name.lower() for name in rows.columns}
        end = json.loads(batch.end)
        fields = {
            "stream": sql_literal(batch.stream),
            "uuid": sql_literal(batch.uuid),
            "interval": "CAST(NULL AS STRING)" if batch.interval is None else sql_literal(batch.interval),
            "epoch": sql_literal(batch.epoch),
            "batch_id": sql_literal(batch.batch_id),
            "end_version": sql_literal(end["reservoirVersion"]),
            "end_index": sql_literal(end["index"]),
            "source_version": COMMIT_VERSION if COMMIT_VERSION in there else "CAST(NULL AS BIGINT)",
            "source_timestamp": COMMIT_TIMESTAMP if COMMIT_TIMESTAMP in there else "CAST(NULL AS TIMESTAMP)",
        }
        return ", ".join(f"'{name}', {value}" for name, value in fields.items())
