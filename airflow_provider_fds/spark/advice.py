"""The commands with which a person loads missing rows again, complete as they appear in a message.

Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Optional

from airflow_provider_fds.batch.spec import txn_batch_id, txn_epoch

if TYPE_CHECKING:
    from airflow_provider_fds.sinks import DeltaSink


#: No command moves a stream of data intervals, and no fence can close its intervals in the sink.
_MISSING_INTERVALS = (
    "giving the stream another name, with allow_overlap=True if its sink appends, "
    "and clearing the runs of the data intervals that the sink lacks"
)


class Advice:
    """The commands for one stream.

    Args:
        sink: The sink; a merge requires a decision about the rows it has.
        stream: The stream.
        is_interval: Whether it reads data intervals, which no command moves.
        is_requested: Whether another epoch is already requested.
    """

    def __init__(self, sink: DeltaSink, stream: str, *, is_interval: bool = False, is_requested: bool = False) -> None:
        self._merges = sink.needs_keys
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
        if self._merges:
            if self._is_requested:
                return f"running `fds rewind {name} --replace --to-version N --sink keep --why …`"
            return f"running `fds rewind {name} --to-version N --sink keep --why …`"
        if self._is_requested:
            return f"running `fds rewind {name} --replace --to-version N --why …`"
        return f"running `fds rewind {name} --to-version N --why …`"

    def reset(self) -> str:
        """Return the command that loads everything anew."""
        if self._is_interval:
            return "giving the stream another name and clearing the runs of all data intervals"
        if self._merges:
            return f"running `fds reset {self._stream} --sink keep --why …`"
        return f"running `fds reset {self._stream} --why …`"

    def remove_and_load(self, version: int) -> str:
        """Return the command that removes rows FDS cannot identify and loads them again, from ``version`` on."""
        reset = f"running `fds reset {self._stream} --sink empty --force-sink --why …`"
        if self._merges:
            # a merge keeps no row that it replaced
            return reset
        rewind = f"`fds rewind {self._stream} --to-version {version} --delete --force-sink --why …`"
        return f"{reset}, or, with provenance, {rewind}"

    def replan(self) -> str:
        """Return the command after which the next run checks which planned batches the sink has and continues."""
        return f"running `fds replan {self._stream} --why …`"

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
            return self.reset()
        return self._to_batch(str(txn_batch_id(transaction) + 1))

    def from_first_missing(self) -> str:
        """Return the command that loads again from a batch that the person must find."""
        return _MISSING_INTERVALS if self._is_interval else self._to_batch("N")

    def _to_batch(self, batch: str) -> str:
        if self._merges:
            return f"running `fds rewind {self._stream} --to-batch {batch} --sink keep --why …`"
        return f"running `fds rewind {self._stream} --to-batch {batch} --why …`"


__all__: List[str] = ["Advice"]
