"""Tables of a Hive metastore, by its Thrift protocol without SASL (Kerberos) and TLS; needs pymetastore."""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar
from urllib.parse import unquote, urlsplit

from airflow_provider_fds.catalog import external_table, problems
from airflow_provider_fds.catalog.metastore_table import MetastoreTable, delta_location, folder_uri
from airflow_provider_fds.catalog.names import TableName
from airflow_provider_fds.catalog.table import CatalogTable, ListedTable
from airflow_provider_fds.catalog.thrift_connection import ThriftConnection
from airflow_provider_fds.credentials import redacted, redacted_uri
from airflow_provider_fds.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow_provider_fds.delta.actions import Metadata

T = TypeVar("T")

_PORT: Final = 9083
#: Connections that are kept between calls.
_MOST_IDLE: Final = 4
#: An older one may be dead without a sign: load balancers and firewalls forget connections.
_IDLE_SECONDS: Final = 60.0
#: Tables of one answer of a list.
_TABLES_AT_ONCE: Final = 100
_DENIED: Final = re.compile(r"permission denied|not allowed|access ?control|authoriz|privilege", re.IGNORECASE)
_READ_RIGHT: Final = "Grant the user of the connection the right to read the table's metadata"
_CREATE_RIGHT: Final = "Grant the user of the connection the right to create tables in the database"
#: Names that every metastore accepts; newer ones can be set up to accept more.
_NEW_NAME: Final = re.compile(r"[A-Za-z0-9_]+")
#: What a server that speaks another protocol looks like.
_OTHER_PROTOCOL: Final = (
    "FDS speaks Thrift without SASL (Kerberos), TLS and HTTP: a metastore that requires one of them cannot be used"
)


class HiveCatalog:
    """A Hive metastore. Nothing is sent before the first call; names are ``database.table``.

    Args:
        uri: ``thrift://host:port``; several, separated by commas, are tried in this order.
        timeout_seconds: The longest time of one call, with connecting.

    Raises:
        ConfigurationError: ``uri`` is none of these, or pymetastore is not installed.
    """

    title: ClassVar[str] = "Hive metastore"

    def __init__(self, uri: str, *, timeout_seconds: float = 20.0) -> None:
        self._lock = threading.Lock()
        #: Each with its process, and when it was used last.
        self._idle: list[tuple[int, float, ThriftConnection]] = []
        self._servers = [_server(one.strip()) for one in uri.split(",")]
        self._timeout_seconds = timeout_seconds
        self._called = f"{self.title} {uri.strip()}"
        _require_client()

    def __repr__(self) -> str:
        return f"<{self._called}>"

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections that are not in use."""
        with self._lock:
            idle, self._idle = self._idle, []
        for _, _, connection in idle:
            connection.close()

    def load(self, name: TableName) -> CatalogTable:
        """Return what the metastore says of a table, see :class:`.Catalog`; its id is the second of its creation."""
        database, table = name.expect("database", "table").parts
        entry = self._call(name, lambda client: _get_table(client, database, table))
        found = _metastore_table(name, entry)
        location = delta_location(self._called, found)
        return CatalogTable(found.name, location, str(entry.createTime or ""))

    def tables(self, schema: TableName) -> list[TableName]:
        """Return the names of all tables of a database, see :class:`.Catalog`."""
        (database,) = schema.expect("database").parts
        return [TableName((database, table)) for table in self._call(schema, lambda client: _names(client, database))]

    def listed(self, schema: TableName) -> list[ListedTable]:
        """Return what the metastore says of all tables of a database, see :class:`.Catalog`."""
        (database,) = schema.expect("database").parts

        def entries(client: Any) -> list[Any]:
            names = _names(client, database)
            parts = (names[at : at + _TABLES_AT_ONCE] for at in range(0, len(names), _TABLES_AT_ONCE))
            return [entry for part in parts for entry in _get_tables(client, database, part)]

        def listed(entry: Any) -> ListedTable:
            found = _metastore_table(schema, entry)
            try:
                return ListedTable(found.name, delta_location(self._called, found), str(entry.createTime or ""))
            except ConfigurationError as error:
                return ListedTable(found.name, problem=str(error))

        found = map(listed, self._call(schema, entries))
        return sorted(found, key=lambda one: one.name.parts)

    def load_sink(self, name: TableName) -> CatalogTable:
        """Return what the metastore says of a table that FDS writes by its URI, see :class:`.Catalog`."""
        return self.load(name)

    def new_location(self, name: TableName) -> str:
        """Return the folder of a new table in its database's folder, see :class:`.Catalog`."""
        database, table = name.expect("database", "table").parts
        if not _NEW_NAME.fullmatch(table):
            raise problems.unwritable(
                self._called,
                name,
                "a metastore accepts letters, digits and '_' in the name of a new table",
                "Use such a name, or create the table by other means",
            )
        folder = self._database_folder(database)
        return folder_uri(self._called, name, f"{folder}/{table.lower()}") if folder else ""

    def register(self, name: TableName, location: str, table: Metadata) -> None:  # noqa: ARG002
        """Register a table as Spark does, but with its folder as its location too, see :class:`.Catalog`.

        A metastore that cannot reach that folder gets the placeholder that Spark writes for each external table.
        """
        from pymetastore.hive_metastore.ttypes import AlreadyExistsException, MetaException

        database, called = name.expect("database", "table").parts

        def create(client: Any) -> None:
            try:
                client.create_table(_entry(database, called, location, unquote(location)))
            except AlreadyExistsException:
                pass
            except MetaException as error:
                if _DENIED.search(str(error.message or "")):
                    raise
                beside = str(client.get_database(database).locationUri or "").rstrip("/")
                client.create_table(
                    _entry(database, called, location, f"{beside}/{called}{external_table.PLACEHOLDER}")
                )

        self._call(name, create, right=_CREATE_RIGHT, does="create")

    def _database_folder(self, database: str) -> str:
        """Return the folder of a database as text, empty if it has none."""
        schema = TableName((database,))
        return str(self._call(schema, lambda client: client.get_database(database)).locationUri or "").rstrip("/")

    def _call(self, name: TableName, ask: Callable[[Any], T], *, right: str = _READ_RIGHT, does: str = "read") -> T:
        from pymetastore.hive_metastore.ttypes import InvalidObjectException, MetaException, NoSuchObjectException

        deadline = time.monotonic() + self._timeout_seconds
        connection = self._kept()
        is_kept = connection is not None
        while True:
            try:
                if connection is None:
                    connection = self._connect(deadline)
                connection.start(deadline)
                answer = ask(connection.client)
            except (NoSuchObjectException, MetaException, InvalidObjectException) as error:
                self._keep(connection)
                raise self._refused(name, error, right, does) from None
            except Exception as error:  # noqa: BLE001 - bytes that are no answer raise anything
                if connection is not None:
                    connection.close()
                if not (is_kept and isinstance(error, OSError) and time.monotonic() < deadline):
                    raise problems.unavailable(self._called, name, self._describe(error, connection)) from None
                # a server that restarted has closed the others too
                self.close()
                connection, is_kept = None, False
            else:
                self._keep(connection)
                return answer

    def _refused(self, name: TableName, error: Any, right: str, does: str) -> Exception:
        from pymetastore.hive_metastore.ttypes import NoSuchObjectException

        text = redacted(str(error.message or "")).split("\n", 1)[0][:500]
        if isinstance(error, NoSuchObjectException):
            found = "" if len(name.parts) > 1 else "There is no database of this name"
            return problems.not_found(self._called, name, found)
        if _DENIED.search(text):
            return problems.denied(self._called, name, text, right, does=does)
        return problems.unavailable(self._called, name, text or type(error).__name__)

    def _describe(self, error: Exception, connection: ThriftConnection | None) -> str:
        if connection is None:
            return f"no connection ({error})"
        if isinstance(error, TimeoutError):
            return f"no complete answer within {self._timeout_seconds:g} seconds. {_OTHER_PROTOCOL}"
        if isinstance(error, OSError):
            return f"the connection broke ({error}). {_OTHER_PROTOCOL}"
        text = redacted(str(error)).split("\n", 1)[0][:200]
        if type(error).__name__ == "TApplicationException":
            return f"it answered {type(error).__name__}: {text}"
        return f"what came is no answer of a metastore ({type(error).__name__}: {text}). {_OTHER_PROTOCOL}"

    def _connect(self, deadline: float) -> ThriftConnection:
        failed = []
        for i, (host, port) in enumerate(self._servers):
            seconds = max(0.1, (deadline - time.monotonic()) / (len(self._servers) - i))
            try:
                return ThriftConnection(socket.create_connection((host, port), seconds))
            except OSError as error:
                failed.append(f"{host}:{port}: {error}")
        raise ConnectionError("; ".join(failed))

    def _kept(self) -> ThriftConnection | None:
        with self._lock:
            while self._idle:
                pid, since, connection = self._idle.pop()
                # a child shares the sockets of its parent
                if pid == os.getpid() and time.monotonic() - since < _IDLE_SECONDS:
                    return connection
                connection.close()
        return None

    def _keep(self, connection: ThriftConnection | None) -> None:
        if connection is None:
            return
        with self._lock:
            if len(self._idle) < _MOST_IDLE:
                self._idle.append((os.getpid(), time.monotonic(), connection))
                return
        connection.close()


def _get_table(client: Any, database: str, table: str) -> Any:
    """Ask for a table; newer metastores only know the second way."""
    from thrift.Thrift import TApplicationException

    try:
        return client.get_table(database, table)
    except TApplicationException as error:
        if error.type != TApplicationException.UNKNOWN_METHOD:
            raise
    from pymetastore.hive_metastore.ttypes import GetTableRequest

    return client.get_table_req(GetTableRequest(dbName=database, tblName=table)).table


def _names(client: Any, database: str) -> list[str]:
    # without it, the names of a database that is missing are an empty list
    client.get_database(database)
    return sorted(map(str, client.get_all_tables(database)))


def _get_tables(client: Any, database: str, names: Sequence[str]) -> list[Any]:
    """Ask for several tables; newer metastores only know the second way. What was dropped meanwhile is left out."""
    from thrift.Thrift import TApplicationException

    try:
        return list(client.get_table_objects_by_name(database, list(names)))
    except TApplicationException as error:
        if error.type != TApplicationException.UNKNOWN_METHOD:
            raise
    from pymetastore.hive_metastore.ttypes import GetTablesRequest

    return list(client.get_table_objects_by_name_req(GetTablesRequest(dbName=database, tblNames=list(names))).tables)


def _metastore_table(name: TableName, entry: Any) -> MetastoreTable:
    """Return what an entry says; a name that it lacks is that of the table, or of the database, that was asked for."""
    descriptor = entry.sd
    serde = descriptor.serdeInfo if descriptor else None
    return MetastoreTable(
        TableName((entry.dbName or name.parts[0], entry.tableName or name.parts[-1])),
        table_type=entry.tableType or "",
        parameters=_texts(entry.parameters),
        location=(descriptor.location or "") if descriptor else "",
        serde_path=_texts(serde.parameters).get("path", "") if serde else "",
        input_format=(descriptor.inputFormat or "") if descriptor else "",
    )


def _entry(database: str, table: str, folder: str, location: str) -> Any:
    """Return the entry of a Delta table.

    Args:
        database: Its database.
        table: Its name.
        folder: Canonical URI of its folder.
        location: What the metastore takes for its folder, as plain text.
    """
    from pymetastore.hive_metastore import ttypes

    serde = ttypes.SerDeInfo(serializationLib=external_table.SERDE, parameters=external_table.serde_parameters(folder))
    descriptor = ttypes.StorageDescriptor(
        cols=[ttypes.FieldSchema(*external_table.COLUMN)],
        location=location,
        inputFormat=external_table.INPUT_FORMAT,
        outputFormat=external_table.OUTPUT_FORMAT,
        numBuckets=-1,
        serdeInfo=serde,
        bucketCols=[],
        sortCols=[],
        parameters={},
    )
    return ttypes.Table(
        dbName=database,
        tableName=table,
        createTime=int(time.time()),
        sd=descriptor,
        partitionKeys=[],
        parameters=external_table.PARAMETERS,
        tableType=external_table.TABLE_TYPE,
    )


def _texts(parameters: Any) -> dict[str, str]:
    return {str(key): str(value) for key, value in (parameters or {}).items() if value is not None}


def _server(uri: str) -> tuple[str, int]:
    try:
        parts = urlsplit(uri)
        port = parts.port or _PORT
    except ValueError:
        parts, port = urlsplit(""), 0
    if parts.scheme != "thrift" or not parts.hostname or parts.path.strip("/") or "@" in parts.netloc or parts.query:
        raise ConfigurationError(
            f"{redacted_uri(uri)!r} is not the address of a Hive metastore: expected thrift://<host>:<port>, such as "
            f"thrift://metastore:{_PORT}"
        )
    return parts.hostname, port


def _require_client() -> None:
    if not all(find_spec(module) for module in ("pymetastore", "thrift")):
        raise ConfigurationError(
            "the connection is of a Hive metastore, for which pymetastore is not installed: "
            "pip install 'airflow-provider-fds[hive]'"
        )
