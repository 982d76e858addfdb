"""Statements on a warm Spark, for what delta-rs cannot write or read: a session of the scenario's Connect server."""

from __future__ import annotations

import threading
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.adversary.scene import Scene

_LOCK = threading.Lock()
_SESSIONS: dict[str, Any] = {}


def sql(scene: Scene, *statements: str, shift: str = "") -> list[Any]:
    """Run statements one after the other in one session, and return the rows of the last."""
    url = scene.servers.get(shift).url
    with _LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if url not in _SESSIONS:
            from pyspark.sql.connect.session import SparkSession

            session = SparkSession.builder.remote(url).create()
            session.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
            _SESSIONS[url] = session
        rows: list[Any] = []
        for statement in statements:
            scene.note(f"sql: {statement[:160]}")
            rows = list(_SESSIONS[url].sql(statement).collect())
        return rows


def close() -> None:
    """End all sessions, while their servers still run: a client whose server is gone asks again for minutes."""
    with _LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for session in _SESSIONS.values():
            with suppress(Exception):
                session.stop()
        _SESSIONS.clear()
