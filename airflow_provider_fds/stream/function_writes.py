"""What a user's function has written of the batches on their way: by its reports, by its tables' logs, by a person.

A function may write several tables. A batch has landed if all its writes have, and not if none has; a batch of which
some writes have landed can only be finished, because a new epoch would load those again or lose the others.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from airflow_provider_fds.batch.location import sql_name
from airflow_provider_fds.batch.spec import TryReport, fence_version, txn_app_id, txn_version
from airflow_provider_fds.delta.log import DeltaLog
from airflow_provider_fds.delta.snapshot import transactions
from airflow_provider_fds.errors import (
    AccessDeniedError,
    ConfigurationError,
    FdsError,
    LedgerError,
    LostPositionError,
    RequestRefusedError,
    TableNotFoundError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow_provider_fds.delta.storage import Storage
    from airflow_provider_fds.ledger.log import Ledger
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.ledger.values import PlannedBatch, SinkBinding
    from airflow_provider_fds.stream.connect import ConnectedStream

_TRUTHS: Final = {"yes": True, "true": True, "no": False, "false": False}

logger = logging.getLogger(__name__)

#: Commits that are read at once, from the newest on down.
_WINDOW: Final = 100

#: Operations after which the rows of a table are not what its commits say.
_BREAKING: Final = ("RESTORE", "CLONE", "CREATE OR REPLACE", "REPLACE")


def landed_of(text: str) -> bool | dict[str, bool]:
    """Return a person's answer: for all writes alike (``yes``), or for each by name (``kept=yes,gone=no``).

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


@dataclass(frozen=True, slots=True)
class WriteFound:
    """The newest transaction of one write in its table.

    Attributes:
        transaction: ``None`` if the table has none of this write, or is not there.
        version: Version of the table that holds it, ``None`` if log cleanup removed that commit.
        is_undone: Whether the table was restored or replaced since, so that its rows may be gone.
    """

    transaction: int | None
    version: int | None = None
    is_undone: bool = False


def find_write(storage: Storage, app_id: str) -> WriteFound:
    """Return the newest transaction of a write, read from the table's own log, however far back it is."""
    log = DeltaLog(storage)
    try:
        newest, earliest = log.latest(), log.earliest()
    except TableNotFoundError:
        return WriteFound(None)
    is_undone = False
    last = newest
    while last >= earliest:
        first = max(earliest, last - _WINDOW + 1)
        for commit in reversed(list(log.commits(first, last))):
            found = [a.txn.version for a in commit.actions if a.txn is not None and a.txn.appId == app_id]
            if found:
                return WriteFound(max(found), commit.version, is_undone)
            operation = (commit.info.operation if commit.info is not None else None) or ""
            is_undone = is_undone or operation.upper().startswith(_BREAKING)
        last = first - 1
    return WriteFound(transactions(log, newest, [app_id]).get(app_id), None, is_undone)


class FunctionWrites:
    """The planned batches of a function, and what is known of their writes.

    Args:
        ledger: The stream's ledger, read to its head.
        open_table: Opens the folder of a table, ``None`` where tables cannot be reached from here.
    """

    def __init__(self, ledger: Ledger, open_table: Callable[[str], Storage] | None) -> None:
        state = ledger.state
        self._ledger = ledger
        self._open = open_table
        self._name = state.name
        self._uuid = state.uuid
        self._sink = _function_of(state)
        self._epoch = state.epoch if state.closed is None else state.closed.epoch
        self._planned = state.planned if state.closed is None else state.closed.planned
        self._position = state.position if state.closed is None else state.closed.position

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the function's writes."""
        return () if self._sink is None else tuple(app_id.partition("#")[2] for app_id in self._sink.app_ids)

    def table_versions(self) -> dict[str, int]:
        """Return the newest version of each table that is named and can be read, -1 of one that is not there."""
        found: dict[str, int] = {}
        for name, uri in ({} if self._sink is None or self._open is None else self._sink.tables).items():
            try:
                assert self._open is not None  # noqa: S101  # said one line above
                found[name] = DeltaLog(self._open(uri)).latest()
            except TableNotFoundError:
                found[name] = -1
            except FdsError:
                continue
        return found

    def end_of_landed(self, landed: bool | Mapping[str, bool] | None) -> str | None:
        """Return where a new epoch goes on, ``None`` for the committed position.

        Args:
            landed: A person's answer for the batch on its way: for all its writes alike, or by name. ``None``: only
                what reports and tables say.

        Raises:
            ConfigurationError: Nobody knows of a write whether it landed, or an answer names a write that is none.
            LedgerError: Some writes of the batch have landed, and others have not.
        """
        returned = self._returned()
        end = self._planned[returned - 1].end if returned else None
        if returned == len(self._planned):
            return end
        batch = self._planned[returned]
        answers = self._answers(batch, landed)
        if all(answers.values()) and (answers or landed is True):
            return batch.end
        if any(answers.values()):
            raise self._half_landed(batch, answers)
        return end

    def loaded_note(self, end: str | None) -> str:
        """Say which of the planned batches count as loaded where a new epoch goes on at ``end``."""
        ends = [batch.end for batch in self._planned]
        if end not in ends:
            return f"None of the {len(ends)} planned batches counts as loaded; their rows are loaded by the new epoch."
        last = self._planned[ends.index(end)]
        first = self._planned[0]
        which = f"batch {first.batch_id}" if first is last else f"batches {first.batch_id} to {last.batch_id}"
        return f"Counted as loaded, and not loaded again: {which}, up to version {last.last_version}."

    def notes(self) -> tuple[str, ...]:
        """Say what nobody can close: writes without a table, into which a driver may write that is still there."""
        sink = self._sink
        if sink is None or not self._planned:
            return ()
        open_ones = [name for name in self.names if name not in sink.tables]
        if not open_ones and self.names:
            return ()
        which = " and ".join(map(repr, open_ones)) or "the function"
        note = (
            f"A driver of a run that is over may still write {which} after this, and FDS cannot keep it from that: it "
            "knows no table of it. Make sure that no Spark application of the stream runs any more, or name the "
            "tables: ForeachBatchSink(…, writes={name: table})."
        )
        return (note,)

    def _returned(self) -> int:
        """Return how many planned batches, from the first on, the function has returned from, as the driver says."""
        for number, batch in enumerate(self._planned):
            folder = self._ledger.folder.try_reports(self._epoch, batch.batch_id)
            if not any(self._says_done(meta.key, batch) for meta in self._ledger.storage.list_after(folder)):
                return number
        return len(self._planned)

    def _says_done(self, key: str, batch: PlannedBatch) -> bool:
        if not key.endswith(".json") or key.endswith((".started.json", ".job.json")):
            return False
        try:
            report = TryReport.from_json(self._ledger.storage.get(key)[0])
        except (FileNotFoundError, TypeError, ValueError):
            return False
        found = (report.uuid, report.epoch, report.batch_id, report.manifest_digest)
        return found == (self._uuid, self._epoch, batch.batch_id, batch.digest) and report.is_done

    def _answers(self, batch: PlannedBatch, landed: bool | Mapping[str, bool] | None) -> dict[str, bool]:
        """Return for each write whether it landed: as a person says, else as its table's log does."""
        given = dict.fromkeys(self.names, landed) if isinstance(landed, bool) else dict(landed or {})
        if unknown := [name for name in given if name not in self.names]:
            raise ConfigurationError(
                f"stream {self._name!r}: --landed names {', '.join(map(repr, unknown))}; the writes of its function "
                f"are {', '.join(map(repr, self.names)) or 'not named'}"
            )
        answers: dict[str, bool] = {}
        for name in self.names:
            answer = given.get(name)
            answer = self._by_its_table(name, batch) if answer is None else answer
            if answer is not None:
                answers[name] = answer
        missing = [name for name in self.names if name not in answers]
        if missing or (not self.names and landed is None):
            raise self._ask(batch, missing)
        return answers

    def _by_its_table(self, name: str, batch: PlannedBatch) -> bool | None:
        uri = None if self._sink is None else self._sink.tables.get(name)
        if uri is None or self._open is None:
            return None
        try:
            found = find_write(self._open(uri), txn_app_id(self._uuid, write=name))
        except FdsError:
            return None
        has_landed = found.transaction is not None and found.transaction >= txn_version(self._epoch, batch.batch_id)
        # whether rows are there that came before a RESTORE only a person can say
        return None if has_landed and found.is_undone else has_landed

    def _ask(self, batch: PlannedBatch, missing: Sequence[str]) -> ConfigurationError:
        sink = "the function" if self._sink is None else self._sink.words()
        question = ",".join(f"{name}=yes|no" for name in missing) or "yes, or --landed no"
        return ConfigurationError(
            f"stream {self._name!r}: batch {batch.batch_id} (versions {batch.first_version} to {batch.last_version}) "
            f"was handed to {sink}, and no table tells which of its writes landed. Look into your tables, and say it: "
            f"--landed {question}"
        )

    def _half_landed(self, batch: PlannedBatch, answers: Mapping[str, bool]) -> LedgerError:
        there = ", ".join(repr(name) for name, landed in answers.items() if landed)
        lacking = ", ".join(repr(name) for name, landed in answers.items() if not landed)
        state = self._ledger.state
        none = ",".join(f"{name}=no" for name in answers)
        every = ",".join(f"{name}=yes" for name in answers)
        finish = (
            "The next run of the stream finishes the batch, with a repaired function if need be. "
            if state.closed is None
            else ""
        )
        manifest = f"{self._ledger.storage.uri}/{self._ledger.folder.below(batch.manifest)}"
        return LedgerError(
            f"stream {self._name!r}: of batch {batch.batch_id} (versions {batch.first_version} to "
            f"{batch.last_version}) {there} has landed and {lacking} has not; a new epoch would load the one again or "
            f"lose the other. {finish}Otherwise take its rows out of {there} and answer --landed {none}, or write "
            f"{lacking} yourself, from the rows of {manifest}, and answer --landed {every}",
            table=state.table,
        )


def fence_problem(connected: ConnectedStream, state: StreamState, fenced: Sequence[str]) -> str | None:
    """Say what the tables' logs have against the report of a fence, ``None`` if nothing.

    Args:
        connected: The stream.
        state: Its state: an epoch is requested.
        fenced: Names of the writes whose tables hold the fence, by the report.
    """
    tables = {} if state.fence_sink is None else state.fence_sink.tables
    if unknown := [name for name in fenced if name not in tables]:
        return f"it names {', '.join(map(repr, unknown))}, of which no table is known"
    for name, uri in tables.items():
        storage = connected.open_sink(uri)
        try:
            found = find_write(storage, txn_app_id(state.uuid, write=name)).transaction
            is_there = found is not None or _is_there(storage)
        except (AccessDeniedError, ConfigurationError, RequestRefusedError):
            # this worker may not read the table
            continue
        if name in fenced and found != fence_version(state.epoch):
            return f"the newest transaction of write {name!r} in {uri} is {found}, not this fence"
        if name not in fenced and is_there:
            return f"{uri} is there now, and is not fenced"
        if name not in fenced:
            logger.warning(
                "stream %s: write %r has no table at %s yet, so nothing keeps a driver of an older epoch from creating "
                "it. Make sure that no Spark application of the stream runs any more",
                state.name,
                name,
                uri,
            )
    return None


def _is_there(storage: Storage) -> bool:
    try:
        DeltaLog(storage).latest()
    except TableNotFoundError:
        return False
    return True


def refuse_late_writes(connected: ConnectedStream, state: StreamState) -> None:
    """Refuse to begin an epoch while a table has a write of the closed one that came after the request.

    Whoever asked for the epoch was told what had landed by then. The fence is in the tables now, so nothing comes after
    this.

    Raises:
        LedgerError: Names the write and its version, and the way on.
    """
    sink, request = state.fence_sink, state.request
    if sink is None or request is None:
        return
    for name, uri in sink.tables.items():
        since = request.table_versions.get(name)
        if since is None:
            continue
        app_id = txn_app_id(state.uuid, write=name)
        for version, transaction in _writes_after(DeltaLog(connected.open_sink(uri)), since, app_id):
            if transaction >= fence_version(state.epoch):
                continue
            raise LedgerError(
                f"stream {state.name!r}: after epoch {state.epoch} was asked for, a driver of the epoch before wrote "
                f"{name!r} of batch {(transaction & 0xFFFFFFFF) - 1} (version {version} of {uri}). Take these rows out "
                f"(RESTORE TABLE {sql_name(uri)} TO VERSION AS OF {version - 1}, if nothing else was written since, or "
                f"a DELETE), then ask again: `fds {request.reason} {state.name} --replace --why …`, with --landed for "
                "what your tables have then",
                table=state.table,
            )


def _writes_after(log: DeltaLog, since: int, app_id: str) -> list[tuple[int, int]]:
    """Return version and transaction of the commits after ``since`` (exclusive) under an application id."""
    try:
        newest = log.latest()
        commits = log.commits(since + 1, newest) if newest > since else iter(())
        return [
            (commit.version, action.txn.version)
            for commit in commits
            for action in commit.actions
            if action.txn is not None and action.txn.appId == app_id
        ]
    except (LostPositionError, TableNotFoundError):
        # gone, or cleaned up within the time between a request and its run
        return []


def _function_of(state: StreamState) -> SinkBinding | None:
    sink = state.sink or state.fence_sink
    return sink if sink is not None and sink.is_function else None


__all__ = ["FunctionWrites", "WriteFound", "fence_problem", "find_write", "landed_of", "refuse_late_writes"]
