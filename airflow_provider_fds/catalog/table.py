"""What a catalog implements, and the places that streams get of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from airflow_provider_fds.catalog.names import TableName
from airflow_provider_fds.credentials import is_secret
from airflow_provider_fds.places import Place
from airflow_provider_fds.schemes import location

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_provider_fds.delta.actions import Metadata
    from airflow_provider_fds.delta.storage.storage import Storage

#: Parts of the names of options with which obstore proves who asks, besides the secret ones.
_LOGIN_PARTS: Final = (
    "access_key_id", "authority", "application_credentials", "client_id", "credential", "federated", "imdsv1",
    "metadata_endpoint", "msi", "object_id", "role", "service_account", "sas_", "skip_signature", "tenant",
    "use_azure_cli",
)  # fmt: skip


@dataclass(frozen=True)
class CatalogTable:
    """What a catalog says of a table that FDS can read: one answer, which is used at once and never stored.

    Attributes:
        name: Its name, as the catalog spells it.
        location: URI or path of its folder.
        table_id: What tells it from another table that gets its name: it stays when the table is renamed or moved, and
            is another one after ``DROP`` and ``CREATE``. An id, or the time of creation. Empty: the catalog has none.
        options: Options with which its folder is opened (``delta/storage/open.py``), if the catalog gives credentials;
            empty: those of the storage connection.
        view: Returns the folder as the catalog shows it; ``None``: as it is.
    """

    name: TableName
    location: str
    table_id: str = ""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    view: Callable[[Storage], Storage] | None = field(default=None, repr=False)


@dataclass(frozen=True)
class ListedTable:
    """A table as the list of its schema has it, without credentials.

    Attributes:
        name: Its name.
        location: URI or path of its folder; empty if FDS cannot read the table.
        table_id: As for :class:`CatalogTable`.
        problem: Why FDS cannot read the table: it is a view, or not Delta; empty if it can, as far as the list tells.
    """

    name: TableName
    location: str = ""
    table_id: str = ""
    problem: str = ""


class Catalog(Protocol):
    """A catalog, reached by one connection. Used by many threads at once; keeps its connection between calls."""

    #: What messages call it, such as ``"Hive metastore"``.
    title: ClassVar[str]

    def load(self, name: TableName) -> CatalogTable:
        """Return what the catalog says of a table. Bounded in time and size; asks the catalog each time.

        Raises:
            ConfigurationError: The name has too few or too many parts (``CATALOG_NAME_INVALID``), there is no table of
                this name (``CATALOG_TABLE_NOT_FOUND``), or it is none that FDS can read: a view, not Delta, without a
                folder (``CATALOG_TABLE_UNREADABLE``).
            AccessDeniedError: The catalog refuses the credentials, or a right is missing (``CATALOG_DENIED``).
            StorageError: The catalog does not answer, or not as it should (``CATALOG_UNAVAILABLE``); retryable.
        """

    def tables(self, schema: TableName) -> list[TableName]:
        """Return the names of all tables of a schema, whatever they are, sorted. Raises as :meth:`load`."""

    def listed(self, schema: TableName) -> list[ListedTable]:
        """Return what the catalog says of all tables of a schema, by name, with a few requests. Raises as :meth:`load`.

        It asks for no credentials.
        """

    def load_sink(self, name: TableName) -> CatalogTable:
        """Return what the catalog says of a table that FDS can write by its URI, with the storage connection's keys.

        Raises:
            FdsError: As :meth:`load`; also ``CATALOG_TABLE_UNWRITABLE``, for a table that only the catalog may write.
        """

    def new_location(self, name: TableName) -> str:
        """Return the URI of the folder in which the catalog's own tools would create a table; empty: there is none.

        Raises:
            FdsError: As :meth:`load`; also if its schema is missing (``CATALOG_TABLE_NOT_FOUND``), or FDS cannot
                register tables there (``CATALOG_TABLE_UNWRITABLE``).
        """

    def register(self, name: TableName, location: str, table: Metadata) -> None:
        """Make the Delta table in a folder known by a name, as Spark registers an external one, if the name is free.

        Args:
            name: The name.
            location: Canonical URI of the folder.
            table: What the log there says of the table, for a catalog that must be told its columns.

        Raises:
            FdsError: As :meth:`load`; also if the catalog takes no table there (``CATALOG_TABLE_UNWRITABLE``).
        """


@dataclass(frozen=True)
class CatalogPlaces:
    """Tables by the names of a catalog; what is a URI is taken as one: ledgers record URIs.

    Attributes:
        catalog: The catalog.
        storage: Returns the options of the storage connection for a URI, without asking Airflow: any thread may call.
    """

    catalog: Catalog = field(repr=False)
    storage: Callable[[str], Mapping[str, Any]] = field(repr=False)

    def resolve(self, table: str) -> Place:
        """Return the place of a table: of a name as the catalog says now, of a URI without asking it.

        Raises:
            FdsError: As :meth:`Catalog.load`.
        """
        if "://" in table or table.startswith("/"):
            return Place(table, self.storage(table))
        found = self.catalog.load(TableName.parse(table))
        options = self.storage(found.location)
        if found.options:
            # keys of the catalog, at the endpoint and with the limits of the storage connection
            options = {key: value for key, value in options.items() if not _is_login(key)} | dict(found.options)
        return Place(
            found.location,
            options,
            name=str(found.name),
            table_id=found.table_id,
            view=found.view,
        )

    def called_now(self, name: str, table_id: str, uri: str) -> list[str]:
        """Return the names that a table of this schema has now; it is looked for by its folder, else by its id.

        Args:
            name: The name that it had.
            table_id: Its id; several tables can have the same time of creation.
            uri: URI of its folder.

        Raises:
            FdsError: As :meth:`Catalog.listed`.
        """
        listed = self.catalog.listed(TableName(TableName.parse(name).parts[:-1]))
        readable = [one for one in listed if not one.problem]
        found = [one for one in readable if location(one.location) == location(uri)]
        found = found or [one for one in readable if table_id and one.table_id == table_id]
        return [str(one.name) for one in found]


def _is_login(option: str) -> bool:
    """Return whether an option says who asks, instead of where and how."""
    name = option.lower()
    return name == "storage_conn_id" or is_secret(name) or any(part in name for part in _LOGIN_PARTS)
