"""``DeltaTableHook``: read Delta tables with an Airflow connection, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import BaseHook

from airflow_provider_fds.delta.reader.log import DeltaLog
from airflow_provider_fds.errors import FdsError
from airflow_provider_fds.hooks.places import open_table

if TYPE_CHECKING:
    from airflow_provider_fds.delta.storage.storage import Storage


class DeltaTableHook(BaseHook):
    """Opens Delta tables and their transaction logs with the credentials of an Airflow connection.

    It only reads. The connection has the cloud's own type (``aws``, ``google_cloud_platform``, ``wasb``). Its provider
    package is needed only for roles, profiles and impersonation.

    Args:
        storage_conn_id: Id of the connection; ``None`` to use the environment's credentials.
        catalog_conn_id: Id of the connection of a catalog: tables are then given by their names in it.

    Examples:
        >>> from airflow_provider_fds import DeltaTableHook
        >>> DeltaTableHook().get_storage("/lake/orders").uri
        'file:///lake/orders'
    """

    conn_name_attr = "storage_conn_id"
    hook_name = "Delta Lake table"

    def __init__(self, storage_conn_id: str | None = None, catalog_conn_id: str | None = None) -> None:
        super().__init__()
        self.storage_conn_id = storage_conn_id
        self.catalog_conn_id = catalog_conn_id

    def get_conn(self) -> DeltaTableHook:
        """Return the hook itself: it holds no connection open."""
        return self

    def get_storage(self, uri: str) -> Storage:
        """Return the folder at ``uri``. Looks up the connection, but sends no request to the store.

        Raises:
            ConfigurationError: Unknown scheme, no such connection, or a connection whose type belongs to a different
                store.
        """
        return open_table(self.storage_conn_id, uri, self.catalog_conn_id)

    def get_log(self, uri: str) -> DeltaLog:
        """Return the transaction log of the table at ``uri``. Reads nothing yet."""
        return DeltaLog(self.get_storage(uri))

    def latest_version(self, uri: str) -> int:
        """Return the newest version of the table at ``uri``.

        Raises:
            TableNotFoundError: There is no Delta table.
            StorageError: The store does not answer, or refuses.
        """
        return self.get_log(uri).latest()

    def check_table(self, uri: str) -> tuple[bool, str]:
        """Return whether the table can be read, and a message about it. Does not raise FDS errors."""
        try:
            version = self.latest_version(uri)
        except FdsError as error:
            return False, f"{type(error).__name__}: {error}"
        return True, f"table {uri} is at version {version}"
