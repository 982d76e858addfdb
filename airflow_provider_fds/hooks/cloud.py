"""Credentials that need a cloud's own Airflow provider: roles, profiles, impersonation.

Each function returns a credential provider of obstore. It uses the hook of that package, which refreshes the
credentials. Providers are kept per process, connection and ``content`` (a hash of the connection, so that an edited
connection counts as another one): a store that is opened twice is one store.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from typing import Any

from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason


@lru_cache(maxsize=64)
def s3_provider(conn_id: str, content: int) -> Any:  # noqa: ARG001  # content is part of the cache's key
    """Return S3 credentials of an ``aws`` connection through the amazon provider (role, profile, federation)."""
    from obstore.auth.boto3 import Boto3CredentialProvider

    return Boto3CredentialProvider(aws_session(conn_id))


def aws_session(conn_id: str) -> Any:
    """Return the boto3 session of an ``aws`` connection through the amazon provider, which renews its credentials."""
    hook = _load("airflow.providers.amazon.aws.hooks.base_aws", "AwsBaseHook", "amazon", "s3", conn_id)
    return hook(aws_conn_id=conn_id, client_type="s3").get_session()


@lru_cache(maxsize=64)
def gcs_provider(conn_id: str, content: int) -> Any:  # noqa: ARG001
    """Return Google credentials of a connection through the google provider (impersonation, secret manager)."""
    hook = _load("airflow.providers.google.common.hooks.base_google", "GoogleBaseHook", "google", "gcs", conn_id)
    from obstore.auth.google import GoogleCredentialProvider

    return GoogleCredentialProvider(hook(gcp_conn_id=conn_id).get_credentials())


@lru_cache(maxsize=64)
def azure_provider(conn_id: str, content: int) -> Any:  # noqa: ARG001
    """Return Azure credentials of a ``wasb`` connection through the azure provider (managed identity)."""
    hook = _load("airflow.providers.microsoft.azure.hooks.wasb", "WasbHook", "microsoft-azure", "azure", conn_id)
    from obstore.auth.azure import AzureCredentialProvider

    return AzureCredentialProvider(hook(wasb_conn_id=conn_id).get_conn().credential)


def _load(module: str, name: str, package: str, extra: str, conn_id: str) -> Any:
    try:
        return getattr(import_module(module), name)
    except ImportError as error:
        raise ConfigurationError(
            f"Connection {conn_id!r} requires credentials that only the {package} provider can create (a role, a "
            f"profile, an impersonation), but it is not installed. Install apache-airflow-providers-{package} "
            f"with pip install 'airflow-provider-fds[{extra}]', put keys into the connection, or omit "
            "storage_conn_id to use the environment's credentials.",
            reason=Reason.CONNECTION_UNUSABLE,
        ) from error
