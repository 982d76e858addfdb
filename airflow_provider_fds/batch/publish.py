"""Putting a manifest where Spark finds it: written once, whole, by whoever comes first."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from airflow_provider_fds.batch.location import hadoop_path
from airflow_provider_fds.delta.limits import TRIES, pause_seconds
from airflow_provider_fds.delta.paths import PATH_SAFE
from airflow_provider_fds.errors import LedgerError, StorageError
from airflow_provider_fds.fault_points import reach

if TYPE_CHECKING:
    from airflow_provider_fds.batch.manifest import Manifest
    from airflow_provider_fds.delta.storage import Storage

logger = logging.getLogger(__name__)

_COMMIT: Final = "_delta_log/00000000000000000000.json"
_CHECKSUM: Final = "_delta_log/00000000000000000000.crc"


def manifest_folder(epoch: int, batch_id: int, digest: str) -> str:
    """Return the folder of a manifest, relative to the stream's: ``manifests/<epoch>/<batch>-<digest>``."""
    return f"manifests/{epoch}/{batch_id}-{digest}"


def write_manifest(manifest: Manifest, storage: Storage, folder: str) -> str:
    """Write the two files of ``manifest`` below ``folder``, the commit last: a table is there when it is complete.

    Files that are there already with the same bytes are fine: another try wrote the same manifest.

    Args:
        manifest: What to write.
        storage: Staging; driver and executors of Spark must reach it too.
        folder: Decoded key relative to ``storage``; its last part ends with the manifest's digest.

    Returns:
        The folder as ``spark.read.format("delta").load(…)`` takes it; see :func:`.location.hadoop_path`.

    Raises:
        LedgerError: A file with other bytes lies at the name. Nothing is overwritten.
        StorageError: Staging did not answer.
    """
    folder = folder.strip("/")
    uri = f"{storage.uri}/{quote(folder, safe=PATH_SAFE)}"
    reach("manifest.before")
    for name, content in ((_CHECKSUM, manifest.checksum_json), (_COMMIT, manifest.commit_json)):
        if name == _COMMIT:
            reach("manifest.between")
        key = f"{folder}/{name}"
        found = _put_or_found(storage, key, content)
        if found != content:
            raise LedgerError(
                f"{uri}/{name} is there already with other content ({len(found)} bytes, expected {len(content)} bytes "
                f"of the manifest with digest {manifest.digest}); manifests are never overwritten. If no planned batch "
                "names this folder (fds history), remove it and try again, else open a new epoch with fds replan"
            )
    reach("manifest.after")
    return hadoop_path(uri)


def _put_or_found(storage: Storage, key: str, content: bytes | bytearray) -> bytes | bytearray:
    """Write a file that is not there yet, and return what lies at its name then.

    A put without an answer may have been done, and nobody but a writer of these bytes uses this name: it is repeated.
    """
    for attempt in range(1, TRIES + 1):
        try:
            if storage.put_if_absent(key, content):
                return content
            return storage.get(key)[0]
        except StorageError as error:
            if not error.retryable or attempt == TRIES:
                raise
            logger.info("%s; trying again", error)
        except FileNotFoundError:
            # S3 refuses a put while another one of the same name is on its way, which may come to nothing
            if attempt == TRIES:
                raise StorageError(
                    f"{storage.uri}/{quote(key, safe=PATH_SAFE)} can neither be written nor read: the store says that "
                    "it is there, and that it is not; try again",
                    table=storage.uri,
                ) from None
        time.sleep(pause_seconds(attempt))
    raise AssertionError("the last attempt returns or raises")
