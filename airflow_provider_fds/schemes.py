"""The URI schemes: which store each one names, and the scheme under which Spark reaches it, in one table.

Standard library only, Python 3.9 syntax: used in Airflow and on the Spark driver.
"""

from __future__ import annotations

import os.path
import re
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

#: Characters allowed unencoded in the path of a URI (RFC 3986 ``pchar`` and the slash). ``%`` is not among them.
PATH_SAFE = "/:@!$&'()*+,;=-._~"


class Scheme(NamedTuple):
    """The meaning of a scheme.

    Attributes:
        kind: ``"local"``, ``"s3"``, ``"gcs"``, ``"azure"``, ``"hdfs"``, or ``"hadoop"``: only Spark reaches it.
        hadoop: The scheme for which Hadoop has a file system, or ``None`` if Spark cannot reach the store.
        same_as: The scheme that stands for all that name the same places; ``None`` if this is the only one.
        instead: For a scheme that Spark cannot reach: what to write instead.
    """

    kind: str
    hadoop: str | None
    same_as: str | None = None
    instead: str | None = None

    @property
    def is_planned_from(self) -> bool:
        """Whether FDS in Airflow reads and writes there."""
        return self.kind != "hadoop"

    @property
    def whole_on_close(self) -> bool:
        """Whether a file appears as a whole when it is closed, and a rename would be a copy."""
        return self.kind not in ("local", "hdfs", "hadoop")


#: ``docs/object_storage.md`` shows this table; a test compares the two. Another scheme of a known kind is a line here.
#: A new kind also needs a line in ``delta/storage/open.py``, which opens it, and one in ``hooks/storage.py``, which
#: reads its connections.
SCHEMES: dict[str, Scheme] = {
    "file": Scheme("local", "file"),
    # Hadoop ships a file system only for s3a; the three schemes name the same bucket
    "s3": Scheme("s3", "s3a", same_as="s3"),
    "s3a": Scheme("s3", "s3a", same_as="s3"),
    "s3n": Scheme("s3", "s3a", same_as="s3"),
    "gs": Scheme("gcs", "gs"),
    "az": Scheme("azure", None, instead="abfss://<container>@<account>.dfs.core.windows.net/<path>"),
    "abfs": Scheme("azure", "abfs"),
    "abfss": Scheme("azure", "abfss"),
    "wasb": Scheme("azure", "wasb"),
    "wasbs": Scheme("azure", "wasbs"),
    "hdfs": Scheme("hdfs", "hdfs"),
    "webhdfs": Scheme("hadoop", "webhdfs"),
    "viewfs": Scheme("hadoop", "viewfs"),
}


def of_kind(kind: str) -> tuple[str, ...]:
    """Return the schemes of one kind of store, the simplest first."""
    return tuple(name for name, scheme in SCHEMES.items() if scheme.kind == kind)


def _spellings(plain: str) -> re.Pattern[str]:
    names = "|".join(name for name, scheme in SCHEMES.items() if scheme.same_as == plain)
    return re.compile(f"^(?:{names})://", re.IGNORECASE)


_PLAIN = {scheme.same_as: _spellings(scheme.same_as) for scheme in SCHEMES.values() if scheme.same_as is not None}


def with_plain_scheme(uri: str) -> str:
    """Return a URI with one scheme per location: ``s3a://bucket`` becomes ``s3://bucket``."""
    for plain, names in _PLAIN.items():
        uri = names.sub(f"{plain}://", uri)
    return uri


def comparable(path: str) -> str:
    """Return a decoded path in one form per location: one S3 scheme, one slash after ``file:``, no trailing slash."""
    return re.sub(r"^file:/*", "file:/", with_plain_scheme(path)).rstrip("/")


def location(table: str) -> str:
    """Return a table's URI or local path, as a user writes it, in one form per location.

    What has no slash, as the name of a catalog's table, is returned as it is.

    >>> {location("/lake/my orders"), location("file:///lake/my%20orders/"), location("file:/lake/my orders")}
    {'file:/lake/my orders'}
    """
    if "/" not in table:
        return table
    if "://" in table:
        return comparable(unquote(table))
    return comparable(table if table.startswith("file:") else f"file:{os.path.normpath(Path(table).absolute())}")


#: The schemes of S3 and of S3-compatible stores.
S3_SCHEMES = of_kind("s3")
