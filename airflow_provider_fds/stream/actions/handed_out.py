"""Planned batches that were handed to user code, which FDS cannot stop: what is known of them before an epoch ends."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.sizes import format_batches
from airflow_provider_fds.stream.actions.function_writes import FunctionWrites
from airflow_provider_fds.stream.attempt.batch_versions import describe_versions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.ledger.owner import Owner
    from airflow_provider_fds.ledger.staging.log import Ledger
    from airflow_provider_fds.ledger.values import PlannedBatch


class HandedOut:
    """The uncommitted batches of a user job or a user's function.

    Args:
        ledger: The stream's ledger, read to its head.
        open_table: Opens the tables of a function; ``None`` if they cannot be reached from here.
        owner_is_running: Whether the owner of planned batches is running.
    """

    def __init__(
        self, ledger: Ledger, open_table: Callable[[str], Storage] | None, owner_is_running: Callable[[Owner], bool]
    ) -> None:
        state = ledger.state
        self._ledger = ledger
        self._state = state
        self._open_table = open_table
        self._owner_is_running = owner_is_running
        # also the sink of an epoch that a request has closed and that is requested again
        self._sink = state.sink or state.fence_sink
        self.is_function = self._sink is not None and self._sink.is_function

    @cached_property
    def writes(self) -> FunctionWrites:
        """The writes of the function."""
        return FunctionWrites(self._ledger, self._open_table)

    @property
    def _batches(self) -> tuple[PlannedBatch, ...]:
        if self._state.closed is None:
            return self._state.planned
        # only a function's tables can be checked again
        return self._state.closed.planned if self.is_function else ()

    def check(self, landed: bool | Mapping[str, bool] | None, *, needs_word: bool) -> None:
        """Refuse to go on while user code may still write, or if a person must say what became of a batch.

        Args:
            landed: The person's answer, or ``None`` without an answer.
            needs_word: Whether an answer is needed.

        Raises:
            ConfigurationError: Says which; or there is no batch that the answer could be about.
        """
        name, sink = self._state.name, self._sink
        if sink is None or not sink.is_user_defined or not self._batches:
            if landed is not None:
                raise ConfigurationError(
                    f"stream {name!r}: --landed is only for a planned, uncommitted batch of a user job; "
                    "the stream has no such batch",
                    reason=Reason.ACTION_REFUSED,
                )
            return
        owner = self._state.owner
        if owner is not None and self._owner_is_running(owner):
            raise ConfigurationError(
                f"stream {name!r}: its planned batch belongs to {owner.describe()}, which appears to be running, "
                "so its job may still write. Wait for it or stop it. If you are sure that it is gone, use --force",
                reason=Reason.ACTION_REFUSED,
            )
        if needs_word and landed is None:
            batch = self._batches[0]
            raise ConfigurationError(
                f"stream {name!r}: batch {batch.batch_id} ({describe_versions([batch], self._state.snapshot)}) was "
                f"handed to {sink.describe()}, and only you can know whether its rows are in your tables. Answer with "
                "--landed yes or --landed no",
                reason=Reason.ACTION_REFUSED,
            )

    def end_of_landed(self, landed: bool | Mapping[str, bool] | None) -> str | None:
        """Return where a new epoch continues after what has landed, or ``None`` for the committed position.

        Args:
            landed: The person's answer, or ``None`` without an answer.

        Raises:
            ConfigurationError: As :meth:`check` and :meth:`FunctionWrites.end_of_landed`.
        """
        self.check(landed, needs_word=not self.is_function)
        if self.is_function:
            return self.writes.end_of_landed(landed)
        return self._state.planned[0].end if landed and self._state.planned else None

    def notes(self, reason: str, to: Mapping[str, Any] | None) -> tuple[str, ...]:
        """Return what a request for a new epoch means for the tables of a function.

        Args:
            reason: The kind of request.
            to: Where the new epoch starts.
        """
        count = len(self._batches)
        notes: tuple[str, ...] = ()
        if reason in ("rewind", "reset"):
            if count:
                given_up = f"Discards {format_batches(count)}. If one is written to a named table after"
                notes = (f"{given_up} this request, the next run reports it and does not begin the epoch.",)
            notes = (*notes, *self.writes.repeated_notes())
        elif count:
            notes = (self.writes.loaded_note((to or {}).get("offset")),)
        return (*notes, *self._open_notes())

    def _open_notes(self) -> tuple[str, ...]:
        """Return a note on writes without a known table, which FDS cannot close and a driver may still write."""
        sink, names = self._sink, self.writes.names
        if sink is None or not self._batches:
            return ()
        open_ones = [name for name in names if name not in sink.tables]
        if not open_ones and names:
            return ()
        which = " and ".join(map(repr, open_ones)) or "the function"
        note = (
            f"A driver of an ended run may still write {which} after this. FDS cannot prevent it, because it does not "
            "know the tables. Make sure that no Spark application of the stream is still running, or name the "
            "tables: ForeachBatchSink(…, writes={name: table})."
        )
        return (note,)
