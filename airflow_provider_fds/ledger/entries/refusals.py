"""The ledger's refusals: each says what was requested, what the ledger says, and the command to run."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, ClassVar, Unpack

from airflow_provider_fds.batch.version_ranges import describe_range
from airflow_provider_fds.errors import Facts, LedgerError, SinkError, StreamBusyError
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.facts import BlockedFacts
    from airflow_provider_fds.ledger.owner import Owner
    from airflow_provider_fds.ledger.state import ScopeRecord, StreamState
    from airflow_provider_fds.ledger.values import PlannedBatch, SinkBinding


class StreamMovedError(LedgerError):
    """The ledger has moved on since the sender of the command read it; read again and decide anew."""

    retryable: ClassVar[bool] = True
    reason = Reason.STREAM_MOVED


class EpochClosedError(LedgerError):
    """The command belongs to a closed epoch: nothing of it may be planned or committed any longer.

    Attributes:
        epoch: The closed epoch the command belongs to.
        newest_epoch: The stream's current epoch.
    """

    retryable: ClassVar[bool] = True
    reason = Reason.EPOCH_CLOSED

    def __init__(self, message: str, *, epoch: int, newest_epoch: int, **facts: Unpack[Facts]) -> None:
        super().__init__(message, **facts)
        self.epoch = epoch
        self.newest_epoch = newest_epoch


def refusal(state: StreamState, text: str, *, reason: Reason | None = None) -> LedgerError:
    """Return a refusal that names stream and table before ``text``."""
    return LedgerError(f"{_subject(state)}: {text}", table=state.table or None, reason=reason)


def moved(state: StreamState, text: str) -> StreamMovedError:
    """Return the refusal of a command that came too late; ``text`` says what was found."""
    return StreamMovedError(
        f"{_subject(state)}: {text}. Another run changed the stream first. A retry reads the stream again; `fds status "
        f"{state.name}` shows its state",
        table=state.table or None,
    )


def epoch_closed(state: StreamState, what: str, epoch: int) -> EpochClosedError:
    """Return the refusal of ``what``, which belongs to the closed ``epoch``."""
    request = state.request
    why = f" by a {request.asked} ({request.why})" if request is not None else ""
    return EpochClosedError(
        f"{_subject(state)}: cannot {what}: it belongs to epoch {epoch}, which was closed{why}; the stream is in "
        f"epoch {state.epoch}, and results of a closed epoch no longer count. A retry works in epoch "
        f"{state.epoch}; `fds history {state.name}` shows who closed it",
        epoch=epoch,
        newest_epoch=state.epoch,
        table=state.table or None,
    )


def on_its_way(state: StreamState, batch: PlannedBatch, count: int) -> LedgerError:
    """Return the refusal to retire a stream with ``count`` planned batches, of which ``batch`` is the first."""
    more = "" if count == 1 else f" and {count - 1} more"
    return refusal(
        state,
        f"batch {batch.batch_id} ({describe_range(batch.first_version, batch.last_version)}){more} is planned and may "
        "be on its way into the sink. If the stream ended now, it could land beside the rows of a successor. Let a run "
        f"finish it; if none can, use `fds replan {state.name} --why …` and let a run close the epoch in the sink. "
        "Then retire the stream",
        reason=Reason.ACTION_REFUSED,
    )


def interval_on_its_way(state: StreamState, interval: str) -> LedgerError:
    """Return the refusal to retire a stream with a planned data interval."""
    return refusal(
        state,
        f"the data interval {interval} is planned and may be on its way into the sink. If the stream ended now, it "
        "could land beside the rows of a successor. Clear the task of its run, which finishes it, then retire the "
        "stream",
        reason=Reason.ACTION_REFUSED,
    )


def not_created(state: StreamState) -> LedgerError:
    """Return the refusal of anything but a creation, for an empty ledger."""
    return refusal(
        state,
        "there is no ledger of this name in staging. The first run of the stream creates it. If the stream has "
        "run before, its staging folder is another one or was lost: set the right staging, or run `fds recover "
        f"{state.name} --sink URI --table URI`",
        reason=Reason.LEDGER_LOST,
    )


def not_opened(state: StreamState, what: str, *, or_else: str = "") -> LedgerError:
    """Return the refusal of ``what`` while the epoch waits to be opened; ``or_else`` names an immediate alternative."""
    why = f" ({state.request.asked}: {state.request.why})" if state.request is not None else ""
    return refusal(
        state,
        f"cannot {what}: epoch {state.epoch} was requested{why} and is not opened yet. The next run of the stream "
        f"opens it; `fds status {state.name}` shows the request{or_else}",
        reason=Reason.EPOCH_NOT_OPENED,
    )


def retired(state: StreamState, what: str) -> LedgerError:
    """Return the refusal of ``what`` on a stream that has ended."""
    why = state.retired.why if state.retired is not None else ""
    return refusal(
        state,
        f"cannot {what}: the stream was retired for good ({why}). Use a stream with another name",
        reason=Reason.STREAM_RETIRED,
    )


def by_interval(state: StreamState, what: str) -> LedgerError:
    """Return the refusal of ``what`` on a stream that reads data intervals."""
    return refusal(
        state,
        f"cannot {what}: the stream reads data intervals and has no offset. To load intervals again, clear their "
        "runs; for a stream with an offset, use another name",
    )


def held(state: StreamState, what: str) -> LedgerError:
    """Return the refusal of ``what`` on a paused stream."""
    why = state.held.why if state.held is not None else ""
    return refusal(
        state,
        f"cannot {what}: the stream is held ({why}). Let it continue with `fds resume {state.name} --why …`",
    )


def quarantined(state: StreamState, what: str) -> LedgerError:
    """Return the refusal of ``what`` on a stream in quarantine."""
    why, version = "", ""
    command = f"fds resume {state.name} --why …"
    if state.quarantined is not None:
        why = state.quarantined.why
        if state.quarantined.version is not None:
            version = f" before version {state.quarantined.version}"
        for way, argument, value in reversed(state.quarantined.decisions):
            command = f"fds {way} {state.name} --{argument} {value} --why …` or `{command}"
    return refusal(
        state, f"cannot {what}: the stream is in quarantine{version} ({why}). Check the version, then run `{command}`"
    )


def blocked(state: StreamState, what: str, found: BlockedFacts) -> LedgerError:
    """Return the refusal of ``what`` while a failed verification waits for a person."""
    if found.interval is None:
        place = f"epoch {found.epoch}"
        way_out = (
            f"`fds accept {state.name} --batch {found.batch_id} --why …` accepts the batch as it is in the sink, "
            f"or `fds replan {state.name} --why …` plans it again in a new epoch"
        )
    else:
        place = "the interval"
        way_out = f"`fds accept {state.name} --interval {found.interval} --why …` accepts it as it is in the sink"
    return refusal(
        state,
        f"cannot {what}: batch {found.batch_id} of {place} is blocked: {found.reason} (planned rows: "
        f"{found.rows_planned}, written: {found.rows_written}, sink version {found.sink_version}). Compare the "
        f"sink with the source; then {way_out}",
        reason=Reason.BATCH_BLOCKED,
    )


def busy(state: StreamState, what: str, scope: ScopeRecord, owner: Owner) -> StreamBusyError:
    """Return the refusal of ``what``, because the planned batches belong to ``owner``."""
    ids = [batch.batch_id for batch in scope.planned]
    if len(ids) > 1:
        batches = f"batches {ids[0]} to {ids[-1]} belong"
    else:
        batches = f"batch {ids[0]} belongs" if ids else "it belongs"
    or_else = f", or use `fds unlock {state.name} --why …`" if scope is state else ""
    return StreamBusyError(
        f"{_subject(state)}: cannot {what}: {batches} to {owner.describe()}. Wait for it to end. If it is no "
        f"longer running, the next run takes over{or_else}",
        owner=owner.describe(),
        table=state.table or None,
    )


def other_sink(state: StreamState, bound: SinkBinding, wanted: SinkBinding) -> SinkError:
    """Return the refusal of a sink other than the one the stream is bound to."""
    return SinkError(
        f"{_subject(state)}: the stream is bound to {bound.describe()} and cannot write to {wanted.describe()}: "
        "rows would be missing in one of them. Use the sink that it is bound to, use a stream with another name "
        f"for a second sink, or run `fds replan {state.name} --new-sink --why …` to move the stream to the new sink",
        table=state.table or None,
    )


def changed_sink(state: StreamState, text: str) -> SinkError:
    """Return the refusal of a sink that contradicts the ledger; ``text`` says what differs."""
    target = state.sink.describe() if state.sink is not None else "the sink"
    return SinkError(
        f"{_subject(state)}: {target} does not match the ledger: {text}. It was replaced, restored or written to "
        f"under this stream's name. Restore it, or start again with `fds replan {state.name} --new-sink --why …`",
        table=state.table or None,
        reason=Reason.SINK_MISMATCH,
    )


def other_deployment(state: StreamState, deployment: str) -> LedgerError:
    """Return the refusal of a request from another Airflow installation."""
    return refusal(
        state,
        f"the stream belongs to the Airflow installation {state.deployment!r}, but this one is {deployment!r}. To look "
        f"at it, use `fds status {state.name}` or fds plan with --dry-run; if only the name has changed, set "
        "`[fds] deployment` back (on the command line, give --deployment); if this one is a copy, use "
        "another staging folder or stream name. Only if the "
        f"stream has moved for good, run `fds transfer {state.name} --deployment {shlex.quote(deployment)} --why …`: "
        f"{state.deployment!r} then loads nothing more",
    )


def _subject(state: StreamState) -> str:
    return f"stream {state.name!r} of {state.table}" if state.table else f"stream {state.name!r}"
