"""The named tables that a user's function writes: what their logs show of a batch.

Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Optional, Sequence, Set

from airflow_provider_fds.batch.sink.table_account import account
from airflow_provider_fds.batch.table_writes import NO_TABLE
from airflow_provider_fds.batch.transactions import fence_version, txn_app_id
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.spark.fence.empty_append import append_nothing
from airflow_provider_fds.spark.runtime.failures import RefusalError, is_conflict
from airflow_provider_fds.spark.runtime.hadoop_files import hadoop_path
from airflow_provider_fds.spark.sink_log.history import SinkLog
from airflow_provider_fds.spark.sink_log.other_writers import refuse_namesakes
from airflow_provider_fds.spark.sink_log.sink_place import check_table

if TYPE_CHECKING:
    from airflow_provider_fds.batch.spec import BatchSpec
    from airflow_provider_fds.batch.table_writes import TableWrite, TableWrites
    from airflow_provider_fds.sinks import ForeachBatchSink


class WrittenTables:
    """The tables of a sink's writes, throughout one job."""

    def __init__(self, spark: Any, sink: ForeachBatchSink, known: Dict[str, int]) -> None:
        self._spark = spark
        self._paths = {name: hadoop_path(uri, spark) for name, uri in sink.tables.items()}
        self._logs = {name: SinkLog(spark, path) for name, path in self._paths.items()}
        self._known = dict(known)
        #: Names of the writes with a transaction before the current batch.
        self._continued = set(known)
        self._checked: Set[str] = set()
        self._searched: Set[str] = set()
        self._warned = False
        self._unknown = [name for name in sink.names if name not in self._paths]
        self._function = sink.function
        self._others = sink.other_streams

    def prepare(self, batch: BatchSpec, *, is_repeated: bool) -> None:
        """Check, before the function is called, that Delta accepts each write once and in turn.

        Args:
            batch: The batch.
            is_repeated: Whether another attempt may have called the function with it.

        Raises:
            RefusalError: A table forgets transactions too soon, already has a later transaction of this write or has
                this one from another batch, was restored to a version before what was written, or is written by a
                stream of the same name with another ledger.
        """
        self._warn()
        for name, path in self._paths.items():
            found = self._look(name, batch)
            if found is NO_TABLE:
                continue
            own = _of_batch(found, batch)
            if name not in self._checked or is_repeated:
                check_table(self._spark, path)
                self._checked.add(name)
            if own is not None:
                self._check_same(name, batch, own, is_repeated=is_repeated)
            if is_repeated and own is None:
                self._tell(name, batch, "not ", " yet, after an earlier attempt")
            elif is_repeated:
                self._remind(name, batch)
                self._tell(name, batch, "", ", by an earlier attempt; it is not written again")

    def check_landed(self, batch: BatchSpec, asked: Sequence[str]) -> None:
        """Check, after the function has returned, which writes are in the tables.

        Args:
            batch: The batch.
            asked: Names of the writes whose options the function requested.

        Raises:
            RefusalError: Delta skipped a write because of a later transaction, so its rows are nowhere; or a table was
                restored in the meantime, or another stream of the same name has written to it.
        """
        for name in self._logs:
            if _of_batch(self._look(name, batch, is_turn=name in asked), batch) is None:
                self._tell(name, batch, "not ", ": the function has written no rows of it")

    def check_kept(self, batch: BatchSpec) -> None:
        """Check that what an earlier attempt has written and reported is still there; later batches may be, too.

        Raises:
            RefusalError: A table was restored or replaced since.
        """
        for name in self._logs:
            self._look(name, batch, is_turn=False)

    @property
    def versions(self) -> Dict[str, int]:
        """The version of each table that holds the newest transaction of its write, if known."""
        return dict(self._known)

    def _look(self, name: str, batch: BatchSpec, *, is_turn: bool = True) -> TableWrites:
        """Check what a table says of a write, and return it, with the transactions before the batch as committed.

        Args:
            name: Name of the write.
            batch: The batch.
            is_turn: Whether the table must not have a later transaction.
        """
        if self._logs[name].is_another():
            self._logs[name] = SinkLog(self._spark, self._paths[name])
        app_id, log = txn_app_id(batch.uuid, write=name), self._logs[name]
        history, found = log.since_transaction(app_id, batch.txn_version), NO_TABLE
        if history is not None:
            found = account(history.commits[::-1], app_id, log.transaction(app_id), batch.txn_version - 1)
        self._check_there(name, batch, found)
        if history is None:
            return found
        if is_turn:
            self._check_turn(name, batch, found.newest)
        self._check_kept(name, batch, found)
        if name not in self._searched:
            self._searched.add(name)
            if {of.partition("#")[0] for of in log.transactions()} - {txn_app_id(batch.uuid)}:
                history = log.history(None) or history
        refuse_namesakes(history, self._paths[name], batch.stream, batch.uuid, self._others)
        if found.committed is not None:
            self._continued.add(name)
        # what a later batch has written is not committed with this one
        last = _of_batch(found, batch) or found.committed
        if last is not None and last.version is not None:
            self._known[name] = last.version
        return found

    def _check_there(self, name: str, batch: BatchSpec, found: TableWrites) -> None:
        """Check that a table has what the stream has written to it, and no write of an epoch that was not closed."""
        known, newest = self._known.get(name), found.newest
        what = f"{batch.describe()}: the table {self._paths[name]}"
        if known is not None and found.is_another(known, has_earlier=name in self._continued):
            raise RefusalError(
                Reason.SINK_MISSING,
                f"{what} of write {name!r} was removed, restored from a copy, or created again after the stream had "
                "written to it, or its folder is not mounted where Spark runs. Mount or restore it. Only if it is gone "
                "for good, remove the rows from the other tables and load everything again: `fds rewind "
                f"{batch.stream} --to start --sink-rows keep --why …`",
            )
        if known is None and newest is not None and newest.transaction < fence_version(batch.epoch):
            # the fence from before the stream moved to another sink
            if newest.is_fence:
                return
            raise RefusalError(
                Reason.EPOCH_NOT_CLOSED,
                f"{what} has batch {newest.batch_id} of epoch {newest.epoch} of write {name!r}, and that epoch was "
                "not closed there, because the table was missing or not named when the new one began. If a leftover "
                "driver created the table since then, its rows are loaded again: remove them. Then `fds replan "
                f"{batch.stream} --why …` closes the old epochs in the table",
            )

    def _check_turn(self, name: str, batch: BatchSpec, newest: Optional[TableWrite]) -> None:
        """Check that Delta does not skip the write for a later transaction."""
        if newest is not None and newest.transaction > batch.txn_version:
            raise RefusalError(
                Reason.SINK_OUT_OF_ORDER,
                f"{batch.describe()}: the table {self._paths[name]} has transaction {newest.transaction} of "
                f"{txn_app_id(batch.uuid, write=name)}, which is later than {batch.txn_version}, so Delta silently "
                f"skips the write {name!r} of this batch. Another attempt has continued with later batches or a new "
                "epoch, or the ledger is older than the table: compare the table with the stream's history",
            )

    def _check_kept(self, name: str, batch: BatchSpec, found: TableWrites) -> None:
        """Check that the rows of the write before this batch are in the table, and those of this batch if written."""
        path, last = self._paths[name], found.committed
        if last is not None and last.place != "there":
            raise RefusalError(
                Reason.SINK_REPLACED,
                f"{batch.describe()}: the table {path} was restored or replaced at version {last.undone_at}, after "
                f"{name!r} had written earlier batches to it, so it may lack rows. Remove the rows of the first "
                f"missing batch and of later ones from the tables, then run `fds rewind {batch.stream} --to batch:N "
                "--sink-rows keep --why …`",
            )
        own = _of_batch(found, batch)
        if own is not None and own.place != "there":
            raise RefusalError(
                Reason.SINK_REPLACED,
                f"{batch.describe()}: version {own.version} of {path} was the write {name!r} of this batch, and the "
                "table was restored or replaced since then, so its rows may be missing. Delta would skip the write if "
                f"it was repeated. Check the tables: `fds replan {batch.stream} --why …` asks which writes of the "
                "batch they have",
            )

    def _check_same(self, name: str, batch: BatchSpec, own: TableWrite, *, is_repeated: bool) -> None:
        """Check that the transaction for which Delta skips this write belongs to this batch and no other."""
        if own.digest == batch.manifest_digest or (own.digest is None and is_repeated):
            return
        path = self._paths[name]
        where = path if own.version is None else f"version {own.version} of {path}"
        rows, target = f"version {batch.first_version} and later", str(batch.first_version)
        if batch.begins_in_snapshot:
            rows, target = f"batch {batch.batch_id} and later ones", f"batch:{batch.batch_id}"
        what = "exists, but no attempt has started this batch"
        if own.digest is not None:
            what = "is of another batch with this number"
        raise RefusalError(
            Reason.SINK_OUT_OF_ORDER,
            f"{batch.describe()}: the write {name!r} in {where} {what}, so the ledger is older than the table, and "
            "Delta would silently skip the write. Restore the newest copy of the staging folder. If there is none, "
            f"remove the rows of {rows} from the tables, then run `fds rewind {batch.stream} --to {target} --sink-rows "
            "keep --why …`",
        )

    def _remind(self, name: str, batch: BatchSpec) -> None:
        """Commit the transaction of a write again, because its commit exists but Delta itself may have forgotten it.

        A log checkpoint drops transactions older than the retention that the table had at that time. If Delta still
        knows the transaction, it skips this commit.
        """
        try:
            append_nothing(
                self._spark, self._paths[name], txn_app_id(batch.uuid, write=name), batch.txn_version, _REMINDER
            )
        except Exception as error:
            if not is_conflict(error):
                raise

    def _tell(self, name: str, batch: BatchSpec, negation: str, tail: str) -> None:
        print(f"FDS batch {batch.batch_id}: write {name!r} is {negation}in {self._paths[name]}{tail}", flush=True)

    def _warn(self) -> None:
        """Print once per job what is not checked."""
        if self._warned or not self._unknown:
            return
        self._warned = True
        print(
            f"FDS WARNING: function {self._function} writes {', '.join(map(repr, self._unknown))} to tables that FDS "
            "does not know, so it cannot check whether they forget transactions "
            "(delta.setTransactionRetentionDuration) or which writes have landed. Name them: writes={name: table}",
            flush=True,
        )


def _of_batch(found: TableWrites, batch: BatchSpec) -> Optional[TableWrite]:
    return next((one for one in found.writes if one.transaction == batch.txn_version), None)


#: ``userMetadata`` of a commit without rows.
_REMINDER = "FDS: no rows, the transaction of a batch that is there"
