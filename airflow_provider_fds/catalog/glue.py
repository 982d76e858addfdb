"""Tables of the AWS Glue Data Catalog; needs boto3."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from datetime import UTC, datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar
from urllib.parse import unquote

from airflow_provider_fds.catalog import external_table, problems
from airflow_provider_fds.catalog.metastore_table import MetastoreTable, delta_location, folder_uri
from airflow_provider_fds.catalog.names import TableName
from airflow_provider_fds.catalog.table import CatalogTable, ListedTable
from airflow_provider_fds.credentials import redacted
from airflow_provider_fds.errors import AccessDeniedError, ConfigurationError, TableNotFoundError

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_fds.delta.actions import Metadata

T = TypeVar("T")

#: Bounds of one request, and how often it is sent: 2 min at the most, with the pauses between.
_CONNECT_SECONDS: Final = 10
_READ_SECONDS: Final = 20
_ATTEMPTS: Final = 4

_DENIED: Final = frozenset(
    {"AccessDeniedException", "AccessDenied", "GlueEncryptionException", "PermissionTypeMismatchException"}
)
_EXPIRED: Final = frozenset({"ExpiredTokenException", "ExpiredToken", "RequestExpired"})
_INVALID: Final = frozenset(
    {
        "UnrecognizedClientException", "InvalidClientTokenId", "InvalidSignatureException", "SignatureDoesNotMatch",
        "IncompleteSignature", "IncompleteSignatureException", "MissingAuthenticationToken",
        "MissingAuthenticationTokenException", "InvalidAccessKeyId", "OptInRequired",
    }
)  # fmt: skip
#: What an action does, if it is not to read.
_WORDS: Final = {"glue:CreateTable": "create"}
#: Errors of boto3 itself which say that it found no usable credentials.
_NO_CREDENTIALS: Final = frozenset(
    {
        "NoCredentialsError", "PartialCredentialsError", "CredentialRetrievalError", "ProfileNotFound",
        "SSOTokenLoadError", "UnauthorizedSSOTokenError", "TokenRetrievalError", "InvalidConfigError",
        "NoAuthTokenError",
    }
)  # fmt: skip


class GlueCatalog:
    """The Glue Data Catalog of an account and region; names are ``database.table``.

    In another catalog, such as that of another account, names are ``catalog_id.database.table``.

    Args:
        client: Returns a new client of boto3 for ``glue``, such as :func:`glue_client`. Called when the first table is
            loaded, and again when credentials expired.
    """

    title: ClassVar[str] = "AWS Glue"

    def __init__(self, client: Callable[[], Any]) -> None:
        self._new_client = client
        self._lock = threading.Lock()
        #: With its process: a child must not use the connections of its parent.
        self._client: tuple[int, Any] | None = None

    def load(self, name: TableName) -> CatalogTable:
        """Return what Glue says of a table, see :class:`.Catalog`; its id is the time of its creation.

        A resource link has the location and the id of the table that it points to.
        """
        catalog, database, table = _parts(name, "database", "table")
        entry = self._get_table(name, "glue:GetTable", **catalog, DatabaseName=database, Name=table)
        found = TableName((*catalog.values(), entry.get("DatabaseName") or database, entry.get("Name") or table))
        target = entry.get("TargetTable")
        if target:
            asked = {key: target[key] for key in ("CatalogId", "DatabaseName", "Name") if target.get(key)}
            link = f"glue:GetTable on {'.'.join(asked.values())}, which the resource link points to"
            entry = self._get_table(name, link, **asked)
        location = delta_location(self._called(), _metastore_table(found, entry))
        return CatalogTable(found, location, _created(entry))

    def tables(self, schema: TableName) -> list[TableName]:
        """Return the names of all tables of a database, see :class:`.Catalog`."""
        return [TableName((*schema.parts, entry["Name"])) for entry in self._entries(schema)]

    def listed(self, schema: TableName) -> list[ListedTable]:
        """Return what Glue says of all tables of a database, see :class:`.Catalog`; links are looked up one by one."""
        return [self._listed(TableName((*schema.parts, entry["Name"])), entry) for entry in self._entries(schema)]

    def _listed(self, name: TableName, entry: dict[str, Any]) -> ListedTable:
        try:
            if entry.get("TargetTable"):
                found = self.load(name)
                return ListedTable(name, found.location, found.table_id)
            return ListedTable(name, delta_location(self._called(), _metastore_table(name, entry)), _created(entry))
        except (ConfigurationError, AccessDeniedError, TableNotFoundError) as error:
            return ListedTable(name, problem=str(error))

    def _entries(self, schema: TableName) -> list[dict[str, Any]]:
        catalog, database = _parts(schema, "database")

        def entries(client: Any) -> list[dict[str, Any]]:
            pages = client.get_paginator("get_tables").paginate(**catalog, DatabaseName=database)
            return sorted((entry for page in pages for entry in page["TableList"]), key=lambda entry: entry["Name"])

        return self._call(schema, "glue:GetTables", entries)

    def load_sink(self, name: TableName) -> CatalogTable:
        """Return what Glue says of a table that FDS writes by its URI, see :class:`.Catalog`."""
        return self.load(name)

    def new_location(self, name: TableName) -> str:
        """Return the folder of a new table in its database's folder, see :class:`.Catalog`."""
        database, table = name.expect("database", "table").parts
        schema = TableName((database,))
        found = self._call(schema, "glue:GetDatabase", lambda client: client.get_database(Name=database)["Database"])
        folder = str(found.get("LocationUri") or "").rstrip("/")
        return folder_uri(self._called(), name, f"{folder}/{table.lower()}") if folder else ""

    def register(self, name: TableName, location: str, table: Metadata) -> None:  # noqa: ARG002
        """Register a table as Spark does, but with its folder as its location too, see :class:`.Catalog`."""
        database, called = name.expect("database", "table").parts
        name_, type_, comment = external_table.COLUMN
        serde = {
            "SerializationLibrary": external_table.SERDE,
            "Parameters": external_table.serde_parameters(location),
        }
        entry = {
            "Name": called,
            "TableType": external_table.TABLE_TYPE,
            "Parameters": external_table.PARAMETERS,
            "StorageDescriptor": {
                "Location": unquote(location),
                "Columns": [{"Name": name_, "Type": type_, "Comment": comment}],
                "InputFormat": external_table.INPUT_FORMAT,
                "OutputFormat": external_table.OUTPUT_FORMAT,
                "SerdeInfo": serde,
            },
        }

        def create(client: Any) -> None:
            with suppress(client.exceptions.AlreadyExistsException):
                client.create_table(DatabaseName=database, TableInput=entry)

        self._call(name, "glue:CreateTable", create)

    def _get_table(self, name: TableName, action: str, **asked: str) -> dict[str, Any]:
        entry: dict[str, Any] = self._call(name, action, lambda client: client.get_table(**asked)["Table"])
        return entry

    def _call(self, name: TableName, action: str, ask: Callable[[Any], T]) -> T:
        from botocore.exceptions import BotoCoreError, ClientError

        is_renewed = False
        while True:
            client = None
            try:
                client = self._kept()
                return ask(client)
            except ClientError as error:
                code = error.response.get("Error", {}).get("Code", "")
                if code in _EXPIRED and not is_renewed:
                    is_renewed = True
                    self._forget()
                    continue
                raise self._refused(name, action, error, code) from None
            except BotoCoreError as error:
                kind = type(error).__name__
                text = redacted(str(error))[:300]
                if kind in _NO_CREDENTIALS:
                    way_on = "Set credentials in the Airflow connection of the catalog, or in the environment"
                    raise problems.denied(self._called(), name, text, way_on) from None
                if kind == "NoRegionError":
                    raise ConfigurationError(
                        f"{self.title} has no region. Set 'region_name' in the extra of the catalog's connection"
                    ) from None
                raise problems.unavailable(self._called(), name, f"{kind}: {text}") from None
            except (KeyError, TypeError, AttributeError) as error:
                if client is None:
                    raise
                answer = f"an answer without what it must have ({type(error).__name__}: {error})"
                raise problems.unavailable(self._called(), name, answer) from None

    def _refused(self, name: TableName, action: str, error: Any, code: str) -> Exception:
        text = redacted(str(error.response.get("Error", {}).get("Message") or code)).split("\n", 1)[0][:500]
        if code == "EntityNotFoundException":
            is_database = text.lower().startswith("database ") or len(name.parts) == 1
            return problems.not_found(
                self._called(),
                name,
                "There is no database of this name in this account and region" if is_database else "",
            )
        if code in _EXPIRED:
            return problems.denied(
                self._called(), name, f"the credentials have expired ({text})", "Renew them, then clear the task"
            )
        if code in _INVALID:
            return problems.denied(
                self._called(),
                name,
                f"the credentials are not valid ({code}: {text})",
                "Correct the catalog's connection",
            )
        if code in _DENIED:
            way_on = (
                f"Allow {action} to the principal of the connection, for the catalog, the database and the table; with "
                "Lake Formation, also grant DESCRIBE on the table"
            )
            if code == "GlueEncryptionException":
                way_on = "Allow kms:Decrypt for the key with which the Data Catalog is encrypted"
            return problems.denied(self._called(), name, text, way_on, does=_WORDS.get(action, "read"))
        if code in ("InvalidInputException", "ValidationException"):
            return problems.not_found(self._called(), name, f"Glue does not accept the name: {text}")
        return problems.unavailable(self._called(), name, f"{code}: {text}")

    def _called(self) -> str:
        kept = self._client
        region = getattr(getattr(kept[1], "meta", None), "region_name", None) if kept else None
        return f"{self.title} in {region}" if region else self.title

    def _kept(self) -> Any:
        with self._lock:
            if self._client is None or self._client[0] != os.getpid():
                self._client = (os.getpid(), self._new_client())
            return self._client[1]

    def _forget(self) -> None:
        with self._lock:
            self._client = None


def glue_client(*, endpoint_url: str | None = None, session: Any = None, **session_kwargs: Any) -> Any:
    """Return a client of Glue, bounded in time, that tries again when it is throttled.

    Args:
        endpoint_url: Another endpoint, such as a VPC's.
        session: A session of boto3; missing: one of ``session_kwargs``.
        **session_kwargs: For ``boto3.session.Session``: ``region_name``, ``profile_name``, keys.

    Raises:
        ConfigurationError: boto3 is not installed.
    """
    if not find_spec("boto3"):
        raise ConfigurationError(
            "the connection is of AWS Glue, for which boto3 is not installed: pip install 'airflow-provider-fds[glue]'"
        )
    import boto3
    from botocore.config import Config

    config = Config(
        connect_timeout=_CONNECT_SECONDS,
        read_timeout=_READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
    )
    session = session or boto3.session.Session(**session_kwargs)
    return session.client("glue", endpoint_url=endpoint_url, config=config)


def _parts(name: TableName, *kinds: str) -> tuple[Any, ...]:
    """Return the argument for the catalog that a name begins with, if it does, then its parts."""
    if len(name.parts) == len(kinds) + 1:
        catalog_id, *parts = name.expect("catalog_id", *kinds).parts
        return ({"CatalogId": catalog_id}, *parts)
    return ({}, *name.expect(*kinds).parts)


def _created(entry: dict[str, Any]) -> str:
    created = entry.get("CreateTime")
    return created.astimezone(UTC).isoformat() if isinstance(created, datetime) else ""


def _metastore_table(name: TableName, entry: dict[str, Any]) -> MetastoreTable:
    descriptor = entry.get("StorageDescriptor") or {}
    serde = descriptor.get("SerdeInfo") or {}
    target = entry.get("TargetTable") or {}
    return MetastoreTable(
        name,
        table_type=entry.get("TableType") or "",
        parameters=entry.get("Parameters") or {},
        location=descriptor.get("Location") or "",
        serde_path=(serde.get("Parameters") or {}).get("path", ""),
        input_format=descriptor.get("InputFormat") or "",
        link=".".join(filter(None, (target.get("DatabaseName"), target.get("Name")))),
    )
