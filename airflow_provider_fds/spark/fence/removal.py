"""What a fence removes from the sink, and when it must not: only rows that the stream itself loads again.

Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Set

from airflow_provider_fds.batch.sink.shared_sink import why_shared
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sinks.constants import PROVENANCE
from airflow_provider_fds.sinks.merge import VALIDITY
from airflow_provider_fds.spark.runtime.failures import RefusalError
from airflow_provider_fds.spark.sink_log.history import quoted, read_properties

if TYPE_CHECKING:
    from airflow_provider_fds.batch.spec import FenceSpec
    from airflow_provider_fds.sinks import DeltaSink
    from airflow_provider_fds.spark.sink_log.history import History

#: What lets a removal take rows of other writers too. The request that was refused is pending, so another replaces it.
FORCE = (
    "If their rows may be removed too, repeat the request with --replace --force-sink (operator: replace=True, "
    "force_sink=True)"
)

_SOURCE_VERSION = PROVENANCE["_commit_version"]


class Removal:
    """The removal that a fence is asked for.

    Args:
        spark: The session.
        fence: With ``removes``.
        sink: As declared by the run.
        path: Its location.
    """

    def __init__(self, spark: Any, fence: FenceSpec, sink: DeltaSink, path: str) -> None:
        self._spark = spark
        self._fence = fence
        self._sink = sink
        self._path = path

    def check(self, history: History) -> None:
        """Refuse the removal unless it takes exactly the rows that are read again.

        Args:
            history: All commits of the sink that its log still has.

        Raises:
            RefusalError: Nothing was removed.
        """
        self._check_append_only()
        if not self._fence.is_forced:
            self._check_others(history)
        names = self._names()
        if self._fence.removes == "rows":
            self._check_provenance(names)
        elif self._sink.keeps_history and not {name.lower() for name in VALIDITY} <= names:
            raise RefusalError(
                Reason.SINK_SCHEMA_MISMATCH,
                f"the sink {self._path} lacks the columns {', '.join(VALIDITY)}, where scd=2 closes rows, so "
                f"nothing was removed. {self._instead()}",
            )

    def statement(self) -> str:
        """Return the statement that removes the rows."""
        table = quoted(self._path)
        if self._fence.removes == "rows":
            return f"DELETE FROM {table} WHERE {_SOURCE_VERSION} >= {self._fence.from_version}"
        if not self._sink.keeps_history:
            return f"DELETE FROM {table}"
        at = self._fence.closed_at_ms
        until = "current_timestamp()" if at is None else f"timestamp_millis({at})"
        valid_from, valid_to, is_current = VALIDITY
        # a row cannot end before it began
        return (
            f"UPDATE {table} SET {valid_to} = greatest({valid_from}, {until}), {is_current} = false WHERE {is_current}"
        )

    def _names(self) -> Set[str]:
        return {name.lower() for name in self._spark.read.format("delta").load(self._path).columns}

    def _check_append_only(self) -> None:
        if read_properties(self._spark, self._path).get("delta.appendOnly", "false").lower() == "true":
            raise RefusalError(
                Reason.SINK_APPEND_ONLY,
                f"the sink {self._path} has delta.appendOnly=true, so no row can be removed from it; nothing was "
                f"removed. Unset the property, or choose another way. {self._instead()}",
            )

    def _check_others(self, history: History) -> None:
        name = self._fence.stream
        why = why_shared(history.commits, history.oldest_version, path=self._path, stream=name, uuid=self._fence.uuid)
        if why is not None:
            raise RefusalError(Reason.SINK_SHARED, f"{why}; nothing was removed. {FORCE}. {self._instead()}")

    def _check_provenance(self, names: Set[str]) -> None:
        if _SOURCE_VERSION not in names:
            raise RefusalError(
                Reason.SINK_SCHEMA_MISMATCH,
                f"the sink {self._path} has no column {_SOURCE_VERSION}, so it is unknown which rows are read "
                f"again; nothing was removed. {self._instead()}",
            )
        if self._fence.is_forced:
            # rows without provenance belong to other writers
            return
        table = self._spark.read.format("delta").load(self._path)
        if table.where(f"{_SOURCE_VERSION} IS NULL").select(_SOURCE_VERSION).limit(1).collect():
            raise RefusalError(
                Reason.SINK_SCHEMA_MISMATCH,
                f"the sink {self._path} has rows with {_SOURCE_VERSION} NULL, written without provenance, so it "
                f"is unknown which rows are read again; nothing was removed. {self._instead()}",
            )

    def _instead(self) -> str:
        """Return what to do instead of the removal."""
        name = self._fence.stream
        if self._fence.removes == "rows":
            return f"Remove the rows yourself: `fds rewind {name} --replace --to N --sink-rows keep --why …`"
        return f"To leave the sink as it is, use `fds rewind {name} --to start --replace --sink-rows keep --why …`"
