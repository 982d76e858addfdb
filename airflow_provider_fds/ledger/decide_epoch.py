"""Decisions on a stream and its epochs: creating, opening, binding to a sink, closing, and people's words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.batch.spec import fence_version
from airflow_provider_fds.ledger import refusals
from airflow_provider_fds.ledger.actions import (
    Acknowledged,
    Bound,
    Created,
    Ended,
    Held,
    Opened,
    Quarantined,
    Requested,
    Resumed,
    Retired,
    Shown,
    Transferred,
)
from airflow_provider_fds.ledger.commands import (
    Acknowledge,
    Bind,
    Create,
    End,
    Hold,
    Open,
    Quarantine,
    Request,
    Resume,
    Retire,
    Show,
    Transfer,
)
from airflow_provider_fds.ledger.conditions import check_deployment, check_epoch, check_open, check_table_id, offset_of
from airflow_provider_fds.source.offset import Offset

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.actions import Action
    from airflow_provider_fds.ledger.state import StreamState


def decide_create(state: StreamState, command: Create) -> Action | None:
    """Create the stream, if there is none of the name; one of the same table is the same stream."""
    if state.phase == "empty":
        return Created(
            uuid=command.uuid,
            name=command.name,
            table=command.table,
            deployment=command.deployment,
            recovered=command.recovered,
        )
    if state.retired is not None:
        raise refusals.retired(state, "creating it again")
    check_deployment(state, command.deployment)
    if state.table != command.table:
        raise refusals.refusal(
            state,
            f"the name is taken: the stream reads {state.table}, not {command.table}. One stream reads one table; use "
            "another name, or write the table's URI as it was",
        )
    return None


def decide_open(state: StreamState, command: Open) -> Action | None:
    """Open the requested epoch, once the epochs before it are closed in the sink."""
    check_epoch(state, command.epoch, "opening it")
    if state.phase == "open":
        return None
    start = offset_of(state, command.start, "the start")
    if start.table_id != command.table_id:
        raise refusals.refusal(
            state, f"the start {command.start} belongs to table id {start.table_id}, the table has {command.table_id}"
        )
    fence = command.fence
    if state.fence_sink is not None and state.fence_sink.is_fenced:
        expected = fence_version(state.epoch)
        is_done = fence.status == "done" and bool(fence.versions) and set(fence.versions.values()) == {expected}
        if not is_done and fence.status != "sink_missing":
            raise refusals.refusal(
                state,
                f"epoch {state.epoch} cannot be opened before the epochs before it are closed in "
                f"{state.fence_sink.words()} by a transaction with version {expected} (found: {fence.status}, "
                f"{fence.versions}). The next run of the stream writes it",
            )
        wanted = None if state.request is None else state.request.removal
        if is_done and fence.removal != wanted:
            raise refusals.refusal(
                state,
                f"epoch {state.epoch} cannot be opened: its request asks for {wanted} to be removed from the sink, and "
                f"the fence removed {fence.removal}. Make the request again with --replace",
            )
    return Opened(
        epoch=command.epoch,
        start=command.start,
        table_id=command.table_id,
        snapshot=command.snapshot,
        fence=fence,
        landed=command.landed,
        last_commit_sha256=command.last_commit_sha256,
        meaning_digest=command.meaning_digest,
        continues=command.continues,
    )


def decide_bind(state: StreamState, command: Bind) -> Action | None:
    """Bind the stream to its sink, if it is bound to none."""
    if not command.by_interval:
        check_open(state, command.epoch, "binding a sink")
    if state.sink is None or command.sink.adds_writes_to(state.sink):
        return Bound(epoch=command.epoch, sink=command.sink, table_id=command.table_id)
    if state.sink != command.sink:
        raise refusals.other_sink(state, state.sink, command.sink)
    check_table_id(state, command.table_id)
    return None


def decide_end(state: StreamState, command: End) -> Action | None:
    """Write down which version the time is that the stream's options have as its end."""
    check_open(state, command.epoch, "recording the end of the stream")
    if state.ended is not None and state.ended.instant == command.instant:
        return None
    return Ended(epoch=command.epoch, instant=command.instant, version=command.version)


def decide_request(state: StreamState, command: Request) -> Action | None:
    """Close the epoch, unless a request is open already."""
    if command.epoch is not None and command.epoch != state.epoch:
        if command.is_automatic and command.epoch < state.epoch:
            return None
        check_epoch(state, command.epoch, f"the {command.reason}")
    if state.phase == "requested":
        if command.is_automatic and state.request is not None:
            return None
        if not command.replaces or state.closed is None:
            or_else = ", `--replace` makes this one in its place" if state.closed is not None else ""
            raise refusals.not_opened(state, f"another {command.reason}", or_else=or_else)
    _check_seen(state, command)
    _check_removal(state, command)
    return Requested(
        epoch=max(state.epoch, command.after) + 1,
        reason=command.reason,
        why=command.why,
        position=state.position if state.closed is None else state.closed.position,
        to=command.to,
        is_automatic=command.is_automatic,
        table_versions=command.table_versions,
        seen=command.seen,
        removal=command.removal,
    )


def decide_show(state: StreamState, command: Show) -> Action | None:
    """Record the batches that a run showed instead of opening the requested epoch, unless all of them are recorded."""
    check_epoch(state, command.epoch, "showing what is in the sink")
    if state.phase != "requested":
        raise refusals.moved(state, f"epoch {state.epoch} is open already")
    new = tuple(batch for batch in command.batches if batch not in state.shown)
    return Shown(epoch=command.epoch, batches=new) if new else None


def _check_seen(state: StreamState, command: Request) -> None:
    """Refuse a request that says that a person was shown what no run has shown."""
    unknown = [batch for batch in command.seen if batch not in state.shown]
    if unknown:
        raise refusals.moved(
            state, f"the {command.reason} refers to batches in the sink that no run has shown: {unknown}"
        )


def _check_removal(state: StreamState, command: Request) -> None:
    """Refuse to remove rows where the ledger does not know the table, or where not exactly they are read again."""
    if command.removal is None:
        return
    if command.reason not in ("rewind", "reset"):
        raise refusals.refusal(state, f"a {command.reason} cannot remove rows from the sink")
    if state.sink is None or state.sink.is_users_own:
        bound = "is bound to no sink" if state.sink is None else f"is bound to {state.sink.words()}"
        raise refusals.refusal(
            state, f"rows can only be removed from a table that FDS itself writes, and the stream {bound}"
        )


def decide_word(
    state: StreamState, command: Hold | Resume | Quarantine | Acknowledge | Transfer | Retire
) -> Action | None:
    """Record the word of a person or an operator, unless it is recorded already."""
    match command:
        case Hold():
            return None if state.held is not None else Held(why=command.why)
        case Resume():
            return None if state.held is None and state.quarantined is None else Resumed(why=command.why)
        case Quarantine():
            if state.quarantined is not None and state.quarantined.version == command.version:
                return None
            return Quarantined(why=command.why, version=command.version, schema_version=command.schema_version)
        case Acknowledge():
            return _acknowledge(state, command)
        case Transfer():
            if state.deployment == command.deployment:
                return None
            return Transferred(previous=state.deployment, deployment=command.deployment, why=command.why)
        case Retire():
            return None if state.retired is not None else Retired(why=command.why)


def _acknowledge(state: StreamState, command: Acknowledge) -> Action | None:
    if command.skip:
        _check_skip(state, command.version)
    is_known = any((word.version, word.skip) == (command.version, command.skip) for word in state.acknowledged)
    is_waited_for = state.quarantined is not None and state.quarantined.version == command.version
    if is_known and not is_waited_for:
        return None
    return Acknowledged(version=command.version, why=command.why, skip=command.skip)


def _check_skip(state: StreamState, version: int) -> None:
    """Refuse to leave out a version of which the stream has read something, or has planned to."""
    if state.planned and version <= state.planned[-1].last_version and version >= state.planned[0].first_version:
        raise refusals.refusal(
            state,
            f"version {version} is part of planned batches ({state.planned[0].first_version} to "
            f"{state.planned[-1].last_version}), which do not change any more. Give them up first: `fds replan "
            f"{state.name} --why …`, then skip the version",
        )
    if state.position is None:
        return
    position = Offset.from_json(state.position)
    is_begun = position.version == version and (position.next_index > 0 or position.is_initial_snapshot)
    if version < position.version or is_begun:
        raise refusals.refusal(
            state, f"the stream stands at {state.position} and has read version {version}, or a part of it, already"
        )
