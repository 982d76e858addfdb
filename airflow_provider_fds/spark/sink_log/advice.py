"""What a person does about a sink that lacks rows or has too many: commands, complete as a message shows them.

Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Optional

from airflow_provider_fds.batch.sink.doubled_rows import remove_and_load
from airflow_provider_fds.batch.transactions import txn_batch_id, txn_epoch

if TYPE_CHECKING:
    from airflow_provider_fds.batch.spec import BatchSpec
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.spark.sink_log.history import History


#: No command moves a stream of data intervals, and no fence can close its intervals in the sink.
_MISSING_INTERVALS = (
    "giving the stream another name, with allow_overlap=True, and clearing the runs of the data intervals that the "
    "sink lacks"
)


class Advice:
    """The commands for one stream.

    Args:
        sink: The sink; what becomes of the rows that it has depends on it.
        stream: The stream.
        is_interval: Whether it reads data intervals, which no command moves.
        is_requested: Whether another epoch is already requested.
    """

    def __init__(self, sink: Sink, stream: str, *, is_interval: bool = False, is_requested: bool = False) -> None:
        self._keeps_rows = sink.needs_keys or not sink.can_remove_rows
        self._replaces = sink.replaces
        self._stream = stream
        self._is_interval = is_interval
        self._is_requested = is_requested

    def rewind(self) -> str:
        """Return the command that loads rows again from a version that the person knows."""
        name = self._stream
        if self._is_interval:
            # an appended interval that is done is not written again
            return "clearing the runs of their data intervals" if self._replaces else _MISSING_INTERVALS
        if self._keeps_rows:
            if self._is_requested:
                return f"running `fds rewind {name} --replace --to N --sink-rows keep --why …`"
            return f"running `fds rewind {name} --to N --sink-rows keep --why …`"
        if self._is_requested:
            return f"running `fds rewind {name} --replace --to N --sink-rows keep|delete|empty --why …`"
        return f"running `fds rewind {name} --to N --sink-rows keep|delete|empty --why …`"

    def from_start(self) -> str:
        """Return the command that loads everything anew."""
        if self._is_interval:
            return "giving the stream another name and clearing the runs of all data intervals"
        if self._keeps_rows:
            return f"running `fds rewind {self._stream} --to start --sink-rows keep --why …`"
        return f"running `fds rewind {self._stream} --to start --sink-rows keep|empty --why …`"

    def replan(self) -> str:
        """Return the command after which the next run checks which planned batches the sink has and continues."""
        if self._is_requested:
            return f"running `fds replan {self._stream} --replace --why …`"
        return f"running `fds replan {self._stream} --why …`"

    def recover(self, sink: Optional[str] = None) -> str:
        """Return how a ledger that is older than the sink, or was lost (``sink``), gets what the sink has."""
        if self._is_interval:
            return "restore the newest copy of the staging folder"
        where = "" if sink is None else f" --sink {shlex.quote(sink)} --table URI"
        return f"rebuild it from the sink with `fds recover {self._stream}{where} --why …`"

    def load_again(self) -> str:
        """Return the command that loads a batch again that the sink had, and that was not committed."""
        return self.rewind() if self._is_interval else self.replan()

    def after(self, transaction: Optional[int], epoch: int) -> str:
        """Return the command that loads the batches that a sink lacks.

        Args:
            transaction: The stream's newest transaction in the sink, or ``None`` if it has no transaction there.
            epoch: The open epoch.
        """
        if self._is_interval:
            return _MISSING_INTERVALS
        if transaction is None or txn_epoch(transaction) != epoch:
            # batch ids start anew in each epoch
            return self.from_start()
        return self._to_batch(str(txn_batch_id(transaction) + 1))

    def from_first_missing(self) -> str:
        """Return the command that loads again from a batch that the person must find."""
        return _MISSING_INTERVALS if self._is_interval else self._to_batch("N")

    def out_of_turn(self, history: History, batch: BatchSpec, newest: Optional[int]) -> str:
        """Return why it is not the batch's turn, and what to do.

        Args:
            history: The sink's history.
            batch: The batch.
            newest: The stream's newest transaction in the sink, or ``None`` if it has no transaction there.
        """
        has_it = (c for c in history.commits if newest is not None and c.transaction_of(batch.txn_app_id) == newest)
        if (last := next(has_it, None)) is not None and last.metadata is None:
            empty = f"running `fds rewind {self._stream} --to start --sink-rows empty --why …`"
            again = self.from_start() if self._is_interval else empty
            return (
                f"version {last.version} is a statement of another writer under a transaction of the stream, and it is "
                f"unknown which rows it removed. Load everything again by {again}"
            )
        if batch.prev_txn_version is not None and (newest or 0) < batch.prev_txn_version:
            again = self.after(newest, batch.epoch)
            return f"the sink lacks committed batches, because it was restored from a copy. Load them again by {again}"
        if last is None and batch.interval is None and newest is not None and newest >= batch.txn_version:
            is_all = self._keeps_rows or batch.begins_in_snapshot
            return (
                "the sink has this batch or a later one, although none was committed, and log cleanup removed the "
                "commit from the sink's log, so it is unknown which rows it has. Have the rows removed and read "
                f"again by {remove_and_load(self._stream, None if is_all else batch.first_version)}"
            )
        gone_on = "another run has continued, so there is nothing to do"
        if batch.interval is not None:
            return (
                f"{gone_on}. If there is no such run, the ledger is older than the sink: restore the newest copy "
                "of the staging folder, or give the stream another name and do not run the intervals that the "
                "sink has"
            )
        return f"{gone_on}. If there is no such run, the ledger is older than the sink: {self.recover('URI')}"

    def _to_batch(self, batch: str) -> str:
        if self._keeps_rows:
            return f"running `fds rewind {self._stream} --to batch:{batch} --sink-rows keep --why …`"
        return f"running `fds rewind {self._stream} --to batch:{batch} --sink-rows keep|delete|empty --why …`"
