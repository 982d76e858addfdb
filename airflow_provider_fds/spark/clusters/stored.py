"""Clusters as plain values, as a trigger stores the one that it asks about a driver."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, Final

from airflow_provider_fds.lazy import load_class

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow_provider_fds.spark.clusters.cluster import Cluster

#: Clusters by their kind, each ``module:class``.
_CLUSTERS: Final = {
    "kubernetes": "airflow_provider_fds.spark.clusters.kubernetes:KubernetesCluster",
    "standalone": "airflow_provider_fds.spark.clusters.standalone:StandaloneCluster",
    "yarn": "airflow_provider_fds.spark.clusters.yarn:YarnCluster",
}


def to_dict(cluster: Any) -> dict[str, Any]:
    """Return a cluster as plain values: its kind and its fields."""
    values = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(cluster).items()}
    return {"kind": cluster.kind, **values}


def from_dict(stored: Mapping[str, Any]) -> Cluster | None:
    """Return the cluster, ``None`` if it is of a kind that is unknown here: another version of FDS has stored it."""
    place = _CLUSTERS.get(str(stored.get("kind")))
    if place is None:
        return None
    kind = load_class(place)
    known = {each.name for each in fields(kind)}
    values = {
        name: tuple(value) if isinstance(value, list) else value for name, value in stored.items() if name in known
    }
    found: Cluster = kind(**values)
    return found
