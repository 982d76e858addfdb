"""A stream with its connections: its table, staging, ledger and checkpoint."""

from __future__ import annotations

import logging
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow_provider_fds.batch.location import check_table_uri, spark_uri
from airflow_provider_fds.delta.listed_log import listed_once
from airflow_provider_fds.delta.reader.known_states import KnownStates
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.storage.open import canonical_uri, open_place, open_storage
from airflow_provider_fds.errors import (
    CheckpointError,
    ConfigurationError,
    FdsError,
    LedgerError,
    TableNotFoundError,
)
from airflow_provider_fds.fault_points import reach
from airflow_provider_fds.ledger.entries.epoch_entries import Named
from airflow_provider_fds.ledger.layout import StreamFolder
from airflow_provider_fds.ledger.staging.log import Ledger
from airflow_provider_fds.places import Paths, Place
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.schemes import PATH_SAFE
from airflow_provider_fds.source.offset import Offset

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from airflow_provider_fds.batch.sink.loaded_streams import Loaded
    from airflow_provider_fds.checkpoint.store import CheckpointStore
    from airflow_provider_fds.delta.reader.snapshot import FrozenSnapshot
    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.ledger.entries.action import BaseAction
    from airflow_provider_fds.ledger.owner import Actor, Owner
    from airflow_provider_fds.ledger.position import Checkpoint
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.places import Places
    from airflow_provider_fds.source.options.schema_policy import Rules
    from airflow_provider_fds.stream.declaration.delta_stream import DeltaStream

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StreamContext:
    """What a stream is given from outside: credentials, staging, checkpoint, and who is asking.

    Attributes:
        places: Finds tables, with the credentials for them.
        staging_uri: URI or path of the staging folder.
        staging_options: Storage options of staging (``delta/storage/open.py``), including credentials.
        checkpoints: Where the committed offset is kept; ``None`` keeps it in the ledger only.
        deployment: Name of this Airflow installation.
        actor: Who writes the entries.
        owner: The run that works on the batches.
        owner_is_running: Returns whether another owner still runs. Called before its batches are taken over.
        sink_places: Finds the tables of the sink; ``None``: as ``places``.
        schema_changes: Rules of the installation for changes of the schema (``[fds] on_schema_change``).
        run_since: Earliest time at which the asking run can have begun; older entries are not searched for its work.
        grant_database: Lets this process, and the drivers that it starts, open the database of a connection.
    """

    staging_uri: str
    deployment: str
    actor: Actor
    owner: Owner
    owner_is_running: Callable[[Owner], bool]
    places: Places = field(default=Paths(), repr=False)
    staging_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    sink_places: Places | None = field(default=None, repr=False)
    checkpoints: CheckpointStore | None = None
    schema_changes: Rules = ()
    run_since: datetime | None = None
    grant_database: Callable[[str | None], object] = field(default=lambda _conn_id: None, repr=False)

    def open_table(self, table: str) -> Storage:
        """Return the storage of a source table."""
        return self.open_found(self.places.resolve(table))

    def open_found(self, place: Place) -> Storage:
        """Return the storage of a table that was just found."""
        return open_place(place)

    def open_staging(self) -> Storage:
        """Return the storage of the staging folder."""
        return open_storage(self.staging_uri, self.staging_options)


class ConnectedStream:
    """The opened parts of a stream, and the state of its ledger as last read.

    Attributes:
        stream: The stream.
        context: Its context.
        table: Storage of the source table.
        staging: Storage of the staging folder.
        log: The table's transaction log.
        ledger: The stream's ledger.
        folder: Keys of the stream in staging.
    """

    def __init__(
        self,
        stream: DeltaStream,
        context: StreamContext,
        *,
        is_declared: bool = True,
        staging: Storage | None = None,
    ) -> None:
        self.stream = stream
        self.context = context
        #: Whether ``stream`` has the options of its declaration; ``False`` if only its ledger is known.
        self.is_declared = is_declared
        #: Where the table is, as its catalog said when the stream was connected.
        self.place = place = _resolved(stream, context)
        for uri in (place.uri, context.staging_uri):
            _check_uri(uri)
        self.table: Storage = listed_once(open_place(place))
        self.staging: Storage = context.open_staging() if staging is None else staging
        _refuse_nested(self.table.uri, self.staging.uri)
        self._known = KnownStates()
        self.log = DeltaLog(self.table, self._known)
        self.ledger = Ledger(self.staging, stream.name, deployment=context.deployment)
        self.folder = StreamFolder(stream.name)
        #: Tables already searched for traces of an earlier stream of this name.
        self.searched: set[str] = set()
        #: Those of them that did not exist.
        self.missing: set[str] = set()
        #: What streams have loaded into a sink that was read in this session.
        self.loaded_in: dict[str, Loaded] = {}
        #: The warning about a start option that has no effect, or ``None`` without such an option.
        self.start_note: str | None = None
        #: The warning about options that take effect after the planned batches, or ``None`` without such options.
        self.options_note: str | None = None
        #: Number of the ledger entry by which this session has found a quarantine, or ``None``.
        self.quarantined_at: int | None = None
        self._shown: Checkpoint | None = None
        self._is_just_read = False

    @property
    def state(self) -> StreamState:
        """The state as last read or written; :meth:`load` reads new entries."""
        return self.ledger.state

    def load(self) -> StreamState:
        """Read checkpoint and ledger and check that they belong together and to this stream; later, read new entries.

        Raises:
            CheckpointError: Checkpoint and ledger disagree.
            LedgerError: The ledger belongs to another table or deployment, or cannot be read.
        """
        if self._is_just_read:
            self._is_just_read = False
            return self.ledger.state
        if self.ledger.n >= 0:
            return self.ledger.refresh()
        checkpoints = self.context.checkpoints
        self._shown = None if checkpoints is None else self._read(checkpoints)
        if checkpoints is None or (self._shown is None and not checkpoints.is_kept):
            state = self.ledger.find()
        else:
            try:
                state = self.ledger.load(self._shown)
            except CheckpointError as error:
                if not error.can_be_discarded:
                    raise
                raise CheckpointError(
                    f"{error}. If it was edited or imported by mistake: {checkpoints.discard}; the next run takes the "
                    "position from the ledger and writes the checkpoint again",
                    can_be_discarded=True,
                ) from None
        if self.ledger.source is not None:
            self._known.add(self.ledger.source)
        reach("ledger.read")
        if state.phase != "empty" and state.table != self.table.uri:
            raise _of_another_table(state, self.place, self.table.uri)
        return state

    def _read(self, checkpoints: CheckpointStore) -> Checkpoint | None:
        """Return the checkpoint; without one that can be read, the ledger has the position.

        Raises:
            CheckpointError: The value is not a checkpoint, and stays in its home until a person removes it.
        """
        try:
            return checkpoints.read()
        except CheckpointError as error:
            if checkpoints.is_kept:
                raise
            logger.warning(
                "Stream %s: %s. The ledger decides: its position is used, and the checkpoint is written again.",
                self.stream.name,
                error,
            )
            return None

    def use(self, ledger: Ledger) -> None:
        """Continue with a ledger of this stream that was just read.

        The next :meth:`load` returns its state as it is, later ones read new entries only.
        """
        self.ledger = ledger
        self._is_just_read = True
        if ledger.source is not None:
            self._known.add(ledger.source)

    def load_to_work(self) -> StreamState:
        """Like :meth:`load`; also write the checkpoint again if a run died before it could."""
        state = self.load()
        if state.phase != "empty" and (self._shown is None or self._shown.n < self.ledger.n):
            self.show_checkpoint()
        return state

    def record_name(self) -> StreamState:
        """Record the name by which the table was found, and its id in the catalog, if the ledger has others."""
        place, conn_id = self.place, self.stream.catalog_conn_id
        if not place.name or conn_id is None:
            return self.state
        return self.execute(Named(connection=conn_id, name=place.name, table_id=place.table_id))

    def execute(self, action: BaseAction) -> StreamState:
        """Propose one action to the ledger, then show the new position in the checkpoint."""
        self._remember_source()
        entry = self.ledger.execute(action, self.context.actor)
        if entry is not None and action.kind == "quarantined":
            self.quarantined_at = entry.n
        self.show_checkpoint()
        reach("checkpoint.after", action.kind)
        return self.state

    def save_fold(self) -> None:
        """Write the fold of the ledger, which lets the next run start with few requests to staging and table."""
        self._remember_source()
        self.ledger.save_fold()

    def _remember_source(self) -> None:
        """Let the next fold have the table's state at the position, from which the next run plans."""
        position = None if self.state.position is None else Offset.from_json(self.state.position).version
        if position is not None and (known := self._known.up_to(position - 1) or self._known.up_to(position)):
            self.ledger.source = known

    def show_checkpoint(self) -> None:
        """Write the checkpoint of the ledger as last read; does nothing if no store is configured."""
        if self.context.checkpoints is not None and self.state.phase != "empty":
            self._shown = self.ledger.checkpoint()
            self.context.checkpoints.write(self._shown)

    def frozen_snapshot(self) -> FrozenSnapshot | None:
        """Return the initial snapshot that the epoch started with, or ``None`` if it started with a commit."""
        ref = self.state.snapshot
        if ref is None:
            return None
        from airflow_provider_fds.delta.reader.snapshot import FrozenSnapshot

        return FrozenSnapshot(ref.version, ref.digest, self.folder.below(ref.key), ref.num_files, ref.num_bytes)

    def staging_location(self, key: str) -> str:
        """Return the encoded URI of a key in staging, with a scheme that Spark has a file system for."""
        return spark_uri(f"{self.staging.uri}/{quote(key, safe=PATH_SAFE)}")

    def open_sink(self, uri: str) -> Storage:
        """Return the storage of a sink table."""
        place = self.sink_place(uri)
        _check_uri(place.uri)
        return open_place(place)

    def sink_target(self, uri: str) -> str:
        """Return the URI by which ledgers and checks know a sink table, whatever a declaration calls it."""
        return self.open_sink(uri).uri

    def spark_sink(self, uri: str) -> str:
        """Return the URI by which Spark reaches a sink table."""
        return spark_uri(self.sink_target(uri))

    def register_sink(self, uri: str | None) -> None:
        """Make the table of a sink known to its catalog by its name, if it exists and the catalog does not have it.

        Does nothing for a table that is not the one the stream writes to, or that cannot be read from here.

        Args:
            uri: The sink's ``table_uri``.

        Raises:
            FdsError: The catalog refuses the table, or does not answer. Its rows are there, and the next run registers
                it.
        """
        from airflow_provider_fds.stream.known_tables import readable

        if uri is None or (place := self.sink_place(uri)).register is None:
            return
        log = readable(open_place(place))
        known = self.state.sink_table_id
        if log is None:
            return
        table = log.state_at(log.latest()).metadata
        if known in (None, table.id):
            place.register(table)

    def places(self, sink_uri: str | None) -> list[Place]:
        """Return the places a job of this stream accesses: table, staging, sink.

        ``None`` stands for a sink that is not a table: a user's function opens its tables itself.
        """
        context = self.context
        read = [self.place, Place(context.staging_uri, context.staging_options)]
        return read if sink_uri is None else [*read, self.sink_place(sink_uri)]

    def sink_place(self, uri: str) -> Place:
        """Return the place of a sink table."""
        places = self.context.sink_places
        return (self.context.places if places is None else places).resolve(uri)


def _resolved(stream: DeltaStream, context: StreamContext) -> Place:
    """Return the place of the table. If its catalog no longer has the name, the error says what it is called now."""
    try:
        return context.places.resolve(stream.table)
    except TableNotFoundError as error:
        names = _called_now(stream, context)
        if not names:
            raise
        which = names[0] if len(names) == 1 else f"one of {', '.join(names)}"
        raise TableNotFoundError(
            f"{error}. The table that stream {stream.name!r} has read is now {which}",
            reason=Reason.CATALOG_TABLE_NOT_FOUND,
        ) from None


def _called_now(stream: DeltaStream, context: StreamContext) -> list[str]:
    """Return the names that the table of a stream has now; none if that cannot be found out."""
    find = getattr(context.places, "called_now", None)
    if find is None:
        return []
    try:
        state = Ledger(context.open_staging(), stream.name, deployment=context.deployment).find()
        known = state.catalog
        return [] if known is None else list(find(known.name, known.table_id, state.table))
    except FdsError:
        return []


def _of_another_table(state: StreamState, place: Place, table: str) -> LedgerError:
    """Return the error about a stream whose table is at another place than its ledger says."""
    known = state.catalog
    other = "use a stream with another name for the other table"
    if known is None or not place.name:
        text = (
            f"stream {state.name!r} has read {state.table} since it was created, but its table is now {table}. A "
            f"position belongs to one table: {other}, or restore the table's URI"
        )
    elif known.table_id and known.table_id == place.table_id:
        text = (
            f"stream {state.name!r} has read {known.name} at {state.table}, but its catalog has moved that table to "
            f"{table}. If its log moved with it, `fds accept {state.name} --moved-to {shlex.quote(table)} "
            "--why …` goes on there, after a check; otherwise move it back"
        )
    else:
        text = (
            f"stream {state.name!r} has read the table {known.name} at {state.table}, but {place.name} is now another "
            f"one, at {table}: it was dropped and created again, or it was renamed and its name given away. If it was "
            f"renamed, give the stream the new name; else {other}"
        )
    return LedgerError(text, table=table, reason=Reason.STREAM_TABLE_CHANGED)


def _check_uri(uri: str) -> None:
    """Refuse a URI that holds a credential; checks the URI as written, since encoding it would hide a query."""
    check_table_uri(uri if "://" in uri else canonical_uri(uri))


def lie_inside_each_other(one: str, other: str) -> bool:
    """Whether one of two URIs is the other or is below it; ``s3``, ``s3a`` and ``s3n`` name the same bucket."""
    first, second = (f"{spark_uri(uri)}/" for uri in (one, other))
    return first.startswith(second) or second.startswith(first)


def _refuse_nested(table: str, staging: str) -> None:
    if lie_inside_each_other(table, staging):
        raise ConfigurationError(
            f"staging {staging} and table {table} overlap: VACUUM on the table would remove the ledger, or the "
            "stream would read its own files. Use a separate folder for staging.",
            table=table,
            reason=Reason.STAGING_UNUSABLE,
        )
