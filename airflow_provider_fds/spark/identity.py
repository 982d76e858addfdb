"""What an attempt leaves in staging of the session it works in, so that who comes after can find and stop its work.

Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

from typing import Any, Dict, List


def is_connect(spark: Any) -> bool:
    """Whether the session is on a Spark Connect server: without a JVM on this side."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def identity(spark: Any) -> Dict[str, Any]:
    """Return ``application``, and on Spark Connect session, user and tags of what this thread runs there.

    Operations of a session are only found again by session and user together. Nothing of it is secret: it opens no
    door that the token of the server, if it has one, does not open.
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
