"""Opens tables and folders with an Airflow connection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_fds.delta.storage.open import open_place, open_storage
from airflow_provider_fds.hooks.storage import storage_options
from airflow_provider_fds.places import Paths

if TYPE_CHECKING:
    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.places import Places


def table_places(conn_id: str | None, table: str) -> Places:
    """Return what finds tables with an Airflow connection. Looks it up now, for ``table``, as :func:`storage_options`.

    Raises:
        ConfigurationError: As :func:`storage_options`.
    """
    return Paths(storage_options(conn_id, table))


def open_table(conn_id: str | None, table: str) -> Storage:
    """Open a table with an Airflow connection. Raises as :func:`storage_options`."""
    return open_place(table_places(conn_id, table).resolve(table))


def open_folder(conn_id: str | None, uri: str) -> Storage:
    """Open a folder that is no table with an Airflow connection. Raises as :func:`storage_options`."""
    return open_storage(uri, storage_options(conn_id, uri))


__all__ = ["open_folder", "open_table", "table_places"]
