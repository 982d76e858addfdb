"""The actions an operator may take on a stream: the one list that defines ``fds``, Airflow's operator and its form.

An action is a method of :class:`~.action_builder.ActionBuilder` of the same name; its arguments are the keywords of
that method, and those of :data:`FOR_ALL_REQUESTS`. ``recover``, which needs no ledger, is
:func:`~.recovery_survey.survey`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from airflow_provider_fds.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_provider_fds.stream.actions.action_builder import ActionBuilder
    from airflow_provider_fds.stream.actions.prepared_action import PreparedAction

#: What a form or a template sends for an omitted argument.
_NOT_GIVEN: Final = (None, "", "None")
_TRUTHS: Final = {"yes": True, "true": True, "no": False, "false": False}


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of an action.

    Attributes:
        name: Python name; on the command line ``--sink-rows`` for ``sink_rows``.
        kind: The kind of value.
        help: One line without a full stop.
        choices: The values of a ``choice``.
        metavar: How the command line shows its value.
        is_required: Whether the action requires it.
        excludes: Name of a group; exactly one argument of the group must be given.
        spelling: Its name on the command line, if that is not ``name``.
        is_cli_only: Whether it is about the machine that runs the command.
    """

    name: str
    kind: Literal["number", "versions", "target", "text", "choice", "flag", "landed"]
    help: str
    choices: tuple[str, ...] = ()
    metavar: str | None = None
    is_required: bool = False
    excludes: str | None = None
    spelling: str | None = None
    is_cli_only: bool = False

    def parse(self, value: object) -> Any:
        """Return the value that the action takes, from a text or from the value itself.

        Raises:
            ValueError: The value is invalid; the message says what is expected.
        """
        return _PARSERS[self.kind](self, value)


@dataclass(frozen=True, slots=True)
class OperatorAction:
    """Something an operator may do to a stream, with one ledger entry that records who and why.

    Attributes:
        name: Name of the command, and of the method of ``ActionBuilder``.
        help: One line without a full stop.
        description: What it does and means, in sentences.
        asks: Whether the command line shows the change and asks for confirmation.
        is_cli_only: Whether it makes no sense as a task.
        needs_ledger: Whether it needs a readable ledger. An action that needs none is decided by what the sink records:
            it has no request id, and on the command line no required reason.
    """

    name: str
    help: str
    description: str
    arguments: tuple[Argument, ...] = ()
    asks: bool = True
    is_cli_only: bool = False
    needs_ledger: bool = True

    def parse(self, values: Mapping[str, object]) -> dict[str, Any]:
        """Return the given arguments, checked. What a form sends for an empty field counts as omitted.

        Args:
            values: By name of the argument, of all actions.

        Raises:
            ConfigurationError: Reports all problems at once.
        """
        known = {argument.name: argument for argument in self.arguments}
        given: dict[str, Any] = {}
        problems: list[str] = []
        for name, value in values.items():
            argument = known.get(name, ARGUMENTS[name])
            if value in _NOT_GIVEN:
                continue
            try:
                parsed = argument.parse(value)
            except ValueError as error:
                problems.append(f"{name} {error}.")
                continue
            # a form also sends unticked boxes
            if argument.kind == "flag" and not parsed:
                continue
            if name not in known:
                problems.append(f"{name} has no meaning for {self.name}.")
            given[name] = parsed
        missing = (name for name, argument in known.items() if argument.is_required and name not in given)
        problems += [f"{name} is needed for {self.name}." for name in missing]
        if problems:
            raise ConfigurationError(*problems, subject=f"action {self.name}")
        return given

    def prepare(self, builder: ActionBuilder, given: Mapping[str, Any]) -> PreparedAction:
        """Return the change that the action makes; it is not made yet.

        Args:
            builder: For the stream.
            given: The arguments, as :meth:`parse` returns them.

        Raises:
            FdsError: It is not possible, with the reason.
        """
        own = dict(given)
        if own.pop("replace", False):
            builder = replace(builder, replaces=True)
        if own.pop("force", False):
            builder = replace(builder, is_forced=True)
        prepared: PreparedAction = getattr(builder, self.name)(**own)
        return prepared


def _number(_: Argument, value: object) -> int:
    try:
        return int(str(value))
    except ValueError:
        raise ValueError(f"must be a number, got {value!r}") from None


def _versions(_: Argument, value: object) -> tuple[int, int]:
    first, dash, last = str(value).partition("-")
    try:
        return int(first), int(last if dash else first)
    except ValueError:
        raise ValueError(f"must be a version or several (3-7), got {value!r}") from None


def _choice(argument: Argument, value: object) -> str:
    if value not in argument.choices:
        raise ValueError(f"must be {' or '.join(argument.choices)}, got {value!r}")
    return str(value)


def _flag(_: Argument, value: object) -> bool:
    known = value if isinstance(value, bool) else _TRUTHS.get(str(value).strip().lower())
    if known is None:
        raise ValueError(f"must be yes or no, got {value!r}")
    return known


def _landed(_: Argument, value: object) -> bool | dict[str, bool]:
    if isinstance(value, bool):
        return value
    return landed_of(str(value))


def landed_of(text: str) -> bool | dict[str, bool]:
    """Parse a person's answer: for all writes (``yes``), or for each by name (``kept=yes,gone=no``).

    Raises:
        ValueError: It is neither.
    """
    if text.strip().lower() in _TRUTHS:
        return _TRUTHS[text.strip().lower()]
    answers: dict[str, bool] = {}
    for part in text.split(","):
        name, _, answer = (piece.strip() for piece in part.partition("="))
        if not name or answer.lower() not in _TRUTHS or name in answers:
            raise ValueError(f"expected yes, no, or WRITE=yes|no for each write once, got {text!r}")
        answers[name] = _TRUTHS[answer.lower()]
    return answers


def _target(_: Argument, value: object) -> int | str:
    # a DAG file declares actions, and needs nothing of this
    from airflow_provider_fds.stream.actions.rewind_target import parse_target

    return parse_target(value)


_PARSERS: Final[dict[str, Callable[[Argument, object], Any]]] = {
    "number": _number,
    "versions": _versions,
    "target": _target,
    "text": lambda _, value: str(value),
    "choice": _choice,
    "flag": _flag,
    "landed": _landed,
}

_LANDED: Final = Argument(
    "landed",
    "landed",
    "for a user job or function: whether the planned batch's rows are already in its table; for a function, one answer "
    "per write",
    metavar="yes|no|WRITE=yes,WRITE=no",
)
_SINK_ROWS: Final = Argument(
    "sink_rows",
    "choice",
    "what becomes of the rows in the sink that are read again: keep leaves them; delete removes exactly them, which "
    "needs provenance and is not for --to start; empty removes all (with scd=2: closes the current ones); required if "
    "committed rows are read again",
    choices=("keep", "delete", "empty"),
)
_FORCE_SINK: Final = Argument(
    "force_sink", "flag", "with sink-rows delete or empty: proceed even if others have written to the sink"
)
_REPLACE: Final = Argument("replace", "flag", "replace a request that no run has started on yet")
_LOAD_SKIPPED: Final = Argument(
    "load_skipped",
    "flag",
    "with --to start: load the rows of skipped versions, too, if the stream begins with a snapshot",
)
_FORCE_RESUME: Final = Argument(
    "force", "flag", "proceed although the position was exported for a query, which then must not be started"
)
_FORCE_UNLOCK: Final = Argument("force", "flag", "release them although their owner is known to be running")
_FORCE: Final = Argument("force", "flag", "proceed even if the owner of the planned batches appears to be running")
#: Arguments of all actions that request an epoch.
FOR_ALL_REQUESTS: Final = (_REPLACE, _FORCE)

#: By name, in the order in which help and forms show them.
ACTIONS: Final[dict[str, OperatorAction]] = {
    action.name: action
    for action in (
        OperatorAction(
            "rewind",
            "read a stream again from an earlier position, or from its start",
            "A new epoch of the stream begins at the version, at the first commit at or after the time, where the "
            "batch began, or at the start options, as a new stream would. The next run closes the old epoch in the "
            "sink first, so that it can add no more rows. Rows that the sink already has are loaded again: the "
            "preview shows how many, and you say what becomes of those.",
            (
                Argument(
                    "to",
                    "target",
                    "where to read from: a version (inclusive); a time, for the first commit at or after it (UTC if it "
                    "has no zone); batch:N, for where that batch began; or start, for the stream's start options",
                    metavar="VERSION|TIME|batch:N|start",
                    is_required=True,
                ),
                _SINK_ROWS,
                _FORCE_SINK,
                _LOAD_SKIPPED,
                _LANDED,
                *FOR_ALL_REQUESTS,
            ),
        ),
        OperatorAction(
            "replan",
            "discard planned batches and plan again from the committed position, perhaps for a new sink",
            "Use it when a planned batch cannot be loaded (too large for the cluster, a missing file). The next run "
            "closes the old epoch in the sink, finds out which of the planned batches are there, and continues after "
            "them. With a new sink, the stream keeps its position, its next run binds it to the sink that the run "
            "uses, and earlier rows stay where they are.",
            (
                _LANDED,
                Argument("new_sink", "flag", "let the next run bind the stream to the sink that it uses"),
                *FOR_ALL_REQUESTS,
            ),
        ),
        OperatorAction(
            "skip",
            "go on without the rows of a version",
            "The stream loads nothing from the version, or from the range of versions (`3-7`), whatever reads them "
            "later: a rewind, a fork or a backfill leaves them out, too. A change of the schema at the version still "
            "has to be accepted. The history records this with the reason.",
            (Argument("version", "versions", "a version of the table, or a range", metavar="N[-M]", is_required=True),),
        ),
        OperatorAction(
            "accept",
            "go on with a change of the schema, with a batch as it is, or with a moved table",
            "A version that stops the stream by its schema: the schema takes effect, earlier rows are read with the "
            "old one, and the rows of the version are loaded. A batch whose rows in the sink differ from the planned "
            "rows: compare sink and source first; this accepts the batch as it is, and the next run continues. A batch "
            "that leaves out more rows than max_rejected allows: the next run loads it without these. A table "
            "that its catalog has moved to another folder: the stream goes on there, if the commit before its position "
            "is the same there.",
            (
                Argument(
                    "version",
                    "number",
                    "the version whose schema stops the stream",
                    metavar="N",
                    excludes="accepted",
                ),
                Argument("batch", "number", "id of the batch that stops the stream", metavar="N", excludes="accepted"),
                Argument(
                    "interval",
                    "text",
                    "the blocked data interval, as shown in the message; times without a zone are UTC",
                    metavar="START/END",
                    excludes="accepted",
                ),
                Argument(
                    "moved_to",
                    "text",
                    "the folder to which its catalog has moved the table, as shown in the message",
                    metavar="URI",
                    excludes="accepted",
                ),
            ),
        ),
        OperatorAction(
            "hold",
            "put a stream on hold",
            "Until `fds resume`, nothing new is planned, and no requested epoch begins. Batches that are already "
            "planned may still be loaded.",
            asks=False,
        ),
        OperatorAction(
            "resume",
            "let a stream continue after a hold or a quarantine",
            "After a quarantine, the next run checks the version again, with the stream's options at that time. A "
            "stream whose position was exported with `fds admin export-checkpoint` is not resumed.",
            (_FORCE_RESUME,),
            asks=False,
        ),
        OperatorAction(
            "unlock",
            "release planned batches whose run is gone",
            "Planned batches belong to one run. If that run is gone and FDS cannot detect it (it ran on another "
            "machine, or in an Airflow installation that no longer exists), this lets the next run take them over. The "
            "preview shows what is known of the run.",
            (_FORCE_UNLOCK,),
        ),
        OperatorAction(
            "transfer",
            "transfer a stream to another Airflow installation",
            "A stream belongs to one Airflow installation. After a relocation, this transfers it to the one named by "
            "--deployment. Make sure that the old one no longer runs it.",
            is_cli_only=True,
        ),
        OperatorAction(
            "retire",
            "end a stream permanently",
            "No run can use the stream anymore, and its name cannot be used again. Nothing is removed.",
        ),
        OperatorAction(
            "recover",
            "show what sink, ledger, checkpoint and Airflow record about a stream, and repair it",
            "Show what the sink's commits, the ledger in staging, the checkpoint and (--airflow) Airflow's "
            "asset events record. If the ledger was lost (name the source with --table), is older than the sink or "
            "has unreadable entries, it is continued after the last batch in the sink. Unreadable entries are listed "
            "with what is lost. A checkpoint file that is missing or does not match is written again from the ledger; "
            "a Variable that does not match is removed, and the next run writes it.",
            (
                Argument(
                    "sink_uri",
                    "text",
                    "the sink to read (default: the one in the ledger): a Delta table, or a table of PostgreSQL as "
                    "postgres://CONN_ID/SCHEMA.TABLE, with ?mode=merge if the stream merges",
                    metavar="URI",
                    spelling="sink",
                ),
                Argument(
                    "table", "text", "URI of the source table; only needed if the stream has no ledger", metavar="URI"
                ),
                Argument(
                    "checkpoint", "text", "file that holds the committed offset", metavar="FILE", is_cli_only=True
                ),
                Argument(
                    "airflow",
                    "flag",
                    "also read the Variable and the asset events from Airflow's database",
                    is_cli_only=True,
                ),
            ),
            needs_ledger=False,
        ),
    )
}

#: Arguments of all actions by name; if two actions spell one differently, the wider form.
ARGUMENTS: Final[dict[str, Argument]] = {
    argument.name: argument for action in reversed(ACTIONS.values()) for argument in action.arguments
}
