"""Asks a person in Airflow's UI what a stream in quarantine does, and writes the answer to its ledger."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.common.compat.sdk import Param
from airflow.sdk.execution_time.hitl import HITLUser, upsert_hitl_detail
from msgspec import UNSET

from airflow_provider_fds.durations import parse_duration
from airflow_provider_fds.errors import StoppedError
from airflow_provider_fds.hooks.failures import task_failures
from airflow_provider_fds.hooks.settings import deployment, poll_interval_seconds
from airflow_provider_fds.ledger.entries.refusals import StreamMovedError
from airflow_provider_fds.ledger.owner import Actor
from airflow_provider_fds.operators.run.sessions import session_context
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.stream import DeltaStream
from airflow_provider_fds.stream.actions.action_builder import ActionBuilder
from airflow_provider_fds.stream.actions.prepared_action import perform
from airflow_provider_fds.stream.actions.stop_choices import (
    STOP,
    asked_about,
    choices_of,
    decision_on,
    needs_reason,
    prepare_choice,
)
from airflow_provider_fds.stream.connected_stream import ConnectedStream
from airflow_provider_fds.triggers.stream_decision import StreamDecisionTrigger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_provider_fds.ledger.facts import QuarantinedFacts
    from airflow_provider_fds.stream.actions.stop_choices import Choice
    from airflow_provider_fds.stream.run.session import StreamSession

#: XCom key under which a task says which version it has asked about.
ASKED_KEY: Final = "fds_asked"
#: Where a person has decided, in the history; as for the page.
_HOST: Final = "airflow-ui"
_WHY: Final = "why"


def ask(operator: Any, context: Any, session: StreamSession, *, deadline: float | None) -> None:
    """Ask about the version or batch that the stream stops at, and defer the task until somebody has decided.

    Returns only if this attempt has asked before: Airflow keeps one question for an attempt, with its first text.

    Args:
        operator: The :class:`DeltaIngestOperator`, rendered.
        context: The task's context.
        session: Its session, which has found the stream in quarantine.
        deadline: When to stop waiting for data, in seconds since the epoch, which the task needs afterwards.
    """
    ti, connected = context["ti"], session.connected
    stop = connected.state.quarantined
    assert stop is not None  # noqa: S101  # the caller has checked it
    if ti.xcom_pull(task_ids=ti.task_id, key=ASKED_KEY, map_indexes=ti.map_index) is not None:
        operator.log.warning("This attempt has asked once; the next run asks about %s.", _place(stop))
        return
    choices = choices_of(ActionBuilder(connected.ledger, "asked in Airflow", log=connected.log))
    stream = session.stream
    upsert_hitl_detail(
        ti_id=ti.id,
        options=[choice.name.capitalize() for choice in choices],
        subject=f"Stream {stream.name} stops {_place(stop)} of {stream.table}",
        body=_body(stop.why, choices),
        defaults=[STOP.capitalize()],
        params={_WHY: Param("", type="string", description="The reason; recorded in the stream's history").serialize()},
        assigned_users=users_of(operator.approvers) or None,
    )
    ti.xcom_push(key=ASKED_KEY, value=stop.version)
    timeout = parse_duration(operator.ask_timeout)
    operator.log.warning("Waiting for an answer in Airflow: %s", stop.why)
    operator.defer(
        trigger=StreamDecisionTrigger(
            stream=stream.name,
            staging=session.context.staging_uri,
            storage_conn_id=stream.storage_conn_id,
            version=stop.version,
            about=(about := asked_about(connected.state)),
            ti_id=str(ti.id),
            until=None if timeout is None else time.time() + timeout.total_seconds(),
            poll_interval=poll_interval_seconds(),
        ),
        method_name="execute_answered",
        kwargs={"deadline": deadline, "version": stop.version, "about": about},
    )


def record_answer(
    operator: Any, context: Any, event: Mapping[str, Any], version: int | None, about: str | None = None
) -> None:
    """Write what a person has chosen to the stream's ledger, unless it has a decision already.

    Args:
        operator: The :class:`DeltaIngestOperator`, rendered.
        context: The task's context.
        event: The answer, see :class:`StreamDecisionTrigger`.
        version: The version that the person was asked about.
        about: The stop, see :func:`~.stop_choices.asked_about`.

    Raises:
        TaskFailedError: The choice is to stop, nobody has answered in time, or the choice is no longer possible.
    """
    with task_failures(context, operator.stream):
        said = _recorded(context, DeltaStream.coerce(operator.stream), event, version, about)
    operator.log.info("%s", said)


def _recorded(
    context: Any, stream: DeltaStream, event: Mapping[str, Any], version: int | None, about: str | None
) -> str:
    connected = ConnectedStream(stream, session_context(context, stream, None))
    connected.load()
    while True:
        based_on = connected.ledger.n
        try:
            return _written(context, connected, event, version, about)
        except StreamMovedError:
            # after another entry, the stream may stop for another reason
            connected.load()
            if connected.ledger.n == based_on:
                raise


def _written(
    context: Any, connected: ConnectedStream, event: Mapping[str, Any], version: int | None, about: str | None
) -> str:
    """Write the answer, on the state as it was read, or return why nothing is to be written."""
    stream, state = connected.stream, connected.state
    if (decided := decision_on(state, version, about)) is not None:
        return f"Stream {stream.name}: the ledger already has a decision about version {version}: {decided}."
    if event.get("in_ledger"):
        # nobody has chosen it: the stream has come to the same stop again since the trigger saw the ledger
        return f"Stream {stream.name}: it stops at version {version} again, which the next run asks about."
    choice = str(event["chosen_options"][0]).lower()
    user = event.get("responded_by_user") or {}
    name = str(user.get("name") or user.get("id") or "unknown user")
    stop = state.quarantined
    assert stop is not None  # noqa: S101  # otherwise there would be a decision
    why = str((event.get("params_input") or {}).get(_WHY) or "").strip()
    stays = None
    if choice == STOP:
        stays = "nobody has answered in time" if event.get("timedout") else f"{name} has chosen to stop"
    elif not why and needs_reason(stop, choice):
        stays = f"{name} has chosen to {choice} lost versions without a reason, so nothing is recorded"
    if stays is not None:
        raise StoppedError(
            f"stream {stream.name!r} stays in quarantine: {stays}. {stop.why}",
            table=state.table,
            version=version,
            operation=stop.operation,
            reason=Reason.STREAM_QUARANTINED,
        )
    builder = ActionBuilder(connected.ledger, why or "chosen in Airflow", log=connected.log)
    prepared = prepare_choice(builder, choice)
    actor = Actor(deployment=deployment(), user=name, host=_HOST)
    said = perform(connected.ledger, prepared, actor, f"hitl/{context['ti'].id}", expected=connected.ledger.n)
    return f"{choice.capitalize()}, by {name}: {said}."


def users_of(approvers: Sequence[str | Mapping[str, str]] | None) -> list[HITLUser]:
    """Return who may answer, as Airflow takes it; a text is the id of a user."""
    found = [{"id": one, "name": one} if isinstance(one, str) else one for one in approvers or ()]
    return [HITLUser(id=user["id"], name=user["name"]) for user in found]


def _place(stop: QuarantinedFacts) -> str:
    return f"before version {stop.version}" if stop.batch is UNSET else f"at batch {stop.batch.batch_id}"


def _body(why: str, choices: Sequence[Choice]) -> str:
    # a fence, because names of columns and paths may contain anything
    fence = "`" * 4
    rows = [f"| **{one.name.capitalize()}** | {one.effect} |" for one in choices]
    head = [f"{fence}text", why.replace(fence, "''''"), fence, "", "| choice | what follows |", "|---|---|"]
    return "\n".join([*head, *rows])
