"""``DeltaStreamMoveOperator``: a person moves a stream from the UI, with Airflow's own permissions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from airflow.providers.common.compat.sdk import BaseOperator

from airflow_provider_fds.delta.log import DeltaLog
from airflow_provider_fds.delta.open import open_storage
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.hooks.failures import task_failures
from airflow_provider_fds.hooks.settings import deployment, staging_uri
from airflow_provider_fds.hooks.storage import storage_options
from airflow_provider_fds.ledger.log import Ledger
from airflow_provider_fds.operators.owner import owner_is_running, task_actor
from airflow_provider_fds.stream.function_writes import landed_of
from airflow_provider_fds.stream.moving import Mover, is_answered, perform, readable, readable_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_provider_fds.stream.moving import Move

#: Move -> the arguments it takes, and how it is worked out.
_MOVES: Final[dict[str, tuple[tuple[str, ...], Callable[[Mover, dict[str, Any]], Move]]]] = {
    "rewind": (
        ("to_version", "to_timestamp", "to_batch", "landed", "delete", "sink", "force_sink"),
        lambda mover, given: mover.rewind(
            to_version=_number(given, "to_version"),
            to_timestamp=given.get("to_timestamp"),
            to_batch=_number(given, "to_batch"),
            landed=_landed(given),
            delete=bool(_truth(given, "delete")),
            sink=given.get("sink"),
            force_sink=bool(_truth(given, "force_sink")),
        ),
    ),
    "reset": (
        ("sink", "force_sink"),
        lambda mover, given: mover.reset(sink=given.get("sink"), force_sink=bool(_truth(given, "force_sink"))),
    ),
    "replan": (("landed",), lambda mover, given: mover.replan(landed=_landed(given))),
    "rebind": (("landed",), lambda mover, given: mover.rebind(landed=_landed(given))),
    "skip": (("version",), lambda mover, given: mover.skip(_needed(given, "version"))),
    "acknowledge": (("version",), lambda mover, given: mover.acknowledge(_needed(given, "version"))),
    "accept": (("batch",), lambda mover, given: mover.accept(_needed(given, "batch"))),
    "hold": ((), lambda mover, _: mover.hold()),
    "resume": ((), lambda mover, _: mover.resume()),
    "retire": ((), lambda mover, _: mover.retire()),
}


class DeltaStreamMoveOperator(BaseOperator):
    """Does to a stream what the commands of ``fds`` do: rewind, reset, re-plan and so on.

    **Contract.** One ledger entry, with this task as the one who asked and ``why`` as the reason; a retry or a clear of
    the task does not make it again. Where the move begins a new epoch, the stream's next run closes the old one in the
    sink first. The log shows where the stream stood, where it stands, and what that means for the rows in the sink. The
    XCom is ``{"stream", "before", "after", "notes"}``.

    **If it is misused.** Run with ``replaces=False`` while another request waits for its run: refused, and shown. Who
    may trigger the DAG may move the stream: give it to those who may, by Airflow's permissions.

    All arguments may be templates; empty texts and ``None`` are not given.

    Args:
        stream: Name of the stream.
        move: ``rewind``, ``reset``, ``replan``, ``rebind``, ``skip``, ``acknowledge``, ``accept``, ``hold``, ``resume``
            or ``retire``.
        why: The reason; it stays in the history.
        to_version: For ``rewind``: first version to read (inclusive).
        to_timestamp: For ``rewind``: read from the first commit at or after this time, UTC unless it carries a zone.
        to_batch: For ``rewind``: read from the start of this batch.
        version: For ``skip`` and ``acknowledge``.
        batch: For ``accept``.
        landed: For ``rewind``, ``replan`` and ``rebind`` with a batch of a job or function of your own on its way:
            whether its rows are there, ``yes`` or ``no``; of a function by write, ``kept=yes,gone=no``.
        delete: For ``rewind``: let the stream's next run delete the rows that are read again, in the transaction that
            closes the old epoch. The sink needs ``provenance=True``.
        sink: For ``rewind`` and ``reset``: ``empty`` lets the next run empty the sink in that transaction (with
            ``scd=2`` it closes the current rows), ``keep`` leaves its rows. A sink that merges needs one of them.
        force_sink: With ``delete`` or ``sink="empty"``: although others have written to the sink.
        replaces: Give up a request that waits to be opened for this one.
        staging: Staging folder of the stream, ``None``: as configured.
        storage_conn_id: Airflow connection for staging and table.
    """

    template_fields: Sequence[str] = (
        *("stream", "move", "why", "to_version", "to_timestamp", "to_batch", "version", "batch", "landed"),
        *("delete", "sink", "force_sink", "replaces", "staging", "storage_conn_id"),
    )
    ui_color = "#f9e4c8"

    def __init__(
        self,
        *,
        stream: str,
        move: str,
        why: str,
        to_version: int | str | None = None,
        to_timestamp: str | None = None,
        to_batch: int | str | None = None,
        version: int | str | None = None,
        batch: int | str | None = None,
        landed: bool | str | None = None,
        delete: bool | str | None = None,
        sink: str | None = None,
        force_sink: bool | str | None = None,
        replaces: bool | str = False,
        staging: str | None = None,
        storage_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.stream = stream
        self.move = move
        self.why = why
        self.to_version = to_version
        self.to_timestamp = to_timestamp
        self.to_batch = to_batch
        self.version = version
        self.batch = batch
        self.landed = landed
        self.delete = delete
        self.sink = sink
        self.force_sink = force_sink
        self.replaces = replaces
        self.staging = staging
        self.storage_conn_id = storage_conn_id

    def execute(self, context: Any) -> dict[str, Any]:
        """Make the move. Returns what it was, in words."""
        with task_failures():
            given = self._given()
            ti, name = context["ti"], deployment()
            ledger = self._ledger()
            request_id = f"{ti.dag_id}/{ti.run_id}/{ti.task_id}[{ti.map_index}]"
            if is_answered(ledger, request_id):
                self.log.info("This run has moved stream %s already; nothing is done again.", self.stream)
                return {"stream": self.stream, "before": None, "after": None, "notes": []}
            table = open_storage(ledger.state.table, storage_options(self.storage_conn_id or None, ledger.state.table))
            mover = Mover(
                ledger,
                self.why,
                replaces=bool(_truth({"replaces": self.replaces}, "replaces")),
                log=readable(DeltaLog(table)),
                sink_log=readable_sink(
                    ledger.state, lambda uri: open_storage(uri, storage_options(self.storage_conn_id or None, uri))
                ),
                owner_is_running=owner_is_running(ti, name),
                open_table=lambda uri: open_storage(uri, storage_options(self.storage_conn_id or None, uri)),
            )
            asked = _MOVES[self.move][1](mover, given)
            self.log.info("%s", asked.words())
            self.log.info("%s", perform(ledger, asked, task_actor(ti, name), request_id))
        return {"stream": self.stream, "before": asked.before, "after": asked.after, "notes": list(asked.notes)}

    def _given(self) -> dict[str, Any]:
        """Return the arguments that were given; all that is wrong with them is one error."""
        names = ("to_version", "to_timestamp", "to_batch", "version", "batch", "landed", "sink")
        given = {name: getattr(self, name) for name in names if getattr(self, name) not in (None, "", "None")}
        # a form sends what was not ticked, too
        flags = {name: getattr(self, name) for name in ("delete", "force_sink")}
        given |= {
            name: True for name, value in flags.items() if value not in (None, "", "None") and _truth(flags, name)
        }
        problems = []
        if self.move not in _MOVES:
            problems.append(f"move must be one of {', '.join(_MOVES)}, got {self.move!r}.")
        else:
            problems += [
                f"{name} has no meaning for {self.move}." for name in given if name not in _MOVES[self.move][0]
            ]
        problems += [f"{name} must not be empty." for name in ("stream", "why") if not str(getattr(self, name)).strip()]
        if problems:
            raise ConfigurationError(*problems, subject="DeltaStreamMoveOperator")
        return given

    def _ledger(self) -> Ledger:
        staging = staging_uri(self.staging or None, self.stream)
        storage = open_storage(staging, storage_options(self.storage_conn_id or None, staging))
        ledger = Ledger(storage, self.stream, deployment=deployment())
        if ledger.find().phase == "empty":
            raise ConfigurationError(
                f"there is no stream {self.stream!r} in {staging}. Check the name, and the staging folder of the stream"
            )
        return ledger


def _number(given: dict[str, Any], name: str) -> int | None:
    if name not in given:
        return None
    try:
        return int(given[name])
    except (TypeError, ValueError):
        raise ConfigurationError(f"DeltaStreamMoveOperator: {name} must be a number, got {given[name]!r}") from None


def _needed(given: dict[str, Any], name: str) -> int:
    number = _number(given, name)
    if number is None:
        raise ConfigurationError(f"DeltaStreamMoveOperator: {name} is needed")
    return number


def _landed(given: dict[str, Any]) -> bool | dict[str, bool] | None:
    value = given.get("landed")
    if value is None or isinstance(value, bool):
        return value
    try:
        return landed_of(str(value))
    except ValueError as error:
        raise ConfigurationError(f"DeltaStreamMoveOperator: landed: {error}") from None


def _truth(given: dict[str, Any], name: str) -> bool | None:
    value = given.get(name)
    if value is None or isinstance(value, bool):
        return value
    known = {"yes": True, "true": True, "no": False, "false": False}.get(str(value).strip().lower())
    if known is None:
        raise ConfigurationError(f"DeltaStreamMoveOperator: {name} must be yes or no, got {value!r}")
    return known
