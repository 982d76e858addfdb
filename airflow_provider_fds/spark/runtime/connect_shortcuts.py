"""What FDS's classes on a Spark Connect server do for a client; ``fds connect-server`` starts servers that have them.

The classes are in ``java/connect``. Standard library and pyspark, Python 3.9 syntax.
"""

from __future__ import annotations

import json
from typing import Any

#: The class, and the setting by which a server loads it.
SHORTCUTS = "fds.connect.BatchShortcuts"
RELATION_CLASSES = "spark.connect.extensions.relation.classes"


def has_shortcuts(spark: Any) -> bool:
    """Whether the server of a Spark Connect session has the classes."""
    return SHORTCUTS in (spark.conf.get(RELATION_CLASSES, None) or "").split(",")


def shortcut(spark: Any, kind: str, path: str, **more: Any) -> Any:
    """Return the frame of a request to the classes, which is made whenever the frame is analysed.

    Args:
        spark: Session of a server that has them.
        kind: ``rows`` or ``transactions``.
        path: The Delta table.
        more: What else the request says.
    """
    from google.protobuf.wrappers_pb2 import StringValue  # type: ignore[import-untyped]
    from pyspark.sql.connect.dataframe import DataFrame
    from pyspark.sql.connect.plan import LogicalPlan

    request = StringValue(value=json.dumps({"fds": kind, "path": path, **more}))

    class Shortcut(LogicalPlan):  # type: ignore[misc]
        def plan(self, session: Any) -> Any:  # noqa: ARG002 - as Spark calls it
            relation = self._create_proto_relation()
            relation.extension.Pack(request)
            return relation

    return DataFrame(Shortcut(None), spark)
