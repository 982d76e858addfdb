"""What a person may choose for a stream in quarantine: actions of ``fds``, or to leave it there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.errors import FdsError
from airflow_provider_fds.stream.actions.operator_actions import ACTIONS

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.stream.actions.action_builder import ActionBuilder
    from airflow_provider_fds.stream.actions.prepared_action import PreparedAction

#: The choice that writes nothing: the stream stays where it is.
STOP: Final = "stop"
_RESUME: Final = "the next plan checks the version again, for example after you have corrected table or options"


@dataclass(frozen=True, slots=True)
class Choice:
    """Something that a person may decide.

    Attributes:
        name: Name of the action, or ``stop``.
        effect: What follows, as the action itself describes it.
    """

    name: str
    effect: str


def choices_of(builder: ActionBuilder) -> tuple[Choice, ...]:
    """Return the choices for a stream in quarantine, without those that its state or table do not allow."""
    stop = builder.ledger.state.quarantined
    assert stop is not None  # noqa: S101  # the caller has checked it
    found = []
    for name in (*stop.ways_on, "resume", "hold"):
        try:
            prepared = prepare_choice(builder, name, stop.version)
        except FdsError:
            continue
        effect = _RESUME if name == "resume" else f"the stream {prepared.after}"
        found.append(Choice(name, ". ".join(text.rstrip(".") for text in (effect, *prepared.notes))))
    return (*found, Choice(STOP, "this run fails, and the stream stays in quarantine"))


def prepare_choice(builder: ActionBuilder, name: str, version: int | None) -> PreparedAction:
    """Return the action of a choice other than :data:`STOP`; it is not made yet.

    Raises:
        FdsError: It is not possible, with the reason.
    """
    given: dict[str, dict[str, Any]] = {"accept": {"version": version}, "skip": {"version": (version, version)}}
    return ACTIONS[name].prepare(builder, given.get(name, {}))


def decision_on(state: StreamState, version: int | None) -> str | None:
    """Return what was decided about a version at which the stream was in quarantine; ``None``: nothing yet."""
    if state.held is not None:
        return "hold"
    if state.quarantined is not None and state.quarantined.version == version:
        return None
    words = [word for word in state.acknowledged if word.version == version]
    if not words:
        return "resume"
    return "skip" if words[-1].skip else "accept"
