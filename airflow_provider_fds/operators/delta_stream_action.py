"""``DeltaStreamActionOperator``: rewind, hold or repair a stream from the UI, with Airflow's own permissions."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.common.compat.sdk import BaseOperator, Param

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.hooks.failures import task_failures
from airflow_provider_fds.hooks.settings import deployment, staging_uri
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.stream.actions.operator_actions import ACTIONS, ARGUMENTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.ledger.staging.log import Ledger
    from airflow_provider_fds.stream.actions.operator_actions import OperatorAction

#: Actions for a task; the other actions concern the local machine.
_ACTIONS: Final = {name: action for name, action in ACTIONS.items() if not action.is_cli_only}
#: Another spelling -> the action.
_OTHER_NAMES: Final = {"adopt": "unlock", "rebind": "replan with new_sink=True", "reset": "rewind with to='start'"}
_ARGUMENTS: Final = tuple(
    dict.fromkeys(a.name for action in _ACTIONS.values() for a in action.arguments if not a.is_cli_only)
)


class DeltaStreamActionOperator(BaseOperator):
    """Runs the ``fds`` commands that change a stream, such as rewind or replan, as a task.

    The task's log shows the stream's position before and after the action, and what the action means for the rows
    in the sink.

    Contract:
        - The action is one ledger entry, with this task as the actor and ``why`` as the reason. A retry or a clear of
          the task does not repeat it.
        - If the action begins a new epoch, the stream's next run first closes the old one in the sink.
        - The XCom is ``{"stream", "before", "after", "notes"}``.

    Misuse:
        - While an earlier request is still pending, an action without ``replace`` is refused, and the error shows that
          request.
        - Anyone who may trigger the DAG may act on the stream: restrict the DAG with Airflow's permissions.

    All arguments may be templates. Empty strings and ``None`` count as not given.

    Args:
        stream: Name of the stream.
        action: ``rewind``, ``replan``, ``skip``, ``accept``, ``hold``, ``resume``, ``unlock``, ``retire`` or
            ``recover``, as the commands of ``fds``.
        why: The reason; it stays in the history.
        to: For ``rewind``: the first version to read (inclusive); a time, for the first commit at or after it, UTC
            unless it carries a zone; ``batch:N``, for the start of that batch; or ``start``, for the stream's start
            options.
        version: For ``skip`` and ``accept``: version of the table; ``skip`` also accepts a range such as ``3-7``.
        batch: For ``accept``: the blocked batch.
        interval: For ``accept``: the blocked data interval, as shown in the error message.
        moved_to: For ``accept``: the folder to which its catalog has moved the table, as shown in the error message, or
            the table's new name. It is read as by a run: with the catalog's credentials, if it gives some.
        landed: For ``rewind`` and ``replan`` while a batch of your own job or function is under way:
            whether its rows are in the sink, ``yes`` or ``no``; for a function, one answer per write:
            ``kept=yes,gone=no``.
        sink_rows: For ``rewind``, required if committed rows are read again: what becomes of those in the sink.
            ``delete`` lets the next run delete exactly them, in the transaction that closes the old epoch; the sink
            needs ``provenance=True``, and it is not for ``to="start"``. ``empty`` lets it empty the sink in that
            transaction (with ``scd=2`` it closes the current rows). ``keep`` leaves them.
        force_sink: With ``sink_rows="delete"`` or ``"empty"``: proceed even if others have written to the sink.
        load_skipped: With ``to="start"``: load the rows of skipped versions, too, if the stream begins with a snapshot.
        new_sink: For ``replan``: let the next run bind the stream to the sink that it uses.
        replace: Replace a pending request that no run has started on yet.
        force: For a batch of your own job or function: proceed even if its owner appears to be running. For
            ``unlock``: release the batches although their owner is known to be running.
        sink_uri: For ``recover``: the sink to read; ``None``: the one in the ledger.
        table: For ``recover`` of a stream without a ledger: URI of the source.
        staging: Staging folder of the stream; ``None``: as configured.
        storage_conn_id: Airflow connection for staging and table.
    """

    template_fields: Sequence[str] = (*("stream", "action", "why", *_ARGUMENTS, "staging", "storage_conn_id"),)
    ui_color = "#f9e4c8"

    def __init__(
        self,
        *,
        stream: str,
        action: str,
        why: str,
        to: int | str | None = None,
        version: int | str | None = None,
        batch: int | str | None = None,
        interval: str | None = None,
        moved_to: str | None = None,
        landed: bool | str | None = None,
        sink_rows: str | None = None,
        force_sink: bool | str | None = None,
        load_skipped: bool | str | None = None,
        new_sink: bool | str | None = None,
        replace: bool | str | None = None,
        force: bool | str | None = None,
        sink_uri: str | None = None,
        table: str | None = None,
        staging: str | None = None,
        storage_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.stream = stream
        self.action = action
        self.why = why
        self.to = to
        self.version = version
        self.batch = batch
        self.interval = interval
        self.moved_to = moved_to
        self.landed = landed
        self.sink_rows = sink_rows
        self.force_sink = force_sink
        self.load_skipped = load_skipped
        self.new_sink = new_sink
        self.replace = replace
        self.force = force
        self.sink_uri = sink_uri
        self.table = table
        self.staging = staging
        self.storage_conn_id = storage_conn_id

    def execute(self, context: Any) -> dict[str, Any]:
        """Perform the action. Returns a description of it."""
        from airflow_provider_fds.hooks.places import open_table, places_for
        from airflow_provider_fds.operators.run.owner import owner_runs, task_actor
        from airflow_provider_fds.stream.actions.action_builder import ActionBuilder
        from airflow_provider_fds.stream.actions.prepared_action import is_answered, perform
        from airflow_provider_fds.stream.known_tables import open_source, readable, readable_sink

        with task_failures(context):
            self._take_texts()
            action, given = self._asked()
            ti, name = context["ti"], deployment()
            if not action.needs_ledger:
                return self._recover(given, ti, name)
            ledger = self._ledger()
            request_id = f"{ti.dag_id}/{ti.run_id}/{ti.task_id}[{ti.map_index}]"
            if is_answered(ledger, request_id):
                self.log.info(
                    "This run has already performed the action on stream %s; it is not repeated.", self.stream
                )
                return {"stream": self.stream, "before": None, "after": None, "notes": []}
            open_one = partial(open_table, self.storage_conn_id or None)
            places = places_for(self.storage_conn_id or None, ledger.state)
            builder = ActionBuilder(
                ledger,
                self.why,
                log=readable(open_source(ledger, places)),
                sink_log=readable_sink(ledger.state, open_one),
                owner_runs=owner_runs(ti, name),
                open_table=open_one,
                places=places,
            )
            asked = action.prepare(builder, given)
            self.log.info("%s", asked.describe())
            self.log.info("%s", perform(ledger, asked, task_actor(ti, name), request_id))
        return {"stream": self.stream, "before": asked.before, "after": asked.after, "notes": list(asked.notes)}

    def _recover(self, given: dict[str, Any], ti: Any, name: str) -> dict[str, Any]:
        """Make the ledger agree with the sink, and the stream's Variable with the ledger."""
        from airflow_provider_fds.checkpoint.variable import VariableCheckpointStore
        from airflow_provider_fds.hooks.databases import grant_database
        from airflow_provider_fds.hooks.places import open_table
        from airflow_provider_fds.ledger.staging.log import Ledger
        from airflow_provider_fds.operators.run.owner import task_actor
        from airflow_provider_fds.stream.actions.recovery_survey import fits, survey

        variable = VariableCheckpointStore(self.stream)
        found = survey(
            Ledger(self._staging(), self.stream, deployment=name),
            self.why,
            open_table=partial(open_table, self.storage_conn_id or None),
            grant_database=grant_database,
            deployment=name,
            checkpoint=variable,
            **given,
        )
        self.log.info("%s", "\n".join(found.lines))
        change = found.prepare()
        done = "the ledger matches the sink; there is nothing to do"
        if change is not None:
            self.log.info("%s", change.describe())
            done = found.perform(change, task_actor(ti, found.owner_of(change)))
        self.log.info("%s", done)
        if not fits(variable, found.ledger):
            variable.write(found.ledger.checkpoint())
            self.log.info("%s was written from ledger entry %d", variable.home, found.ledger.n)
        notes = () if change is None else change.notes
        return {"stream": self.stream, "before": found.lines[0], "after": done, "notes": list(notes)}

    @classmethod
    def form(cls) -> dict[str, Param]:
        """Return the ``params`` of a DAG whose form asks for a stream, an action and its arguments."""
        fields = {
            "stream": Param("", type="string", description="Name of the stream", minLength=1),
            "action": Param("hold", type="string", enum=list(_ACTIONS)),
            "why": Param("", type="string", description="The reason; recorded in the stream's history", minLength=1),
        }
        fields |= {name: _field(name) for name in _ARGUMENTS}
        connection = Param(None, type=["null", "string"], description="Airflow connection of the stream's storage")
        return {**fields, "storage_conn_id": connection}

    @classmethod
    def from_form(cls, **kwargs: Any) -> DeltaStreamActionOperator:
        """Return the task that performs what its DAG's form asks for; ``kwargs`` are those of any operator."""
        return cls(**{name: f"{{{{ params.{name} }}}}" for name in cls.form()}, **kwargs)

    def _take_texts(self) -> None:
        """Turn values back into text that Airflow has made of a template, such as a ticket's number as the reason.

        A DAG may render its templates as native objects. No reader accepts a ledger entry with a number as its reason.
        """
        for name in ("stream", "action", "why"):
            value = getattr(self, name)
            setattr(self, name, "" if value is None else str(value))
        for name in ("staging", "storage_conn_id"):
            value = getattr(self, name)
            setattr(self, name, None if value is None else str(value))

    def _asked(self) -> tuple[OperatorAction, dict[str, Any]]:
        """Return the action and its arguments; reports all problems in one error."""
        problems = [f"{name} must not be empty." for name in ("stream", "why") if not getattr(self, name).strip()]
        action = _ACTIONS.get(self.action)
        if action is None:
            hint = f" It is now {_OTHER_NAMES[self.action]}." if self.action in _OTHER_NAMES else ""
            problems.insert(0, f"action must be one of {', '.join(_ACTIONS)}, got {self.action!r}.{hint}")
        if problems or action is None:
            raise ConfigurationError(*problems, subject="DeltaStreamActionOperator")
        return action, action.parse({name: getattr(self, name) for name in _ARGUMENTS})

    def _staging(self) -> Storage:
        from airflow_provider_fds.hooks.places import open_folder

        return open_folder(self.storage_conn_id or None, staging_uri(self.staging or None, self.stream))

    def _ledger(self) -> Ledger:
        from airflow_provider_fds.ledger.staging.log import Ledger

        storage = self._staging()
        ledger = Ledger(storage, self.stream, deployment=deployment())
        if ledger.find().phase == "empty":
            raise ConfigurationError(
                f"there is no stream {self.stream!r} in {storage.uri}. Check the name, and the staging folder of the "
                "stream",
                reason=Reason.STREAM_NOT_FOUND,
            )
        return ledger


def _field(name: str) -> Param:
    """Return the form field of an argument, with the actions that accept it."""
    argument = ARGUMENTS[name]
    takers = [action.name for action in _ACTIONS.values() if argument.name in {a.name for a in action.arguments}]
    text = f"{', '.join(takers)}: {argument.help}"
    if argument.kind == "flag":
        return Param(default=False, type="boolean", description=text)
    if argument.kind == "choice":
        return Param(None, type=["null", "string"], enum=[None, *argument.choices], description=text)
    either = ["integer", "string"]
    kinds = {"number": ["integer"], "versions": either, "target": either}.get(argument.kind, ["string"])
    return Param(None, type=["null", *kinds], description=text)
