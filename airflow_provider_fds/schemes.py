"""The schemes of URIs: which store each one names, and by which scheme Spark reaches the same place. The one table.

Standard library only, Python 3.9 syntax: it is read on Airflow's side and on the Spark driver.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Scheme(NamedTuple):
    """What one scheme means.

    Attributes:
        kind: ``"local"``, ``"s3"``, ``"gcs"``, ``"azure"`` or ``"hdfs"``.
        hadoop: The scheme for which Hadoop has a file system; ``None``: there is none, Spark cannot go there.
    """

    kind: str
    hadoop: str | None

    @property
    def is_planned_from(self) -> bool:
        """Whether FDS reads and writes there on Airflow's side."""
        return self.kind != "hdfs"

    @property
    def whole_on_close(self) -> bool:
        """Whether a file appears whole when it is closed, and a rename would be a copy."""
        return self.kind in ("s3", "gcs", "azure")


#: ``docs/object_storage.md`` shows it; a test holds the two together.
SCHEMES: dict[str, Scheme] = {
    "file": Scheme("local", "file"),
    # Hadoop ships a file system for s3a only; the three name the same bucket
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
    """Return the schemes of one kind of store, the plainest first."""
    return tuple(name for name, scheme in SCHEMES.items() if scheme.kind == kind)


def comparable(path: str) -> str:
    """Return a decoded path in one form per place: one S3 scheme, one slash after ``file:``, none at the end."""
    text = re.sub(r"^s3[an]?://", "s3://", path, flags=re.IGNORECASE)
    return re.sub(r"^file:/*", "file:/", text).rstrip("/")


#: The schemes of S3 and of whatever speaks its protocol.
S3_SCHEMES = of_kind("s3")
