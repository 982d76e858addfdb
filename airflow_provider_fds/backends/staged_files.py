"""Files of this machine that a driver elsewhere begins with, in staging."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from airflow_provider_fds.batch.location import spark_uri

if TYPE_CHECKING:
    from airflow_provider_fds.delta.storage.storage import Storage

#: Folder in staging with the files that drivers begin with; the names have the digests of their contents.
DRIVERS: Final = ".drivers"


def ship(staging: Storage, path: str) -> str:
    """Return the URI of a file of this machine in staging, where the first use puts it; other URIs as they are.

    The driver runs what is there, so it is compared each time.
    """
    file = Path(path)
    if "://" in path or not file.is_file():
        return path
    data = file.read_bytes()
    key = f"{DRIVERS}/{hashlib.sha256(data).hexdigest()[:16]}-{file.name}"
    try:
        is_there = staging.get(key)[0] == data
    except FileNotFoundError:
        is_there = False
    if not is_there:
        staging.put(key, data)
    return spark_uri(f"{staging.uri}/{quote(key)}")
