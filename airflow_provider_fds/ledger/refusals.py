"""The ledger's refusals: each says what was requested, what the ledger says, and the command to run."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from airflow_provider_fds.errors import LedgerError, SinkError, StreamBusyError

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.commit_entries import Blocked
    from airflow_provider_fds.ledger.owner import Owner
    from airflow_provider_fds.ledger.state import Scope, StreamState
    from airflow_provider_fds.ledger.values import SinkBinding


class StreamMovedError(LedgerError):
    """The ledger has moved on since the sender of the command read it; read again and decide anew."""

    retryable: ClassVar[bool] = True


class EpochClosedError(LedgerError):
    """The command belongs to a closed epoch: nothing of it may be planned or committed any longer.

    Attributes:
        epoch: The closed epoch the command belongs to.
        newest_epoch: The stream's current epoch.
    """

    retryable: ClassVar[bool] = True

    def __init__(self, message: str, *, epoch: int, newest_epoch: int, table: str | None = None) -> None:
        super().__init__(message, table=table)
        self.epoch = epoch
        self.newest_epoch = newest_epoch


def refusal(state: StreamState, text: str) -> LedgerError:
    """Return a refusal that names stream and table before ``text``."""
    return LedgerError(f"{_subject(state)}: {text}", table=state.table or None)


def moved(state: StreamState, text: str) -> StreamMovedError:
    """Return the refusal of a command that came too late; ``text`` says what was found."""
    return StreamMovedError(
        f"{_subject(state)}: {text}. Another run was faster; look at the stream again (`fds status {state.name}`), a "
        "retry does so by itself",
        table=state.table or None,
    )


def epoch_closed(state: StreamState, what: str, epoch: int) -> EpochClosedError:
    """Return the refusal of ``what``, which belongs to the closed ``epoch``."""
    request = state.request
    why = f" by a {request.reason} ({request.why})" if request is not None else ""
    return EpochClosedError(
        f"{_subject(state)}: {what} belongs to epoch {epoch}, which was closed{why}; the stream is in epoch "
        f"{state.epoch}, and results of a closed epoch no longer count. A retry works in epoch {state.epoch}; "
        f"`fds history {state.name}` shows who closed it",
        epoch=epoch,
        newest_epoch=state.epoch,
        table=state.table or None,
    )


def not_created(state: StreamState) -> LedgerError:
    """Return the refusal of anything but a creation, for an empty ledger."""
    return refusal(
        state,
        "there is no ledger of this name in staging. The first run of the stream makes one; if the stream had run "
        "before, its staging is another one or was lost: give the right staging, or run `fds recover "
        f"{state.name} --sink URI --table URI`",
    )


def not_opened(state: StreamState, what: str, *, or_else: str = "") -> LedgerError:
    """Return the refusal of ``what`` while the epoch waits to be opened; ``or_else`` names an immediate alternative."""
    why = f" ({state.request.reason}: {state.request.why})" if state.request is not None else ""
    return refusal(
        state,
        f"{what} is not possible, epoch {state.epoch} was requested{why} and is not opened yet. The next run of the "
        f"stream opens it; `fds status {state.name}` shows the request{or_else}",
    )


def retired(state: StreamState, what: str) -> LedgerError:
    """Return the refusal of ``what`` on a stream that has ended."""
    why = state.retired.why if state.retired is not None else ""
    return refusal(
        state, f"{what} is not possible, the stream was retired for good ({why}). Use a stream with another name"
    )


def by_interval(state: StreamState, what: str) -> LedgerError:
    """Return the refusal of ``what`` on a stream that reads data intervals."""
    return refusal(
        state,
        f"{what} is not possible, the stream reads data intervals and has no offset. Clear the runs of the intervals "
        "that are to be loaded again; for a stream with an offset use another name",
    )


def held(state: StreamState, what: str) -> LedgerError:
    """Return the refusal of ``what`` on a paused stream."""
    why = state.held.why if state.held is not None else ""
    return refusal(
        state,
        f"{what} is not possible, the stream is held ({why}). Let it continue with `fds resume {state.name} --why …`",
    )


def quarantined(state: StreamState, what: str) -> LedgerError:
    """Return the refusal of ``what`` on a stream in quarantine."""
    why, version = "", ""
    command = f"fds resume {state.name} --why …"
    if state.quarantined is not None:
        why = state.quarantined.why
        if state.quarantined.version is not None:
            version = f" before version {state.quarantined.version}"
            command = f"fds acknowledge {state.name} --version {state.quarantined.version} --why …` or `{command}"
    return refusal(
        state, f"{what} is not possible, the stream is in quarantine{version} ({why}). Look at it, then run `{command}`"
    )


def blocked(state: StreamState, what: str, found: Blocked) -> LedgerError:
    """Return the refusal of ``what`` while a failed verification waits for a person."""
    if found.interval is None:
        place = f"epoch {found.epoch}"
        way_out = (
            f"`fds accept {state.name} --batch {found.batch_id} --why …` takes the batch as it is in the sink, "
            f"`fds replan {state.name} --why …` plans it anew in a new epoch"
        )
    else:
        place = "the interval"
        way_out = f"`fds accept {state.name} --interval {found.interval} --why …` takes it as it is in the sink"
    return refusal(
        state,
        f"{what} is not possible, batch {found.batch_id} of {place} is blocked: {found.reason} (planned rows: "
        f"{found.rows_planned}, written: {found.rows_written}, sink version {found.sink_version}). Compare sink and "
        f"source; then {way_out}",
    )


def busy(state: StreamState, what: str, scope: Scope, owner: Owner) -> StreamBusyError:
    """Return the refusal of ``what``, because the planned batches belong to ``owner``."""
    ids = [batch.batch_id for batch in scope.planned]
    if len(ids) > 1:
        batches = f"batches {ids[0]} to {ids[-1]} belong"
    else:
        batches = f"batch {ids[0]} belongs" if ids else "it belongs"
    or_else = f", or use `fds adopt {state.name} --why …`" if scope is state else ""
    error = StreamBusyError(
        f"{_subject(state)}: {what} is not possible, {batches} to {owner.describe()}. Wait for it. If it is no longer "
        f"running, the next run takes over{or_else}",
        owner=owner.describe(),
    )
    error.table = state.table or None
    return error


def other_sink(state: StreamState, bound: SinkBinding, wanted: SinkBinding) -> SinkError:
    """Return the refusal of a sink other than the one the stream is bound to."""
    return SinkError(
        f"{_subject(state)}: the stream is bound to {bound.describe()}, and cannot write to {wanted.describe()}: rows "
        "would be missing in one of them. Use the sink it is bound to, a stream with another name for a second sink, "
        f"or `fds rebind {state.name} --why …` to move the stream to the new sink",
        table=state.table or None,
    )


def changed_sink(state: StreamState, text: str) -> SinkError:
    """Return the refusal of a sink that contradicts the ledger; ``text`` says what differs."""
    target = state.sink.describe() if state.sink is not None else "the sink"
    return SinkError(
        f"{_subject(state)}: {target} is not as the ledger knows it: {text}. It was replaced, restored or written to "
        f"under this stream's name; put it back, or start anew with `fds rebind {state.name} --why …`",
        table=state.table or None,
    )


def other_deployment(state: StreamState, deployment: str) -> LedgerError:
    """Return the refusal of a request from another Airflow installation."""
    return refusal(
        state,
        f"the stream belongs to the Airflow installation {state.deployment!r}, this one is {deployment!r}. Two that "
        "work one stream would load rows twice. If this is a copy, use another staging or stream name; if the stream "
        f"has moved here, run `fds transfer {state.name} --deployment {deployment} --why …` (the name is set by "
        "`[fds] deployment`)",
    )


def _subject(state: StreamState) -> str:
    return f"stream {state.name!r} of {state.table}" if state.table else f"stream {state.name!r}"


__all__ = ["EpochClosedError", "StreamMovedError"]
