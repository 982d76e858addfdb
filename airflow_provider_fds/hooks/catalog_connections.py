"""The connection types of catalogs: their forms in Airflow's UI, and the button that tests a connection."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from airflow.providers.common.compat.sdk import BaseHook

from airflow_provider_fds.errors import FdsError, TableNotFoundError

#: A table that no catalog has: a catalog that says so was reached, and has accepted the credentials.
_NO_TABLE: Final = "fds_connection_test"


class _CatalogHook(BaseHook):
    conn_name_attr = "catalog_conn_id"
    default_conn_name: ClassVar[str]
    #: The parts of a name before the table.
    _schema: ClassVar[tuple[str, ...]]

    def __init__(self, catalog_conn_id: str | None = None) -> None:
        super().__init__()
        self.catalog_conn_id = catalog_conn_id or self.default_conn_name

    def get_conn(self) -> Any:
        """Return the catalog."""
        from airflow_provider_fds.hooks.catalogs import catalog_of

        return catalog_of(self.catalog_conn_id)

    def test_connection(self) -> tuple[bool, str]:
        """Return whether the catalog answers, and a message about it."""
        from airflow_provider_fds.catalog.names import TableName

        try:
            self.get_conn().load(TableName((*self._schema, _NO_TABLE)))
        except TableNotFoundError:
            pass
        except FdsError as error:
            return False, str(error)
        return True, "the catalog answers"


class HiveMetastoreCatalogHook(_CatalogHook):
    """The connection type ``fds_hive``: a Hive metastore."""

    conn_type = "fds_hive"
    default_conn_name = "fds_hive_default"
    hook_name = "Hive metastore (FDS)"
    _schema = ("default",)


class UnityCatalogHook(_CatalogHook):
    """The connection type ``fds_unity``: Unity Catalog."""

    conn_type = "fds_unity"
    default_conn_name = "fds_unity_default"
    hook_name = "Unity Catalog (FDS)"
    _schema = ("main", "default")
