"""Statements on a warm Spark, for what delta-rs cannot write or read: one session per thread and Connect server."""

from __future__ import annotations

import threading
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.adversary.scene import Scene

_LOCK = threading.Lock()
_SESSIONS: dict[tuple[str, int], Any] = {}


def sql(scene: Scene, *statements: str, shift: str = "") -> list[Any]:
    """Run statements in order in one session, and return the rows of the last."""
    session = _session(scene.servers.get(shift).url)
    rows: list[Any] = []
    for statement in statements:
        scene.note(f"sql: {statement[:160]}")
        rows = list(session.sql(statement).collect())
    return rows


def _session(url: str) -> Any:
    mine = (url, threading.get_ident())
    with _LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if mine not in _SESSIONS:
            from pyspark.sql.connect.session import SparkSession

            session = SparkSession.builder.remote(url).create()
            session.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
            _SESSIONS[mine] = session
        return _SESSIONS[mine]


def close() -> None:
    """End all sessions while their servers still run: a client without its server retries for minutes."""
    with _LOCK, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for session in _SESSIONS.values():
            with suppress(Exception):
                session.stop()
        _SESSIONS.clear()
