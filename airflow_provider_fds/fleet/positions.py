"""Where the streams of a fleet were when they had nothing left to load: a cache that makes unchanged streams cheap.

A stream is unchanged if its table has no next version, and nobody has decided something about it. What was read
together is a pair: the position as of ledger entry *n*. As long as there is no entry *n* + 1, the position is still
that one, whoever asks.

Without a next version there is nothing that another task could have loaded, so an entry that matters is a decision of a
person, such as a rewind. Such decisions change a token in staging (``ledger/staging/decisions.py``): if it is the
one that was read before the positions were, no ledger is asked. The cache may be old, lost or overwritten by another
run without harm: it costs a look into the ledgers.
"""

from __future__ import annotations

import hashlib
import json
import logging
import zlib
from typing import TYPE_CHECKING, Final

import msgspec

from airflow_provider_fds.delta.damage import DAMAGE
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.errors import FdsError
from airflow_provider_fds.ledger.layout import StreamFolder, fleet_folder
from airflow_provider_fds.ledger.staging.decisions import read_token
from airflow_provider_fds.source.offset import Offset
from airflow_provider_fds.stream.position.source_unchanged import verify_version

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.fleet.value import FleetStream
    from airflow_provider_fds.stream.connected_stream import StreamContext
    from airflow_provider_fds.stream.run.session import StreamSession

logger = logging.getLogger(__name__)

#: Every Nth run lists the log of an unchanged table, which shows whether it was replaced, and looks for the next entry
#: of its ledger, whatever the token says; each stream in another run.
LISTED_EVERY: Final = 20


class KnownPosition(msgspec.Struct, frozen=True):
    """A stream that had loaded everything.

    Attributes:
        declared: Digest of the stream and its sink as declared; with another declaration the stream is opened again.
        position: Its committed offset, Delta streaming offset JSON.
        entry: Number of the last ledger entry that this position takes into account.
        table: URI of its table if it has a name in a catalog, which can give the name to another table; else empty.
        table_id: The catalog's id of that table; empty: it has none.
    """

    declared: str
    position: str
    entry: int
    table: str = ""
    table_id: str = ""

    @property
    def offset(self) -> Offset:
        """The committed offset."""
        return Offset.from_json(self.position)


class _File(msgspec.Struct):
    """The cache file. ``runs`` counts the runs that wrote it; ``token`` is older than all that its run has read."""

    runs: int = 0
    token: str = ""
    streams: dict[str, KnownPosition] = msgspec.field(default_factory=dict)


_DECODER: Final = msgspec.json.Decoder(_File)


class KnownPositions:
    """The cache of one fleet: two GETs when a run begins, one PUT when it ends.

    Args:
        staging: Root of the staging folder that has the cache.
        fleet: Name of the fleet.
        deployment: Name of the Airflow installation: streams of another one are never unchanged.
    """

    def __init__(self, staging: Storage, fleet: str, deployment: str) -> None:
        self.staging = staging
        self.key = f"{fleet_folder(fleet)}.positions.json"
        self._deployment = deployment
        self._file = _File()
        self._token: str | None = None
        self._staging_uri: str | None = None

    @classmethod
    def beside(cls, context: StreamContext, fleet: str, deployment: str) -> KnownPositions:
        """Return the cache of a fleet in the staging folder of one of its streams."""
        found = cls(context.open_staging(), fleet, deployment)
        found._staging_uri = context.staging_uri
        return found

    def begin(self) -> None:
        """Read the token, which a run must do before it reads any ledger."""
        self._token = read_token(self.staging)

    def load(self) -> None:
        """Read the cache. A cache that cannot be read is empty."""
        try:
            data, _ = self.staging.get(self.key)
            self._file = _DECODER.decode(data)
        except FileNotFoundError:
            self._file = _File()
        except (FdsError, *DAMAGE) as error:
            logger.warning("The positions in %s cannot be read; all streams are read: %s", self.key, error)
            self._file = _File()

    def save(self, streams: Mapping[str, KnownPosition]) -> None:
        """Write the positions of the streams that have nothing left to load. If that fails, a warning is logged."""
        self._file = _File(self._file.runs + 1, self._token or "", dict(streams))
        try:
            self.staging.put(self.key, msgspec.json.encode(self._file))
        except FdsError as error:
            logger.warning("The positions of the fleet were not written; its next run reads all ledgers: %s", error)

    def of(self, stream: FleetStream) -> KnownPosition | None:
        """Return what is known of a stream as it is declared now, or ``None``."""
        found = self._file.streams.get(stream.stream.name)
        return found if found is not None and found.declared == declared(stream, self._deployment) else None

    def is_unchanged(self, stream: FleetStream, context: StreamContext) -> KnownPosition | None:
        """Return the known position of a stream that has nothing to do, or ``None`` if it must be opened.

        One HEAD; two if a person has decided something about any stream since the positions were read, or if the stream
        has a staging folder of its own. In some runs one LIST more. If storage does not answer, or the table was
        replaced, the stream must be opened: its session then says what is wrong.
        """
        found = self.of(stream)
        if found is None:
            return None
        try:
            return found if self._has_nothing_new(found, stream, context) else None
        except FdsError as error:
            logger.debug("Stream %s is read again.", stream.stream.name, exc_info=error)
            return None

    def _has_nothing_new(self, known: KnownPosition, stream: FleetStream, context: StreamContext) -> bool:
        offset, name = known.offset, stream.stream.name
        place = context.places.resolve(stream.stream.table)
        log = DeltaLog(context.open_found(place))
        now = (log.table_uri, place.table_id)
        if stream.stream.catalog_conn_id is not None and now != (known.table, known.table_id):
            return False
        is_due = (zlib.crc32(name.encode()) + self._file.runs) % LISTED_EVERY == 0
        if is_due:
            if verify_version(log, offset, offset.version) >= offset.version:
                return False
        elif log.probe(offset.version):
            return False
        if not is_due and self._token == self._file.token and context.staging_uri == self._staging_uri:
            return True
        staging = context.open_staging()
        return staging.head(StreamFolder(name).entry(known.entry + 1)) is None


def position_after(stream: FleetStream, session: StreamSession, deployment: str) -> KnownPosition | None:
    """Return the position of a stream whose run is over, or ``None`` if the next run must open it in any case."""
    state = session.connected.state
    options = session.stream.options
    is_bounded = options.ending_version is not None or options.ending_timestamp is not None
    waits = state.held or state.quarantined or state.retired or state.planned or state.ended or is_bounded
    if state.phase != "open" or state.position is None or waits:
        return None
    offset = Offset.from_json(state.position)
    if offset.is_initial_snapshot or offset.next_index > 0:
        return None
    n = session.connected.ledger.n
    if session.stream.catalog_conn_id is None:
        return KnownPosition(declared(stream, deployment), state.position, n)
    table_id = "" if state.catalog is None else state.catalog.table_id
    return KnownPosition(declared(stream, deployment), state.position, n, state.table, table_id)


def declared(stream: FleetStream, deployment: str) -> str:
    """Return the digest of a stream, its sink and the installation."""
    text = json.dumps([deployment, stream.stream.to_dict(), stream.sink.to_dict()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
