"""The files that a batch's job reads and writes, for a job that runs inside an Airflow worker."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

from airflow_provider_fds.errors import StorageError
from airflow_provider_fds.schemes import comparable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from airflow_provider_fds.delta.storage.storage import Storage
    from airflow_provider_fds.sinks import Sink
    from airflow_provider_fds.stream.connected_stream import ConnectedStream


class DriverFiles:
    """Staging and sink storages, addressed by the paths the job uses: decoded, as Hadoop has them.

    Implements what ``spark/runtime/hadoop_files.py`` needs for files it cannot open itself. Staging is read with the
    credentials of the stream's staging, the sink with those of its table. The job needs no other credentials here;
    Spark's are on its server.

    Args:
        storages: Storages of staging and of the sink.
    """

    def __init__(self, *storages: Storage) -> None:
        self._storages = {comparable(unquote(storage.uri)): storage for storage in storages}

    @classmethod
    def union(cls, files: Iterable[DriverFiles]) -> DriverFiles:
        """Return the files of several jobs; of two storages of one place, either is used."""
        return cls(*(storage for each in files for storage in each.storages))

    @property
    def storages(self) -> tuple[Storage, ...]:
        """The storages, each with another root."""
        return tuple(self._storages.values())

    def read_bytes(self, path: str) -> bytes:
        """Return the whole file. Raises ``FileNotFoundError`` if it does not exist."""
        storage, key = self._find(path)
        return storage.get(key)[0]

    def write_bytes(self, path: str, data: bytes) -> None:
        """Write or overwrite the file."""
        storage, key = self._find(path)
        storage.put(key, data)

    def exists(self, path: str) -> bool:
        """Whether the file exists."""
        storage, key = self._find(path)
        return storage.head(key) is not None

    def size_bytes(self, path: str) -> int | None:
        """Return the file's size, or ``None`` if it does not exist."""
        storage, key = self._find(path)
        meta = storage.head(key)
        return None if meta is None else meta.size_bytes

    def names(self, folder: str) -> set[str]:
        """Return the names of the files directly in the folder; empty if there is no folder."""
        storage, key = self._find(folder)
        return {meta.key.rsplit("/", 1)[-1] for meta in storage.list_after(key)}

    def first_bytes(self, path: str) -> bytes:
        """Return the first bytes of the file; empty if it does not exist."""
        storage, key = self._find(path)
        try:
            return next(iter(storage.stream(key, chunk_bytes=64 << 10)), b"")
        except FileNotFoundError:
            return b""

    def remove_folder(self, folder: str) -> None:
        """Remove the folder and its contents; not an error if it does not exist."""
        storage, key = self._find(folder)
        storage.delete_folder(key)

    def _find(self, path: str) -> tuple[Storage, str]:
        place = comparable(path)
        for root, storage in self._storages.items():
            if place.startswith(f"{root}/"):
                return storage, place[len(root) + 1 :]
        raise StorageError(
            f"the job requested {path}, which is neither in staging nor in the sink; expected a path under "
            f"{' or '.join(self._storages)}",
            table=path,
        )


def driver_files(connected: ConnectedStream, sink: Sink) -> DriverFiles:
    """Return the files of a job of this stream: its staging, its sink and, if it has one, its fence's sink."""
    uris = list(sink.known_tables)
    fenced = connected.state.fence_sink
    if fenced is not None:
        uris += [fenced.target] if fenced.has_log else fenced.tables.values()
    return DriverFiles(connected.staging, *(connected.open_sink(uri) for uri in uris))
