"""The operator actions that the page offers for a stream, with the checks of ``fds``.

The page reads only staging. An action that must first read the table or the sink is refused, and the refusal names
the command to run instead.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.credentials import redacted
from airflow_provider_fds.errors import ConfigurationError, FdsError
from airflow_provider_fds.ledger.entries.refusals import StreamMovedError
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.stream.actions.action_builder import ActionBuilder
from airflow_provider_fds.stream.actions.operator_actions import ACTIONS, FOR_ALL_REQUESTS
from airflow_provider_fds.stream.actions.owned_plans import plans_with_owner
from airflow_provider_fds.stream.actions.prepared_action import perform
from airflow_provider_fds.stream.actions.rewind_target import is_time

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.ledger.owner import Actor, Owner
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.stream.actions.operator_actions import Argument, OperatorAction
from airflow_provider_fds.stream.actions.prepared_action import PreparedAction

_TYPES: Final = {"number": "integer", "flag": "boolean", "choice": "choice"}


def _has_sink_and_position(state: StreamState) -> bool:
    """Whether the stream has a position that it can keep with another sink."""
    has_position = not state.reads_by_interval and (state.closed or state).position is not None
    return has_position and (state.sink or state.fence_sink) is not None


def _stop(state: StreamState, way: str, argument: str) -> int | str | None:
    """Return the value of the argument with which an action lets a stream in quarantine pass."""
    decisions = () if state.quarantined is None else state.quarantined.decisions
    return next((value for name, about, value in decisions if (name, about) == (way, argument)), None)


def _blocked_interval(state: StreamState) -> str | None:
    return next((record.interval for record in reversed(state.intervals) if record.blocked is not None), None)


#: What someone has to decide, by action and argument; such an action applies if one of these is known.
_DECISIONS: Final[dict[str, dict[str, Callable[[StreamState], int | str | None]]]] = {
    "accept": {
        "version": lambda state: _stop(state, "accept", "version"),
        "batch": lambda state: _stop(state, "accept", "batch") if state.blocked is None else state.blocked.batch_id,
        "interval": _blocked_interval,
    },
    "skip": {"version": lambda state: _stop(state, "skip", "version")},
}

#: When an action applies to a stream that is not retired: the harmless first, and last what moves or ends the stream.
_APPLIES: Final[dict[str, Callable[[StreamState], bool]]] = {
    "hold": lambda state: state.held is None,
    "resume": lambda state: state.held is not None or state.quarantined is not None,
    "accept": lambda state: bool(_to_decide("accept", state)),
    "skip": lambda state: bool(_to_decide("skip", state)),
    "unlock": lambda state: bool(plans_with_owner(state)),
    "replan": lambda state: bool((state.closed or state).planned) or _has_sink_and_position(state),
    "rewind": lambda state: not state.reads_by_interval,
    "retire": lambda _: True,
}

#: The actions of the page: those that need only the ledger, and do not concern the local machine.
PAGE_ACTIONS: Final = {name: ACTIONS[name] for name in _APPLIES}


def describe_actions(state: StreamState, deployment: str) -> list[dict[str, Any]]:
    """Return the actions that apply to a stream now as JSON values, from which the page builds its forms.

    Args:
        state: The state of the stream.
        deployment: Name of this Airflow installation.
    """
    if state.retired is not None or state.deployment != deployment:
        return []
    return [_described_action(action, state) for name, action in PAGE_ACTIONS.items() if _APPLIES[name](state)]


def _to_decide(name: str, state: StreamState) -> dict[str, int | str]:
    found = {argument: value_of(state) for argument, value_of in _DECISIONS.get(name, {}).items()}
    return {argument: value for argument, value in found.items() if value is not None}


def _described_action(action: OperatorAction, state: StreamState) -> dict[str, Any]:
    known = _to_decide(action.name, state)
    return {
        "name": action.name,
        "title": action.name.capitalize(),
        "help": action.description,
        "needs_why": True,
        # a request of an epoch is followed by a fence, a commit in the sink
        "changes_the_sink": set(FOR_ALL_REQUESTS) <= set(action.arguments),
        "arguments": [
            _described(argument) | ({"value": known[argument.name]} if known else {})
            for argument in action.arguments
            if not argument.is_cli_only and (not known or argument.name in known)
        ],
    }


def _described(argument: Argument) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": argument.name,
        "type": _TYPES.get(argument.kind, "text"),
        "required": argument.is_required,
        "help": argument.help,
    }
    if argument.choices:
        found["choices"] = list(argument.choices)
    if argument.excludes is not None:
        # exactly one argument of the group is given
        found["one_of"] = argument.excludes
    return found


@dataclass(frozen=True, slots=True)
class Preview:
    """What an action would do.

    Attributes:
        refusal: Why the action is not possible; ``None`` if it is.
        lines: Description of the change.
        expected: Identifies the state of the ledger that was read.
    """

    refusal: str | None
    lines: list[str]
    expected: str

    def to_dict(self) -> dict[str, Any]:
        """Return the preview as JSON values."""
        return {
            "allowed": self.refusal is None,
            "refusal": self.refusal,
            "preview": self.lines,
            "expected": self.expected,
        }


class StreamActions:
    """The actions on one stream, with its ledger as it is now.

    Args:
        staging: Root of staging.
        name: Name of the stream.
        deployment: This Airflow installation.
        owner_runs: Returns whether the owner of planned batches is running, ``None`` if that is unknown.

    Raises:
        LedgerError: The stream belongs to another installation, or its ledger cannot be read.
    """

    def __init__(
        self, staging: Storage, name: str, *, deployment: str, owner_runs: Callable[[Owner], bool | None]
    ) -> None:
        self.ledger = Ledger(staging, name, deployment=deployment)
        self.ledger.find()
        self._owner_runs = owner_runs

    def preview(self, action: OperatorAction, arguments: Mapping[str, object]) -> Preview:
        """Return what an action would do. Writes nothing.

        Raises:
            ConfigurationError: The arguments are invalid.
        """
        given = _parsed(action, arguments)
        expected = self._token()
        try:
            prepared = self._prepared(action, given, why="preview")
            changes = prepared.changes(self.ledger.state)
        except FdsError as refusal:
            return Preview(redacted(str(refusal)), [], expected)
        if not changes:
            return Preview(None, [prepared.describe_unchanged()], expected)
        lines = redacted(prepared.describe()).splitlines()
        if isinstance(given.get("to"), int):
            lines.append("  The next run checks whether the table's log still has this version.")
        return Preview(None, lines, expected)

    def perform(
        self,
        action: OperatorAction,
        arguments: Mapping[str, object],
        *,
        why: str,
        actor: Actor,
        request_id: str,
        expected: str,
    ) -> str:
        """Perform an action, and return a description of the outcome. A repeated request is not performed again.

        Args:
            action: The action.
            arguments: Its arguments, as the page has sent them.
            why: The reason; recorded in the history.
            actor: Who performs the action.
            request_id: Id of the request.
            expected: ``expected`` of the preview that the user confirmed.

        Raises:
            ConfigurationError: The arguments are invalid, or the action is not possible.
            StreamMovedError: The ledger has changed since the preview.
            LedgerError: The stream's state does not allow it.
        """
        given = _parsed(action, arguments)
        name = f"ui/{action.name}/{request_id}"
        if (answer := self._answer(action, name)) is not None:
            return answer
        if expected != self._token():
            raise _changed(self.ledger.state.name, self.ledger.state.table)
        prepared = self._prepared(action, given, why=why)
        said = perform(self.ledger, prepared, actor, name, expected=self.ledger.n)
        return self._answer(action, name) or said

    def _prepared(self, action: OperatorAction, given: dict[str, Any], *, why: str) -> PreparedAction:
        self._refuse_unreadable(action, given)
        builder = ActionBuilder(self.ledger, why, owner_runs=self._owner_runs)
        return action.prepare(builder, given)

    def _refuse_unreadable(self, action: OperatorAction, given: Mapping[str, Any]) -> None:
        """Refuse an action whose checks need the table or the sink."""
        state = self.ledger.state
        sink = state.sink or state.fence_sink
        if "to" in given and is_time(given["to"]):
            what = "a time requires the commit times in the table's log"
        elif given.get("sink_rows") in ("delete", "empty"):
            what = "removing rows requires a check of the sink"
        elif set(FOR_ALL_REQUESTS) <= set(action.arguments) and sink is not None and sink.tables:
            what = "a new epoch requires a check of the tables of the stream's function"
        else:
            return
        raise ConfigurationError(
            f"stream {state.name!r}: {what}, which this page does not read. Run "
            f"`{_command(action, state.name, given)}` where table and sink can be read, or use the DAG fds_ops.",
            reason=Reason.ACTION_REFUSED,
        )

    def _token(self) -> str:
        checkpoint = self.ledger.checkpoint()
        return f"{checkpoint.n}-{checkpoint.digest}"

    def _answer(self, action: OperatorAction, name: str) -> str | None:
        """Return the answer to a request that is in the ledger; the same each time."""
        known = next((one for one in self.ledger.state.answered if one.request_id == name), None)
        if known is None:
            return None
        then = " The next run of the stream begins the epoch." if known.kind == "requested" else ""
        return f"stream {self.ledger.state.name}: {action.name} is recorded as ledger entry {known.n}.{then}"


def _parsed(action: OperatorAction, arguments: Mapping[str, object]) -> dict[str, Any]:
    known = {argument.name for argument in action.arguments if not argument.is_cli_only}
    if unknown := [name for name in arguments if name not in known]:
        raise ConfigurationError(
            f"{action.name} has no argument {', '.join(unknown)}; it has {', '.join(sorted(known)) or 'none'}.",
            subject=f"action {action.name}",
        )
    return action.parse(arguments)


def _command(action: OperatorAction, name: str, given: Mapping[str, Any]) -> str:
    """Return the command that does the same."""
    words = ["fds", action.name, name]
    for argument in action.arguments:
        value = given.get(argument.name)
        # 0 is a value
        if value is None or value is False:
            continue
        words.append("--" + (argument.spelling or argument.name).replace("_", "-"))
        if argument.kind != "flag":
            words.append(str(value))
    return f"{shlex.join(words)} --why …"


def _changed(name: str, table: str) -> StreamMovedError:
    return StreamMovedError(
        f"stream {name!r} has changed since the preview, so nothing was done. Preview the action again.", table=table
    )
