"""What a person types to load rows again that a sink lacks: commands that work as they stand in a message.

Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Optional

from airflow_provider_fds.batch.spec import txn_batch_id, txn_epoch

if TYPE_CHECKING:
    from airflow_provider_fds.sinks import DeltaSink


#: No command moves a stream of data intervals, and nothing can close its intervals in the sink as a fence does.
_MISSING_INTERVALS = "giving the stream another name and clearing the runs of the data intervals that the sink lacks"


class Advice:
    """The commands of one stream.

    Args:
        sink: A merge has to be told what becomes of the rows that it has.
        stream: The stream.
        is_interval: Whether it reads data intervals, which no command moves.
        is_requested: Whether another epoch is requested already.
    """

    def __init__(self, sink: DeltaSink, stream: str, *, is_interval: bool = False, is_requested: bool = False) -> None:
        self._merges = sink.needs_keys
        self._replaces = sink.replaces
        self._stream = stream
        self._is_interval = is_interval
        self._is_requested = is_requested

    def rewind(self) -> str:
        """Return what loads rows again from a version on, which the person knows."""
        name = self._stream
        if self._is_interval:
            # an appended interval that is done is not written again
            return "clearing the runs of their data intervals" if self._replaces else _MISSING_INTERVALS
        if self._merges:
            if self._is_requested:
                return f"`fds rewind {name} --replace --to-version N --sink keep --why …`"
            return f"`fds rewind {name} --to-version N --sink keep --why …`"
        if self._is_requested:
            return f"`fds rewind {name} --replace --to-version N --why …`"
        return f"`fds rewind {name} --to-version N --why …`"

    def reset(self) -> str:
        """Return what loads everything anew."""
        if self._is_interval:
            return "giving the stream another name and clearing the runs of all data intervals"
        if self._merges:
            return f"`fds reset {self._stream} --sink keep --why …`"
        return f"`fds reset {self._stream} --why …`"

    def remove_and_load(self, version: int) -> str:
        """Return what removes rows that nobody can tell and loads them again, those of ``version`` and later."""
        reset = f"`fds reset {self._stream} --sink empty --force-sink --why …`"
        if self._merges:
            # a merge keeps no row that it replaced
            return reset
        rewind = f"`fds rewind {self._stream} --to-version {version} --delete --force-sink --why …`"
        return f"{reset}, or, with provenance, {rewind}"

    def replan(self) -> str:
        """Return what has the next run look which planned batches the sink has, and go on after them."""
        return f"`fds replan {self._stream} --why …`"

    def after(self, transaction: Optional[int], epoch: int) -> str:
        """Return what loads again the batches that a sink lacks.

        Args:
            transaction: The newest one of the stream in the sink, ``None`` if there is none.
            epoch: The one that is open.
        """
        if self._is_interval:
            return _MISSING_INTERVALS
        if transaction is None or txn_epoch(transaction) != epoch:
            # batches are counted anew in each epoch
            return self.reset()
        return self._to_batch(str(txn_batch_id(transaction) + 1))

    def from_first_missing(self) -> str:
        """Return what loads again from a batch on that the person has to find."""
        return _MISSING_INTERVALS if self._is_interval else self._to_batch("N")

    def _to_batch(self, batch: str) -> str:
        if self._merges:
            return f"`fds rewind {self._stream} --to-batch {batch} --sink keep --why …`"
        return f"`fds rewind {self._stream} --to-batch {batch} --why …`"


__all__: List[str] = ["Advice"]
