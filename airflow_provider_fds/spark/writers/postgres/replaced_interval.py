"""What a run of a data interval replaces in a table of PostgreSQL, and when it must not.

The rows are those of the interval's source versions, by their column ``_source_version``. A database keeps no log of
other writers, so rows count as the stream's own up to the number that the account says it wrote, as for a fence that
removes rows. Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterable, List, Sequence, Tuple

from airflow_provider_fds.batch.version_ranges import describe_range
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sinks.constants import PROVENANCE
from airflow_provider_fds.sinks.postgres import quoted
from airflow_provider_fds.spark.fence.postgres_removal import WrittenRows
from airflow_provider_fds.spark.runtime.failures import RefusalError
from airflow_provider_fds.spark.runtime.postgres_tables import changed_by_delete

if TYPE_CHECKING:
    from airflow_provider_fds.batch.sink.postgres_account import Account, Entry
    from airflow_provider_fds.batch.spec import BatchSpec, JobSpec
    from airflow_provider_fds.sinks import PostgresSink
    from airflow_provider_fds.spark.writers.postgres.copy_text import TargetColumn

_SOURCE_VERSION = PROVENANCE["_commit_version"]


def held_rows(entries: Iterable[Entry], versions: Tuple[int, int]) -> WrittenRows:
    """Return how many rows of these versions (inclusive) the table has from commits of a stream, by the account.

    Args:
        entries: Those with one of the versions, oldest first: each has replaced the rows of all of its versions.
        versions: The versions.
    """
    held: List[Tuple[Entry, WrittenRows]] = []
    for entry in entries:
        # what is appended of one interval does not replace each other
        held = [(one, rows if _key(one) == _key(entry) else _without(one, rows, _span(entry))) for one, rows in held]
        held.append((entry, WrittenRows(entry.rows, entry.rows)))
    gone = [(rows, _without(one, rows, versions)) for one, rows in held]
    return WrittenRows(
        sum(rows.least - left.least if left.most == 0 else 0 for rows, left in gone), sum(rows.most for rows, _ in gone)
    )


def _without(entry: Entry, rows: WrittenRows, versions: Tuple[int, int]) -> WrittenRows:
    """Return how many rows of a commit are left once those of some versions are replaced."""
    (first, last), (a, b) = _span(entry), versions
    if b < first or last < a:
        return rows
    return WrittenRows(0, 0 if a <= first and last <= b else rows.most)


def _span(entry: Entry) -> Tuple[int, int]:
    assert entry.first_version is not None and entry.last_version is not None  # noqa: S101, PT018  # it has versions
    return entry.first_version, entry.last_version


def _key(entry: Entry) -> Tuple[str, int]:
    return entry.interval, entry.epoch


class ReplacedInterval:
    """The rows of a data interval that earlier runs of it have written.

    Args:
        account: Of the table, in the transaction of the batch.
        target: Id of the table there.
        job: The job of the batch.
        batch: One transaction, of a data interval.
        sink: The table.
        since: Version of the stream in the account when the transaction began.
    """

    def __init__(
        self, account: Account, target: str, job: JobSpec, batch: BatchSpec, sink: PostgresSink, since: int
    ) -> None:
        assert batch.interval_versions is not None  # noqa: S101  # a data interval has them
        self._account = account
        self._target = target
        self._job = job
        self._batch = batch
        self._sink = sink
        self._since = since
        self._versions = (batch.interval_versions[0], batch.interval_versions[1])

    def remove(self, connection: Any, columns: Sequence[TargetColumn]) -> Tuple[str, ...]:
        """Delete the rows, and return warnings.

        Args:
            connection: With the transaction.
            columns: The table's columns for those of the batch.

        Raises:
            RefusalError: Rows may be another writer's, or a trigger keeps some; the transaction must end.
        """
        self.check()
        changed = changed_by_delete(connection, self._sink.parts)
        if changed is not None:
            raise RefusalError(
                Reason.SINK_UNSUITABLE,
                f"{self._of_interval()} would be replaced, which removes or changes rows of {changed}, and loads none "
                "of them again. Nothing was written. Make the foreign key NO ACTION DEFERRABLE INITIALLY DEFERRED, or "
                "drop it",
            )
        # rows that a policy hides would stay: an error instead
        connection.execute("SELECT set_config('row_security', 'off', true)")
        name = quoted(next(one.name for one in columns if one.name.lower() == _SOURCE_VERSION))
        table, which = quoted(*self._sink.parts), f"{name} BETWEEN {self._versions[0]} AND {self._versions[1]}"
        removed = int(connection.execute(f"DELETE FROM {table} WHERE {which}").rowcount)
        is_left = connection.execute(f"SELECT 1 FROM {table} WHERE {which} LIMIT 1").fetchone() is not None
        entries = self._account.with_versions(self._batch.uuid, self._target, self._versions)
        # DELETE waits for another interval and does not see its rows: they are neither kept by a trigger nor foreign
        self.check()
        if is_left:
            raise RefusalError(
                Reason.ROWS_DIFFER,
                f"{self._of_interval()} are still in it after DELETE, because a trigger keeps them. Nothing was "
                "written",
            )
        written = held_rows(entries, self._versions)
        if removed > written.most:
            raise RefusalError(
                Reason.SINK_SHARED,
                f"{self._of_interval()}: {removed} rows would be replaced, but the account says that the stream wrote "
                f"{written.describe()} of them, so others are another writer's. Nothing was written. Remove those "
                "rows, or use a separate table for the stream",
            )
        if removed >= written.least:
            return ()
        warning = (
            f"{self._of_interval()}: {removed} rows were replaced, and the account says that the stream wrote "
            f"{written.describe()}: another writer had removed rows, which are loaded again"
        )
        return (warning,)

    def check(self) -> None:
        """Refuse to replace what another stream, or another interval at the same time, has written.

        Raises:
            RefusalError: Some rows may be theirs; the transaction must end.
        """
        account, batch, what = self._account, self._batch, self._batch.describe()
        found = account.of_others(batch.uuid, self._target, self._versions, self._sink.other_streams)
        if found is not None and not self._job.allow_overlap:
            raise RefusalError(
                Reason.SINK_SHARED,
                f"{what} replaces rows by their source version alone, but stream {found[0]!r} has loaded "
                f"{describe_range(*found[1:])} of its source into {self._sink.describe()}, and rows of two streams can "
                "have the same version. Nothing was written. Use a separate table for the stream; if the other one's "
                f"rows have no {_SOURCE_VERSION}, set allow_overlap=True on this stream (`fds`: --allow-overlap)",
            )
        for entry in account.with_versions(batch.uuid, self._target, self._versions, self._since):
            raise RefusalError(
                Reason.SINK_BUSY,
                f"{what}: interval {entry.interval}, which has some of the same versions, was loaded at the same time. "
                "Nothing was written; a retry replaces its rows, too",
                retryable=True,
            )

    def _of_interval(self) -> str:
        rows = f"rows of {describe_range(*self._versions)}"
        return f"{self._batch.describe()}: {self._sink.describe()}: {rows}"
