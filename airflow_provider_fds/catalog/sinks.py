"""The place of a sink that has a name in a catalog: found once in a run, or where the first batch creates the table."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_provider_fds.catalog import problems
from airflow_provider_fds.catalog.names import TableName
from airflow_provider_fds.delta.storage.open import canonical_uri
from airflow_provider_fds.errors import TableNotFoundError
from airflow_provider_fds.places import Place
from airflow_provider_fds.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_provider_fds.catalog.table import Catalog
    from airflow_provider_fds.delta.actions import Metadata
    from airflow_provider_fds.sinks import DeltaSink

logger = logging.getLogger(__name__)


class SinkPlaces:
    """Finds the table of a sink by its name; any other table is a URI, as ledgers have it.

    The catalog is asked once: whatever becomes of the name meanwhile, a run writes to one folder. The table is opened
    with the storage connection, also if the catalog gives credentials, because those are for one table and time.

    Args:
        catalog: The catalog.
        storage: Returns the options of the storage connection for a URI, without asking Airflow: any thread may call.
        sink: The sink, rendered, with a name.
    """

    def __init__(self, catalog: Catalog, storage: Callable[[str], Mapping[str, Any]], sink: DeltaSink) -> None:
        self._catalog = catalog
        self._storage = storage
        self._sink = sink
        self._lock = threading.Lock()
        self._found: Place | None = None
        self._called = f"{catalog.title} (connection {sink.catalog_conn_id!r})"

    def resolve(self, table: str) -> Place:
        """Return the place of the sink, if that is its ``table_uri``, else that of a URI.

        Raises:
            FdsError: As :meth:`.Catalog.load_sink`. Without ``create``, a table that is missing is not found; with it,
                as :meth:`.Catalog.new_location`, and if the table exists in another folder than ``location``
                (``CATALOG_TABLE_UNWRITABLE``).
        """
        if table != self._sink.table_uri:
            return Place(table, self._storage(table))
        with self._lock:
            if self._found is None:
                self._found = self._find(TableName.parse(self._sink.uri))
            return self._found

    def _find(self, name: TableName) -> Place:
        asked = None if self._sink.location is None else canonical_uri(self._sink.location)
        try:
            found = self._catalog.load_sink(name)
        except TableNotFoundError as error:
            if not self._sink.create:
                raise TableNotFoundError(
                    f"{error}. To have the first batch create the sink, set create=True on it",
                    reason=Reason.CATALOG_TABLE_NOT_FOUND,
                ) from None
        else:
            location = canonical_uri(found.location)
            if asked not in (None, location):
                raise problems.unwritable(
                    self._called,
                    name,
                    f"it is at {location}, and not at the location of the sink, {asked}",
                    "Correct the location, or omit it",
                )
            return Place(location, self._storage(location), name=str(found.name), table_id=found.table_id)
        # also tells whether the database exists, before there are rows of a table that cannot be registered
        default = self._catalog.new_location(name)
        location = asked or default
        if not location:
            raise problems.unwritable(
                self._called,
                name,
                "it does not exist, and its schema has no folder for new tables",
                "Set location on the sink",
            )
        return Place(
            location, self._storage(location), name=str(name), register=partial(self._register, name, location)
        )

    def _register(self, name: TableName, location: str, table: Metadata) -> None:
        self._catalog.register(name, location, table)
        found = self._catalog.load_sink(name)
        if canonical_uri(found.location) != location:
            raise problems.unwritable(
                self._called,
                name,
                f"somebody else has given the name to the table at {found.location} meanwhile; the rows of this run "
                f"are in {location}",
                "Free the name and run again, which registers that table, or give the sink another name",
            )
        logger.info("%s is now the name of the table at %s.", name, location)
        with self._lock:
            if self._found is not None:
                self._found = replace(self._found, register=None, table_id=found.table_id)
