"""The tables of a stream of which only the ledger is known: as a command or the status of a folder finds them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.delta.protocol import CATALOG_FEATURES, is_managed_by_catalog
from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.delta.storage.open import open_place
from airflow_provider_fds.errors import FdsError, UnsupportedFeatureError
from airflow_provider_fds.places import Paths

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.ledger.staging.log import Ledger
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.places import Place, Places


def source_name(state: StreamState, places: Places) -> tuple[str, str | None]:
    """Return what ``places`` finds the table of a ledger by, and the catalog's connection: its name, or its URI."""
    known = None if isinstance(places, Paths) else state.catalog
    return (state.table, None) if known is None else (known.name, known.connection)


def check_not_managed(ledger: Ledger, place: Place) -> None:
    """Refuse to read a table by its URI if only its catalog knows its newest commits.

    A log without them looks as if it had lost the stream's position.

    Raises:
        UnsupportedFeatureError: It is such a table, as a run of the stream has found.
    """
    known, source = ledger.state.catalog, ledger.source
    if known is None or source is None or place.name or not is_managed_by_catalog(source.protocol):
        return
    raise UnsupportedFeatureError(
        f"only its catalog knows the newest commits of {ledger.state.table}, and here it would be read by its URI. Its "
        f"name is {known.name}, its catalog {known.connection!r}: on the command line add --catalog URI, or use "
        "`airflow fds`, which knows Airflow's connections",
        features=tuple(CATALOG_FEATURES),
        table=ledger.state.table,
    )


def open_source(ledger: Ledger, places: Places) -> Storage | None:
    """Return the storage of the table of a ledger, ``None`` if it cannot be read from here."""
    try:
        place = places.resolve(source_name(ledger.state, places)[0])
        check_not_managed(ledger, place)
        return open_place(place)
    except FdsError:
        return None


def readable(storage: Storage | None) -> DeltaLog | None:
    """Return the log of a table if it can be read from here, else ``None``."""
    if storage is None:
        return None
    log = DeltaLog(storage)
    try:
        log.latest()
    except FdsError:
        return None
    return log


def readable_sink(state: StreamState, open_table: Callable[[str], Storage]) -> DeltaLog | None:
    """Return the log of the sink that FDS writes to if it can be read from here, else ``None``."""
    if state.sink is None or not state.sink.has_log:
        return None
    try:
        return readable(open_table(state.sink.target))
    except FdsError:
        return None
