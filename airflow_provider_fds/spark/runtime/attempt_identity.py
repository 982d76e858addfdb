"""The identity of an attempt's session, left in staging so that a later attempt can find and stop its work.

Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, Dict, Optional

#: In the environment of a driver that a standalone cluster runs: the page with its log.
_LOG_PAGE = "SPARK_DRIVER_LOG_URL_STDERR"


def is_connect(spark: Any) -> bool:
    """Whether the session is on a Spark Connect server, so that there is no JVM on this side."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def is_in_cluster(spark: Any) -> bool:
    """Whether a cluster runs this driver, apart from whoever has started it."""
    return not is_connect(spark) and spark.conf.get("spark.submit.deployMode", "client") == "cluster"


def _log_page(spark: Any) -> Optional[str]:
    """Return the page with the log of a driver that a cluster runs, as far as this Spark knows one."""
    if _LOG_PAGE in os.environ:
        return os.environ[_LOG_PAGE]
    # such as the page of YARN's node
    with suppress(Exception):
        if is_in_cluster(spark):
            logs = spark.sparkContext._jsc.sc().statusStore().executorSummary("driver").executorLogs()
            return str(logs.apply("stderr"))
    return None


def identity(spark: Any) -> Dict[str, Any]:
    """Return ``application`` and, on Spark Connect, session, user and tags of this thread's operations.

    Operations of a session can only be found by session and user together. None of this is secret: it gives no access
    beyond that of the server's token, if it has one.
    """
    if not is_connect(spark):
        page = _log_page(spark)
        return {"application": spark.sparkContext.applicationId, **({} if page is None else {"log_url": page})}
    return {
        "application": spark.conf.get("spark.app.id", None),
        "connect": {
            "session_id": spark.session_id,
            "user_id": spark.client._user_id,
            "tags": sorted(spark.getTags()),
        },
    }
