"""What a person may choose for a stream in quarantine: actions of ``fds``, or to leave it there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from msgspec import UNSET

from airflow_provider_fds.errors import FdsError
from airflow_provider_fds.stream.actions.operator_actions import ACTIONS

if TYPE_CHECKING:
    from airflow_provider_fds.ledger.facts import QuarantinedFacts
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.stream.actions.action_builder import ActionBuilder
    from airflow_provider_fds.stream.actions.prepared_action import PreparedAction

#: The choice that writes nothing: the stream stays where it is.
STOP: Final = "stop"
_RESUME: Final = "the next plan checks the version again, for example after you have corrected table or options"
_BATCH: Final = "batch/"
_NUMBER: Final = re.compile(r"^\d*:")
_LOOK_AGAIN: Final = "the next run looks for the versions again, for example after you have restored them"
_TEST_AGAIN: Final = "the next run tests the batch again, for example after you have corrected its expectations"


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
    again = _RESUME
    if stop.batch is not UNSET:
        again = _TEST_AGAIN
    elif stop.lost is not UNSET:
        again = _LOOK_AGAIN
    found = []
    for name in (*(decision[0] for decision in stop.decisions), "resume", "hold"):
        try:
            prepared = prepare_choice(builder, name)
        except FdsError:
            continue
        effect = again if name == "resume" else f"the stream {prepared.after}"
        told = [effect, *prepared.notes]
        if needs_reason(stop, name):
            told.append("It needs a reason")
        found.append(Choice(name, ". ".join(text.rstrip(".") for text in told)))
    return (*found, Choice(STOP, "this run fails, and the stream stays in quarantine"))


def needs_reason(stop: QuarantinedFacts, name: str) -> bool:
    """Whether a person must say why: the choice gives up rows that nobody has seen."""
    return name == "skip" and stop.lost is not UNSET


def prepare_choice(builder: ActionBuilder, name: str) -> PreparedAction:
    """Return the action of a choice other than :data:`STOP`; it is not made yet.

    Raises:
        FdsError: It is not possible, with the reason.
    """
    stop = builder.ledger.state.quarantined
    decisions = () if stop is None else stop.decisions
    given = {argument: value for way, argument, value in decisions if way == name}
    return ACTIONS[name].prepare(builder, ACTIONS[name].parse(given))


def asked_about(state: StreamState) -> str | None:
    """Return what tells the stop of a stream from any other, ``None`` if it does not stop.

    It has the number of the ledger entry, and the rows or versions that are left out at a batch or at lost versions: a
    person decides on what the question has said.
    """
    stop = state.quarantined
    if stop is None:
        return None
    what = ""
    if stop.batch is not UNSET:
        what = f"{_BATCH}{stop.batch.epoch}/{stop.batch.batch_id}/{stop.batch.digest}/{stop.batch.rejected}"
    elif stop.lost is not UNSET:
        what = f"lost/{stop.lost}/{'' if stop.last is UNSET else stop.last}"
    return f"{'' if state.quarantined_at is None else state.quarantined_at}:{what}"


def decision_on(state: StreamState, version: int | None, about: str | None = None) -> str | None:
    """Return what was decided about a version at which the stream was in quarantine; ``None``: nothing yet.

    Args:
        state: The state of the stream.
        version: The version; of a batch, its first one.
        about: Which stop the question was about, see :func:`asked_about`. Without the number of an entry, as earlier
            versions asked: any at the version that leaves out the same.
    """
    if state.retired is not None:
        # nothing else can follow
        return STOP
    if state.held is not None:
        return "hold"
    stop, now, what = state.quarantined, asked_about(state), _what(about)
    if what == (about or ""):
        # it has no number
        now = _what(now)
    if stop is not None and (stop.version, now) == (version, about or ""):
        return None
    if what.startswith(_BATCH):
        return "accept" if _is_accepted(state, (about or "").removesuffix(what), what) else "resume"
    words = [word for word in state.acknowledged if word.version == version]
    return words[-1].decision if words else "resume"


def _what(about: str | None) -> str:
    """Return what :func:`asked_about` says beside the number of the entry."""
    return _NUMBER.sub("", about or "")


def _is_accepted(state: StreamState, number: str, what: str) -> bool:
    """Whether a person has ended this stop of a batch by accepting it.

    Without the number of an entry: whether a person lets this batch leave out so many rows, and it waits to be loaded,
    or was committed last.

    Args:
        state: The state of the stream.
        number: The number of the entry with its colon, as :func:`asked_about` writes it; it may be missing.
        what: The rest of it.
    """
    if entry := number.removesuffix(":"):
        return state.let_through_at == int(entry)
    epoch, batch_id, digest, rejected = what.removeprefix(_BATCH).split("/")
    asked, last = (int(epoch), int(batch_id), digest), state.last_committed
    if last is not None and last.was_accepted and (last.epoch, last.batch_id, last.digest) == asked:
        return True
    return any(
        (state.epoch, one.batch_id, one.digest) == asked and one.may_reject >= int(rejected)
        for one in state.planned[:1]
        if one.may_reject is not UNSET
    )
