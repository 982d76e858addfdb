"""Parts of SQL statements: quoted names, literals, and a temporary view. Standard library and pyspark.

Python 3.9 syntax.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Iterator
from uuid import uuid4


def quoted_name(name: str) -> str:
    """Return a column's name quoted for SQL."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """Return a text as a SQL literal."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


@contextmanager
def temporary_view(spark: Any, frame: Any) -> Iterator[str]:
    """Register the frame as a temporary view of this session within the context."""
    name = f"fds_batch_{uuid4().hex}"
    frame.createOrReplaceTempView(name)
    try:
        yield name
    finally:
        spark.catalog.dropTempView(name)
