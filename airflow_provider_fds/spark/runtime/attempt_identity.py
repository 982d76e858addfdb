"""The identity of an attempt's session, left in staging so that a later attempt can find and stop its work.

Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any, Dict, Optional
from urllib.parse import parse_qs, urlsplit

#: In the environment of a driver that a standalone cluster runs: the page with its log, whose query has its id.
_LOG_PAGE = "SPARK_DRIVER_LOG_URL_STDERR"
#: The name of the pod of a driver that Kubernetes runs.
_POD = "spark.kubernetes.driver.pod.name"


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


def _own_name(spark: Any) -> Optional[str]:
    """Return the cluster's name of this driver, if a cluster runs it."""
    if not is_in_cluster(spark):
        return None
    (known, *_) = parse_qs(urlsplit(os.environ.get(_LOG_PAGE, "")).query).get("driverId", [None])
    return str(known or spark.conf.get(_POD, None) or spark.sparkContext.applicationId)


def identity(spark: Any) -> Dict[str, Any]:
    """Return ``application`` and, on Spark Connect, session, user and tags of this thread's operations.

    Of a driver that a cluster runs, ``driver`` is the cluster's name of it, and ``log_url`` the page with its log.

    Operations of a session can only be found by session and user together. None of this is secret: it gives no access
    beyond that of the server's token, if it has one.
    """
    if not is_connect(spark):
        known = {"driver": _own_name(spark), "log_url": _log_page(spark)}
        return {
            "application": spark.sparkContext.applicationId,
            **{key: value for key, value in known.items() if value is not None},
        }
    return {
        "application": spark.conf.get("spark.app.id", None),
        "connect": {
            "session_id": spark.session_id,
            "user_id": spark.client._user_id,
            "tags": sorted(spark.getTags()),
        },
    }
