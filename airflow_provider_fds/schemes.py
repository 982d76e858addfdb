"""The URI schemes: which store each one names, and the scheme under which Spark reaches it, in one table.

Standard library only, Python 3.9 syntax: used in Airflow and on the Spark driver.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Scheme(NamedTuple):
    """The meaning of a scheme.

    Attributes:
        kind: ``"local"``, ``"s3"``, ``"gcs"``, ``"azure"`` or ``"hdfs"``.
        hadoop: The scheme for which Hadoop has a file system; ``None`` if there is none, so that Spark cannot reach it.
    """

    kind: str
    hadoop: str | None

    @property
    def is_planned_from(self) -> bool:
        """Whether FDS in Airflow reads and writes there."""
        return self.kind != "hdfs"

    @property
    def whole_on_close(self) -> bool:
        """Whether a file appears as a whole when it is closed, and a rename would be a copy."""
        return self.kind in ("s3", "gcs", "azure")


#: ``docs/object_storage.md`` shows this table; a test compares the two.
SCHEMES: dict[str, Scheme] = {
    "file": Scheme("local", "file"),
    # Hadoop ships a file system only for s3a; the three schemes name the same bucket
    "s3": Scheme("s3", "s3a"),
    "s3a": Scheme("s3", "s3a"),
    "s3n": Scheme("s3", "s3a"),
    "gs": Scheme("gcs", "gs"),
    "az": Scheme("azure", None),
    "abfs": Scheme("azure", "abfs"),
    "abfss": Scheme("azure", "abfss"),
    "wasb": Scheme("azure", "wasb"),
    "wasbs": Scheme("azure", "wasbs"),
    "hdfs": Scheme("hdfs", "hdfs"),
    "webhdfs": Scheme("hdfs", "webhdfs"),
    "viewfs": Scheme("hdfs", "viewfs"),
}


def of_kind(kind: str) -> tuple[str, ...]:
    """Return the schemes of one kind of store, the simplest first."""
    return tuple(name for name, scheme in SCHEMES.items() if scheme.kind == kind)


def comparable(path: str) -> str:
    """Return a decoded path in one form per location: one S3 scheme, one slash after ``file:``, no trailing slash."""
    text = re.sub(r"^s3[an]?://", "s3://", path, flags=re.IGNORECASE)
    return re.sub(r"^file:/*", "file:/", text).rstrip("/")


#: The schemes of S3 and of S3-compatible stores.
S3_SCHEMES = of_kind("s3")
