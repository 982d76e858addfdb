"""Opens tables and folders with an Airflow connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from airflow_provider_fds.catalog.names import name_uri
from airflow_provider_fds.delta.storage.open import open_place, open_storage
from airflow_provider_fds.hooks.storage import options_by_uri, storage_options
from airflow_provider_fds.places import Paths
from airflow_provider_fds.sinks import DeltaSink

if TYPE_CHECKING:
    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.ledger.state import StreamState
    from airflow_provider_fds.places import Place, Places
    from airflow_provider_fds.sinks import Sink


def table_places(conn_id: str | None, table: str, catalog_conn_id: str | None = None) -> Places:
    """Return what finds tables with Airflow connections. Looks them up now; what it returns asks Airflow nothing.

    Args:
        conn_id: Connection of the storage; ``None`` for the environment's credentials.
        table: The table that is looked for.
        catalog_conn_id: Connection of the catalog that has the table's name; ``None``: the table is a URI or path.

    Raises:
        ConfigurationError: As :func:`storage_options` and :func:`catalog_of`.
    """
    if catalog_conn_id is None:
        return Paths(storage_options(conn_id, table))
    from airflow_provider_fds.catalog.table import CatalogPlaces
    from airflow_provider_fds.hooks.catalogs import catalog_of

    return CatalogPlaces(catalog_of(catalog_conn_id), options_by_uri(conn_id, f"storage_conn_id for {table!r}"))


def sink_places(conn_id: str | None, sink: Sink | None) -> Places | None:
    """Return what finds the table of a sink with Airflow connections, as :func:`table_places`.

    Args:
        conn_id: Connection of the stream's storage, for a sink that names none.
        sink: The sink, rendered; ``None``, or one without a table: there is nothing to find.

    Raises:
        ConfigurationError: As :func:`table_places`.
    """
    if sink is None or sink.table_uri is None:
        return None
    conn_id = sink.connection_id or conn_id
    if not isinstance(sink, DeltaSink) or sink.catalog_conn_id is None:
        return table_places(conn_id, sink.table_uri)
    from airflow_provider_fds.catalog.sinks import SinkPlaces
    from airflow_provider_fds.hooks.catalogs import catalog_of

    options = options_by_uri(conn_id, f"storage_conn_id for the sink {sink.uri!r}")
    return SinkPlaces(catalog_of(sink.catalog_conn_id), options, sink)


def places_for(conn_id: str | None, state: StreamState) -> Places:
    """Return what finds the table of a ledger: by its name in a catalog, if it has one, else by its URI."""
    known = state.catalog
    # the command line has a catalog's URI instead of a connection
    has_connection = known is not None and "://" not in known.connection
    return table_places(conn_id, state.table, known.connection if known and has_connection else None)


def open_table(conn_id: str | None, table: str, catalog_conn_id: str | None = None) -> Storage:
    """Open a table with Airflow connections. Raises as :func:`table_places` and :meth:`Places.resolve`."""
    return open_place(table_places(conn_id, table, catalog_conn_id).resolve(table))


class TableAddress(NamedTuple):
    """A table as arguments name it, with the Airflow connections by which it is found.

    Attributes:
        table: Canonical URI, or name in the catalog.
        storage_conn_id: Connection of its storage; ``None``: the environment's credentials.
        catalog_conn_id: Connection of its catalog; ``None``: it is known by its URI.
    """

    table: str
    storage_conn_id: str | None = None
    catalog_conn_id: str | None = None

    @property
    def uri(self) -> str:
        """What identifies the table in events and cursors."""
        return self.table if self.catalog_conn_id is None else name_uri(self.catalog_conn_id, self.table)

    def place(self) -> Place:
        """Return where the table is, with the connections as they are now. Raises as :func:`open_table`."""
        return table_places(self.storage_conn_id, self.table, self.catalog_conn_id).resolve(self.table)

    def open(self) -> Storage:
        """Open the table, with the connections as they are now. Raises as :func:`open_table`."""
        return open_place(self.place())


def open_folder(conn_id: str | None, uri: str) -> Storage:
    """Open a folder that is no table with an Airflow connection. Raises as :func:`storage_options`."""
    return open_storage(uri, storage_options(conn_id, uri))
