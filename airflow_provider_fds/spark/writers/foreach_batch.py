"""The ``batch`` argument of a user function. Standard library only, Python 3.9 syntax."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Optional, Sequence, Tuple

from airflow_provider_fds.batch.sink.commit_metadata import write_metadata
from airflow_provider_fds.batch.transactions import txn_app_id
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.spark.runtime.failures import RefusalError

if TYPE_CHECKING:
    from airflow_provider_fds.batch.spec import BatchSpec


class ForeachBatch:
    """One batch, as passed to ``function(df, batch)`` of a :class:`~airflow_provider_fds.sinks.ForeachBatchSink`.

    Attributes:
        stream: Name of the stream.
        epoch: Epoch of the stream; ``batch_id`` counts from 0 in each.
        batch_id: Number of the batch.
        start: Where the batch starts (exclusive), Delta's streaming offset as JSON.
        end: Where it ends (inclusive).
        first_version: First version of the source with rows in the batch (inclusive).
        last_version: Last version (inclusive).
        num_rows: Number of rows according to the source's log statistics, or ``None`` if a file has no statistics or
            the stream has ``where``.
    """

    def __init__(self, spec: BatchSpec, writes: Sequence[str]) -> None:
        self.stream = spec.stream
        self.epoch = spec.epoch
        self.batch_id = spec.batch_id
        self.start = spec.start
        self.end = spec.end
        self.first_version = spec.first_version
        self.last_version = spec.last_version
        self.num_rows: Optional[int] = spec.num_rows
        self._spec = spec
        self._writes = tuple(writes)
        self._asked: List[str] = []

    @property
    def asked(self) -> Tuple[str, ...]:
        """Names of the writes whose options the function has requested."""
        return tuple(self._asked)

    def txn_options(self, write: str) -> Dict[str, str]:
        """Return the write options with which Delta accepts this write of the batch once: ``txnAppId, txnVersion``.

        They include ``userMetadata``, which records in the table's log the batch and stream of a commit. Use them with
        ``save``, ``saveAsTable`` and ``writeTo(…).append()``; ``insertInto`` without ``format("delta")`` ignores them.

        Args:
            write: One of the names in ``writes`` of the sink.

        Raises:
            RefusalError: The name is not declared, or was used for another write of this batch: Delta would silently
                skip a second write to the same table.
        """
        if write not in self._writes:
            declared = ", ".join(map(repr, self._writes)) or "none"
            raise RefusalError(
                Reason.USER_FUNCTION_FAILED,
                f"txn_options({write!r}): the sink declares {declared}; name every write to a Delta table: "
                f"ForeachBatchSink(…, writes=[{write!r}])",
            )
        if write in self._asked:
            raise RefusalError(
                Reason.USER_FUNCTION_FAILED,
                f"txn_options({write!r}) was called twice in one batch. If two writes to a table have the same "
                "options, Delta silently skips the second: give each write its own name in writes=[…]",
            )
        self._asked.append(write)
        return {
            "txnAppId": txn_app_id(self._spec.uuid, write=write),
            "txnVersion": str(self._spec.txn_version),
            "userMetadata": write_metadata(self._spec, write),
        }

    def __repr__(self) -> str:
        return f"<batch {self.batch_id} of epoch {self.epoch} of stream {self.stream!r}>"
