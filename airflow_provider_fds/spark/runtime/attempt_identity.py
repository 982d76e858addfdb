"""The identity of an attempt's session, left in staging so that a later attempt can find and stop its work.

Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

from typing import Any, Dict, List


def is_connect(spark: Any) -> bool:
    """Whether the session is on a Spark Connect server, so that there is no JVM on this side."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def identity(spark: Any) -> Dict[str, Any]:
    """Return ``application`` and, on Spark Connect, session, user and tags of this thread's operations.

    Operations of a session can only be found by session and user together. None of this is secret: it gives no access
    beyond that of the server's token, if it has one.
    """
    if not is_connect(spark):
        return {"application": spark.sparkContext.applicationId}
    return {
        "application": spark.conf.get("spark.app.id", None),
        "connect": {
            "session_id": spark.session_id,
            "user_id": spark.client._user_id,
            "tags": sorted(spark.getTags()),
        },
    }


__all__: List[str] = ["identity", "is_connect"]
