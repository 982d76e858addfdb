"""Puts a manifest where Spark finds it: written once and completely, by whichever writer is first."""

from __future__ import annotations

import io
import logging
import os
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import IO, TYPE_CHECKING, Final
from urllib.parse import quote

from airflow_provider_fds.batch.location import hadoop_path
from airflow_provider_fds.delta.storage.client_limits import TRIES, pause_seconds
from airflow_provider_fds.errors import LedgerError, StorageError
from airflow_provider_fds.fault_points import reach
from airflow_provider_fds.schemes import PATH_SAFE

if TYPE_CHECKING:
    from concurrent.futures import Future
    from typing import Self

    from airflow_provider_fds.batch.manifest.manifest import Manifest
    from airflow_provider_fds.delta.storage.storage import Storage

logger = logging.getLogger(__name__)

_COMMIT: Final = "_delta_log/00000000000000000000.json"
_CHECKSUM: Final = "_delta_log/00000000000000000000.crc"
#: Larger files are not held in memory.
_ONE_REQUEST_BYTES: Final = 16 << 20
#: Manifests that are written at the same time.
_AT_ONCE: Final = 8


def manifest_folder(epoch: int | str, batch_id: int, digest: str) -> str:
    """Return the folder of a manifest, relative to the stream's: ``manifests/<epoch>/<batch>-<digest>``.

    In the folder of a data interval, ``<epoch>`` is ``<interval>/<generation>``.
    """
    return f"manifests/{epoch}/{batch_id}-{digest}"


def write_manifest(manifest: Manifest, storage: Storage, folder: str) -> str:
    """Write the two files of ``manifest`` below ``folder``, the commit last, so that an existing table is complete.

    Existing files with the same bytes are fine: another attempt wrote the same manifest.

    Args:
        manifest: The manifest.
        storage: Staging; Spark's driver and executors must reach it too.
        folder: Decoded key relative to ``storage``; its last part ends with the manifest's digest.

    Returns:
        The folder as ``spark.read.format("delta").load(…)`` takes it; see :func:`.location.hadoop_path`.

    Raises:
        LedgerError: A file of that name has other bytes. Nothing is overwritten.
        StorageError: Staging did not answer.
    """
    folder = folder.strip("/")
    uri = f"{storage.uri}/{quote(folder, safe=PATH_SAFE)}"
    reach("manifest.before")
    for name, content in ((_CHECKSUM, io.BytesIO(manifest.checksum_json)), (_COMMIT, manifest.commit)):
        if name == _COMMIT:
            reach("manifest.between")
        if not _write_once(storage, f"{folder}/{name}", content):
            raise LedgerError(
                f"{uri}/{name} already exists, and its content differs from the manifest with digest "
                f"{manifest.digest}; manifests are never overwritten. If no planned batch names this folder (`fds "
                "history`), remove it and try again; otherwise open a new epoch with `fds replan`"
            )
    reach("manifest.after")
    return hadoop_path(uri)


class ManifestWriter:
    """Writes the manifests of a plan; to an object store several at the same time, as none depends on another.

    Leaving its context waits until all are written, and raises the error of the first one that is not; the ledger must
    name none of them before. At most :data:`_AT_ONCE` wait in memory. Files are written one by one.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._pool = None if storage.is_file_system else ThreadPoolExecutor(_AT_ONCE, "fds-manifest")
        self._under_way: deque[Future[str]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        if self._pool is None:
            return
        self._pool.shutdown(cancel_futures=error is not None)
        while error is None and self._under_way:
            self._under_way.popleft().result()

    def write(self, manifest: Manifest, folder: str) -> None:
        """Write a manifest, or begin to, as :func:`write_manifest` does; raises its errors, perhaps of an earlier one.

        Args:
            manifest: The manifest; it belongs to the writer from now on.
            folder: As in :func:`write_manifest`.
        """
        if self._pool is None:
            write_manifest(manifest, self._storage, folder)
            return
        if len(self._under_way) == _AT_ONCE:
            self._under_way.popleft().result()
        self._under_way.append(self._pool.submit(write_manifest, manifest, self._storage, folder))


def _write_once(storage: Storage, key: str, content: IO[bytes]) -> bool:
    """Write a file if it does not exist; return whether it has this content afterwards.

    A put without an answer may have succeeded. It is repeated, because only writers of these bytes use this name.
    """
    is_large = content.seek(0, os.SEEK_END) > _ONE_REQUEST_BYTES
    for attempt in range(1, TRIES + 1):
        try:
            return _write_large(storage, key, content) if is_large else _write_small(storage, key, content)
        except StorageError as error:
            if not error.retryable or attempt == TRIES:
                raise
            logger.info("%s; trying again", error)
        except FileNotFoundError:
            # S3 refuses a put while another one of the same name is in progress, which may fail
            if attempt == TRIES:
                raise StorageError(
                    f"{storage.uri}/{quote(key, safe=PATH_SAFE)} can be neither written nor read: the store "
                    "reports both that it exists and that it does not. Try again",
                    table=storage.uri,
                ) from None
        time.sleep(pause_seconds(attempt))
    raise AssertionError("the last attempt returns or raises")


def _write_small(storage: Storage, key: str, content: IO[bytes]) -> bool:
    content.seek(0)
    data = content.read()
    return storage.put_if_absent(key, data) or storage.get(key)[0] == data


def _write_large(storage: Storage, key: str, content: IO[bytes]) -> bool:
    """Upload in parts, for which no store supports a condition: two concurrent writers both write these bytes."""
    if storage.head(key) is None:
        storage.put_file(key, content)
        return True
    content.seek(0)
    return all(content.read(len(chunk)) == chunk for chunk in storage.stream(key)) and not content.read(1)
