"""Statements on a warm Spark, for what delta-rs cannot write or read: a session of the scenario's Connect server."""

from __future__ import annotations

import threading
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.adversary.scene import Scene

_LOCK = threading.Lock()
_SESSIONS: dict[str, Any] = {}


def sql(scene: Scene, statement: str, shift: str = "") -> list[Any]:
    """Run a statement and return its rows."""
    url = scene.servers.get(shift).url
    with _LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if url not in _SESSIONS:
            from pyspark.sql.connect.session import SparkSession

            session = SparkSession.builder.remote(url).create()
            session.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
            _SESSIONS[url] = session
        scene.note(f"sql: {statement[:160]}")
        return list(_SESSIONS[url].sql(statement).collect())
