"""Unity Catalog: where a table is, with which credentials, and which commits it has.

Speaks version 1 of its API for Delta. A catalog that lacks it is asked by its older API for tables, which knows nothing
of the commits of tables that the catalog manages: these are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final
from urllib.parse import quote

from airflow_provider_fds.catalog import problems
from airflow_provider_fds.catalog.log_view import CatalogLogView
from airflow_provider_fds.catalog.names import TableName
from airflow_provider_fds.catalog.table import CatalogTable, ListedTable
from airflow_provider_fds.catalog.unity_answers import TableAnswer, delta_table, rest_credentials, rest_table
from airflow_provider_fds.catalog.unity_columns import column_infos
from airflow_provider_fds.catalog.unity_hadoop import hadoop_settings
from airflow_provider_fds.catalog.unity_http import Answer, Login, NoAnswerError, RefusedError, UnityHttp
from airflow_provider_fds.catalog.vended import Credentials, NoCredentialsError, chosen, provider
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.schemes import SCHEMES, with_plain_scheme

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_fds.catalog.log_view import LogTip
    from airflow_provider_fds.delta.actions import Metadata
    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.errors import TableNotFoundError

_OK: Final = 200
_NOT_FOUND: Final = 404
_TABLE_ENDPOINT: Final = "GET /v1/catalogs/{catalog}/schemas/{schema}/tables/{table}"
#: The most pages of a listing of tables; a server may repeat itself.
_MOST_PAGES: Final = 1_000
_COMMITS_OF_CATALOG: Final = (
    "its commits go through the catalog, for which Spark needs the catalog's own connector "
    "(io.unitycatalog.spark.UCSingleCatalog), and FDS writes by the path of a table"
)
_NOT_OF_CATALOG: Final = (
    "it is a managed table, into whose folder only clients of the catalog may write, and FDS writes by the path of a "
    "table"
)
_CREATED: Final = (_OK, 201)
#: Answers to a table that cannot be registered as it is.
_UNTAKEN: Final = (400, 409)
_CREATE_RIGHTS: Final = (
    "Grant CREATE TABLE on the schema, USE SCHEMA on it and USE CATALOG on its catalog, and CREATE EXTERNAL TABLE on "
    "the external location. Rows that were loaded are in the table's folder, and the next run registers it"
)
_USE_EXTERNAL: Final = "Use an external table, or one of a Hive metastore or Glue"
_READ_RIGHTS: Final = "Grant SELECT on the table, USE SCHEMA on its schema and USE CATALOG on its catalog"
_EXTERNAL_RIGHTS: Final = (
    "Grant SELECT on the table and EXTERNAL USE SCHEMA on its schema, which only the catalog's owner can, and have "
    "external data access switched on for the metastore. A table with row filters or column masks cannot be read"
)


class UnityCatalog:
    """A Unity Catalog, see :class:`~airflow_provider_fds.catalog.table.Catalog`.

    Args:
        url: ``https://host`` of the workspace or server.
        token: A token; ``None``: a client's id and secret, or nobody asks.
        client_id: Id of the client (OAuth), a service principal.
        client_secret: Its secret.
        timeout_seconds: The longest time for a request with all its repetitions.
        conn_id: The connection that these come from, for messages.
        token_url: Where a client gets tokens; ``None``: ``/oidc/v1/token`` of the host, as Databricks has it.
        vends_credentials: Whether tables are read with credentials of the catalog, or with the storage connection.

    Raises:
        ConfigurationError: The URL is none, the login is incomplete, or the extra ``[unity]`` is not installed.
    """

    title: ClassVar[str] = "Unity Catalog"

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        client_id: str | None = None,
        client_secret: str | None = None,
        timeout_seconds: float = 20.0,
        conn_id: str = "",
        token_url: str | None = None,
        vends_credentials: bool = True,
    ) -> None:
        self._login = login = Login(token or "", client_id or "", client_secret or "", token_url or "")
        self._http = UnityHttp(url, login, timeout_seconds=timeout_seconds)
        self._conn_id = conn_id
        self._vends_credentials = vends_credentials
        self._with_delta_api: set[str] = set()
        self._words = f"{self.title} {self._http.host}" + (f" (connection {conn_id!r})" if conn_id else "")

    def __repr__(self) -> str:
        return f"UnityCatalog({self._http.host!r})"

    def load(self, name: TableName) -> CatalogTable:
        """Return what the catalog says of a table, with credentials that are good for a while."""
        found = self._found(name)
        view = None
        if (tip := found.tip) is not None:

            def view(folder: Storage) -> Storage:
                return CatalogLogView(folder, tip, lambda: self._tip(name, found), table_id=found.table_id)

        return CatalogTable(found.name or name, found.location, found.table_id, self._options(name, found), view)

    def load_sink(self, name: TableName) -> CatalogTable:
        """Return the folder of an external table, without credentials, see :class:`.Catalog`."""
        found = self._found(name)
        if found.tip is not None or found.is_managed:
            raise problems.unwritable(
                self._words, name, _NOT_OF_CATALOG if found.tip is None else _COMMITS_OF_CATALOG, _USE_EXTERNAL
            )
        return CatalogTable(found.name or name, found.location, found.table_id)

    def new_location(self, name: TableName) -> str:
        """Return none, see :class:`.Catalog`: a schema has folders for the catalog's own tables only."""
        schema = TableName(name.expect("catalog", "schema", "table").parts[:-1])
        self._check(name, self._get(name, f"/schemas/{_full(schema.parts)}"), _READ_RIGHTS)
        return ""

    def register(self, name: TableName, location: str, table: Metadata) -> None:
        """Register an external table by the older API, see :class:`.Catalog`."""
        catalog, schema, called = name.expect("catalog", "schema", "table").parts
        body = {
            "name": called,
            "catalog_name": catalog,
            "schema_name": schema,
            "table_type": "EXTERNAL",
            "data_source_format": "DELTA",
            "storage_location": location,
            "columns": column_infos(table),
        }
        answer = self._asked(name, lambda: self._http.post("/tables", body))
        # a request that was repeated, or another run, may have had the table registered
        if answer.status in _CREATED or self._get(name, f"/tables/{_full(name.parts)}").status == _OK:
            return
        if answer.status in _UNTAKEN:
            raise problems.unwritable(
                self._words,
                name,
                f"the catalog does not take the table at {location}: it answers {answer.describe()}",
                "Its rows are there, and the next run registers it. An external location of the catalog must contain "
                "that folder, and no other table may",
            )
        self._check(name, answer, _CREATE_RIGHTS, does="create")

    def tables(self, schema: TableName) -> list[TableName]:
        """Return the names of all tables of a schema, whatever they are, sorted."""
        return sorted(self._items(schema), key=lambda found: found.parts)

    def listed(self, schema: TableName) -> list[ListedTable]:
        """Return what the catalog says of all tables of a schema, see :class:`.Catalog`."""
        found = self._items(schema)
        return [self._listed(name, found[name]) for name in sorted(found, key=lambda name: name.parts)]

    def _listed(self, name: TableName, item: Mapping[str, Any]) -> ListedTable:
        try:
            # whether the catalog's other API has the commits is not in its properties
            table = rest_table({**item, "properties": None}, self._words, name)
        except ConfigurationError as error:
            return ListedTable(name, problem=str(error))
        return ListedTable(name, table.location, table.table_id)

    def _items(self, schema: TableName) -> dict[TableName, Mapping[str, Any]]:
        """Return what the older API says of the tables of a schema, by their names."""
        catalog, within = schema.expect("catalog", "schema").parts
        found: dict[TableName, Mapping[str, Any]] = {}
        page: dict[str, str] = {}
        for _ in range(_MOST_PAGES):
            answer = self._get(schema, "/tables", catalog_name=catalog, schema_name=within, **page)
            self._check(schema, answer, _READ_RIGHTS)
            for item in answer.body.get("tables") or ():
                if isinstance(item, dict) and isinstance(item.get("name"), str) and item["name"]:
                    found[TableName((catalog, within, item["name"]))] = item
            token = answer.body.get("next_page_token")
            if not isinstance(token, str) or not token or page.get("page_token") == token:
                break
            page = {"page_token": token}
        if not found and self._get(schema, f"/schemas/{_full(schema.parts)}").status == _NOT_FOUND:
            # a catalog may list the tables of a schema that it does not have
            raise self._missing(schema)
        return found

    def _found(self, name: TableName) -> TableAnswer:
        name.expect("catalog", "schema", "table")
        if any(part in (".", "..") for part in name.parts):
            raise problems.not_found(self._words, name)
        if not self._has_delta_api(name):
            return self._rest(name)
        found = self._loaded(name)
        # the other API also knows tables of which the server does not know the protocol
        return found if found.is_delta else self._rest(name)

    def _has_delta_api(self, name: TableName) -> bool:
        catalog = name.parts[0]
        if catalog in self._with_delta_api:
            return True
        answer = self._get(name, "/delta/v1/config", catalog=catalog, **{"protocol-versions": "1.0"})
        if answer.status == _NOT_FOUND:  # no such API, or no such catalog, which the other API tells
            return False
        if answer.status == 400:  # noqa: PLR2004
            raise problems.unreadable(
                self._words, name, f"in a catalog that refuses version 1.0 of its API: {answer.describe()}",
                "Use a newer version of FDS",
            )  # fmt: skip
        self._check(name, answer, _READ_RIGHTS)
        endpoints = answer.body.get("endpoints")
        if isinstance(endpoints, list) and _TABLE_ENDPOINT not in endpoints:
            return False
        self._with_delta_api.add(catalog)
        return True

    def _loaded(self, name: TableName) -> TableAnswer:
        answer = self._get(name, _path(name))
        if answer.status == 400:  # noqa: PLR2004 - not Delta, or without a folder: the other API says what it is
            self._rest(name)
        self._check(name, answer, _READ_RIGHTS)
        return delta_table(answer.body, self._words, name)

    def _rest(self, name: TableName) -> TableAnswer:
        answer = self._get(name, f"/tables/{_full(name.parts)}")
        self._check(name, answer, _READ_RIGHTS)
        return rest_table(answer.body, self._words, name)

    def _tip(self, name: TableName, before: TableAnswer) -> LogTip:
        now = self._loaded(name)
        if now.tip is None or (now.table_id, now.location) != (before.table_id, before.location):
            raise problems.unavailable(
                self._words,
                name,
                "since it was resolved, the table was created anew or moved, or the catalog no longer manages it",
            )
        return now.tip

    def _options(self, name: TableName, found: TableAnswer) -> Mapping[str, Any]:
        scheme = SCHEMES.get(found.location.partition("://")[0].lower())
        if not self._vends_credentials or scheme is None or scheme.kind not in ("s3", "gcs", "azure"):
            return {}
        key = (self._http.principal, found.table_id or str(name), with_plain_scheme(found.location), "READ")
        hadoop = hadoop_settings(self._http.host, self._login, name, found) if scheme.kind == "s3" else {}
        vended = provider(key, lambda: self._credentials(name, found), hadoop)
        # here an error is the catalog's; in the middle of a request it would be the storage's
        vended.current()
        return {"credential_provider": vended} | ({"storage_conn_id": self._conn_id} if self._conn_id else {})

    def _credentials(self, name: TableName, found: TableAnswer) -> Credentials:
        if found.is_of_rest_api:
            body = {"table_id": found.table_id, "operation": "READ"}
            answer = self._asked(name, lambda: self._http.post("/temporary-table-credentials", body))
        else:
            answer = self._get(name, f"{_path(name)}/credentials", operation="READ")
        if answer.status == _NOT_FOUND:
            # the table exists: the catalog just said so
            raise problems.unavailable(self._words, name, f"credentials for its files: {answer.describe()}")
        self._check(name, answer, _EXTERNAL_RIGHTS)
        items = rest_credentials(answer.body, found.location) if found.is_of_rest_api else None
        listed = answer.body.get("storage-credentials") if items is None else items
        try:
            return chosen(listed if isinstance(listed, list) else (), found.location)
        except NoCredentialsError as error:
            raise problems.denied(
                self._words, name, f"it {error}", f"{_EXTERNAL_RIGHTS}, or read it with the storage connection"
            ) from None

    def _get(self, name: TableName, path: str, **query: str) -> Answer:
        return self._asked(name, lambda: self._http.get(path, **query))

    def _asked(self, name: TableName, ask: Any) -> Answer:
        try:
            answer: Answer = ask()
        except RefusedError as error:
            raise problems.denied(
                self._words, name, str(error), "Renew the token, or correct the client's id and secret"
            ) from None
        except NoAnswerError as error:
            raise problems.unavailable(self._words, name, str(error)) from None
        return answer

    def _check(self, name: TableName, answer: Answer, rights: str, *, does: str = "read") -> None:
        if answer.status == _OK:
            return
        if answer.status == 403:  # noqa: PLR2004
            raise problems.denied(self._words, name, answer.describe(), rights, does=does)
        if answer.status == _NOT_FOUND:
            raise self._missing(name)
        raise problems.unavailable(self._words, name, f"it answers {answer.describe()}")

    def _missing(self, name: TableName) -> TableNotFoundError:
        """Return the error about a name that the catalog does not have; it tells which part of it."""
        for kind, parts in (("catalog", name.parts[:1]), ("schema", name.parts[:2])):
            try:
                answer = self._http.get(f"/{kind}s/{_full(parts)}")
            except (RefusedError, NoAnswerError):
                break
            if answer.status == _NOT_FOUND:
                found = f"It shows no {kind} {TableName(parts)} to this connection. Correct the name, or grant its use"
                return problems.not_found(self._words, name, found)
        return problems.not_found(self._words, name)


def _full(parts: tuple[str, ...]) -> str:
    """Return a name as the older API has it in a path."""
    return quote(".".join(parts), safe="")


def _path(name: TableName) -> str:
    catalog, schema, table = (quote(part, safe="") for part in name.parts)
    return f"/delta/v1/catalogs/{catalog}/schemas/{schema}/tables/{table}"
