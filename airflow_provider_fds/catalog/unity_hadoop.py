"""How Spark asks Unity Catalog for the credentials of one table itself: the settings of ``unitycatalog-hadoop``.

A key of the catalog lives for minutes, an application for hours, so Spark gets no key, but the way to ask for one. The
library calls its settings internal: its version is pinned where Spark gets its JARs (``spark/installation/jars.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from airflow_provider_fds.catalog.names import TableName
    from airflow_provider_fds.catalog.unity_answers import TableAnswer
    from airflow_provider_fds.catalog.unity_http import Login

_PREFIX: Final = "fs.unitycatalog."
#: A server that asks nobody who they are ignores the token, but the library needs one.
_NOBODY: Final = "anonymous"


def hadoop_settings(host: str, login: Login, name: TableName, found: TableAnswer) -> dict[str, str]:
    """Return Hadoop's settings by their full names; some are secret.

    Args:
        host: ``https://host`` of the catalog.
        login: How to prove who asks.
        name: The table.
        found: What the catalog says of it.
    """
    settings = {
        "uri": host,
        "credentials.type": "table",
        # without it the library fails; it tells keys of one application from those of another in the same JVM
        "cred.context.id": "fds",
        "credential.prefix": found.location,
        "table.operation": "READ",
        **_login(host, login),
    }
    if found.is_of_rest_api:
        settings["table.id"] = found.table_id
    else:
        catalog, schema, table = name.parts
        settings |= {
            "delta.credentials.api.enabled": "true",
            "delta.catalog": catalog,
            "delta.schema": schema,
            "delta.table.name": table,
            "delta.location": found.location,
        }
    return {_PREFIX + key: value for key, value in settings.items()}


def _login(host: str, login: Login) -> dict[str, str]:
    if login.client_id and not login.token:
        return {
            "auth.type": "oauth",
            "auth.oauth.uri": login.token_address(host),
            "auth.oauth.clientId": login.client_id,
            "auth.oauth.clientSecret": login.client_secret,
            "auth.oauth.scope": login.scope,
        }
    return {"auth.type": "static", "auth.token": login.token or _NOBODY}
