"""A Delta sink as one stream knows it, and whether it has changed in a way that Delta's transactions do not survive.

A table that was restored, replaced or created again may keep or lose transactions independently of its rows. Standard
library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, NamedTuple, Optional

from airflow_provider_fds.batch.transactions import fence_version
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.spark.runtime.failures import RefusalError
from airflow_provider_fds.spark.sink_log.history import History, SinkLog, read_table_id
from airflow_provider_fds.spark.sink_log.other_writers import RowsTaken, refuse_namesakes
from airflow_provider_fds.spark.sink_log.sink_place import check_features, check_properties, check_table

if TYPE_CHECKING:
    from airflow_provider_fds.batch.sink.sink_commit import SinkCommit
    from airflow_provider_fds.batch.spec import BatchSpec, JobSpec
    from airflow_provider_fds.sinks import DeltaSink
    from airflow_provider_fds.spark.sink_log.advice import Advice


class _Known(NamedTuple):
    """What this process knows of a table from its last job: of a run that lingers, it does the next one, too.

    Attributes:
        table_id: Its id.
        version: The version up to which its properties and features were checked.
        columns: See :meth:`SinkState.columns`; ``None`` if they were not read.
    """

    table_id: Optional[str]
    version: int
    columns: Optional[Dict[str, Any]]


#: By path.
_known: Dict[str, _Known] = {}


class SinkState:
    """What a job knows of its sink between its batches.

    Args:
        spark: The session.
        sink: As declared.
        path: Its place, as Hadoop's file systems take it.
        log: Its log.
        job: The job.
        advice: What messages advise.
        breaking_matters: Whether rows that were loaded earlier may be permanently lost after a RESTORE or a similar
            operation.

    Attributes:
        version: The sink's version with the stream's last commit, if it is known.
        table_id: ``metaData.id`` of the sink, ``None`` until it exists.
        schema_since: The version at which its columns or properties changed last, as far as commits were read.
    """

    def __init__(
        self,
        spark: Any,
        sink: DeltaSink,
        path: str,
        log: SinkLog,
        job: JobSpec,
        advice: Advice,
        *,
        breaking_matters: bool,
    ) -> None:
        self._spark = spark
        self._sink = sink
        self._log = log
        self._path = path
        self._job = job
        self._advice = advice
        self._first = one = job.batches[0]
        self._breaking_matters = breaking_matters
        self.rows_taken = RowsTaken(
            sink, self._path, log, uuid=one.uuid, breaking_too=not breaking_matters, way_on=advice.rewind()
        )
        self.version = job.sink_version
        self.table_id: Optional[str] = None
        self.schema_since: Optional[int] = None
        self._columns: Optional[Dict[str, Any]] = None

    def look(self) -> Optional[History]:
        """Return the sink's commits since the stream's last one, or ``None`` if there is no sink yet.

        Raises:
            RefusalError: The sink is gone, is another table, or has changed so that transactions say nothing.
        """
        history = self.history()
        if history is None:
            self._check_missing()
            return None
        if self.table_id is None:
            self.table_id = self._identify(history)
            known = _known.get(self._path)
            if (
                known is not None
                and known[:2] == (self.table_id, self.version)
                and history.at(self.version) is not None
            ):
                # later changes show in the commits since, which are all there
                self._columns = known.columns
            else:
                check_table(self._spark, self._path)
        self.check(history)
        return history

    def history(self) -> Optional[History]:
        """Return the sink's commits since the stream's last one, unchecked; ``None`` without a sink."""
        return self._log.history(self.version)

    def recognize(self, history: History, commit: SinkCommit) -> None:
        """Take the table of a commit of the stream for the sink, if there was none, and check what has changed.

        Raises:
            RefusalError: See :meth:`check`.
        """
        if self.table_id is None:
            self.table_id = commit.table_id or read_table_id(self._spark, self._path)
        self.check(history)

    def record(self, version: int) -> None:
        """Keep the version of the stream's last commit."""
        self.version = version
        _known[self._path] = _Known(self.table_id, version, self._columns)

    def columns(self) -> Dict[str, Any]:
        """Return the columns of the table, which exists, as Delta's schema JSON.

        They are read again only after :meth:`check` has seen a commit that may have changed them.
        """
        if self._columns is None:
            self._columns = self._spark.read.format("delta").load(self._path).schema.jsonValue()
        return self._columns

    def check(self, history: History) -> None:
        """Refuse a sink that has changed since the stream's last write in a way that transactions do not survive.

        Raises:
            RefusalError: It says what has changed, and the way on.
        """
        known, one = self.version, self._first
        self.check_namesakes(history)
        # the first check asks Spark for properties and features; later ones see changes of them here
        changed = next((commit for commit in history.commits if commit.properties is not None), None)
        if changed is not None:
            check_properties(self._path, changed.properties or {})
            if changed.version != self.schema_since:
                self._columns = None
            self.schema_since = changed.version
        for commit in history.commits:
            check_features(self._path, commit.features)
        if known is not None and history.newest_version < known:
            raise RefusalError(
                Reason.SINK_REPLACED,
                f"the sink {self._path} is at version {history.newest_version}, but the stream's last commit in "
                f"it is version {known}: the table was restored from a copy, or created again. Load the missing "
                f"rows again by {self._advice.after(self._log.transaction(one.txn_app_id), one.epoch)}",
            )
        since = history.oldest_of(one.txn_app_id) if known is None else known
        if since is None:
            return
        for commit in history.commits:
            if commit.version > since and commit.table_id not in (None, self.table_id):
                raise self._replaced(commit.table_id, str(self.table_id))
        broke = history.breaking_after(since) if self._breaking_matters else None
        if broke is not None:
            raise self._broken(history, broke, since)
        self.rows_taken.check(history, since, one.stream)

    def check_namesakes(self, history: History) -> None:
        """Refuse a sink that has another stream of the same name, see :func:`refuse_namesakes`."""
        refuse_namesakes(history, self._path, self._first.stream, self._first.uuid, self._sink.other_streams)

    def newest_transaction(self, history: History, batch: BatchSpec) -> Optional[int]:
        """Return the newest transaction of the stream, or of the data interval, in the sink.

        If log cleanup has removed the stream's last commit, the table's state still has the transaction.
        """
        newest = history.newest_transaction(batch.txn_app_id)
        if newest is None and history.oldest_version > (self.version or 0):
            newest = self._log.transaction(batch.txn_app_id)
            if batch.interval is not None and newest is not None and newest < fence_version(batch.epoch):
                # an earlier generation of the interval; generations follow each other
                return None
        return newest

    def _check_missing(self) -> None:
        wanted = self.table_id or self._job.sink_table_id
        if wanted is not None:
            raise RefusalError(
                Reason.SINK_MISSING,
                f"the sink {self._path} is missing: the stream has written to it (table id {wanted}, version "
                f"{self.version}), but Spark finds no Delta table there. Mount its folder where Spark runs; if "
                f"the table was removed, restore it, or load everything into a new one by {self._advice.from_start()}",
            )
        # fails if a table cannot be created here
        read_table_id(self._spark, self._path)

    def _identify(self, history: History) -> Optional[str]:
        wanted = self._job.sink_table_id
        last = history.at(self.version)
        if wanted is not None and last is not None and last.transaction_of(self._first.txn_app_id) is not None:
            # the stream's last commit is in place; a later change of the id shows in the commits since
            return wanted
        # the newest metaData is the table's, if it is among the commits read
        seen = next((commit.table_id for commit in history.commits if commit.table_id), None)
        found = seen or read_table_id(self._spark, self._path)
        if wanted is not None and found != wanted:
            raise self._replaced(found, wanted)
        return found

    def _replaced(self, found: Optional[str], wanted: str) -> RefusalError:
        return RefusalError(
            Reason.SINK_REPLACED,
            f"the sink {self._path} is another table: its id is {found}, but the stream has written to {wanted}. "
            "It was dropped and created again, or replaced. Restore the old table, or load everything into the "
            f"new one by {self._advice.from_start()}",
        )

    def _broken(self, history: History, broke: SinkCommit, since: int) -> RefusalError:
        kept = history.kept(self._first.txn_app_id)
        if self._first.interval is None and since in kept.versions and kept.broken_at is None:
            what = (
                "committed rows are still there, but uncommitted batches may be missing. Let the next run check "
                f"and continue by {self._advice.replan()}"
            )
        else:
            what = (
                "loaded rows may be missing, and Delta would skip them if they were written again. Load them "
                f"again, from the first missing batch on, by {self._advice.from_first_missing()}"
            )
        return RefusalError(
            Reason.SINK_REPLACED,
            f"the sink {self._path} had a {broke.operation} at version {broke.version}, after the stream wrote to it "
            f"at version {since}: {what}",
        )
