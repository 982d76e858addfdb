"""The conditions of a stream: when each applies, what is said of it and what to run.

No other place decides it: ``fds status``, ``explain``, ``top``, the monitors, the page, the metrics and the alerts show
what it says.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from msgspec import UNSET

from airflow_provider_fds.errors import LostPositionError
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.position.lost_position import oldest_commit

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_fds.errors import FdsError
    from airflow_provider_fds.ledger.facts import BlockedFacts
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.stream.monitoring.run_failure import RunFailure

#: What a stream is doing, in one word. Of several that apply, the first one is the stream's condition.
Condition = Literal[
    "retired",
    "lost_position",
    "unreadable",
    "blocked",
    "quarantined",
    "held",
    "failing",
    "loading",
    "finished",
    "waiting",
    "live",
    "not_begun",
    "up_to_date",
    "behind",
]

#: Commands of ``fds``, each with its effect.
Commands = tuple[tuple[str, str], ...]


class Evidence(NamedTuple):
    """What the condition of a stream is decided by.

    Attributes:
        state: The state of its ledger.
        problem: Why the table cannot be read, or the stream not continue from its position.
        sink_problem: Why the next run would refuse the sink.
        lag: Versions that are not committed; ``None`` if unknown.
        finished: A sentence if it has read everything up to its end.
        failure: Why its last run failed, if nothing has happened since.
        waits_for: What its newest data wait for, in words.
        owner_runs: Whether the owner of the planned batches is running; ``None`` if that cannot be known from here.
        is_live: Whether a run lingers: it loads what comes at once.
    """

    state: StreamState
    problem: FdsError | None = None
    sink_problem: FdsError | None = None
    lag: int | None = None
    finished: str | None = None
    failure: RunFailure | None = None
    waits_for: str | None = None
    owner_runs: bool | None = None
    is_live: bool = False

    @property
    def blocked(self) -> BlockedFacts | None:
        """The batch that someone must decide about."""
        found = (one.blocked for one in reversed(self.state.intervals) if one.blocked is not None)
        return self.state.blocked or next(found, None)


class _Rule(NamedTuple):
    """A condition.

    Attributes:
        applies: Whether it applies.
        cause: Why the stream is in it, one paragraph.
        commands: What to run, to choose from; empty if nothing has to be done, or if the cause names it.
        key: For a condition that needs attention: what makes it differ from the next incident with the same condition.
    """

    applies: Callable[[Evidence], bool]
    cause: Callable[[Evidence], str]
    commands: Callable[[Evidence], Commands] = lambda _: ()
    key: Callable[[Evidence], str] | None = None


def condition_of(evidence: Evidence) -> Condition:
    """Return the condition; of several that apply, the one that a person has to end first."""
    return next(condition for condition, rule in _RULES.items() if rule.applies(evidence))


def advice_on(condition: Condition, evidence: Evidence) -> tuple[str, Commands]:
    """Return why a stream is in a condition, and the commands to choose from."""
    rule = _RULES[condition]
    return rule.cause(evidence), rule.commands(evidence)


def needs_attention(condition: Condition, *, is_retried: bool) -> bool:
    """Whether a condition lasts until someone acts.

    Args:
        condition: The stream's condition.
        is_retried: Whether Airflow repeats its last run, which failed, by itself: the next attempt may succeed.
    """
    return condition in ATTENTION and not (condition == "failing" and is_retried)


def attention_on(condition: Condition, evidence: Evidence) -> dict[str, Any] | None:
    """Return the ``attention`` of :class:`~.status.StreamStatus`."""
    key, failure = _RULES[condition].key, evidence.failure
    if key is None or not needs_attention(condition, is_retried=failure is not None and failure.will_retry):
        return None
    cause, commands = advice_on(condition, evidence)
    name, quarantined = evidence.state.name, evidence.state.quarantined
    about: Any = None
    if condition == "quarantined":
        about = quarantined
    elif evidence.problem is not None:
        about = evidence.problem
    elif condition == "failing":
        about = failure or evidence.sink_problem
    found = {
        "key": key(evidence),
        "why": cause,
        "action": commands[0][0] if commands else f"fds explain {name}",
        "version": getattr(about, "version", None),
        "operation": getattr(about, "operation", None),
    }
    return found | {"begun": evidence.state.quarantined_at} if condition == "quarantined" else found


def attention_to_problem(name: str, problem: FdsError) -> dict[str, Any]:
    """Return the ``attention`` of a stream whose ledger cannot be read."""
    return {
        "key": problem.reason_code,
        "why": str(problem),
        "action": f"fds explain {name}",
        "version": problem.version,
        "operation": problem.operation,
    }


def _problem(evidence: Evidence) -> str:
    assert evidence.problem is not None  # noqa: S101  # the condition says so; the message names what to run
    return f"[{evidence.problem.reason_code}] {evidence.problem}"


def _problem_key(evidence: Evidence) -> str:
    return "" if evidence.problem is None else evidence.problem.reason_code


def _retired(evidence: Evidence) -> str:
    why = "" if evidence.state.retired is None else evidence.state.retired.why
    return f"The stream was ended permanently ({why}). Only a stream with another name can read the table again."


def _blocked(evidence: Evidence) -> str:
    found = evidence.blocked
    assert found is not None  # noqa: S101  # the condition says so
    return (
        f"Batch {found.batch_id} is blocked until someone compares the sink with the source: {found.reason} "
        f"(planned rows: {found.rows_planned}, written: {found.rows_written}, sink version {found.sink_version})."
    )


def _blocked_commands(evidence: Evidence) -> Commands:
    name, found = evidence.state.name, evidence.blocked
    assert found is not None  # noqa: S101  # the condition says so
    scope = f"--batch {found.batch_id}" if found.interval is None else f"--interval {found.interval}"
    accept = (f"fds accept {name} {scope} --why …", "accepts the batch as it is in the sink")
    if found.interval is not None:
        return (accept,)
    return accept, (f"fds replan {name} --why …", "plans it again in a new epoch")


def _blocked_key(evidence: Evidence) -> str:
    found = evidence.blocked
    return "" if found is None else f"{found.interval or ''}:{found.epoch}:{found.batch_id}"


def _quarantined(evidence: Evidence) -> str:
    found = evidence.state.quarantined
    return f"The stream is in quarantine, and its runs are skipped: {'' if found is None else found.why}"


def _quarantined_commands(evidence: Evidence) -> Commands:
    name, found = evidence.state.name, evidence.state.quarantined
    effects = {
        ("accept", "version"): "lets its schema take effect and loads its rows",
        ("accept", "batch"): "loads the batch without these rows",
        ("skip", "version"): "continues without the rows of the version",
    }
    decisions = () if found is None else found.decisions
    resume = (f"fds resume {name} --why …", "tries again, for example after its options were changed")
    commands = ((f"fds {way} {name} --{about} {value} --why …", effects[way, about]) for way, about, value in decisions)
    return (*commands, resume)


def _unasked(evidence: Evidence) -> FdsError | None:
    """Return the problem, unless it is a lost position that the stream is in quarantine for."""
    stop = evidence.state.quarantined
    is_asked = stop is not None and stop.lost is not UNSET and isinstance(evidence.problem, LostPositionError)
    return None if is_asked else evidence.problem


def _quarantined_key(evidence: Evidence) -> str:
    found = evidence.state.quarantined
    if found is None:
        return ""
    return str(found.version) if found.batch is UNSET else f"{found.batch.epoch}:{found.batch.batch_id}"


def _held(evidence: Evidence) -> str:
    return f"The stream is on hold: {'' if evidence.state.held is None else evidence.state.held.why}"


def _failing(evidence: Evidence) -> str:
    found = evidence.failure
    if found is None:
        return f"The next run would fail: [{_reason(evidence)}] {evidence.sink_problem}"
    times = f"The last run failed at {found.at}"
    if found.runs > 1:
        times = f"The last {found.runs:,} runs failed, the first at {found.since}, the last at {found.at}"
    which = "" if found.interval is None else f" (data interval {found.interval})"
    then = " Airflow starts another attempt by itself." if found.will_retry else ""
    return f"{times}{which}: [{found.reason_code}] {found.why}{then}"


def _failing_key(evidence: Evidence) -> str:
    """Return the reason and the position: while both stay, it is one incident."""
    found, position = evidence.failure, evidence.state.position
    where = "" if found is None or found.interval is None else found.interval
    if not where and position is not None:
        offset = Offset.from_json(position)
        where = f"{offset.version}.{offset.index}"
    return f"{_reason(evidence)}:{evidence.state.epoch}:{where}"


def _reason(evidence: Evidence) -> str:
    if evidence.failure is not None:
        return evidence.failure.reason_code
    return "" if evidence.sink_problem is None else evidence.sink_problem.reason_code


def _loading(evidence: Evidence) -> str:
    owner, planned = evidence.state.owner, len(evidence.state.planned)
    batches = "1 batch is" if planned == 1 else f"{planned:,} batches are"
    if owner is None:
        return (
            "A data interval is planned but not loaded. Only its own task can load it: check that task, and clear it "
            "if it failed."
        )
    if owner.only_plans:
        return f"{batches} planned, but not taken by a run yet. The next run of the stream loads what is planned."
    if evidence.owner_runs:
        return f"{batches} planned and owned by {owner.describe()}, which is running. Its log shows how far it is."
    if evidence.owner_runs is False:
        return (
            f"{batches} planned. The owner, {owner.describe()}, is no longer running: it was killed or failed. The "
            "next run of the stream takes over, and checks the sink before it writes."
        )
    where = (
        "Airflow knows, and the next run of the stream asks it: if the owner has ended, that run takes over and checks "
        "the sink before it writes."
        if owner.kind == "airflow"
        else "Look for that process on its machine: the next run refuses to take its batches over."
    )
    return f"{batches} planned and owned by {owner.describe()}. Whether it is running cannot be seen from here. {where}"


def _loading_commands(evidence: Evidence) -> Commands:
    name, owner = evidence.state.name, evidence.state.owner
    if owner is None:
        return ((f"fds status {name}", "lists the unfinished intervals"),)
    if owner.kind != "cli" or owner.only_plans or evidence.owner_runs is not None:
        return ()
    effect = "only if that process is gone: releases the batches; the next run checks the sink first"
    return ((f"fds unlock {name} --why …", effect),)


def _waiting(evidence: Evidence) -> str:
    if evidence.state.reads_by_interval:
        return (
            "All intervals that a run has begun are loaded. The stream moves with the next data interval of its DAG: "
            "if one is due, check that the DAG is not paused and that its run was not skipped."
        )
    return evidence.waits_for or ""


def _waiting_commands(evidence: Evidence) -> Commands:
    if not evidence.state.reads_by_interval:
        return ()
    return ((f"fds history {evidence.state.name}", "shows the intervals that were loaded"),)


def _requested(evidence: Evidence) -> str | None:
    request = evidence.state.request
    if request is None:
        return None
    return f"A new epoch was requested ({request.asked}: {request.why}). The next run of the stream begins it."


def _behind(evidence: Evidence) -> str:
    return _requested(evidence) or (
        "The table has new data, and no run has begun since. The next run of the stream loads it: if it is due, "
        "check that its DAG is not paused, or what else starts its runs."
    )


def _behind_commands(evidence: Evidence) -> Commands:
    state = evidence.state
    if state.request is not None or state.position is None:
        return ()
    first = oldest_commit(Offset.from_json(state.position))
    plan = f"fds plan {shlex.quote(state.table)} --dry-run --option starting_version={first}"
    return ((plan, "with the other options of the stream, shows what the next run would load"),)


def _loads(evidence: Evidence) -> bool:
    return bool(evidence.state.planned) or any(not record.is_done for record in evidence.state.intervals)


def _waits(evidence: Evidence) -> bool:
    return evidence.state.reads_by_interval or (evidence.waits_for is not None and evidence.lag != 0)


_RULES: Final[dict[Condition, _Rule]] = {
    "retired": _Rule(lambda found: found.state.retired is not None, _retired),
    "lost_position": _Rule(lambda found: isinstance(_unasked(found), LostPositionError), _problem, key=_problem_key),
    "unreadable": _Rule(lambda found: _unasked(found) is not None, _problem, key=_problem_key),
    "blocked": _Rule(lambda found: found.blocked is not None, _blocked, _blocked_commands, _blocked_key),
    "quarantined": _Rule(
        lambda found: found.state.quarantined is not None,
        _quarantined,
        _quarantined_commands,
        _quarantined_key,
    ),
    "held": _Rule(
        lambda found: found.state.held is not None,
        _held,
        lambda found: ((f"fds resume {found.state.name} --why …", "continues it"),),
    ),
    "failing": _Rule(
        lambda found: found.failure is not None or found.sink_problem is not None, _failing, key=_failing_key
    ),
    "loading": _Rule(_loads, _loading, _loading_commands),
    "finished": _Rule(
        lambda found: found.finished is not None,
        lambda found: f"The stream has reached its end and reads nothing more: {found.finished}",
    ),
    "waiting": _Rule(_waits, _waiting, _waiting_commands),
    "live": _Rule(
        lambda found: found.is_live,
        lambda _: "A run has loaded everything, polls the table, and loads at once what comes.",
    ),
    "not_begun": _Rule(
        lambda found: found.state.position is None,
        lambda found: (
            _requested(found) or "The stream was created, but no run has planned anything yet. The next run begins it."
        ),
    ),
    "up_to_date": _Rule(
        lambda found: found.lag == 0,
        lambda _: "The stream is up to date. It moves when the table gets a new version.",
    ),
    "behind": _Rule(lambda _: True, _behind, _behind_commands),
}

#: The conditions that last until someone acts.
ATTENTION: Final[frozenset[Condition]] = frozenset(name for name, rule in _RULES.items() if rule.key is not None)


def hidden_by(condition: Condition, *, is_retried: bool) -> frozenset[Condition]:
    """Return the conditions of :data:`ATTENTION` of which a stream in ``condition`` does not show whether they apply.

    Args:
        condition: The stream's condition.
        is_retried: Whether Airflow repeats its last run, which failed.
    """
    order = list(_RULES)
    found = {name for name in ATTENTION if order.index(name) > order.index(condition)}
    if condition == "unreadable":
        found.add("lost_position")
    if condition == "loading" or (condition == "failing" and is_retried):
        # how the run ends is not known yet
        found.add("failing")
    return frozenset(found)
