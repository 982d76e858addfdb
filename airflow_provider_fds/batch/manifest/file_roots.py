"""The locations that a source's files may be read from: its own folder, its own store, and those that the user names.

A table's log names its files, and a shallow clone names those of its origin by absolute URI. Spark reads them with its
own rights, so the writer of the log decides what is read. Without ``allowed_roots``, files anywhere in the table's own
bucket, container or file system are accepted, which most clones need. With it, only files in the table's own folder and
in the named locations are accepted.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from airflow_provider_fds.credentials import redacted_uri
from airflow_provider_fds.errors import ConfigurationError
from airflow_provider_fds.reasons import Reason
from airflow_provider_fds.schemes import SCHEMES, comparable

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Stands for every location.
ANYWHERE: Final = "*"

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(?=:)")


def stays_inside(path: str) -> bool:
    """Return whether a logged path certainly lies in the table's folder: relative, with nothing that leads out."""
    return not path.startswith("/") and ":" not in path and ".." not in path and "%2" not in path


class FileRoots:
    """The locations that the files of one table may be in.

    Args:
        base: URI of the table, percent-encoded, without a trailing slash.
        allowed: URIs of further locations; ``*`` for anywhere; empty for the table's own store.
    """

    def __init__(self, base: str, allowed: Sequence[str] = ()) -> None:
        self._base = base
        self._prefix = f"{base}/"
        self._words = "allowed_roots" if allowed else "its bucket or file system"
        self._is_anywhere = ANYWHERE in allowed
        self._roots = [_place(base), *map(_place, (root for root in allowed if root != ANYWHERE))]
        self._store = None if allowed else _store(base)

    def check(self, uri: str, version: int) -> str:
        """Return the URI of a file that ``version`` lists.

        Raises:
            ConfigurationError: Its location is not allowed.
        """
        if self._is_anywhere:
            return uri
        place = _place(uri)
        if any(place.startswith(f"{root}/") for root in self._roots):
            return uri
        leads_out = uri.startswith(self._prefix)
        if not leads_out and _store(uri) == self._store and ".." not in unquote(uri).split("/"):
            return uri
        raise ConfigurationError(
            f"the log of table {self._base} lists the file {redacted_uri(uri)}, which is outside the table and "
            f"not in {self._words}, so it is not read. If the table is a clone, name the location of its origin: "
            "allowed_roots=['s3://…']. Otherwise find out who wrote the commit",
            table=self._base,
            version=version,
            reason=Reason.FILE_OUTSIDE_TABLE,
        )


def _place(uri: str) -> str:
    """Return a URI as the location that Hadoop opens: decoded once, without ``..``, one scheme for all of S3."""
    scheme = _scheme(uri)
    text = unquote(uri if scheme else f"file:{uri}")
    head, mark, path = text.partition("://")
    if not mark:
        head, _, path = text.partition(":")
        return comparable(f"{head}:{posixpath.normpath(path)}")
    authority, _, rest = path.partition("/")
    # an absolute path cannot climb above its root
    return comparable(f"{head}://{authority}{posixpath.normpath(f'/{rest}')}")


def _store(uri: str) -> tuple[str, str]:
    """Return the kind of store and the bucket, or container and account; for a file only the kind."""
    scheme = _scheme(uri) or "file"
    known = SCHEMES.get(scheme)
    kind = scheme if known is None else known.kind
    if kind == "local":
        return kind, ""
    return kind, uri.partition("://")[2].partition("/")[0]


def _scheme(uri: str) -> str | None:
    match = _SCHEME.match(uri)
    return match.group().lower() if match else None
