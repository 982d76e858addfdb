"""Checks a driver's report of a batch against the sink's own log, with one GET of the commit that the report names.

Others may be able to write to a report's file; only the sink's commit proves the batch. If the worker cannot read the
sink, the report alone counts (docs/threat_model.md).
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_provider_fds.batch.sink.sink_commit import parse_commit
from airflow_provider_fds.batch.transactions import fence_version, txn_app_id, txn_version
from airflow_provider_fds.delta.damage import DAMAGE, describe
from airflow_provider_fds.delta.names import commit_key
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.errors import (
    AccessDeniedError,
    BatchFailedError,
    ConfigurationError,
    LostPositionError,
    RequestRefusedError,
    TableNotFoundError,
)
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.stream.sink_record.before_fence import problem_before

if TYPE_CHECKING:
    from collections.abc import Collection

    from airflow_provider_fds.batch.report import FenceReport, LandedBatch
    from airflow_provider_fds.batch.sink.postgres_account import Namesake
    from airflow_provider_fds.batch.sink.sink_commit import SinkCommit
    from airflow_provider_fds.stream.connected_stream import ConnectedStream

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReportedBatch:
    """A transaction as the session planned it; for an ``interval``, ``epoch`` is its generation."""

    uuid: str
    epoch: int
    batch_id: int
    digest: str
    interval: str | None = None

    @property
    def app_id(self) -> str:
        """Application id of the transaction."""
        return txn_app_id(self.uuid, self.interval)

    def describe(self) -> str:
        """Return the batch in words."""
        of = f"epoch {self.epoch}" if self.interval is None else f"interval {self.interval}"
        return f"batch {self.batch_id} of {of}"


class Evidence(ABC):
    """What a sink itself has of its batches, if this worker may read it.

    Args:
        connected: The stream.
        sink: The sink, as messages call it.
    """

    def __init__(self, connected: ConnectedStream, sink: str) -> None:
        self._connected = connected
        self._uri = sink
        self._is_readable = True

    @abstractmethod
    def check_batch(self, batch: ReportedBatch, version: int | None, rows: int | None, table_id: str | None) -> None:
        """Compare a report with the commit it names.

        Args:
            batch: The expected batch.
            version: Version of the sink that the report names.
            rows: Rows written, according to the report.
            table_id: ``metaData.id`` of the sink, according to the report.

        Raises:
            BatchFailedError: The commit is missing, is not this batch, or has another number of rows.
            StorageError: The sink's storage did not answer.
        """

    @abstractmethod
    def check_fence(
        self,
        uuid: str,
        epoch: int,
        version: int | None,
        landed: tuple[LandedBatch, ...],
        removal: dict[str, Any] | None = None,
        table_id: str | None = None,
    ) -> None:
        """Compare the report of a fence, and of the batches that landed before it, with the commits it names.

        Raises as :meth:`check_batch` does.

        Args:
            uuid: The stream's uuid.
            epoch: The epoch that the fence begins.
            version: Version of the sink that holds the fence, according to the report.
            landed: Batches that landed before it, according to the report.
            removal: What the fence removed according to the report, in the form its commit uses; ``None`` for nothing.
            table_id: Id of the sink's table, according to the report.
        """

    @abstractmethod
    def check_before_fence(self, report: FenceReport, known: int | None, *, is_removing: bool) -> None:
        """Compare what a report says of the commits before a fence with the commits. Raises as :meth:`check_batch`.

        Args:
            report: The report of the fence, which is in the sink.
            known: Version of the stream's last known commit, or ``None`` if it has no commit.
            is_removing: Whether the fence itself removed the rows that are read again.
        """

    @abstractmethod
    def check_missing(self, epoch: int) -> None:
        """Refuse a report of a missing sink if the sink exists. Raises as :meth:`check_batch` does."""

    def namesake(self, others: Collection[str]) -> Namesake | None:  # noqa: ARG002 - `sink_traces` searches a log
        """Return another stream of the same name that the sink knows of, or ``None``.

        Args:
            others: uuids that do not count.
        """
        return None

    def _refuse_reading(self, error: Exception) -> None:
        self._is_readable = False
        logger.warning(
            "Stream %s: the sink %s cannot be read from here, so FDS relies on the report of the Spark driver "
            "alone: %s",
            self._connected.stream.name,
            self._uri,
            error,
        )

    def _refused(self, what: str, why: str) -> BatchFailedError:
        connected = self._connected
        return BatchFailedError(
            f"stream {connected.stream.name!r}: the report of {what} does not match the sink {self._uri}: {why}. "
            "Nothing was committed; a retry checks the sink and works on the same rows. If this happens again, "
            "find out who else can write to 'attempts/' in staging",
            error_class=Reason.REPORT_REFUSED,
            table=connected.stream.table,
            reason=Reason.REPORT_REFUSED,
        )


class SinkLog(Evidence):
    """The commits of one Delta sink."""

    def check_batch(self, batch: ReportedBatch, version: int | None, rows: int | None, table_id: str | None) -> None:
        """Compare a report with the commit it names. Raises as :meth:`Evidence.check_batch`."""
        what = batch.describe()
        if version is None:
            raise self._refused(what, "the report names no version of the sink")
        commit = self._read(version, what)
        if commit is None:
            return
        if not _holds(commit, batch):
            raise self._refused(what, f"version {version} of the sink is not this batch")
        wrote = None if commit.operation == "MERGE" else commit.rows_written
        if wrote is not None and rows != wrote:
            raise self._refused(what, f"version {version} of the sink has {wrote} rows, but the report says {rows}")
        if commit.table_id is not None and table_id != commit.table_id:
            raise self._refused(
                what, f"version {version} created the table {commit.table_id}, but the report says {table_id}"
            )

    def check_fence(
        self,
        uuid: str,
        epoch: int,
        version: int | None,
        landed: tuple[LandedBatch, ...],
        removal: dict[str, Any] | None = None,
        table_id: str | None = None,
    ) -> None:
        """Compare the report of a fence with the commits it names. Raises as :meth:`Evidence.check_batch`."""
        del table_id
        what = f"the fence of epoch {epoch}"
        if version is None:
            raise self._refused(what, "the report names no version of the sink")
        commit = self._read(version, what)
        if commit is None:
            return
        if commit.transactions.get(txn_app_id(uuid)) != fence_version(epoch):
            raise self._refused(what, f"version {version} of the sink is not this fence")
        metadata = {key: value for key, value in ((commit.metadata or {}).get("removes") or {}).items() if key != "to"}
        if removal is not None and metadata != removal:
            raise self._refused(what, f"version {version} of the sink did not remove the requested rows")
        for batch in landed:
            wanted = ReportedBatch(uuid, batch.epoch, batch.batch_id, batch.digest)
            found = self._read(batch.sink_version, what)
            if found is not None and not (_holds(found, wanted) and (found.metadata or {}).get("end") == batch.end):
                raise self._refused(what, f"version {batch.sink_version} of the sink is not {wanted.describe()}")

    def check_before_fence(self, report: FenceReport, known: int | None, *, is_removing: bool) -> None:
        """Compare what a report says of the commits before a fence. Raises as :meth:`Evidence.check_batch`."""
        if not self._is_readable or report.sink_version is None:
            return
        if known is not None and report.sink_version <= known:
            # an older copy, or another table: the ledger already knows its contents
            return
        what = f"the fence of epoch {report.epoch}"
        log = DeltaLog(self._connected.open_sink(self._uri))
        try:
            first = max(log.earliest(), 0 if known is None else known + 1)
            commits = log.commits(first, report.sink_version - 1)
            problem = problem_before(report, commits, is_removing=is_removing)
        except LostPositionError:
            # log cleanup removed them in the meantime
            return
        except (AccessDeniedError, RequestRefusedError, ConfigurationError) as error:
            self._refuse_reading(error)
            return
        if problem is not None:
            raise self._refused(what, problem)

    def check_missing(self, epoch: int) -> None:
        """Refuse a report of a missing sink if the sink exists. Raises as :meth:`check_batch` does."""
        try:
            version = DeltaLog(self._connected.open_sink(self._uri)).latest()
        except TableNotFoundError:
            return
        except (AccessDeniedError, RequestRefusedError, ConfigurationError) as error:
            self._refuse_reading(error)
            return
        raise self._refused(
            f"the fence of epoch {epoch}", f"its report says that there is no sink, but the sink is at {version}"
        )

    def _read(self, version: int, what: str) -> SinkCommit | None:
        """Return a commit, or ``None`` if this worker cannot read the sink."""
        if not self._is_readable:
            return None
        try:
            data, _ = self._connected.open_sink(self._uri).get(commit_key(version))
        except FileNotFoundError:
            raise self._refused(what, f"the sink has no version {version}") from None
        except (AccessDeniedError, RequestRefusedError, ConfigurationError) as error:
            self._refuse_reading(error)
            return None
        try:
            return parse_commit(version, data)
        except DAMAGE as error:
            raise self._refused(what, f"version {version} of the sink cannot be read ({describe(error)})") from error


def _holds(commit: SinkCommit, batch: ReportedBatch) -> bool:
    """Whether a commit is the batch: same transaction, manifest and epoch."""
    told = commit.metadata or {}
    wanted = (txn_version(batch.epoch, batch.batch_id), batch.uuid, batch.epoch, batch.batch_id, batch.digest)
    fields = (told.get("uuid"), told.get("epoch"), told.get("batch_id"), told.get("digest"))
    return (commit.transaction_of(batch.app_id), *fields) == wanted and told.get("interval") == batch.interval
