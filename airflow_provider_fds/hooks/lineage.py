"""Tables in OpenLineage: whether this installation sends events, and the name of a table in them."""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from airflow_provider_fds.schemes import SCHEMES, with_plain_scheme

if TYPE_CHECKING:
    from airflow.sdk import Asset

logger = logging.getLogger(__name__)

#: Schemes of stores whose names in OpenLineage have no leading slash.
_OBJECT_STORES = frozenset(name for name, scheme in SCHEMES.items() if scheme.kind in ("s3", "gcs", "azure"))


class DatasetName(NamedTuple):
    """The name of a table in OpenLineage: its physical location, as OpenLineage's Spark agent names it.

    Attributes:
        namespace: ``scheme://authority``; ``file`` for a local file.
        name: The path, decoded. In an object store it has no leading slash.
    """

    namespace: str
    name: str


def dataset_name(uri: str) -> DatasetName:
    """Return the name of the table at an encoded URI with a scheme.

    >>> dataset_name("s3a://lake/bronze/orders")
    DatasetName(namespace='s3://lake', name='bronze/orders')
    >>> dataset_name("file:///lake/orders")
    DatasetName(namespace='file', name='/lake/orders')
    """
    scheme, _, rest = with_plain_scheme(uri).partition("://")
    scheme = {"abfs": "abfss", "wasb": "wasbs"}.get(scheme, scheme)
    authority, _, path = rest.partition("/")
    path = "/" + unquote(path).strip("/")
    name = path.lstrip("/") or "/" if scheme in _OBJECT_STORES else path
    return DatasetName(f"{scheme}://{authority}" if authority else scheme, name)


def convert_asset(asset: Asset, lineage_context: Any) -> Any:  # noqa: ARG001  # Airflow passes both
    """Return the OpenLineage dataset of an asset whose URI is a table's; Airflow calls this for each such asset."""
    from airflow.providers.common.compat.openlineage.facet import Dataset

    found = dataset_name(asset.uri)
    return Dataset(namespace=found.namespace, name=found.name)


def is_on() -> bool:
    """Whether this installation sends OpenLineage events. Never raises."""
    try:
        if find_spec("airflow.providers.openlineage") is None:
            return False
        from airflow.providers.openlineage import conf

        return not conf.is_disabled()
    except Exception:  # an invalid setting of the provider; it reports that itself
        logger.debug("The section [openlineage] cannot be read.", exc_info=True)
        return False
